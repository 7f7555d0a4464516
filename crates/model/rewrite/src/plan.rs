//! Plans the operands of a loop: which get another displacement, which a guard, and on which facts,
//! slots and checks that rests. Called by [`crate::choose`]; it must not encode anything.

use crate::bounds::{Plan, Wandering, compared_with_all, plan, wandering};
use crate::effects::{State, UNKNOWN};
use crate::facts::{Checks, Facts, at_fault, facts, needed};
use crate::flow::{Graph, OUTER};
use crate::nodes::Nodes;
use crate::operand::Operand;
use crate::registers::{FOLLOWED, Register};
use crate::request::{Code, Request, Seen};
use crate::restores::{of_use, without_restoring_ways};
use crate::returns::{UncheckedReturns, unchecked_returns};
use crate::slots::Slots;
use crate::speculate::{checks, foresee};
use crate::strings::{self, StringOperation, StringPlan, may_go_downwards};
use crate::table::parts;
use crate::values::Values;
use crate::varies::varies_in_loop;
use crate::version::{CopyKind, Version};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use sunder_x86::Manual;
use sunder_x86::copies::CONDITIONS;

/// A loop of more instructions is not copied if there are loops in it that can be.
const MOST_COPIED: usize = 1200;

/// The bits of the machine's registers, without slots.
const MACHINE: u32 = 0xffff;

/// The input for planning loops.
pub(crate) struct Planner<'a> {
    pub request: &'a Request<'a>,
    /// The graph in which the loop is planned.
    pub graph: &'a Graph,
    /// The graph without slots.
    pub plain: &'a Graph,
    /// The code of the outer function.
    pub code: &'a Code<'a>,
    /// The instruction that faulted.
    pub at: usize,
    /// Instructions before which no comparison may be placed.
    pub live_flags: BTreeSet<usize>,
}

/// A loop that is being planned.
#[derive(Clone, Copy)]
struct Work<'a> {
    body: &'a Nodes,
    operands: &'a BTreeMap<usize, Operand>,
    /// Its string instructions, if they surely go upwards.
    strings: &'a BTreeMap<usize, StringOperation>,
    /// Faults in it so far, and those to be expected.
    seen: &'a [Seen],
    /// Distances of the ranges among which its pointers change.
    wandering: &'a Wandering,
}

impl Work<'_> {
    /// Operands on the page for which another displacement is not enough.
    fn guarded(&self, graph: &Graph, version: &Version) -> BTreeSet<usize> {
        let operands = self.operands.keys().filter(|n| {
            !matches!(version.plans.get(n), Some(Plan::Direct(_)))
                && self.seen_at(graph, **n).next().is_some()
        });
        let strings = self.strings.keys().filter(|n| {
            !version.strings.get(n).is_some_and(StringPlan::is_direct)
                && self.seen_at(graph, **n).next().is_some()
        });
        operands.chain(strings).copied().collect()
    }

    /// The faults of the instruction `n`.
    fn seen_at(&self, graph: &Graph, n: usize) -> impl Iterator<Item = Seen> {
        let ip = graph.nodes[n].instruction.ip();
        self.seen.iter().filter(move |s| s.ip.0 == ip).copied()
    }

    /// The memory of `n` of which checks should tell where it is.
    fn checked(&self, planner: &Planner<'_>, n: usize) -> Option<Operand> {
        let of_string = || {
            let seen: Vec<Seen> = self.seen_at(planner.graph, n).collect();
            self.strings.get(&n)?.checked(planner.request.moved, &seen)
        };
        self.operands.get(&n).copied().or_else(of_string)
    }
}

fn without_slots(mut state: State) -> State {
    for slot in state.iter_mut().skip(16) {
        *slot = None;
    }
    state
}

/// The plans for a loop, or for one instruction.
#[derive(Default)]
pub(crate) struct Planned {
    pub fast: Version,
    pub slow: Version,
    pub checks: Checks,
    pub returns: BTreeSet<usize>,
    pub slots: Option<Slots>,
}

impl Planner<'_> {
    /// The outermost loop of the outer function that has a plan for the instruction. A loop
    /// that is only in a called function is planned better from that function.
    pub(crate) fn best(&self) -> Option<(Nodes, Planned)> {
        let mut loops = self.graph.loops(self.at);
        let is_outer = |n: &usize| self.graph.nodes[*n].instance == OUTER;
        loops.retain(|body| body.iter().any(is_outer));
        let small = loops.iter().any(|body| body.len() <= MOST_COPIED);
        loops
            .into_iter()
            .filter(|body| !small || body.len() <= MOST_COPIED)
            .map(|body| self.plan_in(body))
            .find(|(_, planned)| planned.fast.has_plan(self.at))
    }

    /// The plan for a loop, or for what is left of it without ways that cost it facts, if that needs
    /// fewer guards.
    fn plan_in(&self, body: Nodes) -> (Nodes, Planned) {
        let planned = self.plan(&body);
        let guarded = planned.fast.guarded();
        if guarded.is_empty() || self.request.whole {
            return (body, planned);
        }
        let mut manual = Manual::new();
        let registers = guarded.iter().filter_map(|&n| {
            let operand = Operand::of(&self.graph.nodes[n].instruction, &mut manual)?;
            Some((n, operand.registers()))
        });
        let wanted = of_use(self.graph, &body, registers.collect(), &planned.checks);
        let Some(rest) = without_restoring_ways(self.graph, &body, self.at, &wanted) else {
            return (body, planned);
        };
        let other = self.plan(&rest);
        if other.fast.has_plan(self.at) && other.fast.guarded().len() < guarded.len() {
            (rest, other)
        } else {
            (body, planned)
        }
    }

    fn plan(&self, body: &Nodes) -> Planned {
        let mut manual = Manual::new();
        let operands: BTreeMap<usize, Operand> = body
            .iter()
            .filter_map(|&n| {
                let operand = Operand::of(&self.graph.nodes[n].instruction, &mut manual)?;
                Some((n, operand))
            })
            .collect();
        let mut strings: BTreeMap<usize, StringOperation> = body
            .iter()
            .filter_map(|&n| Some((n, StringOperation::of(&self.graph.nodes[n].instruction)?)))
            .collect();
        if self.request.downwards || may_go_downwards(self.graph) {
            strings.clear();
        }
        let mut seen = self.request.seen.to_vec();
        if let Some(operand) = operands.get(&self.at) {
            seen.insert(0, seen_now(self.request, operand));
        } else if let Some(operation) = strings.get(&self.at) {
            seen.insert(0, operation.seen(self.request));
        }
        // The thread was not in a copy of the loop then, so these say only what the loop uses.
        seen.extend(self.request.alone);
        let met = seen.iter().flat_map(|seen| {
            let is_it = |n: &usize| self.graph.nodes[*n].instruction.ip() == seen.ip.0;
            let operand = operands.iter().find(|(n, _)| is_it(n));
            operand.map(|(_, operand)| (operand, seen))
        });
        let wandering = wandering(self.request.moved, met);
        let mut start = at_fault(self.request);
        if self.request.compares_all {
            // Where a return address lies must be known.
            let stack = Register::RSP.index();
            let pointer = start[stack];
            start = UNKNOWN;
            start[stack] = pointer;
        }
        seen.extend(foresee(self.request, self.graph, body, (self.at, start)));
        let without = Checks::new();
        let starts = [(self.at, start)];
        let plain = facts(self.graph, body, &starts, &without);
        let used = BTreeMap::new();
        let work = Work {
            body,
            operands: &operands,
            strings: &strings,
            seen: &seen,
            wandering: &wandering,
        };
        let plain = self.version(&work, plain, used, &without, CopyKind::Fast);
        let open = work.guarded(self.graph, &plain);
        let only_plain = |plain| Planned {
            fast: plain,
            ..Planned::default()
        };
        if open.is_empty() || self.request.compares_all {
            return only_plain(plain);
        }
        if let Some(planned) = self.followed(&work, &open) {
            return planned;
        }
        let checked = self.checked(&work, &open, start, None);
        checked.unwrap_or_else(|| only_plain(plain))
    }

    /// The plan with slots followed like registers, if it is better. Not after an earlier fault
    /// of the thread here: its slots then had other values.
    fn followed(&self, work: &Work<'_>, open: &BTreeSet<usize>) -> Option<Planned> {
        if !self.is_first() {
            return None;
        }
        let slots = Slots::of(self.graph, work.body, self.code)?;
        let mut start = at_fault(self.request);
        slots.add(self.request, &mut start);
        let graph = slots.followed(self.graph);
        let planner = Planner {
            graph: &graph,
            live_flags: self.live_flags.clone(),
            ..*self
        };
        let mut seen = work.seen.to_vec();
        seen.extend(foresee(self.request, &graph, work.body, (self.at, start)));
        let work = Work {
            seen: &seen,
            ..*work
        };
        planner.checked(&work, open, start, Some(&slots))
    }

    /// The plan with checks of loaded values, and with slots if there are any. `None` if the
    /// plan without them needs fewer guards.
    fn checked(
        &self,
        work: &Work<'_>,
        open: &BTreeSet<usize>,
        start: State,
        slots: Option<&Slots>,
    ) -> Option<Planned> {
        let wanted = open
            .iter()
            .filter_map(|n| Some((*n, work.checked(self, *n)?)));
        let checks = checks(
            self.request,
            self.graph,
            work.body,
            (self.at, start),
            &wanted.collect(),
            &self.live_flags,
        );
        let fast = facts(self.graph, work.body, &[(self.at, start)], &checks);
        let kept = match slots {
            Some(slots) => slots.keep(self.graph, work.body, &fast)?,
            None => BTreeMap::new(),
        };
        let fast = self.version(work, fast, kept, &checks, CopyKind::Fast);
        let better = work.guarded(self.graph, &fast).len() < open.len();
        let enters = || self.conditions(self.at, &fast.facts, &fast.needed) <= CONDITIONS;
        if !better || slots.is_none() && checks.is_empty() || slots.is_some() && !enters() {
            return None;
        }
        let mut planned = if checks.is_empty() {
            Planned {
                fast,
                ..Planned::default()
            }
        } else {
            self.with_slow(work, fast, checks)
        };
        planned.slots = slots.cloned();
        Some(planned)
    }

    /// Adds the copy for threads for which a check failed.
    fn with_slow(&self, work: &Work<'_>, fast: Version, checks: Checks) -> Planned {
        let mut starts = Vec::new();
        for n in checks.keys() {
            let node = &self.graph.nodes[*n];
            if let Some(before) = fast.facts.get(n) {
                // Facts about slots do not hold after a failed check.
                let after = without_slots(node.effects.apply(before));
                starts.extend(node.next.iter().map(|&next| (next, after)));
            }
        }
        let without = Checks::new();
        let slow = facts(self.plain, work.body, &starts, &without);
        let planner = Planner {
            graph: self.plain,
            live_flags: self.live_flags.clone(),
            ..*self
        };
        let slow = planner.version(work, slow, BTreeMap::new(), &without, CopyKind::Slow);
        let leads_back = |n: &usize| {
            let node = &self.graph.nodes[*n];
            let (Some(before), Some(check)) = (slow.facts.get(n), checks.get(n)) else {
                return false;
            };
            let mut after = self.plain.nodes[*n].effects.apply(before);
            after[check.register.index()] = Some(Values::one(check.value));
            let arrives = |next: &usize| {
                let needed = fast.needed.get(next).copied().unwrap_or(0);
                let facts = fast.facts.get(next);
                // Slots are compared on the way back.
                let needed = needed & MACHINE;
                facts.is_some_and(|facts| brings(needed, facts, &after))
            };
            node.next.iter().all(arrives)
        };
        Planned {
            returns: checks.keys().copied().filter(leads_back).collect(),
            fast,
            slow,
            checks,
            slots: None,
        }
    }

    /// Whether the thread has not faulted here before. If it has, its registers did not satisfy
    /// the facts of the earlier copy, so this one must rely on fewer.
    fn is_first(&self) -> bool {
        let ip = self.request.frame.ip;
        self.request.seen.iter().all(|seen| seen.ip != ip)
    }

    /// The most conditions of an entry at `n`: for registers with facts, and for return
    /// addresses.
    fn conditions(&self, n: usize, facts: &Facts, demanded: &BTreeMap<usize, u32>) -> usize {
        let registers = demanded.get(&n).copied().unwrap_or(0);
        let state = facts.get(&n).copied().unwrap_or(UNKNOWN);
        let known = state.iter().enumerate();
        let known = known.filter(|(r, values)| registers >> r & 1 != 0 && values.is_some());
        let mut instance = self.graph.nodes[n].instance;
        let mut calls = 0;
        while let Some(call) = self.graph.called(instance) {
            instance = call.from;
            calls += 1;
        }
        known.count() + calls
    }

    /// Instructions whose first fault came after that of another instruction of the loop: in
    /// the rounds before it, their operands were not on the page.
    fn late(&self, body: &Nodes) -> BTreeSet<u64> {
        let own = body.iter().map(|&n| self.graph.nodes[n].instruction.ip());
        let own: BTreeSet<u64> = own.collect();
        let faults = self.request.seen.iter().map(|seen| seen.ip.0);
        let faults = faults.chain([self.request.frame.ip.0]);
        let mut faults = faults.filter(|ip| own.contains(ip));
        let first = faults.next();
        faults.filter(|ip| Some(*ip) != first).collect()
    }

    /// Plans all operands under these facts.
    fn version(
        &self,
        work: &Work<'_>,
        facts: Facts,
        kept_by: BTreeMap<usize, u32>,
        checks: &Checks,
        way: CopyKind,
    ) -> Version {
        let body = work.body;
        let (mut plans, mut used) = (BTreeMap::new(), kept_by);
        for (&n, operand) in work.operands {
            let Some(state) = facts.get(&n) else { continue };
            let ip = self.graph.nodes[n].instruction.ip();
            let seen: Vec<Seen> = work.seen.iter().filter(|s| s.ip.0 == ip).copied().collect();
            let varies = |register| varies_in_loop(self.graph, body, n, register);
            let moved = self.request.moved;
            let (plan, registers) = match self.request.compares_all {
                true => (compared_with_all(moved, operand, &seen), 0),
                false => plan(moved, operand, state, &seen, work.wandering, varies),
            };
            match plan {
                Some(Plan::Guarded(_)) if self.live_flags.contains(&n) => {}
                Some(plan) => {
                    plans.insert(n, plan);
                    *used.entry(n).or_insert(0) |= registers;
                }
                None => {}
            }
        }
        let mut strings = BTreeMap::new();
        for (&n, operation) in work.strings {
            let Some(state) = facts.get(&n) else { continue };
            let seen: Vec<Seen> = work.seen_at(self.graph, n).collect();
            let (plan, registers) =
                strings::plan(self.request.moved, operation, state, &seen, n == self.at);
            let Some(plan) = plan else { continue };
            if plan.is_direct() || !self.live_flags.contains(&n) {
                strings.insert(n, plan);
                *used.entry(n).or_insert(0) |= registers;
            }
        }
        let mut switches = BTreeMap::new();
        for &jump in self.graph.tables.keys().filter(|n| body.contains(n)) {
            if let Some((sum, base, switch)) = self.switch(body, &facts, jump) {
                *used.entry(sum).or_insert(0) |= base.bit();
                switches.insert(sum, switch);
            }
        }
        let mut found = UncheckedReturns::default();
        let mut more = used.clone();
        if way == CopyKind::Fast && self.is_first() {
            found = unchecked_returns(self.graph, body, &facts);
            for (n, registers) in &found.used {
                *more.entry(*n).or_insert(0) |= registers;
            }
        }
        let mut demanded = needed(self.graph, body, &more, checks, Some(&facts));
        let fits = |&n: &usize| self.conditions(n, &facts, &demanded) <= CONDITIONS;
        if !found.returns.is_empty() && !plans.keys().chain(strings.keys()).all(fits) {
            found = UncheckedReturns::default();
            demanded = needed(self.graph, body, &used, checks, Some(&facts));
        }
        let late = self.late(body);
        let is_late = |n: usize| late.contains(&self.graph.nodes[n].instruction.ip());
        let leaves = |n: usize, plan: &Plan| {
            let (Plan::Guarded(all), Some(state)) = (plan, facts.get(&n)) else {
                return false;
            };
            let walks = |register| varies_in_loop(self.graph, body, n, register);
            matches!(&all[..], [only] if only.is_left(state, walks))
        };
        let rare = plans
            .iter()
            .filter(|(n, plan)| is_late(**n) || leaves(**n, plan));
        Version {
            needed: demanded,
            rare: rare.map(|(&n, _)| n).collect(),
            unchecked_returns: found.returns,
            plans,
            strings,
            facts,
            switches,
        }
    }

    /// How a jump through a table finds its target in the copy: the sum before it, the register
    /// of the table, and the register and values of the distance.
    #[allow(clippy::type_complexity, reason = "used once, taken apart at once")]
    fn switch(
        &self,
        body: &Nodes,
        facts: &Facts,
        jump: usize,
    ) -> Option<(usize, Register, (Register, Vec<(i64, usize)>))> {
        let table = self.graph.tables.get(&jump)?;
        let [sum] = self.graph.nodes[jump].before[..] else {
            return None;
        };
        // The sum sets all flags, so they must be dead before it.
        if !body.contains(&sum) || self.live_flags.contains(&sum) {
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
        // The target near the thread's present instruction is the most frequent one.
        let at = self.graph.nodes[self.at].instruction.ip();
        let distance_to = |n: usize| at.wrapping_sub(self.graph.nodes[n].instruction.ip());
        ways.sort_by_key(|&(_, n)| distance_to(n));
        (!ways.is_empty()).then_some((sum, base, (distance, ways)))
    }
}

/// Whether a thread with `state` satisfies the `needed` part of `facts`.
fn brings(needed: u32, facts: &State, state: &State) -> bool {
    (0..FOLLOWED).all(|number| {
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

/// The registers of an operand at the fault.
pub(crate) fn seen_now(request: &Request<'_>, operand: &Operand) -> Seen {
    let get = |register: Option<Register>| register.map_or(0, |r| request.registers.get(r));
    Seen {
        ip: request.frame.ip,
        base: get(operand.base),
        index: get(operand.index),
        count: 0,
    }
}
