//! Bytes that are left to another remedy, which the caller has beside this one. Used by `choose` before a
//! move, and by `repairer` after one that gained little. It must not know what the other remedy is.

use crate::proposal::Proposal;
use std::time::Duration;
use sunder_access::{Address, Span, Time};
use sunder_observe::monotonic_now;
use sunder_pipeline::Process;

/// Whether another remedy could take apart what threads contend for on these pages.
pub type CouldTake = fn(&mut Process, Span) -> bool;

/// With more pieces than this for each of its threads, code that uses them asks at each access which
/// piece it is about: the other remedy comes first.
const MANY: usize = 4;
/// After this long it is taken not to come.
const PATIENCE: Duration = Duration::from_secs(1);

/// See the head of this file.
#[derive(Default)]
pub struct Beside {
    /// The other remedy, if there is one.
    pub other: Option<CouldTake>,
    asked: Vec<Asked>,
}

/// Pages about which the other remedy was asked, once.
struct Asked {
    pages: Span,
    at: Time,
    /// They are left to it.
    is_left: bool,
}

impl Beside {
    /// Whether there is another remedy that could take these pages, and that was not asked about them
    /// before. They are left to it then.
    pub fn could_take(&mut self, process: &mut Process, pages: Span) -> bool {
        let Some(could_take) = self.other else {
            return false;
        };
        if self.about(pages).is_some() {
            return false;
        }
        let is_left = could_take(process, pages);
        self.asked.push(Asked {
            pages,
            at: monotonic_now(),
            is_left,
        });
        is_left
    }

    /// This proposal, unless it has many pieces and is left to the other remedy.
    ///
    /// # Errors
    /// Says that it is.
    pub fn leave(&mut self, process: &mut Process, proposal: Proposal) -> Result<Proposal, String> {
        let (pieces, threads) = (proposal.groups.len(), proposal.threads.len());
        if pieces <= MANY * threads {
            return Ok(proposal);
        }
        let pages = Span::new(Address(proposal.page), proposal.len);
        let is_left = match self.about(pages) {
            Some(asked) => asked.is_left,
            None => self.could_take(process, pages),
        };
        if is_left {
            return Err(format!("it would fall into {pieces} pieces"));
        }
        Ok(proposal)
    }

    /// The pages that were left to the other remedy for so long, at `now`, that it is taken not to come.
    /// They are left to it no more.
    pub fn take_back(&mut self, now: Time) -> Vec<Span> {
        let is_over = |one: &&mut Asked| one.is_left && now.since(one.at) >= PATIENCE;
        let over = self.asked.iter_mut().filter(is_over);
        over.map(|one| {
            one.is_left = false;
            one.pages
        })
        .collect()
    }

    fn about(&self, pages: Span) -> Option<&Asked> {
        self.asked.iter().find(|one| one.pages.overlaps(pages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::{PAGE, ProcessId, ThreadId};
    use sunder_plan::remap::Group;

    const HERE: u64 = 0x5000_0000;

    fn proposal(pieces: u64) -> Proposal {
        let group = |n| Group {
            offset: n * 8,
            size: 8,
            threads: [1].into(),
        };
        Proposal {
            page: HERE,
            len: PAGE,
            groups: (0..pieces).map(group).collect(),
            object: String::new(),
            cost_share: 0.5,
            threads: vec![ThreadId(1), ThreadId(2)],
            code: 0,
            near: 0,
        }
    }

    #[test]
    fn what_falls_into_many_pieces_is_left_to_another_remedy_as_long_as_it_may_come() {
        let process = &mut Process::recorded(ProcessId(1), sunder_sharing::Config::default());
        let mut beside = Beside::default();
        assert!(beside.leave(process, proposal(9)).is_ok(), "there is none");
        beside.other = Some(|_, pages| pages.start == Address(HERE));
        assert!(beside.leave(process, proposal(8)).is_ok(), "not many");
        assert!(beside.leave(process, proposal(9)).is_err());
        assert!(beside.leave(process, proposal(9)).is_err(), "the next look");
        assert!(
            beside.take_back(monotonic_now()).is_empty(),
            "it may still come"
        );
        let later = monotonic_now().after(PATIENCE);
        let pages = Span::new(Address(HERE), PAGE);
        assert_eq!(beside.take_back(later), [pages]);
        assert!(beside.take_back(later).is_empty());
        assert!(
            beside.leave(process, proposal(9)).is_ok(),
            "it did not come"
        );
        assert!(!beside.could_take(process, pages));
    }

    #[test]
    fn what_another_remedy_could_not_take_is_not_left_to_it() {
        let process = &mut Process::recorded(ProcessId(1), sunder_sharing::Config::default());
        let mut beside = Beside {
            other: Some(|_, _| false),
            ..Beside::default()
        };
        assert!(beside.leave(process, proposal(9)).is_ok());
        assert!(beside.take_back(Time(u64::MAX)).is_empty());
    }
}
