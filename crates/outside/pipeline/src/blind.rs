//! The time of samples for which the access that may have held them up has no address, and the
//! choice of the places where breakpoints on instructions should find it out. One for each process
//! image. Fed by `process`; it must not set a breakpoint itself.

mod alike;

pub use alike::Touched;

use alike::Alike;
use std::collections::HashMap;
use sunder_access::{CodeAddress, ThreadId, Time};
use sunder_observe::{Decoded, RawSample};

/// The most places that are kept.
const MOST_PLACES: usize = 4096;

/// The most threads and suspects that are kept of a place.
const MOST_THREADS: usize = 64;
const MOST_SUSPECTS: usize = 12;

/// The most instructions of a burst: as many as a thread has breakpoints.
const AT_ONCE: usize = sunder_observe::watch::SLOTS;

/// Places with a lesser share of the time are left alone: many of them together make no finding.
const WORTH: f64 = 0.001;

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
    threads: Vec<Thread>,
    /// What bursts saw of those threads.
    alike: Alike,
    /// The first suspect of the next burst.
    next: usize,
    bursts: u32,
    /// When it may be looked at again.
    after: u64,
    /// Whether there is a suspect that gives no address, or that there was no room for.
    untold: bool,
}

/// What is known of one thread at a place.
#[derive(Debug)]
struct Thread {
    id: ThreadId,
    /// Nanoseconds of its samples.
    time: u64,
    /// The part of that in samples which need no burst: whichever way control came, their accesses
    /// have addresses, and no line there is contended.
    settled: u64,
    /// The suspects that a burst looked at while this thread passed.
    looked_at: Vec<CodeAddress>,
    /// Whether these make up nearly all of its passes.
    explained: bool,
}

impl Place {
    fn time(&self) -> u64 {
        self.threads.iter().map(|thread| thread.time).sum()
    }

    /// Whether bursts have told what the thread accesses before the place, in all ways to it.
    fn is_known(&self, thread: &Thread) -> bool {
        let looked_at = |suspect| thread.looked_at.contains(suspect);
        !self.untold
            && self.suspects.iter().all(looked_at)
            && !thread.looked_at.is_empty()
            && (thread.explained || !self.ways_unknown)
    }

    /// Nanoseconds of the samples here of threads whose accesses are not known, neither from bursts
    /// that saw them nor from those that saw others.
    fn unknown(&self) -> u64 {
        let seen = |id| {
            let thread = self.threads.iter().find(|thread| thread.id == id);
            thread.is_some_and(|thread| self.is_known(thread))
        };
        let unseen = self.threads.iter().filter(|thread| !self.is_known(thread));
        let time = unseen.map(|thread| thread.time - thread.settled).sum();
        if time > 0 && !self.untold && self.alike.tells(self.threads.len(), seen) {
            return 0;
        }
        time
    }

    fn add_suspect(&mut self, suspect: CodeAddress) {
        if self.suspects.contains(&suspect) {
            return;
        }
        if self.suspects.len() < MOST_SUSPECTS {
            self.suspects.push(suspect);
        } else {
            self.untold = true;
        }
    }
}

/// What a burst should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The place: a join, or the first suspect.
    pub at: CodeAddress,
    /// The suspects, as many as fit into one burst beside the place; it may be one of them.
    pub suspects: Vec<CodeAddress>,
    /// The threads that were sampled there, those that no burst has seen first, and of these those with
    /// the most time.
    pub threads: Vec<ThreadId>,
}

/// What a burst saw of one thread.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The thread.
    pub thread: ThreadId,
    /// How often it passed the place.
    pub passes: u32,
    /// How often it executed suspects.
    pub executed: u32,
    /// Whether each suspect that was executed gave an address.
    pub all_told: bool,
    /// What the suspects accessed.
    pub touched: Vec<Touched>,
}

/// The places of one process image.
#[derive(Debug, Default)]
pub struct Blind {
    places: HashMap<CodeAddress, Place>,
    /// All time of samples.
    total_ns: u64,
    /// Time of samples where there is no code to decode, or which have no suspects.
    dark_ns: u64,
}

impl Question {
    /// The instructions at which threads are to be stopped, the place first.
    pub fn instructions(&self) -> Vec<CodeAddress> {
        let others = self.suspects.iter().copied();
        std::iter::once(self.at)
            .chain(others.filter(|&one| one != self.at))
            .collect()
    }
}

impl Blind {
    /// Takes a decoded sample. It is `settled` if its accesses have addresses on each way by which
    /// control may have come, and no line there is contended.
    pub fn sampled(&mut self, sample: &RawSample, decoded: &Decoded, settled: bool) {
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
            place.add_suspect(near.instruction);
        }
        let id = sample.thread;
        let settled = if settled { sample.period_ns } else { 0 };
        if let Some(known) = place.threads.iter_mut().find(|known| known.id == id) {
            known.time = known.time.saturating_add(sample.period_ns);
            known.settled = known.settled.saturating_add(settled);
        } else if place.threads.len() < MOST_THREADS {
            place.threads.push(Thread {
                id,
                time: sample.period_ns,
                settled,
                looked_at: Vec::new(),
                explained: false,
            });
        } else {
            self.dark_ns = self.dark_ns.saturating_add(sample.period_ns);
        }
    }

    /// The place that a burst at `now` should look at: the one with the most time, of which each burst
    /// so far takes half.
    pub fn question(&self, now: Time) -> Option<Question> {
        let least = (self.total_ns as f64 * WORTH) as u64;
        let (&at, place) = self
            .places
            .iter()
            .filter(|(_, place)| !place.suspects.is_empty() && place.after <= now.0)
            .filter(|(_, place)| place.time() > least)
            .max_by_key(|(at, place)| (place.time() >> place.bursts.min(63), at.0))?;
        let all = place.suspects.iter().copied().cycle().skip(place.next);
        let others = all.take(place.suspects.len()).filter(|&one| one != at);
        let mut suspects: Vec<CodeAddress> = others.take(AT_ONCE - 1).collect();
        if place.suspects.contains(&at) {
            suspects.push(at);
        }
        // Those that no burst has seen there come first.
        let mut threads: Vec<&Thread> = place.threads.iter().collect();
        threads.sort_by_key(|thread| (place.is_known(thread), std::cmp::Reverse(thread.time)));
        Some(Question {
            at,
            suspects,
            threads: threads.into_iter().map(|thread| thread.id).collect(),
        })
    }

    /// A burst for `question` was made at `now`, or was not possible. `looked_at` are the suspects that
    /// had breakpoints.
    pub fn answered(
        &mut self,
        question: &Question,
        now: Time,
        looked_at: &[CodeAddress],
        answers: &[Answer],
    ) {
        let Some(place) = self.places.get_mut(&question.at) else {
            return;
        };
        place.bursts += 1;
        place.next = (place.next + AT_ONCE - 1) % place.suspects.len().max(1);
        let more = place.bursts.saturating_sub(BURSTS_IN_A_ROW);
        if more > 0 {
            let pause = FIRST_PAUSE_NS.saturating_mul(1 << more.min(20));
            place.after = now.0.saturating_add(pause.min(LONGEST_PAUSE_NS));
        }
        for answer in answers.iter().filter(|answer| answer.passes > 0) {
            place.untold |= !answer.all_told;
            for &touched in &answer.touched {
                place.alike.add(answer.thread, touched);
            }
            let mut threads = place.threads.iter_mut();
            if let Some(thread) = threads.find(|thread| thread.id == answer.thread) {
                thread.looked_at.extend(looked_at);
                thread.looked_at.sort_unstable();
                thread.looked_at.dedup();
                // The count begins and ends anywhere between the suspects and the join.
                let executed = f64::from(answer.executed + 1);
                thread.explained |= executed >= f64::from(answer.passes) * EXPLAINED;
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
        let places = self.places.iter();
        let unknown = places.map(|(&at, place)| (at, place.unknown()));
        unknown.filter(|(_, time)| *time > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::{Address, Kind, ProcessId, Span};
    use sunder_observe::{NearAccess, Registers};

    const JOIN: CodeAddress = CodeAddress(0x100);

    fn sample_at_join(blind: &mut Blind, thread: u32, suspects: &[u64]) {
        let (sample, decoded) = at_join(thread, suspects);
        blind.sampled(&sample, &decoded, false);
    }

    /// A sample of `thread` behind a join with these suspects.
    fn at_join(thread: u32, suspects: &[u64]) -> (RawSample, Decoded) {
        let sample = RawSample {
            time: Time(0),
            process: ProcessId(1),
            thread: ThreadId(thread),
            cpu: 0,
            period_ns: 1000,
            registers: Registers::default(),
        };
        let near = |&suspect| NearAccess {
            instruction: CodeAddress(suspect),
            kind: Kind::Write,
            width: 8,
            distance: -1,
            through: None,
            within: None,
            suspect: true,
            avoidable: true,
        };
        let decoded = Decoded {
            code_found: true,
            blind: !suspects.is_empty(),
            join: Some(JOIN),
            near: suspects.iter().map(near).collect(),
            ..Decoded::default()
        };
        (sample, decoded)
    }

    #[test]
    fn a_sample_with_an_address_on_each_way_is_not_unknown_but_still_asked_about() {
        let mut blind = Blind::default();
        sample_at_join(&mut blind, 1, &[0x40, 0x50]);
        assert_eq!(blind.time(), (1000, 1000));
        let (sample, decoded) = at_join(1, &[0x40, 0x50]);
        blind.sampled(&sample, &decoded, true);
        assert_eq!(blind.time(), (2000, 1000));
        assert!(blind.question(Time(0)).is_some());
    }

    fn answer(thread: u32, passes: u32, executed: u32) -> Answer {
        Answer {
            thread: ThreadId(thread),
            passes,
            executed,
            all_told: true,
            touched: Vec::new(),
        }
    }

    #[test]
    fn time_is_known_for_the_threads_that_a_burst_saw_there() {
        let mut blind = Blind::default();
        for thread in [7, 8] {
            sample_at_join(&mut blind, thread, &[0x80]);
            // Its accesses are known.
            sample_at_join(&mut blind, thread, &[]);
        }
        assert_eq!(blind.time(), (4000, 2000));
        let question = blind.question(Time(0)).expect("half of the time");
        assert_eq!(question.instructions(), [JOIN, CodeAddress(0x80)]);
        // Thread 8 did not pass.
        let seen = &question.suspects;
        blind.answered(
            &question,
            Time(0),
            seen,
            &[answer(7, 8, 8), answer(8, 0, 0)],
        );
        assert_eq!(blind.time(), (4000, 1000));
        assert_eq!(blind.unknown().collect::<Vec<_>>(), [(JOIN, 1000)]);
    }

    #[test]
    fn a_place_is_known_only_after_all_of_its_suspects_were_looked_at() {
        let mut blind = Blind::default();
        sample_at_join(&mut blind, 7, &[1, 2, 3, 4, 5]);
        let mut asked = std::collections::HashSet::new();
        let first = blind.question(Time(0)).expect("all of the time");
        asked.extend(first.instructions());
        assert_eq!(asked.len(), AT_ONCE);
        blind.answered(&first, Time(0), &first.suspects, &[answer(7, 8, 8)]);
        assert_eq!(blind.time(), (1000, 1000));
        let second = blind.question(Time(0)).expect("all of the time");
        asked.extend(second.instructions());
        assert_eq!(asked.len(), 6);
        blind.answered(&second, Time(0), &second.suspects, &[answer(7, 8, 0)]);
        assert_eq!(blind.time(), (1000, 0));
    }

    /// Of four threads a burst sees three, whose data lie far apart, or side by side.
    #[test]
    fn a_thread_that_no_burst_saw_is_like_the_others_if_they_lie_far_apart() {
        for (distance, unknown) in [(0x1_0000, 0), (64, 1000)] {
            let mut blind = Blind::default();
            for thread in 1..=4 {
                sample_at_join(&mut blind, thread, &[0x80]);
            }
            let question = blind.question(Time(0)).expect("all of the time");
            let seen: Vec<Answer> = (1..=3)
                .map(|thread| Answer {
                    touched: vec![Touched {
                        instruction: CodeAddress(0x80),
                        span: Span::new(Address(0x5000 + u64::from(thread) * distance), 8),
                        writes: true,
                    }],
                    ..answer(thread, 8, 8)
                })
                .collect();
            blind.answered(&question, Time(0), &question.suspects, &seen[..2]);
            assert_eq!(blind.time(), (4000, 2000), "two are too few");
            blind.answered(&question, Time(0), &question.suspects, &seen);
            assert_eq!(blind.time(), (4000, unknown), "{distance:#x} apart");
        }
    }

    /// A debugger uses two of the four slots.
    #[test]
    fn suspects_that_got_no_breakpoint_stay_unknown() {
        let mut blind = Blind::default();
        sample_at_join(&mut blind, 7, &[1, 2]);
        let question = blind.question(Time(0)).expect("all of the time");
        blind.answered(
            &question,
            Time(0),
            &question.suspects[..1],
            &[answer(7, 8, 8)],
        );
        assert_eq!(blind.time(), (1000, 1000));
        blind.answered(
            &question,
            Time(0),
            &question.suspects[1..],
            &[answer(7, 8, 0)],
        );
        assert_eq!(blind.time(), (1000, 0));
    }

    /// Control came a new way, after all known ways had been looked at.
    #[test]
    fn a_suspect_that_comes_later_makes_the_place_unknown_again() {
        let mut blind = Blind::default();
        sample_at_join(&mut blind, 7, &[1]);
        let question = blind.question(Time(0)).expect("all of the time");
        blind.answered(&question, Time(0), &question.suspects, &[answer(7, 8, 8)]);
        assert_eq!(blind.time(), (1000, 0));
        sample_at_join(&mut blind, 7, &[2]);
        assert_eq!(blind.time(), (2000, 2000));
    }

    #[test]
    fn more_suspects_than_there_is_room_for_leave_the_place_unknown() {
        let mut blind = Blind::default();
        let many: Vec<u64> = (1..=MOST_SUSPECTS as u64 + 1).collect();
        sample_at_join(&mut blind, 7, &many);
        for _ in 0..MOST_SUSPECTS {
            let question = blind.question(Time(u64::MAX)).expect("all of the time");
            blind.answered(&question, Time(0), &question.suspects, &[answer(7, 8, 8)]);
        }
        assert_eq!(blind.time(), (1000, 1000));
    }

    /// As at the head of a loop that begins with the access.
    #[test]
    fn a_place_may_be_one_of_its_suspects() {
        let mut blind = Blind::default();
        sample_at_join(&mut blind, 7, &[0x80, JOIN.0]);
        let question = blind.question(Time(0)).expect("all of the time");
        assert_eq!(question.suspects, [CodeAddress(0x80), JOIN]);
        assert_eq!(question.instructions(), [JOIN, CodeAddress(0x80)]);
    }

    #[test]
    fn an_access_without_an_address_leaves_its_place_unknown() {
        let mut blind = Blind::default();
        sample_at_join(&mut blind, 7, &[0x80]);
        let question = blind.question(Time(0)).expect("all of the time");
        let untold = Answer {
            all_told: false,
            ..answer(7, 8, 8)
        };
        blind.answered(&question, Time(0), &question.suspects, &[untold]);
        assert_eq!(blind.time(), (1000, 1000));
    }

    #[test]
    fn bursts_on_one_place_become_rare() {
        let mut blind = Blind::default();
        sample_at_join(&mut blind, 7, &[0x80]);
        let mut bursts = 0;
        for millisecond in 0..10_000 {
            let now = Time(millisecond * 1_000_000);
            if let Some(question) = blind.question(now) {
                blind.answered(&question, now, &question.suspects, &[answer(7, 8, 8)]);
                bursts += 1;
            }
        }
        // Three at once, seven whose pauses double from 40 ms to 2.56 s, which is cut to 2 s, and
        // one each 2 s.
        assert!((8..16).contains(&bursts), "{bursts}");
    }

    #[test]
    fn places_with_little_time_are_left_alone() {
        let mut blind = Blind::default();
        for _ in 0..2000 {
            sample_at_join(&mut blind, 7, &[]);
        }
        sample_at_join(&mut blind, 7, &[0x80]);
        assert_eq!(blind.question(Time(0)), None);
        assert_eq!(blind.time(), (2_001_000, 1000));
    }
}
