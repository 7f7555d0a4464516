//! What the judge says of a contended line, and how it gets there from the
//! line's sums. Pure reading: nothing here changes a line.

use crate::activity::Timeline;
use crate::bytes::ByteState;
use crate::config::{CONFIRMING_CHANGES, MIN_EVIDENCE};
use crate::false_share::FalseShare;
use crate::line::{Line, User};
use crate::tally::{BurstTally, Use, join};
use sunder_access::{Address, ByteMask, CodeAddress, Kind, ThreadId, Time};

/// The kind of sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sharing {
    /// No byte has two simultaneous accessors of which one writes.
    False,
    /// Bytes do, and taking the others away would help little.
    True,
    /// Both.
    Mixed,
}

/// How far a verdict can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Confidence {
    /// So few coincidences that sequential use may explain them. Not to be
    /// reported, but it may add up over the lines of one object.
    Weak,
    /// Enough samples.
    Sampled,
    /// Watch bursts or an exact stream showed the interleaving itself.
    Confirmed,
}

/// One contended line.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Its first byte.
    pub line: Address,
    /// The tag given to [`Judge::retire`](crate::Judge::retire) if its memory
    /// has changed owner since.
    pub owner: Option<u64>,
    /// First and last touch.
    pub first: Time,
    /// See `first`.
    pub last: Time,
    /// The kind of sharing.
    pub sharing: Sharing,
    /// The share (0 to 1) of interleavings that would go away if no two
    /// variables had a line in common; 1 if the sharing is false.
    pub false_share: f64,
    /// Whether bursts or an exact stream showed [`CONFIRMING_CHANGES`] changes.
    pub confirmed: bool,
    /// Returns: how often a thread was seen on the line between two conflicting
    /// visits of others, or came back after one. Adds up over the lines of an
    /// object; [`MIN_EVIDENCE`] are needed.
    pub evidence: u32,
    /// Changes of thread per second of the run, at most.
    pub interleavings_per_second: f64,
    /// CPU time that all threads together lose, at most, in ns.
    pub cost_ns: f64,
    /// The same as a share (0 to 1) of the involved threads' CPU time.
    pub cost_share: f64,
    /// Who took part in the contention, the busiest first.
    pub threads: Vec<ThreadCost>,
    /// What they touched meanwhile, by ascending offset.
    pub words: Vec<WordUse>,
    /// The state of each byte of the line.
    pub bytes: Vec<ByteState>,
    /// The instructions, the busiest first.
    pub sites: Vec<SiteUse>,
    /// Interleavings over time.
    pub timeline: Timeline,
    /// `false_share` and how far it is to be trusted, to be joined with other lines'.
    pub(crate) falsely: FalseShare,
    /// SHERIFF's status of the line (section 4.3): the last thread seen to
    /// write, and how often consecutive observed writes were of two threads.
    /// Says nothing about rates when accesses are sampled.
    pub last_writer: Option<ThreadId>,
    /// See `last_writer`.
    pub interleaved_writes: u64,
    /// Threads that took part but are no longer told apart, for the cost's share.
    pub(crate) departed: Vec<ThreadId>,
    pub(crate) interleavings: f64,
}

/// One thread's part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadCost {
    /// Who.
    pub thread: ThreadId,
    /// CPU time in samples that touch the line, in ns.
    pub touched_ns: f64,
    /// CPU time that it can have lost, in ns.
    pub lost_ns: f64,
}

/// A run of at most 8 bytes of one aligned word that were used alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordUse {
    /// Position in the line.
    pub offset: u32,
    /// Number of bytes.
    pub size: u32,
    /// By whom, in the order of [`Verdict::threads`].
    pub threads: Vec<ThreadUse>,
}

/// Observed accesses of one thread to one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUse {
    /// Who.
    pub thread: ThreadId,
    /// Plain loads.
    pub reads: u64,
    /// Plain stores.
    pub writes: u64,
    /// Read-modify-writes, locked or not.
    pub updates: u64,
    /// Of the updates, the locked ones.
    pub atomics: u64,
}

/// One instruction that touches the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteUse {
    /// Where.
    pub instruction: CodeAddress,
    /// What it does.
    pub kind: Kind,
    /// Threads seen there.
    pub threads: Vec<ThreadId>,
    /// Observed accesses.
    pub count: u64,
    /// Bytes of the line that it touched.
    pub bytes: ByteMask,
}

impl Verdict {
    /// How far it can be relied on.
    pub const fn confidence(&self) -> Confidence {
        if self.confirmed {
            Confidence::Confirmed
        } else if self.evidence >= MIN_EVIDENCE {
            Confidence::Sampled
        } else {
            Confidence::Weak
        }
    }

    /// Calls it true sharing because of what the caller knows of its words.
    pub const fn overrule(&mut self) {
        self.sharing = Sharing::True;
        self.false_share = 0.0;
        self.falsely = FalseShare::NONE;
    }

    /// There were so many times as many interleavings.
    pub(crate) fn count_again(&mut self, times: f64) {
        self.interleavings *= times;
        self.timeline.scale(times);
    }

    /// Everyone who took part.
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

    /// What bursts say about the share of interleaved time. The samples that led
    /// to them count as one burst that showed all that was expected: a single
    /// burst may find a thread off its CPU.
    fn interleaved_share(&self) -> f64 {
        (self.weighted_share + 1.0) / (self.weight + 1.0)
    }

    fn false_share(&self) -> FalseShare {
        FalseShare::counted(self.changes as f64, self.separate as f64)
    }
}

/// The verdict on a settled line, or none if it is not contended. `transfer_ns`
/// is the price of a transfer. Shares of time are left to [`finish`].
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
        confirmed: line.bursts.confirms() || line.tally.exact_changes >= CONFIRMING_CHANGES,
        evidence,
        interleavings_per_second: 0.0,
        cost_ns,
        cost_share: 0.0,
        words: words(line, threads.iter().map(|t| t.thread), |used| used.shared),
        sites: sites(line, &threads),
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

/// Samples and bursts may each deny that touched time was interleaved.
pub(crate) fn interleaved_share(line: &Line) -> f64 {
    let samples = line.tally.interleaved_share();
    samples.min(line.bursts.interleaved_share())
}

/// What each user may have lost to the others, where diffs tell who interleaves: no
/// more than its own time on the line and no more than theirs, in the share of its
/// intervals in which they changed the line too. Threads take samples at commits alone,
/// some milliseconds apart, so the samples' order says nothing.
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

/// Interleavings and what they cost. Time on the line bounds both; without
/// samples in time there are only counts, times the price.
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

/// What samples and bursts saw together. Both are exact in what they saw, and
/// neither saw everything: a burst lasts some milliseconds, in which the
/// scheduler may have had one pair of many threads on the CPUs.
fn byte_states(line: &Line) -> Vec<ByteState> {
    let mut states = line.tally.bytes.clone();
    if !line.bursts.bytes.is_empty() {
        join(&mut states, &line.bursts.bytes);
    }
    states
}

/// See the crate's page, "False and true". An exact stream knows best. Bursts know
/// the order of accesses, but only of the threads that they saw; for all others
/// there is the random order that samples lead to expect.
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

/// What of the line `threads` used, in their order, as often as `count` says.
pub(crate) fn words(
    line: &Line,
    threads: impl Iterator<Item = ThreadId>,
    count: fn(&Use) -> u32,
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
    // A run ends where a footprint begins or ends, and at every word's border.
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

fn sites(line: &Line, threads: &[ThreadCost]) -> Vec<SiteUse> {
    let took_part = |t: &ThreadId| threads.iter().any(|c| c.thread == *t);
    let mut all: Vec<SiteUse> = line
        .sites
        .iter()
        .filter(|s| s.threads.iter().any(took_part))
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
