//! Which registers have the same value whenever control comes to an instruction
//! of a loop: constant propagation that starts with the registers of one thread
//! at one instruction. Whatever enters the loop elsewhere must bring the facts of
//! that place along.

use crate::effects::State;
use crate::flow::Graph;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;

/// Facts by instruction.
pub(crate) type Facts = BTreeMap<usize, State>;

/// The facts within `body`, from `start` where the registers are `state`. What
/// can't be reached has none.
pub(crate) fn facts(graph: &Graph, body: &BTreeSet<usize>, start: usize, state: State) -> Facts {
    let mut facts = BTreeMap::from([(start, state)]);
    let mut open = vec![start];
    while let Some(n) = open.pop() {
        let Some(before) = facts.get(&n) else {
            continue;
        };
        let after = graph.nodes[n].effects.apply(before);
        for &next in &graph.nodes[n].next {
            if !body.contains(&next) {
                continue;
            }
            let met = match facts.get(&next) {
                Some(old) => meet(old, &after),
                None => after,
            };
            if facts.get(&next) != Some(&met) {
                facts.insert(next, met);
                open.push(next);
            }
        }
    }
    facts
}

fn meet(a: &State, b: &State) -> State {
    let mut both = *a;
    for (value, other) in both.iter_mut().zip(b) {
        if *value != *other {
            *value = None;
        }
    }
    both
}

/// The registers at each instruction from which the values of those in `used`
/// follow, wherever they are used.
pub(crate) fn needed(
    graph: &Graph,
    body: &BTreeSet<usize>,
    used: &BTreeMap<usize, u16>,
) -> BTreeMap<usize, u16> {
    let mut needed: BTreeMap<usize, u16> = BTreeMap::new();
    loop {
        let mut changed = false;
        for &n in body.iter().rev() {
            let node = &graph.nodes[n];
            let next = node.next.iter().filter_map(|next| needed.get(next));
            let after = next.fold(0, |all, &registers| all | registers);
            let before = node.effects.sources(after) | used.get(&n).copied().unwrap_or(0);
            changed |= needed.insert(n, before) != Some(before);
        }
        if !changed {
            return needed;
        }
    }
}
