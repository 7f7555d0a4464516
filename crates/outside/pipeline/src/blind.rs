//! The time of samples for which the access that may have held them up has no address, and the
//! choice of the places where breakpoints on instructions should find it out. One for each process
//! image. Fed by `process`; it must not set a breakpoint itself.

use std::collections::{HashMap, HashSet};
use sunder_access::{CodeAddress, ThreadId, Time};
use sunder_observe::{Decoded, RawSample};

/// The most places that are kept.
const MOST_PLACES: usize = 4096;

/// The most threads and suspects that are kept of a place.
const MOST_THREADS: usize = 64;
const MOST_SUSPECTS: usize = 12;

/// The most instructions of a burst: as many as a thread has breakpoints.
const AT_ONCE: usize = sunder_observe::watch::SLOTS;

/// Places with a lesser share of the time are left alone: no finding can come of them.
const WORTH: f64 = 0.01;

/// A place is looked at again after this pause, which doubles with each burst beyond the first
/// few, so that a later phase of the program is seen and the cost stays low.
const FIRST_PAUSE_NS: u64 = 20_000_000;
const LONGEST_PAUSE_NS: u64 = 2_000_000_000;
const BURSTS_IN_A_ROW: u32 = 3;

/// The part of the executions of a place that must be explained, where control may come to it from
/// unknown places.
const EXPLAINED: f64 = 0.9;

/// A place in the code after which accesses are not known: a join, to which control may come in
/// several ways, or an instruction whose own address a sample behind it does not tell.
#[derive(Debug, Default)]
struct Place {
    suspects: Vec<CodeAddress>,
    ways_unknown: bool,
    /// Time of samples, by thread.
    threads: Vec<(ThreadId, u64)>,
    /// The first suspect of the next burst.
    next: usize,
    bursts: u32,
    /// When it may be looked at again.
    after: u64,
}

impl Place {
    fn time(&self) -> u64 {
        self.threads.iter().map(|thread| thread.1).sum()
    }
}

/// What a burst should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The place: a join, or the only suspect.
    pub at: CodeAddress,
    /// It and its suspects, as many as fit into one burst; it comes first.
    pub instructions: Vec<CodeAddress>,
    /// The threads that were sampled there, those with the most time first.
    pub threads: Vec<ThreadId>,
}

/// What a burst saw of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The thread.
    pub thread: ThreadId,
    /// How often it passed the place.
    pub passes: u32,
    /// How often it executed suspects.
    pub executed: u32,
    /// Whether each suspect that was executed gave an address.
    pub all_told: bool,
}

/// The places of one process image.
#[derive(Debug, Default)]
pub struct Blind {
    places: HashMap<CodeAddress, Place>,
    known: HashSet<(ThreadId, CodeAddress)>,
    /// All time of samples.
    total_ns: u64,
    /// Time of samples where there is no code to decode, or which have no suspects.
    dark_ns: u64,
}

impl Blind {
    /// Takes a decoded sample.
    pub fn sampled(&mut self, sample: &RawSample, decoded: &Decoded) {
        self.total_ns = self.total_ns.saturating_add(sample.period_ns);
        if !decoded.code_found {
            self.dark_ns = self.dark_ns.saturating_add(sample.period_ns);
            return;
        }
        if !decoded.blind {
            return;
        }
        let suspects = || decoded.near.iter().filter(|near| near.suspect);
        // An instruction that was executed for certain needs no other beside it.
        let own = suspects().next().map(|near| near.instruction);
        let Some(at) = decoded.join.or(own) else {
            self.dark_ns = self.dark_ns.saturating_add(sample.period_ns);
            return;
        };
        if self.places.len() >= MOST_PLACES && !self.places.contains_key(&at) {
            self.dark_ns = self.dark_ns.saturating_add(sample.period_ns);
            return;
        }
        let place = self.places.entry(at).or_default();
        place.ways_unknown |= decoded.ways_unknown;
        for near in suspects() {
            let suspect = near.instruction;
            if place.suspects.len() < MOST_SUSPECTS && !place.suspects.contains(&suspect) {
                place.suspects.push(suspect);
            }
        }
        let thread = sample.thread;
        if let Some(known) = place.threads.iter_mut().find(|known| known.0 == thread) {
            known.1 += sample.period_ns;
        } else if place.threads.len() < MOST_THREADS {
            place.threads.push((thread, sample.period_ns));
        } else {
            self.dark_ns = self.dark_ns.saturating_add(sample.period_ns);
        }
    }

    /// The place that a burst at `now` should look at: the one with the most time among those that
    /// were looked at least.
    pub fn question(&self, now: Time) -> Option<Question> {
        let least = (self.total_ns as f64 * WORTH) as u64;
        let (&at, place) = self
            .places
            .iter()
            .filter(|(_, place)| !place.suspects.is_empty() && place.after <= now.0)
            .filter(|(_, place)| place.time() > least)
            .min_by_key(|(at, place)| {
                let looked = place.bursts.min(BURSTS_IN_A_ROW);
                (looked, std::cmp::Reverse(place.time()), at.0)
            })?;
        let all = place.suspects.iter().cycle().skip(place.next);
        let others = all.take(place.suspects.len()).filter(|&&one| one != at);
        let mut instructions = vec![at];
        instructions.extend(others.take(AT_ONCE - 1));
        let mut threads = place.threads.clone();
        threads.sort_by_key(|thread| std::cmp::Reverse(thread.1));
        Some(Question {
            at,
            instructions,
            threads: threads.into_iter().map(|thread| thread.0).collect(),
        })
    }

    /// A burst for `question` was made, or was not possible, at `now`.
    pub fn answered(&mut self, question: &Question, now: Time, answers: &[Answer]) {
        let Some(place) = self.places.get_mut(&question.at) else {
            return;
        };
        let suspects = question.instructions.len() - 1;
        place.bursts += 1;
        place.next = (place.next + suspects) % place.suspects.len().max(1);
        let more = place.bursts.saturating_sub(BURSTS_IN_A_ROW);
        if more > 0 {
            let pause = FIRST_PAUSE_NS.saturating_mul(1 << more.min(20));
            place.after = now.0.saturating_add(pause.min(LONGEST_PAUSE_NS));
        }
        let rounds = place.bursts as usize * (AT_ONCE - 1);
        let all_looked_at = rounds >= place.suspects.len();
        for answer in answers {
            // The count begins and ends anywhere between the suspects and the join.
            let explained = f64::from(answer.executed + 1) >= f64::from(answer.passes) * EXPLAINED;
            let is_own = question.instructions.len() == 1;
            if answer.passes > 0
                && answer.all_told
                && all_looked_at
                && (explained || is_own || !place.ways_unknown)
            {
                self.known.insert((answer.thread, question.at));
            }
        }
    }

    /// All time of samples, and the part of it for which the access that may have held the thread
    /// up has no address, in nanoseconds.
    pub fn time(&self) -> (u64, u64) {
        let places = self.unknown().map(|(_, time)| time);
        (
            self.total_ns,
            places.fold(self.dark_ns, u64::saturating_add),
        )
    }

    /// The places with such time.
    pub fn unknown(&self) -> impl Iterator<Item = (CodeAddress, u64)> + '_ {
        self.places.iter().filter_map(|(&at, place)| {
            let unknown = place
                .threads
                .iter()
                .filter(|thread| !self.known.contains(&(thread.0, at)));
            let time = unknown.map(|thread| thread.1).sum();
            (time > 0).then_some((at, time))
        })
    }
}
