//! Locks of one word that wait in the kernel. Held for short sections that do not call the program's
//! code, and never across `fork`: the child makes good what other threads left undone ([`crate::fork`]).
//! Contexts: pre-init, normal, signal, post-fork.
//!
//! A lock knows the thread that holds it, so a thread that a signal has interrupted in a section, and
//! whose handler allocates, is refused and not left waiting for itself. Every caller has another way
//! for that case.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sunder_guest::system::{Reach, thread_pointer, wait, wake};

/// The locks, in the order in which a thread may take several. A handler may want a lock of a lower
/// rank than the thread holds that it has interrupted; it is then refused if it would have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Which loaded objects have listed call sites. It is asked before any heap is used.
    CallSites,
    /// The heap of all threads. Under it spans are made, for which room is looked for in the pool.
    SharedHeap,
    /// The heaps without a thread. Under it their empty spans are freed.
    Pool,
    /// The address space. Under it only the kernel is called.
    Arena,
    /// The list of blocks that are mappings. It is last because whoever finds no other memory comes
    /// to it; under it only the kernel is called.
    Huge,
}

const RANKS: usize = Rank::Huge as usize + 1;

const FREE: u64 = 0;
/// A flag of a held lock: a thread may be waiting. The rest of the word is the holder's
/// thread pointer, which is no other living thread's and the same in a forked child.
const AWAITED: u64 = 1;
/// How often a thread tries a held lock before it waits in the kernel.
const SPINS: u32 = 100;

/// The state of a lock, on lines of its own.
#[repr(align(128))]
struct State(AtomicU64);

static STATES: [State; RANKS] = [const { State(AtomicU64::new(FREE)) }; RANKS];

fn own() -> u64 {
    thread_pointer() as u64
}

const fn holder(state: u64) -> u64 {
    state & !AWAITED
}

/// Whether the calling thread holds a lock of this rank or a higher one.
fn holds_from(rank: usize) -> bool {
    let own = own();
    let held = |state: &State| holder(state.0.load(Ordering::Relaxed)) == own;
    STATES.iter().skip(rank).any(held)
}

/// Data that one thread at a time may use.
pub struct Lock<T> {
    rank: Rank,
    state: &'static AtomicU64,
    data: UnsafeCell<T>,
}

// SAFETY: the data are reached only through the guard, by one thread at a time.
unsafe impl<T> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A free lock, the only one of its rank.
    pub const fn new(rank: Rank, data: T) -> Self {
        Self {
            rank,
            state: &STATES[rank as usize].0,
            data: UnsafeCell::new(data),
        }
    }

    /// Waits for the lock. `None` if the caller runs in a signal handler and the interrupted thread
    /// holds this lock, or one that the present holder may be waiting for.
    #[inline]
    pub fn lock(&self) -> Option<Guard<'_, T>> {
        if self.try_take(0) {
            return Some(Guard(self));
        }
        self.wait()
    }

    fn try_take(&self, flag: u64) -> bool {
        self.state
            .compare_exchange(FREE, own() | flag, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn wait(&self) -> Option<Guard<'_, T>> {
        if holds_from(self.rank as usize) {
            return None;
        }
        for _ in 0..SPINS {
            if self.state.load(Ordering::Relaxed) == FREE && self.try_take(0) {
                return Some(Guard(self));
            }
            core::hint::spin_loop();
        }
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if state == FREE {
                if self.try_take(AWAITED) {
                    return Some(Guard(self));
                }
            } else if state & AWAITED != 0 {
                wait(self.word(), state as u32, None, Reach::Process);
            } else {
                let marked = state | AWAITED;
                let order = Ordering::Relaxed;
                let _ = self.state.compare_exchange(state, marked, order, order);
            }
        }
    }

    /// The half of the state with the flag, for which the kernel waits.
    fn word(&self) -> &AtomicU32 {
        // SAFETY: the lower half of a live word, which is first on this processor.
        unsafe { AtomicU32::from_ptr(self.state.as_ptr().cast()) }
    }

    /// Wakes all who wait. A single one may be interrupted by a signal after it was woken and before
    /// it takes the lock. If its handler then waits for another lock, whose holder waits for
    /// this one, nobody would go on.
    fn release(&self) {
        if self.state.swap(FREE, Ordering::Release) & AWAITED != 0 {
            wake(self.word(), i32::MAX, Reach::Process);
        }
    }

    /// Whether [`Lock::lock`] may refuse the calling thread.
    pub fn may_refuse(&self) -> bool {
        holds_from(self.rank as usize)
    }

    /// The data while the calling thread holds the lock, for a handler that [`Lock::lock`] refused.
    /// `None` if the thread does not hold it.
    pub fn peek(&self) -> Option<&T> {
        let is_own = holder(self.state.load(Ordering::Relaxed)) == own();
        // SAFETY: no other thread changes the data. The interrupted section may be half done, for
        // which whoever uses this is prepared.
        is_own.then(|| unsafe { &*self.data.get() })
    }

    /// Takes the lock in the only thread of a forked child, whoever held it. The data may be half
    /// changed. `None` if this thread forked in a section (in a handler), which it will finish.
    pub fn take_over(&self) -> Option<Guard<'_, T>> {
        if holder(self.state.load(Ordering::Relaxed)) == own() {
            return None;
        }
        self.state.store(own(), Ordering::Relaxed);
        Some(Guard(self))
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
        self.0.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    static LOWER: Lock<u32> = Lock::new(Rank::SharedHeap, 0);
    static HIGHER: Lock<u32> = Lock::new(Rank::Arena, 0);

    /// One test, because the locks of a process are few.
    #[test]
    fn a_thread_never_waits_for_itself() {
        assert!(!LOWER.may_refuse());
        let (held, is_held) = channel();
        let (let_go, may_go) = channel();
        let higher = HIGHER.lock().expect("it is free");
        assert!(LOWER.may_refuse() && HIGHER.may_refuse());
        // As a handler would, in the middle of this section.
        assert!(HIGHER.lock().is_none());
        assert_eq!(HIGHER.peek(), Some(&0));
        let other = std::thread::spawn(move || {
            assert!(!HIGHER.may_refuse());
            assert_eq!(HIGHER.peek(), None);
            let lower = LOWER.lock().expect("it is free");
            held.send(()).expect("the test waits");
            may_go.recv().expect("the test answers");
            drop(lower);
        });
        is_held.recv().expect("the thread has the lock");
        // The other thread might want what this one holds.
        assert!(LOWER.lock().is_none());
        drop(higher);
        let_go.send(()).expect("the thread waits");
        *LOWER.lock().expect("nothing is held, so it is waited for") += 1;
        other.join().expect("it ends");
        drop(HIGHER.take_over().expect("another thread may have held it"));
        let lower = LOWER.lock().expect("it is free");
        assert!(LOWER.take_over().is_none() && !HIGHER.may_refuse());
        // The order of ranks: a higher one is waited for.
        let order = HIGHER.lock().expect("it is free");
        drop((order, lower));
        assert!(!LOWER.may_refuse());
    }

    /// The first of two waiting threads is woken and does something else, as one does whose signal
    /// handler waits for another lock.
    #[test]
    fn a_woken_thread_that_does_not_take_the_lock_keeps_no_other_from_it() {
        static WANTED: Lock<u32> = Lock::new(Rank::Pool, 0);
        let (waits, who_waits) = channel();
        let asleep = |thread: i32| {
            let state = format!("/proc/self/task/{thread}/stat");
            while !std::fs::read_to_string(&state).is_ok_and(|s| s.contains(") S ")) {
                std::thread::yield_now();
            }
        };
        // SAFETY: no arguments, cannot fail.
        let own_number = || unsafe { libc::gettid() };
        let held = WANTED.lock().expect("it is free");
        let first = std::thread::spawn({
            let waits = waits.clone();
            move || {
                let marked = WANTED.state.fetch_or(AWAITED, Ordering::Relaxed) | AWAITED;
                waits.send(own_number()).expect("the test waits");
                wait(WANTED.word(), marked as u32, None, Reach::Process);
            }
        });
        asleep(who_waits.recv().expect("it has begun"));
        let (took, taken) = channel();
        std::thread::spawn(move || {
            waits.send(own_number()).expect("the test waits");
            let _lock = WANTED.lock();
            took.send(()).expect("the test waits");
        });
        asleep(who_waits.recv().expect("it has begun"));
        drop(held);
        let limit = std::time::Duration::from_secs(20);
        assert!(taken.recv_timeout(limit).is_ok(), "it waits for ever");
        first.join().expect("it was woken");
    }

    #[test]
    fn waiting_threads_all_get_their_turn() {
        static TURNS: Lock<u64> = Lock::new(Rank::Huge, 0);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    for _ in 0..20_000 {
                        *TURNS.lock().expect("nothing is held") += 1;
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("it ends");
        }
        assert_eq!(*TURNS.lock().expect("nothing is held"), 80_000);
    }
}
