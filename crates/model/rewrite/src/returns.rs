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
use crate::flow::{Graph, is_plain_return};
use crate::registers::Register;
use crate::values::Values;
use alloc::collections::{BTreeMap, BTreeSet};
use iced_x86::{
    Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register as Iced, UsedMemory,
};

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
    let mut factory = InstructionInfoFactory::new();
    let mut used = BTreeMap::new();
    // What has no facts is never reached.
    let reached = body.iter().filter_map(|&n| Some((n, facts.get(&n)?)));
    for (n, state) in reached.filter(|(n, _)| is_within(graph, graph.nodes[*n].instance, instance))
    {
        let i = &graph.nodes[n].instruction;
        let info = factory.info(i);
        let mut stores = info.used_memory().iter().filter(|m| is_store(m)).peekable();
        if stores.peek().is_some() && is_unbounded(i) {
            return None;
        }
        for memory in stores {
            if !is_apart(memory, state, slot)? {
                return None;
            }
            *used.entry(n).or_insert(0) |= registers(memory);
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

pub(crate) fn is_store(memory: &UsedMemory) -> bool {
    !matches!(
        memory.access(),
        OpAccess::None | OpAccess::NoMemAccess | OpAccess::Read | OpAccess::CondRead
    )
}

/// Whether it may write elsewhere than what is told of its operands.
pub(crate) fn is_unbounded(i: &Instruction) -> bool {
    i.has_rep_prefix()
        || i.has_repne_prefix()
        || i.is_string_instruction()
        || matches!(i.mnemonic(), Mnemonic::Enter)
        // A bit's number in a register selects another word.
        || matches!(i.mnemonic(), Mnemonic::Btc | Mnemonic::Btr | Mnemonic::Bts)
}

/// Whether a store lies beside `slot`; none if its place or its width are not known.
pub(crate) fn is_apart(memory: &UsedMemory, state: &State, slot: u64) -> Option<bool> {
    if matches!(memory.segment(), Iced::FS | Iced::GS) {
        return None;
    }
    let width = memory.memory_size().size() as u64;
    let part = |register: Iced| match register {
        Iced::None | Iced::RIP => Some(Values::one(0)),
        other => state[Register::whole(other)?.index()],
    };
    let scale = u64::from(memory.scale());
    let all = part(memory.base())?
        .plus(part(memory.index())?.times(scale)?)?
        .plus(Values::one(memory.displacement()))?;
    let end = all.high.checked_add(width).filter(|_| width > 0)?;
    Some(end <= slot || all.low >= slot.checked_add(SLOT)?)
}

pub(crate) fn registers(memory: &UsedMemory) -> u32 {
    let bit = |register| Register::whole(register).map_or(0, Register::bit);
    bit(memory.base()) | bit(memory.index())
}
