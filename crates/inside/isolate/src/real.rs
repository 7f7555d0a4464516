//! The functions that ours interpose: the next definitions in the dynamic linker's order. Looked up
//! once when the program starts, or at the first call if that comes earlier. An allocation that an
//! old dynamic linker makes during this look-up fails.
//!
//! Contexts: pre-init, normal.

use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

sunder_guest::functions! {
    all look_up_all;
    /// Like all of these, as the manual describes it.
    fork: fn() -> c_int;
    /// Forks without calling the handlers of `pthread_atfork`.
    _Fork: fn() -> c_int;
    /// Forks inside the C library.
    daemon: fn(c_int, c_int) -> c_int;
    /// Forks inside the C library.
    forkpty: fn(*mut c_int, *mut c_char, *const c_void, *const c_void) -> c_int;
    /// Any system call.
    syscall: fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;
    /// Makes a process or thread; variadic, but here with six registers.
    clone: fn(usize, usize, usize, usize, usize, usize) -> c_int;
    /// Sets a timer of the process.
    setitimer: fn(c_int, *const c_void, *mut c_void) -> c_int;
    /// Makes a timer on a clock.
    /// Waits for a child.
    waitpid: fn(c_int, *mut c_int, c_int) -> c_int;
    /// Waits for a child.
    wait4: fn(c_int, *mut c_int, c_int, *mut c_void) -> c_int;
    /// Waits for a child.
    waitid: fn(c_uint, c_uint, *mut c_void, c_int) -> c_int;
    /// Changes how the kernel treats the process.
    prctl: fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int;
    timer_create: fn(c_int, *mut c_void, *mut c_void) -> c_int;
    /// Allocates a block.
    malloc: fn(usize) -> *mut c_void;
    /// Allocates a zeroed block.
    calloc: fn(usize, usize) -> *mut c_void;
    /// Allocates an aligned block.
    aligned_alloc: fn(usize, usize) -> *mut c_void;
    /// Allocates an aligned block; returns an error number.
    posix_memalign: fn(*mut *mut c_void, usize, usize) -> c_int;
    /// Frees a block.
    free: fn(*mut c_void) -> ();
    /// Grows or shrinks a block.
    realloc: fn(*mut c_void, usize) -> *mut c_void;
}
