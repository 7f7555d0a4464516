//! Finds the accesses that may have held up a sampled instruction: its own, and the last one
//! before it on each way by which control may have come. A sample in time mostly interrupts a
//! thread right behind the access that it waits for, so these are the accesses whose addresses
//! matter most. Called after the walks. It must not compute an address: behind a join, where
//! control may have come several ways, the sample's registers tell none.

use super::decoded::{Decoded, NearAccess};
use super::function::Function;
use super::ways::FARTHEST;
use sunder_access::CodeAddress;

/// The most places that are looked at, over all ways.
const MOST_PLACES: usize = 64;

/// Marks the suspects among the near accesses, adds those that the walk back could not reach, and
/// sets [`Decoded::blind`], [`Decoded::join`] and [`Decoded::ways_unknown`]. If the last access
/// before the sample `is_last_known` although it lies behind a join, only the sampled instruction's
/// own can be suspects.
pub(super) fn find(function: &Function, index: usize, is_last_known: bool, out: &mut Decoded) {
    for near in out.near.iter_mut().filter(|near| near.distance == 0) {
        near.suspect = true;
        out.blind = true;
    }
    if is_last_known {
        return;
    }
    let mut ways = Ways::default();
    ways.add(index, 0);
    let mut next = 0;
    while let Some(&(place, distance)) = ways.places.get(next) {
        next += 1;
        if distance >= FARTHEST {
            continue;
        }
        if function.steps[place].entry || function.entries_unknown {
            // What lies before it was not executed for certain.
            let join = function.address_of(place);
            out.join.get_or_insert(join);
            out.ways_unknown |= function.has_unknown_ways_to(place);
        }
        let before = place
            .checked_sub(1)
            .filter(|&before| function.steps[before].falls_through);
        for before in before.into_iter().chain(function.jumps_to(place)) {
            let step = &function.steps[before];
            if step.accesses_memory() {
                suspect(function, before, distance + 1, out);
            } else if !step.invalid {
                ways.add(before, distance + 1);
            }
        }
    }
}

/// The places on the ways to the sample: the index of a step, and its distance.
#[derive(Default)]
struct Ways {
    places: Vec<(usize, u8)>,
}

impl Ways {
    fn add(&mut self, place: usize, distance: u8) {
        let is_known = self.places.iter().any(|known| known.0 == place);
        if !is_known && self.places.len() < MOST_PLACES {
            self.places.push((place, distance));
        }
    }
}

/// Notes that the step at `index` may have held up the sample.
fn suspect(function: &Function, index: usize, distance: u8, out: &mut Decoded) {
    let instruction = function.address_of(index);
    let avoidable = out.join.is_some();
    let distance = -i32::from(distance);
    let at = |known: CodeAddress, of: i32| known == instruction && of < 0;
    let mut accesses = out.accesses.iter().zip(&out.distances);
    if !avoidable && accesses.any(|(access, &of)| at(access.instruction, of)) {
        return;
    }
    let mut found = false;
    for near in &mut out.near {
        if near.instruction == instruction && near.distance == distance {
            near.suspect = true;
            near.avoidable |= avoidable;
            found = true;
        }
    }
    let operands = function.operands(&function.steps[index]);
    // An operand relative to a segment lies in the thread's own memory, as a rule.
    out.blind |= found || !operands.is_empty();
    if !found {
        out.near.extend(operands.iter().map(|operand| NearAccess {
            instruction,
            kind: operand.kind,
            width: operand.width,
            distance,
            through: None,
            within: None,
            suspect: true,
            avoidable,
        }));
    }
}
