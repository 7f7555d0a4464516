//! The granules that moved between nodes because of sharing: what the first pass over a trace
//! finds, and what the second one looks at alone.

use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use sunder_access::{Address, Granule, Span};
use sunder_coherence::{Counts, Outcome};

/// The granules that moved because of sharing, with the counts of each.
pub type MovedGranules = BTreeMap<Address, Counts>;

/// The granules that a node missed because another node wrote, with the counts of each.
pub fn moved_granules(outcome: &Outcome) -> MovedGranules {
    outcome
        .lines()
        .filter(|line| line.counts.coherence_misses() > 0)
        .map(|line| (line.line, line.counts))
        .collect()
}

/// The granules that moved, in a form that is quick to look up for every access.
pub struct MovedSet<'a> {
    moved: &'a MovedGranules,
    bases: FxHashSet<Address>,
    granule: Granule,
}

impl<'a> MovedSet<'a> {
    /// The set of the granules in `moved`, each of the size `granule`.
    pub fn new(moved: &'a MovedGranules, granule: Granule) -> Self {
        Self {
            moved,
            bases: moved.keys().copied().collect(),
            granule,
        }
    }

    /// Calls `each` with the parts of `span`, which is not empty, that lie in one of them. What other
    /// granules have of it does not concern those that moved.
    pub fn parts(&self, span: Span, mut each: impl FnMut(Span)) {
        let last = Address(span.start.0.saturating_add(span.len - 1));
        let first = self.granule.base(span.start);
        if first == self.granule.base(last) {
            if self.bases.contains(&first) {
                each(span);
            }
            return;
        }
        for base in self
            .granule
            .bases(span)
            .filter(|base| self.bases.contains(base))
        {
            let start = span.start.max(base);
            let end = last.0.min(base.0 + (self.granule.bytes() - 1));
            each(Span::new(start, end - start.0 + 1));
        }
    }

    /// Whether `span` touches one of them.
    pub fn touched_by(&self, span: Span) -> bool {
        let first = self.granule.base(span.start);
        if span.end().0 - first.0 <= self.granule.bytes() {
            return self.bases.contains(&first);
        }
        self.moved.range(first..span.end()).next().is_some()
    }
}
