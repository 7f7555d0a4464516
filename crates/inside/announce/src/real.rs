//! The functions that ours interpose: the next definitions in the dynamic linker's order. Those of
//! the allocator are in `sunder_guest::allocator`. Contexts: pre-init, normal; in a handler only
//! functions that were looked up before.

use core::ffi::{c_int, c_void};
use libc::{
    clockid_t, pthread_barrier_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t,
    pthread_spinlock_t, pthread_t, sem_t, timespec,
};

sunder_guest::functions! {
    pthread_join: fn(pthread_t, *mut *mut c_void) -> c_int;
    pthread_mutex_lock: fn(*mut pthread_mutex_t) -> c_int;
    pthread_mutex_trylock: fn(*mut pthread_mutex_t) -> c_int;
    pthread_mutex_timedlock: fn(*mut pthread_mutex_t, *const timespec) -> c_int;
    pthread_mutex_clocklock: fn(*mut pthread_mutex_t, clockid_t, *const timespec) -> c_int;
    pthread_mutex_unlock: fn(*mut pthread_mutex_t) -> c_int;
    pthread_rwlock_rdlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_tryrdlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_wrlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_trywrlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_unlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_cond_signal: fn(*mut pthread_cond_t) -> c_int;
    pthread_cond_broadcast: fn(*mut pthread_cond_t) -> c_int;
    pthread_cond_wait: fn(*mut pthread_cond_t, *mut pthread_mutex_t) -> c_int;
    pthread_cond_timedwait: fn(*mut pthread_cond_t, *mut pthread_mutex_t, *const timespec) -> c_int;
    pthread_barrier_wait: fn(*mut pthread_barrier_t) -> c_int;
    pthread_spin_lock: fn(*mut pthread_spinlock_t) -> c_int;
    pthread_spin_trylock: fn(*mut pthread_spinlock_t) -> c_int;
    pthread_spin_unlock: fn(*mut pthread_spinlock_t) -> c_int;
    sem_wait: fn(*mut sem_t) -> c_int;
    sem_trywait: fn(*mut sem_t) -> c_int;
    sem_post: fn(*mut sem_t) -> c_int;
}
