//! Begin and end of the recording: before the first constructor, and after the last destructor or
//! in functions that end the process without destructors. Contexts: pre-init, normal, post-fork;
//! functions that end the process also signal.

use crate::local::{RECORDER, local};
use crate::{hooks, modules, real, threads};
use core::ffi::{CStr, c_char, c_int, c_uint};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use sunder_recorder::Start;
use sunder_trace::meta::{Reason, Via};

/// The variable with the trace file's path, which must be absolute.
const VARIABLE: &[u8] = b"SUNDER_TRACE=";

/// The path of the trace file, until recording begins.
static PATH: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

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
unsafe extern "C" fn first(_: c_int, _: *mut *mut c_char, environment: *mut *mut c_char) {
    INSIDE.store(environment.addr() as u64, Ordering::Relaxed);
    let mut at = environment;
    // SAFETY: an environment is an array of strings that ends with null.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            if CStr::from_ptr(*at).to_bytes().starts_with(VARIABLE) {
                PATH.store((*at).add(VARIABLE.len()), Ordering::Relaxed);
                let mut to = at;
                while !(*to).is_null() {
                    *to = *to.add(1);
                    to = to.add(1);
                }
                break;
            }
            at = at.add(1);
        }
    }
    start();
}

/// Begins to record, once, if the variable names a file.
pub fn start() {
    let path = PATH.swap(core::ptr::null_mut(), Ordering::Relaxed);
    if path.is_null() {
        return;
    }
    // SAFETY: the path is a string of the environment; `sysconf` takes a number.
    let (path, line) = unsafe {
        (
            CStr::from_ptr(path).to_bytes_with_nul(),
            libc::sysconf(libc::_SC_LEVEL1_DCACHE_LINESIZE),
        )
    };
    let start = Start {
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
    threads::begin(0, (inside != 0).then(|| threads::first_stack(inside)));
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
