//! Plans one operand of a copy: it gets another displacement, or bounds of its registers within
//! which one displacement is right. Called by the planner; it must not know about loops.

use crate::effects::{State, UNKNOWN};
use crate::operand::Operand;
use crate::registers::Register;
use crate::request::{MovedPage, Relocation, Rule, Seen};
use crate::values::Values;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

/// The most displacements for one guarded operand.
const MOST_ALTERNATIVES: usize = 4;

/// The most ranges of one alternative.
const MOST_RANGES: usize = 32;

/// More values than this say only how wide the register is.
const LONGEST_WAY: u64 = 1 << 31;

/// A register's value is at least `low` and at most `high`. The guard omits a comparison that
/// the facts make unnecessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub register: Register,
    pub low: u64,
    pub high: u64,
    pub test_low: bool,
    pub test_high: bool,
}

/// Bounds of registers within which all addresses of an operand moved by the same distance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alternative {
    pub bounds: Vec<Bound>,
    /// All ranges of the last bound's register in which the addresses moved by this distance,
    /// ascending; empty if the bound is the only one.
    pub ranges: Vec<(u64, u64)>,
    /// The operand's displacement in the copy.
    pub displacement: u64,
}

/// How an operand is copied. Operands without a plan are copied unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// With this displacement: the facts say that all its addresses moved by the same distance.
    Direct(u64),
    /// With a guard for each of these, tried in this order.
    Guarded(Vec<Alternative>),
}

/// Distances by which several ranges of bytes moved among which the thread's pointers change.
pub(crate) type Wandering = BTreeSet<i64>;

/// The distances of rules that an instruction met, with others of the same distance.
pub(crate) fn wandering<'a>(
    moved: &MovedPage,
    met: impl Iterator<Item = (&'a Operand, &'a Seen)>,
) -> Wandering {
    let mut first: BTreeMap<(u64, i64), u64> = BTreeMap::new();
    let mut found = Wandering::new();
    for (operand, seen) in met {
        let address = operand.address(seen.base, seen.index);
        if let Relocation::In(rule) = moved.relocation(address, operand.width) {
            let start = rule.bytes.start.0;
            let known = *first.entry((seen.ip.0, rule.delta)).or_insert(start);
            if known != start {
                found.insert(rule.delta);
            }
        }
    }
    found
}

/// The plan for an operand, and the registers whose facts it needs. `varies` says that the loop
/// computes another value of its base in each round. Of the distances in `wandering`, all
/// ranges are to be expected if one was seen.
pub(crate) fn plan(
    moved: &MovedPage,
    operand: &Operand,
    state: &State,
    seen: &[Seen],
    wandering: &Wandering,
    varies: impl Fn(Register) -> bool,
) -> (Option<Plan>, u32) {
    let addresses = operand.addresses(state);
    if let Some(all) = addresses {
        let place = moved.relocation_of_each(all, operand.width);
        match place {
            Relocation::In(rule) => {
                let plan = operand.displaced(rule.delta).map(Plan::Direct);
                return (plan, operand.registers());
            }
            Relocation::Elsewhere => return (None, 0),
            // The access will fault again and then be refused.
            Relocation::Straddles if all.only().is_some() => return (None, 0),
            Relocation::Straddles => {}
        }
    }
    let (base, index) = operand.single(state);
    let mut alternatives: Vec<Alternative> = Vec::new();
    let mut add = |new: Option<Alternative>| {
        if let Some(new) = new
            && alternatives.len() < MOST_ALTERNATIVES
            && !alternatives.iter().any(|old| old.holds(&new))
        {
            alternatives.push(new);
        }
    };
    for one in seen {
        let fits = base.is_none_or(|b| b == one.base) && index.is_none_or(|i| i == one.index);
        let place = moved.relocation(operand.address(one.base, one.index), operand.width);
        let (true, Relocation::In(rule)) = (fits, place) else {
            continue;
        };
        // If only one value of the base was seen so far, the guard compares with that value,
        // which takes half the time of bounds. Other values that were seen, or are to be
        // expected, require bounds.
        let others = || {
            seen.iter()
                .any(|s| s.base != one.base && in_rule(moved, operand, s, &rule))
        };
        let wanders = wandering.contains(&rule.delta);
        let exact = operand.index.is_none()
            && addresses.is_none()
            && !wanders
            && !others()
            && !operand.base.is_some_and(&varies);
        let mut found = alternative(operand, state, one, &rule, exact);
        if wanders && let Some(found) = &mut found {
            found.ranges = ranges(moved, operand, state, one, found, &rule);
        }
        add(found);
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

/// The plan for an operand of whose registers nothing is taken to be known: its base is compared with
/// all ranges. Where there is an index, only with those in which it was seen.
pub(crate) fn compared_with_all(
    moved: &MovedPage,
    operand: &Operand,
    seen: &[Seen],
) -> Option<Plan> {
    let (Some(register), None) = (operand.base, operand.index) else {
        return plan(moved, operand, &UNKNOWN, seen, &Wandering::new(), |_| true).0;
    };
    let all = moved.rules.iter().filter_map(|rule| {
        let room = rule.bytes.len.checked_sub(operand.width)?;
        let low = rule.bytes.start.0.wrapping_sub(operand.displacement);
        let high = low.checked_add(room)?;
        Some(Alternative {
            bounds: vec![Bound::of(register, low, high, &UNKNOWN)],
            ranges: Vec::new(),
            displacement: operand.displaced(rule.delta)?,
        })
    });
    let all: Vec<Alternative> = all.collect();
    (!all.is_empty()).then_some(Plan::Guarded(all))
}

impl Alternative {
    /// Whether it is for all that `other` is for.
    fn holds(&self, other: &Self) -> bool {
        let [ours, theirs] = [self, other].map(|a| a.bounds.split_last());
        let (Some((ours, before)), Some((theirs, other_before))) = (ours, theirs) else {
            return self == other;
        };
        let is_there = |range: &(u64, u64)| *range == (theirs.low, theirs.high);
        self == other
            || before == other_before
                && ours.register == theirs.register
                && self.displacement == other.displacement
                && self.ranges.iter().any(is_there)
    }

    /// The bounds for each of its ranges.
    pub(crate) fn each(&self) -> Vec<Vec<Bound>> {
        let Some((last, others)) = self.bounds.split_last().filter(|_| !self.ranges.is_empty())
        else {
            return vec![self.bounds.clone()];
        };
        let ranges = self
            .ranges
            .iter()
            .map(|&(low, high)| Bound { low, high, ..*last });
        ranges
            .map(|bound| others.iter().copied().chain([bound]).collect())
            .collect()
    }

    /// Whether the operand is beyond the bounds for most of its way: `state` tells where it ends, and
    /// `walks` whether the loop itself computes another value of a register in each round.
    pub(crate) fn is_left(&self, state: &State, walks: impl Fn(Register) -> bool) -> bool {
        let (Some(bound), true) = (self.bounds.last(), self.ranges.is_empty()) else {
            return false;
        };
        let way = state[bound.register.index()].filter(|way| way.high - way.low < LONGEST_WAY);
        way.is_some_and(|way| {
            let inside = way.within(bound.low, bound.high);
            let inside = inside.map_or(0, |inside| inside.high - inside.low);
            2 * inside < way.high - way.low && walks(bound.register)
        })
    }

    /// Whether a register is not compared with both bounds.
    fn leaves_out(&self, register: Register) -> bool {
        let mut bounds = self.bounds.iter().filter(|b| b.register == register);
        self.ranges.is_empty() && bounds.any(|b| !b.test_low || !b.test_high)
    }
}

impl Bound {
    pub(crate) fn of(register: Register, low: u64, high: u64, state: &State) -> Self {
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

/// Whether the operand's address was in this rule when it was seen.
fn in_rule(moved: &MovedPage, operand: &Operand, seen: &Seen, rule: &Rule) -> bool {
    let address = operand.address(seen.base, seen.index);
    moved.relocation(address, operand.width) == Relocation::In(*rule)
}

/// The bounds of the unknown registers, around the values in `seen`, within which the operand
/// stays in `rule`. With `exact` only the values that were seen.
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
    let context = |register, value: u64, scale: u64| {
        if exact {
            return only(register, value);
        }
        // A bound below zero or above the highest number is replaced by that number.
        let low = value.saturating_sub(below / scale);
        let high = value.saturating_add(above / scale);
        Bound::of(register, low, high, state)
    };
    let mut bounds = Vec::new();
    match (operand.base, operand.index) {
        // One register in both roles may not move by the same distance, so only its value is
        // allowed.
        (Some(b), Some(i)) if b == i => bounds.push(only(b, seen.base)),
        (b, i) => {
            let index_varies = i.filter(|_| index.is_none());
            if let Some(b) = b.filter(|_| base.is_none()) {
                bounds.push(if index_varies.is_some() {
                    only(b, seen.base)
                } else {
                    context(b, seen.base, 1)
                });
            }
            if let Some(i) = index_varies {
                bounds.push(context(i, seen.index, operand.scale.max(1)));
            }
        }
    }
    Some(Alternative {
        bounds,
        ranges: Vec::new(),
        displacement: operand.displaced(rule.delta)?,
    })
}

/// The ranges of the register of the last bound of `alternative`, which holds for `rule`, in which
/// the operand's addresses moved by the same distance: those nearest to the one that was seen.
fn ranges(
    moved: &MovedPage,
    operand: &Operand,
    state: &State,
    seen: &Seen,
    alternative: &Alternative,
    rule: &Rule,
) -> Vec<(u64, u64)> {
    let (base, index) = operand.single(state);
    let (Some(bound), true) = (alternative.bounds.last(), operand.base != operand.index) else {
        return Vec::new();
    };
    let (value, scale) = match (operand.base, operand.index) {
        (Some(b), _) if b == bound.register && base.is_none() => (seen.base, 1),
        (_, Some(i)) if i == bound.register && index.is_none() => {
            (seen.index, operand.scale.max(1))
        }
        _ => return Vec::new(),
    };
    // What the other register and the displacement add.
    let rest = operand
        .address(seen.base, seen.index)
        .wrapping_sub(value.wrapping_mul(scale));
    // A negative displacement leaves less than nothing. An index is not negative.
    let without_rest = |address: u64| match scale {
        1 => Some(address.wrapping_sub(rest)),
        _ => address.checked_sub(rest),
    };
    let range = |other: &Rule| {
        let start = other.bytes.start.0;
        let last = start.checked_add(other.bytes.len.checked_sub(operand.width)?)?;
        let low = without_rest(start).unwrap_or(0).div_ceil(scale);
        let high = without_rest(last)? / scale;
        (low <= high).then_some((low, high))
    };
    let alike = moved.rules.iter().filter(|other| other.delta == rule.delta);
    let mut found: Vec<(u64, u64)> = alike.filter_map(range).collect();
    found.sort_by_key(|range| range.0.abs_diff(value));
    found.truncate(MOST_RANGES);
    found.sort_unstable();
    if found.len() < 2 {
        found.clear();
    }
    found
}

/// The alternative for the operand's addresses that lie in `rule`, if only one register varies.
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
        ranges: Vec::new(),
        displacement: operand.displaced(rule.delta)?,
    })
}
