//! Which code is copied, and what becomes of each of its operands.

use crate::effects::State;
use crate::facts::{Facts, facts, needed};
use crate::flow::{Graph, OUTER};
use crate::live::wanted;
use crate::operand::Operand;
use crate::registers::Register;
use crate::request::{MovedPage, Place, Refusal, Request, Rule, Seen};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use iced_x86::InstructionInfoFactory;

/// Different places that one guarded operand may go to.
const MOST_ALTERNATIVES: usize = 4;

/// Bounds of registers under which an operand goes to one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alternative {
    pub bounds: Vec<(Register, u64, u64)>,
    /// What the copy has for a displacement.
    pub displacement: u64,
}

/// What becomes of an operand. Operands without a plan stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// The facts say that it always goes to one place.
    Direct(u64),
    /// Tried in this order.
    Guarded(Vec<Alternative>),
}

/// What is to be copied.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub graph: Graph,
    pub body: BTreeSet<usize>,
    /// The instruction that faulted.
    pub at: usize,
    pub is_loop: bool,
    pub plans: BTreeMap<usize, Plan>,
    pub facts: Facts,
    /// Facts that an entry must bring along.
    pub needed: BTreeMap<usize, u16>,
    /// The operand that faulted.
    pub seen: Seen,
    /// Where no comparison may stand.
    pub wanted: BTreeSet<usize>,
}

/// Decides; with `only_alone` for the one instruction.
pub(crate) fn choose(request: &Request<'_>, only_alone: bool) -> Result<Chosen, Refusal> {
    let ip = request.frame.ip;
    let own = Graph::of(&request.frame, request.callees);
    let at = own.find(OUTER, ip.0).ok_or(Refusal::NoInstruction(ip))?;
    let seen = can_be_moved(request, &own, at)?;
    let with_caller = match &request.caller {
        Some(caller) if own.loops(at).is_empty() => {
            let graph = Graph::of(caller, request.callees);
            let instance = graph.instance(caller.ip.0);
            let at = instance.and_then(|instance| graph.find(instance, ip.0));
            at.map(|at| (graph, at))
        }
        _ => None,
    };
    let (graph, at) = with_caller.unwrap_or((own, at));
    let mut best = None;
    let loops = if only_alone {
        Vec::new()
    } else {
        graph.loops(at)
    };
    for body in loops {
        let planned = plan_loop(request, &graph, &body, at);
        match planned.plans.get(&at) {
            Some(Plan::Direct(_)) => {
                best = Some((body, planned));
                break;
            }
            Some(Plan::Guarded(_)) if best.is_none() => best = Some((body, planned)),
            _ => {}
        }
    }
    let is_loop = best.is_some();
    let (body, planned) = match best {
        Some(best) => best,
        None => alone(request, &graph, at)?,
    };
    Ok(Chosen {
        graph,
        body,
        at,
        is_loop,
        plans: planned.plans,
        facts: planned.facts,
        needed: planned.needed,
        seen,
        wanted: planned.wanted,
    })
}

/// The operand that faulted, if it can go anywhere at all.
fn can_be_moved(request: &Request<'_>, graph: &Graph, at: usize) -> Result<Seen, Refusal> {
    let ip = request.frame.ip;
    let instruction = &graph.nodes[at].instruction;
    let mut factory = InstructionInfoFactory::new();
    let operand = Operand::of(instruction, &mut factory).ok_or(Refusal::Operand(ip))?;
    let state = request.registers.general.map(Some);
    let (Some(base), Some(index)) = operand.values(&state) else {
        return Err(Refusal::Operand(ip));
    };
    match request
        .moved
        .place(operand.address(base, index), operand.width)
    {
        Place::Elsewhere => Err(Refusal::Elsewhere(ip)),
        Place::Straddles => Err(Refusal::Straddles(ip)),
        Place::In(rule) if operand.displaced(rule.delta).is_none() => Err(Refusal::OutOfReach(ip)),
        Place::In(_) => Ok(seen_now(request, &operand)),
    }
}

#[derive(Debug, Default)]
struct Planned {
    plans: BTreeMap<usize, Plan>,
    facts: Facts,
    needed: BTreeMap<usize, u16>,
    wanted: BTreeSet<usize>,
}

fn plan_loop(request: &Request<'_>, graph: &Graph, body: &BTreeSet<usize>, at: usize) -> Planned {
    let state = request.registers.general.map(Some);
    let facts = facts(graph, body, at, state);
    let wanted = wanted(graph);
    let mut factory = InstructionInfoFactory::new();
    let (mut plans, mut used) = (BTreeMap::new(), BTreeMap::new());
    for &n in body {
        let node = &graph.nodes[n];
        let (Some(operand), Some(state)) =
            (Operand::of(&node.instruction, &mut factory), facts.get(&n))
        else {
            continue;
        };
        let ip = node.instruction.ip();
        let mut seen: Vec<Seen> = request
            .seen
            .iter()
            .filter(|s| s.ip.0 == ip)
            .copied()
            .collect();
        if n == at {
            seen.insert(0, seen_now(request, &operand));
        }
        let (plan, registers) = plan(request.moved, &operand, state, &seen);
        match plan {
            Some(Plan::Guarded(_)) if wanted.contains(&n) => {}
            Some(plan) => {
                plans.insert(n, plan);
                used.insert(n, registers);
            }
            None => {}
        }
    }
    Planned {
        needed: needed(graph, body, &used),
        plans,
        facts,
        wanted,
    }
}

fn seen_now(request: &Request<'_>, operand: &Operand) -> Seen {
    let get = |register: Option<Register>| register.map_or(0, |r| request.registers.get(r));
    Seen {
        ip: request.frame.ip,
        base: get(operand.base),
        index: get(operand.index),
    }
}

/// What becomes of an operand, and the facts that this builds on.
fn plan(moved: &MovedPage, operand: &Operand, state: &State, seen: &[Seen]) -> (Option<Plan>, u16) {
    let (base, index) = operand.values(state);
    if let (Some(base), Some(index)) = (base, index) {
        let place = moved.place(operand.address(base, index), operand.width);
        let plan = match place {
            Place::In(rule) => operand.displaced(rule.delta).map(Plan::Direct),
            Place::Elsewhere | Place::Straddles => None,
        };
        return (plan, operand.registers());
    }
    let mut alternatives: Vec<Alternative> = Vec::new();
    let all = seen;
    for seen in all {
        let fits = base.is_none_or(|b| b == seen.base) && index.is_none_or(|i| i == seen.index);
        if !fits || alternatives.len() == MOST_ALTERNATIVES {
            continue;
        }
        let place = moved.place(operand.address(seen.base, seen.index), operand.width);
        let Place::In(rule) = place else { continue };
        // One value of the base so far: it is compared with that alone, which takes
        // half as long. Others make it bounds.
        let others = || {
            all.iter()
                .any(|s| s.base != seen.base && in_rule(moved, operand, s, &rule))
        };
        let exact = operand.index.is_none() && !others();
        if let Some(new) = alternative(operand, (base, index), seen, &rule, exact)
            && !alternatives.contains(&new)
        {
            alternatives.push(new);
        }
    }
    let mut known = 0;
    if base.is_some() {
        known |= operand.base.map_or(0, Register::bit);
    }
    if index.is_some() {
        known |= operand.index.map_or(0, Register::bit);
    }
    let plan = (!alternatives.is_empty()).then_some(Plan::Guarded(alternatives));
    (plan, known)
}

/// Whether the operand went to this rule when it was seen.
fn in_rule(moved: &MovedPage, operand: &Operand, seen: &Seen, rule: &Rule) -> bool {
    let address = operand.address(seen.base, seen.index);
    moved.place(address, operand.width) == Place::In(*rule)
}

/// The bounds of the unknown registers around `seen` within which the operand stays
/// in `rule`; if `exact`, what was seen and nothing else.
fn alternative(
    operand: &Operand,
    (base, index): (Option<u64>, Option<u64>),
    seen: &Seen,
    rule: &Rule,
    exact: bool,
) -> Option<Alternative> {
    let address = operand.address(seen.base, seen.index);
    let below = address.wrapping_sub(rule.bytes.start.0);
    let above = rule
        .bytes
        .len
        .checked_sub(below)?
        .checked_sub(operand.width)?;
    let around = |register, value: u64, scale: u64| {
        if exact {
            return (register, value, value);
        }
        let low = value.checked_sub(below / scale);
        let high = value.checked_add(above / scale);
        match (low, high) {
            (Some(low), Some(high)) => (register, low, high),
            _ => (register, value, value),
        }
    };
    let mut bounds = Vec::new();
    match (operand.base, operand.index) {
        // One register in two roles does not stay on one side.
        (Some(b), Some(i)) if b == i => bounds.push((b, seen.base, seen.base)),
        (b, i) => {
            let index_varies = i.filter(|_| index.is_none());
            if let Some(b) = b.filter(|_| base.is_none()) {
                bounds.push(if index_varies.is_some() {
                    (b, seen.base, seen.base)
                } else {
                    around(b, seen.base, 1)
                });
            }
            if let Some(i) = index_varies {
                bounds.push(around(i, seen.index, operand.scale.max(1)));
            }
        }
    }
    Some(Alternative {
        bounds,
        displacement: operand.displaced(rule.delta)?,
    })
}

/// The one instruction, whatever surrounds it. Its bounds are looked at by whoever
/// enters.
fn alone(
    request: &Request<'_>,
    graph: &Graph,
    at: usize,
) -> Result<(BTreeSet<usize>, Planned), Refusal> {
    let ip = request.frame.ip;
    let mut factory = InstructionInfoFactory::new();
    let operand = Operand::of(&graph.nodes[at].instruction, &mut factory);
    let operand = operand.ok_or(Refusal::Operand(ip))?;
    let unknown = [None; 16];
    let seen = seen_now(request, &operand);
    let (plan, _) = plan(request.moved, &operand, &unknown, &[seen]);
    let planned = Planned {
        plans: BTreeMap::from([(at, plan.ok_or(Refusal::OutOfReach(ip))?)]),
        facts: Facts::from([(at, unknown)]),
        ..Planned::default()
    };
    Ok((vec![at].into_iter().collect(), planned))
}
