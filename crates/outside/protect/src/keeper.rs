//! The [`Keeper`] sends threads into isolation. It stops a thread for a moment with `ptrace`, looks
//! at its instruction pointer, and makes it continue in the library inside the program. Which pages
//! are isolated is decided elsewhere (`pages`). Called once per turn by the loops of `protect` and
//! of the observer, always from the same thread. It must wait only for moments, except while memory
//! is made sharable or private again: then all threads but one stay stopped for as long as that
//! takes.

mod conversion;
mod costs;
mod program;
mod sending;

use super::apart;
use super::commits::{CommitLog, Stream};
use super::guard::Guards;
use super::hooks::Hooks;
use super::image::{self, Allowed, Images};
use super::pages::{PageRequest, Pages};
use super::report::closed_because;
use super::shared::{self, Shared};
use super::threads::{is_alive, threads_of};
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
use sunder_wire::isolation::{CODES, RANGES, closed, order, ready, state};
use sunder_wire::tracking::mode;

/// Pause between two looks at all threads, unless a test sets it.
const LOOK: Duration = Duration::from_millis(5);
/// Time between two commits in microseconds: SHERIFF's sampling interval.
const TICK: u32 = 10_000;
/// Average length, in nanoseconds, below which episodes cost more than they gain.
const SHORT: f64 = 1.5e6;
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
        let is_tracked = self.shared.tracking.mode.load(Relaxed) != mode::OFF;
        let allowed = match (self.any_code, is_tracked) {
            (true, _) => Allowed::All,
            (false, true) => Allowed::WithoutOrder,
            (false, false) => Allowed::WithoutWaits,
        };
        let code = self.images.code(self.process, allowed);
        let count = code.len().min(CODES);
        for (to, from) in self.shared.codes.iter().zip(&code) {
            to[0].store(from[0], Relaxed);
            to[1].store(from[1], Relaxed);
        }
        self.shared.code_count.store(count as u32, Relaxed);
    }
}

#[cfg(test)]
mod tests;
