//! The typed objects that the instructions of a function access: a forward data-flow analysis of
//! one function. Variables that the debug information has in registers and frame slots are followed
//! through moves, additions, spills and pointer loads, so that `mov rax,[rbp-8]; add qword
//! [rax+16],1` becomes "the field at offset 16 of the target of `args`". Called by
//! [`crate::names`]; pure except for look-ups of types and variables.
//!
//! An unknown result is better than a wrong one: where two paths into a block disagree, the value
//! is unknown.

mod address;
mod analysis;
mod answers;
mod effects;
mod fixpoint;
mod function;
mod last_calls;
mod loops;
mod takers;

pub(crate) use answers::{Answers, Argument, Call};
pub(crate) use function::Function;

use crate::blocks::blocks;
use crate::tables::Tables;
use analysis::Analysis;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use std::collections::HashMap;
use sunder_x86::Manual;

/// The most instructions times variables of a function that is analysed; for larger functions
/// (generated code) it would take seconds, and their accesses stay untyped.
const MAX_WORK: usize = 200_000_000;

/// Analyses `function`.
pub(crate) fn analyse(
    function: &Function<'_>,
    debug: &mut Tables,
    limits: &mut Vec<String>,
) -> Answers {
    let decoder = Decoder::with_ip(64, function.code, function.begin, DecoderOptions::NONE);
    let instructions: Vec<Instruction> = decoder.into_iter().collect();
    if instructions.len().saturating_mul(function.locals.len()) > MAX_WORK {
        return Answers::default();
    }
    let mut analysis = Analysis {
        function,
        debug,
        limits,
        manual: Manual::new(),
        answers: Answers::default(),
        returns: HashMap::new(),
        calls: HashMap::new(),
        noting: false,
    };
    let last_calls = analysis.last_calls(&instructions);
    let blocks = blocks(&instructions, &last_calls);
    let states = analysis.fixpoint(&instructions, &blocks);
    analysis.noting = true;
    for (block, state) in blocks.iter().zip(states) {
        let Some(mut state) = state else { continue };
        for instruction in &instructions[block.first..block.last] {
            analysis.learn(instruction.ip(), &mut state);
            if let Some(touched) = analysis.touched(instruction, &state) {
                analysis.answers.touched.insert(instruction.ip(), touched);
            }
            if instruction.flow_control() == FlowControl::Return {
                analysis.note_return(&state);
            }
            if analysis.is_tail_call(instruction) {
                analysis.note_call(instruction, &state);
            }
            analysis.execute(instruction, &mut state);
        }
        // Paths to one return may return different values, so they differ at the return.
        for end in block.next.iter().map(|&n| &blocks[n]) {
            analysis.note_way_out(&instructions[end.first..end.last], &state);
        }
    }
    let next: Vec<Vec<usize>> = blocks.iter().map(|b| b.next.clone()).collect();
    let numbers = loops::loops(&next);
    analysis.answers.loops = blocks
        .iter()
        .zip(numbers)
        .map(|(block, number)| {
            let last = &instructions[block.last - 1];
            (instructions[block.first].ip()..last.next_ip(), number)
        })
        .collect();
    analysis.answers
}
