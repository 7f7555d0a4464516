//! Maps a segment, and starts recording into it. Contexts: normal (before `main`), post-fork.

use crate::{frames, state, thread, timer};
use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicBool, Ordering};
use sunder_guest::environment::Start;
use sunder_guest::system;
use sunder_wire::layout::{
    CHUNK_BYTES, MAGIC, MAX_CHUNKS, OPTION_HEAP, PAGE, Refusal, SHADOW, TOTAL, VERSION, View,
};

/// The variable that names the segment's file, with the equals sign.
pub const VARIABLE: &[u8] = b"SUNDER_SEGMENT=";

/// Whether the program runs under Valgrind, whose search for leaks would read all of the sparse segment,
/// and so make the kernel allocate it.
static UNDER_VALGRIND: AtomicBool = AtomicBool::new(false);

/// Finds out whether the program runs under Valgrind, which preloads libraries of its own into it.
///
/// # Safety
/// The environment is that of the program's start.
pub unsafe fn look_for_valgrind(start: &Start) {
    const LIBRARY: &[u8] = b"/vgpreload_";
    // SAFETY: by this function's contract; a value in the environment is a C string.
    let preloaded = unsafe { start.find(b"LD_PRELOAD=") };
    // SAFETY: as above.
    let preloaded = preloaded.map(|value| unsafe { CStr::from_ptr(value.cast()) });
    let found = preloaded.is_some_and(|list| {
        let mut places = list.to_bytes().windows(LIBRARY.len());
        places.any(|place| place == LIBRARY)
    });
    UNDER_VALGRIND.store(found, Ordering::Relaxed);
}

/// Starts recording into `view`; returns whether that worked. `new` is true for a program and false
/// for a forked child.
pub fn record(view: View, new: bool) -> bool {
    let status = view.status();
    status
        .process
        .store(system::process_id(), Ordering::Release);
    status.programs.fetch_add(1, Ordering::Release);
    if !state::activate(view) {
        status
            .refusal
            .store(Refusal::WipeOnFork as u32, Ordering::Relaxed);
        return false;
    }
    if new {
        frames::prepare();
        thread::prepare();
        timer::prepare(view);
    } else {
        timer::again(view);
    }
    if view.header().options.load(Ordering::Relaxed) & OPTION_HEAP != 0 {
        state::record_heap();
    }
    true
}

/// The first words of a segment or registry: its magic number, version and size.
pub fn head(fd: c_int) -> Option<[u64; 3]> {
    let mut head = [0; 24];
    (system::read_at(fd, &mut head, 0) == head.len() as isize).then(|| words(&head))
}

/// Maps the segment in `fd`. If this runtime can't use it, the reason is written into the segment.
pub fn map(fd: c_int) -> Option<View> {
    let [magic, version, total] = head(fd)?;
    if magic != MAGIC {
        return None;
    }
    if version as u32 != VERSION || total != TOTAL as u64 {
        refuse(fd, Refusal::Version);
        return None;
    }
    if UNDER_VALGRIND.load(Ordering::Relaxed) {
        refuse(fd, Refusal::Valgrind);
        return None;
    }
    let Some(base) = system::map_shared(fd, TOTAL, libc::MAP_NORESERVE) else {
        refuse(fd, Refusal::AddressSpace);
        return None;
    };
    // SAFETY: the mapping is ours; without it a core file is as large as natively.
    unsafe { system::advise(base.as_ptr() as usize, TOTAL, libc::MADV_DONTDUMP) };
    // SAFETY: just mapped, and never unmapped.
    let view = unsafe { View::new(base) };
    close_shadow(view);
    Some(view)
}

/// Takes the rights from all chunks of the shadow that nobody has claimed; each gets them when it is. What has
/// none is not filled where the program locks all of its memory by a way that we do not see.
fn close_shadow(view: View) {
    let claimed = view
        .status()
        .chunks
        .load(Ordering::Relaxed)
        .min(MAX_CHUNKS - 1);
    let free = SHADOW + (claimed as usize + 1) * CHUNK_BYTES;
    let at = view.base().as_ptr() as usize + free;
    // SAFETY: nobody uses these chunks yet.
    unsafe { system::protect(at, TOTAL - free, libc::PROT_NONE) };
}

fn words(head: &[u8; 24]) -> [u64; 3] {
    // SAFETY: both are 24 bytes of plain data.
    unsafe { core::mem::transmute_copy(head) }
}

/// Writes into the segment why the runtime stays passive. The first pages have had the same layout
/// in all versions.
fn refuse(fd: c_int, why: Refusal) {
    if let Some(base) = system::map_shared(fd, 4 * PAGE, libc::MAP_NORESERVE) {
        // SAFETY: the status page is the third page; nothing else of the view is used.
        let view = unsafe { View::new(base) };
        let status = view.status();
        status.refusal.store(why as u32, Ordering::Relaxed);
        status
            .process
            .store(system::process_id(), Ordering::Release);
    }
}
