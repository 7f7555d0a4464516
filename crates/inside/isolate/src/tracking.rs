//! The tool that finds pages by faults (SHERIFF, section 4.1): all of the program's sharable memory
//! but the thread's own stack is write-protected in the worker's page table. A page with one writer
//! is made writable; one that several threads write may become private. In the mode `DETECT` it
//! does, and the thread's position is recorded at each tick; in the mode `EAGER` the tool outside
//! decides. In both, a trial comes first: it shows pages by which threads hand data over.
//!
//! Contexts: those of [`crate::tool`].

use crate::bursts::{Bursts, Told};
use crate::control;
use crate::from_worker;
use crate::memory::{Fault, Memory, Page};
use crate::named::Named;
use crate::tool::{Committed, Policy, Position, Tool};
use crate::waits::Waits;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use sunder_transaction::{Mask, PAGE};
use sunder_wire::commits::shared as why;
use sunder_wire::isolation::{Control, PAGES, Slot, state};
use sunder_wire::tracking::{MOMENT_WORDS, Tracking, Writers, mode, page};
use sunder_wire::trial::Use;

/// The most first writes that are caught in one period: about 3 ms of an interval of 10.
const MOST_FAULTS: usize = 1024;
/// One recorded moment stands for at most so many intervals of the thread's time outside isolation.
const MOST_INTERVALS: u64 = 5;

/// The tracking state of one worker, in its own memory.
pub struct WorkerState {
    /// Whether this period catches first writes.
    looking: AtomicBool,
    /// First writes that were caught in this period.
    faults: AtomicUsize,
    /// The count of decisions when pages were last protected.
    decided: AtomicU32,
    /// CPU time of this process at the last tick, in ns.
    spent: AtomicU64,
    /// The pages on which the thread waits for others.
    waits: Waits,
    /// Accesses to pages under trial.
    bursts: Bursts,
}

impl WorkerState {
    /// The state of a worker that has not begun.
    pub const fn new() -> Self {
        Self {
            looking: AtomicBool::new(false),
            faults: AtomicUsize::new(0),
            decided: AtomicU32::new(0),
            spent: AtomicU64::new(0),
            waits: Waits::new(),
            bursts: Bursts::new(),
        }
    }
}

/// This worker's state.
pub static STATE: WorkerState = WorkerState::new();

/// The tracking tool. Page numbers from [`PAGES`] on are indices in [`Tracking::shared`]; smaller
/// ones belong to [`Named`].
pub struct Tracked<'a> {
    control: &'a Control,
    slot: &'a Slot,
    own: &'a WorkerState,
    named: Named<'a>,
}

impl<'a> Tracked<'a> {
    /// The tool for the thread in this slot.
    pub fn new(control: &'a Control, slot: &'a Slot, own: &'a WorkerState) -> Self {
        Self {
            control,
            slot,
            own,
            named: Named::new(control),
        }
    }

    /// The named pages beside those that faults find.
    pub const fn names(&self) -> &Named<'a> {
        &self.named
    }

    const fn tracking(&self) -> &'a Tracking {
        &self.control.tracking
    }

    fn records(&self) -> bool {
        self.tracking().mode.load(Relaxed) == mode::DETECT
    }

    /// Begins a period. False if the kernel refused.
    fn period(&self, memory: &Memory) -> bool {
        let tracking = self.tracking();
        tracking.periods.fetch_add(1, Relaxed);
        let number = self.slot.periods.fetch_add(1, Relaxed);
        let cycle = u64::from(tracking.cycle.load(Relaxed)).max(1);
        let looking = number % cycle < u64::from(tracking.sampled.load(Relaxed));
        let before = self.own.looking.swap(looking, Relaxed);
        self.own.faults.store(0, Relaxed);
        let sound = if looking {
            let decided = tracking.decided.load(Relaxed);
            self.own.decided.store(decided, Relaxed);
            memory.watch_all()
        } else if before {
            self.open_all(memory)
        } else {
            self.watch_new(memory)
        };
        self.own.bursts.begin();
        let mut on_trial = tracking.in_state(page::TRIAL);
        sound && on_trial.all(|at| memory.close(at as usize))
    }

    /// Stops catching first writes, but for pages that have become private and that this worker
    /// does not have yet.
    fn open_all(&self, memory: &Memory) -> bool {
        self.own.looking.store(false, Relaxed);
        self.own.decided.store(u32::MAX, Relaxed);
        memory.open_all() && self.watch_new(memory)
    }

    /// Protects pages that have become private since the last call.
    fn watch_new(&self, memory: &Memory) -> bool {
        let tracking = self.tracking();
        let now = tracking.decided.load(Relaxed);
        if self.own.decided.swap(now, Relaxed) == now {
            return true;
        }
        tracking
            .in_state(page::PRIVATE)
            .all(|at| memory.watch(at as usize))
    }

    /// Records where the thread is. `period` is the CPU time since the last recorded moment.
    fn record_moment(&self, position: &Position, period: u64) {
        let mut cpu = 0u32;
        // SAFETY: the kernel writes one word to a local.
        unsafe { from_worker::call(libc::SYS_getcpu, [&raw mut cpu as usize, 0, 0, 0, 0, 0]) };
        let thread = u64::from(self.slot.thread.load(Relaxed)) | u64::from(cpu) << 32;
        let time = from_worker::clock(libc::CLOCK_MONOTONIC);
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q] = position.0;
        let record: [u64; MOMENT_WORDS] = [
            time, thread, period, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q,
        ];
        if !self.tracking().moments().push(&record) {
            self.tracking().lost.fetch_add(1, Relaxed);
        }
    }
}

fn worker_time() -> u64 {
    from_worker::clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

impl Tool for Tracked<'_> {
    fn watches(&self) -> bool {
        true
    }

    fn named(&self) -> impl Iterator<Item = Page> {
        self.named.named()
    }

    fn policy(&self, page: Page) -> Policy {
        let Some(index) = page.number.checked_sub(PAGES) else {
            return self.named.policy(page);
        };
        match self.tracking().shared.get(index) {
            Some(shared) if shared.state.load(Relaxed) == page::PRIVATE => Policy::Private,
            _ => Policy::Shared,
        }
    }

    fn why_shared(&self, page: Page) -> u32 {
        let index = page.number.checked_sub(PAGES);
        let shared = index.and_then(|index| self.tracking().shared.get(index));
        match shared.map(|shared| shared.state.load(Relaxed)) {
            Some(page::CONTENDED) => why::SAME_BYTES,
            Some(page::AWAITED) => why::AWAITED,
            Some(page::COSTLY) => why::COSTLY,
            _ => 0,
        }
    }

    fn meant(&self, page: Page) -> &Mask {
        self.named.meant(page)
    }

    fn thread_start(&self, position: &Position, memory: &Memory) -> bool {
        let slot = self.slot;
        if slot.episodes.load(Relaxed) == 0 {
            // The slot belonged to another thread before.
            slot.periods.store(0, Relaxed);
            slot.told.store(0, Relaxed);
            slot.left.store(0, Relaxed);
        }
        self.own.spent.store(worker_time(), Relaxed);
        if self.records() {
            // The tool chose when to stop the thread. The time outside isolation was spent in code
            // of all kinds, so no more of it is counted than some intervals.
            let spent = slot.spent.load(Relaxed);
            let outside = spent.saturating_sub(slot.told.swap(spent, Relaxed));
            let most = u64::from(self.control.tick.load(Relaxed)) * 1000 * MOST_INTERVALS;
            let period = (outside + slot.left.swap(0, Relaxed)).min(most);
            self.record_moment(position, period);
        }
        self.period(memory)
    }

    fn used(&self, fault: &Fault, writes: bool) -> bool {
        let at = fault.page() as u64;
        let mut pages = self.tracking().shared_pages();
        let Some((index, shared)) = pages.find(|(_, page)| page.address.load(Relaxed) == at) else {
            return false;
        };
        if shared.state.load(SeqCst) != page::TRIAL {
            return false;
        }
        let told = self.own.bursts.used(index);
        if told == Told::Not {
            return false;
        }
        let slot = control::slot_index(self.control, self.slot) as u8;
        let one = Use {
            offset: (fault.address % PAGE) as u16,
            slot,
            episode: self.slot.episodes.load(SeqCst) as u32,
            writes,
            time: from_worker::clock(libc::CLOCK_MONOTONIC),
        };
        let lasts = |slot: u8, episode: u32| {
            self.control
                .slots
                .get(usize::from(slot))
                .is_some_and(|slot| {
                    slot.episodes.load(SeqCst) as u32 == episode
                        && slot.state.load(SeqCst) == state::ISOLATED
                })
        };
        let since = self.slot.since.load(Relaxed);
        if shared.trial.used(&one, since, lasts) {
            self.tracking().end_trial(index, page::HANDED_OVER);
            return false;
        }
        if told == Told::Last && shared.trial.looked(slot) {
            self.tracking().end_trial(index, page::PRIVATE);
        }
        told == Told::Goes
    }

    fn fault(&self, fault: &Fault, memory: &Memory) -> Option<Page> {
        let tracking = self.tracking();
        tracking.faults.fetch_add(1, Relaxed);
        let slots = &self.control.slots;
        let lives = |index: u32, thread: u32| {
            let slot = slots.get(index as usize);
            slot.is_some_and(|s| s.thread.load(Relaxed) == thread)
        };
        let address = fault.page();
        let slot = control::slot_index(self.control, self.slot) as u32;
        let thread = self.slot.thread.load(Relaxed);
        let writers = tracking.written(address as u64, slot, thread, lives);
        let caught = self.own.faults.fetch_add(1, Relaxed);
        if self.own.looking.load(Relaxed) && caught >= MOST_FAULTS {
            // If the kernel refuses here, the next write is a fault again.
            self.open_all(memory);
        }
        match writers {
            Writers::Several(index) => Some(Page {
                address,
                number: PAGES + index,
            }),
            Writers::One => None,
        }
    }

    fn commit(&self, page: Page, outcome: &Committed) {
        let Some(index) = page.number.checked_sub(PAGES) else {
            return self.named.commit(page, outcome);
        };
        if let Some(shared) = self.tracking().shared.get(index) {
            shared.work.fetch_add(1, Relaxed);
        }
        let waits = self.own.waits.committed(index, outcome.written.bytes > 0);
        if outcome.contended {
            self.tracking().decide(index, page::CONTENDED);
        } else if waits {
            self.tracking().decide(index, page::AWAITED);
        }
    }

    fn sees_others(&self) -> bool {
        self.own.waits.tick()
    }

    fn tick(&self, position: &Position, memory: &Memory) -> bool {
        self.own.waits.ticked();
        if self.records() {
            let now = worker_time();
            let period = now.saturating_sub(self.own.spent.swap(now, Relaxed));
            self.record_moment(position, period);
        }
        self.period(memory)
    }

    fn thread_end(&self) {
        if self.records() {
            // This time is counted with the next moment.
            let since = worker_time().saturating_sub(self.own.spent.load(Relaxed));
            self.slot.left.fetch_add(since, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use proptest::prelude::*;

    const WRITE: Fault = Fault {
        address: 0x7008,
        instruction: 0x1234,
    };

    /// A control file with two threads.
    fn two(mode: u32) -> Box<Control> {
        let control = testing::control();
        control.tracking.mode.store(mode, Relaxed);
        for (slot, thread) in control.slots.iter().zip([10, 11]) {
            slot.thread.store(thread, Relaxed);
        }
        control
    }

    /// The page of a write, if several threads are known to write it.
    fn page(number: usize) -> Page {
        Page {
            address: 0x7000,
            number: PAGES + number,
        }
    }

    #[test]
    fn only_pages_with_several_writers_are_private() {
        let (control, memory) = (two(mode::DETECT), testing::memory());
        let own = [WorkerState::new(), WorkerState::new()];
        let tools: Vec<_> = control
            .slots
            .iter()
            .zip(&own)
            .map(|(slot, own)| Tracked::new(&control, slot, own))
            .collect();
        assert_eq!(tools[0].fault(&WRITE, &memory), None);
        assert_eq!(
            tools[0].fault(&WRITE, &memory),
            None,
            "a page with one writer"
        );
        assert_eq!(tools[1].fault(&WRITE, &memory), Some(page(0)));
        assert_eq!(tools[0].fault(&WRITE, &memory), Some(page(0)));
        assert_eq!(tools[0].policy(page(0)), Policy::Shared, "on trial");
        control.tracking.end_trial(0, page::PRIVATE);
        assert_eq!(tools[0].policy(page(0)), Policy::Private);
        assert_eq!(tools[0].policy(page(1)), Policy::Shared);
        assert_eq!(control.tracking.faults.load(Relaxed), 4);
    }

    #[test]
    fn in_eager_mode_the_tool_outside_decides() {
        let (control, memory) = (two(mode::EAGER), testing::memory());
        let own = WorkerState::new();
        for slot in &control.slots[..2] {
            Tracked::new(&control, slot, &own).fault(&WRITE, &memory);
        }
        let tool = Tracked::new(&control, &control.slots[0], &own);
        assert_eq!(tool.policy(page(0)), Policy::Shared);
        control.tracking.decide(0, page::PRIVATE);
        assert_eq!(tool.policy(page(0)), Policy::Private);
        // No moment is recorded in this mode.
        assert!(
            tool.thread_start(&Position([0; 17]), &memory)
                && tool.tick(&Position([0; 17]), &memory)
        );
        assert_eq!(control.tracking.moments().pop(), None);
    }

    #[test]
    fn a_page_with_contended_bytes_stays_shared() {
        let (control, memory) = (two(mode::DETECT), testing::memory());
        let own = WorkerState::new();
        for slot in &control.slots[..2] {
            Tracked::new(&control, slot, &own).fault(&WRITE, &memory);
        }
        control.tracking.end_trial(0, page::PRIVATE);
        let tool = Tracked::new(&control, &control.slots[0], &own);
        tool.commit(page(0), &Committed::default());
        assert_eq!(tool.policy(page(0)), Policy::Private);
        let contended = Committed {
            contended: true,
            ..Committed::default()
        };
        tool.commit(page(0), &contended);
        assert_eq!(tool.policy(page(0)), Policy::Shared);
        assert_eq!(tool.fault(&WRITE, &memory), Some(page(0)));
        assert_eq!(tool.policy(page(0)), Policy::Shared);
        assert_eq!(tool.why_shared(page(0)), why::SAME_BYTES);
    }

    #[test]
    fn a_page_on_which_a_thread_waits_for_others_stays_shared() {
        let (control, memory) = (two(mode::DETECT), testing::memory());
        let own = WorkerState::new();
        for slot in &control.slots[..2] {
            Tracked::new(&control, slot, &own).fault(&WRITE, &memory);
        }
        control.tracking.end_trial(0, page::PRIVATE);
        let tool = Tracked::new(&control, &control.slots[0], &own);
        let mut seen = true;
        for tick in 0..40 {
            // It writes in an interval if it has seen what others wrote.
            let mut outcome = Committed::default();
            outcome.written.bytes = u32::from(seen);
            seen = tool.sees_others();
            tool.commit(page(0), &outcome);
            if tool.policy(page(0)) == Policy::Shared {
                assert!(tick > 4, "once may be chance");
                assert_eq!(tool.why_shared(page(0)), why::AWAITED);
                return;
            }
            assert!(tool.tick(&Position([0; 17]), &memory));
        }
        panic!("the page stayed private");
    }

    /// Two isolated threads on a page that both write; each use is as the handler tells it. Returns the
    /// page's state after so many periods in which each thread uses the page as `uses` says.
    fn tried(periods: u32, uses: [[(usize, bool); 3]; 2]) -> u32 {
        let (control, memory) = (two(mode::DETECT), testing::memory());
        let own = [WorkerState::new(), WorkerState::new()];
        for (slot, own) in control.slots.iter().zip(&own) {
            slot.state.store(state::ISOLATED, Relaxed);
            Tracked::new(&control, slot, own).fault(&WRITE, &memory);
        }
        for _ in 0..periods {
            for ((slot, own), uses) in control.slots.iter().zip(&own).zip(uses) {
                let tool = Tracked::new(&control, slot, own);
                assert!(tool.period(&memory));
                let mut all = uses.iter().cycle().take(1000);
                let used = |(at, writes): (usize, bool)| {
                    let address = 0x7000 + at;
                    tool.used(&Fault { address, ..WRITE }, writes)
                };
                while all.next().is_some_and(|one| used(*one)) {}
            }
        }
        control.tracking.shared[0].state.load(Relaxed)
    }

    #[test]
    fn a_page_by_which_threads_hand_data_over_never_becomes_private() {
        // A ring: each side reads the other's index.
        let producer = [(0, false), (64, true), (8, true)];
        let consumer = [(8, false), (64, false), (0, true)];
        assert_eq!(tried(2, [producer, consumer]), page::HANDED_OVER);
        // Flags, with a count of the rounds of waiting on the same page.
        let ping = [(0, true), (8, false), (16, true)];
        let pong = [(0, false), (8, true), (24, true)];
        assert_eq!(tried(2, [ping, pong]), page::HANDED_OVER);
    }

    #[test]
    fn a_page_that_is_shared_falsely_becomes_private_after_some_bursts() {
        // Both read the same bytes, which nobody writes.
        let one = [(0, false), (0, true), (128, false)];
        let other = [(4, false), (4, true), (128, false)];
        assert_eq!(tried(2, [one, other]), page::TRIAL);
        assert_eq!(tried(4, [one, other]), page::PRIVATE);
    }

    #[test]
    fn positions_are_recorded_at_the_start_and_at_each_tick() {
        let (control, memory) = (two(mode::DETECT), testing::memory());
        let own = WorkerState::new();
        let tool = Tracked::new(&control, &control.slots[1], &own);
        let position = |first: u64| Position(std::array::from_fn(|i| first + i as u64));
        assert!(tool.thread_start(&position(100), &memory) && tool.tick(&position(200), &memory));
        for first in [100, 200] {
            let moment = control
                .tracking
                .moments()
                .pop()
                .expect("a moment was recorded");
            assert_eq!(moment[1] & 0xffff_ffff, 11);
            assert_eq!(moment[3..], position(first).0);
        }
        assert_eq!(control.slots[1].periods.load(Relaxed), 2);
    }

    proptest! {
        /// SHERIFF, section 4.7: writers are looked for in the first periods of each cycle, and in
        /// no others.
        #[test]
        fn writers_are_looked_for_in_the_first_periods_of_a_cycle(sampled in 0..6u32, cycle in 1..12u32) {
            let (control, memory) = (two(mode::DETECT), testing::memory());
            control.tracking.sampled.store(sampled, Relaxed);
            control.tracking.cycle.store(cycle, Relaxed);
            let own = WorkerState::new();
            let tool = Tracked::new(&control, &control.slots[0], &own);
            for period in 0..cycle * 3 {
                prop_assert!(tool.tick(&Position([0; 17]), &memory));
                prop_assert_eq!(own.looking.load(Relaxed), period % cycle < sampled);
            }
        }

        #[test]
        fn first_writes_in_a_period_are_limited(more in 0..200usize) {
            let (control, memory) = (two(mode::DETECT), testing::memory());
            control.tracking.sampled.store(1, Relaxed);
            control.tracking.cycle.store(1, Relaxed);
            let own = WorkerState::new();
            let tool = Tracked::new(&control, &control.slots[0], &own);
            prop_assert!(tool.tick(&Position([0; 17]), &memory));
            for number in 0..MOST_FAULTS {
                prop_assert!(own.looking.load(Relaxed), "{}", number);
                tool.fault(&Fault { address: 0x10_0000 + number * 4096, ..WRITE }, &memory);
            }
            for _ in 0..=more {
                tool.fault(&WRITE, &memory);
                prop_assert!(!own.looking.load(Relaxed));
            }
            prop_assert!(tool.tick(&Position([0; 17]), &memory) && own.looking.load(Relaxed));
        }
    }
}
