//! What execution bursts showed: the lines that an instruction of a thread touches, and how often
//! it is executed before a join, to which control may come in several ways. With it, a sample that has no address for an
//! instruction near it becomes a visit of the instruction's line. Called by the judge only.
//!
//! A burst is one moment. An instruction that walks over memory stays on one line for a while, too;
//! so only lines that several bursts saw count, and each burst weighs the same, however many hits
//! it had.

use crate::footprint::Footprint;
use crate::hash::Map;
use sunder_access::{Address, CodeAddress, ThreadId};

/// The most lines that are remembered for an instruction of a thread.
const LINES: usize = 4;

/// Bursts after which all weights are halved, so that a later phase of the program outweighs an
/// earlier one.
const HALVE_AT: f32 = 16.0;

/// The same for the ways to a join, in passes of it.
const HALVE_PASSES_AT: f32 = 128.0;

/// An instruction's line is known from this many bursts on.
const ENOUGH_BURSTS: f32 = 2.0;

/// The most pairs and triples of a thread and instructions that are remembered.
const MOST: usize = 1 << 16;

/// One line that an instruction touched.
#[derive(Clone, Copy, Debug)]
struct Place {
    line: Address,
    serial: u64,
    footprint: Footprint,
    /// The sum, over the bursts, of its share of the hits.
    weight: f32,
}

/// The lines that an instruction of a thread touched.
#[derive(Clone, Debug, Default)]
struct Places {
    bursts: f32,
    places: Vec<Place>,
}

/// How often an instruction was executed, compared to the passes of a join behind it.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// Executions of the instruction at the join.
    passes: f32,
    /// Executions of the other one, meanwhile.
    executed: f32,
}

/// What was learned from all execution bursts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Executed {
    places: Map<(ThreadId, CodeAddress), Places>,
    /// By thread, join, and the instruction before it.
    ways: Map<(ThreadId, (CodeAddress, CodeAddress)), Way>,
}

/// Where an instruction probably accesses memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub line: Address,
    /// The line's serial when this was learned. If the line now has another one, another object
    /// lies there.
    pub serial: u64,
    pub footprint: Footprint,
    /// The probability, 0 to 1.
    pub share: f32,
}

/// One line that a burst saw an instruction touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub line: Address,
    pub serial: u64,
    pub footprint: Footprint,
}

impl Executed {
    /// In one burst, `thread` executed `instruction` `hits` times, with these accesses. One that
    /// crosses the end of a line is there for each of its lines.
    pub fn saw(
        &mut self,
        thread: ThreadId,
        instruction: CodeAddress,
        hits: u32,
        seen: impl Iterator<Item = Seen>,
    ) {
        make_room(&mut self.places);
        let places = self.places.entry((thread, instruction)).or_default();
        if places.bursts >= HALVE_AT {
            places.halve();
        }
        places.bursts += 1.0;
        let weight = 1.0 / hits.max(1) as f32;
        for seen in seen {
            places.add(&seen, weight);
        }
    }

    /// In one burst, `thread` passed the join `at` `passes` times, and meanwhile executed
    /// `instruction` `executed` times.
    pub fn passed(
        &mut self,
        thread: ThreadId,
        (at, instruction): (CodeAddress, CodeAddress),
        passes: u32,
        executed: u32,
    ) {
        make_room(&mut self.ways);
        let way = self.ways.entry((thread, (at, instruction))).or_default();
        if way.passes >= HALVE_PASSES_AT {
            way.passes /= 2.0;
            way.executed /= 2.0;
        }
        way.passes += passes as f32;
        way.executed += executed as f32;
    }

    /// The probability, 0 to 1, that `thread` has executed the second instruction when it is
    /// sampled behind the first, a join; 0 if it is not known.
    pub fn way(&self, thread: ThreadId, way: (CodeAddress, CodeAddress)) -> f32 {
        let known = self.ways.get(&(thread, way));
        // Executions without a pass say that control went elsewhere.
        known
            .filter(|way| way.passes > 0.0)
            .map_or(0.0, |way| (way.executed / way.passes).min(1.0))
    }

    /// The lines that `thread`'s `instruction` touches; none before enough bursts saw it.
    pub fn candidates(
        &self,
        thread: ThreadId,
        instruction: CodeAddress,
    ) -> impl Iterator<Item = Candidate> + '_ {
        let places = self.places.get(&(thread, instruction));
        places
            .filter(|places| places.bursts >= ENOUGH_BURSTS)
            .into_iter()
            .flat_map(|places| {
                places.places.iter().map(|place| Candidate {
                    line: place.line,
                    serial: place.serial,
                    footprint: place.footprint,
                    share: (place.weight / places.bursts).min(1.0),
                })
            })
    }
}

impl Places {
    fn halve(&mut self) {
        self.bursts /= 2.0;
        for place in &mut self.places {
            place.weight /= 2.0;
        }
    }

    fn add(&mut self, seen: &Seen, weight: f32) {
        let new = Place {
            line: seen.line,
            serial: seen.serial,
            footprint: seen.footprint,
            weight,
        };
        let same = |place: &&mut Place| place.line == seen.line;
        if let Some(old) = self.places.iter_mut().find(same) {
            if old.serial == seen.serial {
                old.weight += weight;
                old.footprint = seen.footprint;
            } else {
                *old = new;
            }
        } else if self.places.len() < LINES {
            self.places.push(new);
        } else if let Some(least) = self
            .places
            .iter_mut()
            .min_by(|a, b| a.weight.total_cmp(&b.weight))
            && least.weight <= 1.0
        {
            // An instruction that walks over memory replaces its own entries.
            *least = new;
        }
    }
}

fn make_room<K: std::hash::Hash + Eq, V>(all: &mut Map<K, V>) {
    if all.len() >= MOST {
        all.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::Kind;

    const T: ThreadId = ThreadId(1);
    const I: CodeAddress = CodeAddress(0x400);

    fn seen(line: u64) -> Seen {
        Seen {
            line: Address(line),
            serial: 1,
            footprint: Footprint {
                start: 8,
                len: 8,
                kind: Kind::Update,
            },
        }
    }

    fn best(executed: &Executed) -> f32 {
        let shares = executed.candidates(T, I).map(|found| found.share);
        shares.fold(0.0, f32::max)
    }

    #[test]
    fn a_line_is_known_after_two_bursts() {
        let mut executed = Executed::default();
        executed.saw(T, I, 4, [64; 4].map(seen).into_iter());
        assert_eq!(executed.candidates(T, I).count(), 0);
        executed.saw(T, I, 2, [64; 2].map(seen).into_iter());
        let found: Vec<_> = executed.candidates(T, I).collect();
        assert_eq!((found.len(), found[0].share), (1, 1.0));
        assert_eq!(executed.candidates(ThreadId(2), I).count(), 0);
    }

    /// In each burst it stays on one line, but never on the same.
    #[test]
    fn an_instruction_that_walks_over_memory_has_no_likely_line() {
        let mut executed = Executed::default();
        for burst in 0..40 {
            executed.saw(T, I, 4, [64 * burst; 4].map(seen).into_iter());
            assert!(best(&executed) <= 0.5, "{burst}");
        }
    }

    #[test]
    fn a_later_phase_outweighs_an_earlier_one() {
        let mut executed = Executed::default();
        for burst in 0..60 {
            let line = if burst < 40 { 64 } else { 128 };
            executed.saw(T, I, 1, std::iter::once(seen(line)));
        }
        let share = |line: u64| {
            let mut all = executed.candidates(T, I);
            all.find(|found| found.line == Address(line))
                .map_or(0.0, |found| found.share)
        };
        assert!(share(128) > 0.7, "{}", share(128));
        assert!(share(64) < 0.3, "{}", share(64));
    }

    #[test]
    fn a_way_that_is_seldom_taken_has_a_small_probability() {
        let mut executed = Executed::default();
        let (at, cold) = (CodeAddress(0x500), CodeAddress(0x600));
        assert_eq!(executed.way(T, (at, I)), 0.0);
        for _ in 0..10 {
            executed.passed(T, (at, I), 8, 7);
            executed.passed(T, (at, cold), 8, 1);
        }
        assert_eq!(executed.way(T, (at, I)), 7.0 / 8.0);
        assert_eq!(executed.way(T, (at, cold)), 1.0 / 8.0);
        // It goes on elsewhere: the join is never passed.
        let elsewhere = CodeAddress(0x700);
        executed.passed(T, (elsewhere, I), 0, 4);
        assert_eq!(executed.way(T, (elsewhere, I)), 0.0);
    }
}
