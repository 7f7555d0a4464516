//! The loop around a running target: has the observer hand over what it saw, keeps the heap's
//! clock, and spends the budget of watchpoints on suspects. Driven by `command` and `look`.
//! It knows nothing of how the target was started, and prints nothing.

use crate::observer::{Attention, Intake, Observer};
use crate::quiet::Quiet;
use crate::timer;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use sunder_access::{Address, ProcessId, ThreadId, Time};
use sunder_findings::Limit;
use sunder_observe::perf::Wait;
use sunder_observe::watch::{Budget, BurstRequest, CodeDecoder, ProcessCode, WatchError, Watcher};
use sunder_observe::{ObserveError, monotonic_now, proc};
use sunder_pipeline::Session;
use sunder_sharing::{Burst, Suspect};
use sunder_wire::{Claim, Registry};

/// Pause between two looks at the observers: short at the start, where a
/// program of 100 ms must get its answer, longer when it runs on.
const PAUSES: [(Duration, Duration); 3] = [
    (Duration::from_millis(0), Duration::from_millis(4)),
    (Duration::from_millis(200), Duration::from_millis(15)),
    (Duration::from_secs(3), Duration::from_millis(50)),
];

/// The same of the kernel's samples while nothing is in doubt, by the time since the
/// program has had several threads; the first also while it has one.
const CALM_PAUSES: [(Duration, Duration); 4] = [
    (Duration::from_millis(0), Duration::from_millis(5)),
    (Duration::from_millis(50), Duration::from_millis(10)),
    (Duration::from_millis(300), Duration::from_millis(25)),
    (Duration::from_secs(3), Duration::from_millis(50)),
];

/// How often suspects are looked for. A burst of a few milliseconds every so
/// often spreads over the phases of a program.
const SUSPECT_EVERY: Duration = Duration::from_millis(25);

/// What one burst may take.
const BURST: Duration = Duration::from_millis(4);
/// See `BURST`; ten rounds between two threads confirm, and some hits are lost
/// to arming one thread after the other.
const BURST_HITS: u32 = 64;
/// Threads watched at once; more would need rings beyond what an unprivileged
/// user may map.
const BURST_THREADS: usize = 8;

/// Suspects that cost less than this share of time get no burst.
const WORTH_WATCHING: f64 = 0.002;

/// The loop's state.
pub struct Live {
    /// What has been seen.
    pub session: Session,
    observer: Box<dyn Observer>,
    registry: Option<Registry>,
    root: ProcessId,
    budget: Budget,
    watchers: HashMap<ProcessId, Watcher>,
    quiet: Quiet,
    started: Instant,
    start: Time,
    next_maps: Duration,
    next_suspects: Duration,
    /// When something was first suspected.
    pub first_suspect: Option<Duration>,
    /// Why watching was given up.
    pub watch_refused: Option<String>,
    /// Nothing but the runtime's claims tells which program the process executes: the
    /// kernel's samples came, or will come, after it began.
    is_untold: bool,
}

impl Live {
    /// Begins to observe `root`.
    pub fn new(
        mut session: Session,
        observer: Box<dyn Observer>,
        registry: Option<Registry>,
        root: ProcessId,
        watch_share: f64,
    ) -> Self {
        session.hold();
        Self {
            is_untold: observer.comes_late(),
            session,
            observer,
            registry,
            root,
            budget: Budget {
                share: watch_share,
                ..Budget::default()
            },
            watchers: HashMap::new(),
            quiet: Quiet::default(),
            started: Instant::now(),
            start: monotonic_now(),
            next_maps: Duration::ZERO,
            next_suspects: Duration::from_millis(10),
            first_suspect: None,
            watch_refused: (watch_share <= 0.0).then(|| "they were switched off".into()),
        }
    }

    /// How closely the observer looks.
    pub fn attention(&self) -> Attention {
        self.observer.attention()
    }

    /// When observation began.
    pub const fn start(&self) -> Time {
        self.start
    }

    /// How long it has lasted.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits a moment and takes in what has come. `until` limits the wait.
    ///
    /// # Errors
    /// If waiting itself fails.
    pub fn step(
        &mut self,
        until: Option<Duration>,
        ended: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<bool, ObserveError> {
        self.observer.prepare(self.root, &mut self.session);
        let elapsed = self.elapsed();
        let mut pause = self.pause(elapsed);
        if let Some(until) = until {
            pause = pause.min(until.saturating_sub(elapsed));
        }
        let waited = self.observer.wait(&mut pause)?;
        // Samplers see all threads end a moment before the process can be waited
        // for; the timer observer has nothing else to wait on.
        let over = waited == Wait::Ended && ended(pause);
        self.drain(false);
        let elapsed = self.elapsed();
        if !over {
            self.refresh_mappings(elapsed);
            if elapsed >= self.next_suspects {
                self.next_suspects = elapsed + self.suspects_after();
                self.watch();
            }
        }
        Ok(over)
    }

    fn pause(&self, elapsed: Duration) -> Duration {
        let of = |pauses: &[(Duration, Duration)], elapsed: Duration| {
            let mut all = pauses.iter().rev();
            let found = all.find(|(after, _)| elapsed >= *after);
            found.map_or(pauses[0].1, |p| p.1)
        };
        match self.observer.attention() {
            Attention::Steady => of(&PAUSES, elapsed),
            Attention::Alerted(since) => of(&PAUSES, since),
            Attention::Calm(since) => of(&CALM_PAUSES, since),
        }
    }

    /// Few samples are looked at often, so that there are soon more.
    fn suspects_after(&self) -> Duration {
        match self.observer.attention() {
            Attention::Calm(_) => SUSPECT_EVERY / 2,
            Attention::Steady | Attention::Alerted(_) => SUSPECT_EVERY,
        }
    }

    /// Takes in what is left when the target has ended or the time is over.
    pub fn finish(&mut self) {
        self.drain(true);
    }

    /// Whether the program has children that are our doing.
    pub fn makes_processes(&self) -> bool {
        self.observer.makes_processes()
    }

    /// What the observer says it could not see.
    pub fn observer_limits(&self) -> Vec<Limit> {
        let mut limits = self.observer.limits();
        limits.extend(self.session.memory_limit());
        limits
    }

    /// Why watchpoints did not confirm what they might have.
    pub fn watch_limit(&self) -> Option<Limit> {
        if self.observer.confirms() {
            return None;
        }
        let why = self.watch_refused.as_ref()?;
        Some(Limit::NoWatchpoints {
            why: why.to_string(),
        })
    }

    fn drain(&mut self, last: bool) {
        self.claims();
        // The epoch must begin before the samples that it is compared with.
        let now = monotonic_now();
        for heap in self.session.heaps() {
            heap.segment.advance_epoch(now);
        }
        let mut intake = Intake::new(&mut self.session, &mut self.is_untold);
        self.observer.drain(&mut intake, last);
        // Before heap events: what they say of the past must find its samples.
        if last {
            self.session.pass_on();
        } else {
            self.session.flush(monotonic_now());
        }
        self.session.heap_events();
    }

    /// Takes in the images that have loaded the runtime.
    fn claims(&mut self) {
        let Some(registry) = &mut self.registry else {
            return;
        };
        let inside = self.observer.is_inside();
        for claim in registry.poll() {
            if inside {
                // The image that this one replaces has ended: all of its samples
                // are there.
                take_last_samples(&mut self.session, &claim);
            }
            self.session.claim(&claim, inside || self.is_untold);
            // What is read now and then would come late for a short process.
            if inside
                && !claim.refused
                && let Ok(mappings) = proc::mappings(claim.process)
                && mappings.iter().next().is_some()
            {
                self.session.set_mappings(claim.process, mappings);
                self.session.refresh_code(claim.process);
            }
        }
    }

    /// Mappings that perf does not tell (data, or all of them for the timer
    /// observer) are read while the process lives: soon, and ever more rarely.
    fn refresh_mappings(&mut self, elapsed: Duration) {
        if elapsed < self.next_maps {
            return;
        }
        self.next_maps = (elapsed * 2).clamp(
            elapsed + Duration::from_millis(4),
            elapsed + Duration::from_secs(2),
        );
        let mut living = self.session.living();
        if living.is_empty() {
            living.push(self.root);
        }
        for process in living {
            if !proc::is_alive(process) {
                self.session.ended(process);
            } else if let Ok(mappings) = proc::mappings(process)
                && mappings.iter().next().is_some()
            {
                self.session.set_mappings(process, mappings);
                self.session.process(process).read_thread_locals();
                if self.observer.is_inside() {
                    self.session.refresh_code(process);
                    self.refresh_threads(process);
                }
            }
        }
    }

    /// The timer observer has no events for threads' beginnings and names.
    fn refresh_threads(&mut self, process: ProcessId) {
        for thread in proc::threads(process).unwrap_or_default() {
            let name = proc::thread_name(process, thread);
            let process = self.session.process(process);
            process.threads.started(thread);
            if let Ok(name) = name {
                process.threads.name(thread, name);
            }
        }
    }

    /// What runtimes claim their segments from.
    pub const fn registry(&self) -> Option<&Registry> {
        self.registry.as_ref()
    }

    /// One burst on the dearest suspect that is not yet settled.
    fn watch(&mut self) {
        for process in self.session.living() {
            let suspects = self
                .session
                .process(process)
                .judge
                .suspects(monotonic_now());
            if suspects.is_empty() {
                continue;
            }
            self.first_suspect.get_or_insert(self.started.elapsed());
            if suspects.iter().any(|s| s.cost_share >= WORTH_WATCHING) {
                self.observer.alert();
            }
            for suspect in suspects.iter().take(64) {
                self.session
                    .watch_line(process, suspect.line, suspect.since);
            }
            if self.watch_refused.is_some() {
                continue;
            }
            let now = self.started.elapsed();
            let worth = |s: &&Suspect| s.cost_share >= WORTH_WATCHING;
            let is_time = |s: &&Suspect| self.quiet.is_over(process, s, now);
            let Some(suspect) = suspects.iter().filter(worth).find(is_time) else {
                continue;
            };
            self.quiet.asked(process, suspect, now);
            let mut threads = suspect.threads.clone();
            threads.truncate(BURST_THREADS);
            self.burst(process, suspect.words.clone(), threads);
        }
    }

    fn burst(&mut self, process: ProcessId, words: Vec<Address>, threads: Vec<ThreadId>) {
        let budget = self.budget;
        let watcher = self
            .watchers
            .entry(process)
            .or_insert_with(|| Watcher::new(process, budget));
        let request = BurstRequest {
            words,
            threads,
            max_hits_per_thread: BURST_HITS,
            max_duration: BURST,
        };
        let mut decoder = CodeDecoder::new(ProcessCode {
            process,
            source: self.session.code(),
        });
        match watcher.burst(&request, &mut decoder) {
            Ok(burst) => {
                let accesses = burst.complete().to_vec();
                self.session.process(process).burst(&Burst {
                    words: &burst.watched,
                    started: burst.started,
                    ended: burst.complete_until,
                    accesses: &accesses,
                });
            }
            // The moment was wrong; another will come.
            Err(WatchError::BudgetSpent(_) | WatchError::NoThreads(_)) => {}
            Err(error) => self.watch_refused = Some(error.to_string()),
        }
    }
}

/// The image has ended that the one of this claim replaces: its last samples are taken in.
fn take_last_samples(session: &mut Session, claim: &Claim) {
    let before = session.heaps();
    for heap in before.iter().filter(|h| h.process == claim.process) {
        timer::take_samples(session, heap);
    }
    session.pass_on();
}
