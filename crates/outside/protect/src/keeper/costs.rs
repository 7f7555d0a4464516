//! What the keeper does when isolation takes too much of the threads' time (`upkeep`): it gives up the pages
//! that cost most, or leaves threads native, for a while at first and at last for good. Called by the keeper
//! at each turn.

use super::{Keeper, MOST_PAUSE};
use crate::pages::Pages;
use crate::upkeep::{MOST_PERCENT, Verdict};
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::time::{Duration, Instant};
use sunder_wire::isolation::{closed, state};

/// For how long all threads are native after isolation took too much, the first time and the second. The
/// third time it ends. What a program does at its start (it writes to fresh memory, say) is dear to follow,
/// and may be over soon.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

impl Keeper {
    /// Isolation may take any time: for callers that ask for more of it than is usual.
    pub fn whatever_it_costs(&mut self) {
        self.costs = None;
    }

    /// How often isolation took too much, and how many percent of the threads' time the last time.
    pub fn too_much(&self) -> Option<(usize, u64)> {
        let costs = self.costs.as_ref()?;
        (costs.times > 0).then_some((costs.times, costs.percent))
    }

    /// Gives up what takes too much.
    pub(super) fn weigh(&mut self) {
        let shared = Rc::clone(&self.shared);
        let Some(costs) = &mut self.costs else {
            return;
        };
        let mut dear = Vec::new();
        match costs.meter.weigh(&shared.slots, |slot| dear.push(slot)) {
            Verdict::Pages(_) if Pages::give_up_costly(&shared) > 0 => {}
            Verdict::Goes => self.leave(&dear),
            Verdict::Pages(percent) | Verdict::All(percent) => self.pause(percent),
        }
    }

    /// Whether all threads are native now, since isolation took too much.
    pub(super) fn is_pausing(&self) -> bool {
        let until = self.costs.as_ref().and_then(|costs| costs.until);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// The threads of these slots are native for a while.
    fn leave(&mut self, slots: &[usize]) {
        for index in slots {
            let mut threads = self.threads.values_mut();
            let thread = threads.find(|thread| thread.slot == Some(*index));
            if let (Some(thread), Some(slot)) = (thread, self.shared.slots.get(*index)) {
                thread.next = Instant::now() + MOST_PAUSE;
                // The parked thread sees this at its next commit.
                slot.recall.store(1, SeqCst);
            }
        }
    }

    /// All threads are native, for a while or for good.
    fn pause(&mut self, percent: u64) {
        let Some(costs) = &mut self.costs else {
            return;
        };
        costs.percent = percent;
        costs.times += 1;
        if let Some(pause) = PAUSES.get(costs.times - 1) {
            costs.until = Some(Instant::now() + *pause);
            for slot in &self.shared.slots {
                if slot.state.load(Acquire) == state::ISOLATED {
                    slot.recall.store(1, SeqCst);
                }
            }
            return;
        }
        let now = &self.shared.closed;
        if now
            .compare_exchange(closed::OPEN, closed::COSTS, SeqCst, SeqCst)
            .is_ok()
        {
            self.refuse(format!(
                "isolating its threads took {percent} % of their time, and may take {MOST_PERCENT} %"
            ));
        }
    }
}
