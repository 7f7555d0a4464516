//! In which order the instructions of a copy lie: what runs after one another comes
//! after one another, functions within their callers, so that the copy needs few
//! jumps of its own.

use crate::flow::{Graph, is_kernel_call};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use iced_x86::FlowControl;

/// All of `body`, each once.
pub(crate) fn order(graph: &Graph, body: &BTreeSet<usize>) -> Vec<usize> {
    let mut heads: Vec<usize> = body.iter().copied().collect();
    heads.sort_by_key(|&n| (graph.nodes[n].instance, graph.nodes[n].instruction.ip()));
    let mut placed = BTreeSet::new();
    let mut order = Vec::new();
    for head in heads {
        let mut open = Some(head);
        while let Some(n) = open.take().filter(|n| placed.insert(*n)) {
            order.push(n);
            open = follower(graph, n).filter(|next| body.contains(next));
        }
    }
    order
}

/// What runs after `n` without a jump, or after one that always goes there.
fn follower(graph: &Graph, n: usize) -> Option<usize> {
    let node = &graph.nodes[n];
    let i = &node.instruction;
    match i.flow_control() {
        FlowControl::Next | FlowControl::ConditionalBranch => {
            graph.find(node.instance, i.next_ip())
        }
        FlowControl::UnconditionalBranch => graph.find(node.instance, i.near_branch_target()),
        FlowControl::IndirectBranch => graph.find(node.instance, *graph.through.get(&n)?),
        FlowControl::Call if is_kernel_call(i) => graph.find(node.instance, i.next_ip()),
        FlowControl::Call | FlowControl::IndirectCall => {
            let inner = graph.calls.iter().position(|c| c.node == n)?;
            graph.find(u8::try_from(inner + 1).ok()?, graph.calls[inner].target)
        }
        FlowControl::Return => {
            let call = graph.called(node.instance)?;
            graph.find(call.from, call.back)
        }
        _ => None,
    }
}
