//! The account of a stretch's samples: which threads were there at the same time, what that can have
//! cost them, and whether their order speaks for interleaving. It ignores complete sequences.

use super::account::{ANY_CPU, Account, Class, Context, Entry, ThreadAccount};

/// Whether two CPUs may be different ones. The line does not move between threads that take
/// turns on one CPU.
pub(crate) const fn may_differ(a: u16, b: u16) -> bool {
    a != b || a == ANY_CPU
}

/// The touch of the line by one sample or PMU event.
struct Visit {
    time: u64,
    thread: u16,
    cpu: u16,
    writes: bool,
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
pub(super) fn account_samples(entries: &[Entry], context: &Context<'_>, account: &mut Account) {
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
