//! The functions that ours interpose: the next definitions in the dynamic linker's order. The
//! constructor looks them up, so that no call has to.
//!
//! Contexts: all.

use core::ffi::{c_char, c_int, c_long, c_ulong, c_void};

/// A buffer.
type Bytes = *mut c_void;
/// An array of buffers.
type Vectors = *const libc::iovec;
/// A set of signals.
type Set = *const libc::sigset_t;
/// Arguments or an environment.
type Strings = *const *mut c_char;

sunder_guest::functions! {
    all look_up_all;
    sigaction: fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    pthread_sigmask: fn(c_int, Set, *mut libc::sigset_t) -> c_int;
    pthread_cancel: fn(libc::pthread_t) -> c_int;
    sigprocmask: fn(c_int, Set, *mut libc::sigset_t) -> c_int;
    sigsuspend: fn(Set) -> c_int;
    sigaltstack: fn(*const libc::stack_t, *mut libc::stack_t) -> c_int;
    ppoll: fn(*mut libc::pollfd, libc::nfds_t, *const libc::timespec, Set) -> c_int;
    pselect: fn(c_int, Bytes, Bytes, Bytes, *const libc::timespec, Set) -> c_int;
    epoll_pwait: fn(c_int, *mut libc::epoll_event, c_int, c_int, Set) -> c_int;
    read: fn(c_int, Bytes, usize) -> isize;
    write: fn(c_int, Bytes, usize) -> isize;
    pread64: fn(c_int, Bytes, usize, i64) -> isize;
    pwrite64: fn(c_int, Bytes, usize, i64) -> isize;
    pread: fn(c_int, Bytes, usize, i64) -> isize;
    pwrite: fn(c_int, Bytes, usize, i64) -> isize;
    readv: fn(c_int, Vectors, c_int) -> isize;
    writev: fn(c_int, Vectors, c_int) -> isize;
    preadv: fn(c_int, Vectors, c_int, i64) -> isize;
    pwritev: fn(c_int, Vectors, c_int, i64) -> isize;
    recv: fn(c_int, Bytes, usize, c_int) -> isize;
    send: fn(c_int, Bytes, usize, c_int) -> isize;
    recvfrom: fn(c_int, Bytes, usize, c_int, Bytes, *mut u32) -> isize;
    sendto: fn(c_int, Bytes, usize, c_int, Bytes, u32) -> isize;
    recvmsg: fn(c_int, *mut libc::msghdr, c_int) -> isize;
    sendmsg: fn(c_int, *mut libc::msghdr, c_int) -> isize;
    accept: fn(c_int, Bytes, *mut u32) -> c_int;
    accept4: fn(c_int, Bytes, *mut u32, c_int) -> c_int;
    wait: fn(*mut c_int) -> c_int;
    waitpid: fn(c_int, *mut c_int, c_int) -> c_int;
    wait3: fn(*mut c_int, c_int, *mut libc::rusage) -> c_int;
    wait4: fn(c_int, *mut c_int, c_int, *mut libc::rusage) -> c_int;
    waitid: fn(u32, u32, *mut libc::siginfo_t, c_int) -> c_int;
    sigwaitinfo: fn(Set, *mut libc::siginfo_t) -> c_int;
    sigtimedwait: fn(Set, *mut libc::siginfo_t, *const libc::timespec) -> c_int;
    msgrcv: fn(c_int, Bytes, usize, i64, c_int) -> isize;
    posix_spawn: fn(*mut libc::pid_t, *const c_char, *const c_void, *const c_void, Strings, Strings) -> c_int;
    posix_spawnp: fn(*mut libc::pid_t, *const c_char, *const c_void, *const c_void, Strings, Strings) -> c_int;
    system: fn(*const c_char) -> c_int;
    popen: fn(*const c_char, *const c_char) -> *mut c_void;
    execve: fn(*const c_char, Strings, Strings) -> c_int;
    execv: fn(*const c_char, Strings) -> c_int;
    execvp: fn(*const c_char, Strings) -> c_int;
    execvpe: fn(*const c_char, Strings, Strings) -> c_int;
    fexecve: fn(c_int, Strings, Strings) -> c_int;
    clone: fn() -> c_int;
    _Fork: fn() -> c_int;
    pthread_create: fn(*mut libc::pthread_t, *const libc::pthread_attr_t, *mut c_void, *mut c_void) -> c_int;
    syscall: fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;
    clock_gettime: fn(c_int, *mut libc::timespec) -> c_int;
    clock_getres: fn(c_int, *mut libc::timespec) -> c_int;
    gettimeofday: fn(*mut libc::timeval, *mut c_void) -> c_int;
    prctl: fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int;
}
