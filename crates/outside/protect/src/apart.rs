//! Memory that forked children are to find empty or missing (`madvise(2)`, `MADV_WIPEONFORK` and
//! `MADV_DONTFORK`), such as the keys of a cryptographic library, or the page by which our own
//! runtime notices that it is in a child. This property is lost when memory is mapped anew; so such
//! memory is not made sharable, and an isolated thread that touches it ends its episode. Called by
//! `keeper` while all threads are stopped.

use super::shared::Shared;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sunder_access::{ProcessId, ThreadId};
use sunder_observe::proc::{self, Flagged, Folder};
use sunder_wire::isolation::APART;

/// Tells the library which memory of a process is of that kind; `thread` is a living thread of it.
///
/// # Errors
/// Says why no memory may be made sharable: the flags can't be read, or there is too much such
/// memory.
pub fn publish(process: i32, thread: i32, shared: &Shared) -> Result<(), String> {
    let unknown = |e: std::io::Error| format!("what memory it has can't be read: {e}");
    let thread = Folder::Thread(
        ProcessId(process.unsigned_abs()),
        ThreadId(thread.unsigned_abs()),
    );
    let flagged = proc::flagged_of(thread).map_err(unknown)?;
    let flagged: Vec<Flagged> = flagged.collect::<Result<_, _>>().map_err(unknown)?;
    let found = found(flagged.into_iter())?;
    if found.len() > APART {
        return Err("too much of its memory is not for forked children".into());
    }
    for (to, from) in shared.apart.iter().zip(&found) {
        to[0].store(from[0], Relaxed);
        to[1].store(from[1], Relaxed);
    }
    shared.apart_count.store(found.len() as u32, Release);
    Ok(())
}

/// Whether an address lies in such memory, as of the last [`publish`].
pub fn is_apart(shared: &Shared, address: u64) -> bool {
    let count = shared.apart_count.load(Acquire) as usize;
    let has = |[from, to]: [u64; 2]| (from..to).contains(&address);
    let ranges = shared.apart.iter().take(count);
    ranges
        .map(|range| range.each_ref().map(|end| end.load(Relaxed)))
        .any(has)
}

/// The address ranges with these flags, merged where they touch.
fn found(flagged: impl Iterator<Item = Flagged>) -> Result<Vec<[u64; 2]>, String> {
    let mut found: Vec<[u64; 2]> = Vec::new();
    let mut any = false;
    for one in flagged {
        any = true;
        let is_meant = one.has_any(&["wf", "dc"]);
        let Some(mapping) = one.mapping.filter(|_| is_meant) else {
            continue;
        };
        if !mapping.read || !mapping.write || mapping.execute || mapping.shared {
            continue;
        }
        let (start, end) = (mapping.span.start.0, mapping.span.end().0);
        match found.last_mut() {
            Some(last) if last[1] == start => last[1] = end,
            _ => found.push([start, end]),
        }
    }
    any.then_some(found)
        .ok_or_else(|| "what memory it has is not told".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
10000-14000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me ac sd
14000-18000 rw-p 00000000 00:00 0 [heap]
VmFlags: rd wr mr mw me wf ac sd
18000-19000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me dc ac sd
20000-21000 rw-s 00000000 00:01 7 /memfd:segment (deleted)
VmFlags: rd wr sh mr mw me ms dc sd
21000-22000 r--p 00000000 00:00 0 [vvar]
VmFlags: rd mr pf io de dd dc sd
30000-31000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me wf ac sd
31000-32000 rw-p 00000000 00:00 0
";

    #[test]
    fn memory_that_is_not_for_children_is_found_by_its_flags() {
        let all = [[0x14000, 0x19000], [0x30000, 0x31000]];
        let found = |text: &str| {
            let lines = text.lines().map(|l| Ok::<_, ()>(l.to_owned()));
            found(proc::flagged(lines).map_while(Result::ok))
        };
        assert_eq!(found(SMAPS), Ok(all.to_vec()));
        assert!(found("").is_err(), "the kernel reports no flags");
    }

    #[test]
    fn memory_of_a_living_process_is_published() {
        const PAGE: usize = sunder_access::PAGE as usize;
        let shared = Shared::new().expect("memory files exist");
        // SAFETY: maps new memory, and changes only that.
        let at = unsafe {
            let (both, own) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
            let none = std::ptr::null_mut();
            let at = libc::mmap(none, 3 * PAGE, both, own | libc::MAP_ANONYMOUS, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            let advice = libc::MADV_WIPEONFORK;
            assert_eq!(libc::madvise(at.add(PAGE), PAGE, advice), 0);
            at as u64
        };
        // SAFETY: takes no arguments.
        let thread = unsafe { libc::gettid() };
        assert_eq!(publish(std::process::id() as i32, thread, &shared), Ok(()));
        let is_apart = |page: u64| is_apart(&shared, at + page * PAGE as u64 + 17);
        assert_eq!([0, 1, 2].map(is_apart), [false, true, false]);
        assert!(publish(i32::MAX, 1, &shared).is_err());
    }
}
