//! Guesses the targets of calls and jumps through pointers: through the linker's slots (calls
//! into libraries), through tables of virtual functions and through registers. The guess comes
//! from memory and from the stack; the copy compares the pointer and continues in the original
//! code if it differs. Called by the planner, and by the tool to learn which code to read.

use crate::flow::{Graph, OUTER};
use crate::plan::known;
use crate::reach::is_far;
use crate::registers::Register;
use crate::request::{Code, Frame, Memory, MovedPage, Place, Request};
use crate::speculate::{exact, loaded};
use crate::values::{State, Values};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use iced_x86::{
    Code as Iced, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind,
    Register as Part,
};
use sunder_access::{Address, CodeAddress};
use sunder_x86::{Action, Manual};

/// Kernel calls that take no pointers, change only `rax` (and `rcx` and `r11`) and never wait:
/// queries of a thread about itself, and yielding the CPU. A copy may make such a call: an
/// interruption finds either the result in `rax` or the call not yet made, as in the original.
const HARMLESS: [u32; 9] = [
    24,  // sched_yield
    39,  // getpid
    102, // getuid
    104, // getgid
    107, // geteuid
    108, // getegid
    110, // getppid
    111, // getpgrp
    186, // gettid
];

/// The most instructions that are followed to find the targets of calls through pointers.
const MOST_FORESEEN: usize = 1024;

/// Whether copies make the kernel call with this number themselves.
pub const fn is_harmless(number: u32) -> bool {
    let mut n = 0;
    while n < HARMLESS.len() {
        if HARMLESS[n] == number {
            return true;
        }
        n += 1;
    }
    false
}

/// The targets of calls and jumps through pointers, by the address after the instruction.
pub(crate) type Targets = BTreeMap<u64, u64>;

/// What is known in addition to the code of a function.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    /// Functions that may be copied too.
    pub callees: &'a [Code<'a>],
    pub memory: Memory<'a>,
    /// The moved page, which may contain the linker's slots.
    pub moved: Option<&'a MovedPage>,
    pub targets: &'a Targets,
    /// The address of the copy, if there is to be one.
    pub at: Option<CodeAddress>,
}

/// No targets are known.
pub(crate) static NOWHERE: Targets = Targets::new();

impl<'a> Around<'a> {
    /// For the analysis of one function alone.
    pub(crate) const fn alone(memory: Memory<'a>) -> Self {
        Self {
            callees: &[],
            memory,
            moved: None,
            targets: &NOWHERE,
            at: None,
        }
    }

    pub(crate) const fn of(request: &Request<'a>, targets: &'a Targets) -> Self {
        Self {
            callees: request.callees,
            memory: request.memory,
            moved: Some(request.moved),
            targets,
            at: Some(request.at),
        }
    }

    /// Whether the copy could not reach an operand relative to rip.
    pub(crate) fn is_far(&self, i: &Instruction) -> bool {
        self.at.is_some_and(|at| is_far(i, at.0))
    }

    /// The probable target of a call or jump through a pointer.
    pub(crate) fn target(&self, i: &Instruction) -> Option<u64> {
        if !is_through(i) || is_thread_local(i) || self.is_far(i) {
            return None;
        }
        let slot = || {
            let slot = slot(i, self.moved)?;
            (self.memory.0)(slot, 8)
        };
        self.targets.get(&i.next_ip()).copied().or_else(slot)
    }

    pub(crate) fn code(&self, target: u64) -> Option<&'a Code<'a>> {
        self.callees.iter().find(|c| c.start.0 == target)
    }
}

/// The present address of the linker's slot through which a call or jump goes; `None` if it
/// does not go through one, or if the address is not known.
pub(crate) fn slot(i: &Instruction, moved: Option<&MovedPage>) -> Option<Address> {
    let slot = i.ip_rel_memory_address();
    if !i.is_ip_rel_memory_operand() {
        return None;
    }
    match moved.map_or(Place::Elsewhere, |page| page.place(slot, 8)) {
        Place::Elsewhere => Some(Address(slot)),
        Place::In(rule) => Some(Address(slot.wrapping_add_signed(rule.delta))),
        Place::Straddles => None,
    }
}

/// Whether the instruction is a near call or jump to an address in a register or in memory.
pub(crate) fn is_through(i: &Instruction) -> bool {
    let whole = match i.op0_kind() {
        OpKind::Register => i.op0_register().is_gpr64(),
        OpKind::Memory => i.memory_size().size() == 8,
        _ => false,
    };
    whole && (i.is_call_near_indirect() || i.is_jmp_near_indirect())
}

fn is_thread_local(i: &Instruction) -> bool {
    i.op0_kind() == OpKind::Memory && matches!(i.memory_segment(), Part::FS | Part::GS)
}

/// The number of the kernel call that `call` makes if it follows `before`.
pub(crate) fn number(call: &Instruction, before: &Instruction) -> Option<u32> {
    let moves = before.mnemonic() == Mnemonic::Mov
        && before.op0_kind() == OpKind::Register
        && before.op0_register() == Part::EAX
        && before.op1_kind() == OpKind::Immediate32;
    (call.code() == Iced::Syscall && moves && before.next_ip() == call.ip())
        .then(|| before.immediate32())
}

/// The functions that a function calls or jumps to at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// All of them, by ascending address.
    pub all: Vec<CodeAddress>,
    /// Those that are called in the loop that contains the current instruction; `None` if it is
    /// in no loop.
    pub looped: Option<Vec<CodeAddress>>,
}

/// The functions that a function calls, as far as its own instructions and the linker's slots
/// tell.
pub fn call_targets(frame: &Frame<'_>, memory: Memory<'_>, moved: &MovedPage) -> Called {
    let around = Around {
        moved: Some(moved),
        ..Around::alone(memory)
    };
    let mut graph = Graph::of(frame, &around);
    let leads_to = |n: usize| {
        let i = &graph.nodes[n].instruction;
        if is_through(i) {
            return around.target(i);
        }
        let leaves = i.is_jmp_short_or_near() && !frame.code.contains(i.near_branch_target());
        (leaves || i.is_call_near()).then(|| i.near_branch_target())
    };
    let targets: BTreeMap<usize, u64> = (0..graph.nodes.len())
        .filter_map(|n| Some((n, leads_to(n)?)))
        .collect();
    let those = |wanted: &dyn Fn(&usize) -> bool| {
        let mut those: Vec<CodeAddress> = targets
            .iter()
            .filter(|(n, _)| wanted(n))
            .map(|(_, &target)| CodeAddress(target))
            .collect();
        those.sort_unstable();
        those.dedup();
        those
    };
    graph.pass_calls();
    let at = graph.find(OUTER, frame.ip.0);
    let outermost = at.and_then(|at| graph.loops(at).into_iter().next());
    Called {
        all: those(&|_| true),
        looped: outermost.map(|body| those(&|n| body.contains(n))),
    }
}

/// Whether the code is a stub of the linker, which jumps to the address in a slot.
pub fn is_linker_stub(code: Code<'_>) -> bool {
    let mut decoder = Decoder::with_ip(64, code.bytes, code.start.0, DecoderOptions::NONE);
    let mut first = decoder.decode();
    if first.code() == Iced::Endbr64 {
        first = decoder.decode();
    }
    first.is_jmp_near_indirect() && first.is_ip_rel_memory_operand()
}

/// `code` without the hook after a harmless kernel call in it: such a hook only handles
/// pointers that the kernel could not follow, and these calls take none. `file` holds the same
/// code without hooks. `None` if any other byte differs, or if the jump to the hook overwrites
/// more than one instruction: a thread that leaves the copy there would continue in the middle
/// of that jump.
pub fn without_hooks(code: Code<'_>, file: &[u8]) -> Option<Vec<u8>> {
    const SHORTEST: usize = 5;
    if code.bytes.len() != file.len() {
        return None;
    }
    let mut decoder = Decoder::with_ip(64, file, code.start.0, DecoderOptions::NONE);
    let mut before = [Instruction::default(); 2];
    while decoder.can_decode() {
        let at = decoder.position();
        let i = decoder.decode();
        let end = decoder.position();
        if code.bytes.get(at..end)? != file.get(at..end)? {
            let [first, call] = &before;
            let harmless = number(call, first).is_some_and(is_harmless);
            let behind = call.next_ip() == i.ip();
            let jumps = code.bytes.get(at) == Some(&0xe9) && i.len() >= SHORTEST;
            if !(harmless && behind && jumps) || i.flow_control() != FlowControl::Next {
                return None;
            }
        }
        before = [before[1], i];
    }
    Some(file.to_vec())
}

/// Further functions whose code the copy could use: the targets of pointers that are known from
/// the registers and from the stack.
pub fn more_targets(request: &Request<'_>) -> Vec<CodeAddress> {
    let targets = targets(request);
    let is_new = |target: &u64| {
        let own = [request.frame.code.start.0, 0];
        !own.contains(target) && !request.callees.iter().any(|c| c.start.0 == *target)
    };
    let mut more: Vec<CodeAddress> = targets
        .into_values()
        .filter(is_new)
        .map(CodeAddress)
        .collect();
    more.sort_unstable();
    more.dedup();
    more
}

/// The targets of calls through pointers, as far as the stack and the registers tell.
pub(crate) fn targets(request: &Request<'_>) -> Targets {
    let mut targets = Targets::new();
    // The return address of each caller shows that it called the function within it.
    let mut inner = request.frame.code.start.0;
    for caller in request.callers {
        targets.insert(caller.ip.0, inner);
        inner = caller.code.start.0;
    }
    for depth in (0..=request.callers.len()).rev() {
        let before = targets.clone();
        let around = Around::of(request, &before);
        if let Some((graph, at)) = Graph::within(request, depth, &around) {
            foresee(request, graph, at, &mut targets);
            break;
        }
    }
    targets
}

/// Follows the thread from the fault on, as far as its registers and memory are known.
fn foresee(request: &Request<'_>, mut graph: Graph, at: usize, targets: &mut Targets) {
    graph.pass_calls();
    let mut manual = Manual::new();
    let start = known(request);
    let mut met = BTreeSet::from([at]);
    let mut open = vec![(at, start)];
    while let Some((n, state)) = open.pop() {
        let node = &graph.nodes[n];
        let i = &node.instruction;
        if is_through(i)
            && !is_thread_local(i)
            && !graph.tables.contains_key(&n)
            && let Some(target) = through(request, i, &state, &mut manual)
        {
            targets.insert(i.next_ip(), target);
        }
        let mut after = node.effects.apply(&state);
        if let Some((register, value)) = loaded(request, i, &state) {
            after[register.index()] = value.map(Values::one);
        }
        if let Some((register, value)) = popped(request, i, &state) {
            after[register.index()] = Some(Values::one(value));
        }
        for &next in &node.next {
            if met.len() < MOST_FORESEEN && met.insert(next) {
                open.push((next, after));
            }
        }
    }
}

/// The value of the pointer.
fn through(
    request: &Request<'_>,
    i: &Instruction,
    state: &State,
    manual: &mut Manual,
) -> Option<u64> {
    if i.op0_kind() == OpKind::Register {
        return state[Register::whole(i.op0_register())?.index()]?.only();
    }
    if let Some(slot) = slot(i, Some(request.moved)) {
        return (request.memory.0)(slot, 8);
    }
    // A call also writes its return address.
    let does = manual.does(i);
    let read = does.accesses().find(|a| a.action == Action::Read)?;
    let place = exact(&read.place, state)?;
    let stays = request.moved.place(place, 8) == Place::Elsewhere;
    stays.then(|| (request.memory.0)(Address(place), 8))?
}

/// The register that is popped from the stack, and its value, which a caller kept there.
fn popped(request: &Request<'_>, i: &Instruction, state: &State) -> Option<(Register, u64)> {
    let pops = i.mnemonic() == Mnemonic::Pop && i.op0_kind() == OpKind::Register;
    let register = pops.then(|| Register::whole(i.op0_register()))??;
    let at = state[Register::RSP.index()]?.only()?;
    Some((register, (request.memory.0)(Address(at), 8)?))
}
