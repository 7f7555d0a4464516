//! Whether the bytes of pages may be moved at all, whatever is gained by it. Called by `choose`,
//! `pattern` and `chaos`, and by `repairer` before bytes are moved again.

use super::common::may_be_alone;
use sunder_access::{Address, Mapping, Mappings, PAGE, is_own_file};
use sunder_pipeline::Process;

/// Whether the bytes of these pages may be moved at all.
///
/// # Errors
/// Says why not.
pub fn can_be_moved(
    process: &mut Process,
    mappings: &Mappings,
    page: u64,
    len: u64,
) -> Result<(), String> {
    let fit = fits(mappings, page, len, process.stops_to_move)?;
    if fit == Fit::BehindLibrary && is_of_a_file(process, mappings, page, len) {
        return Err(LIBRARYS.into());
    }
    let mapping = mappings.at(Address(page));
    if mapping.is_some_and(|m| process.makes_stacks_in(m)) {
        // A fault on the stack that its thread uses at that moment would end the program.
        return Err("the program keeps stacks there that it made itself".into());
    }
    no_thread_lives_on(process, page, len)
}

/// Why data of some libraries is left alone.
const LIBRARYS: &str = "it belongs to the C library, the loader or us";

/// How the kernel ends the path of a mapped file that is no longer there.
const GONE: &str = " (deleted)";
/// What the kernel calls private memory of huge pages (`MAP_HUGETLB`).
const HUGE: &str = "/anon_hugepage (deleted)";

/// Whether nothing of a library is moved. The C library, the loader and the unwinder use their data
/// while all signals are blocked or threads begin and end, and our libraries while they handle a
/// fault. Others' data are as the program's: their own code uses them, and before a library is
/// unmapped, a hook puts its bytes back.
fn is_left_alone(path: &str) -> bool {
    const NAMES: [&str; 8] = [
        "ld-",
        "libc.so",
        "libc-",
        "libdl",
        "libgcc_s",
        "libnptl",
        "libpthread",
        "librt",
    ];
    let name = path.rsplit('/').next().unwrap_or(path);
    // A library that has no file any more can't be looked at.
    let has_file = path.starts_with('/') && !path.ends_with(GONE);
    !has_file || path.starts_with("/memfd:") || NAMES.iter().any(|start| name.starts_with(start))
}

/// Where pages of plain data lie.
#[derive(Debug, PartialEq, Eq)]
enum Fit {
    /// In memory of the program.
    Programs,
    /// In nameless memory right behind a library, whose zero-initialised data they may be.
    BehindLibrary,
}

/// Whether the pages are data of a file, by the sizes of its segments; also if that can't be told.
fn is_of_a_file(process: &mut Process, mappings: &Mappings, page: u64, len: u64) -> bool {
    process.names.set_mappings(mappings.clone());
    process.names.is_of_a_file(Address(page)) != Some(false)
        || process.names.is_of_a_file(Address(page + len - 1)) != Some(false)
}

/// The pages must be data of the program alone, readable and writable, in one mapping. The first
/// thread's stack may only move if threads are stopped for it: then the thread is kept off it.
fn fits(mappings: &Mappings, page: u64, len: u64, stops: bool) -> Result<Fit, String> {
    let mapping = mappings.at(Address(page));
    let mapping = mapping.ok_or("its mapping is not known")?;
    let program = mappings
        .iter()
        // Code of ours may lie below the program.
        .find(|m| m.is_file() && !is_own_file(&m.path))
        .map_or("", |m| m.path.as_str());
    if mapping.span.end().0 < page + len {
        return Err("it lies on two mappings".into());
    }
    if !mapping.read || !mapping.write || mapping.execute {
        return Err("its memory is not plain data".into());
    }
    if mapping.shared {
        may_be_alone(mappings, mapping, page, len)?;
        return Ok(Fit::Programs);
    }
    match mapping.path.as_str() {
        "[heap]" => {}
        "[stack]" if stops => {}
        "[stack]" => return Err("it lies on a stack".into()),
        path if path.is_empty() || path.starts_with("[anon") => {
            // A library's zero-initialised data lie right behind its file's mapping.
            let before = |end: u64| mappings.iter().find(|m| m.span.end().0 == end);
            let of_library = |m: &Mapping| {
                m.is_file() && m.path != program && is_left_alone(&m.path) && has_code(mappings, m)
            };
            let mut start = mapping.span.start.0;
            while let Some(previous) = before(start) {
                if of_library(previous) {
                    return Ok(Fit::BehindLibrary);
                }
                if previous.is_file() || !previous.path.is_empty() {
                    break;
                }
                start = previous.span.start.0;
            }
        }
        path if path == program || is_librarys(mappings, mapping) => {}
        HUGE => return Err("it lies on huge pages, which the kernel moves as a whole only".into()),
        path if path.ends_with(GONE) && !path.starts_with("/memfd:") => {
            return Err("its file was deleted or replaced".into());
        }
        path if is_left_alone(path) => return Err(LIBRARYS.into()),
        // The program has mapped the file itself, and may tell the kernel to read it anew.
        _ => return Err("it is a file's".into()),
    }
    Ok(Fit::Programs)
}

/// Whether the mapping holds data of a library that may be moved.
fn is_librarys(mappings: &Mappings, mapping: &Mapping) -> bool {
    !is_left_alone(&mapping.path) && has_code(mappings, mapping)
}

/// Whether code of the mapping's file is mapped, too: the file is a library, and no memory that
/// processes share.
fn has_code(mappings: &Mappings, mapping: &Mapping) -> bool {
    let code = |other: &Mapping| other.execute && other.path == mapping.path;
    mappings.iter().any(code)
}

/// No thread may have its thread-local variables on the pages, or its stack unless threads are stopped
/// to move it: they are used while all signals are blocked, the one of faults included.
fn no_thread_lives_on(process: &Process, page: u64, len: u64) -> Result<(), String> {
    let Some(heap) = process.heap() else {
        if process.stops_to_move {
            return Ok(());
        }
        return Err("nothing is known of the program's threads".into());
    };
    let threads = heap.segment.threads();
    // Also for threads that have ended: the C library gives their stacks to new threads.
    for thread in &threads {
        let start = thread.stack.start.0;
        // The thread's descriptor lies above its thread-local variables.
        let end = thread.stack.end().0.max(thread.fs_base.0 + PAGE);
        if !process.stops_to_move && start < page + len && page < end {
            return Err("it lies on a thread's stack".into());
        }
        let own = thread.fs_base.0;
        if own.wrapping_add(PAGE) > page && own < page + len + (64 << 10) {
            return Err("it lies beside a thread's own variables".into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::tests::writable;
    use sunder_access::{ProcessId, ThreadId};

    const HERE: u64 = 0x5000_0000;

    /// A fault on the stack that a thread uses ends the program; and a program that makes a stack
    /// of its own has more of them than the one that was seen.
    #[test]
    fn memory_with_stacks_that_the_program_made_is_not_moved() {
        let heap = writable(HERE, HERE + 0x10_0000, "[heap]");
        let elsewhere = writable(HERE + 0x20_0000, HERE + 0x30_0000, "");
        let own = writable(0x7ffd_0000_0000, 0x7ffd_0002_0000, "[stack]");
        let mappings: Mappings = [heap, elsewhere, own].into_iter().collect();
        let mut process = Process::recorded(ProcessId(1), sunder_sharing::Config::default());
        process.stops_to_move = true;
        let moved = |process: &mut Process, page| can_be_moved(process, &mappings, page, PAGE);
        process.threads.sampled(ThreadId(1), 0x7ffd_0001_0000);
        assert_eq!(
            moved(&mut process, HERE),
            Ok(()),
            "the first thread's own is another"
        );
        process.threads.sampled(ThreadId(1), HERE + 0x8_0ff8);
        process.threads.sampled(ThreadId(1), 0x7ffd_0001_0000);
        assert!(
            moved(&mut process, HERE).is_err(),
            "also when it is back on its own"
        );
        assert!(moved(&mut process, HERE + 0xf_f000).is_err());
        assert_eq!(moved(&mut process, HERE + 0x20_0000), Ok(()));
    }

    #[test]
    fn the_reason_for_a_library_whose_file_was_replaced_names_that() {
        let code = writable(HERE, HERE + PAGE, "/lib/libmine.so (deleted)");
        let data = writable(HERE + PAGE, HERE + 2 * PAGE, "/lib/libmine.so (deleted)");
        let code = Mapping {
            execute: true,
            write: false,
            ..code
        };
        let program = writable(0x1000, 0x2000, "/bin/program");
        let mappings: Mappings = [program, code, data].into_iter().collect();
        let mut process = Process::recorded(ProcessId(1), sunder_sharing::Config::default());
        process.stops_to_move = true;
        let why = can_be_moved(&mut process, &mappings, HERE + PAGE, PAGE).unwrap_err();
        assert!(why.contains("deleted or replaced"), "{why}");
        // There was never a file behind memory of huge pages.
        let program = writable(0x1000, 0x2000, "/bin/program");
        let huge = writable(HERE, HERE + (2 << 20), HUGE);
        let mappings: Mappings = [program, huge].into_iter().collect();
        let why = can_be_moved(&mut process, &mappings, HERE, PAGE).unwrap_err();
        assert!(why.contains("huge pages"), "{why}");
    }

    /// The kernel likes to put what a program maps right behind a library.
    #[test]
    fn nameless_memory_behind_a_library_is_the_programs_beyond_the_librarys_own_data() {
        let own = ProcessId(std::process::id());
        let own = sunder_observe::proc::mappings(own).expect("our own mappings");
        let of_libc = |m: &&sunder_access::Mapping| m.path.ends_with("/libc.so.6");
        let libc: Vec<_> = own.iter().filter(of_libc).cloned().collect();
        let Some(end) = libc.iter().map(|m| m.span.end().0).max() else {
            println!("SKIP: this test is linked statically");
            return;
        };
        let program = own.iter().find(|m| m.is_file()).cloned();
        let behind = writable(end, end + (1 << 20), "");
        let mappings: Mappings = program.into_iter().chain(libc).chain([behind]).collect();
        let mut process = Process::recorded(ProcessId(1), sunder_sharing::Config::default());
        process.stops_to_move = true;
        let last = end + (1 << 20) - PAGE;
        assert_eq!(can_be_moved(&mut process, &mappings, last, PAGE), Ok(()));
        let library = Err(LIBRARYS.to_owned());
        assert_eq!(can_be_moved(&mut process, &mappings, end, PAGE), library);
    }

    /// jemalloc's memory lay behind a file of ours that has no code, and was said to be a library's.
    #[test]
    fn memory_behind_a_file_without_code_is_the_programs() {
        let program = writable(0x1000, 0x2000, "/bin/program");
        let ours = Mapping {
            inode: 7,
            ..writable(HERE, HERE + PAGE, "/memfd:sunder-segment (deleted)")
        };
        let chunk = writable(HERE + PAGE, HERE + 0x80_0000, "");
        let mappings = |code: Option<Mapping>| -> Mappings {
            let all = [program.clone(), ours.clone(), chunk.clone()];
            all.into_iter().chain(code).collect()
        };
        let fit = |code| fits(&mappings(code), HERE + 0x10_0000, PAGE, true);
        assert_eq!(fit(None), Ok(Fit::Programs));
        let code = Mapping {
            execute: true,
            write: false,
            ..writable(0x4000_0000, 0x4000_1000, "/memfd:sunder-segment (deleted)")
        };
        assert_eq!(fit(Some(code)), Ok(Fit::BehindLibrary));
    }
}
