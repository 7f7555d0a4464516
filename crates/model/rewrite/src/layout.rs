//! The order of the instructions in a copy: successors follow their predecessors, and functions
//! lie within their callers, so that the copy needs few additional jumps.

use crate::flow::Graph;
use crate::kernel::is_kernel_call;
use crate::nodes::Nodes;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use iced_x86::FlowControl;

/// All instructions of `body`, each once, in the order of the copy.
pub(crate) fn order(graph: &Graph, body: &Nodes) -> Vec<usize> {
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

/// The successor of `n` that needs no jump, or that a jump always leads to.
fn follower(graph: &Graph, n: usize) -> Option<usize> {
    let node = &graph.nodes[n];
    let i = &node.instruction;
    match i.flow_control() {
        FlowControl::Next | FlowControl::ConditionalBranch => {
            graph.find(node.instance, i.next_ip())
        }
        FlowControl::UnconditionalBranch => graph.find(node.instance, i.near_branch_target()),
        FlowControl::IndirectBranch => graph.find(node.instance, *graph.through.get(&n)?.first()?),
        FlowControl::Call if is_kernel_call(i) => graph.find(node.instance, i.next_ip()),
        FlowControl::Call | FlowControl::IndirectCall => {
            let (instance, target) = graph.instances(n).next()?;
            graph.find(instance, target)
        }
        FlowControl::Return => {
            let call = graph.called(node.instance)?;
            graph.find(call.from, call.back)
        }
        _ => None,
    }
}
