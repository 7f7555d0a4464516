//! Objects that are left alone without a try: those of which a plan says so, and those of which too little was
//! seen before the end. Called by `choose` and `repairer`.

use super::{Chooser, WORTH_MOVING, is_among, object_name};
use sunder_findings::Unrepaired;
use sunder_pipeline::Process;
use sunder_sharing::{Confidence, PageRuns, Verdict};
use sunder_wire::remap::MOST_MOVED;

impl Chooser {
    /// The object on this line, if it is left alone without a try. Another remedy waits for it.
    pub(super) fn left_by_plan(
        &mut self,
        process: &mut Process,
        line: &Verdict,
    ) -> Option<Unrepaired> {
        let memory = (line.line, line.first);
        if self.not.is_empty() || self.may_be_moved == Some(memory) {
            return None;
        }
        // Objects are recognised by names, which need the present mappings.
        let mappings = process.mappings().clone();
        process.names.set_mappings(mappings);
        let object = object_name(process, line);
        let Some(reason) = self.not.get(&object).cloned() else {
            self.may_be_moved = Some(memory);
            return None;
        };
        Some(Unrepaired {
            object,
            address: Some(line.line),
            reason,
        })
    }

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
