//! Finds the ways by which control may have come to a sampled instruction. The code alone often
//! leaves several. A conditional jump mostly depends on registers that nothing has changed since, so
//! the sample tells whether it can have been taken. If all ways but one drop out, the last access on
//! that way was executed, and its address follows from the registers like any other. If several
//! ways are left, one of their last accesses was executed.
//!
//! Called if the block of the sampled instruction has no access before it. It must not guess: a
//! way that can't be followed, or that ends in a call or at an unknown place, may be the true one.

use super::effect::KnownRegisters;
use super::flags::{Decision, Flags};
use super::function::Function;

/// The most instructions from the sampled one back to the access. A wait shows within a few
/// instructions behind the access.
pub(super) const FARTHEST: u8 = 12;

/// The most instructions that are followed further back, to rule a way out.
const FARTHER: u8 = 12;

/// The most instructions that are looked at, over all ways.
const MOST_PLACES: usize = 96;

/// The most conditional jumps in a row without a new comparison.
const MOST_DECISIONS: usize = 4;

/// The most ways that may be left.
const MOST_LEFT: usize = 4;

/// The last access before the sample, on one way.
#[derive(Clone)]
pub(super) struct Last {
    /// Its step.
    pub index: usize,
    /// How many instructions before the sampled one it was executed.
    pub distance: u8,
    /// The registers before it.
    pub before: KnownRegisters,
}

/// A way back from the sample.
#[derive(Clone)]
struct Way {
    place: usize,
    distance: u8,
    /// The registers before the step at `place`.
    known: KnownRegisters,
    /// Decisions about which the flags have not been found yet.
    decisions: Vec<Decision>,
    /// The access, once it is passed.
    last: Option<Last>,
}

/// The last access before the step at `index` on each way by which control may have come to it;
/// nothing if one of the ways is not known, or has no access nearby.
pub(super) fn last_accesses(function: &Function, index: usize, general: [u64; 16]) -> Vec<Last> {
    follow(function, index, general).unwrap_or_default()
}

fn follow(function: &Function, index: usize, general: [u64; 16]) -> Option<Vec<Last>> {
    let mut open = vec![Way {
        place: index,
        distance: 0,
        known: KnownRegisters::all(general),
        decisions: Vec::new(),
        last: None,
    }];
    let mut places = 0;
    let mut found: Vec<Last> = Vec::new();
    while let Some(way) = open.pop() {
        places += 1;
        if places > MOST_PLACES {
            return None;
        }
        let mut before = Vec::new();
        if let Some(last) = &way.last {
            // Only to rule the way out; several ways on are not followed.
            if !function.steps[way.place].entry && way.distance < last.distance + FARTHER {
                before.extend(fallen(function, way.place));
            }
            if before.is_empty() {
                if found.len() >= MOST_LEFT {
                    return None;
                }
                found.extend(way.last);
                continue;
            }
        } else {
            // A function is entered at its beginning.
            let is_unknown = way.place == 0 || function.has_unknown_ways_to(way.place);
            if way.distance >= FARTHEST || is_unknown {
                return None;
            }
            before.extend(fallen(function, way.place));
            before.extend(function.jumps_to(way.place).map(|jump| (jump, true)));
            if before.is_empty() {
                // Behind a call.
                return None;
            }
        }
        for (step, jumped) in before {
            let mut longer = way.clone();
            match longer.go_back(function, step, jumped) {
                Back::Possible => open.push(longer),
                Back::RuledOut => {}
                Back::NotKnown => return None,
            }
        }
    }
    Some(found)
}

/// The step before `place`, if control can have come from it without a jump.
fn fallen(function: &Function, place: usize) -> Option<(usize, bool)> {
    let before = place.checked_sub(1)?;
    function.steps[before]
        .falls_through
        .then_some((before, false))
}

/// Whether control may have come by a way that goes over one more step.
enum Back {
    Possible,
    RuledOut,
    NotKnown,
}

impl Way {
    /// Goes back over a step that jumped or fell through to the way's place.
    fn go_back(&mut self, function: &Function, index: usize, jumped: bool) -> Back {
        let step = &function.steps[index];
        if step.invalid {
            return Back::NotKnown;
        }
        if let Some(condition) = step.condition {
            if self.decisions.len() >= MOST_DECISIONS {
                return Back::NotKnown;
            }
            self.decisions.push(Decision {
                condition,
                taken: jumped,
            });
        }
        if step.flags != Flags::Kept {
            let possible = |&decision: &Decision| step.flags.allow(decision, &self.known);
            if !self.decisions.iter().all(possible) {
                return Back::RuledOut;
            }
            self.decisions.clear();
        }
        step.effect.backward(step.writes, &mut self.known);
        self.place = index;
        self.distance += 1;
        if self.last.is_none() && step.accesses_memory() {
            self.last = Some(Last {
                index,
                distance: self.distance,
                before: self.known.clone(),
            });
        }
        Back::Possible
    }
}
