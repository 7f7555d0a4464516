//! The constructor: finds the segment, maps it, and removes this library's variables from the
//! environment. Context: normal, before `main`, one thread.

use crate::local::local;
use crate::{follow, frames, state, thread, timer};
use core::ffi::{c_char, c_int};
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use sunder_guest::system;
use sunder_wire::layout::{
    LARGE, MAGIC, OPTION_HEAP, OPTION_KEEP_ENVIRONMENT, PAGE, Refusal, SAMPLES, THREADS, TOTAL,
    VERSION, View,
};
use sunder_wire::registry;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = start;

extern "C" fn start(_count: c_int, _arguments: *mut *mut c_char, environment: *mut *mut c_char) {
    // SAFETY: the dynamic linker passes the environment, which ends with null.
    let Some(path) = (unsafe { crate::environment::find(environment, b"SUNDER_SEGMENT=") }) else {
        return;
    };
    // SAFETY: a value in the environment is a C string.
    let mapped = unsafe { system::open(libc::AT_FDCWD, path, libc::O_RDWR) }.and_then(|fd| {
        // SAFETY: the environment, as above.
        #[cfg(not(test))]
        unsafe {
            crate::exec::keep(environment);
        }
        let mapped = map_file(fd);
        system::close(fd);
        mapped
    });
    let mut keep = false;
    if let Some((view, owned)) = mapped {
        let options = view.header().options.load(Ordering::Relaxed);
        begin(view, owned);
        keep = options & OPTION_KEEP_ENVIRONMENT != 0;
    }
    if !keep {
        // SAFETY: the environment ends with null, and no other thread runs yet.
        unsafe { crate::environment::remove_ours(environment) };
    }
}

/// Starts recording; `owned` says that the segment belongs to this image alone.
fn begin(view: View, owned: bool) {
    // A segment that is not owned belongs to the first process that loads the runtime, and to the
    // programs that this process executes later.
    let process = system::process_id();
    let owner = &view.status().process;
    if !owned {
        match owner.compare_exchange(0, process, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => {}
            Err(owner) if owner == process => forget_last_program(view),
            Err(_) => return,
        }
    }
    if record(view, true) {
        thread::register(view, local());
        follow::prepare();
    }
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

/// Clears the records of the address space of the program that this process ran before. Samples and
/// events stay.
fn forget_last_program(view: View) {
    view.forget_target();
    for (from, to) in [(THREADS, SAMPLES), (LARGE, TOTAL)] {
        let start = view.base().as_ptr().wrapping_add(from);
        if let Some(start) = NonNull::new(start) {
            // Frees the pages in the memory file; they read as zero again.
            // SAFETY: the range belongs to the segment, and its contents are not needed any more.
            unsafe { system::advise(start.as_ptr() as usize, to - from, libc::MADV_REMOVE) };
        }
    }
}

/// Maps what the environment names: a segment, or a registry with one for this image. The second
/// value is true for a registry.
fn map_file(fd: c_int) -> Option<(View, bool)> {
    match words(&head(fd)?) {
        [MAGIC, ..] => Some((map_segment(fd)?, false)),
        [registry::MAGIC, version, total]
            if version as u32 == VERSION && total == registry::BYTES as u64 =>
        {
            Some((follow::begin(fd)?, true))
        }
        _ => None,
    }
}

fn head(fd: c_int) -> Option<[u8; 24]> {
    let mut head = [0; 24];
    (system::read_at(fd, &mut head, 0) == head.len() as isize).then_some(head)
}

/// Maps the segment in `fd`. If this runtime can't use it, the reason is written into the segment.
pub fn map_segment(fd: c_int) -> Option<View> {
    let [magic, version, total] = words(&head(fd)?);
    if magic != MAGIC {
        return None;
    }
    if version as u32 != VERSION || total != TOTAL as u64 {
        refuse(fd, Refusal::Version);
        return None;
    }
    let Some(base) = system::map_shared(fd, TOTAL, libc::MAP_NORESERVE) else {
        refuse(fd, Refusal::AddressSpace);
        return None;
    };
    // SAFETY: the mapping is ours; without it a core file is as large as natively.
    unsafe { system::advise(base.as_ptr() as usize, TOTAL, libc::MADV_DONTDUMP) };
    // SAFETY: just mapped, and never unmapped.
    Some(unsafe { View::new(base) })
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
