//! Chaos mode, for tests: moves pages without any false sharing at random moments and puts them
//! back. No program may notice.

use super::Repairer;
use crate::attach::entry::Entry;
use std::sync::atomic::Ordering::{Acquire, Release};
use sunder_gain::gauge::Windows;
use sunder_live::Live;
use sunder_observe::{monotonic_now, proc};
use sunder_wire::remap::{ACTIVE, ROLL_BACK, ROLLED_BACK};

impl Repairer {
    /// Moves a page or puts one back, if chance says so.
    pub fn move_at_random(&mut self, live: &mut Live) {
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
        self.put_library_in_early();
        let stops = self.stops_to_move();
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
        let observed = live.session.process(process);
        observed.stops_to_move = stops;
        let proposal = chaos.propose(observed, &mappings, threads);
        if let Some(proposal) = proposal
            && self.can_move()
        {
            self.begin(proposal, Windows::new());
        }
    }

    /// Puts the library into the program as soon as its C library is loaded.
    fn put_library_in_early(&mut self) {
        let process = self.process;
        let is_linked = || {
            let mappings = proc::mappings(process).unwrap_or_default();
            let mut code = mappings.iter().filter(|m| m.execute);
            code.any(|m| m.path.ends_with("/libc.so.6"))
        };
        if matches!(self.entry, Entry::Late(_)) && is_linked() {
            self.entry.plan(process);
            if self.entry.is_planned() {
                self.put_library_in();
            }
        }
    }
}
