//! Guesses the targets of calls and jumps through pointers: through the linker's slots (calls
//! into libraries), through tables of virtual functions and through registers. The guess comes
//! from memory and from the stack; the copy compares the pointer and continues in the original
//! code if it differs. Called by the planner, and by the tool to learn which code to read.

use crate::facts::at_fault;
use crate::flow::{Graph, OUTER};
use crate::pointers::{Context, Targets, add, is_thread_local, is_through, slot};
use crate::registers::Register;
use crate::request::{Code, Frame, Memory, Met, MovedPage, Relocation, Request};
use crate::speculate::{exact, loaded};
use crate::values::{State, Values};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use iced_x86::{Code as Iced, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};
use sunder_access::{Address, CodeAddress};
use sunder_x86::{Action, Manual};

/// The most instructions that are followed to find the targets of calls through pointers.
const MOST_FORESEEN: usize = 1024;

/// The functions that a function calls or jumps to at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// Those called where control can still get to the function's end, by ascending address. Calls
    /// that only report a failure (a bounds check of Rust, an assertion) are left out.
    pub all: Vec<CodeAddress>,
    /// Those that are called in the loop that contains the current instruction; `None` if it is
    /// in no loop.
    pub looped: Option<Vec<CodeAddress>>,
    /// Whether control can get from the current instruction to the function's end. A function that
    /// only reports a failure has none.
    pub ends: bool,
}

/// The functions that a function calls, as far as its own instructions and the linker's slots
/// tell.
pub fn call_targets(frame: &Frame<'_>, memory: Memory<'_>, moved: &MovedPage) -> Called {
    let context = Context {
        moved: Some(moved),
        ..Context::alone(memory)
    };
    let mut graph = Graph::of(frame, &context);
    let leads_to = |n: usize| {
        let i = &graph.nodes[n].instruction;
        if is_through(i) {
            return context.targets(i);
        }
        let leaves = i.is_jmp_short_or_near() && !frame.code.contains(i.near_branch_target());
        let leads = leaves || i.is_call_near();
        leads.then(|| i.near_branch_target()).into_iter().collect()
    };
    let targets: BTreeMap<usize, Vec<u64>> =
        (0..graph.nodes.len()).map(|n| (n, leads_to(n))).collect();
    let those = |wanted: &dyn Fn(&usize) -> bool| {
        let mut those: Vec<CodeAddress> = targets
            .iter()
            .filter(|(n, _)| wanted(n))
            .flat_map(|(_, targets)| targets)
            .map(|&target| CodeAddress(target))
            .collect();
        those.sort_unstable();
        those.dedup();
        those
    };
    graph.pass_calls();
    let at = graph.find(OUTER, frame.ip.0);
    let outermost = at.and_then(|at| graph.loops(at).into_iter().next());
    let comes_to_an_end = graph.before_ends(&frame.code);
    Called {
        all: those(&|&n| comes_to_an_end[n]),
        looped: outermost.map(|body| those(&|n| body.contains(n))),
        ends: at.is_some_and(|at| comes_to_an_end[at]),
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

/// Calls and jumps through pointers in the code of a request, with the functions to which they lead
/// as far as the registers, the stack and earlier questions tell: the copy could use the code of
/// these.
pub fn more_targets(request: &Request<'_>) -> Vec<Met> {
    let all = targets(request).into_iter();
    let each = all.flat_map(|(back, functions)| functions.into_iter().map(move |f| (back, f)));
    let met = each.map(|(back, function)| Met {
        back: CodeAddress(back),
        function: CodeAddress(function),
    });
    met.filter(|met| met.function.0 != 0).collect()
}

/// The targets of calls through pointers, as far as the stack and the registers tell.
pub(crate) fn targets(request: &Request<'_>) -> Targets {
    let mut targets = Targets::new();
    // The return address of each caller shows that it called the function within it.
    let mut inner = request.frame.code.start.0;
    for caller in request.callers {
        add(&mut targets, caller.ip.0, inner);
        inner = caller.code.start.0;
    }
    let own = [request.frame.code];
    let callers = request.callers.iter().map(|caller| caller.code);
    let all = own.into_iter().chain(callers);
    let all: Vec<Code<'_>> = all.chain(request.callees.iter().copied()).collect();
    let is_there = |met: &&Met| all.iter().any(|code| code.contains(met.back.0));
    for met in request.met.iter().filter(is_there) {
        add(&mut targets, met.back.0, met.function.0);
    }
    // As when a loop is chosen: the outermost one. What a thread does after it is not copied.
    for depth in (0..=request.callers.len()).rev() {
        if Graph::looped(request, depth).is_none() {
            continue;
        }
        let before = targets.clone();
        let context = Context::of(request, &before);
        if let Some((graph, at)) = Graph::within(request, depth, &context) {
            foresee(request, graph, at, &mut targets);
            break;
        }
    }
    targets
}

/// Follows the thread from the fault on in its outermost loop, as far as its registers and memory are
/// known.
fn foresee(request: &Request<'_>, mut graph: Graph, at: usize, targets: &mut Targets) {
    graph.pass_calls();
    let Some(body) = graph.loops(at).into_iter().next() else {
        return;
    };
    let mut manual = Manual::new();
    let start = at_fault(request);
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
            add(targets, i.next_ip(), target);
        }
        let mut after = node.effects.apply(&state);
        if let Some((register, value)) = loaded(request, i, &state) {
            after[register.index()] = value.map(Values::one);
        }
        if let Some((register, value)) = popped(request, i, &state) {
            after[register.index()] = Some(Values::one(value));
        }
        for &next in &node.next {
            if met.len() < MOST_FORESEEN && body.contains(&next) && met.insert(next) {
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
    let delta = match request.moved.relocation(place, 8) {
        Relocation::Elsewhere => 0,
        Relocation::In(rule) => rule.delta,
        Relocation::Straddles => return None,
    };
    (request.memory.0)(Address(place.wrapping_add_signed(delta)), 8)
}

/// The register that is popped from the stack, and its value, which a caller kept there.
fn popped(request: &Request<'_>, i: &Instruction, state: &State) -> Option<(Register, u64)> {
    let pops = i.mnemonic() == Mnemonic::Pop && i.op0_kind() == OpKind::Register;
    let register = pops.then(|| Register::whole(i.op0_register()))??;
    let at = state[Register::RSP.index()]?.only()?;
    Some((register, (request.memory.0)(Address(at), 8)?))
}
