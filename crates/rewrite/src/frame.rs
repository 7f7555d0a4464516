//! Finding the caller of a leaf function: where the return address lies, and the
//! call that it belongs to.

use crate::facts::{Checks, facts};
use crate::flow::Graph;
use crate::registers::Register;
use crate::request::{Code, Frame};
use crate::values::Values;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use sunder_access::CodeAddress;

/// Any number will do: only the distance from it is used.
const STACK: u64 = 1 << 62;

/// No leaf function has a larger frame.
const DEEPEST: i64 = 1 << 20;

/// Where the return address of a leaf function lies when control is at `ip`, in
/// bytes from rsp on; none for a function that calls others before it comes there,
/// or whose stack pointer can't be followed.
pub fn return_slot(code: Code<'_>, ip: CodeAddress) -> Option<i64> {
    let graph = Graph::of(&Frame { code, ip }, &[]);
    let all: BTreeSet<usize> = (0..graph.nodes.len()).collect();
    let start = graph.find(crate::flow::OUTER, code.start.0)?;
    let at = graph.find(crate::flow::OUTER, ip.0)?;
    let mut state = [None; 16];
    state[Register::RSP.index()] = Some(Values::one(STACK));
    let facts = facts(&graph, &all, &[(start, state)], &Checks::new());
    let rsp = facts.get(&at)?[Register::RSP.index()]?.only()?;
    let slot = STACK.wrapping_sub(rsp) as i64;
    (0..DEEPEST).contains(&slot).then_some(slot)
}

/// The functions that `code` calls directly.
pub fn call_targets(code: Code<'_>, ip: CodeAddress) -> Vec<CodeAddress> {
    let graph = Graph::of(&Frame { code, ip }, &[]);
    let calls = graph.nodes.iter().map(|n| n.instruction);
    let mut targets: Vec<CodeAddress> = calls
        .filter(|i| i.is_call_near())
        .map(|i| CodeAddress(i.near_branch_target()))
        .collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}
