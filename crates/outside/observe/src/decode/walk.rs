//! Computes addresses from the registers of a sample, forward and backward.

use super::decoded::{Decoded, NearAccess, WINDOW};
use super::effect::KnownRegisters;
use super::function::{Function, Step};
use super::operand::{Operand, Touch};
use super::ways::{Last, last_accesses};
use crate::RawSample;
use std::ops::RangeInclusive;
use sunder_access::{Access, CodeAddress, Provenance, Span};

/// Walks over the sampled instruction, at `index`, and those after it, to the end of the block.
/// Returns the range of steps in which a pointer at a known place may be loaded and used.
pub(super) fn forward(
    function: &Function,
    index: usize,
    sample: &RawSample,
    out: &mut Decoded,
) -> Option<RangeInclusive<usize>> {
    let mut known = KnownRegisters::all(sample.registers.general);
    let steps = function.steps.iter().skip(index).take(WINDOW);
    let (mut first, mut last) = (None, None);
    for (step, distance) in steps.zip(0..) {
        if step.invalid {
            break;
        }
        let is_near = emit(function, step, distance, &known, sample, out);
        if is_near && step.through && first.is_some() {
            last = Some(index + distance as usize);
        }
        if !is_near && step.effect.is_load() {
            first = first.or(Some(index + distance as usize));
        }
        if step.ends_block {
            break;
        }
        step.effect.forward(step.writes, &mut known);
    }
    Some(first?..=last?)
}

/// Walks back over the instructions before `index`, as long as control can only have come that
/// way. Returns the same as `forward`.
pub(super) fn backward(
    function: &Function,
    index: usize,
    sample: &RawSample,
    out: &mut Decoded,
) -> Option<RangeInclusive<usize>> {
    if function.entries_unknown {
        return None;
    }
    let mut known = KnownRegisters::all(sample.registers.general);
    let (mut first, mut last) = (None, None);
    for back in 1..=WINDOW.min(index) {
        let later = &function.steps[index + 1 - back];
        let step = &function.steps[index - back];
        if later.entry || step.ends_block {
            break;
        }
        step.effect.backward(step.writes, &mut known);
        let is_near = emit(function, step, -(back as i32), &known, sample, out);
        if is_near && step.through {
            last = last.or(Some(index - back));
        }
        if !is_near && last.is_some() && step.effect.is_load() {
            first = Some(index - back);
        }
    }
    Some(first?..=last?)
}

/// If the walk back met no access, finds the last one before the sample by the ways that the
/// registers leave. If it is one way, adds the access and returns true. If there are several and all
/// of them tell their addresses, these are the sample's choices.
pub(super) fn behind_joins(
    function: &Function,
    index: usize,
    sample: &RawSample,
    out: &mut Decoded,
) -> bool {
    let met = out.distances.iter().any(|&distance| distance < 0)
        || out.near.iter().any(|near| near.distance < 0);
    if met || function.entries_unknown {
        return false;
    }
    let ways = last_accesses(function, index, sample.registers.general);
    let tells = |way: &Last| {
        let step = &function.steps[way.index];
        let known =
            |operand: &Operand| matches!(operand.touch(&way.before), Touch::At(_) | Touch::Nothing);
        step.segment_relative == 0 && function.operands(step).iter().all(known)
    };
    if !ways.iter().all(tells) {
        return false;
    }
    if let [way] = ways.as_slice() {
        let distance = -i32::from(way.distance);
        let step = &function.steps[way.index];
        emit(function, step, distance, &way.before, sample, out);
        return true;
    }
    for way in &ways {
        for operand in function.operands(&function.steps[way.index]) {
            if let Touch::At(address) = operand.touch(&way.before) {
                out.choices.push(Span::new(address, operand.width.into()));
            }
        }
    }
    false
}

/// Adds the accesses of `step`, given the registers before it. Returns whether the address of
/// one is not known.
fn emit(
    function: &Function,
    step: &Step,
    distance: i32,
    before: &KnownRegisters,
    sample: &RawSample,
    out: &mut Decoded,
) -> bool {
    let near = out.near.len();
    let instruction = CodeAddress(function.start + u64::from(step.offset));
    out.segment_relative += u32::from(step.segment_relative);
    for operand in function.operands(step) {
        let mut near_access = |within| {
            out.near.push(NearAccess {
                instruction,
                kind: operand.kind,
                width: operand.width,
                distance,
                through: None,
                within,
                suspect: false,
                avoidable: false,
            });
        };
        match operand.touch(before) {
            Touch::At(address) => {
                out.accesses.push(Access {
                    time: sample.time,
                    thread: sample.thread,
                    instruction,
                    address,
                    width: operand.width,
                    kind: operand.kind,
                    provenance: Provenance::Sampled,
                    weight: 1.0,
                });
                out.distances.push(distance);
            }
            Touch::Nothing => {}
            Touch::Within(address) => near_access(Some(address)),
            Touch::Unknown => near_access(None),
        }
    }
    out.near.len() > near
}
