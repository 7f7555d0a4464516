//! Which threads contend for lines at present, and by which bytes their progress can be measured.
//! Called by `choose`, and by `repairer` for repairs under way.

use super::lines::on_pages;
use super::mark::Mark;
use super::proposal::Proposal;
use sunder_gain::gauge::{Bytes, measurable};
use sunder_pipeline::Process;

/// The threads that have contended since `mark` for lines on the proposal's pages, with the bytes
/// that only they write. Empty if they have not contended, or for bytes that the proposal's groups
/// do not take apart.
pub fn contended(process: &mut Process, proposal: &Proposal, mark: &Mark) -> Vec<Bytes> {
    let (page, groups) = (proposal.page, &proposal.groups);
    let verdicts = process.judge.verdicts();
    let lines = on_pages(&verdicts, page, proposal.len);
    let lines = lines.filter(|v| mark.is_contended(v) && mark.comes_apart(v, page, groups));
    lines.flat_map(measurable).collect()
}
