//! Crowds: many lines near each other on which the same code works, each visited too rarely to be
//! judged alone. An array whose elements belong to threads in turn is one: of its hundreds of lines
//! each has a thousandth of the threads' time, and a handful of visits in a whole run.
//!
//! What is asked of a line is asked of all of them together: whether threads meet there, what they
//! can lose, whether their order is random, and what bursts showed. A crowd costs something only if
//! bursts confirmed several of its lines; the crate's documentation gives the reasons. Called by the
//! judge's answers. It must not change a line of the judge, and must not say anything of a line that
//! only one thread was seen on.

use crate::bytes::{ByteState, ByteWatch};
use crate::config::MIN_GAP_WINDOWS;
use crate::false_share::{FalseShare, Sharing};
use crate::footprint::{Footprint, Footprints};
use crate::hash::Map;
use crate::line::{Line, STRETCH_VISITS};
use crate::scale::Scale;
use crate::stretch::{self, ANY_CPU, Class, Context, Entry, may_differ};
use crate::tally::join;
use crate::verdict::{self, Verdict};
use std::collections::HashSet;
use sunder_access::{Address, CodeAddress, Kind, ThreadId};

/// Lines that are further apart than a page, in bytes, belong to different crowds.
const REACH: u64 = 4096;

/// The fewest lines of a crowd. Fewer lines have more visits each, or cost little.
const FEWEST: usize = 8;

/// The confirmed lines that speak for the others: more than the two ends of a thread's part, which are
/// shared also where nothing else is. And those from which on no more bursts are wanted.
const CONFIRMING_LINES: usize = 3;
const ENOUGH_CONFIRMED: usize = 8;

/// Lines that are judged together.
pub(crate) struct Crowd {
    /// The lines as they would be if their open stretches ended now, by address.
    pub members: Vec<(Address, Line)>,
    /// The share of its time on these lines that each thread can lose, before bursts are heard.
    losses: Map<ThreadId, f64>,
    /// On how many of the lines a sample is in the mean, at least 1.
    pub width: f64,
    confirmed: usize,
    /// What the bursts on its lines showed: their share of interleaved time, and the kind of sharing.
    by_bursts: f64,
    falsely: FalseShare,
    sharing: Sharing,
}

/// The crowds among `lines`.
pub(crate) fn crowds<'a>(
    lines: impl Iterator<Item = (Address, &'a Line)> + Clone,
    scale: &Scale,
) -> Vec<Crowd> {
    let may_be = |line: &Line| line.is_shared() && !line.is_judged_alone();
    let candidates = lines.clone().filter(|(_, line)| may_be(line));
    if candidates.clone().count() < FEWEST {
        return Vec::new();
    }
    let mut sparse: Vec<(Address, Line)> = candidates
        .map(|(base, line)| (base, line.settled(scale)))
        .filter(|(_, line)| is_sparse(line))
        .collect();
    if sparse.len() < FEWEST {
        return Vec::new();
    }
    sparse.sort_unstable_by_key(|(base, _)| *base);
    let mut alone: Vec<(Address, &Line)> = lines
        .filter(|(_, line)| !line.is_shared() && line.users.len() == 1)
        .collect();
    alone.sort_unstable_by_key(|(base, _)| *base);
    let mut found = Vec::new();
    for near in neighbourhoods(sparse) {
        for members in by_code(near) {
            if members.len() >= FEWEST {
                found.extend(Crowd::of(members, &alone, scale));
            }
        }
    }
    found
}

/// Whether several threads' visits of the line are left, of which one writes, and the line cannot
/// be judged alone.
fn is_sparse(line: &Line) -> bool {
    let touches = line.apart.touches();
    let Some(first) = touches.first() else {
        return false;
    };
    !line.is_judged_alone()
        && touches.iter().any(|e| e.thread != first.thread)
        && touches.iter().any(|e| writes(line, e))
}

fn writes(line: &Line, entry: &Entry) -> bool {
    line.footprints.get(entry.footprint).kind.writes()
}

/// Lines that lie no more than [`REACH`] apart.
fn neighbourhoods(lines: Vec<(Address, Line)>) -> Vec<Vec<(Address, Line)>> {
    let mut all: Vec<Vec<(Address, Line)>> = Vec::new();
    for (base, line) in lines {
        match all.last_mut() {
            Some(near) if near.last().is_some_and(|l| base.0 - l.0.0 <= REACH) => {
                near.push((base, line));
            }
            _ => all.push(vec![(base, line)]),
        }
    }
    all
}

/// The instructions that do most of the work on a line: each at least a quarter of it. An allocator, or
/// a function that copies, touches lines of all kinds now and then, and does not make them a crowd.
fn code(line: &Line) -> impl Iterator<Item = CodeAddress> {
    let all: u64 = line.sites.iter().map(|site| site.count).sum();
    let main = line.sites.iter().filter(move |site| 4 * site.count >= all);
    main.map(|site| site.instruction)
}

/// Lines on which a common instruction works, directly or through others.
fn by_code(lines: Vec<(Address, Line)>) -> Vec<Vec<(Address, Line)>> {
    // The group of each instruction, and for each group the one that it was joined to.
    let mut groups: Map<CodeAddress, usize> = Map::default();
    let mut joined: Vec<usize> = Vec::new();
    fn root(joined: &[usize], mut group: usize) -> usize {
        while joined[group] != group {
            group = joined[group];
        }
        group
    }
    for (_, line) in &lines {
        let mut own = None;
        for instruction in code(line) {
            let new = joined.len();
            let group = *groups.entry(instruction).or_insert(new);
            if group == new {
                joined.push(new);
            }
            let group = root(&joined, group);
            joined[group] = *own.get_or_insert(group);
        }
    }
    let mut all: Map<usize, Vec<(Address, Line)>> = Map::default();
    for (base, line) in lines {
        let first = code(&line).next();
        if let Some(group) = first.and_then(|first| groups.get(&first)) {
            all.entry(root(&joined, *group))
                .or_default()
                .push((base, line));
        }
    }
    all.into_values().collect()
}

/// One visit of a member: a sample, on whichever of the lines.
struct Visit {
    time: u64,
    thread: ThreadId,
    cpu: u16,
    writes: bool,
    spent_ns: f32,
}

impl Crowd {
    fn of(
        members: Vec<(Address, Line)>,
        alone: &[(Address, &Line)],
        scale: &Scale,
    ) -> Option<Self> {
        let visits = visits(&members);
        let mixed = mixed(&members, &visits, alone);
        if mixed <= 0.0 {
            return None;
        }
        let mut losses = losses(&visits, scale);
        // A sample of a wide loop is on several lines at once, and each counts its time in full: the
        // lines share what the threads lose.
        let mut spent: Map<ThreadId, f64> = Map::default();
        for (_, line) in &members {
            for e in line.apart.touches() {
                *spent.entry(line.thread(e.thread)).or_default() += f64::from(e.spent_ns);
            }
        }
        let once: f64 = visits.iter().map(|v| f64::from(v.spent_ns)).sum();
        let width = spent.values().sum::<f64>() / once.max(1.0);
        for (thread, share) in &mut losses {
            *share *= mixed / spent.get(thread).copied().unwrap_or(0.0).max(1.0);
        }
        let bursts = || members.iter().map(|(_, line)| &line.bursts);
        let weight: f64 = bursts().map(|b| b.weight).sum();
        let share: f64 = bursts().map(|b| b.weighted_share).sum();
        let changes: u64 = bursts().map(|b| b.changes).sum();
        let separate: u64 = bursts().map(|b| b.separate).sum();
        let falsely = FalseShare::counted(changes as f64, separate as f64);
        let is_byte_shared = bursts().any(|b| b.bytes.contains(&ByteState::WrittenShared));
        Some(Self {
            losses,
            width: width.max(1.0),
            confirmed: bursts().filter(|b| b.confirms()).count(),
            by_bursts: (share + 1.0) / (weight + 1.0),
            falsely,
            sharing: if is_byte_shared {
                falsely.sharing()
            } else {
                Sharing::False
            },
            members,
        })
    }

    /// The time that its threads can lose on all of its lines together, as far as samples and
    /// bursts show, ns.
    pub fn lost_ns(&self) -> f64 {
        let lines = self.members.iter().map(|(_, line)| line);
        lines
            .flat_map(|line| self.lost_on(line))
            .map(|(_, ns)| ns)
            .sum()
    }

    /// The threads that take part.
    pub fn threads(&self) -> impl Iterator<Item = ThreadId> + '_ {
        self.losses.keys().copied()
    }

    /// Whether more bursts are wanted.
    pub const fn is_in_doubt(&self) -> bool {
        self.confirmed < ENOUGH_CONFIRMED
    }

    /// Whether bursts have shown enough of it to say what it costs.
    pub fn is_confirmed(&self) -> bool {
        self.confirmed >= CONFIRMING_LINES && self.sharing != Sharing::True
    }

    /// The verdict on `line`, one of the members, which lies at `base`. The kind of sharing of a line
    /// that no burst has watched is that of the lines that bursts did watch. `None` if the line's own
    /// few visits contradict that.
    pub fn verdict(&self, base: Address, line: &Line, scale: &Scale) -> Option<Verdict> {
        let joined = self.accounted(line, scale);
        let mut verdict = verdict::verdict(&joined, base, scale.transfer_ns)?;
        if line.bursts.changes == 0 {
            if self.sharing == Sharing::False && verdict.sharing != Sharing::False {
                return None;
            }
            verdict.sharing = self.sharing;
            if self.sharing != Sharing::False {
                verdict.falsely = self.falsely;
                verdict.false_share = self.falsely.share;
            }
        }
        Some(verdict)
    }

    /// By index of the line's users: what each can lose on it.
    fn lost_on<'a>(&'a self, line: &'a Line) -> impl Iterator<Item = (usize, f64)> + 'a {
        let scale = line.apart.scale() * self.by_bursts;
        line.apart.touches().iter().map(move |e| {
            let share = self.losses.get(&line.thread(e.thread)).copied();
            let lost = f64::from(e.spent_ns) * share.unwrap_or(0.0) * scale;
            (usize::from(e.thread), lost)
        })
    }

    /// `line`, one of the members, with its part of what the crowd loses instead of what its own
    /// stretches showed.
    pub fn accounted(&self, line: &Line, scale: &Scale) -> Line {
        let mut new = line.clone();
        new.users.iter_mut().for_each(|user| user.lost_ns = 0.0);
        let mut lost = 0.0;
        for (user, ns) in self.lost_on(line) {
            new.users[user].lost_ns += ns;
            lost += ns;
        }
        new.tally.lost_ns = lost;
        (new.tally.isolated, new.tally.isolated_expected) = (1, 1.0);
        new.tally.returns += 1;
        let mut watch = vec![ByteWatch::default(); scale.granule];
        for e in line.apart.touches() {
            let user = &mut new.users[usize::from(e.thread)];
            if !self.losses.contains_key(&user.thread) {
                continue;
            }
            user.involved = true;
            let f = line.footprints.get(e.footprint);
            for byte in &mut watch[usize::from(f.start)..usize::from(f.end())] {
                byte.touch(e.thread, f.kind.writes());
            }
        }
        for user in new.users.iter_mut().filter(|user| user.involved) {
            // Whatever they did there was part of it.
            user.uses
                .iter_mut()
                .for_each(|used| used.shared = used.count);
        }
        let bytes: Vec<_> = watch.iter().map(|b| b.state(|_, _| true)).collect();
        join(&mut new.tally.bytes, &bytes);
        let touches = line.apart.touches();
        if let (Some(first), Some(last)) = (touches.first(), touches.last()) {
            let changes = lost / scale.transfer_ns;
            new.timeline.add(first.time, last.time, changes);
        }
        new
    }
}

/// The samples on the lines, each once, in their order.
fn visits(members: &[(Address, Line)]) -> Vec<Visit> {
    let mut all: Vec<Visit> = Vec::new();
    for (_, line) in members {
        all.extend(line.apart.touches().iter().map(|e| Visit {
            time: e.time,
            thread: line.thread(e.thread),
            cpu: e.cpu,
            writes: writes(line, e),
            spent_ns: e.spent_ns,
        }));
    }
    all.sort_by_key(|v| (v.time, v.thread));
    all.dedup_by(|next, first| {
        let same = (next.time, next.thread) == (first.time, first.thread);
        if same {
            first.writes |= next.writes;
            first.spent_ns = first.spent_ns.max(next.spent_ns);
        }
        same
    });
    all
}

/// The time that each thread can lose on the lines, ns, as the crate's documentation derives it for one
/// line.
fn losses(visits: &[Visit], scale: &Scale) -> Map<ThreadId, f64> {
    let mut threads: Vec<ThreadId> = visits.iter().map(|v| v.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    let mut footprints = Footprints::default();
    let mut kind = |kind| {
        footprints.intern(Footprint {
            start: 0,
            len: 1,
            kind,
        })
    };
    let (read, write) = (kind(Kind::Read), kind(Kind::Write));
    let entries: Vec<Entry> = visits
        .iter()
        .map(|v| Entry {
            time: v.time,
            thread: threads.binary_search(&v.thread).unwrap_or(0) as u16,
            footprint: if v.writes { write } else { read },
            class: Class::Timed,
            spent_ns: v.spent_ns,
            count: 1,
            cpu: v.cpu,
        })
        .collect();
    let none = vec![None; threads.len()];
    let context = Context {
        footprints: &footprints,
        threads: threads.len(),
        granule: 1,
        absence_ns: scale.absence_ns(),
        last_exact: &none,
        lives: &[],
    };
    let longest = MIN_GAP_WINDOWS * scale.window_ns;
    let mut lost = vec![0.0; threads.len()];
    let (mut isolated, mut expected) = (0.0, 0.0);
    for near in entries.chunk_by(|a, b| b.time - a.time <= longest) {
        for stretch in near.chunks(STRETCH_VISITS as usize) {
            let account = stretch::account(stretch, &context);
            for (sum, thread) in lost.iter_mut().zip(&account.threads) {
                *sum += thread.lost_ns;
            }
            isolated += f64::from(account.isolated);
            expected += account.isolated_expected;
        }
    }
    let interleaved = if expected > 0.0 {
        (isolated / expected).min(1.0)
    } else {
        0.0
    };
    threads
        .into_iter()
        .zip(lost)
        .filter(|(_, lost)| *lost > 0.0)
        .map(|(thread, lost)| (thread, lost * interleaved))
        .collect()
}

/// How mixed the threads are over the lines: 1 if any of them is on any line as often as on all of
/// them, 0 if each line is one thread's. Of the pairs of consecutive visits of one line, as many are
/// of two threads as chance leads to expect, or fewer. Lines of one thread on which the same code
/// works count, too: an array in which each thread has a part of its own has only a few common
/// lines.
fn mixed(members: &[(Address, Line)], visits: &[Visit], alone: &[(Address, &Line)]) -> f64 {
    let (Some(first), Some(last)) = (members.first(), members.last()) else {
        return 0.0;
    };
    let (mut pairs, mut crossing) = (0.0, 0.0);
    // Visits by thread and CPU: threads that take turns on one CPU pass nothing on.
    let mut placed: Map<(ThreadId, u16), f64> = Map::default();
    for v in visits {
        *placed.entry((v.thread, v.cpu)).or_default() += 1.0;
    }
    for (_, line) in members {
        let touches = line.apart.touches();
        let mut writers: Vec<u16> = Vec::new();
        writers.extend(touches.iter().filter(|e| writes(line, e)).map(|e| e.thread));
        for pair in touches.windows(2) {
            let (a, b) = (&pair[0], &pair[1]);
            if (a.time, a.thread) == (b.time, b.thread) {
                continue;
            }
            pairs += 1.0;
            let is_written = writers.contains(&a.thread) || writers.contains(&b.thread);
            let meets = a.thread != b.thread && may_differ(a.cpu, b.cpu);
            crossing += f64::from(u8::from(meets && is_written));
        }
    }
    let common: HashSet<CodeAddress> = members.iter().flat_map(|(_, line)| code(line)).collect();
    let from = alone.partition_point(|(base, _)| *base < first.0);
    let to = alone.partition_point(|(base, _)| *base <= last.0);
    for (_, line) in &alone[from..to] {
        if code(line).any(|instruction| common.contains(&instruction)) {
            let user = &line.users[0];
            let visits = f64::from(user.visits);
            pairs += (visits - 1.0).clamp(0.0, f64::from(STRETCH_VISITS));
            let cpu = line.apart.touches().last().map_or(ANY_CPU, |e| e.cpu);
            *placed.entry((user.thread, cpu)).or_default() += visits;
        }
    }
    let all: f64 = placed.values().sum();
    let mut meeting = 0.0;
    for ((thread, cpu), visits) in &placed {
        let others = placed
            .iter()
            .filter(|((t, c), _)| t != thread && may_differ(*c, *cpu));
        meeting += visits * others.map(|(_, visits)| visits).sum::<f64>();
    }
    let expected = pairs * meeting / (all * all);
    if expected > 0.0 {
        (crossing / expected).min(1.0)
    } else {
        0.0
    }
}
