//! What a watch burst says of one line. The burst is a short complete sequence,
//! so the arithmetic of exact streams serves it; what it adds is that silence
//! counts: a burst that only one thread hits speaks against interleaving.

use crate::bytes::ByteState;
use crate::footprint::Footprint;
use crate::line::{Line, Scale, Touch, add_use, join};
use crate::stretch::{self, ANY_CPU, Class, Context, Entry};
use sunder_access::{Access, ByteMask};

/// Expected changes from which on a burst counts fully: with eight expected,
/// chance shows none in fewer than one case in 2,000.
const FULL_WEIGHT: f64 = 8.0;

impl Line {
    /// Adds the burst's `hits` on this line, in order of time. `watched` are the
    /// line's bytes under watch.
    pub fn add_burst(&mut self, hits: &[(Access, Footprint)], watched: ByteMask, scale: &Scale) {
        let entries = self.burst_entries(hits, scale);
        let none = vec![None; self.users.len()];
        let context = Context {
            footprints: &self.footprints,
            threads: self.users.len(),
            granule: scale.granule,
            // A burst is shorter than any absence worth the name.
            absence_ns: u64::MAX,
            last_exact: &none,
        };
        let account = stretch::account(&entries, &context);
        let expected = stretch::expected_changes(&entries, &context)
            .unwrap_or_else(|| self.expected_of_one_thread(&entries));
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
