//! Finds returns of copied functions whose return address nothing in the copy can change: facts
//! show that no store of the function, or of those that it calls, overlaps it. The copy of such
//! a return need not compare the address. Called by the planner.
//!
//! A change by a signal handler or the kernel does no harm: the thread then goes on in the
//! original code. A change by another thread, on a stack that is not its own, is not noticed if
//! the thread is not stopped for it.

use crate::effects::State;
use crate::facts::Facts;
use crate::flow::{Graph, is_plain_return};
use crate::kernel::is_kernel_call;
use crate::nodes::Nodes;
use crate::registers::Register;
use crate::values::Values;
use alloc::collections::{BTreeMap, BTreeSet};
use sunder_x86::{Access, Certainty, Does, Manual, Part, Reach, Role};

/// Bytes of a return address.
const SLOT: u64 = 8;

/// Returns whose addresses can't change.
#[derive(Debug, Default)]
pub(crate) struct UncheckedReturns {
    /// The return instructions.
    pub returns: BTreeSet<usize>,
    /// The registers whose facts show it, by the instruction at which they are used.
    pub used: BTreeMap<usize, u32>,
}

/// The returns in `body` whose address is that which the call pushed.
pub(crate) fn unchecked_returns(graph: &Graph, body: &Nodes, facts: &Facts) -> UncheckedReturns {
    let mut found = UncheckedReturns::default();
    for (number, call) in graph.calls.iter().enumerate() {
        let Ok(instance) = u8::try_from(number + 1) else {
            break;
        };
        let rsp = |n: usize| facts.get(&n)?[Register::RSP.index()]?.only();
        let start = graph.find(instance, call.target);
        let Some(slot) = start.filter(|n| body.contains(n)).and_then(rsp) else {
            continue;
        };
        let Some(used) = registers_that_keep(graph, body, facts, instance, slot) else {
            continue;
        };
        let returns = body.iter().copied().filter(|&n| {
            let node = &graph.nodes[n];
            node.instance == instance && is_plain_return(&node.instruction) && rsp(n) == Some(slot)
        });
        let before = found.returns.len();
        for n in returns {
            found.returns.insert(n);
            *found.used.entry(n).or_insert(0) |= Register::RSP.bit();
        }
        if found.returns.len() > before {
            for (n, registers) in used {
                *found.used.entry(n).or_insert(0) |= registers;
            }
        }
    }
    found
}

/// The registers whose facts show that no store between the call and its return overlaps
/// `slot`; `None` if one may.
fn registers_that_keep(
    graph: &Graph,
    body: &Nodes,
    facts: &Facts,
    instance: u8,
    slot: u64,
) -> Option<BTreeMap<usize, u32>> {
    let mut manual = Manual::new();
    let mut used = BTreeMap::new();
    // An instruction without facts is never reached.
    let reached = body.iter().filter_map(|&n| Some((n, facts.get(&n)?)));
    for (n, state) in reached.filter(|(n, _)| is_within(graph, graph.nodes[*n].instance, instance))
    {
        let does = manual.does(&graph.nodes[n].instruction);
        if is_unbounded(&does) && !is_kernel_call(&graph.nodes[n].instruction) {
            return None;
        }
        for store in does.accesses().filter(|access| access.action.writes()) {
            if !is_apart(store, state, slot)? {
                return None;
            }
            *used.entry(n).or_insert(0) |= registers(store);
        }
    }
    Some(used)
}

/// Whether the instance `inner` only runs between the call and the return of the instance
/// `outer`.
pub(crate) fn is_within(graph: &Graph, mut inner: u8, outer: u8) -> bool {
    while inner != outer {
        match graph.called(inner) {
            Some(call) => inner = call.from,
            None => return false,
        }
    }
    true
}

/// Whether an instruction may write to memory that is not among its accesses. Kernel calls may;
/// those that a copy makes do not.
pub(crate) fn is_unbounded(does: &Does) -> bool {
    does.elsewhere
        || does.accesses().any(|access| {
            access.action.writes()
                && (access.certainty == Certainty::Counted
                    || access.role == Role::String
                    || access.place.reach != Reach::There)
        })
}

/// Whether a store does not overlap `slot`; `None` if its address or its width is not known.
pub(crate) fn is_apart(store: &Access, state: &State, slot: u64) -> Option<bool> {
    let place = store.place;
    if !place.is_plain() {
        return None;
    }
    let width = u64::from(store.width);
    let part = |part: Part| state[Register(part.register).index()];
    let base = place.base.map_or(Some(Values::one(0)), part)?;
    let index = match place.index {
        Some(index) => part(index.part)?.times(index.scale.into())?,
        None => Values::one(0),
    };
    let all = base.plus(index)?.plus(Values::one(place.displacement))?;
    let end = all.high.checked_add(width).filter(|_| width > 0)?;
    Some(end <= slot || all.low >= slot.checked_add(SLOT)?)
}

/// The general registers in an access's address, one bit each.
pub(crate) fn registers(access: &Access) -> u32 {
    access.place.registers().into()
}
