//! The functions that ours interpose: the next definitions in the dynamic linker's order. Those of
//! the allocator are in `sunder_guest::allocator`. Contexts: pre-init, normal; in a handler only
//! functions that were looked up before.

use core::ffi::{c_char, c_int, c_uint, c_void};
use libc::{
    clockid_t, pthread_attr_t, pthread_barrier_t, pthread_cond_t, pthread_mutex_t, pthread_once_t,
    pthread_rwlock_t, pthread_spinlock_t, pthread_t, sem_t, timespec,
};

/// The start function of a thread.
pub type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
/// The start function of a C11 thread.
pub type C11Start = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

sunder_guest::functions! {
    pthread_create: fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;
    pthread_join: fn(pthread_t, *mut *mut c_void) -> c_int;
    pthread_tryjoin_np: fn(pthread_t, *mut *mut c_void) -> c_int;
    pthread_timedjoin_np: fn(pthread_t, *mut *mut c_void, *const timespec) -> c_int;
    thrd_create: fn(*mut pthread_t, C11Start, *mut c_void) -> c_int;
    thrd_join: fn(pthread_t, *mut c_int) -> c_int;
    pthread_once: fn(*mut pthread_once_t, unsafe extern "C" fn()) -> c_int;
    pthread_mutex_lock: fn(*mut pthread_mutex_t) -> c_int;
    pthread_mutex_trylock: fn(*mut pthread_mutex_t) -> c_int;
    pthread_mutex_timedlock: fn(*mut pthread_mutex_t, *const timespec) -> c_int;
    pthread_mutex_clocklock: fn(*mut pthread_mutex_t, clockid_t, *const timespec) -> c_int;
    pthread_mutex_unlock: fn(*mut pthread_mutex_t) -> c_int;
    pthread_rwlock_rdlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_tryrdlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_timedrdlock: fn(*mut pthread_rwlock_t, *const timespec) -> c_int;
    pthread_rwlock_wrlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_trywrlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_timedwrlock: fn(*mut pthread_rwlock_t, *const timespec) -> c_int;
    pthread_rwlock_unlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_cond_wait: fn(*mut pthread_cond_t, *mut pthread_mutex_t) -> c_int;
    pthread_cond_timedwait: fn(*mut pthread_cond_t, *mut pthread_mutex_t, *const timespec) -> c_int;
    pthread_cond_clockwait: fn(*mut pthread_cond_t, *mut pthread_mutex_t, clockid_t, *const timespec) -> c_int;
    pthread_cond_signal: fn(*mut pthread_cond_t) -> c_int;
    pthread_cond_broadcast: fn(*mut pthread_cond_t) -> c_int;
    pthread_barrier_wait: fn(*mut pthread_barrier_t) -> c_int;
    pthread_spin_lock: fn(*mut pthread_spinlock_t) -> c_int;
    pthread_spin_trylock: fn(*mut pthread_spinlock_t) -> c_int;
    pthread_spin_unlock: fn(*mut pthread_spinlock_t) -> c_int;
    sem_wait: fn(*mut sem_t) -> c_int;
    sem_trywait: fn(*mut sem_t) -> c_int;
    sem_timedwait: fn(*mut sem_t, *const timespec) -> c_int;
    sem_clockwait: fn(*mut sem_t, clockid_t, *const timespec) -> c_int;
    sem_post: fn(*mut sem_t) -> c_int;
    __cxa_guard_acquire: fn(*mut u64) -> c_int;
    __cxa_guard_release: fn(*mut u64);
    dlopen: fn(*const c_char, c_int) -> *mut c_void;
    dlmopen: fn(libc::Lmid_t, *const c_char, c_int) -> *mut c_void;
    dlclose: fn(*mut c_void) -> c_int;
    execve: fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
    execvpe: fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
    fexecve: fn(c_int, *const *const c_char, *const *const c_char) -> c_int;
    execveat: fn(c_int, *const c_char, *const *const c_char, *const *const c_char, c_int) -> c_int;
    _exit: fn(c_int) -> !;
    quick_exit: fn(c_int) -> !;
    abort: fn() -> !;
    __assert_fail: fn(*const c_char, *const c_char, c_uint, *const c_char) -> !;
}

/// Ends the process if not even the C library's own function is found.
pub fn missing() -> ! {
    // SAFETY: ends the process; not by `abort`, which we interpose.
    unsafe {
        libc::signal(libc::SIGABRT, libc::SIG_DFL);
        libc::raise(libc::SIGABRT);
        loop {
            libc::pause();
        }
    }
}
