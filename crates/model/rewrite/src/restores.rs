//! Ways through copied functions on which registers are restored that other ways leave alone: a lock
//! that is held, an error. What is known of such a register is lost behind the function, since memory
//! is not followed, and so every operand that it leads to would need a guard. Without these ways in the
//! copy, threads that take them go on in the original code, and come back at their next access to moved
//! bytes. Called by the planner. Decides only what is copied: nothing rests on a way's being rare.

use crate::facts::{Checks, needed};
use crate::flow::{Graph, is_plain_return};
use crate::nodes::Nodes;
use crate::registers::Register;
use crate::returns::{is_within, registers};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use iced_x86::{Instruction, Mnemonic, OpKind, Register as Iced};
use sunder_x86::Manual;

/// The most pointers in a chain that is followed.
const DEEPEST: usize = 4;

/// The registers of which something should be known before an instruction, so that the values of those in
/// `used` are known where they are used: those from which they are computed, and those of the places from
/// which they are loaded, since a loaded value can be checked.
pub(crate) fn of_use(
    graph: &Graph,
    body: &Nodes,
    mut used: BTreeMap<usize, u32>,
    checks: &Checks,
) -> BTreeMap<usize, u32> {
    let mut manual = Manual::new();
    for _ in 0..DEEPEST {
        let wanted = needed(graph, body, &used, checks, None);
        let mut changed = false;
        for &n in body {
            let node = &graph.nodes[n];
            let i = &node.instruction;
            let loads = i.op1_kind() == OpKind::Memory && i.op0_kind() == OpKind::Register;
            let Some(to) = Register::of(i.op0_register()).filter(|_| loads) else {
                continue;
            };
            if before_all(&wanted, &node.next) & to.bit() == 0 {
                continue;
            }
            let does = manual.does(i);
            let address = does.only_access().map_or(0, registers);
            let known = used.entry(n).or_insert(0);
            changed |= *known | address != *known;
            *known |= address;
        }
        if !changed {
            return wanted;
        }
    }
    needed(graph, body, &used, checks, None)
}

/// The registers that are of use before any of these instructions.
fn before_all(wanted: &BTreeMap<usize, u32>, nodes: &[usize]) -> u32 {
    let each = nodes.iter().filter_map(|n| wanted.get(n));
    each.fold(0, |all, registers| all | registers)
}

/// `body` without the ways on which functions restore registers of which something would be known
/// after them otherwise; `None` if there are no such ways. `wanted` has the registers that are of use
/// before each instruction, and `at` stays in the body.
pub(crate) fn without_restoring_ways(
    graph: &Graph,
    body: &Nodes,
    at: usize,
    wanted: &BTreeMap<usize, u32>,
) -> Option<Nodes> {
    let mut left_out = BTreeSet::new();
    for (number, call) in graph.calls.iter().enumerate() {
        let Ok(instance) = u8::try_from(number + 1) else {
            break;
        };
        let Some(start) = graph.find(instance, call.target) else {
            continue;
        };
        let restored = restored_in(graph, body, instance);
        let saved: BTreeSet<Register> = restored.iter().map(|(_, register)| *register).collect();
        for register in saved {
            let of_it = restored.iter().filter(|(_, other)| *other == register);
            let places: BTreeSet<usize> = of_it.map(|(n, _)| *n).collect();
            let is_of_use =
                |n: &usize| before_all(wanted, &graph.nodes[*n].next) & register.bit() != 0;
            if places.iter().any(is_of_use)
                && returns_without(graph, body, start, instance, &places)
            {
                left_out.extend(places);
            }
        }
    }
    if left_out.is_empty() || left_out.contains(&at) {
        return None;
    }
    let others = body.iter().copied().filter(|n| !left_out.contains(n));
    let rest = graph.cycle_within(at, &others.collect());
    (!rest.is_empty()).then_some(rest)
}

/// The instructions of an instance that restore a register from the stack, each with the register.
fn restored_in(graph: &Graph, body: &Nodes, instance: u8) -> Vec<(usize, Register)> {
    let own = body
        .iter()
        .filter(|n| graph.nodes[**n].instance == instance);
    own.filter_map(|&n| Some((n, restored(&graph.nodes[n].instruction)?)))
        .collect()
}

/// The register that an instruction pops, or loads from the stack.
fn restored(i: &Instruction) -> Option<Register> {
    let is_on_stack = i.op1_kind() == OpKind::Memory && i.memory_base() == Iced::RSP;
    let restores = match i.mnemonic() {
        Mnemonic::Pop => true,
        Mnemonic::Mov => is_on_stack && i.memory_index() == Iced::None,
        _ => false,
    };
    (restores && i.op0_kind() == OpKind::Register).then(|| Register::whole(i.op0_register()))?
}

/// Whether control gets from the start of an instance to its return without coming to `places`.
fn returns_without(
    graph: &Graph,
    body: &Nodes,
    start: usize,
    instance: u8,
    places: &BTreeSet<usize>,
) -> bool {
    let mut met = BTreeSet::from([start]);
    let mut open = Vec::from([start]);
    while let Some(n) = open.pop() {
        let node = &graph.nodes[n];
        if places.contains(&n) || !body.contains(&n) || !is_within(graph, node.instance, instance) {
            continue;
        }
        if node.instance == instance && is_plain_return(&node.instruction) {
            return true;
        }
        open.extend(node.next.iter().copied().filter(|&next| met.insert(next)));
    }
    false
}
