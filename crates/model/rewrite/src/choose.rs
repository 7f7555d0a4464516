//! Chooses the code to copy for a fault: the outermost loop around the instruction that has a plan,
//! or the instruction alone. Called by the crate's entry points; how a loop's operands are planned
//! is in [`crate::plan`].

use crate::bounds::{Wandering, plan};
use crate::calls::targets;
use crate::effects::UNKNOWN;
use crate::facts::{Checks, Facts, at_fault};
use crate::flow::{Graph, OUTER, can_be_copied};
use crate::live::{live_flags, live_registers};
use crate::nodes::Nodes;
use crate::operand::Operand;
use crate::plan::{Planned, Planner, seen_now};
use crate::pointers::{Context, Targets};
use crate::reach::is_far;
use crate::request::{Code, Frame, Refusal, Relocation, Request, Seen};
use crate::scaled::products;
use crate::slots::Slots;
use crate::strings::{StringOperation, parts};
use crate::version::Version;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use sunder_x86::Manual;

/// The code to copy, with its plans.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub graph: Graph,
    pub body: Nodes,
    /// The instruction that faulted.
    pub at: usize,
    pub is_loop: bool,
    /// The plans where all checks held.
    pub fast: Version,
    /// The plans where a check failed.
    pub slow: Version,
    pub checks: Checks,
    /// Checks of the slow copy that return to the fast one if they hold.
    pub returns: BTreeSet<usize>,
    /// Slots of the frame that are followed where all checks held.
    pub slots: Option<Slots>,
    /// The registers of the operand that faulted.
    pub seen: Seen,
    /// Instructions before which no comparison may be placed.
    pub live_flags: BTreeSet<usize>,
    /// The general registers that may be read after each instruction, if some operands are out of reach
    /// of the copy; else empty, which says nothing.
    pub live: Vec<u16>,
}

/// Chooses the code to copy; with `only_alone` just the instruction that faulted.
pub(crate) fn choose(request: &Request<'_>, only_alone: bool) -> Result<Chosen, Refusal> {
    let ip = request.frame.ip;
    let targets = if only_alone {
        Targets::new()
    } else {
        targets(request)
    };
    let context = Context::of(request, &targets);
    let one = only_alone.then(|| one(&request.frame)).flatten();
    let own = Graph::of(one.as_ref().unwrap_or(&request.frame), &context);
    let at = own.find(OUTER, ip.0);
    let at = at.filter(|&n| can_be_copied(&own.nodes[n].instruction));
    let at = at.ok_or(Refusal::NoInstruction(ip))?;
    let seen = can_be_moved(request, &own, at)?;
    if !only_alone {
        // The outermost loop is best: to leave a copy and fault again takes as long as many
        // guards.
        for depth in (0..=request.callers.len()).rev() {
            // Analysing all called functions takes long, so the function's own loop is checked
            // first.
            let Some(outer) = Graph::looped(request, depth) else {
                continue;
            };
            let found = Graph::within(request, depth, &context);
            let Some((mut graph, at)) = found else {
                continue;
            };
            products(&mut graph);
            let live_flags = live_flags(&graph);
            let planner = Planner {
                request,
                graph: &graph,
                plain: &graph,
                code: &outer.code,
                at,
                live_flags,
            };
            if let Some((body, planned)) = planner.best() {
                let live_flags = planner.live_flags;
                let is_far = |&n: &usize| is_far(&graph.nodes[n].instruction, request.near.0);
                let live = match body.iter().any(is_far) {
                    true => live_registers(&graph),
                    false => Vec::new(),
                };
                let chosen = planned.chosen(graph, body, at, seen, true);
                return Ok(Chosen {
                    live_flags,
                    live,
                    ..chosen
                });
            }
        }
    }
    let (body, planned) = alone(request, &own, at)?;
    Ok(planned.chosen(own, body, at, seen, false))
}

/// The instruction of a frame without the rest of its function, which takes long to decode.
/// `None` if control may go elsewhere than to the next instruction.
fn one<'a>(frame: &Frame<'a>) -> Option<Frame<'a>> {
    let at = usize::try_from(frame.ip.0.checked_sub(frame.code.start.0)?).ok()?;
    let bytes = frame.code.bytes.get(at..)?;
    let i = Decoder::with_ip(64, bytes, frame.ip.0, DecoderOptions::NONE).decode();
    let goes_on = !i.is_invalid() && i.flow_control() == FlowControl::Next;
    let code = Code {
        start: frame.ip,
        bytes: bytes.get(..i.len()).filter(|_| goes_on)?,
    };
    Some(Frame { code, ..*frame })
}

impl Planned {
    fn chosen(self, graph: Graph, body: Nodes, at: usize, seen: Seen, is_loop: bool) -> Chosen {
        Chosen {
            graph,
            body,
            at,
            is_loop,
            fast: self.fast,
            slow: self.slow,
            checks: self.checks,
            returns: self.returns,
            slots: self.slots,
            seen,
            live_flags: BTreeSet::new(),
            live: Vec::new(),
        }
    }
}

/// The registers of the operand that faulted, if any displacement can move it.
fn can_be_moved(request: &Request<'_>, graph: &Graph, at: usize) -> Result<Seen, Refusal> {
    let ip = request.frame.ip;
    let instruction = &graph.nodes[at].instruction;
    if let Some(operation) = StringOperation::of(instruction) {
        parts(request, &operation)?;
        return Ok(operation.seen(request));
    }
    let mut manual = Manual::new();
    let operand = Operand::of(instruction, &mut manual).ok_or(Refusal::Operand(ip))?;
    let state = at_fault(request);
    let (Some(base), Some(index)) = operand.single(&state) else {
        return Err(Refusal::Operand(ip));
    };
    match request
        .moved
        .relocation(operand.address(base, index), operand.width)
    {
        Relocation::Elsewhere => Err(Refusal::Elsewhere(ip)),
        Relocation::Straddles => Err(Refusal::Straddles(ip)),
        Relocation::In(rule) if operand.displaced(rule.delta).is_none() => {
            Err(Refusal::OutOfReach(ip))
        }
        Relocation::In(_) => Ok(seen_now(request, &operand)),
    }
}

/// The plan for the instruction alone. The entry's conditions check its bounds.
fn alone(request: &Request<'_>, graph: &Graph, at: usize) -> Result<(Nodes, Planned), Refusal> {
    let ip = request.frame.ip;
    let mut manual = Manual::new();
    let unknown = UNKNOWN;
    if let Some(operation) = StringOperation::of(&graph.nodes[at].instruction) {
        let fast = Version {
            strings: BTreeMap::from([(at, parts(request, &operation)?)]),
            facts: Facts::from_iter([(at, unknown)]),
            ..Version::default()
        };
        let planned = Planned {
            fast,
            ..Planned::default()
        };
        return Ok((vec![at].into_iter().collect(), planned));
    }
    let operand = Operand::of(&graph.nodes[at].instruction, &mut manual);
    let operand = operand.ok_or(Refusal::Operand(ip))?;
    let seen = seen_now(request, &operand);
    let (plan, _) = plan(
        request.moved,
        &operand,
        &unknown,
        &[seen],
        &Wandering::new(),
        |_| false,
    );
    let fast = Version {
        plans: BTreeMap::from([(at, plan.ok_or(Refusal::OutOfReach(ip))?)]),
        facts: Facts::from_iter([(at, unknown)]),
        ..Version::default()
    };
    let planned = Planned {
        fast,
        ..Planned::default()
    };
    Ok((vec![at].into_iter().collect(), planned))
}
