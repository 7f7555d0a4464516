//! One of the copies of a loop: what is done to its operands, and the facts on which that rests. Filled by
//! [`crate::plan`], and read when the copy is encoded.

use crate::bounds::Plan;
use crate::facts::Facts;
use crate::registers::Register;
use crate::strings::StringPlan;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// One copy of the loop. There are two copies if some checks may fail.
#[derive(Debug, Default)]
pub(crate) struct Version {
    pub plans: BTreeMap<usize, Plan>,
    pub strings: BTreeMap<usize, StringPlan>,
    pub facts: Facts,
    /// The facts that a thread must satisfy to enter at an instruction.
    pub needed: BTreeMap<usize, u32>,
    /// The sums before jumps through tables: the register of the distance, and the targets by
    /// distance.
    pub switches: BTreeMap<usize, (Register, Vec<(i64, usize)>)>,
    /// Returns whose address nothing in the copy can change.
    pub unchecked_returns: BTreeSet<usize>,
    /// Guarded operands that are seldom on the page: their unchanged instruction comes first.
    pub rare: BTreeSet<usize>,
}

impl Version {
    /// Whether there is a plan for the memory of `n`.
    pub(crate) fn has_plan(&self, n: usize) -> bool {
        self.plans.contains_key(&n) || self.strings.contains_key(&n)
    }

    /// The operands with guards.
    pub(crate) fn guarded(&self) -> Vec<usize> {
        let guarded = self
            .plans
            .iter()
            .filter(|(_, plan)| matches!(plan, Plan::Guarded(_)));
        guarded.map(|(&n, _)| n).collect()
    }
}

/// One of a loop's two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CopyKind {
    /// The copy for threads for which all checks held.
    Fast,
    /// The copy for threads for which a check failed.
    Slow,
}
