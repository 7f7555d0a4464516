//! A function's basic blocks and the jumps between them. Called by
//! [`crate::flow`]; pure.

use iced_x86::{FlowControl, Instruction};
use std::collections::{HashMap, HashSet};
use sunder_x86::Control;

/// A sequence of instructions that is entered only at its first and left only at its last.
pub(crate) struct Block {
    /// Index of the first instruction.
    pub(crate) first: usize,
    /// Index after the last.
    pub(crate) last: usize,
    /// Indices of the blocks that may follow, as far as the targets of jumps are known.
    pub(crate) next: Vec<usize>,
}

/// Splits the code at jumps, at their targets and after `last_calls`, the calls that never return.
pub(crate) fn blocks(instructions: &[Instruction], last_calls: &HashSet<u64>) -> Vec<Block> {
    let position: HashMap<u64, usize> = instructions
        .iter()
        .enumerate()
        .map(|(i, x)| (x.ip(), i))
        .collect();
    let mut starts = vec![false; instructions.len() + 1];
    if let Some(first) = starts.first_mut() {
        *first = true;
    }
    for (i, instruction) in instructions.iter().enumerate() {
        if ends_block(instruction) || last_calls.contains(&instruction.ip()) {
            starts[i + 1] = true;
        }
        if let Some(&target) = position.get(&jump_target(instruction)) {
            starts[target] = true;
        }
    }
    let firsts: Vec<usize> = (0..instructions.len()).filter(|&i| starts[i]).collect();
    let block_at = |index: usize| firsts.binary_search(&index).ok();
    let mut all = Vec::with_capacity(firsts.len());
    for (n, &first) in firsts.iter().enumerate() {
        let last = firsts.get(n + 1).copied().unwrap_or(instructions.len());
        let end = &instructions[last - 1];
        let mut next = Vec::new();
        if Control::of(end).goes_on() && !last_calls.contains(&end.ip()) {
            next.extend(block_at(last));
        }
        next.extend(position.get(&jump_target(end)).and_then(|&t| block_at(t)));
        all.push(Block { first, last, next });
    }
    all
}

fn ends_block(instruction: &Instruction) -> bool {
    !matches!(
        instruction.flow_control(),
        FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall
    )
}

/// The target of a direct jump; 0, which is no instruction's address, for all others.
fn jump_target(instruction: &Instruction) -> u64 {
    Control::of(instruction).jump_target().unwrap_or(0)
}
