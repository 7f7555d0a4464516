//! Interposed functions by which threads wait for each other. Releases are reported before they
//! happen, acquires after. Contexts: pre-init, normal, post-fork; `sem_post` also signal.

use crate::{after, before, real};
use core::ffi::{c_int, c_void};
use libc::{
    clockid_t, pthread_barrier_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t,
    pthread_spinlock_t, pthread_t, sem_t, timespec,
};
use sunder_trace::slot::Sync;

/// The number of a call's object in the trace.
trait Object {
    fn number(self) -> u64;
}

impl<T> Object for *mut T {
    fn number(self) -> u64 {
        self.addr() as u64
    }
}

macro_rules! releases {
    ($($name:ident($object:ident: $type:ty) => $sync:ident;)*) => {$(
        /// Interposed; see its manual.
        ///
        /// # Safety
        /// As the manual demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($object: $type) -> c_int {
            let Some(real) = real::$name() else {
                return libc::EAGAIN;
            };
            before(Sync::$sync, $object.number());
            // SAFETY: the caller's arguments, passed on unchanged under the same contract.
            unsafe { real($object) }
        }
    )*};
}

releases! {
    pthread_mutex_unlock(mutex: *mut pthread_mutex_t) => MutexUnlock;
    pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) => RwUnlock;
    pthread_cond_signal(condition: *mut pthread_cond_t) => ConditionSignal;
    pthread_cond_broadcast(condition: *mut pthread_cond_t) => ConditionSignal;
    pthread_spin_unlock(lock: *mut pthread_spinlock_t) => SpinUnlock;
    sem_post(semaphore: *mut sem_t) => SemaphorePost;
}

macro_rules! acquires {
    ($($name:ident($object:ident: $type:ty $(, $argument:ident: $more:ty)*) => $sync:ident;)*) => {$(
        /// Interposed; see its manual.
        ///
        /// # Safety
        /// As the manual demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($object: $type $(, $argument: $more)*) -> c_int {
            let Some(real) = real::$name() else {
                return libc::EAGAIN;
            };
            // SAFETY: the caller's arguments, passed on unchanged under the same contract.
            let result = unsafe { real($object $(, $argument)*) };
            // A robust mutex whose owner died is held, too.
            if result == 0 || result == libc::EOWNERDEAD {
                after(Sync::$sync, $object.number());
            }
            result
        }
    )*};
}

acquires! {
    pthread_mutex_lock(mutex: *mut pthread_mutex_t) => MutexLock;
    pthread_mutex_trylock(mutex: *mut pthread_mutex_t) => MutexLock;
    pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, until: *const timespec) => MutexLock;
    pthread_mutex_clocklock(mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec) => MutexLock;
    pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) => ReadLock;
    pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t) => ReadLock;
    pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) => WriteLock;
    pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t) => WriteLock;
    pthread_spin_lock(lock: *mut pthread_spinlock_t) => SpinLock;
    pthread_spin_trylock(lock: *mut pthread_spinlock_t) => SpinLock;
    sem_wait(semaphore: *mut sem_t) => SemaphoreWait;
    sem_trywait(semaphore: *mut sem_t) => SemaphoreWait;
}

/// Interposed; see its manual.
///
/// # Safety
/// As the manual demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int {
    let Some(real) = real::pthread_barrier_wait() else {
        return libc::EAGAIN;
    };
    before(Sync::BarrierReached, barrier.number());
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    let result = unsafe { real(barrier) };
    after(Sync::BarrierLeft, barrier.number());
    result
}

macro_rules! condition_waits {
    ($($name:ident($($argument:ident: $more:ty),*);)*) => {$(
        /// Interposed; see its manual. The mutex is unlocked and locked again, also where the time
        /// is over.
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
                return libc::EAGAIN;
            };
            before(Sync::MutexUnlock, mutex.number());
            before(Sync::ConditionEnter, condition.number());
            // SAFETY: the caller's arguments, passed on unchanged under the same contract.
            let result = unsafe { real(condition, mutex $(, $argument)*) };
            after(Sync::ConditionLeave, condition.number());
            after(Sync::MutexLock, mutex.number());
            result
        }
    )*};
}

condition_waits! {
    pthread_cond_wait();
    pthread_cond_timedwait(until: *const timespec);
}

/// Interposed; see its manual.
///
/// # Safety
/// As the manual demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int {
    let Some(real) = real::pthread_join() else {
        return libc::EAGAIN;
    };
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    let error = unsafe { real(thread, result) };
    if error == 0 {
        after(Sync::ThreadJoin, 0);
    }
    error
}
