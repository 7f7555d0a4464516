//! Variables of a function's frame whose address no other code has. Unoptimised code loads them
//! again and again, above all pointers. They are followed like registers, so that values loaded
//! from them need no check. Called by the planner.
//!
//! A slot is 8 bytes at a distance from rbp. It is private to the thread if the function keeps
//! rbp as its frame pointer and computes no address of its frame, so that none was passed on.
//! Its facts hold if other facts show that no store of the loop overlaps it. As with return
//! addresses ([`crate::returns`]), two kinds of writes are not noticed: those of other threads
//! to this thread's stack, and those of exception handlers outside of the function's code.

use crate::effects::State;
use crate::facts::Facts;
use crate::flow::{Graph, OUTER};
use crate::kernel::is_kernel_call;
use crate::nodes::Nodes;
use crate::registers::{Register, SLOTS};
use crate::request::{Code, Request};
use crate::returns::{is_apart, is_unbounded, registers};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register as Iced,
};
use sunder_access::Address;
use sunder_x86::{Manual, Part, Reach};

/// The register to which the frame's variables are relative.
const FRAME: Part = Part {
    register: sunder_x86::register::RBP,
    bits: 64,
};

/// Bytes of a slot.
const WIDTH: u64 = 8;

/// The slots that are followed in a loop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    /// The distances from rbp, by the slots' numbers.
    displacements: Vec<u64>,
}

impl Slots {
    /// The slots that the loop loads; `None` if the frame is not private to the thread, or if
    /// the loop changes rbp or rsp.
    pub(crate) fn of(graph: &Graph, body: &Nodes, code: &Code<'_>) -> Option<Self> {
        let own = |n: &usize| {
            let node = &graph.nodes[*n];
            node.instance == OUTER
                && !node.effects.writes(Register::RBP)
                && !node.effects.writes(Register::RSP)
        };
        if !body.iter().all(own) {
            return None;
        }
        let mut manual = Manual::new();
        let mut used: BTreeMap<u64, u64> = BTreeMap::new();
        let mut loaded = BTreeSet::new();
        let mut split = BTreeSet::new();
        for n in body {
            let i = &graph.nodes[*n].instruction;
            for access in manual.does(i).accesses() {
                let place = access.place;
                let is_scattered = place.reach == Reach::Elements;
                if place.base != Some(FRAME) || place.index.is_some() || is_scattered {
                    continue;
                }
                let (at, width) = (place.displacement, u64::from(access.width));
                if width == 0 {
                    return None;
                }
                if used.insert(at, width).is_some_and(|w| w != width) || width != WIDTH {
                    split.insert(at);
                }
                let loads = i.op_count() == 2 && i.op1_kind() == OpKind::Memory;
                if loads && i.op0_kind() == OpKind::Register && i.op0_register().is_gpr64() {
                    loaded.insert(at);
                }
            }
        }
        let alone = |at: &u64| {
            let overlaps = |(other, width): (&u64, &u64)| {
                let far = (*other as i64).wrapping_sub(*at as i64);
                other != at && (-(*width as i64) < far && far < WIDTH as i64)
            };
            !split.contains(at) && !used.iter().any(overlaps)
        };
        let displacements: Vec<u64> = loaded.into_iter().filter(alone).take(SLOTS).collect();
        (!displacements.is_empty() && has_private_frame(graph, code))
            .then_some(Self { displacements })
    }

    /// `graph` with the slots followed like registers.
    pub(crate) fn followed(&self, graph: &Graph) -> Graph {
        let mut new = graph.clone();
        for node in new.nodes.iter_mut().filter(|n| n.instance == OUTER) {
            if let Some(slot) = self.register(&node.instruction) {
                node.effects = node.effects.with_slot(&node.instruction, slot);
            }
        }
        new
    }

    /// The slot that is exactly the instruction's operand.
    fn register(&self, i: &Instruction) -> Option<Register> {
        let explicit = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory);
        let plain = i.memory_base() == Iced::RBP
            && i.memory_index() == Iced::None
            && !matches!(i.memory_segment(), Iced::FS | Iced::GS);
        if !explicit || !plain || i.memory_size().size() as u64 != WIDTH {
            return None;
        }
        self.number(i.memory_displacement64()).map(Register::slot)
    }

    fn number(&self, displacement: u64) -> Option<usize> {
        self.displacements.iter().position(|&d| d == displacement)
    }

    /// The distance of a slot from rbp.
    pub(crate) fn displacement(&self, slot: Register) -> Option<u64> {
        self.displacements.get(slot.as_slot()?).copied()
    }

    /// Adds the present values of the slots to `state`.
    pub(crate) fn add(&self, request: &Request<'_>, state: &mut State) {
        let rbp = request.registers.get(Register::RBP);
        for (number, &displacement) in self.displacements.iter().enumerate() {
            let at = Address(rbp.wrapping_add(displacement));
            let value = (request.memory.0)(at, WIDTH);
            state[Register::slot(number).index()] = value.map(crate::values::Values::one);
        }
    }

    /// The registers whose facts show that no store of the loop overlaps a slot unnoticed, by
    /// the instruction at which they are used; `None` if one may.
    pub(crate) fn keep(
        &self,
        graph: &Graph,
        body: &Nodes,
        facts: &Facts,
    ) -> Option<BTreeMap<usize, u32>> {
        let mut manual = Manual::new();
        let mut used = BTreeMap::new();
        // An instruction without facts is never reached.
        let reached = body.iter().filter_map(|&n| Some((n, facts.get(&n)?)));
        for (n, state) in reached {
            let i = &graph.nodes[n].instruction;
            let does = manual.does(i);
            if is_unbounded(&does) && !is_kernel_call(i) {
                return None;
            }
            for store in does.accesses().filter(|access| access.action.writes()) {
                let place = store.place;
                if place.base == Some(FRAME) && place.index.is_none() && place.is_plain() {
                    // The store is to a slot, or known not to overlap any.
                    continue;
                }
                let rbp = state[Register::RBP.index()]?.only()?;
                for displacement in &self.displacements {
                    if !is_apart(store, state, rbp.wrapping_add(*displacement))? {
                        return None;
                    }
                }
                *used.entry(n).or_insert(0) |= registers(store) | Register::RBP.bit();
            }
        }
        Some(used)
    }
}

/// Whether the function computes no address of its frame, except to access a variable directly.
fn has_private_frame(graph: &Graph, code: &Code<'_>) -> bool {
    let ip = code.start.0;
    let mut decoder = Decoder::with_ip(64, code.bytes, ip, DecoderOptions::NONE);
    // Includes code that seems unreachable: it may be an exception handler.
    let all: Vec<Instruction> = decoder.iter().collect();
    let mut first = all
        .iter()
        .filter(|i| i.mnemonic() != Mnemonic::Endbr64)
        .take(2);
    let (Some(push), Some(set)) = (first.next(), first.next()) else {
        return false;
    };
    let is_prologue = push.mnemonic() == Mnemonic::Push
        && push.op0_register() == Iced::RBP
        && sets_frame(set)
        && set.ip().wrapping_sub(ip) <= 8;
    let reached = graph.nodes.iter().filter(|n| n.instance == OUTER);
    let reached = reached.map(|n| &n.instruction);
    is_prologue
        && all.iter().chain(reached).all(|i| {
            i.ip() == push.ip()
                || i.ip() == set.ip()
                || !i.is_invalid() && keeps_frame_private(i) && branches_within(i, code)
        })
}

fn sets_frame(i: &Instruction) -> bool {
    i.mnemonic() == Mnemonic::Mov && i.op0_register() == Iced::RBP && i.op1_register() == Iced::RSP
}

/// Whether the instruction passes on no address of the frame, and changes rsp only in a known
/// way.
fn keeps_frame_private(i: &Instruction) -> bool {
    let of_frame = |r: Iced| matches!(r.full_register(), Iced::RSP | Iced::RBP);
    let memory = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory);
    if memory {
        let by_rbp = i.memory_base() == Iced::RBP && i.memory_index() == Iced::None;
        let other = of_frame(i.memory_base()) || of_frame(i.memory_index());
        if other && (!by_rbp || i.mnemonic() == Mnemonic::Lea) {
            return false;
        }
    }
    let named = (0..i.op_count())
        .filter(|&n| i.op_kind(n) == OpKind::Register)
        .any(|n| of_frame(i.op_register(n)));
    let by_constant = matches!(i.mnemonic(), Mnemonic::Add | Mnemonic::Sub)
        && i.op0_register() == Iced::RSP
        && i.op1_kind() != OpKind::Register
        && i.op1_kind() != OpKind::Memory;
    let restores = i.mnemonic() == Mnemonic::Pop && i.op0_register() == Iced::RBP;
    !named && i.mnemonic() != Mnemonic::Enter || by_constant || restores
}

/// Whether a branch stays in the function: its other parts have the same frame.
fn branches_within(i: &Instruction, code: &Code<'_>) -> bool {
    match i.flow_control() {
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
            code.contains(i.near_branch_target())
        }
        _ => true,
    }
}
