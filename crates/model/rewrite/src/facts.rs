//! Computes what is known of registers at each instruction of a loop, by propagating values
//! from the registers of one thread at one instruction. A thread that enters the loop elsewhere
//! must satisfy the facts of that instruction.

use crate::effects::{State, UNKNOWN};
use crate::flow::Graph;
use crate::nodes::{ByNode, Nodes};
use crate::registers::Register;
use crate::request::Request;
use crate::values::{Values, either};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use iced_x86::{ConditionCode, FlowControl, Mnemonic, OpKind};

/// Facts by instruction.
pub(crate) type Facts = ByNode<State>;

/// A comparison that the copy makes after an instruction; later facts may be based on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub register: Register,
    pub value: u64,
}

/// Checks, by the instruction after which they come.
pub(crate) type Checks = BTreeMap<usize, Check>;

/// After this many changes of an instruction's facts, growing values are widened to their next
/// bound; and after so many they are given up.
const PATIENCE: u32 = 3;
const MOST_CHANGES: u32 = 24;

struct Search<'a> {
    graph: &'a Graph,
    body: &'a Nodes,
    /// Where threads are at first.
    starts: BTreeSet<usize>,
    /// By instruction, as they are so far. A state is large, and changes often.
    facts: Vec<Option<Box<State>>>,
    changes: Vec<u32>,
    /// Values that registers are compared with, and their neighbours.
    bounds: BTreeSet<u64>,
}

/// The registers at the fault, as facts.
pub(crate) fn at_fault(request: &Request<'_>) -> State {
    let mut state = UNKNOWN;
    for (known, value) in state.iter_mut().zip(request.registers.general) {
        *known = Some(Values::one(value));
    }
    state
}

/// The facts within `body`, for threads that come to each of `starts` with these registers.
/// Instructions that can't be reached have none.
pub(crate) fn facts(
    graph: &Graph,
    body: &Nodes,
    starts: &[(usize, State)],
    checks: &Checks,
) -> Facts {
    let mut search = Search {
        graph,
        body,
        starts: starts.iter().map(|(start, _)| *start).collect(),
        facts: vec![None; graph.nodes.len()],
        changes: vec![0; graph.nodes.len()],
        // Counters begin with zero.
        bounds: BTreeSet::from([0]),
    };
    // In the order of control: what comes before an instruction settles first.
    let ranks = ranks(graph, body, starts);
    let mut open: BTreeSet<(usize, usize)> = BTreeSet::new();
    let rank = |n: usize| (ranks[n], n);
    for (start, state) in starts {
        if search.arrives(*start, *state) {
            open.insert(rank(*start));
        }
    }
    while let Some((_, n)) = open.pop_first() {
        let Some(before) = &search.facts[n] else {
            continue;
        };
        let mut after = graph.nodes[n].effects.apply(before);
        if let Some(check) = checks.get(&n) {
            after[check.register.index()] = Some(Values::one(check.value));
        }
        for &next in &graph.nodes[n].next {
            let mut arriving = after;
            search.refine(n, next, &mut arriving);
            if search.arrives(next, arriving) {
                open.insert(rank(next));
            }
        }
    }
    search.facts.into()
}

/// The place of each node of `body` in an order in which a node comes before those to which control
/// gets from it, unless it gets back to the node. Others have 0.
fn ranks(graph: &Graph, body: &Nodes, starts: &[(usize, State)]) -> Vec<usize> {
    let mut ranks = vec![0; graph.nodes.len()];
    let mut met = vec![false; graph.nodes.len()];
    let mut last = graph.nodes.len();
    for &(start, _) in starts.iter().rev() {
        // The nodes of the way from `start`, each with how many of its successors were followed.
        let mut way = Vec::new();
        if body.contains(&start) && !met[start] {
            met[start] = true;
            way.push((start, 0));
        }
        while let Some((n, followed)) = way.last_mut() {
            let next = graph.nodes[*n].next.get(*followed).copied();
            *followed += 1;
            match next {
                Some(next) if body.contains(&next) && !met[next] => {
                    met[next] = true;
                    way.push((next, 0));
                }
                Some(_) => {}
                None => {
                    last -= 1;
                    ranks[*n] = last;
                    way.pop();
                }
            }
        }
    }
    ranks
}

impl Search<'_> {
    /// Adds `state` to the facts at `n`. Returns whether they have changed.
    fn arrives(&mut self, n: usize, state: State) -> bool {
        if !self.body.contains(&n) {
            return false;
        }
        let Some(old) = &mut self.facts[n] else {
            self.facts[n] = Some(Box::new(state));
            return true;
        };
        let mut met = either(old, &state);
        if met == **old {
            return false;
        }
        let changes = &mut self.changes[n];
        *changes += 1;
        let give_up = *changes > MOST_CHANGES;
        // Every loop has such a place. Other instructions follow what comes from there.
        let meets = self.graph.nodes[n].before.len() != 1 || self.starts.contains(&n);
        if give_up || meets && *changes > PATIENCE {
            for ((now, old), more) in met.iter_mut().zip(old.iter()).zip(state) {
                if let (Some(was), Some(is)) = (*old, *now)
                    && was != is
                {
                    // A single value is where a counter begins anew: no value of a series.
                    let begins = more.and_then(Values::only);
                    let bounds = self.bounds.iter().copied().chain(begins);
                    *now = if give_up {
                        None
                    } else {
                        was.widened(is, bounds)
                    };
                }
            }
        }
        **old = met;
        true
    }

    /// Adds what a branch tells about the registers that were compared before it.
    fn refine(&mut self, n: usize, next: usize, state: &mut State) {
        let Some(compared) = Compared::of(self.graph, n) else {
            return;
        };
        let node = &self.graph.nodes[n].instruction;
        let target = self.graph.nodes[next].instruction.ip();
        let (taken, fallen) = (node.near_branch_target(), node.next_ip());
        if taken == fallen {
            return;
        }
        let holds = target == taken;
        let condition = node.condition_code();
        let (Some(a), b) = (compared.left(state), compared.right(state)) else {
            return;
        };
        let Some(b) = b else { return };
        for (one, other) in [(a, b), (b, a)] {
            let Some(bound) = one.only() else { continue };
            // A loop that ends where its counter equals the bound goes on one step before it.
            for step in [0, 1, other.step()] {
                self.bounds
                    .extend([bound.saturating_sub(step), bound.saturating_add(step)]);
            }
        }
        if let Some((a, b)) = compared.known(condition, holds, a, b) {
            compared.set(state, a, b);
        }
    }
}

/// A comparison of registers that is followed by a branch.
struct Compared {
    left: Register,
    right: Result<Register, u64>,
    bits: u32,
}

impl Compared {
    /// The comparison that the branch `n` tests, if nothing comes between.
    fn of(graph: &Graph, n: usize) -> Option<Self> {
        let branch = &graph.nodes[n];
        if branch.instruction.flow_control() != FlowControl::ConditionalBranch {
            return None;
        }
        let [before] = branch.before[..] else {
            return None;
        };
        let compare = &graph.nodes[before].instruction;
        if compare.mnemonic() != Mnemonic::Cmp || compare.op0_kind() != OpKind::Register {
            return None;
        }
        let register = compare.op0_register();
        let bits = match (register.is_gpr64(), register.is_gpr32()) {
            (true, _) => 64,
            (_, true) => 32,
            _ => return None,
        };
        let right = match compare.op1_kind() {
            OpKind::Register => Ok(Register::of(compare.op1_register())?),
            OpKind::Memory => return None,
            _ => {
                let value = compare.try_immediate(1).ok()?;
                Err(value & u64::MAX >> (64 - bits))
            }
        };
        Some(Self {
            left: Register::of(register)?,
            right,
            bits,
        })
    }

    /// The whole register must equal the compared part.
    fn whole(&self, values: Option<Values>) -> Option<Values> {
        let all = Values::between(0, u64::MAX);
        let values = values.or((self.bits == 64).then_some(all))?;
        (values.high <= u64::MAX >> (64 - self.bits)).then_some(values)
    }

    fn left(&self, state: &State) -> Option<Values> {
        self.whole(state[self.left.index()])
    }

    fn right(&self, state: &State) -> Option<Values> {
        match self.right {
            Ok(register) => self.whole(state[register.index()]),
            Err(value) => Some(Values::one(value)),
        }
    }

    /// The values of both sides if the condition holds, or if it does not. `None` if nothing
    /// follows, or if the condition can't have that result.
    fn known(
        &self,
        condition: ConditionCode,
        holds: bool,
        a: Values,
        b: Values,
    ) -> Option<(Values, Values)> {
        use ConditionCode as C;
        // Non-negative values have the same order with and without signs.
        let positive = u64::MAX >> (65 - self.bits);
        let unsigned = a.high <= positive && b.high <= positive;
        let below = |a: Values, b: Values| {
            let left = a.within(0, b.high.checked_sub(1)?)?;
            Some((left, b.within(a.low.checked_add(1)?, u64::MAX)?))
        };
        let at_most =
            |a: Values, b: Values| Some((a.within(0, b.high)?, b.within(a.low, u64::MAX)?));
        let swap = |(b, a): (Values, Values)| (a, b);
        match (condition, holds) {
            (C::b, true) | (C::ae, false) => below(a, b),
            (C::be, true) | (C::a, false) => at_most(a, b),
            (C::a, true) | (C::be, false) => below(b, a).map(swap),
            (C::ae, true) | (C::b, false) => at_most(b, a).map(swap),
            (C::l, true) | (C::ge, false) if unsigned => below(a, b),
            (C::le, true) | (C::g, false) if unsigned => at_most(a, b),
            (C::g, true) | (C::le, false) if unsigned => below(b, a).map(swap),
            (C::ge, true) | (C::l, false) if unsigned => at_most(b, a).map(swap),
            (C::e, true) | (C::ne, false) => {
                let both = a.within(b.low, b.high)?;
                Some((both, b.within(a.low, a.high)?))
            }
            (C::ne, true) | (C::e, false) => {
                let left = b.only().map_or(Some(a), |b| a.without(b))?;
                let right = a.only().map_or(Some(b), |a| b.without(a))?;
                Some((left, right))
            }
            _ => None,
        }
    }

    fn set(&self, state: &mut State, a: Values, b: Values) {
        // The set of all values stands for nothing known.
        let unless_all =
            |values: Values| (values != Values::between(0, u64::MAX)).then_some(values);
        state[self.left.index()] = unless_all(a);
        if let Ok(right) = self.right {
            state[right.index()] = unless_all(b);
        }
    }

    fn registers(&self) -> u32 {
        self.left.bit() | self.right.map_or(0, Register::bit)
    }
}

fn known_registers(state: &State) -> u32 {
    let bits = state.iter().enumerate();
    bits.fold(0, |all, (n, values)| all | u32::from(values.is_some()) << n)
}

/// The registers at each instruction from which the values of those in `used` follow. With
/// `known`, only those of which something is known there: what follows from the others holds
/// for all of their values.
pub(crate) fn needed(
    graph: &Graph,
    body: &Nodes,
    used: &BTreeMap<usize, u32>,
    checks: &Checks,
    known: Option<&Facts>,
) -> BTreeMap<usize, u32> {
    let mut needed = vec![0; graph.nodes.len()];
    loop {
        let mut changed = false;
        for &n in body.iter().rev() {
            let node = &graph.nodes[n];
            // Those outside of the loop need nothing of it.
            let mut after = node.next.iter().fold(0, |all, &next| all | needed[next]);
            if let Some(check) = checks.get(&n) {
                after &= !check.register.bit();
            }
            let mut before = node.effects.sources(after) | used.get(&n).copied().unwrap_or(0);
            // Facts about one side of a comparison follow from the other side.
            if let Some(compared) = Compared::of(graph, n)
                && before & compared.registers() != 0
            {
                before |= compared.registers();
            }
            if let Some(known) = known {
                before &= known.get(&n).map_or(0, known_registers);
            }
            changed |= core::mem::replace(&mut needed[n], before) != before;
        }
        if !changed {
            return body.iter().map(|&n| (n, needed[n])).collect();
        }
    }
}
