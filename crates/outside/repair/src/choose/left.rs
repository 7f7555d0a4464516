//! Objects that are left alone without a try: those of which a plan says so, and those of which too little was
//! seen before the end. Called by `choose` and `repairer`.

use super::{Chooser, WORTH_MOVING, is_among, object_name};
use crate::saved::Left;
use std::collections::{BTreeMap, HashMap};
use sunder_access::{Address, Span, Time};
use sunder_findings::Unrepaired;
use sunder_pipeline::Process;
use sunder_sharing::{Confidence, PageRuns, Verdict};
use sunder_wire::remap::MOST_MOVED;

/// Objects that a plan does not move.
#[derive(Default)]
pub struct LeftByPlan {
    /// Their names, and why.
    names: BTreeMap<String, Left>,
    /// The lines that were looked at, by their first touch too, with their objects' names.
    named: HashMap<(Address, Time), String>,
    /// The pages on which objects were seen that are left to another remedy. The run before has
    /// confirmed that they are shared falsely, so samples are enough now.
    pub pages: Vec<Span>,
    /// The pages on which objects were seen that no remedy is to take.
    alone: Vec<Span>,
}

impl LeftByPlan {
    /// The objects of these names.
    pub fn new(names: BTreeMap<String, Left>) -> Self {
        Self {
            names,
            ..Self::default()
        }
    }

    /// Whether there is no such object.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether another remedy is to take such objects, as it did in the saved run.
    pub fn isolates_any(&self) -> bool {
        self.names.values().any(|why| *why == Left::Isolated)
    }

    /// Whether no remedy is to take any byte of this span.
    pub fn is_left_alone(&self, span: Span) -> bool {
        let mut alone = self.alone.iter();
        alone.any(|pages| pages.start.0 < span.end().0 && span.start.0 < pages.end().0)
    }

    /// Such an object was seen on these pages.
    pub(super) fn on_pages(&mut self, object: &Unrepaired, pages: Span) {
        let to_others = |why: &Left| why.is_to_others();
        if self.names.get(&object.object).is_none_or(to_others) {
            self.pages.push(pages);
        } else {
            self.alone.push(pages);
        }
    }

    /// The object on this line, if it is left without a try.
    pub(super) fn object(&mut self, process: &mut Process, line: &Verdict) -> Option<Unrepaired> {
        if self.is_empty() {
            return None;
        }
        let object = self.named.entry((line.line, line.first));
        let object = object.or_insert_with(|| {
            // Objects are recognised by names, which need the present mappings.
            let mappings = process.mappings().clone();
            process.names.set_mappings(mappings);
            object_name(process, line)
        });
        self.names.get(object).map(|why| Unrepaired {
            object: object.clone(),
            address: Some(line.line),
            reason: why.why().into(),
        })
    }
}

impl Chooser {
    /// The object whose false sharing seems to cost most, if it seems to be worth a move. For a
    /// program that has ended before anything was decided about its lines.
    pub fn undecided(&self, process: &mut Process) -> Option<Unrepaired> {
        let verdicts = process.judge.verdicts();
        let runs = PageRuns::of(verdicts.iter(), MOST_MOVED);
        let worth = verdicts.iter().filter(|v| {
            v.owner.is_none()
                && is_among(self.only.as_deref(), v.line)
                && v.confidence() >= Confidence::Sampled
                && runs.false_cost(v) >= WORTH_MOVING
        });
        let dearest =
            worth.max_by(|one, other| runs.false_cost(one).total_cmp(&runs.false_cost(other)))?;
        Some(Unrepaired {
            object: object_name(process, dearest),
            address: Some(dearest.line),
            reason: format!(
                "it may be shared falsely (up to {:.0} % of its threads' time), but not enough was seen \
                 of it before the end",
                runs.false_cost(dearest).min(1.0) * 100.0
            ),
        })
    }
}
