//! Tells whether a register at an instruction of a loop changes from round to round because of
//! the loop itself. Then a value that was seen says nothing about the next round. Called by the
//! planner for operands that need guards.

use crate::flow::Graph;
use crate::nodes::Nodes;
use crate::registers::Register;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use sunder_x86::Manual;

/// The most instructions that are followed; if more compute the value, the answer is no.
const MOST: usize = 48;

/// Whether the value of `register` at `at` depends on itself in an earlier round of `body`: a
/// counter, a pointer that advances, or something computed from them. A value that is loaded in
/// each round from the same place does not count, as it mostly stays the same.
pub(crate) fn varies_in_loop(graph: &Graph, body: &Nodes, at: usize, register: Register) -> bool {
    let mut manual = Manual::new();
    let mut within = vec![false; graph.nodes.len()];
    body.iter().for_each(|&n| within[n] = true);
    let mut made_by: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut open = writers(graph, &within, at, register);
    while let Some(n) = open.pop() {
        if made_by.contains_key(&n) {
            continue;
        }
        if made_by.len() >= MOST {
            return false;
        }
        let sources = sources(graph, n, &mut manual);
        let from: Vec<usize> = sources
            .flat_map(|r| writers(graph, &within, n, r))
            .collect();
        open.extend(&from);
        made_by.insert(n, from);
    }
    made_by.keys().any(|&n| depends_on_itself(&made_by, n))
}

/// The registers that an instruction reads, except for the stack pointer, which is restored.
fn sources(graph: &Graph, n: usize, manual: &mut Manual) -> impl Iterator<Item = Register> {
    let read = manual.does(&graph.nodes[n].instruction).registers.read;
    (0..16)
        .map(Register)
        .filter(move |r| u32::from(read) & r.bit() != 0 && *r != Register::RSP)
}

/// The last instructions `within` the loop before `at` that write `register`, on all paths.
fn writers(graph: &Graph, within: &[bool], at: usize, register: Register) -> Vec<usize> {
    let mut found = Vec::new();
    let mut met = vec![false; graph.nodes.len()];
    let before = |n: usize| graph.nodes[n].before.iter().filter(|b| within[**b]);
    let mut open: Vec<usize> = before(at).copied().collect();
    while let Some(n) = open.pop() {
        if core::mem::replace(&mut met[n], true) {
            continue;
        }
        if graph.nodes[n].effects.writes(register) {
            found.push(n);
        } else {
            open.extend(before(n));
        }
    }
    found
}

fn depends_on_itself(made_by: &BTreeMap<usize, Vec<usize>>, n: usize) -> bool {
    let of = |n: usize| made_by.get(&n).into_iter().flatten().copied();
    let mut met: BTreeSet<usize> = BTreeSet::new();
    let mut open: Vec<usize> = of(n).collect();
    while let Some(from) = open.pop() {
        if from == n {
            return true;
        }
        if met.insert(from) {
            open.extend(of(from));
        }
    }
    false
}
