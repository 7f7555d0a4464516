//! Guesses the address of an operand that depends on values in memory: pointers and indices
//! that the loop loads again and again are compared, directly after the load, with their values
//! when the thread faulted. After such a check they are facts. A wrong guess only costs time.

use crate::effects::State;
use crate::facts::{Check, Checks, Facts, facts, needed};
use crate::flow::Graph;
use crate::nodes::Nodes;
use crate::operand::Operand;
use crate::registers::Register;
use crate::request::{Relocation, Request, Rule, Seen};
use crate::strings::{StringOperation, foreseen};
use crate::values::Values;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register as Iced};
use sunder_access::{Address, CodeAddress};
use sunder_x86::{AddressForm, Manual};

/// The most pointers in a chain that is followed.
const DEEPEST: usize = 4;
/// The most checks in one copy; more would cost more than a guard for each operand.
const MOST_CHECKS: usize = 12;
/// The most instructions between a load and its check.
const FARTHEST: usize = 8;
/// The most instructions that are followed to see where this round of the loop goes.
const MOST_FORESEEN: usize = 256;

/// A load of a value that may be checked.
struct Load {
    register: Register,
    address: u64,
    width: u64,
    /// Computes the register's value from its old value and the memory's.
    value: fn(u64, u64) -> u64,
    /// The register's old value, if it matters.
    before: u64,
}

/// The operands on the page that the rest of this round will access, computed from the
/// registers at the fault.
pub(crate) fn foresee(
    request: &Request<'_>,
    graph: &Graph,
    body: &Nodes,
    (at, start): (usize, State),
) -> Vec<Seen> {
    let mut manual = Manual::new();
    let mut known = BTreeSet::from([at]);
    let mut open = vec![(at, start)];
    let mut seen = Vec::new();
    while let Some((n, state)) = open.pop() {
        let node = &graph.nodes[n];
        if n != at
            && let Some(operand) = Operand::of(&node.instruction, &mut manual)
            && let (Some(base), Some(index)) = operand.single(&state)
            && let Relocation::In(_) = request
                .moved
                .relocation(operand.address(base, index), operand.width)
        {
            seen.push(Seen {
                ip: CodeAddress(node.instruction.ip()),
                base,
                index,
                count: 0,
            });
        }
        if n != at
            && let Some(operation) = StringOperation::of(&node.instruction)
        {
            seen.extend(foreseen(
                request.moved,
                &operation,
                &node.instruction,
                &state,
            ));
        }
        let mut after = node.effects.apply(&state);
        if let Some((register, value)) = loaded(request, &node.instruction, &state)
            && after[register.index()].is_none_or(|v| v.only().is_none())
        {
            after[register.index()] = value.map(Values::one);
        }
        for &next in &node.next {
            if body.contains(&next) && known.len() < MOST_FORESEEN && known.insert(next) {
                open.push((next, after));
            }
        }
    }
    seen
}

/// The checks after which the addresses of `operands` are known; `None` if there are no such
/// checks. `flags` are the instructions before which no comparison may be placed.
pub(crate) fn checks(
    request: &Request<'_>,
    graph: &Graph,
    body: &Nodes,
    (at, start): (usize, State),
    operands: &BTreeMap<usize, Operand>,
    flags: &BTreeSet<usize>,
) -> Checks {
    let mut checks = Checks::new();
    let mut tried = BTreeSet::new();
    for _ in 0..DEEPEST {
        let facts = facts(graph, body, &[(at, start)], &checks);
        let unknown: BTreeMap<usize, u32> = operands
            .iter()
            .filter(|(n, operand)| !is_settled(request, operand, facts.get(n)))
            .map(|(&n, operand)| (n, operand.registers()))
            .collect();
        if unknown.is_empty() {
            break;
        }
        let slice = needed(graph, body, &unknown, &checks, None);
        let stores = stores(graph, body, &facts);
        let mut more = false;
        for &n in body {
            let next = graph.nodes[n].next.iter().filter_map(|n| slice.get(n));
            let wanted = next.fold(0, |all, &registers| all | registers);
            let load = facts
                .get(&n)
                .and_then(|s| load(&graph.nodes[n].instruction, s));
            let Some(load) = load else { continue };
            if wanted & load.register.bit() == 0 || checks.len() == MOST_CHECKS || !tried.insert(n)
            {
                continue;
            }
            let Some(value) = expected(request, &load, &stores) else {
                continue;
            };
            let register = load.register;
            let after = facts.get(&n).map(|s| graph.nodes[n].effects.apply(s));
            if after.is_some_and(|s| s[register.index()].and_then(Values::only).is_some()) {
                continue;
            }
            if let Some(place) = place(graph, body, n, register, operands, flags, &checks) {
                checks.insert(place, Check { register, value });
                more = true;
            }
        }
        if !more {
            break;
        }
    }
    checks
}

/// Whether no check could tell more about the operand's address.
fn is_settled(request: &Request<'_>, operand: &Operand, state: Option<&State>) -> bool {
    let addresses = state.and_then(|state| operand.addresses(state));
    addresses.is_some_and(|a| {
        a.only().is_some()
            || request.moved.relocation_of_each(a, operand.width) != Relocation::Straddles
    })
}

/// The instruction's load, if it does nothing else and the address is known.
fn load(i: &Instruction, state: &State) -> Option<Load> {
    if i.op_count() != 2
        || i.op0_kind() != OpKind::Register
        || i.op1_kind() != OpKind::Memory
        || matches!(i.memory_segment(), Iced::FS | Iced::GS)
    {
        return None;
    }
    let to = i.op0_register();
    if !to.is_gpr64() && !to.is_gpr32() {
        return None;
    }
    let register = Register::of(to)?;
    let width = i.memory_size().size() as u64;
    let wide = to.is_gpr64();
    let mut before = 0;
    let value: fn(u64, u64) -> u64 = match i.mnemonic() {
        Mnemonic::Mov | Mnemonic::Movzx => |value, _| value,
        Mnemonic::Movsxd if wide => |value, _| value as u32 as i32 as u64,
        Mnemonic::Add if wide => {
            before = state[register.index()]?.only()?;
            u64::wrapping_add
        }
        _ => return None,
    };
    let does = Manual::new().does(i);
    Some(Load {
        register,
        address: exact(&does.only_access()?.place, state)?,
        width: (1..=8).contains(&width).then_some(width)?,
        value,
        before,
    })
}

/// The register that the instruction loads, and its new value, as far as memory tells.
pub(crate) fn loaded(
    request: &Request<'_>,
    i: &Instruction,
    state: &State,
) -> Option<(Register, Option<u64>)> {
    let load = load(i, state)?;
    Some((load.register, expected(request, &load, &[])))
}

/// The address of an access, if it is known.
pub(crate) fn exact(place: &AddressForm, state: &State) -> Option<u64> {
    place.address(|number| state[Register(number).index()]?.only())
}

/// A store of the loop to a known address, with the value if that is known.
struct Store {
    address: u64,
    width: u64,
    value: Option<u64>,
}

fn stores(graph: &Graph, body: &Nodes, facts: &Facts) -> Vec<Store> {
    let mut manual = Manual::new();
    let mut stores = Vec::new();
    for n in body {
        let Some(state) = facts.get(n) else { continue };
        let i = &graph.nodes[*n].instruction;
        for access in manual.does(i).accesses() {
            if let (true, Some(address)) = (access.action.writes(), exact(&access.place, state)) {
                stores.push(Store {
                    address,
                    width: access.width.into(),
                    value: stored(i, state),
                });
            }
        }
    }
    stores
}

/// The stored value.
fn stored(i: &Instruction, state: &State) -> Option<u64> {
    let register = match i.mnemonic() {
        Mnemonic::Mov if i.op0_kind() == OpKind::Memory && i.op1_kind() == OpKind::Register => {
            i.op1_register()
        }
        Mnemonic::Push if i.op0_kind() == OpKind::Register => i.op0_register(),
        _ => return None,
    };
    let value = state[Register::of(register)?.index()]?.only()?;
    match (register.is_gpr64(), register.is_gpr32()) {
        (true, _) => Some(value),
        (_, true) => Some(value & 0xffff_ffff),
        _ => None,
    }
}

/// The value that the load will probably read. `None` if the loop itself changes it.
fn expected(request: &Request<'_>, load: &Load, stores: &[Store]) -> Option<u64> {
    let mut value = None;
    for store in stores {
        let ends = (
            store.address.saturating_add(store.width),
            load.address.saturating_add(load.width),
        );
        if store.address >= ends.1 || load.address >= ends.0 {
            continue;
        }
        let same = store.address == load.address && store.width == load.width;
        let stored = store.value.filter(|_| same)?;
        if value.is_some_and(|value| value != stored) {
            return None;
        }
        value = Some(stored);
    }
    let value = match value {
        Some(value) => value,
        None => {
            let place = request.moved.relocation(load.address, load.width);
            let delta = match place {
                Relocation::Elsewhere => 0,
                Relocation::In(Rule { delta, .. }) => delta,
                Relocation::Straddles => return None,
            };
            let address = Address(load.address.wrapping_add_signed(delta));
            (request.memory.0)(address, load.width)?
        }
    };
    Some((load.value)(value, load.before))
}

/// The first instruction from the load on after which the flags are dead.
fn place(
    graph: &Graph,
    body: &Nodes,
    load: usize,
    register: Register,
    operands: &BTreeMap<usize, Operand>,
    flags: &BTreeSet<usize>,
    taken: &Checks,
) -> Option<usize> {
    let mut n = load;
    for _ in 0..FARTHEST {
        let node = &graph.nodes[n];
        let [next] = node.next[..] else { return None };
        if node.exits
            || node.instruction.flow_control() != FlowControl::Next
            || !body.contains(&next)
        {
            return None;
        }
        if !flags.contains(&next) && !taken.contains_key(&n) {
            return Some(n);
        }
        let used = operands.get(&next).map_or(0, Operand::registers);
        if graph.nodes[next].effects.writes(register) || used & register.bit() != 0 {
            return None;
        }
        n = next;
    }
    None
}
