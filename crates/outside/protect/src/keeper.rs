//! The [`Keeper`] sends threads into isolation. It stops a thread for a moment with `ptrace`, looks
//! at its instruction pointer, and makes it continue in the library inside the program. Which pages
//! are isolated is decided elsewhere (`pages`). Called once per turn by the loops of `protect` and
//! of the observer, always from the same thread. It must wait only for moments, except while memory
//! is made sharable or private again: then all threads but one stay stopped for as long as that
//! takes.

mod conversion;
mod costs;
mod program;

use super::apart;
use super::commits::{CommitLog, Stream};
use super::guard::{self, Guards};
use super::hooks::Hooks;
use super::image::{self, Images};
use super::pages::{PageRequest, Pages};
use super::report::closed_because;
use super::shared::{self, Shared};
use super::threads::{is_alive, is_running, no_longer_exists, threads_of};
use crate::options::Options;
use crate::upkeep::Costs;
use std::collections::{HashMap, HashSet};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::time::{Duration, Instant};
use sunder_access::{Address, ProcessId, Time};
use sunder_observe::{monotonic_now, proc};
use sunder_stop::{Stop, Stopped};
use sunder_wire::isolation::{
    CODES, CONTROL_BYTES, Control, RANGES, REGISTERS, SLOTS, Slot, THREAD_AREA, THREAD_AREAS_AT,
    closed, order, ready, state, why,
};
use sunder_wire::tracking::mode;

/// Pause between two looks at all threads, unless a test sets it.
const LOOK: Duration = Duration::from_millis(5);
/// Time between two commits in microseconds: SHERIFF's sampling interval.
const TICK: u32 = 10_000;
/// Average length, in nanoseconds, below which episodes cost more than they gain.
const SHORT: f64 = 1.5e6;
/// For how long at least a thread with short episodes stays native, and a new thread if episodes
/// are short for all threads.
const PAUSE: Duration = Duration::from_millis(100);
/// For how long at most a thread with short episodes stays native.
const MOST_PAUSE: Duration = Duration::from_secs(2);
/// Pause between two attempts to make memory sharable; doubled after each conversion.
const CONVERSION: Duration = Duration::from_millis(50);
/// This many episodes that end at memory that is not sharable are a reason for another conversion.
const MISSED: u32 = 4;
/// Length of a rest: a time in which all threads are native, so that further false sharing can be
/// seen. Isolated threads are not sampled.
const REST: Duration = Duration::from_millis(150);
/// The first and the longest pause between two rests; doubled after each rest.
const RESTS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// A thread that has not written to isolated pages for this long works on something else; then the
/// next rest comes sooner.
const IDLE: Duration = Duration::from_millis(200);
/// How long we try to stop all threads for a fork. A thread that waits for a child of `vfork`, or
/// for a disk, does not stop before that is over.
const FORK: Duration = Duration::from_secs(10);
/// Weight of the past in the averages of episode lengths (SHERIFF, section 5).
const ALPHA: f64 = 0.9;

/// What the keeper knows of a thread.
#[derive(Debug)]
struct Thread {
    /// Index of its slot in the control file.
    slot: Option<usize>,
    /// When it is looked at again.
    next: Instant,
    /// Pause after a look that does not isolate it.
    pause: Duration,
    /// Average length of its episodes in nanoseconds.
    average: f64,
    /// Episodes that are part of the average.
    episodes: u64,
}

/// When all threads rest, that is, are native to be observed.
#[derive(Debug)]
struct Rests {
    /// End of the last rest.
    until: Instant,
    next: Instant,
    /// Pause between the next rest and the one after it.
    pause: Duration,
}

impl Rests {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            until: now,
            next: now + RESTS[0],
            pause: RESTS[0],
        }
    }
}

/// Decides for each thread when it is isolated; see the head of this file.
pub struct Keeper {
    process: i32,
    /// The control file.
    pub shared: Rc<Shared>,
    /// The files that the program has mapped.
    pub images: Images,
    /// The pages that are isolated.
    pub pages: Pages,
    /// What isolated threads commit; `None` under the observer, which takes it itself.
    pub log: Option<CommitLog>,
    /// Pages of code of which only parts may be executed in isolation.
    guards: Guards,
    hooks: Hooks,
    any_code: bool,
    look: Duration,
    short: f64,
    threads: HashMap<i32, Thread>,
    /// Average length of the episodes of all threads, in nanoseconds: what is expected of a new
    /// thread.
    usual: f64,
    /// When threads rest, if the program is observed.
    rests: Option<Rests>,
    /// Why no thread is isolated any more.
    refused: Option<String>,
    /// The process has executed another program, which has not reported yet that it has the
    /// library.
    is_elsewhere: bool,
    /// How many times the process executed another program that has the library.
    pub programs: u32,
    exit: Option<i32>,
    /// When to check again whether the process still executes the same program.
    next_image: Instant,
    next_conversion: Option<Instant>,
    /// Episodes since the last conversion that ended at memory that is not sharable.
    missed: u32,
    /// What isolation takes; `None` if it may take anything.
    costs: Option<Costs>,
}

impl Keeper {
    /// For `process`, which has not begun to execute.
    pub fn new(shared: Rc<Shared>, options: &Options, process: i32) -> Self {
        let tick = options.every.unwrap_or(TICK);
        let mut keeper = Self::with_tick(shared, tick, process);
        if let Some(every) = options.every {
            keeper.look = Duration::from_micros(every.into());
            keeper.short = 0.0;
            keeper.whatever_it_costs();
        }
        keeper.any_code = options.any_code;
        keeper.log = Some(CommitLog::new(Rc::clone(&keeper.shared)));
        keeper
    }

    /// For `process`, which has not begun to execute, with commits every `tick` microseconds.
    pub fn with_tick(shared: Rc<Shared>, tick: u32, process: i32) -> Self {
        // Before we confine ourselves.
        image::own_confinement();
        shared.tick.store(tick, Relaxed);
        shared.tool.store(std::process::id(), Relaxed);
        shared.process.store(process as u32, Relaxed);
        Self {
            process,
            shared,
            images: Images::default(),
            pages: Pages::default(),
            log: None,
            guards: Guards::default(),
            hooks: Hooks::default(),
            any_code: false,
            look: LOOK,
            short: SHORT,
            threads: HashMap::new(),
            usual: 2.0 * SHORT,
            rests: None,
            refused: None,
            is_elsewhere: false,
            programs: 0,
            exit: None,
            next_image: Instant::now(),
            next_conversion: None,
            missed: 0,
            costs: Some(Costs::default()),
        }
    }

    /// The number of the process.
    pub const fn process(&self) -> i32 {
        self.process
    }

    /// False sharing is suspected: prepares what isolating needs.
    pub fn expect_work(&mut self) {
        self.hooks.plan();
    }

    /// Pause between two turns.
    pub const fn look(&self) -> Duration {
        self.look
    }

    /// Asks for bytes to be isolated, and for bytes on the same pages of which a thread may see
    /// changes late ([`Images::lazy`]).
    pub fn request_pages(&mut self, request: PageRequest) {
        self.pages.request(&self.shared, request);
        if request.block.is_some() {
            return;
        }
        let bytes = [request.start, request.start.saturating_add(request.size)];
        if let Some([start, end]) = self.images.lazy(self.process, bytes) {
            let beside = PageRequest {
                start,
                size: end - start,
                ..request
            };
            self.pages.request(&self.shared, beside);
        }
    }

    /// Something new is isolated in a program that is observed: threads rest now and then to be
    /// observed, soon at first.
    pub fn let_rest(&mut self) {
        self.rests = Some(Rests::new());
    }

    /// Whether all threads are to be native now.
    fn is_resting(&mut self) -> bool {
        let idle = self.is_any_thread_idle();
        let Some(rests) = &mut self.rests else {
            return false;
        };
        let now = Instant::now();
        if now < rests.until {
            return true;
        }
        if idle {
            rests.next = rests.next.min(rests.until + RESTS[0]);
        }
        if now < rests.next {
            return false;
        }
        rests.until = now + REST;
        rests.next = rests.until + rests.pause;
        rests.pause = (rests.pause * 2).min(RESTS[1]);
        for slot in &self.shared.slots {
            if slot.state.load(Acquire) == state::ISOLATED {
                // The parked thread sees this at its next commit.
                slot.recall.store(1, SeqCst);
            }
        }
        true
    }

    /// Whether a thread is isolated without writing to isolated pages.
    fn is_any_thread_idle(&self) -> bool {
        let now = monotonic_now();
        self.shared.slots.iter().any(|slot| {
            slot.state.load(Acquire) == state::ISOLATED
                && slot.written.load(Relaxed) == 0
                && now.since(Time(slot.since.load(Relaxed))) > IDLE
        })
    }

    /// The program's wait status if it has ended; reaps it then.
    pub fn exit(&mut self) -> Option<i32> {
        if self.exit.is_none() {
            // Another remedy may have learned of the end before.
            self.exit = sunder_stop::exit(ProcessId(self.process.unsigned_abs()));
        }
        self.exit
    }

    /// Whether the library is in place and there is no reason against isolating.
    pub fn is_open(&self) -> bool {
        self.refused.is_none()
            && !self.is_elsewhere
            && self.shared.ready.load(Acquire) == ready::READY
            && self.shared.closed.load(Acquire) == closed::OPEN
    }

    /// One turn of the keeper; does nothing once the program has ended.
    pub fn turn(&mut self) {
        if self.exit().is_some() {
            return;
        }
        self.take_log();
        if self.shared.ready.load(Acquire) == ready::ANOTHER {
            self.begin_anew();
        }
        self.see_the_image();
        let stop = self.shared.stop.load(SeqCst);
        if stop != 0 && self.wants_a_fork(stop as i32) {
            self.stop_for_a_fork();
        } else if stop != 0 {
            // The thread that wanted to fork has ended, so nothing else takes its request back.
            let _ = self.shared.stop.compare_exchange(stop, 0, SeqCst, SeqCst);
        } else if self.is_open() {
            self.weigh();
            if !self.pages.settle(&self.shared) {
                self.free_slots();
            } else if self.prepare() && !self.is_resting() && !self.is_pausing() {
                self.look_at_threads();
            }
        }
    }

    /// Also writes what isolated threads commit to this stream. To be called before the program
    /// starts.
    pub fn write_log_to(&mut self, stream: Option<Stream>) {
        if let (Some(log), Some(stream)) = (&mut self.log, stream) {
            log.write_to(stream);
        }
    }

    /// Takes what isolated threads have committed since the last turn.
    fn take_log(&mut self) {
        let why = self.refusal().or(closed_because(&self.shared));
        let why = why.map(ToOwned::to_owned);
        if let Some(log) = &mut self.log {
            log.take();
            if let Some(why) = why {
                log.close(&why);
            }
        }
    }

    /// The program has ended. Says why if not all commits could be written.
    pub fn end_log(&mut self, exit: ExitStatus) -> Option<String> {
        self.take_log();
        self.log.as_mut()?.end(exit.into_raw())
    }

    /// Whether there are pages to isolate. The first time, finds the code that may be executed in
    /// isolation.
    fn prepare(&mut self) -> bool {
        let any = Pages::any(&self.shared) || self.shared.tracking.mode.load(Relaxed) != mode::OFF;
        if any && self.shared.code_count.load(Relaxed) == 0 {
            self.hooks.plan();
            self.learn_code();
        }
        any
    }

    fn learn_code(&mut self) {
        let code = self.images.code(self.process, self.any_code);
        let count = code.len().min(CODES);
        for (to, from) in self.shared.codes.iter().zip(&code) {
            to[0].store(from[0], Relaxed);
            to[1].store(from[1], Relaxed);
        }
        self.shared.code_count.store(count as u32, Relaxed);
    }

    /// Looks at every thread whose pause is over.
    fn look_at_threads(&mut self) {
        let threads = threads_of(self.process);
        self.free_slots();
        let process = self.process;
        let lives = |thread: &i32| threads.contains(thread) || !no_longer_exists(process, *thread);
        self.threads.retain(|thread, _| lives(thread));
        if threads.len() < 2 {
            return;
        }
        for thread in threads {
            if self.exit.is_some() || self.refused.is_some() {
                return;
            }
            if self.is_time(thread) && is_running(self.process, thread) {
                self.look_at(thread);
            }
        }
    }

    /// Frees the slots of threads that have ended. A thread in an episode can't end by itself, and
    /// freeing its slot would lose what it has computed; only the execution of another program
    /// leaves such a slot behind.
    fn free_slots(&mut self) {
        for (index, slot) in self.shared.slots.iter().enumerate() {
            let thread = slot.thread.load(Relaxed) as i32;
            let is_home = slot.state.load(Acquire) == state::HOME;
            let ended = thread != 0 && no_longer_exists(self.process, thread);
            if ended && (is_home || self.is_another_image()) {
                let thread = self.threads.values().find(|t| t.slot == Some(index));
                if thread.is_some_and(|t| t.episodes != slot.episodes.load(Relaxed)) {
                    self.usual = averaged(self.usual, length_of(slot));
                }
                slot.thread.store(0, Relaxed);
                slot.state.store(state::FREE, Relaxed);
            }
        }
    }

    fn is_time(&mut self, thread: i32) -> bool {
        let now = Instant::now();
        let short = self.usual < self.short;
        let kept = self.threads.entry(thread).or_insert_with(|| Thread {
            slot: None,
            next: if short { now + PAUSE } else { now },
            pause: self.look,
            average: 2.0 * SHORT,
            episodes: 0,
        });
        if kept.next > now {
            return false;
        }
        let Some(slot) = kept.slot.and_then(|i| self.shared.slots.get(i)) else {
            return true;
        };
        if slot.state.load(Acquire) != state::HOME {
            return false;
        }
        let episodes = slot.episodes.load(Relaxed);
        if episodes != kept.episodes {
            kept.episodes = episodes;
            let length = length_of(slot);
            kept.average = averaged(kept.average, length);
            self.usual = averaged(self.usual, length);
            let reason = slot.why.load(Relaxed);
            // Memory that can't be made sharable is no reason for another conversion.
            let met = slot.address.load(Relaxed);
            let missed = reason == why::MEMORY && !apart::is_apart(&self.shared, met);
            self.missed += u32::from(missed);
            if reason == why::CODE {
                self.guards.request(self.process, &self.shared, met);
            }
            let failed = reason == why::NO_WORKER;
            if failed || kept.average < self.short {
                // Episodes were short, or no worker could be made: the thread stays native for a
                // while, longer each time.
                kept.pause = (kept.pause * 2).clamp(PAUSE, MOST_PAUSE);
                kept.next = now + kept.pause;
                kept.average = SHORT;
                return false;
            }
        }
        true
    }

    /// Stops a thread and sends it into isolation if it stands in code that it may execute there.
    fn look_at(&mut self, thread: i32) {
        let stopped = match Stopped::stop(thread, self.process) {
            Ok(Stop::Stopped(stopped)) => stopped,
            Ok(Stop::NotNow) => return,
            Ok(Stop::Ended(status)) => {
                self.exit = Some(status);
                return;
            }
            Err(_) if !is_alive(self.process, thread) => return,
            Err(error) => {
                self.refused = Some(format!("threads can't be stopped: {error}"));
                return;
            }
        };
        let at = stopped.computing_at();
        let computes =
            at.is_some_and(|at| self.is_code(at)) && !self.is_ours(stopped.registers().rsp);
        let Some(kept) = self.threads.get_mut(&thread) else {
            return;
        };
        if !computes {
            kept.pause = (kept.pause * 2).min(self.look * 16);
            kept.next = Instant::now() + kept.pause;
            // The thread need not stay stopped while files are read.
            drop(stopped);
            self.guards
                .request(self.process, &self.shared, at.unwrap_or(0));
            return;
        }
        kept.pause = self.look;
        // If another program begins, this is its only thread. As long as the thread is stopped,
        // what the control file says of the program stays true.
        if !self.is_open() {
            return;
        }
        if !self.is_same_image() {
            self.is_elsewhere = self.is_another_image();
            return;
        }
        if image::is_confined(self.process, thread) {
            self.refused = Some("the program confines its system calls".into());
            return;
        }
        if self.wants_conversion() {
            self.convert(stopped);
        } else {
            self.send(stopped, order::ISOLATE);
        }
    }

    /// Whether an address lies in the control file. The stack of a signal handler does, if the
    /// handler interrupted a thread that was leaving an episode.
    fn is_ours(&self, address: u64) -> bool {
        let base = self.shared.base.load(Relaxed);
        (base..base.saturating_add(CONTROL_BYTES as u64)).contains(&address)
    }

    fn is_code(&self, address: u64) -> bool {
        if guard::is_open(&self.shared, address) {
            return true;
        }
        let count = self.shared.code_count.load(Relaxed) as usize;
        self.shared
            .codes
            .iter()
            .take(count)
            .any(|[from, to]| (from.load(Relaxed)..to.load(Relaxed)).contains(&address))
    }

    /// Writes a stopped thread's registers into its slot and lets it continue in the library;
    /// whether it went.
    fn send(&mut self, stopped: Box<Stopped>, order: u32) -> bool {
        let thread = stopped.thread();
        let Some(index) = self.slot_of(thread) else {
            return false;
        };
        let slot = &self.shared.slots[index];
        let Ok(mask) = stopped.mask() else {
            return false;
        };
        let r = stopped.registers();
        let general = [
            r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx,
            r.rdx, r.rsi, r.rdi,
        ];
        let kept = self.shared.registers(index);
        for (to, from) in kept.general.iter().zip(general) {
            to.store(from, Relaxed);
        }
        for (to, from) in kept.frame.iter().zip([r.rip, r.cs, r.eflags, r.rsp, r.ss]) {
            to.store(from, Relaxed);
        }
        slot.mask.store(mask, Relaxed);
        slot.order.store(order, SeqCst);
        let base = self.shared.base.load(Relaxed);
        let control: &Control = &self.shared;
        let first = control.slots.as_ptr() as usize - &raw const *control as usize;
        // The program writes the base; a wrong one sends its own thread astray.
        let at = |offset: usize| base.wrapping_add(offset as u64);
        let argument = at(first + index * size_of::<Slot>());
        let stack = at(THREAD_AREAS_AT + index * THREAD_AREA + REGISTERS);
        let entry = self.shared.entry.load(Relaxed);
        stopped.send(entry, argument, stack).is_ok()
    }

    fn slot_of(&mut self, thread: i32) -> Option<usize> {
        let kept = self.threads.get_mut(&thread)?;
        if kept.slot.is_none() {
            let free = self
                .shared
                .slots
                .iter()
                .position(|s| s.thread.load(Relaxed) == 0)?;
            debug_assert!(free < SLOTS);
            let slot = &self.shared.slots[free];
            slot.thread.store(thread as u32, Relaxed);
            slot.episodes.store(0, Relaxed);
            slot.native_since.store(0, Relaxed);
            slot.state.store(state::HOME, SeqCst);
            kept.slot = Some(free);
            if let Some(costs) = &mut self.costs {
                costs.begins(free);
            }
        }
        kept.slot
    }
}

/// Length of the last episode of a slot's thread, in nanoseconds.
fn length_of(slot: &Slot) -> u64 {
    let since = slot.since.load(Relaxed);
    slot.until.load(Relaxed).saturating_sub(since)
}

fn averaged(before: f64, new: u64) -> f64 {
    ALPHA * before + (1.0 - ALPHA) * new as f64
}

#[cfg(test)]
mod tests;
