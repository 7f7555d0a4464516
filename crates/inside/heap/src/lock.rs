//! A lock of one word that waits in the kernel. Held for short sections that do not call the
//! program's code; [`crate::pool`] holds it across `fork`. Contexts: pre-init, normal, post-fork.
//!
//! Lock order: pool, shared heap, arena, huge blocks.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};
use sunder_guest::system::{Reach, wait, wake};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// The lock is held, and a thread may be waiting.
const AWAITED: u32 = 2;
/// How often a thread tries a held lock before it waits in the kernel.
const SPINS: u32 = 100;

/// Data that one thread at a time may use.
pub struct Lock<T> {
    state: AtomicU32,
    data: UnsafeCell<T>,
}

// SAFETY: the data are reached only through the guard, by one thread at a time.
unsafe impl<T> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A free lock.
    pub const fn new(data: T) -> Self {
        Self {
            state: AtomicU32::new(FREE),
            data: UnsafeCell::new(data),
        }
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        self.acquire();
        Guard(self)
    }

    /// Waits for the lock without making a guard, for `fork`.
    #[inline]
    pub fn acquire(&self) {
        let taken = self
            .state
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..SPINS {
            let free = self.state.load(Ordering::Relaxed) == FREE;
            if free
                && self
                    .state
                    .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
            core::hint::spin_loop();
        }
        while self.state.swap(AWAITED, Ordering::Acquire) != FREE {
            wait(&self.state, AWAITED, None, Reach::Process);
        }
    }

    /// Releases the lock.
    ///
    /// # Safety
    /// The caller holds it by [`Lock::acquire`], or is the child of a fork by
    /// the thread that did.
    #[inline]
    pub unsafe fn release(&self) {
        if self.state.swap(FREE, Ordering::Release) == AWAITED {
            wake(&self.state, 1, Reach::Process);
        }
    }
}

/// A held lock, through which the data can be used.
pub struct Guard<'a, T>(&'a Lock<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard exists while the lock is held.
        unsafe { &*self.0.data.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists while the lock is held, and `self` is borrowed uniquely.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: a guard exists only while its lock is held.
        unsafe { self.0.release() };
    }
}
