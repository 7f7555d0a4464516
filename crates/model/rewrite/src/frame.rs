//! Finds the caller of a function: the place of the return address on the stack.

use crate::facts::{Checks, facts};
use crate::flow::Graph;
use crate::nodes::Nodes;
use crate::pointers::Context;
use crate::registers::Register;
use crate::request::{Code, Frame, Memory};
use crate::values::{UNKNOWN, Values};
use sunder_access::CodeAddress;

/// Two arbitrary stack pointers; only the distance from them is used. If it differs between the
/// two, the function aligns its stack.
const STACKS: [u64; 2] = [1 << 62, (1 << 62) + 0x1238];

/// The largest frame that is believed; few functions have a larger one.
const DEEPEST: i64 = 1 << 20;

/// The distance in bytes from rsp, when control is at `ip`, to the function's probable return
/// address. Called functions are assumed to restore the stack pointer. `None` if the stack
/// pointer can't be followed.
pub fn return_slot(code: Code<'_>, ip: CodeAddress, memory: Memory<'_>) -> Option<i64> {
    let mut graph = Graph::of(&Frame { code, ip }, &Context::alone(memory));
    graph.pass_calls();
    let all: Nodes = (0..graph.nodes.len()).collect();
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
