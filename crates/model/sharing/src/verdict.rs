//! The judge's verdict on a contended line, and how it follows from the line's sums. Nothing
//! here changes a line.

use crate::activity::Timeline;
use crate::bytes::ByteState;
use crate::config::{CONFIRMING_CHANGES, MIN_EVIDENCE};
use crate::false_share::{FalseShare, Sharing};
use crate::line::{Line, User};
use crate::pairs::vanishing;
use crate::tally::{BurstTally, FootprintUse, join};
use sunder_access::{Address, ByteMask, CodeAddress, Kind, ThreadId, Time};

/// From this share on, most of the interleavings are false.
pub(crate) const MOSTLY: f64 = 0.5;

/// How reliable a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Confidence {
    /// There are so few coincidences that sequential use may explain them. Not to be reported
    /// alone, but it may add up over the lines of one object.
    Weak,
    /// There are enough samples.
    Sampled,
    /// Watch bursts or an exact stream showed the interleaving itself.
    Confirmed,
}

/// The verdict on one contended line.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The line's first byte.
    pub line: Address,
    /// The tag given to [`Judge::retire`](crate::Judge::retire) if the line's memory has
    /// changed owner since.
    pub owner: Option<u64>,
    /// The first touch.
    pub first: Time,
    /// The last touch.
    pub last: Time,
    /// The kind of sharing.
    pub sharing: Sharing,
    /// The share (0 to 1) of interleavings that would go away if no two variables were on one
    /// line; 1 if the sharing is false.
    pub false_share: f64,
    /// The same if the samples alone are believed, which expect accesses in random order; see
    /// [`Self::doubt`].
    pub(crate) sampled_false_share: f64,
    /// Whether bursts or an exact stream showed [`CONFIRMING_CHANGES`] changes.
    pub confirmed: bool,
    /// The number of returns: how often a thread was seen on the line between two conflicting
    /// visits of others, or came back after one. It adds up over the lines of an object;
    /// [`MIN_EVIDENCE`] is required.
    pub evidence: u32,
    /// Changes of thread per second of the run, at most.
    pub interleavings_per_second: f64,
    /// CPU time that all threads together lose, at most, in ns.
    pub cost_ns: f64,
    /// That cost as a share (0 to 1) of the involved threads' CPU time.
    pub cost_share: f64,
    /// The threads that took part in the contention, the busiest first.
    pub threads: Vec<ThreadCost>,
    /// What these threads touched meanwhile, by ascending offset.
    pub words: Vec<WordUse>,
    /// The state of each byte of the line.
    pub bytes: Vec<ByteState>,
    /// The instructions that touched the line, the busiest first.
    pub sites: Vec<SiteUse>,
    /// Interleavings over time.
    pub timeline: Timeline,
    /// `false_share` with its standard errors, for joining it with that of other lines.
    pub(crate) falsely: FalseShare,
    /// SHERIFF's status of the line (section 4.3): the last thread seen to write. Says nothing
    /// about rates when accesses are sampled.
    pub last_writer: Option<ThreadId>,
    /// How often two consecutive observed writes were by two threads; see `last_writer`. Where pages
    /// are compared, what a commit shows counts, and samples do not.
    pub interleaved_writes: u64,
    /// Threads that took part but are no longer kept apart. Their CPU time counts in the cost's
    /// share.
    pub(crate) departed: Vec<ThreadId>,
    pub(crate) interleavings: f64,
}

/// One thread's part in the contention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadCost {
    /// The thread.
    pub thread: ThreadId,
    /// CPU time in samples that touch the line, in ns.
    pub touched_ns: f64,
    /// CPU time that it can have lost, in ns.
    pub lost_ns: f64,
}

/// At most 8 adjacent bytes of one aligned word that were used alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordUse {
    /// Position in the line, in bytes.
    pub offset: u32,
    /// Number of bytes.
    pub size: u32,
    /// The threads that used it, in the order of [`Verdict::threads`].
    pub threads: Vec<ThreadUse>,
}

/// Observed accesses of one thread to one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUse {
    /// The thread.
    pub thread: ThreadId,
    /// Plain loads.
    pub reads: u64,
    /// Plain stores.
    pub writes: u64,
    /// Read-modify-writes, locked or not.
    pub updates: u64,
    /// The locked ones among the updates.
    pub atomics: u64,
}

/// One instruction that touches the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteUse {
    /// The instruction's address.
    pub instruction: CodeAddress,
    /// The kind of its accesses.
    pub kind: Kind,
    /// The threads that executed it.
    pub threads: Vec<ThreadId>,
    /// The number of observed accesses.
    pub count: u64,
    /// Bytes of the line that it touched.
    pub bytes: ByteMask,
}

impl Verdict {
    /// How reliable the verdict is.
    pub const fn confidence(&self) -> Confidence {
        if self.confirmed {
            Confidence::Confirmed
        } else if self.evidence >= MIN_EVIDENCE {
            Confidence::Sampled
        } else {
            Confidence::Weak
        }
    }

    /// Makes it true sharing. For a caller who knows more about the words than the judge.
    pub const fn force_true_sharing(&mut self) {
        self.sharing = Sharing::True;
        self.false_share = 0.0;
        self.sampled_false_share = 0.0;
        self.falsely = FalseShare::NONE;
    }

    /// Of true sharing, the share of the interleavings that is false if the samples alone are believed,
    /// where that is most of them. Bursts see the order of accesses, but they slow threads down: in a
    /// queue, one side then looks at the other's position each time, which it may do seldom otherwise.
    pub fn doubt(&self) -> Option<f64> {
        let is_in_doubt = self.sharing == Sharing::True && self.sampled_false_share >= MOSTLY;
        is_in_doubt.then_some(self.sampled_false_share)
    }

    /// Makes true sharing in [`Self::doubt`] mixed. For a caller who tries what would help, and measures
    /// it.
    pub fn believe_samples(&mut self) {
        if let Some(share) = self.doubt() {
            self.sharing = Sharing::Mixed;
            self.false_share = share;
        }
    }

    /// Divides what the sharing costs by `lines`, where the samples on this line were on so many lines at
    /// once.
    pub(crate) fn shrink(&mut self, lines: f64) {
        self.cost_ns /= lines;
        self.threads.iter_mut().for_each(|t| t.lost_ns /= lines);
        self.count_again(1.0 / lines);
    }

    /// Multiplies the number of interleavings, because the price of a transfer has changed.
    pub(crate) fn count_again(&mut self, times: f64) {
        self.interleavings *= times;
        self.timeline.scale(times);
    }

    /// All threads that took part.
    pub(crate) fn all_threads(&self) -> impl Iterator<Item = ThreadId> + '_ {
        let present = self.threads.iter().map(|t| t.thread);
        present.chain(self.departed.iter().copied())
    }
}

impl BurstTally {
    /// Whether bursts have seen enough to overrule samples.
    pub(crate) const fn confirms(&self) -> bool {
        self.changes >= CONFIRMING_CHANGES
    }

    /// The share of interleaved time according to the bursts. The samples that led to the
    /// bursts count as one burst that showed all expected changes, because a single burst may
    /// find a thread off its CPU.
    fn interleaved_share(&self) -> f64 {
        (self.weighted_share + 1.0) / (self.weight + 1.0)
    }

    fn false_share(&self) -> FalseShare {
        FalseShare::counted(self.changes as f64, self.separate as f64)
    }
}

/// The verdict on a settled line; `None` if it is not contended. `transfer_ns` is the price of
/// a transfer. Shares of time are filled in by [`finish`].
pub(crate) fn verdict(line: &Line, address: Address, transfer_ns: f64) -> Option<Verdict> {
    let evidence = evidence(line);
    if evidence == 0 {
        return None;
    }
    let bytes = byte_states(line);
    let shared = bytes.contains(&ByteState::WrittenShared);
    let falsely = if shared {
        false_share(line)
    } else {
        FalseShare::ALL
    };
    let interleaved = interleaved_share(line);
    let (interleavings, cost_ns) = price(line, interleaved, transfer_ns);
    let mut timeline = line.timeline.clone();
    let drawn = timeline.total();
    if drawn > 0.0 {
        timeline.scale(interleavings / drawn);
    }
    let threads = threads(line, interleaved);
    Some(Verdict {
        line: address,
        owner: None,
        first: Time(line.first),
        last: Time(line.last),
        sharing: if shared {
            falsely.sharing()
        } else {
            Sharing::False
        },
        falsely,
        false_share: falsely.share,
        sampled_false_share: sampled_false_share(line, &falsely),
        confirmed: line.bursts.confirms() || line.tally.exact_changes >= CONFIRMING_CHANGES,
        evidence,
        interleavings_per_second: 0.0,
        cost_ns,
        cost_share: 0.0,
        words: words(line, threads.iter().map(|t| t.thread), |used| used.shared),
        sites: sites(line, |t| threads.iter().any(|c| c.thread == *t)),
        threads,
        bytes,
        timeline,
        last_writer: line.last_writer,
        interleaved_writes: line.interleaved_writes,
        departed: line.departed.clone(),
        interleavings,
    })
}

/// Fills in what depends on the length of the run and the threads' CPU time.
pub(crate) fn finish(verdict: &mut Verdict, seconds: f64, involved_ns: f64) {
    if involved_ns > 0.0 {
        verdict.cost_ns = verdict.cost_ns.min(involved_ns);
        verdict.cost_share = verdict.cost_ns / involved_ns;
    }
    if seconds > 0.0 {
        verdict.interleavings_per_second = verdict.interleavings / seconds;
    }
}

pub(crate) fn evidence(line: &Line) -> u32 {
    let all = line.tally.returns + line.tally.exact_changes + line.bursts.changes;
    u32::try_from(all).unwrap_or(u32::MAX)
}

/// The interleaved share of the touched time. Samples and bursts can each lower it.
pub(crate) fn interleaved_share(line: &Line) -> f64 {
    let samples = line.tally.interleaved_share();
    samples.min(line.bursts.interleaved_share())
}

/// For streams of diffs, what each user may have lost to the others: no more than its own time
/// on the line, and no more than theirs, times the share of its intervals in which the others
/// changed the line too. Threads are sampled only at commits, some milliseconds apart, so the
/// order of samples says nothing.
fn diff_losses(line: &Line) -> Option<Vec<f64>> {
    if line.tally.stays == 0 {
        return None;
    }
    let share = (line.tally.exact_changes as f64 / line.tally.stays as f64).min(1.0);
    let all: f64 = involved(line).map(|u| u.spent_ns).sum();
    let lost = |u: &User| u.spent_ns.min(all - u.spent_ns).max(0.0) * share;
    Some(
        line.users
            .iter()
            .map(|u| if u.involved { lost(u) } else { 0.0 })
            .collect(),
    )
}

/// The number of interleavings and their cost in ns. Time on the line bounds both. Without
/// samples in time, the number is counted, and the cost is the number times the price.
fn price(line: &Line, interleaved: f64, transfer_ns: f64) -> (f64, f64) {
    let tally = &line.tally;
    if let Some(losses) = diff_losses(line) {
        let lost: f64 = losses.iter().sum();
        let counted = tally.exact_changes as f64;
        return (
            (lost / transfer_ns).max(counted),
            lost.max(counted * transfer_ns),
        );
    }
    if tally.lost_ns > 0.0 {
        let lost = tally.lost_ns * interleaved;
        return (lost / transfer_ns, lost);
    }
    let counted = tally.exact_changes as f64 + tally.counted_changes * interleaved;
    (counted, counted * transfer_ns)
}

/// The bytes' states from samples and bursts together. Both are exact in what they saw, but
/// neither saw everything: a burst lasts some milliseconds, in which the scheduler may have run
/// one pair of many threads.
fn byte_states(line: &Line) -> Vec<ByteState> {
    let mut states = line.tally.bytes.clone();
    if !line.bursts.bytes.is_empty() {
        join(&mut states, &line.bursts.bytes);
    }
    states
}

/// See the crate's documentation, "False and true". The count of an exact stream is the best.
/// Bursts know the order of accesses, but only for the threads that they saw. For all other
/// threads there is the random order that samples lead to expect.
fn false_share(line: &Line) -> FalseShare {
    let tally = &line.tally;
    if tally.exact_changes >= CONFIRMING_CHANGES {
        return FalseShare::counted(tally.exact_changes as f64, tally.exact_separate as f64);
    }
    if tally.changes <= 0.0 {
        return line.bursts.false_share();
    }
    FalseShare::expected(&line.pairs, tally.changes, tally.separate)
}

/// The share without what bursts say. Where there is an exact stream, samples say nothing.
fn sampled_false_share(line: &Line, falsely: &FalseShare) -> f64 {
    let tally = &line.tally;
    if tally.exact_changes >= CONFIRMING_CHANGES || tally.changes <= 0.0 {
        return falsely.share;
    }
    vanishing(tally.changes, tally.separate)
}

fn involved(line: &Line) -> impl Iterator<Item = &User> {
    line.users.iter().filter(|u| u.involved)
}

fn threads(line: &Line, interleaved: f64) -> Vec<ThreadCost> {
    let by_diff = diff_losses(line);
    let mut all: Vec<ThreadCost> = line
        .users
        .iter()
        .enumerate()
        .filter(|(_, u)| u.involved)
        .map(|(i, u)| ThreadCost {
            thread: u.thread,
            touched_ns: u.spent_ns,
            lost_ns: match &by_diff {
                Some(losses) => losses.get(i).copied().unwrap_or(0.0),
                None => u.lost_ns * interleaved,
            },
        })
        .collect();
    all.sort_by(|a, b| {
        b.lost_ns
            .total_cmp(&a.lost_ns)
            .then(b.touched_ns.total_cmp(&a.touched_ns))
            .then(a.thread.cmp(&b.thread))
    });
    all
}

/// The words of the line that `threads` used, in their order. `count` tells how many of a
/// footprint's uses to count.
pub(crate) fn words(
    line: &Line,
    threads: impl Iterator<Item = ThreadId>,
    count: fn(&FootprintUse) -> u32,
) -> Vec<WordUse> {
    let used: Vec<(u16, ThreadUse)> = threads
        .filter_map(|t| line.users.iter().find(|u| u.thread == t))
        .flat_map(|u| u.uses.iter().map(move |x| (u.thread, x)))
        .filter(|(_, x)| count(x) > 0)
        .map(|(thread, x)| {
            let kind = line.footprints.get(x.footprint).kind;
            (x.footprint, thread_use(thread, kind, count(x).into()))
        })
        .collect();
    // A use ends where a footprint begins or ends, and at every word's end.
    let mut borders: Vec<u16> = Vec::new();
    for (footprint, _) in &used {
        let f = line.footprints.get(*footprint);
        borders.extend([f.start, f.end()]);
        borders.extend((f.start / 8 + 1..=(f.end() - 1) / 8).map(|w| w * 8));
    }
    borders.sort_unstable();
    borders.dedup();
    let run = |w: &[u16]| {
        let mut threads: Vec<ThreadUse> = Vec::new();
        for (footprint, new) in &used {
            let f = line.footprints.get(*footprint);
            if f.start >= w[1] || w[0] >= f.end() {
                continue;
            }
            match threads.iter_mut().find(|t| t.thread == new.thread) {
                Some(old) => old.add(new),
                None => threads.push(*new),
            }
        }
        (!threads.is_empty()).then(|| WordUse {
            offset: w[0].into(),
            size: (w[1] - w[0]).into(),
            threads,
        })
    };
    borders.windows(2).filter_map(run).collect()
}

fn thread_use(thread: ThreadId, kind: Kind, count: u64) -> ThreadUse {
    let mut new = ThreadUse {
        thread,
        ..ThreadUse::default()
    };
    match kind {
        Kind::Read => new.reads = count,
        Kind::Write => new.writes = count,
        Kind::Update => new.updates = count,
        Kind::Atomic => (new.updates, new.atomics) = (count, count),
    }
    new
}

impl ThreadUse {
    const fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.updates += other.updates;
        self.atomics += other.atomics;
    }
}

/// The instructions with which threads that `took_part` touched the line, the busiest first.
pub(crate) fn sites(line: &Line, took_part: impl Fn(&ThreadId) -> bool) -> Vec<SiteUse> {
    let mut all: Vec<SiteUse> = line
        .sites
        .iter()
        .filter(|s| s.threads.iter().any(&took_part))
        .map(|s| SiteUse {
            instruction: s.instruction,
            kind: s.kind,
            threads: s.threads.clone(),
            count: s.count,
            bytes: s.bytes,
        })
        .collect();
    all.sort_by(|a, b| {
        b.count
            .cmp(&a.count)
            .then(a.instruction.cmp(&b.instruction))
    });
    all
}
