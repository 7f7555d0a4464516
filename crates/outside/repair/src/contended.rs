//! Which threads contend for lines at present, and by which bytes their progress can be measured.
//! Called by `choose`, and by `repairer` for repairs under way.

use super::lines::on_pages;
use super::mark::Mark;
use super::proposal::Proposal;
use sunder_gain::gauge::Bytes;
use sunder_pipeline::Process;
use sunder_sharing::Verdict;

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

/// Bytes by which the threads of a line can be measured: those that a single thread was seen to use
/// and to write. A thread without such bytes gets an entry of length 0.
pub fn measurable(line: &Verdict) -> Vec<Bytes> {
    let mut all: Vec<Bytes> = written(line).collect();
    for one in &line.threads {
        if !all.iter().any(|bytes| bytes.thread == one.thread) {
            all.push(Bytes {
                thread: one.thread,
                original: line.line.0,
                at: line.line.0,
                len: 0,
            });
        }
    }
    all
}

fn written(line: &Verdict) -> impl Iterator<Item = Bytes> {
    let own = line
        .words
        .iter()
        .filter_map(|word| match &word.threads[..] {
            [only] if only.writes + only.updates > 0 => Some((word, only.thread)),
            _ => None,
        });
    own.map(|(word, thread)| {
        let at = line.line.0 + u64::from(word.offset);
        Bytes {
            thread,
            original: at,
            at,
            len: word.size.into(),
        }
    })
}
