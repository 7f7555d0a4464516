//! Variables of a function's frame that nobody else can reach: what code that was compiled
//! without optimisation loads again and again, its pointers above all. They are followed as
//! if they were registers, so that what is loaded from them needs no check. Called by the
//! planner.
//!
//! A slot is 8 bytes at a distance from rbp. It is the thread's own if the function keeps
//! rbp as its frame's, and nothing in it makes an address of the frame: then nobody was
//! given one. And it is what facts say if every store of the loop has an address that
//! facts keep apart from it. As with return addresses ([`crate::returns`]), what another
//! thread writes to a stack that is not its own is not seen; nor is what a handler of
//! exceptions does that lies outside the function's code.

use crate::effects::State;
use crate::facts::Facts;
use crate::flow::{Graph, OUTER, is_kernel_call};
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

/// What the frame's variables are counted from.
const FRAME: Part = Part {
    register: sunder_x86::register::RBP,
    bits: 64,
};

/// Bytes of a slot.
const WIDTH: u64 = 8;

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    /// What to add to rbp, by the slots' numbers.
    displacements: Vec<u64>,
}

impl Slots {
    /// Those that the loop loads; none if the frame is not the thread's own, or changes.
    pub(crate) fn of(graph: &Graph, body: &BTreeSet<usize>, code: &Code<'_>) -> Option<Self> {
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
        (!displacements.is_empty() && is_own(graph, code)).then_some(Self { displacements })
    }

    /// The slot that is all of the instruction's operand.
    pub(crate) fn register(&self, i: &Instruction) -> Option<Register> {
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

    /// Where a slot lies from rbp on.
    pub(crate) fn displacement(&self, slot: Register) -> Option<u64> {
        self.displacements.get(slot.as_slot()?).copied()
    }

    /// Adds what they hold now.
    pub(crate) fn add(&self, request: &Request<'_>, state: &mut State) {
        let rbp = request.registers.get(Register::RBP);
        for (number, &displacement) in self.displacements.iter().enumerate() {
            let at = Address(rbp.wrapping_add(displacement));
            let value = (request.memory.0)(at, WIDTH);
            state[Register::slot(number).index()] = value.map(crate::values::Values::one);
        }
    }

    /// The registers on which it rests that no store of the loop reaches a slot unseen, by
    /// the instruction that they are used at; none if one may.
    pub(crate) fn keep(
        &self,
        graph: &Graph,
        body: &BTreeSet<usize>,
        facts: &Facts,
    ) -> Option<BTreeMap<usize, u32>> {
        let mut manual = Manual::new();
        let mut used = BTreeMap::new();
        // What has no facts is never reached.
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
                    // A slot, or known to lie beside them.
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

/// Whether nothing in the function makes an address of its frame, but to reach a variable
/// at once.
fn is_own(graph: &Graph, code: &Code<'_>) -> bool {
    let ip = code.start.0;
    let mut decoder = Decoder::with_ip(64, code.bytes, ip, DecoderOptions::NONE);
    // Also what is not known to be reached: a handler of exceptions may be.
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
                || !i.is_invalid() && leaves_alone(i) && stays(i, code)
        })
}

fn sets_frame(i: &Instruction) -> bool {
    i.mnemonic() == Mnemonic::Mov && i.op0_register() == Iced::RBP && i.op1_register() == Iced::RSP
}

/// Whether no address of the frame comes from it, and rsp stays where the code alone says.
fn leaves_alone(i: &Instruction) -> bool {
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

/// Whether a branch leads nowhere else: other parts of the function have the same frame.
fn stays(i: &Instruction, code: &Code<'_>) -> bool {
    match i.flow_control() {
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
            code.contains(i.near_branch_target())
        }
        _ => true,
    }
}
