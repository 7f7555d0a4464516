//! Finds where flags are live. A guard compares, which changes the flags, so it can only be
//! placed where the copy sets them again before it reads them.

use crate::flow::Graph;
use alloc::collections::{BTreeMap, BTreeSet};
use iced_x86::RflagsBits;

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
