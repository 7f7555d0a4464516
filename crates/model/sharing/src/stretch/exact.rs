//! The account of a stretch's complete sequences: changes of thread are counted as they came.

use super::account::{Account, Class, Context, Entry};
use crate::pairs::PairChanges;

/// A stay: consecutive touches of one thread in a complete sequence.
struct Stay {
    thread: u16,
    writes: bool,
    returning: bool,
    /// Number of touches.
    len: usize,
}

/// Counts the changes of thread in the complete sequences of a stretch.
pub(super) fn account_exact(entries: &[Entry], context: &Context<'_>, account: &mut Account) {
    let index: Vec<usize> = (0..entries.len())
        .filter(|&i| matches!(entries[i].class, Class::Exact | Class::Seed))
        .collect();
    if index.len() < 2 {
        return;
    }
    let exact: Vec<&Entry> = index.iter().map(|&i| &entries[i]).collect();
    let returning = returning(&exact, context);
    let line: Vec<Stay> = stays(exact.iter().zip(&returning), context);
    account.exact_changes = changes(&line);
    if account.exact_changes == 0 {
        return;
    }
    let mut position = 0;
    for (k, stay) in line.iter().enumerate() {
        let before = k > 0 && is_change(&line[k - 1], stay);
        let after = line.get(k + 1).is_some_and(|next| is_change(stay, next));
        if before || after {
            account.threads[usize::from(stay.thread)].conflicting = true;
            for &i in &index[position..position + stay.len] {
                account.active[i] = entries[i].class == Class::Exact;
            }
        }
        position += stay.len;
    }
    let used: Vec<u16> = exact.iter().map(|e| e.footprint).collect();
    let clusters = context.footprints.clusters(&used);
    let count = clusters.iter().max().map_or(0, |&c| c + 1);
    let mut pairs: Vec<PairChanges<u64>> = Vec::new();
    count_pairs(&line, &mut pairs, |pair| &mut pair.1);
    let mut apart: Vec<Vec<Stay>> = Vec::new();
    apart.resize_with(usize::from(count), Vec::new);
    for (e, &returning) in exact.iter().zip(&returning) {
        let cluster = usize::from(clusters[usize::from(e.footprint)]);
        add_to_stays(&mut apart[cluster], e, returning, context);
    }
    for apart in apart.into_iter().skip(1) {
        account.exact_separate += changes(&apart);
        count_pairs(&apart, &mut pairs, |pair| &mut pair.2);
    }
    account.exact_pairs = pairs;
}

/// For each change among `stays`, adds one to the number that `of` selects in its pair.
fn count_pairs(
    stays: &[Stay],
    pairs: &mut Vec<PairChanges<u64>>,
    of: fn(&mut PairChanges<u64>) -> &mut u64,
) {
    for w in stays.windows(2).filter(|w| is_change(&w[0], &w[1])) {
        let (a, b) = (w[0].thread, w[1].thread);
        let threads = (a.min(b), a.max(b));
        let known = pairs.iter().position(|p| p.0 == threads);
        let place = known.unwrap_or_else(|| {
            pairs.push((threads, 0, 0));
            pairs.len() - 1
        });
        *of(&mut pairs[place]) += 1;
    }
}

/// For each touch, whether its stay began with a return: the thread came back after an absence
/// short enough for its two stays to count as simultaneous with what happened between them.
fn returning(exact: &[&Entry], context: &Context<'_>) -> Vec<bool> {
    let mut last = context.last_exact.to_vec();
    last.resize(context.threads, None);
    let mut flags: Vec<bool> = Vec::with_capacity(exact.len());
    for (i, e) in exact.iter().enumerate() {
        let seen = &mut last[usize::from(e.thread)];
        let flag = match i.checked_sub(1) {
            Some(p) if exact[p].thread == e.thread => flags[p],
            _ => seen.is_some_and(|t| e.time.saturating_sub(t) <= context.absence_ns),
        };
        *seen = Some(e.time);
        flags.push(flag);
    }
    flags
}

fn stays<'a>(
    touches: impl Iterator<Item = (&'a &'a Entry, &'a bool)>,
    context: &Context<'_>,
) -> Vec<Stay> {
    let mut all: Vec<Stay> = Vec::new();
    for (e, &returning) in touches {
        add_to_stays(&mut all, e, returning, context);
    }
    all
}

/// Adds a touch to the last stay if it is of the same thread, else begins a new stay.
fn add_to_stays(all: &mut Vec<Stay>, e: &Entry, returning: bool, context: &Context<'_>) {
    match all.last_mut() {
        Some(stay) if stay.thread == e.thread => {
            stay.writes |= context.writes(e);
            stay.len += 1;
        }
        _ => all.push(Stay {
            thread: e.thread,
            writes: context.writes(e),
            returning,
            len: 1,
        }),
    }
}

const fn is_change(a: &Stay, b: &Stay) -> bool {
    b.returning && (a.writes || b.writes)
}

fn changes(stays: &[Stay]) -> u64 {
    stays.windows(2).filter(|w| is_change(&w[0], &w[1])).count() as u64
}
