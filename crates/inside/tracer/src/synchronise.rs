//! The C library's synchronisation: a release is recorded before the real
//! operation, an acquire after it succeeded. Contexts: pre-init, normal, post-fork;
//! `sem_post` also signal.

use crate::local::{after, before, local};
use crate::real;
use core::ffi::c_int;
use libc::{
    clockid_t, pthread_barrier_t, pthread_cond_t, pthread_mutex_t, pthread_once_t,
    pthread_rwlock_t, pthread_spinlock_t, sem_t, timespec,
};
use sunder_trace::slot::{Slot, Sync};

macro_rules! acquire {
    ($($kind:ident: $name:ident($object:ident: $type:ty $(, $argument:ident: $more:ty)*);)*) => {$(
        /// Interposed; see its manual.
        ///
        /// # Safety
        /// As the manual demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($object: $type $(, $argument: $more)*) -> c_int {
            let Some(real) = real::$name() else {
                real::missing();
            };
            // SAFETY: the caller's arguments, passed on unchanged under the same contract.
            let result = unsafe { real($object $(, $argument)*) };
            // The mutex is held even if the owner of a robust mutex has died.
            if result == 0 || result == libc::EOWNERDEAD {
                after(Slot::sync(Sync::$kind, $object as u64));
            }
            result
        }
    )*};
}

macro_rules! release {
    ($($kind:ident: $name:ident($object:ident: $type:ty);)*) => {$(
        /// Interposed; see its manual.
        ///
        /// # Safety
        /// As the manual demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($object: $type) -> c_int {
            let Some(real) = real::$name() else {
                real::missing();
            };
            before(Slot::sync(Sync::$kind, $object as u64));
            // SAFETY: the caller's arguments, passed on unchanged under the same contract.
            unsafe { real($object) }
        }
    )*};
}

acquire! {
    MutexLock: pthread_mutex_lock(mutex: *mut pthread_mutex_t);
    MutexLock: pthread_mutex_trylock(mutex: *mut pthread_mutex_t);
    MutexLock: pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, until: *const timespec);
    MutexLock: pthread_mutex_clocklock(mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec);
    ReadLock: pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t);
    ReadLock: pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t);
    ReadLock: pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t, until: *const timespec);
    WriteLock: pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t);
    WriteLock: pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t);
    WriteLock: pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t, until: *const timespec);
    SpinLock: pthread_spin_lock(lock: *mut pthread_spinlock_t);
    SpinLock: pthread_spin_trylock(lock: *mut pthread_spinlock_t);
    SemaphoreWait: sem_wait(semaphore: *mut sem_t);
    SemaphoreWait: sem_trywait(semaphore: *mut sem_t);
    SemaphoreWait: sem_timedwait(semaphore: *mut sem_t, until: *const timespec);
    SemaphoreWait: sem_clockwait(semaphore: *mut sem_t, clock: clockid_t, until: *const timespec);
}

release! {
    MutexUnlock: pthread_mutex_unlock(mutex: *mut pthread_mutex_t);
    RwUnlock: pthread_rwlock_unlock(lock: *mut pthread_rwlock_t);
    SpinUnlock: pthread_spin_unlock(lock: *mut pthread_spinlock_t);
    SemaphorePost: sem_post(semaphore: *mut sem_t);
    ConditionSignal: pthread_cond_signal(condition: *mut pthread_cond_t);
    ConditionSignal: pthread_cond_broadcast(condition: *mut pthread_cond_t);
}

macro_rules! wait {
    ($($name:ident($($argument:ident: $more:ty),*);)*) => {$(
        /// Interposed; see its manual. The mutex is released and acquired again, whatever the
        /// result.
        ///
        /// # Safety
        /// As the manual demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            condition: *mut pthread_cond_t,
            mutex: *mut pthread_mutex_t
            $(, $argument: $more)*
        ) -> c_int {
            let Some(real) = real::$name() else {
                real::missing();
            };
            before(Slot::sync(Sync::MutexUnlock, mutex as u64));
            before(Slot::sync(Sync::ConditionEnter, condition as u64));
            // SAFETY: the caller's arguments, passed on unchanged under the same contract.
            let result = unsafe { real(condition, mutex $(, $argument)*) };
            after(Slot::sync(Sync::ConditionLeave, condition as u64));
            after(Slot::sync(Sync::MutexLock, mutex as u64));
            result
        }
    )*};
}

wait! {
    pthread_cond_wait();
    pthread_cond_timedwait(until: *const timespec);
    pthread_cond_clockwait(clock: clockid_t, until: *const timespec);
}

/// Interposed; see its manual.
///
/// # Safety
/// As the manual demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int {
    let Some(real) = real::pthread_barrier_wait() else {
        real::missing();
    };
    before(Slot::sync(Sync::BarrierReached, barrier as u64));
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    let result = unsafe { real(barrier) };
    after(Slot::sync(Sync::BarrierLeft, barrier as u64));
    result
}

/// Interposed; see its manual. The routine's end must be stamped before other threads learn of it,
/// so a routine of ours runs it.
///
/// # Safety
/// As the manual demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_once(
    once: *mut pthread_once_t,
    routine: unsafe extern "C" fn(),
) -> c_int {
    let Some(real) = real::pthread_once() else {
        real::missing();
    };
    // SAFETY: the calling thread's own memory; the caller's arguments otherwise.
    let result = unsafe {
        let outer = (*local()).once.replace(routine);
        let result = real(once, run_once);
        (*local()).once = outer;
        result
    };
    after(Slot::sync(Sync::OncePassed, once as u64));
    result
}

unsafe extern "C" fn run_once() {
    // SAFETY: the calling thread's own memory; the routine is the program's.
    unsafe {
        if let Some(routine) = (*local()).once {
            routine();
        }
    }
    before(Slot::sync(Sync::OnceDone, 0));
}

/// Before a C++ static variable is initialised; returns 1 if the caller must do it.
///
/// # Safety
/// As the C++ ABI demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __cxa_guard_acquire(guard: *mut u64) -> c_int {
    let Some(real) = real::__cxa_guard_acquire() else {
        real::missing();
    };
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    let result = unsafe { real(guard) };
    after(Slot::sync(Sync::OncePassed, guard as u64));
    result
}

/// After a C++ static variable was initialised.
///
/// # Safety
/// As the C++ ABI demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __cxa_guard_release(guard: *mut u64) {
    before(Slot::sync(Sync::OnceDone, guard as u64));
    if let Some(real) = real::__cxa_guard_release() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        unsafe { real(guard) }
    }
}

macro_rules! annotations {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// A dynamic annotation that does not concern accesses.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) {
            $(let _ = $argument;)*
        }
    )*};
}

type Text = *const core::ffi::c_char;
type Object = *const u8;

annotations! {
    AnnotateIgnoreReadsBegin(file: Text, line: c_int);
    AnnotateIgnoreReadsEnd(file: Text, line: c_int);
    AnnotateIgnoreWritesBegin(file: Text, line: c_int);
    AnnotateIgnoreWritesEnd(file: Text, line: c_int);
    AnnotateIgnoreSyncBegin(file: Text, line: c_int);
    AnnotateIgnoreSyncEnd(file: Text, line: c_int);
    AnnotateRWLockCreate(file: Text, line: c_int, lock: Object);
    AnnotateRWLockCreateStatic(file: Text, line: c_int, lock: Object);
    AnnotateRWLockDestroy(file: Text, line: c_int, lock: Object);
    AnnotateRWLockAcquired(file: Text, line: c_int, lock: Object, writing: u64);
    AnnotateRWLockReleased(file: Text, line: c_int, lock: Object, writing: u64);
    AnnotateBenignRace(file: Text, line: c_int, address: Object, why: Text);
    AnnotateBenignRaceSized(file: Text, line: c_int, address: Object, bytes: usize, why: Text);
    AnnotateThreadName(file: Text, line: c_int, name: Text);
    AnnotateNewMemory(file: Text, line: c_int, address: Object, bytes: usize);
    __tsan_mutex_create(mutex: Object, flags: u32);
    __tsan_mutex_destroy(mutex: Object, flags: u32);
    __tsan_mutex_pre_lock(mutex: Object, flags: u32);
    __tsan_mutex_post_unlock(mutex: Object, flags: u32);
    __tsan_mutex_pre_signal(mutex: Object, flags: u32);
    __tsan_mutex_post_signal(mutex: Object, flags: u32);
    __tsan_mutex_pre_divert(mutex: Object, flags: u32);
    __tsan_mutex_post_divert(mutex: Object, flags: u32);
    __tsan_ignore_thread_begin();
    __tsan_ignore_thread_end();
}

/// The release side of a happens-before edge that the program declares.
#[unsafe(no_mangle)]
pub extern "C" fn AnnotateHappensBefore(_file: Text, _line: c_int, object: Object) {
    before(Slot::sync(Sync::HappensBefore, object as u64));
}

/// The acquire side of a happens-before edge that the program declares.
#[unsafe(no_mangle)]
pub extern "C" fn AnnotateHappensAfter(_file: Text, _line: c_int, object: Object) {
    after(Slot::sync(Sync::HappensAfter, object as u64));
}

/// The release side of a happens-before edge that the program declares.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_release(object: Object) {
    before(Slot::sync(Sync::HappensBefore, object as u64));
}

/// The acquire side of a happens-before edge that the program declares.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_acquire(object: Object) {
    after(Slot::sync(Sync::HappensAfter, object as u64));
}

/// A lock that the program implements itself was acquired.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_mutex_post_lock(mutex: Object, _flags: u32, _depth: c_int) {
    after(Slot::sync(Sync::MutexLock, mutex as u64));
}

/// A lock that the program implements itself is about to be released.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_mutex_pre_unlock(mutex: Object, _flags: u32) -> c_int {
    before(Slot::sync(Sync::MutexUnlock, mutex as u64));
    0
}
