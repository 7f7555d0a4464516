//! The constructor: finds the segment, maps it, and removes this library's variables from the
//! environment. Context: normal, before `main`, one thread.

use crate::local::local;
use crate::{follow, segment, thread};
use core::ffi::{c_char, c_int};
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use sunder_guest::environment::{Library, Start};
use sunder_guest::system;
use sunder_wire::layout::{
    LARGE, MAGIC, OPTION_KEEP_ENVIRONMENT, SAMPLES, THREADS, TOTAL, VERSION, View,
};
use sunder_wire::registry;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = start;

extern "C" fn start(count: c_int, arguments: *mut *mut c_char, environment: *mut *mut c_char) {
    let start = Start {
        count,
        arguments,
        environment,
    };
    // SAFETY: the dynamic linker passes the environment, which ends with null.
    let Some(path) = (unsafe { start.find(segment::VARIABLE) }) else {
        return;
    };
    // SAFETY: the dynamic linker passes the environment.
    unsafe { segment::look_for_valgrind(&start) };
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
        // SAFETY: the dynamic linker passes these values, and no other thread runs yet.
        unsafe { start.remove(&[segment::VARIABLE], Library::First) };
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
    if segment::record(view, true) {
        thread::register(view, local());
        follow::prepare();
    }
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
    match segment::head(fd)? {
        [MAGIC, ..] => Some((segment::map(fd)?, false)),
        [registry::MAGIC, version, total]
            if version as u32 == VERSION && total == registry::BYTES as u64 =>
        {
            Some((follow::begin(fd)?, true))
        }
        _ => None,
    }
}
