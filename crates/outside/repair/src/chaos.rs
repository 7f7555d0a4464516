//! Chaos mode, for tests: moves pages without any false sharing at random moments and puts them
//! back. No program may notice. Called by `lib.rs` at each step.

use super::choose::{Proposal, can_be_moved};
use super::{Entry, Repairer, Windows};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Acquire, Release};
use sunder_access::{Mappings, PAGE, ThreadId};
use sunder_live::Live;
use sunder_observe::{monotonic_now, proc};
use sunder_pipeline::Process;
use sunder_plan::remap::Group;
use sunder_wire::remap::{ACTIVE, POOL_BYTES, ROLL_BACK, ROLLED_BACK};

/// How many random pages are tried to find one that may be moved: most mappings are libraries' and
/// stacks.
const PICKS: u32 = 64;

/// A reproducible sequence of random numbers (xorshift64*, Marsaglia and Vigna).
pub struct Chaos {
    state: u64,
}

impl Chaos {
    /// A sequence for this seed.
    pub const fn new(seed: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    /// A number below `bound`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let mixed = self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16;
        if bound == 0 { 0 } else { mixed % bound }
    }

    /// A random page of the program, divided into random groups.
    pub fn propose(
        &mut self,
        process: &Process,
        mappings: &Mappings,
        threads: Vec<ThreadId>,
    ) -> Option<Proposal> {
        let likely: Vec<_> = mappings
            .iter()
            .filter(|m| m.write && !m.shared && m.span.len >= PAGE)
            .collect();
        let page = (0..PICKS).find_map(|_| {
            let mapping = likely.get(self.below(likely.len() as u64) as usize)?;
            // Programs use the first pages of a mapping more than others.
            let pages = (mapping.span.len / PAGE).min(64);
            let page = mapping.span.start.0 + self.below(pages) * PAGE;
            let can = can_be_moved(process, mappings, page, PAGE);
            can.is_ok().then_some(page)
        })?;
        let mut groups = Vec::new();
        let mut at = self.below(8) * 8;
        while at < PAGE - 512 && groups.len() < 16 {
            let size = 8 * (1 + self.below(16));
            groups.push(Group {
                offset: at,
                size,
                threads: BTreeSet::new(),
            });
            at += size + 8 * self.below(64);
        }
        let total: u64 = groups.iter().map(|g| g.size + 256).sum();
        (total < POOL_BYTES).then_some(Proposal {
            page,
            len: PAGE,
            groups,
            object: "chaos".into(),
            cost_share: 0.0,
            threads,
            code: 0,
        })
    }
}

impl Repairer {
    /// Moves a page or puts one back, if chance says so.
    pub(super) fn make_chaos(&mut self, live: &mut Live) {
        let process = self.process;
        let now = monotonic_now().0;
        // The threads for which a page was chosen may have ended; any thread may move it.
        let there = proc::threads(process).unwrap_or_default();
        for attempt in &mut self.attempts {
            attempt.proposal.threads.clone_from(&there);
            attempt.asked = 0;
            if let Some(number) = attempt.area {
                attempt.follow(&self.file.control().areas[number], now);
            }
        }
        self.come_for_chaos();
        let Some(chaos) = &mut self.chaos else { return };
        if !self.began || chaos.below(4) > 0 {
            return;
        }
        let active: Vec<usize> = self
            .attempts
            .iter()
            .filter_map(|a| a.area)
            .filter(|&n| self.file.control().areas[n].state.load(Acquire) == ACTIVE)
            .collect();
        if !active.is_empty() && chaos.below(3) == 0 {
            let which = active[chaos.below(active.len() as u64) as usize];
            self.area(which).wanted.store(ROLL_BACK, Release);
            return;
        }
        let which = chaos.below(2 * self.attempts.len() as u64) as usize;
        if which < self.attempts.len() {
            let area = self.attempts[which].area.map(|n| self.area(n));
            let back = area.is_some_and(|a| a.state.load(Acquire) == ROLLED_BACK);
            if back && self.may_again(live, which).is_ok() {
                self.move_again(which);
            }
            return;
        }
        let (Ok(mappings), Ok(threads)) = (proc::mappings(process), proc::threads(process)) else {
            return;
        };
        let proposal = chaos.propose(live.session.process(process), &mappings, threads);
        if let Some(proposal) = proposal
            && self.can_move()
        {
            self.begin(proposal, Windows::new());
        }
    }

    /// Puts the library into the program as soon as its C library is loaded.
    fn come_for_chaos(&mut self) {
        let process = self.process;
        let is_linked = || {
            let mappings = proc::mappings(process).unwrap_or_default();
            let mut code = mappings.iter().filter(|m| m.execute);
            code.any(|m| m.path.ends_with("/libc.so.6"))
        };
        if matches!(self.entry, Entry::Late(_)) && is_linked() {
            self.entry.plan(process);
            if self.entry.is_planned() {
                self.bring_in();
            }
        }
    }
}
