//! The functions that stand behind ours: the next ones in the dynamic linker's order.
//! Looked up once when the program starts, or at the first call if one comes earlier; what
//! an old dynamic linker allocates while it looks for the allocator is not served.
//! Contexts: pre-init, normal.

use core::ffi::{c_char, c_int, c_long, c_void};

sunder_guest::functions! {
    all look_all_up;
    /// See the manual, as all of these.
    fork: fn() -> c_int;
    /// Without handlers.
    _Fork: fn() -> c_int;
    /// Forks inside the C library.
    daemon: fn(c_int, c_int) -> c_int;
    /// Forks inside the C library.
    forkpty: fn(*mut c_int, *mut c_char, *const c_void, *const c_void) -> c_int;
    /// Any system call.
    syscall: fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;
    /// A new process or thread; variadic, but for six registers.
    clone: fn(usize, usize, usize, usize, usize, usize) -> c_int;
    /// A timer of the process.
    setitimer: fn(c_int, *const c_void, *mut c_void) -> c_int;
    /// A timer on a clock.
    timer_create: fn(c_int, *mut c_void, *mut c_void) -> c_int;
    /// A new block.
    malloc: fn(usize) -> *mut c_void;
    /// A new block of zeroes.
    calloc: fn(usize, usize) -> *mut c_void;
    /// A new block at a multiple.
    aligned_alloc: fn(usize, usize) -> *mut c_void;
    /// The same in other words.
    posix_memalign: fn(*mut *mut c_void, usize, usize) -> c_int;
    /// Gives a block back.
    free: fn(*mut c_void) -> ();
    /// Grows or shrinks a block.
    realloc: fn(*mut c_void, usize) -> *mut c_void;
}
