//! The constructor of the library: chooses the secret of the seals, reads the settings from the
//! environment, and has [`pool`] notice threads that end, [`fork`] children, and [`exec`] programs
//! that are executed. The program may have allocated before.
//!
//! Contexts: normal, before `main`.

use crate::{arena, block, config, exec, fork, local, pool};
use core::ffi::{c_char, c_int};
use sunder_guest::environment::find;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = start;

extern "C" fn start(_count: c_int, _arguments: *mut *mut c_char, environment: *mut *mut c_char) {
    if local::heap().is_null() {
        // Once anything was allocated, free blocks carry seals, and the secret must not change.
        // SAFETY: the kernel passes the address of 16 random bytes.
        let random = unsafe { libc::getauxval(libc::AT_RANDOM) } as *const usize;
        if !random.is_null() {
            // SAFETY: the kernel passes the address of 16 random bytes.
            block::set_secret(unsafe { random.read_unaligned() });
        }
    }
    // SAFETY: the dynamic linker passes the environment, which ends with null.
    let wanted = unsafe { find(environment, b"SUNDER_HEAP=") };
    if let Some(wanted) = wanted {
        // SAFETY: a value in the environment is a C string, which is never freed.
        unsafe { config::read(wanted) };
    }
    if !config::uses_classes() {
        let heap = local::heap();
        if !heap.is_null() {
            // SAFETY: this thread's own heap.
            unsafe { (*heap).disable_fast_path() };
        }
    }
    arena::prepare();
    pool::prepare();
    fork::prepare();
    exec::prepare();
}
