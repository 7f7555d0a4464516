//! Finding the caller of a function: where the return address lies, and the call that
//! it belongs to.

use crate::calls::Around;
use crate::facts::{Checks, facts};
use crate::flow::Graph;
use crate::registers::Register;
use crate::request::{Code, Frame, Memory};
use crate::values::{UNKNOWN, Values};
use alloc::collections::BTreeSet;
use sunder_access::CodeAddress;

/// Any numbers will do: only the distance from them is used. Where it is not the same
/// for both, the stack was aligned.
const STACKS: [u64; 2] = [1 << 62, (1 << 62) + 0x1238];

/// Few functions have a larger frame.
const DEEPEST: i64 = 1 << 20;

/// Where the return address of a function probably lies when control is at `ip`, in
/// bytes from rsp on, if what it calls leaves the stack pointer as it was; none if it
/// can't be followed.
pub fn return_slot(code: Code<'_>, ip: CodeAddress, memory: Memory<'_>) -> Option<i64> {
    let mut graph = Graph::of(&Frame { code, ip }, &Around::alone(memory));
    graph.pass_calls();
    let all: BTreeSet<usize> = (0..graph.nodes.len()).collect();
    let start = graph.find(crate::flow::OUTER, code.start.0)?;
    let at = graph.find(crate::flow::OUTER, ip.0)?;
    let slot = |stack: u64| {
        let mut state = UNKNOWN;
        state[Register::RSP.index()] = Some(Values::one(stack));
        let facts = facts(&graph, &all, &[(start, state)], &Checks::new());
        let rsp = facts.get(&at)?[Register::RSP.index()]?.only()?;
        Some(stack.wrapping_sub(rsp) as i64)
    };
    let [first, second] = STACKS.map(slot);
    first.filter(|slot| (0..DEEPEST).contains(slot) && first == second)
}
