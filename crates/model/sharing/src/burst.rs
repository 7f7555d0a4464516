//! What a watch burst says of one line. The burst is a short complete sequence,
//! so the arithmetic of exact streams serves it; what it adds is that silence
//! counts: a burst that only one thread hits speaks against interleaving.

use crate::bytes::ByteState;
use crate::footprint::Footprint;
use crate::line::{Line, Scale};
use crate::stretch::{self, ANY_CPU, Class, Context, Entry};
use crate::tally::{add_use, join};
use crate::touch::Touch;
use sunder_access::{Access, ByteMask};

/// Expected changes from which on a burst counts fully: with eight expected,
/// chance shows none in fewer than one case in 2,000.
const FULL_WEIGHT: f64 = 8.0;

/// Hits of each thread with which a burst begins and that say nothing of the order:
/// the threads are armed one after the other, so for a moment one is slow and another
/// is not, and what they do then (a ring that runs full, a lock that is given up) is
/// the burst's own making. In `ring_indices`, where next to nothing is false, 11% of
/// the changes were with none left out, 5% with four and no less with more.
const WARM_UP: usize = 4;

/// Of a thread's hits at most this part is left out, so that a thread that comes
/// rarely still counts.
const WARM_UP_SHARE: usize = 4;

impl Line {
    /// Adds the burst's `hits` on this line, in order of time. `watched` are the
    /// line's bytes under watch.
    pub fn add_burst(&mut self, hits: &[(Access, Footprint)], watched: ByteMask, scale: &Scale) {
        self.catch_up(scale);
        let all = self.burst_entries(hits, scale);
        let entries = &all[warm_from(&all, self.users.len())..];
        let none = vec![None; self.users.len()];
        let context = Context {
            footprints: &self.footprints,
            threads: self.users.len(),
            granule: scale.granule,
            // A burst is shorter than any absence worth the name.
            absence_ns: u64::MAX,
            last_exact: &none,
            lives: &[],
        };
        let account = stretch::account(entries, &context);
        let expected = stretch::expected_changes(entries, &context)
            .unwrap_or_else(|| self.expected_of_one_thread(entries));
        self.bursts.watched = self.bursts.watched.union(watched);
        self.bursts.changes += account.exact_changes;
        self.bursts.separate += account.exact_separate;
        for &((a, b), changes, separate) in &account.exact_pairs {
            let threads = (self.thread(a), self.thread(b));
            self.pairs.add_seen(threads, changes, separate);
        }
        if account.exact_changes > 0 {
            self.bursts.loud += 1;
        } else {
            self.bursts.quiet += 1;
        }
        if expected > 0.0 {
            let weight = (expected / FULL_WEIGHT).min(1.0);
            let share = (account.exact_changes as f64 / expected).min(1.0);
            self.bursts.weight += weight;
            self.bursts.weighted_share += weight * share;
        }
        if account.bytes.iter().any(|&b| b != ByteState::Unused) {
            join(&mut self.bursts.bytes, &account.bytes);
        }
        for (user, a) in self.users.iter_mut().zip(&account.threads) {
            user.involved |= a.conflicting;
        }
        for (e, _) in entries.iter().zip(&account.active).filter(|(_, a)| **a) {
            let user = &mut self.users[usize::from(e.thread)];
            add_use(&mut user.uses, e.footprint, 0, e.count);
        }
    }

    fn burst_entries(&mut self, hits: &[(Access, Footprint)], scale: &Scale) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::with_capacity(hits.len());
        for (access, footprint) in hits {
            let touch = Touch {
                time: access.time.0,
                thread: access.thread,
                footprint: *footprint,
                instruction: access.instruction,
                class: Class::Exact,
                spent_ns: 0.0,
                count: 1,
                opens_visit: false,
                cpu: ANY_CPU,
            };
            if let Some((thread, footprint)) = self.note(&touch, scale) {
                entries.push(Entry {
                    time: touch.time,
                    thread,
                    footprint,
                    class: Class::Exact,
                    spent_ns: 0.0,
                    count: 1,
                    cpu: ANY_CPU,
                });
            }
        }
        entries.sort_by_key(|e| e.time);
        entries
    }

    /// If a single thread hit: the changes that the samples' shares of time had
    /// led to expect among so many hits.
    fn expected_of_one_thread(&self, entries: &[Entry]) -> f64 {
        let involved = || self.users.iter().filter(|u| u.involved);
        let all: f64 = involved().map(|u| u.spent_ns).sum();
        if all <= 0.0 {
            return 0.0;
        }
        let same: f64 = involved().map(|u| (u.spent_ns / all).powi(2)).sum();
        entries.len() as f64 * (1.0 - same)
    }
}

/// Where the order of `entries` begins to be the threads' own: all that hit have had
/// their share of [`WARM_UP`].
fn warm_from(entries: &[Entry], threads: usize) -> usize {
    let mut left = vec![0usize; threads];
    for e in entries {
        left[usize::from(e.thread)] += 1;
    }
    for hits in &mut left {
        *hits = (*hits / WARM_UP_SHARE).min(WARM_UP);
    }
    let mut cold: usize = left.iter().sum();
    for (place, e) in entries.iter().enumerate() {
        if cold == 0 {
            return place;
        }
        let left = &mut left[usize::from(e.thread)];
        if *left > 0 {
            *left -= 1;
            cold -= 1;
        }
    }
    entries.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(threads: &[u16]) -> Vec<Entry> {
        let entry = |(i, &thread): (usize, &u16)| Entry {
            time: i as u64,
            thread,
            footprint: 0,
            class: Class::Exact,
            spent_ns: 0.0,
            count: 1,
            cpu: ANY_CPU,
        };
        threads.iter().enumerate().map(entry).collect()
    }

    #[test]
    fn a_burst_is_warm_once_every_thread_has_had_some_hits() {
        // Thread 0 is armed first: its five hits are over when 1 begins.
        let mut order = vec![0; 5];
        order.extend([1, 0].repeat(20));
        // Four of thread 1, which come at places 5, 7, 9 and 11.
        assert_eq!(warm_from(&hits(&order), 2), 12);
    }

    #[test]
    fn a_thread_that_comes_rarely_is_not_left_out() {
        let mut order = vec![0; 20];
        order.extend([1, 0, 1, 0, 1, 0]);
        // Three hits of thread 1 are too few to give any away.
        assert_eq!(warm_from(&hits(&order), 2), 4);
    }

    #[test]
    fn without_hits_there_is_nothing_to_leave_out() {
        assert_eq!(warm_from(&[], 3), 0);
    }
}
