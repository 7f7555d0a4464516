//! What was worked out about functions for earlier questions. A thread that frees many blocks, or that
//! walks over a list, asks about the same few instructions with other registers each time, and working
//! out what surrounds them takes most of the time of an answer. Used by `called`. What follows from
//! memory, as a linker's slots, is forgotten after a moment.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use sunder_rewrite::Called;

/// After this long all is worked out anew.
const FRESH: Duration = Duration::from_millis(250);
/// Most functions that are remembered. The program chooses the questions.
const MOST: usize = 1 << 12;

/// The start of a function, and an instruction in it.
pub type Place = (u64, u64);

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Memo(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    since: Option<Instant>,
    /// How many times everything was forgotten. What is worked out meanwhile is not kept: it is of code
    /// that may have gone.
    forgotten: u64,
    slots: HashMap<Place, Option<i64>>,
    /// By the number of the area, too: a linker's slots may be on moved pages.
    called: HashMap<(usize, Place), Called>,
}

impl Known {
    fn forget(&mut self, since: Option<Instant>) {
        *self = Self {
            since,
            forgotten: self.forgotten + 1,
            ..Self::default()
        };
    }
}

impl Memo {
    /// Forgets everything: other code may lie there.
    pub fn forget(&self) {
        self.lock().forget(None);
    }

    /// The distance to the return address, which `found` works out.
    pub fn slot(&self, place: Place, found: impl FnOnce() -> Option<i64>) -> Option<i64> {
        self.get(|known| &mut known.slots, place, found)
    }

    /// What a function calls for which bytes of the area have moved, which `found` works out.
    pub fn called(&self, area: usize, place: Place, found: impl FnOnce() -> Called) -> Called {
        self.get(|known| &mut known.called, (area, place), found)
    }

    fn get<K: Eq + Hash, V: Clone>(
        &self,
        map: fn(&mut Known) -> &mut HashMap<K, V>,
        key: K,
        found: impl FnOnce() -> V,
    ) -> V {
        let forgotten = {
            let mut known = self.fresh(Instant::now());
            if let Some(value) = map(&mut known).get(&key) {
                return value.clone();
            }
            known.forgotten
        };
        // Without the lock: others answer meanwhile.
        let value = found();
        let mut known = self.lock();
        if known.forgotten == forgotten {
            map(&mut known).insert(key, value.clone());
        }
        value
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known at `now`.
    fn fresh(&self, now: Instant) -> MutexGuard<'_, Known> {
        let mut known = self.lock();
        let since = *known.since.get_or_insert(now);
        let many = known.slots.len() + known.called.len() >= MOST;
        if many || now.saturating_duration_since(since) >= FRESH {
            known.forget(Some(now));
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn what_was_worked_out_is_used_again_for_a_moment() {
        let memo = Memo::default();
        let asked = Cell::new(0);
        let slot = |memo: &Memo, ip| {
            memo.slot((1, ip), || {
                asked.set(asked.get() + 1);
                Some(8)
            })
        };
        assert_eq!((slot(&memo, 5), slot(&memo, 5)), (Some(8), Some(8)));
        assert_eq!(asked.get(), 1);
        slot(&memo, 6);
        assert_eq!(asked.get(), 2, "another instruction");
        drop(memo.fresh(Instant::now() + FRESH));
        slot(&memo, 5);
        assert_eq!(asked.get(), 3, "it was long ago");
        memo.forget();
        slot(&memo, 5);
        assert_eq!(asked.get(), 4);
    }

    /// A module may be unloaded while an answer is made.
    #[test]
    fn what_was_forgotten_meanwhile_is_not_kept() {
        let memo = Memo::default();
        let early = memo.slot((1, 5), || {
            memo.forget();
            Some(8)
        });
        assert_eq!(early, Some(8));
        assert_eq!(memo.slot((1, 5), || Some(16)), Some(16));
    }

    #[test]
    fn areas_are_told_apart_and_there_is_a_limit() {
        let memo = Memo::default();
        let calls = |ends| Called {
            ends,
            ..Called::default()
        };
        assert!(memo.called(0, (1, 5), || calls(true)).ends);
        assert!(!memo.called(1, (1, 5), || calls(false)).ends);
        assert!(memo.called(0, (1, 5), || calls(false)).ends);
        for ip in 0..2 * MOST as u64 {
            memo.slot((1, ip), || None);
        }
        assert!(memo.lock().slots.len() <= MOST);
    }
}
