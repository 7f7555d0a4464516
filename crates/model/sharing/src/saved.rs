//! What a judge has found, in a form that can be written down and read in another process: the
//! verdicts on lines before they are held against the length of the run, and the times of threads.
//! Judges of different lines of one exact stream are joined by joining these. Used by replays of
//! parts of a trace; it judges nothing, and trusts no number that was read.

use crate::activity::Timeline;
use crate::bytes::ByteState;
use crate::config::Config;
use crate::false_share::{FalseShare, Sharing};
use crate::judge::Judge;
use crate::threads::ThreadTime;
use crate::verdict::{SiteUse, ThreadCost, ThreadUse, Verdict, WordUse};
use serde::{Deserialize, Serialize};
use sunder_access::{Address, ByteMask, CodeAddress, Kind, ThreadId, Time};

/// What a judge of an exact stream has found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// The verdicts, by line and then by owner.
    pub verdicts: Vec<SavedVerdict>,
    /// By thread, ascending: its number, and when it was first and last seen.
    pub threads: Vec<(u32, u64, u64)>,
    /// When the first and the last access was seen.
    pub span: Option<(u64, u64)>,
}

/// Offset and size, and the threads that use the word.
type SavedWord = (u32, u32, Vec<SavedUse>);
/// A thread's number, reads, writes, updates and atomics.
type SavedUse = (u32, u64, u64, u64, u64);
/// Instruction, kind, threads, accesses, and the touched bytes as pairs of start and length.
type SavedSite = (u64, u8, Vec<u32>, u64, Vec<(u64, u64)>);

/// The verdict on a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedVerdict {
    /// The line's first byte.
    pub line: u64,
    /// See [`Verdict::owner`].
    pub owner: Option<u64>,
    first: u64,
    last: u64,
    sharing: char,
    false_share: f64,
    errors: (f64, f64, f64),
    confirmed: bool,
    evidence: u32,
    interleavings: f64,
    cost_ns: f64,
    threads: Vec<(u32, f64, f64)>,
    departed: Vec<u32>,
    words: Vec<SavedWord>,
    /// A digit for each byte of the line.
    bytes: String,
    sites: Vec<SavedSite>,
    timeline: (u64, u64, Vec<f64>),
    last_writer: Option<u32>,
    interleaved_writes: u64,
}

impl Saved {
    /// What `judge` has found so far.
    pub fn of(judge: &Judge) -> Self {
        let mut verdicts: Vec<_> = judge.unfinished().iter().map(SavedVerdict::of).collect();
        verdicts.sort_by_key(|v| (v.line, v.owner));
        let time = |t: ThreadTime| (t.thread.0, t.first.0, t.last.0);
        Self {
            verdicts,
            threads: judge.thread_time().into_iter().map(time).collect(),
            span: judge.span_of_time().map(|(first, last)| (first.0, last.0)),
        }
    }

    /// Adds what was found of other lines of the same stream.
    pub fn join(&mut self, other: Self) {
        self.verdicts.extend(other.verdicts);
        for (thread, first, last) in other.threads {
            match self.threads.binary_search_by_key(&thread, |t| t.0) {
                Ok(known) => {
                    let known = &mut self.threads[known];
                    *known = (thread, known.1.min(first), known.2.max(last));
                }
                Err(place) => self.threads.insert(place, (thread, first, last)),
            }
        }
        self.span = match (self.span, other.span) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }

    /// A judge that has found this; `None` if no judge with this configuration can have found it.
    pub fn judge(&self, config: Config) -> Option<Judge> {
        let granule = config.granule().bytes();
        let verdicts = self.verdicts.iter().map(|v| v.verdict(granule));
        let thread = |&(thread, first, last): &(u32, u64, u64)| ThreadTime {
            thread: ThreadId(thread),
            cpu_ns: 0,
            samples: 0,
            first: Time(first),
            last: Time(last),
        };
        let threads = self.threads.iter().map(thread).collect();
        let span = self.span.map(|(first, last)| (Time(first), Time(last)));
        Some(Judge::found(
            config,
            verdicts.collect::<Option<_>>()?,
            threads,
            span,
        ))
    }
}

impl SavedVerdict {
    fn of(verdict: &Verdict) -> Self {
        let word = |w: &WordUse| {
            let uses = w.threads.iter();
            let uses = uses.map(|t| (t.thread.0, t.reads, t.writes, t.updates, t.atomics));
            (w.offset, w.size, uses.collect())
        };
        let site = |s: &SiteUse| {
            let threads = s.threads.iter().map(|t| t.0).collect();
            (
                s.instruction.0,
                kind_code(s.kind),
                threads,
                s.count,
                runs(s.bytes),
            )
        };
        let Timeline {
            origin,
            slot_ns,
            amounts,
        } = &verdict.timeline;
        Self {
            line: verdict.line.0,
            owner: verdict.owner,
            first: verdict.first.0,
            last: verdict.last.0,
            sharing: match verdict.sharing {
                Sharing::False => 'f',
                Sharing::True => 't',
                Sharing::Mixed => 'm',
            },
            false_share: verdict.false_share,
            errors: verdict.falsely.parts(),
            confirmed: verdict.confirmed,
            evidence: verdict.evidence,
            interleavings: verdict.interleavings,
            cost_ns: verdict.cost_ns,
            threads: verdict
                .threads
                .iter()
                .map(|t| (t.thread.0, t.touched_ns, t.lost_ns))
                .collect(),
            departed: verdict.departed.iter().map(|t| t.0).collect(),
            words: verdict.words.iter().map(word).collect(),
            bytes: verdict.bytes.iter().map(|&b| byte_digit(b)).collect(),
            sites: verdict.sites.iter().map(site).collect(),
            timeline: (origin.0, *slot_ns, amounts.clone()),
            last_writer: verdict.last_writer.map(|t| t.0),
            interleaved_writes: verdict.interleaved_writes,
        }
    }

    /// The verdict on a line of `granule` bytes; `None` if there can't be such a one.
    fn verdict(&self, granule: u64) -> Option<Verdict> {
        let in_line = |offset: u64, size: u64| {
            size > 0 && offset.checked_add(size).is_some_and(|end| end <= granule)
        };
        let amounts = &self.timeline.2;
        let numbers = [
            self.false_share,
            self.interleavings,
            self.cost_ns,
            self.errors.0,
            self.errors.1,
            self.errors.2,
        ];
        let of_threads = self.threads.iter().flat_map(|t| [t.1, t.2]);
        let mut numbers = numbers
            .into_iter()
            .chain(of_threads)
            .chain(amounts.iter().copied());
        let possible = self.line.is_multiple_of(granule)
            && numbers.all(|n| n.is_finite() && n >= 0.0)
            && self.timeline.1.is_power_of_two()
            && amounts.len() <= 64
            && self.words.iter().all(|w| in_line(w.0.into(), w.1.into()))
            && self.bytes.len() as u64 <= granule;
        if !possible {
            return None;
        }
        let threads = |all: &[u32]| all.iter().copied().map(ThreadId).collect::<Vec<_>>();
        let site = |(instruction, kind, by, count, bytes): &(u64, u8, Vec<u32>, u64, Vec<_>)| {
            let one = |&(start, len): &(u64, u64)| {
                in_line(start, len).then(|| ByteMask::range(start, len))
            };
            let masks = bytes.iter().map(one).collect::<Option<Vec<_>>>()?;
            Some(SiteUse {
                instruction: CodeAddress(*instruction),
                kind: kind_of(*kind)?,
                threads: threads(by),
                count: *count,
                bytes: masks.into_iter().fold(ByteMask::EMPTY, ByteMask::union),
            })
        };
        let word = |(offset, size, uses): &(u32, u32, Vec<_>)| WordUse {
            offset: *offset,
            size: *size,
            threads: uses
                .iter()
                .map(|&(thread, reads, writes, updates, atomics)| ThreadUse {
                    thread: ThreadId(thread),
                    reads,
                    writes,
                    updates,
                    atomics,
                })
                .collect(),
        };
        Some(Verdict {
            line: Address(self.line),
            owner: self.owner,
            first: Time(self.first),
            last: Time(self.last),
            sharing: match self.sharing {
                'f' => Sharing::False,
                't' => Sharing::True,
                'm' => Sharing::Mixed,
                _ => return None,
            },
            false_share: self.false_share,
            sampled_false_share: self.false_share,
            confirmed: self.confirmed,
            evidence: self.evidence,
            interleavings_per_second: 0.0,
            cost_ns: self.cost_ns,
            cost_share: 0.0,
            threads: self
                .threads
                .iter()
                .map(|&(thread, touched_ns, lost_ns)| ThreadCost {
                    thread: ThreadId(thread),
                    touched_ns,
                    lost_ns,
                })
                .collect(),
            words: self.words.iter().map(word).collect(),
            bytes: self.bytes.chars().map(byte_of).collect::<Option<_>>()?,
            sites: self.sites.iter().map(site).collect::<Option<_>>()?,
            timeline: Timeline {
                origin: Time(self.timeline.0),
                slot_ns: self.timeline.1,
                amounts: amounts.clone(),
            },
            falsely: FalseShare::of_parts(self.errors),
            last_writer: self.last_writer.map(ThreadId),
            interleaved_writes: self.interleaved_writes,
            departed: threads(&self.departed),
            interleavings: self.interleavings,
        })
    }
}

const KINDS: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Update, Kind::Atomic];

const fn kind_code(kind: Kind) -> u8 {
    match kind {
        Kind::Read => 0,
        Kind::Write => 1,
        Kind::Update => 2,
        Kind::Atomic => 3,
    }
}

fn kind_of(code: u8) -> Option<Kind> {
    KINDS.get(usize::from(code)).copied()
}

const BYTES: [(ByteState, char); 5] = [
    (ByteState::Unused, '0'),
    (ByteState::Read, '1'),
    (ByteState::ReadShared, '2'),
    (ByteState::Written, '3'),
    (ByteState::WrittenShared, '4'),
];

fn byte_digit(state: ByteState) -> char {
    BYTES
        .iter()
        .find(|(s, _)| *s == state)
        .map_or('0', |(_, digit)| *digit)
}

fn byte_of(digit: char) -> Option<ByteState> {
    BYTES
        .iter()
        .find(|(_, d)| *d == digit)
        .map(|(state, _)| *state)
}

/// The set bytes as runs: start and length of each.
fn runs(mask: ByteMask) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for byte in mask.iter() {
        match runs.last_mut() {
            Some((start, len)) if *start + *len == byte => *len += 1,
            _ => runs.push((byte, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sunder_access::{Access, Granule, Provenance};

    fn config() -> Config {
        let mut config = Config::default();
        config.keeps_all = true;
        config.origin = Some(Time(0));
        config
    }

    fn take(judge: &mut Judge, accesses: &[(u64, u32, u8, bool)], wanted: impl Fn(u64) -> bool) {
        for (time, &(address, thread, width, write)) in accesses.iter().enumerate() {
            let granule = Granule::LINE;
            let span = sunder_access::Span::new(Address(address), width.into());
            // Only the parts in the wanted lines.
            for base in granule.bases(span).filter(|base| wanted(base.0 / 64)) {
                let start = span.start.0.max(base.0);
                let end = span.end().0.min(base.0 + 64);
                judge.access(&Access {
                    time: Time(time as u64 * 1000),
                    thread: ThreadId(thread),
                    instruction: CodeAddress(0x400 + u64::from(thread)),
                    address: Address(start),
                    width: (end - start) as u8,
                    kind: if write { Kind::Write } else { Kind::Read },
                    provenance: Provenance::Traced,
                    weight: 1.0,
                });
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn judges_of_different_lines_join_to_the_judge_of_all(
            accesses in prop::collection::vec((0..512u64, 1..5u32, 1..17u8, any::<bool>()), 2..400),
            retire in prop::option::of((0..500u64, 0..100u64)),
        ) {
            let judged = |wanted: &dyn Fn(u64) -> bool| {
                let mut judge = Judge::new(config());
                let half = accesses.len() / 2;
                take(&mut judge, &accesses[..half], wanted);
                if let Some((start, len)) = retire {
                    let span = sunder_access::Span::new(Address(start), len + 1);
                    judge.retire(span, Time(half as u64 * 1000), 7);
                }
                take(&mut judge, &accesses[half..], wanted);
                judge
            };
            let whole = judged(&|_| true);
            let mut joined = Saved::of(&judged(&|line| line % 3 == 0));
            for part in 1..3 {
                let text = serde_json::to_string(&Saved::of(&judged(&|line| line % 3 == part)));
                let read: Saved = serde_json::from_str(&text.expect("written")).expect("read");
                joined.join(read);
            }
            let joined = joined.judge(config()).expect("what a judge found");
            prop_assert_eq!(joined.verdicts(), whole.verdicts());
            prop_assert_eq!(joined.thread_time(), whole.thread_time());
            prop_assert_eq!(joined.seconds(), whole.seconds());
        }
    }

    #[test]
    fn numbers_that_no_judge_finds_are_refused() {
        let mut judge = Judge::new(config());
        let accesses: Vec<_> = (0..100)
            .map(|i| (i % 2 * 8, i as u32 % 2, 8, true))
            .collect();
        take(&mut judge, &accesses, |_| true);
        let saved = Saved::of(&judge);
        assert!(saved.verdicts.len() == 1 && saved.judge(config()).is_some());
        let damage: [fn(&mut SavedVerdict); 8] = [
            |v| v.line += 8,
            |v| v.cost_ns = f64::NAN,
            |v| v.words[0].0 = 60,
            |v| v.words[0].1 = 0,
            |v| v.sharing = 'x',
            |v| v.bytes.push('9'),
            |v| v.timeline.1 = 0,
            |v| v.sites[0].4[0] = (63, 2),
        ];
        for damage in damage {
            let mut damaged = saved.clone();
            damage(&mut damaged.verdicts[0]);
            assert!(damaged.judge(config()).is_none(), "{damaged:?}");
        }
    }
}
