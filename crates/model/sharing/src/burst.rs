//! What a watch burst tells about one line. A burst is a short complete sequence, so it is
//! counted like an exact stream. In addition its silence counts: a burst that only one thread
//! hits is evidence against interleaving.

use crate::bytes::ByteState;
use crate::footprint::Footprint;
use crate::line::Line;
use crate::scale::Scale;
use crate::stretch::{self, ANY_CPU, Class, Context, Entry};
use crate::tally::{add_use, join};
use crate::touch::Touch;
use sunder_access::{Access, ByteMask};

/// The number of expected changes from which on a burst has full weight. With eight expected, a
/// burst shows none by chance in fewer than one case in 2,000.
const FULL_WEIGHT: f64 = 8.0;

/// The first hits of each thread in a burst, which are left out because they say nothing about
/// the order. The threads' watchpoints are armed one after the other, so for a moment one
/// thread is slowed down and another is not; what that causes (a ring that fills up, a lock
/// that is given up) is the burst's own doing. In `ring_indices`, which has almost no false
/// sharing, 11% of the changes were false when all hits counted, 5% without the first four, and
/// no fewer with more left out.
const WARM_UP: usize = 4;

/// At most one hit in this many of a thread is left out, so that a thread with few hits still
/// counts.
const WARM_UP_SHARE: usize = 4;

impl Line {
    /// Adds the burst's `hits` on this line, in order of time. `watched` are the line's bytes
    /// that had watchpoints.
    pub fn add_burst(&mut self, hits: &[(Access, Footprint)], watched: ByteMask, scale: &Scale) {
        self.catch_up(scale);
        let all = self.burst_entries(hits, scale);
        let entries = &all[warm_from(&all, self.users.len())..];
        let none = vec![None; self.users.len()];
        let context = Context {
            footprints: &self.footprints,
            threads: self.users.len(),
            granule: scale.granule,
            // A burst is too short for any thread to be absent from it.
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

    /// For a burst that a single thread hit: the number of changes of thread to be expected
    /// among as many hits, by the threads' shares of the samples.
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

/// The index of the entry from which on the order of `entries` is the threads' own: every
/// thread has had its [`WARM_UP`] hits.
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
        // Thread 0 is armed first and has five hits before thread 1 begins.
        let mut order = vec![0; 5];
        order.extend([1, 0].repeat(20));
        // The first four hits of thread 1 are at indices 5, 7, 9 and 11.
        assert_eq!(warm_from(&hits(&order), 2), 12);
    }

    #[test]
    fn a_thread_with_few_hits_is_not_left_out() {
        let mut order = vec![0; 20];
        order.extend([1, 0, 1, 0, 1, 0]);
        // Thread 1 has three hits, too few for any to be left out.
        assert_eq!(warm_from(&hits(&order), 2), 4);
    }

    #[test]
    fn without_hits_there_is_nothing_to_leave_out() {
        assert_eq!(warm_from(&[], 3), 0);
    }
}
