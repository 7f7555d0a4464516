//! Returns of functions that are copied into a loop, where nothing in the copy can have
//! changed the return address: every store of the function, and of those that it calls,
//! has an address that facts keep apart from it. The copy of such a return need not look.
//! Called by the planner.
//!
//! What a handler of a signal or the kernel changes is seen: threads go on in the original
//! code then. Not seen is what another thread changes on a stack that is not its own,
//! without stopping the thread.

use crate::effects::State;
use crate::facts::Facts;
use crate::flow::{Graph, is_kernel_call, is_plain_return};
use crate::registers::Register;
use crate::values::Values;
use alloc::collections::{BTreeMap, BTreeSet};
use sunder_x86::{Access, Certainty, Does, Manual, Part, Reach, Role};

/// Bytes of a return address.
const SLOT: u64 = 8;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// The returns.
    pub returns: BTreeSet<usize>,
    /// The registers whose facts say so, by the instruction that they are used at.
    pub used: BTreeMap<usize, u32>,
}

/// The returns in `body` that find the address that the call left.
pub(crate) fn kept(graph: &Graph, body: &BTreeSet<usize>, facts: &Facts) -> Kept {
    let mut kept = Kept::default();
    for (number, call) in graph.calls.iter().enumerate() {
        let Ok(instance) = u8::try_from(number + 1) else {
            break;
        };
        let rsp = |n: usize| facts.get(&n)?[Register::RSP.index()]?.only();
        let start = graph.find(instance, call.target);
        let Some(slot) = start.filter(|n| body.contains(n)).and_then(rsp) else {
            continue;
        };
        let Some(used) = stores_keep(graph, body, facts, instance, slot) else {
            continue;
        };
        let returns = body.iter().copied().filter(|&n| {
            let node = &graph.nodes[n];
            node.instance == instance && is_plain_return(&node.instruction) && rsp(n) == Some(slot)
        });
        let before = kept.returns.len();
        for n in returns {
            kept.returns.insert(n);
            *kept.used.entry(n).or_insert(0) |= Register::RSP.bit();
        }
        if kept.returns.len() > before {
            for (n, registers) in used {
                *kept.used.entry(n).or_insert(0) |= registers;
            }
        }
    }
    kept
}

/// The registers on which it rests that no store between the call and its return reaches
/// `slot`; none if one may.
fn stores_keep(
    graph: &Graph,
    body: &BTreeSet<usize>,
    facts: &Facts,
    instance: u8,
    slot: u64,
) -> Option<BTreeMap<usize, u32>> {
    let mut manual = Manual::new();
    let mut used = BTreeMap::new();
    // What has no facts is never reached.
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

/// Whether the function of `inner` runs between a call for which that of `outer` was
/// copied and its return.
fn is_within(graph: &Graph, mut inner: u8, outer: u8) -> bool {
    while inner != outer {
        match graph.called(inner) {
            Some(call) => inner = call.from,
            None => return false,
        }
    }
    true
}

/// Whether an instruction may write elsewhere than its accesses say. Kernel calls may, but
/// those that are made in a copy do not.
pub(crate) fn is_unbounded(does: &Does) -> bool {
    does.elsewhere
        || does.accesses().any(|access| {
            access.action.writes()
                && (access.certainty == Certainty::Counted
                    || access.role == Role::String
                    || access.place.reach != Reach::There)
        })
}

/// Whether a store lies beside `slot`; none if its place or its width are not known.
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

/// The general registers of an access's address, one bit each.
pub(crate) fn registers(access: &Access) -> u32 {
    access.place.registers().into()
}
