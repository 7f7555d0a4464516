//! The constructor: finds the segment, maps it and takes our traces out of the
//! environment. Context: normal, before `main`, one thread.

use crate::local::local;
use crate::{frames, state, system, thread, timer};
use core::ffi::{c_char, c_int};
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use sunder_wire::layout::{
    LARGE, MAGIC, OPTION_HEAP, OPTION_KEEP_ENVIRONMENT, PAGE, Refusal, SAMPLES, THREADS, TOTAL,
    VERSION, View,
};

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = start;

/// What became of the attempt to map the segment.
enum Mapped {
    /// Recording can start.
    Whole(View),
    /// Only the first pages, to say why not.
    Refused,
}

extern "C" fn start(_count: c_int, _arguments: *mut *mut c_char, environment: *mut *mut c_char) {
    // SAFETY: the dynamic linker passes the environment, which ends with null.
    let Some(path) = (unsafe { crate::environment::find(environment, b"SUNDER_SEGMENT=") }) else {
        return;
    };
    // SAFETY: a value in the environment is a C string.
    let mapped = unsafe { map_segment(path) };
    let keep = match mapped {
        Some(Mapped::Whole(view)) => {
            let options = view.header().options.load(Ordering::Relaxed);
            // SAFETY: the environment, as above.
            #[cfg(not(test))]
            unsafe {
                crate::exec::keep(environment);
            }
            begin(view, options);
            options & OPTION_KEEP_ENVIRONMENT != 0
        }
        _ => false,
    };
    if !keep {
        // SAFETY: as above; no other thread runs yet.
        unsafe { crate::environment::remove_ours(environment) };
    }
}

fn begin(view: View, options: u32) {
    let status = view.status();
    let process = system::process_id();
    // The segment belongs to the first process that loads the runtime, and to
    // the programs that this process executes after it.
    match status
        .process
        .compare_exchange(0, process, Ordering::AcqRel, Ordering::Relaxed)
    {
        Ok(_) => {}
        Err(owner) if owner == process => forget_last_program(view),
        Err(_) => return,
    }
    status.programs.fetch_add(1, Ordering::Release);
    if !state::activate(view) {
        status
            .refusal
            .store(Refusal::WipeOnFork as u32, Ordering::Relaxed);
        return;
    }
    frames::prepare();
    thread::prepare();
    timer::prepare(view);
    if options & OPTION_HEAP != 0 {
        state::record_heap();
    }
    thread::register(view, local());
}

/// Empties what describes the address space of the program that this process
/// ran before. Samples and events that were taken stay.
fn forget_last_program(view: View) {
    view.forget_target();
    for (from, to) in [(THREADS, SAMPLES), (LARGE, TOTAL)] {
        let start = view.base().as_ptr().wrapping_add(from);
        if let Some(start) = NonNull::new(start) {
            // Takes the pages out of the memory file; they read as zero again.
            // SAFETY: the range is the segment's, and its contents are no
            // longer wanted.
            unsafe { system::advise(start, to - from, libc::MADV_REMOVE) };
        }
    }
}

/// # Safety
/// `path` is a C string.
unsafe fn map_segment(path: *const u8) -> Option<Mapped> {
    // SAFETY: by this function's contract.
    let fd = unsafe { system::open(path) }?;
    let mapped = map_file(fd);
    system::close(fd);
    mapped
}

fn map_file(fd: c_int) -> Option<Mapped> {
    let mut head = [0; 24];
    if !system::read_start(fd, &mut head) {
        return None;
    }
    let [magic, version, total] = words(&head);
    if magic != MAGIC {
        return None;
    }
    if version as u32 != VERSION || total != TOTAL as u64 {
        return Some(refuse(fd, Refusal::Version));
    }
    let Some(base) = system::map_shared(fd, TOTAL) else {
        return Some(refuse(fd, Refusal::AddressSpace));
    };
    // SAFETY: the mapping is ours; a core file without it is what the program
    // would have left.
    unsafe { system::advise(base, TOTAL, libc::MADV_DONTDUMP) };
    // SAFETY: just mapped, and never unmapped.
    Some(Mapped::Whole(unsafe { View::new(base) }))
}

fn words(head: &[u8; 24]) -> [u64; 3] {
    // SAFETY: both are 24 bytes of plain data.
    unsafe { core::mem::transmute_copy(head) }
}

/// Says in the segment why the runtime stays passive. The first pages have had
/// the same shape in all versions.
fn refuse(fd: c_int, why: Refusal) -> Mapped {
    if let Some(base) = system::map_shared(fd, 4 * PAGE) {
        // SAFETY: the status page is the third; the view is used for nothing
        // else.
        let view = unsafe { View::new(base) };
        let status = view.status();
        status.refusal.store(why as u32, Ordering::Relaxed);
        status
            .process
            .store(system::process_id(), Ordering::Release);
    }
    Mapped::Refused
}
