//! Whether a register at an instruction of a loop differs from round to round by the
//! loop's own doing. Called by the planner of operands that need guards: one value that
//! was seen says nothing of the next then.

use crate::flow::Graph;
use crate::registers::Register;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use sunder_x86::Manual;

/// Instructions that a value is made by; where there are more nothing is said.
const MOST: usize = 48;

/// Whether what makes `register` at `at` goes around in `body`: a counter, a pointer that
/// walks, or what is computed of them. What is loaded anew each round from places that
/// stay is not: it mostly stays as well.
pub(crate) fn varies(graph: &Graph, body: &BTreeSet<usize>, at: usize, register: Register) -> bool {
    let mut manual = Manual::new();
    let mut made_by: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut open = writers(graph, body, at, register);
    while let Some(n) = open.pop() {
        if made_by.contains_key(&n) {
            continue;
        }
        if made_by.len() >= MOST {
            return false;
        }
        let sources = sources(graph, n, &mut manual);
        let from: Vec<usize> = sources.flat_map(|r| writers(graph, body, n, r)).collect();
        open.extend(&from);
        made_by.insert(n, from);
    }
    made_by.keys().any(|&n| makes_itself(&made_by, n))
}

/// The registers that an instruction reads, but for the stack pointer, which comes back.
fn sources(graph: &Graph, n: usize, manual: &mut Manual) -> impl Iterator<Item = Register> {
    let read = manual.does(&graph.nodes[n].instruction).registers.read;
    (0..16)
        .map(Register)
        .filter(move |r| u32::from(read) & r.bit() != 0 && *r != Register::RSP)
}

/// The last instructions before `at` that write `register`, on each way.
fn writers(graph: &Graph, body: &BTreeSet<usize>, at: usize, register: Register) -> Vec<usize> {
    let mut found = Vec::new();
    let mut met: BTreeSet<usize> = BTreeSet::new();
    let before = |n: usize| graph.nodes[n].before.iter().filter(|b| body.contains(b));
    let mut open: Vec<usize> = before(at).copied().collect();
    while let Some(n) = open.pop() {
        if !met.insert(n) {
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

fn makes_itself(made_by: &BTreeMap<usize, Vec<usize>>, n: usize) -> bool {
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
