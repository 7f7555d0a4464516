//! A stretch: the latest touches of one line without a long pause between them, and the account
//! that is made when it ends. This file is the judge's arithmetic; the crate's documentation
//! derives it and names its weak points. Called by [`crate::line`] and [`crate::burst`]. It
//! knows neither lines nor addresses: threads are indices, bytes are footprints.

use crate::bytes::{ByteState, ByteWatch};
use crate::footprint::Footprints;
use crate::pairs::PairChanges;

/// How a touch became known, as far as the arithmetic cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Decoded from a sample in time. Entries of equal time and thread belong to one sample;
    /// the first of them carries the sample's time.
    Timed,
    /// Time that a sample probably spent here, without footprint and order.
    Near,
    /// An access that stands for a known number of accesses, such as a PMU event.
    Counted,
    /// An access in a complete sequence.
    Exact,
    /// The last touch of the previous stretch. It only serves the order of exact touches.
    Seed,
}

/// One touch of the line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub time: u64,
    /// The thread's index in the line.
    pub thread: u16,
    /// Index of the footprint; meaningless for `Near`.
    pub footprint: u16,
    pub class: Class,
    /// CPU time of the thread that the touch stands for and that other threads may have cost,
    /// ns.
    pub spent_ns: f32,
    /// Accesses that the touch stands for.
    pub count: u32,
    /// The CPU that the thread ran on, or [`ANY_CPU`].
    pub cpu: u16,
}

/// The CPU of an access that does not tell its CPU.
pub(crate) const ANY_CPU: u16 = u16::MAX;

/// What a stretch tells about one thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThreadAccount {
    /// The number of visits (samples or accesses), and of those that wrote.
    visits: u32,
    writing: u32,
    first: u32,
    last: u32,
    spent_ns: f64,
    /// The CPU that all its visits so far were on, if it is one.
    cpu: Option<u16>,
    /// Whether another thread conflicted with it.
    pub conflicting: bool,
    /// Upper bound of the time that it lost on the line.
    pub lost_ns: f64,
}

/// What a stretch adds to a line's verdict.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    pub threads: Vec<ThreadAccount>,
    /// Visits between two conflicting visits of other threads, and how many there would be in
    /// random order.
    pub isolated: u32,
    pub isolated_expected: f64,
    /// Changes of thread among sampled accesses, if their order were random: on the line as it
    /// is, and with every cluster of bytes on a line of its own.
    pub changes: f64,
    pub separate: f64,
    /// The same two numbers by pair of threads, for the busiest threads.
    pub pairs: Vec<PairChanges<f64>>,
    /// The same as `changes`, for PMU events alone.
    pub counted_changes: f64,
    /// `changes` and `separate` as counted in complete sequences.
    pub exact_changes: u64,
    pub exact_separate: u64,
    /// The same by pair of threads.
    pub exact_pairs: Vec<PairChanges<u64>>,
    /// For each entry, whether it is part of the contention.
    pub active: Vec<bool>,
    /// State of each byte; empty if there was no conflict.
    pub bytes: Vec<ByteState>,
}

impl Account {
    pub fn lost_ns(&self) -> f64 {
        self.threads.iter().map(|t| t.lost_ns).sum()
    }

    pub fn is_contended(&self) -> bool {
        self.threads.iter().any(|t| t.conflicting)
    }
}

/// What the arithmetic needs to know of the line.
pub(crate) struct Context<'a> {
    pub footprints: &'a Footprints,
    pub threads: usize,
    pub granule: usize,
    /// The longest absence after which a thread still returns, ns.
    pub absence_ns: u64,
    /// By thread: when it was last seen in a complete sequence, if ever.
    pub last_exact: &'a [Option<u64>],
    /// By thread: when it first and last touched the line so far; empty where that is not
    /// known.
    pub lives: &'a [(u64, u64)],
}

impl Context<'_> {
    fn writes(&self, entry: &Entry) -> bool {
        self.footprints.get(entry.footprint).kind.writes()
    }

    /// Whether one of two threads had its last touch before the other's first. Programs that
    /// create threads anew for each step have such threads: they use what those of the step
    /// before used. Threads that take turns on a CPU come back and overlap. With few visits it
    /// may be chance, which is excluded.
    fn never_together(&self, account: &Account, i: usize, j: usize) -> bool {
        let (Some(a), Some(b)) = (self.lives.get(i), self.lives.get(j)) else {
            return false;
        };
        let visits = |i: usize| account.threads[i].visits;
        (a.1 < b.0 || b.1 < a.0) && chance_apart(visits(i), visits(j)) < HIGHEST_CHANCE
    }
}

/// Makes the account of `entries`, which must be in order of time.
pub(crate) fn account(entries: &[Entry], context: &Context<'_>) -> Account {
    let mut account = Account {
        threads: vec![ThreadAccount::default(); context.threads],
        active: vec![false; entries.len()],
        ..Account::default()
    };
    account_samples(entries, context, &mut account);
    account_exact(entries, context, &mut account);
    if account.is_contended() {
        account_changes(entries, context, &mut account);
        account.bytes = byte_states(entries, context, &account);
    }
    account
}

/// The touch of the line by one sample or PMU event.
struct Visit {
    time: u64,
    thread: u16,
    cpu: u16,
    writes: bool,
}

/// Whether two CPUs may be different ones. The line does not move between threads that take
/// turns on one CPU.
const fn may_differ(a: u16, b: u16) -> bool {
    a != b || a == ANY_CPU
}

fn visits(entries: &[Entry], context: &Context<'_>) -> Vec<Visit> {
    let mut all: Vec<Visit> = Vec::with_capacity(entries.len());
    for e in entries {
        if !matches!(e.class, Class::Timed | Class::Counted) {
            continue;
        }
        match all.last_mut() {
            Some(v) if v.thread == e.thread && v.time == e.time => v.writes |= context.writes(e),
            _ => all.push(Visit {
                time: e.time,
                thread: e.thread,
                cpu: e.cpu,
                writes: context.writes(e),
            }),
        }
    }
    all
}

/// Cuts off visits of a single thread at the beginning and at the end, except for the one
/// adjacent to another thread's visit. So a thread that initialises a line before it shares it
/// is not taken to write all of the line while others use it.
fn core(visits: &[Visit]) -> &[Visit] {
    let change = |w: &[Visit]| w[0].thread != w[1].thread;
    let first = visits.windows(2).position(change);
    let last = visits.windows(2).rposition(change);
    match (first, last) {
        (Some(first), Some(last)) => &visits[first..last + 2],
        _ => &[],
    }
}

/// Finds which threads were there at the same time, what that can have cost them, and whether
/// the order of the visits speaks for or against interleaving.
fn account_samples(entries: &[Entry], context: &Context<'_>, account: &mut Account) {
    let all = visits(entries, context);
    let core = core(&all);
    let (Some(first), Some(last)) = (core.first(), core.last()) else {
        return;
    };
    let (from, to) = (first.time, last.time);
    let sampled = |e: &Entry| {
        !matches!(e.class, Class::Exact | Class::Seed) && e.time >= from && e.time <= to
    };
    for e in entries.iter().filter(|e| sampled(e)) {
        account.threads[usize::from(e.thread)].spent_ns += f64::from(e.spent_ns);
    }
    for (i, v) in core.iter().enumerate() {
        let t = &mut account.threads[usize::from(v.thread)];
        if t.visits == 0 {
            t.first = i as u32;
            t.cpu = Some(v.cpu);
        }
        t.cpu = t.cpu.filter(|&only| only == v.cpu);
        t.last = i as u32;
        t.visits += 1;
        t.writing += u32::from(v.writes);
    }
    bound_losses(core, &mut account.threads);
    for (e, active) in entries.iter().zip(&mut account.active) {
        *active = sampled(e)
            && e.class != Class::Near
            && account.threads[usize::from(e.thread)].conflicting;
    }
    // If threads come and go one after another, some visits lie between those of others, but no
    // thread came back. That is no contention.
    if account.is_contended() {
        account.isolated = isolated(core);
        account.isolated_expected = isolated_expected(core);
    }
}

/// Sets the time that every thread can have lost. It is at most the time that the thread spent
/// on the line itself. It is also at most the time that threads in conflict with it (writers
/// for a reader, all threads for a writer) spent there during its stay: from its first visit to
/// its last, or around its only one. The second bound matters for short-lived threads one after
/// another: each of them meets the rare writer of all, but most of them do not live through a
/// single write.
fn bound_losses(visits: &[Visit], threads: &mut [ThreadAccount]) {
    let present: Vec<usize> = (0..threads.len())
        .filter(|&i| threads[i].visits > 0)
        .collect();
    let mut seen = vec![0u32; threads.len()];
    for &i in &present {
        let own = threads[i];
        seen.fill(0);
        let around = u32::from(own.visits == 1);
        let from = own.first.saturating_sub(around) as usize;
        let to = ((own.last + around) as usize + 1).min(visits.len());
        for v in &visits[from..to] {
            seen[usize::from(v.thread)] += 1;
        }
        let mut rivals_ns = 0.0;
        for &j in present.iter().filter(|&&j| j != i) {
            let other = threads[j];
            if (own.writing > 0 || other.writing > 0) && meet(&own, &other) {
                let part = f64::from(seen[j]) / f64::from(other.visits);
                rivals_ns += other.spent_ns * part;
                threads[i].conflicting = true;
            }
        }
        threads[i].lost_ns = own.spent_ns.min(rivals_ns);
    }
}

/// Whether two threads' stays overlap and are not all on one CPU. If one left before the other
/// came, the line was handed over once, and that is not sharing.
const fn meet(a: &ThreadAccount, b: &ThreadAccount) -> bool {
    let one_cpu = match (a.cpu, b.cpu) {
        (Some(a), Some(b)) => !may_differ(a, b),
        _ => false,
    };
    a.first < b.last && b.first < a.last && !one_cpu
}

/// The highest probability at which two threads whose visits do not overlap still count as
/// belonging to different steps, rather than as visits that happen to be in that order.
const HIGHEST_CHANCE: f64 = 0.001;

/// The probability that, with `a` visits of one thread and `b` of another in random order, all
/// visits of one come before all visits of the other.
fn chance_apart(a: u32, b: u32) -> f64 {
    let (less, more) = (a.min(b), a.max(b));
    // It is 2 / C(a + b, a). A value below 1 in 10^9 need not be computed further.
    let mut chance = 2.0;
    for i in 1..=less {
        chance *= f64::from(i) / f64::from(more + i);
        if chance < 1e-9 {
            break;
        }
    }
    chance
}

fn isolated(visits: &[Visit]) -> u32 {
    let conflict = |a: &Visit, b: &Visit| {
        a.thread != b.thread && may_differ(a.cpu, b.cpu) && (a.writes || b.writes)
    };
    let alone = |w: &&[Visit]| conflict(&w[0], &w[1]) && conflict(&w[1], &w[2]);
    visits.windows(3).filter(alone).count() as u32
}

/// The expected number of isolated visits if their order were random. A writing visit needs two
/// neighbours by other threads on other CPUs; a reading visit needs two such that write. Exact
/// for drawing without replacement.
fn isolated_expected(visits: &[Visit]) -> f64 {
    if visits.len() < 3 {
        return 0.0;
    }
    // Visits of one thread on one CPU are alike: the number of all visits and of writing ones.
    let mut groups: Vec<(u16, u16, f64, f64)> = Vec::new();
    for v in visits {
        let writing = f64::from(u8::from(v.writes));
        match groups.iter_mut().find(|g| (g.0, g.1) == (v.thread, v.cpu)) {
            Some(g) => {
                g.2 += 1.0;
                g.3 += writing;
            }
            None => groups.push((v.thread, v.cpu, 1.0, writing)),
        }
    }
    let pairs = |k: f64| k * (k - 1.0).max(0.0);
    let sum: f64 = groups
        .iter()
        .map(|&(thread, cpu, all, writing)| {
            let others = groups
                .iter()
                .filter(|g| g.0 != thread && may_differ(g.1, cpu));
            let (o_all, o_writing) = others.fold((0.0, 0.0), |s, g| (s.0 + g.2, s.1 + g.3));
            writing * pairs(o_all) + (all - writing) * pairs(o_writing)
        })
        .sum();
    let n = visits.len() as f64;
    sum / (n * (n - 1.0))
}

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
fn account_changes(entries: &[Entry], context: &Context<'_>, account: &mut Account) {
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

/// A stay: consecutive touches of one thread in a complete sequence.
struct Stay {
    thread: u16,
    writes: bool,
    returning: bool,
    /// Number of touches.
    len: usize,
}

/// Counts the changes of thread in the complete sequences of a stretch.
fn account_exact(entries: &[Entry], context: &Context<'_>, account: &mut Account) {
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

fn byte_states(entries: &[Entry], context: &Context<'_>, account: &Account) -> Vec<ByteState> {
    let together = |i: u16, j: u16| !context.never_together(account, i.into(), j.into());
    let mut touches: Vec<(u16, u16)> = entries
        .iter()
        .zip(&account.active)
        .filter(|(_, active)| **active)
        .map(|(e, _)| (e.footprint, e.thread))
        .collect();
    touches.sort_unstable();
    touches.dedup();
    let mut watch = vec![ByteWatch::default(); context.granule];
    for (footprint, thread) in touches {
        let f = context.footprints.get(footprint);
        for byte in &mut watch[usize::from(f.start)..usize::from(f.end())] {
            byte.touch(thread, f.kind.writes());
        }
    }
    watch.iter().map(|b| b.state(together)).collect()
}
