//! Which code is copied, and what becomes of each of its operands.

use crate::effects::State;
use crate::facts::{Checks, Facts, facts, needed};
use crate::flow::{Graph, OUTER};
use crate::live::wanted;
use crate::operand::Operand;
use crate::registers::Register;
use crate::request::{MovedPage, Place, Refusal, Request, Rule, Seen};
use crate::speculate::{checks, foresee};
use crate::table::parts;
use crate::values::Values;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use iced_x86::InstructionInfoFactory;

/// Different places that one guarded operand may go to.
const MOST_ALTERNATIVES: usize = 4;

/// A loop of more instructions is left to the loops in it, if there are any.
const MOST_COPIED: usize = 1200;

/// A register is at least `low` and at most `high`; the guard need not look where
/// the facts say so already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub register: Register,
    pub low: u64,
    pub high: u64,
    pub test_low: bool,
    pub test_high: bool,
}

/// Bounds of registers under which an operand goes to one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alternative {
    pub bounds: Vec<Bound>,
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

/// One copy of the loop: there are two if some checks may fail.
#[derive(Debug, Default)]
pub(crate) struct Version {
    pub plans: BTreeMap<usize, Plan>,
    pub facts: Facts,
    /// Facts that an entry must bring along.
    pub needed: BTreeMap<usize, u16>,
    /// Sums before jumps through tables: the register of the distance, and where
    /// distances lead.
    pub switches: BTreeMap<usize, (Register, Vec<(i64, usize)>)>,
}

/// What is to be copied.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub graph: Graph,
    pub body: BTreeSet<usize>,
    /// The instruction that faulted.
    pub at: usize,
    pub is_loop: bool,
    /// Where all checks held.
    pub fast: Version,
    /// Where one has failed.
    pub slow: Version,
    pub checks: Checks,
    /// The checks that lead back where they hold.
    pub returns: BTreeSet<usize>,
    /// The operand that faulted.
    pub seen: Seen,
    /// Where no comparison may stand.
    pub wanted: BTreeSet<usize>,
}

/// What loops are planned with.
struct Planner<'a> {
    request: &'a Request<'a>,
    graph: &'a Graph,
    at: usize,
    wanted: BTreeSet<usize>,
}

#[derive(Default)]
struct Planned {
    fast: Version,
    slow: Version,
    checks: Checks,
    returns: BTreeSet<usize>,
}

/// Decides; with `only_alone` for the one instruction.
pub(crate) fn choose(request: &Request<'_>, only_alone: bool) -> Result<Chosen, Refusal> {
    let ip = request.frame.ip;
    let own = Graph::of(&request.frame, request.callees, request.memory);
    let at = own.find(OUTER, ip.0).ok_or(Refusal::NoInstruction(ip))?;
    let seen = can_be_moved(request, &own, at)?;
    if !only_alone {
        // The outermost loop: leaving a copy and faulting again takes as long as many
        // guards.
        for depth in (0..=request.callers.len()).rev() {
            let found = within(request, depth);
            let Some((graph, at)) = found else { continue };
            let wanted = wanted(&graph);
            let planner = Planner {
                request,
                graph: &graph,
                at,
                wanted,
            };
            if let Some((body, planned)) = planner.best() {
                let wanted = planner.wanted;
                return Ok(planned.chosen(graph, body, at, seen, wanted, true));
            }
        }
    }
    let (body, planned) = alone(request, &own, at)?;
    let wanted = BTreeSet::new();
    Ok(planned.chosen(own, body, at, seen, wanted, false))
}

/// The graph of the function so many callers above, and the instruction in it.
fn within(request: &Request<'_>, depth: usize) -> Option<(Graph, usize)> {
    let callers = request.callers.get(..depth)?;
    let outer = callers.last().unwrap_or(&request.frame);
    let graph = Graph::of(outer, request.callees, request.memory);
    let mut instance = OUTER;
    for caller in callers.iter().rev() {
        instance = graph.instance(instance, caller.ip.0)?;
    }
    let at = graph.find(instance, request.frame.ip.0)?;
    Some((graph, at))
}

impl Planned {
    fn chosen(
        self,
        graph: Graph,
        body: BTreeSet<usize>,
        at: usize,
        seen: Seen,
        wanted: BTreeSet<usize>,
        is_loop: bool,
    ) -> Chosen {
        Chosen {
            graph,
            body,
            at,
            is_loop,
            fast: self.fast,
            slow: self.slow,
            checks: self.checks,
            returns: self.returns,
            seen,
            wanted,
        }
    }
}

/// The operand that faulted, if it can go anywhere at all.
fn can_be_moved(request: &Request<'_>, graph: &Graph, at: usize) -> Result<Seen, Refusal> {
    let ip = request.frame.ip;
    let instruction = &graph.nodes[at].instruction;
    let mut factory = InstructionInfoFactory::new();
    let operand = Operand::of(instruction, &mut factory).ok_or(Refusal::Operand(ip))?;
    let state = known(request);
    let (Some(base), Some(index)) = operand.single(&state) else {
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

/// The registers at the fault.
fn known(request: &Request<'_>) -> State {
    request.registers.general.map(|v| Some(Values::one(v)))
}

impl Planner<'_> {
    /// The outermost loop of the outer function with a plan for the instruction. What
    /// is only a loop of a function that it calls is better seen from there.
    fn best(&self) -> Option<(BTreeSet<usize>, Planned)> {
        let mut loops = self.graph.loops(self.at);
        let is_outer = |n: &usize| self.graph.nodes[*n].instance == OUTER;
        loops.retain(|body| body.iter().any(is_outer));
        let small = loops.iter().any(|body| body.len() <= MOST_COPIED);
        loops
            .into_iter()
            .filter(|body| !small || body.len() <= MOST_COPIED)
            .map(|body| {
                let planned = self.plan(&body);
                (body, planned)
            })
            .find(|(_, planned)| planned.fast.plans.contains_key(&self.at))
    }

    fn plan(&self, body: &BTreeSet<usize>) -> Planned {
        let mut factory = InstructionInfoFactory::new();
        let operands: BTreeMap<usize, Operand> = body
            .iter()
            .filter_map(|&n| {
                let operand = Operand::of(&self.graph.nodes[n].instruction, &mut factory)?;
                Some((n, operand))
            })
            .collect();
        let mut seen = self.request.seen.to_vec();
        if let Some(operand) = operands.get(&self.at) {
            seen.insert(0, seen_now(self.request, operand));
        }
        seen.extend(foresee(self.request, self.graph, body, self.at));
        let starts = [(self.at, known(self.request))];
        let without = Checks::new();
        let plain = facts(self.graph, body, &starts, &without);
        let plain = self.version(body, plain, &operands, &seen, &without);
        let guarded = |version: &Version| {
            let operands = operands.keys().filter(|n| {
                let ip = self.graph.nodes[**n].instruction.ip();
                seen.iter().any(|s| s.ip.0 == ip)
                    && !matches!(version.plans.get(n), Some(Plan::Direct(_)))
            });
            operands.copied().collect::<Vec<usize>>()
        };
        let open = guarded(&plain);
        let only_plain = |plain| Planned {
            fast: plain,
            ..Planned::default()
        };
        if open.is_empty() {
            return only_plain(plain);
        }
        let wanted: BTreeMap<usize, Operand> = open.iter().map(|n| (*n, operands[n])).collect();
        let checks = checks(
            self.request,
            self.graph,
            body,
            self.at,
            &wanted,
            &self.wanted,
        );
        let fast = facts(self.graph, body, &starts, &checks);
        let fast = self.version(body, fast, &operands, &seen, &checks);
        if checks.is_empty() || guarded(&fast).len() >= open.len() {
            return only_plain(plain);
        }
        self.with_slow(body, fast, &operands, &seen, checks)
    }

    /// Adds the copy for when a check fails.
    fn with_slow(
        &self,
        body: &BTreeSet<usize>,
        fast: Version,
        operands: &BTreeMap<usize, Operand>,
        seen: &[Seen],
        checks: Checks,
    ) -> Planned {
        let mut starts = Vec::new();
        for n in checks.keys() {
            let node = &self.graph.nodes[*n];
            if let Some(before) = fast.facts.get(n) {
                let after = node.effects.apply(before);
                starts.extend(node.next.iter().map(|&next| (next, after)));
            }
        }
        let without = Checks::new();
        let slow = facts(self.graph, body, &starts, &without);
        let slow = self.version(body, slow, operands, seen, &without);
        let leads_back = |n: &usize| {
            let node = &self.graph.nodes[*n];
            let (Some(before), Some(check)) = (slow.facts.get(n), checks.get(n)) else {
                return false;
            };
            let mut after = node.effects.apply(before);
            after[check.register.index()] = Some(Values::one(check.value));
            let arrives = |next: &usize| {
                let needed = fast.needed.get(next).copied().unwrap_or(0);
                let facts = fast.facts.get(next);
                facts.is_some_and(|facts| brings(needed, facts, &after))
            };
            node.next.iter().all(arrives)
        };
        Planned {
            returns: checks.keys().copied().filter(leads_back).collect(),
            fast,
            slow,
            checks,
        }
    }

    /// What becomes of the operands where these facts hold.
    fn version(
        &self,
        body: &BTreeSet<usize>,
        facts: Facts,
        operands: &BTreeMap<usize, Operand>,
        seen: &[Seen],
        checks: &Checks,
    ) -> Version {
        let (mut plans, mut used) = (BTreeMap::new(), BTreeMap::new());
        for (&n, operand) in operands {
            let Some(state) = facts.get(&n) else { continue };
            let ip = self.graph.nodes[n].instruction.ip();
            let seen: Vec<Seen> = seen.iter().filter(|s| s.ip.0 == ip).copied().collect();
            let (plan, registers) = plan(self.request.moved, operand, state, &seen);
            match plan {
                Some(Plan::Guarded(_)) if self.wanted.contains(&n) => {}
                Some(plan) => {
                    plans.insert(n, plan);
                    used.insert(n, registers);
                }
                None => {}
            }
        }
        let mut switches = BTreeMap::new();
        for &jump in self.graph.tables.keys().filter(|n| body.contains(n)) {
            if let Some((sum, base, switch)) = self.switch(body, &facts, jump) {
                *used.entry(sum).or_insert(0) |= base.bit();
                switches.insert(sum, switch);
            }
        }
        Version {
            needed: needed(self.graph, body, &used, checks),
            plans,
            facts,
            switches,
        }
    }

    /// How a jump through a table finds its target in the copy: the sum before it,
    /// the register of the table, and the register and values of the distance.
    #[allow(clippy::type_complexity, reason = "used once, taken apart at once")]
    fn switch(
        &self,
        body: &BTreeSet<usize>,
        facts: &Facts,
        jump: usize,
    ) -> Option<(usize, Register, (Register, Vec<(i64, usize)>))> {
        let table = self.graph.tables.get(&jump)?;
        let [sum] = self.graph.nodes[jump].before[..] else {
            return None;
        };
        // The sum sets all flags: before it they are free.
        if !body.contains(&sum) || self.wanted.contains(&sum) {
            return None;
        }
        let [a, b] = parts(&self.graph.nodes[sum].instruction)?;
        let state = facts.get(&sum)?;
        let is_base = |r: Register| state[r.index()].and_then(Values::only) == Some(table.base);
        let (base, distance) = match (is_base(a), is_base(b)) {
            (true, false) => (a, b),
            (false, true) => (b, a),
            _ => return None,
        };
        let instance = self.graph.nodes[jump].instance;
        let found = table.targets.iter().filter_map(|&target| {
            let node = self.graph.find(instance, target)?;
            let far = target.wrapping_sub(table.base) as i64;
            let fits = i32::try_from(far).is_ok() && body.contains(&node);
            fits.then_some((far, node))
        });
        let mut ways: Vec<(i64, usize)> = found.collect();
        // Where the thread is now is where it often goes.
        let at = self.graph.nodes[self.at].instruction.ip();
        let distance_to = |n: usize| at.wrapping_sub(self.graph.nodes[n].instruction.ip());
        ways.sort_by_key(|&(_, n)| distance_to(n));
        (!ways.is_empty()).then_some((sum, base, (distance, ways)))
    }
}

/// Whether a thread with `state` brings along what is needed of `facts`.
fn brings(needed: u16, facts: &State, state: &State) -> bool {
    (0..16).all(|number| {
        if needed >> number & 1 == 0 {
            return true;
        }
        match (facts[number], state[number]) {
            (None, _) => true,
            (Some(facts), Some(values)) => facts.holds(values),
            (Some(_), None) => false,
        }
    })
}

fn seen_now(request: &Request<'_>, operand: &Operand) -> Seen {
    let get = |register: Option<Register>| register.map_or(0, |r| request.registers.get(r));
    Seen {
        ip: request.frame.ip,
        base: get(operand.base),
        index: get(operand.index),
    }
}

/// What becomes of an operand, and the registers whose facts this builds on.
fn plan(moved: &MovedPage, operand: &Operand, state: &State, seen: &[Seen]) -> (Option<Plan>, u16) {
    let addresses = operand.addresses(state);
    if let Some(all) = addresses {
        let place = moved.place_all(all.low, all.high, operand.width);
        match place {
            Place::In(rule) => {
                let plan = operand.displaced(rule.delta).map(Plan::Direct);
                return (plan, operand.registers());
            }
            Place::Elsewhere => return (None, 0),
            // It will fault, and be refused.
            Place::Straddles if all.only().is_some() => return (None, 0),
            Place::Straddles => {}
        }
    }
    let (base, index) = operand.single(state);
    let mut alternatives: Vec<Alternative> = Vec::new();
    let mut add = |new: Option<Alternative>| {
        if let Some(new) = new
            && alternatives.len() < MOST_ALTERNATIVES
            && !alternatives.contains(&new)
        {
            alternatives.push(new);
        }
    };
    for one in seen {
        let fits = base.is_none_or(|b| b == one.base) && index.is_none_or(|i| i == one.index);
        let place = moved.place(operand.address(one.base, one.index), operand.width);
        let (true, Place::In(rule)) = (fits, place) else {
            continue;
        };
        // One value of the base so far: it is compared with that alone, which takes
        // half as long. Others make it bounds.
        let others = || {
            seen.iter()
                .any(|s| s.base != one.base && in_rule(moved, operand, s, &rule))
        };
        let exact = operand.index.is_none() && addresses.is_none() && !others();
        add(alternative(operand, state, one, &rule, exact));
    }
    if let Some(all) = addresses.filter(|all| all.high - all.low < moved.page.len) {
        for rule in &moved.rules {
            add(part_of(operand, state, all, rule));
        }
    }
    let mut registers = 0;
    for (register, single) in [(operand.base, base), (operand.index, index)] {
        if let Some(register) = register
            && (single.is_some() || alternatives.iter().any(|a| a.leaves_out(register)))
        {
            registers |= register.bit();
        }
    }
    let plan = (!alternatives.is_empty()).then_some(Plan::Guarded(alternatives));
    (plan, registers)
}

impl Alternative {
    /// Whether a register is not fully tested.
    fn leaves_out(&self, register: Register) -> bool {
        let mut bounds = self.bounds.iter().filter(|b| b.register == register);
        bounds.any(|b| !b.test_low || !b.test_high)
    }
}

impl Bound {
    fn of(register: Register, low: u64, high: u64, state: &State) -> Self {
        let known = state[register.index()];
        Self {
            register,
            low,
            high,
            test_low: known.is_none_or(|k| k.low < low),
            test_high: known.is_none_or(|k| k.high > high),
        }
    }
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
    state: &State,
    seen: &Seen,
    rule: &Rule,
    exact: bool,
) -> Option<Alternative> {
    let (base, index) = operand.single(state);
    let address = operand.address(seen.base, seen.index);
    let below = address.wrapping_sub(rule.bytes.start.0);
    let above = rule
        .bytes
        .len
        .checked_sub(below)?
        .checked_sub(operand.width)?;
    let only = |register, value| Bound::of(register, value, value, state);
    let around = |register, value: u64, scale: u64| {
        if exact {
            return only(register, value);
        }
        // Where a bound would be beyond zero or the highest number, nothing beyond it
        // is left.
        let low = value.saturating_sub(below / scale);
        let high = value.saturating_add(above / scale);
        Bound::of(register, low, high, state)
    };
    let mut bounds = Vec::new();
    match (operand.base, operand.index) {
        // One register in two roles does not stay on one side.
        (Some(b), Some(i)) if b == i => bounds.push(only(b, seen.base)),
        (b, i) => {
            let index_varies = i.filter(|_| index.is_none());
            if let Some(b) = b.filter(|_| base.is_none()) {
                bounds.push(if index_varies.is_some() {
                    only(b, seen.base)
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

/// The part of an operand's addresses that lies in `rule`, if one register alone
/// makes them.
fn part_of(operand: &Operand, state: &State, all: Values, rule: &Rule) -> Option<Alternative> {
    let (base, index) = operand.single(state);
    let (register, scale) = match (operand.base, operand.index) {
        (Some(b), Some(i)) if b == i => return None,
        (Some(b), _) if base.is_none() && index.is_some() => (b, 1),
        (_, Some(i)) if index.is_none() && base.is_some() => (i, operand.scale.max(1)),
        _ => return None,
    };
    let known = state[register.index()]?;
    let last = rule.bytes.len.checked_sub(operand.width)?;
    let (first, last) = (rule.bytes.start.0, rule.bytes.start.0.checked_add(last)?);
    let low = known
        .low
        .checked_add(first.saturating_sub(all.low).div_ceil(scale))?;
    let high = known
        .high
        .checked_sub(all.high.saturating_sub(last).div_ceil(scale))?;
    known.within(low, high)?;
    Some(Alternative {
        bounds: vec![Bound::of(register, low, high, state)],
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
    let fast = Version {
        plans: BTreeMap::from([(at, plan.ok_or(Refusal::OutOfReach(ip))?)]),
        facts: Facts::from([(at, unknown)]),
        ..Version::default()
    };
    let planned = Planned {
        fast,
        ..Planned::default()
    };
    Ok((vec![at].into_iter().collect(), planned))
}
