//! Finds where flags and registers are live. A guard compares, which changes the flags, so it can only be
//! placed where the copy sets them again before it reads them. A register that is written before it is
//! read can hold an address meanwhile.

use crate::flow::{Graph, Node};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use iced_x86::{FlowControl, RflagsBits};
use sunder_x86::{Manual, Registers};

/// The flags that a comparison changes.
const COMPARED: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;

/// The instructions before which no comparison may be placed. Considers the whole known part of
/// the function, as the flags after a loop are often dead too.
pub(crate) fn live_flags(graph: &Graph) -> BTreeSet<usize> {
    let mut live: BTreeMap<usize, u32> = BTreeMap::new();
    loop {
        let mut changed = false;
        for n in (0..graph.nodes.len()).rev() {
            let node = &graph.nodes[n];
            let after = if node.exits {
                COMPARED
            } else {
                let next = node.next.iter().filter_map(|next| live.get(next));
                next.fold(0, |all, &flags| all | flags)
            };
            let before = (after & !node.flags.replaced | node.flags.read) & COMPARED;
            changed |= live.insert(n, before) != Some(before);
        }
        if !changed {
            break;
        }
    }
    let used = live.into_iter().filter(|&(_, flags)| flags != 0);
    used.map(|(n, _)| n).collect()
}

/// The general registers that may be read after each instruction before they are overwritten, one bit
/// each. Whatever is not known reads all of them: where control leaves the graph, returns, or goes to an
/// address that is not in the code.
pub(crate) fn live_registers(graph: &Graph) -> Vec<u16> {
    let mut manual = Manual::new();
    let nodes = &graph.nodes;
    let own = nodes
        .iter()
        .map(|node| manual.does(&node.instruction).registers);
    let own: Vec<Registers> = own.collect();
    let goes_on = |node: &Node| {
        let flow = node.instruction.flow_control();
        let is_plain = matches!(flow, FlowControl::Next | FlowControl::ConditionalBranch)
            || node.instruction.is_jmp_short_or_near()
            || node.instruction.is_call_near();
        is_plain && !node.exits && !node.next.is_empty()
    };
    let mut before: Vec<u16> = vec![0; nodes.len()];
    let after = |before: &[u16], node: &Node| match goes_on(node) {
        true => node.next.iter().fold(0, |all, &next| all | before[next]),
        false => u16::MAX,
    };
    loop {
        let mut changed = false;
        for n in (0..nodes.len()).rev() {
            let live = after(&before, &nodes[n]) & !own[n].replaced | own[n].read;
            changed |= core::mem::replace(&mut before[n], live) != live;
        }
        if !changed {
            break;
        }
    }
    nodes.iter().map(|node| after(&before, node)).collect()
}
