//! Whether bytes of a program may be moved at all, by what the kernel reports of the process and
//! its memory. Called by `repairer` and `attach::inject`. Only reads.

use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use sunder_access::{Address, Mappings, ProcessId, Span};
use sunder_observe::proc::{self, Fields, Flagged, Folder};
use sunder_wire::remap::Area;

/// Why bytes that were moved before are not moved again.
pub const OTHER_CODE: &str = "other code lies where some was that has been copied";

/// Whether these bytes may be moved: nothing else traces the program, it has no shadow stacks, no
/// thread blocks the signal of faults, and the bytes are neither the program's arguments nor locked
/// into memory nor of a mapping that forked children find empty. Whoever lists processes reads their
/// arguments, and would find none. Our library keeps its own data in such a mapping and
/// uses them with all signals blocked, where a fault ends the program.
///
/// Nor may it, or somebody else, handle the faults of its memory (`userfaultfd`): moved pages are mapped
/// anew, which ends that for them.
///
/// Nor may the program have the file of its memory open: the kernel reads and writes there without
/// regard to rights, so that no hook would see it. A file that is opened later is not noticed.
///
/// # Errors
/// Says what prevents it.
pub fn is_sound(process: ProcessId, page: u64, len: u64) -> Result<(), String> {
    let living = proc::living_number(process);
    let status = Fields::read(Folder::Process(living))
        .map_err(|e| format!("its state can't be read: {e}"))?;
    if !matches!(status.get("TracerPid"), "0" | "") {
        return Err("the program is being traced".into());
    }
    if status.get("x86_Thread_features").contains("shstk") {
        return Err("the program has shadow stacks".into());
    }
    if status.get("VmLck").is_empty() {
        return Err("the program has ended".into());
    }
    for file in proc::links(living).map_err(|e| e.to_string())? {
        if is_memory(&file) {
            return Err("the program has its memory open as a file in /proc".into());
        }
        if file.as_os_str() == FAULTS {
            return Err(OWN_FAULTS.into());
        }
    }
    let pages = Span::new(Address(page), len);
    if proc::arguments(process).is_some_and(|arguments| arguments.overlaps(pages)) {
        return Err(
            "the program's command line lies on the same pages, which other processes read".into(),
        );
    }
    let unknown = |e: std::io::Error| format!("what memory it is can't be read: {e}");
    let flagged = proc::flagged_of(Folder::Process(living)).map_err(unknown)?;
    peculiar(flagged.map_while(Result::ok), page, page + len).map_or(Ok(()), Err)?;
    let threads = proc::threads(process).map_err(|e| e.to_string())?;
    for thread in threads {
        let status = Fields::read(Folder::Thread(process, thread)).unwrap_or_default();
        let mask = status.bits("SigBlk");
        if mask.is_some_and(|m| m >> (libc::SIGSEGV - 1) & 1 != 0) {
            return Err("a thread blocks the signal that faults make".into());
        }
    }
    Ok(())
}

/// What the kernel calls an open file of faults.
const FAULTS: &str = "anon_inode:[userfaultfd]";

/// Why memory of a program with such a file stays where it is.
const OWN_FAULTS: &str = "the program handles the faults of its memory itself (userfaultfd)";

/// Whether it is the file of some process's memory.
fn is_memory(file: &Path) -> bool {
    file.starts_with("/proc") && file.ends_with("mem")
}

/// Whether all code of which an area has copies is the same as `then`. After a module was unloaded,
/// other code may lie there, or the same code from another file.
pub fn has_its_code(area: &Area, then: &Mappings, now: &Mappings) -> bool {
    let count = area.resume_count.load(Acquire) as usize;
    let copied = area.resumes.iter().take(count);
    copied
        .map(|resume| Address(resume.original.load(Relaxed)))
        .all(|at| {
            then.at(at)
                .is_some_and(|m| m.execute && now.at(at) == Some(m))
        })
}

/// What `/proc/PID/smaps` says against moving the bytes from `from` to `to`: all of them must lie
/// in mappings without such a flag. Reads no further than these mappings.
fn peculiar(flagged: impl Iterator<Item = Flagged>, from: u64, to: u64) -> Option<String> {
    let mut plain = 0;
    for one in flagged {
        let Some(span) = one.mapping.as_ref().map(|m| m.span) else {
            continue;
        };
        if span.start.0 >= to {
            break;
        }
        let within = span.end().0.min(to).saturating_sub(span.start.0.max(from));
        if within > 0 && one.has_any(&["lo"]) {
            return Some("it is locked memory".into());
        }
        if within > 0 && one.has_any(&["wf", "dc"]) {
            return Some("forked children are not to have it".into());
        }
        // Whoever handles its faults may be another process.
        if within > 0 && one.has_any(&["um", "uw", "ui"]) {
            return Some(OWN_FAULTS.into());
        }
        plain += within;
    }
    (plain < to - from).then(|| "it is not known what memory it is".into())
}

#[cfg(test)]
mod tests {
    use super::{has_its_code, peculiar};
    use crate::place::tests::writable;
    use std::sync::atomic::Ordering::Relaxed;
    use sunder_access::{Mapping, Mappings};
    use sunder_observe::proc::{self, Flagged};
    use sunder_wire::remap::Control;

    const SMAPS: &str = "\
10000-14000 rw-p 00000000 00:00 0
Size:                 16 kB
Locked:               16 kB
VmFlags: rd wr mr mw me lo ac sd
14000-18000 rw-p 00000000 00:00 0                    [heap]
Size:                 16 kB
VmFlags: rd wr mr mw me ac sd
18000-19000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me wf ac sd
19000-1a000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me dc ac sd
1c000-1d000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me um ac sd
1d000-1e000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me uw ac sd
20000-21000 rw-p 00000000 00:00 0
Size:                  4 kB
";

    fn flagged<'a>(lines: impl Iterator<Item = &'a str>) -> impl Iterator<Item = Flagged> {
        let lines = lines.map(|line| Ok::<_, ()>(line.to_owned()));
        proc::flagged(lines).map_while(Result::ok)
    }

    #[test]
    fn only_plain_memory_is_moved() {
        let said = |from, to| peculiar(flagged(SMAPS.lines()), from, to).unwrap_or_default();
        assert_eq!(said(0x10000, 0x11000), "it is locked memory");
        assert_eq!(said(0x13000, 0x15000), "it is locked memory", "half of it");
        assert_eq!(said(0x14000, 0x15000), "", "the heap is plain");
        assert_eq!(said(0x17000, 0x18000), "", "to its end");
        let children = "forked children are not to have it";
        assert_eq!(said(0x17000, 0x19000), children, "beyond it");
        assert_eq!(said(0x19000, 0x1a000), children);
        assert_eq!(said(0x1c000, 0x1d000), super::OWN_FAULTS);
        assert_eq!(said(0x1d000, 0x1e000), super::OWN_FAULTS);
        let unknown = "it is not known what memory it is";
        assert_eq!(said(0x1a000, 0x1b000), unknown, "none is there");
        assert_eq!(said(0x20000, 0x21000), unknown, "cut off before its flags");
    }

    #[test]
    fn lines_behind_the_range_are_not_read() {
        let lines = SMAPS
            .lines()
            .chain(std::iter::from_fn(|| panic!("read on")));
        assert_eq!(peculiar(flagged(lines), 0x14000, 0x15000), None);
    }

    #[test]
    fn copies_of_code_that_has_gone_are_not_used_again() {
        // SAFETY: `Control` consists of atomic integers, for which zeroes are valid.
        let control: Box<Control> = unsafe { Box::new_zeroed().assume_init() };
        let area = &control.areas[0];
        let of = |start: u64, inode: u64| Mapping {
            execute: true,
            inode,
            ..writable(start, 0x9000, "/library")
        };
        let all = |library: Option<Mapping>| -> Mappings {
            let program = Mapping {
                execute: true,
                ..writable(0x1000, 0x2000, "/program")
            };
            library.into_iter().chain([program]).collect()
        };
        let then = all(Some(of(0x5000, 7)));
        let others = [None, Some(of(0x5000, 8)), Some(of(0x4000, 7))];
        let is = |now: &Mappings| has_its_code(area, &then, now);
        let nothing_copied = others.iter().all(|other| is(&all(other.clone())));
        assert!(nothing_copied);
        for (resume, original) in area.resumes.iter().zip([0x1010, 0x5010]) {
            resume.original.store(original, Relaxed);
        }
        area.resume_count.store(1, Relaxed);
        assert!(is(&all(None)), "the program's own code alone");
        area.resume_count.store(2, Relaxed);
        assert!(is(&then));
        for other in others {
            assert!(!is(&all(other.clone())), "{other:?}");
        }
        // The library was loaded after `then`.
        assert!(!has_its_code(area, &all(None), &then));
    }
}
