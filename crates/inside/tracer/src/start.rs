//! Begin and end of the recording: before the first constructor, and after the last destructor or
//! in functions that end the process without destructors. Contexts: pre-init, normal, post-fork;
//! functions that end the process also signal.

use crate::local::{RECORDER, local};
use crate::{hooks, modules, real, threads};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_uint};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sunder_guest::environment::{Library, Start};
use sunder_trace::meta::{Reason, Via};

/// The variable with the trace file's path, which must be absolute.
const VARIABLE: &[u8] = b"SUNDER_TRACE=";

/// Bytes of the longest path.
const LONGEST_PATH: usize = 4096;

/// The path of the trace file, which only [`first`] writes.
struct TracePath(UnsafeCell<[u8; LONGEST_PATH]>);

// SAFETY: written once, before there are other threads.
unsafe impl Sync for TracePath {}

static PATH: TracePath = TracePath(UnsafeCell::new([0; LONGEST_PATH]));
/// Whether [`PATH`] is known, and recording has not begun.
static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// An address near the end of the first thread's stack, that of the environment.
static INSIDE: AtomicU64 = AtomicU64::new(0);

#[used]
#[unsafe(link_section = ".preinit_array")]
static FIRST: unsafe extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = first;

#[used]
#[unsafe(link_section = ".fini_array.00000")]
static LAST: extern "C" fn() = last;

/// Runs before all constructors. Removes the variable from the environment, because the program and
/// its children need not see it.
unsafe extern "C" fn first(
    count: c_int,
    arguments: *mut *mut c_char,
    environment: *mut *mut c_char,
) {
    INSIDE.store(environment.addr() as u64, Ordering::Relaxed);
    let start_of_program = Start {
        count,
        arguments,
        environment,
    };
    // SAFETY: the dynamic linker passes these values, and no other thread runs yet.
    unsafe {
        if let Some(path) = start_of_program.find(VARIABLE) {
            let path = CStr::from_ptr(path.cast()).to_bytes();
            // The zero byte that ends the path is there already.
            if path.len() < LONGEST_PATH
                && let Some(place) = (*PATH.0.get()).get_mut(..path.len())
            {
                place.copy_from_slice(path);
                IS_WANTED.store(true, Ordering::Relaxed);
            }
            start_of_program.remove(&[VARIABLE], Library::None);
        }
    }
    start();
}

/// Begins to record, once, if the variable names a file.
pub fn start() {
    if !IS_WANTED.swap(false, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the path was written before, with its final zero byte; `sysconf` takes a number.
    let (path, line) = unsafe {
        (
            CStr::from_ptr(PATH.0.get().cast()).to_bytes_with_nul(),
            libc::sysconf(libc::_SC_LEVEL1_DCACHE_LINESIZE),
        )
    };
    let start = sunder_recorder::Start {
        path,
        via: Via::Instrumented,
        line_size: u32::try_from(line).unwrap_or(0),
        program: None,
    };
    // If this fails, at most an empty file is left, which shows that nothing was recorded.
    if RECORDER.start(&start).is_err() {
        return;
    }
    threads::prepare();
    RECORDER.before_blocks(modules::write_if_opened);
    // SAFETY: the handler is a function without arguments.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    modules::write();
    let inside = INSIDE.load(Ordering::Relaxed);
    threads::begin(0, 0, (inside != 0).then(|| threads::first_stack(inside)));
}

/// Called by each compiled file's constructor.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_init() {
    start();
}

/// A forked child is not recorded.
unsafe extern "C" fn in_child() {
    sunder_guest::next::forget_look_ups();
    RECORDER.forked();
    // SAFETY: the calling thread's own memory.
    unsafe { hooks::stop(local()) };
}

/// Ends the recording.
pub fn finish(reason: Reason) {
    if RECORDER.is_recording() && RECORDER.is_own_process() {
        modules::write();
        RECORDER.finish(reason);
    }
}

extern "C" fn last() {
    finish(Reason::Exit);
}

macro_rules! ends {
    ($($name:ident => $real:ident;)*) => {$(
        /// Interposed; see its manual.
        ///
        /// # Safety
        /// As the manual demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(status: c_int) -> ! {
            finish(Reason::Exit);
            match real::$real() {
                // SAFETY: the caller's arguments, passed on unchanged under the same contract.
                Some(real) => unsafe { real(status) },
                None => real::missing(),
            }
        }
    )*};
}

ends! {
    _exit => _exit;
    _Exit => _exit;
    quick_exit => quick_exit;
}

/// Interposed; see its manual. If a signal handler of the program's keeps it alive, it continues
/// unrecorded.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn abort() -> ! {
    finish(Reason::Abort);
    match real::abort() {
        // SAFETY: `abort` takes no arguments.
        Some(real) => unsafe { real() },
        None => real::missing(),
    }
}

/// The function that `assert` calls. Interposed because the C library's calls its own `abort`, not
/// ours.
///
/// # Safety
/// As `assert` calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __assert_fail(
    assertion: *const c_char,
    file: *const c_char,
    line: c_uint,
    function: *const c_char,
) -> ! {
    finish(Reason::Abort);
    match real::__assert_fail() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        Some(real) => unsafe { real(assertion, file, line, function) },
        None => real::missing(),
    }
}
