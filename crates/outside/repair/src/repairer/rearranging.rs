//! Bytes that have moved and that must go back because another layout is expected to do better. Called
//! by `repairer` before a move. It begins no move.

use super::Repairer;
use crate::attempt::{Attempt, Rethought};
use crate::layout::{layout, original};
use crate::lines::on_pages;
use crate::movable::can_be_moved;
use crate::pattern::seen;
use crate::proposal::Proposal;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;
use sunder_access::{Address, Span, ThreadId};
use sunder_findings::Unrepaired;
use sunder_live::Live;
use sunder_observe::monotonic_now;
use sunder_pipeline::Process;
use sunder_plan::remap::Use;
use sunder_wire::remap::{ACTIVE, AREA_BYTES, MOST_MOVED, ROLLING_BACK};

/// Threads that have not run for this long are left out.
const RECENT: Duration = Duration::from_millis(100);

impl Repairer {
    /// Whether the proposal is about bytes that have moved already, or stayed together as others moved,
    /// or lie beside some that have and that the same threads use. These go back, and the next layout
    /// takes in all that is known by then.
    pub fn rearranges(&mut self, proposal: &Proposal, live: &mut Live) -> bool {
        let process = live.session.process(self.process);
        let control = self.file.control();
        let found = self.attempts.iter_mut().find_map(|attempt| {
            let area = &control.areas[attempt.area?];
            let at = area.at.load(Relaxed);
            if proposal.page.wrapping_sub(at) < AREA_BYTES {
                return Some((attempt, area, Rethought::LeftTogether));
            }
            let is_away = matches!(area.state.load(Acquire), ACTIVE | ROLLING_BACK);
            let joins = is_away
                && are_one(process, proposal, &attempt.proposal)
                && can_be_joined(process, proposal, attempt);
            joins.then_some((attempt, area, Rethought::Joined))
        });
        let Some((attempt, area, why)) = found else {
            return false;
        };
        let (page, len) = attempt.pages();
        let may_try = self.chooser.decisions.may_try_another(page, len);
        match why {
            Rethought::LeftTogether if !may_try => {
                self.refused.push(Unrepaired {
                    object: attempt.proposal.object.clone(),
                    address: Some(Address(page)),
                    reason: "some of its bytes have stayed together, and other layouts were tried before"
                        .into(),
                });
                return true;
            }
            Rethought::LeftTogether => {
                let at = area.at.load(Relaxed);
                self.chooser
                    .learned
                    .add(moved(process, proposal, attempt, at));
            }
            // Each of the two by itself is better than neither.
            Rethought::AnotherRemedy | Rethought::Crossed => return false,
            Rethought::Joined if !may_try => return false,
            Rethought::Joined => {
                let (one, other) = (pages(proposal), pages(&attempt.proposal));
                self.chooser.learned.add(before(process, &attempt.proposal));
                self.chooser.decisions.join(union(one, other));
                self.chooser
                    .decisions
                    .put_back(proposal.page, proposal.len, monotonic_now());
            }
        }
        attempt.rearrange(area, why);
        true
    }
}

const fn pages(of: &Proposal) -> Span {
    Span::new(Address(of.page), of.len)
}

fn union(one: Span, other: Span) -> Span {
    let (start, end) = (one.start.min(other.start), one.end().max(other.end()));
    Span::new(start, end.0 - start.0)
}

/// Whether pages lie side by side, can move together, and threads that are to gain by a move of the one
/// were seen to use the other. Code that walks over both, as over a buffer that begins on the one and
/// ends on the other, would leave its copy at each change.
fn are_one(process: &Process, new: &Proposal, old: &Proposal) -> bool {
    let (one, other) = (pages(new), pages(old));
    let side_by_side = one.end() == other.start || other.end() == one.start;
    if !side_by_side || one.len + other.len > MOST_MOVED {
        return false;
    }
    let since = monotonic_now().before(RECENT);
    let use_it = |threads: &[ThreadId], span| {
        let used = process.judge.used(span, since);
        let mut users = used.iter().flat_map(|(_, word)| &word.threads);
        users.any(|user| threads.contains(&user.thread))
    };
    use_it(&old.threads, one) || use_it(&new.threads, other)
}

/// Whether the pages could have moved together when those of `old` moved. By now its mapping is another.
fn can_be_joined(process: &mut Process, new: &Proposal, old: &Attempt) -> bool {
    let both = union(pages(new), pages(&old.proposal));
    can_be_moved(process, &old.mappings, both.start.0, both.len).is_ok()
}

/// What was seen of bytes at the place where they have moved, by their original addresses.
fn moved<'a>(
    process: &Process,
    proposal: &Proposal,
    attempt: &'a Attempt,
    at: u64,
) -> impl Iterator<Item = Use> + use<'a> {
    let verdicts = process.judge.verdicts();
    let lines: Vec<_> = on_pages(&verdicts, proposal.page, proposal.len).collect();
    let layout = layout(&attempt.proposal).unwrap_or_default();
    let uses = seen(process, &lines, proposal.page, proposal.len);
    let page = proposal.page;
    uses.into_iter().filter_map(move |one| {
        let now = Address(page + one.offset);
        let offset = original(&attempt.proposal, &layout, at, now)?.0;
        Some(Use { offset, ..one })
    })
}

/// What was seen of the bytes of these pages before they moved, by address.
fn before(process: &Process, of: &Proposal) -> impl Iterator<Item = Use> + use<> {
    let verdicts = process.judge.verdicts();
    let lines: Vec<_> = on_pages(&verdicts, of.page, of.len).collect();
    let (uses, page) = (seen(process, &lines, of.page, of.len), of.page);
    uses.into_iter().map(move |one| Use {
        offset: page + one.offset,
        ..one
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_both_are_one_span() {
        let span = |page: u64, len: u64| Span::new(Address(page), len);
        let both = span(0x1000, 0x3000);
        assert_eq!(union(span(0x1000, 0x1000), span(0x2000, 0x2000)), both);
        assert_eq!(union(span(0x2000, 0x2000), span(0x1000, 0x1000)), both);
    }
}
