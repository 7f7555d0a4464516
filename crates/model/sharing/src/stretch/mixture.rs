//! Changes of thread that are to be expected if the order of accesses is random: all of them, those
//! between two threads, and those that would remain if every variable had a line of its own.

use super::account::{Account, Class, Context, Entry};
use crate::pairs::PairChanges;

/// The expected number of changes of thread, with a write, among accesses in random order: the
/// number of conflicting pairs over the number of accesses less one, which is unbiased for
/// binomial counts.
#[derive(Clone, Default)]
struct Mixture {
    /// By thread: the number of all accesses and of those that only read.
    by_thread: Vec<(f64, f64)>,
}

impl Mixture {
    fn add(&mut self, thread: u16, count: f64, writes: bool) {
        let i = usize::from(thread);
        if self.by_thread.len() <= i {
            self.by_thread.resize(i + 1, (0.0, 0.0));
        }
        self.by_thread[i].0 += count;
        self.by_thread[i].1 += if writes { 0.0 } else { count };
    }

    fn changes(&self) -> f64 {
        let (mut all, mut reads, mut same) = (0.0, 0.0, 0.0);
        for (a, r) in &self.by_thread {
            all += a;
            reads += r;
            same += a * a - r * r;
        }
        if all <= 1.0 {
            return 0.0;
        }
        ((all * all - reads * reads - same) / (all - 1.0)).max(0.0)
    }

    /// The part of [`Self::changes`] that is between threads that were there together. `apart`
    /// tells which two threads never were.
    fn changes_together(&self, apart: impl Fn(usize, usize) -> bool) -> f64 {
        let present = |i: &usize| self.by_thread[*i].0 > 0.0;
        let threads: Vec<usize> = (0..self.by_thread.len()).filter(present).collect();
        let all: f64 = self.by_thread.iter().map(|t| t.0).sum();
        let mut away = 0.0;
        for (n, &i) in threads.iter().enumerate() {
            for &j in threads[n + 1..].iter().filter(|&&j| apart(i, j)) {
                let (x, y) = (self.by_thread[i], self.by_thread[j]);
                away += x.0 * y.0 - x.1 * y.1;
            }
        }
        if all > 1.0 {
            away *= 2.0 / (all - 1.0);
        }
        (self.changes() - away).max(0.0)
    }

    /// The part of [`Self::changes`] that is between threads `i` and `j`.
    fn changes_between(&self, i: usize, j: usize) -> f64 {
        let all: f64 = self.by_thread.iter().map(|t| t.0).sum();
        let (Some(x), Some(y)) = (self.by_thread.get(i), self.by_thread.get(j)) else {
            return 0.0;
        };
        if all <= 1.0 {
            return 0.0;
        }
        2.0 * (x.0 * y.0 - x.1 * y.1) / (all - 1.0)
    }

    /// The indices of the busiest threads.
    fn busiest(&self) -> Vec<usize> {
        let mut present: Vec<usize> = (0..self.by_thread.len())
            .filter(|&i| self.by_thread[i].0 > 0.0)
            .collect();
        present.sort_by(|&a, &b| self.by_thread[b].0.total_cmp(&self.by_thread[a].0));
        present.truncate(PAIRED_THREADS);
        present.sort_unstable();
        present
    }
}

/// The number of threads in a stretch whose pairs are kept apart: as many as a watch burst has.
const PAIRED_THREADS: usize = 8;

fn pairs(
    line: &Mixture,
    apart: &[Mixture],
    scale: f64,
    never: impl Fn(usize, usize) -> bool,
) -> Vec<PairChanges<f64>> {
    let busiest = line.busiest();
    let mut all = Vec::new();
    for (n, &i) in busiest.iter().enumerate() {
        for &j in busiest[n + 1..].iter().filter(|&&j| !never(i, j)) {
            let changes = scale * line.changes_between(i, j);
            if changes > 0.0 {
                let separate: f64 = apart.iter().map(|m| m.changes_between(i, j)).sum();
                all.push(((i as u16, j as u16), changes, scale * separate));
            }
        }
    }
    all
}

/// Adds the expected changes among the conflicting threads' sampled accesses, on the line as it
/// is and with each cluster of bytes on a line of its own.
pub(super) fn account_changes(entries: &[Entry], context: &Context<'_>, account: &mut Account) {
    let sampled = || {
        let active = entries.iter().zip(&account.active);
        active.filter(|(e, active)| **active && e.class != Class::Exact)
    };
    let used: Vec<u16> = sampled().map(|(e, _)| e.footprint).collect();
    if used.is_empty() {
        return;
    }
    let clusters = context.footprints.clusters(&used);
    let count = clusters.iter().max().map_or(0, |&c| usize::from(c) + 1);
    let mut line = Mixture::default();
    let mut counted = Mixture::default();
    let mut apart = vec![Mixture::default(); count];
    for (e, _) in sampled() {
        let (n, writes) = (f64::from(e.count), context.writes(e));
        line.add(e.thread, n, writes);
        apart[usize::from(clusters[usize::from(e.footprint)])].add(e.thread, n, writes);
        if e.class == Class::Counted {
            counted.add(e.thread, n, writes);
        }
    }
    // Only threads that were there together can tell which changes are false. The number of all
    // changes is not scaled down for it: threads of one step change the line more often than
    // random order over all steps suggests.
    let never = |i: usize, j: usize| context.never_together(account, i, j);
    let together = line.changes_together(never);
    let separate: f64 = apart.iter().map(|m| m.changes_together(never)).sum();
    let all = line.changes();
    let scale = if together > 0.0 { all / together } else { 1.0 };
    let pairs = pairs(&line, &apart, scale, never);
    account.changes = all;
    account.separate = scale * separate;
    account.pairs = pairs;
    account.counted_changes = counted.changes();
}

/// The expected changes in a complete sequence if its order were random, without each thread's
/// arrival; `None` if the sequence has only one thread.
pub(crate) fn expected_changes(entries: &[Entry], context: &Context<'_>) -> Option<f64> {
    let mut all = Mixture::default();
    for e in entries {
        all.add(e.thread, f64::from(e.count), context.writes(e));
    }
    let threads = all.by_thread.iter().filter(|t| t.0 > 0.0).count();
    (threads > 1).then(|| (all.changes() - (threads - 1) as f64).max(0.0))
}
