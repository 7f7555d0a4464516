//! Who holds a lock in the canonical order. In the recorded order and the parallel one, threads take
//! locks as they did when they were recorded, which varies from one recording to the next. Here a
//! lock goes to the thread that asks for it first in the order's own time, and of threads that ask
//! at the same time to the one with the lowest number. Used by `waits` alone.
//!
//! It must not be trusted to be consistent: a damaged trace may lack a lock or a release.

use super::event::{Event, What};
use crate::slot::Sync;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How a thread wants a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Claim {
    /// Beside other readers.
    Shared,
    /// Alone.
    Alone,
    /// One unit of a semaphore.
    Unit,
}

/// What an event does to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Takes the lock with this address.
    Takes(u64, Claim),
    /// Gives it back.
    Gives(u64),
    /// Raises a semaphore.
    Raises(u64),
}

impl Deed {
    /// What the event does to a lock, if anything.
    pub(super) const fn of(event: &Event) -> Option<Self> {
        let What::Sync { kind, object } = event.what else {
            return None;
        };
        Some(match kind {
            Sync::MutexLock | Sync::SpinLock | Sync::WriteLock => {
                Self::Takes(object.0, Claim::Alone)
            }
            Sync::ReadLock => Self::Takes(object.0, Claim::Shared),
            Sync::SemaphoreWait => Self::Takes(object.0, Claim::Unit),
            Sync::MutexUnlock | Sync::SpinUnlock | Sync::RwUnlock => Self::Gives(object.0),
            Sync::SemaphorePost => Self::Raises(object.0),
            _ => return None,
        })
    }
}

/// A lock.
#[derive(Debug, Default)]
struct Lock {
    /// Threads that hold it, and how many times.
    holders: BTreeMap<usize, u32>,
    /// Whether its holder is alone.
    alone: bool,
    /// Units of a semaphore that are left.
    units: u64,
    /// Threads that wait for it: since which clock, the thread, and how it wants the lock.
    queue: BTreeSet<(u64, usize, Claim)>,
}

impl Lock {
    fn is_free_for(&self, thread: usize, claim: Claim) -> bool {
        match claim {
            Claim::Unit => self.units > 0,
            // A recursive lock.
            _ if self.holders.len() == 1 && self.holders.contains_key(&thread) => true,
            Claim::Shared => !self.alone,
            Claim::Alone => self.holders.is_empty(),
        }
    }

    fn take(&mut self, thread: usize, claim: Claim) {
        match claim {
            Claim::Unit => self.units = self.units.saturating_sub(1),
            Claim::Shared | Claim::Alone => {
                self.alone |= claim == Claim::Alone;
                *self.holders.entry(thread).or_default() += 1;
            }
        }
    }

    /// A thread releases it; mostly the holder.
    fn give(&mut self, thread: usize) {
        let holder = match self.holders.contains_key(&thread) {
            true => Some(thread),
            // A lock may be released by another thread than its owner.
            false => self.holders.keys().next().copied(),
        };
        if let Some(holder) = holder
            && let Some(times) = self.holders.get_mut(&holder)
        {
            *times -= 1;
            if *times == 0 {
                self.holders.remove(&holder);
            }
        }
        self.alone &= !self.holders.is_empty();
    }

    /// Lets those in that wait and can have it now, in their order.
    fn let_in(&mut self, granted: &mut Vec<usize>) {
        while let Some(&(since, thread, claim)) = self.queue.first() {
            if !self.is_free_for(thread, claim) {
                break;
            }
            self.queue.remove(&(since, thread, claim));
            self.take(thread, claim);
            granted.push(thread);
        }
    }
}

/// All locks of a trace.
#[derive(Debug, Default)]
pub(super) struct Locks {
    of: HashMap<u64, Lock>,
    /// Threads that wait, with the lock.
    waiting: HashMap<usize, u64>,
}

impl Locks {
    /// `events` are the threads' events that raise or lower semaphores, as recorded: their ticks and
    /// what they do. How far a semaphore was raised at first is not recorded; it was at least so far
    /// that the recorded order was possible.
    pub(super) fn new(mut events: Vec<(u64, Deed)>) -> Self {
        events.sort_by_key(|(ticks, deed)| (*ticks, matches!(deed, Deed::Takes(..))));
        let mut locks = Self::default();
        let mut left: HashMap<u64, i64> = HashMap::new();
        for (_, deed) in events {
            match deed {
                Deed::Raises(object) => *left.entry(object).or_default() += 1,
                Deed::Takes(object, Claim::Unit) => {
                    let left = left.entry(object).or_default();
                    *left -= 1;
                    let units = &mut locks.of.entry(object).or_default().units;
                    *units = (*units).max(left.unsigned_abs() * u64::from(*left < 0));
                }
                Deed::Takes(..) | Deed::Gives(_) => {}
            }
        }
        locks
    }

    /// `thread`, whose clock this is, takes the lock if it is free. If not, it waits.
    pub(super) fn take(&mut self, object: u64, claim: Claim, thread: usize, clock: u64) -> bool {
        let lock = self.of.entry(object).or_default();
        let free = lock.queue.is_empty() && lock.is_free_for(thread, claim)
            || lock.holders.contains_key(&thread) && lock.is_free_for(thread, claim);
        if free {
            lock.take(thread, claim);
        } else {
            lock.queue.insert((clock, thread, claim));
            self.waiting.insert(thread, object);
        }
        free
    }

    /// `thread` takes the lock although others hold it: it can't go on otherwise.
    pub(super) fn force(&mut self, object: u64, claim: Claim, thread: usize) {
        self.waiting.remove(&thread);
        let lock = self.of.entry(object).or_default();
        lock.queue.retain(|waiting| waiting.1 != thread);
        lock.take(thread, claim);
    }

    /// `thread` gives back or raises what `deed` says; the threads that got it are returned.
    pub(super) fn release(&mut self, deed: Deed, thread: usize) -> Vec<usize> {
        let mut granted = Vec::new();
        let object = match deed {
            Deed::Gives(object) | Deed::Raises(object) => object,
            Deed::Takes(..) => return granted,
        };
        let lock = self.of.entry(object).or_default();
        match deed {
            Deed::Raises(_) => lock.units += 1,
            _ => lock.give(thread),
        }
        lock.let_in(&mut granted);
        for thread in &granted {
            self.waiting.remove(thread);
        }
        granted
    }

    /// `thread` has ended; what it still holds is given back. The threads that got it are returned.
    pub(super) fn end(&mut self, thread: usize) -> Vec<usize> {
        let mut granted = Vec::new();
        for lock in self.of.values_mut() {
            if lock.holders.remove(&thread).is_some() {
                lock.alone &= !lock.holders.is_empty();
                lock.let_in(&mut granted);
            }
        }
        granted.sort_unstable();
        for thread in &granted {
            self.waiting.remove(thread);
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const L: u64 = 64;

    #[test]
    fn a_lock_goes_to_who_asked_first_and_then_to_the_lowest_number() {
        let mut locks = Locks::default();
        assert!(locks.take(L, Claim::Alone, 3, 10));
        assert!(!locks.take(L, Claim::Alone, 2, 12));
        assert!(!locks.take(L, Claim::Alone, 1, 12));
        assert!(!locks.take(L, Claim::Alone, 0, 13));
        assert_eq!(locks.release(Deed::Gives(L), 3), [1]);
        assert_eq!(locks.release(Deed::Gives(L), 1), [2]);
        assert!(!locks.take(L, Claim::Alone, 3, 20));
        assert_eq!(locks.release(Deed::Gives(L), 2), [0]);
        assert_eq!(locks.release(Deed::Gives(L), 0), [3]);
    }

    #[test]
    fn readers_share_a_lock_and_a_writer_waits_for_all() {
        let mut locks = Locks::default();
        assert!(locks.take(L, Claim::Shared, 0, 0));
        assert!(locks.take(L, Claim::Shared, 1, 0));
        assert!(!locks.take(L, Claim::Alone, 2, 1));
        // A reader that asks later comes after the writer.
        assert!(!locks.take(L, Claim::Shared, 3, 2));
        assert_eq!(locks.release(Deed::Gives(L), 0), []);
        assert_eq!(locks.release(Deed::Gives(L), 1), [2]);
        assert_eq!(locks.release(Deed::Gives(L), 2), [3]);
    }

    #[test]
    fn a_recursive_lock_is_free_after_as_many_releases() {
        let mut locks = Locks::default();
        assert!(locks.take(L, Claim::Alone, 0, 0));
        assert!(!locks.take(L, Claim::Alone, 1, 1));
        assert!(locks.take(L, Claim::Alone, 0, 2));
        assert_eq!(locks.release(Deed::Gives(L), 0), []);
        assert_eq!(locks.release(Deed::Gives(L), 0), [1]);
    }

    #[test]
    fn a_semaphore_begins_with_what_the_recording_needed() {
        // Two units are taken before the first is given back.
        let taken = Deed::Takes(L, Claim::Unit);
        let recorded = vec![(10, taken), (20, taken), (30, Deed::Raises(L)), (40, taken)];
        let mut locks = Locks::new(recorded);
        assert!(locks.take(L, Claim::Unit, 0, 0));
        assert!(locks.take(L, Claim::Unit, 1, 0));
        assert!(!locks.take(L, Claim::Unit, 2, 0));
        assert_eq!(locks.release(Deed::Raises(L), 0), [2]);
    }

    #[test]
    fn a_thread_that_ends_gives_its_locks_back_and_one_can_be_forced() {
        let mut locks = Locks::default();
        assert!(locks.take(L, Claim::Alone, 0, 0));
        assert!(!locks.take(L, Claim::Alone, 1, 0));
        assert!(!locks.take(L, Claim::Alone, 2, 0));
        locks.force(L, Claim::Alone, 2);
        assert_eq!(locks.end(0), []);
        assert_eq!(locks.end(2), [1]);
    }
}
