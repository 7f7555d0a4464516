//! The loop around a running target: it takes the observer's events, advances the heap's clock,
//! and spends the budget of watchpoints on suspects. Driven by `command` and `look`. It must
//! not know how the target was started, and must not print.

use crate::claimed::{Claimed, claimed};
use crate::executing;
use crate::looks::Looks;
use crate::observer::{Attention, LiveObserver};
use crate::progress::{Latest, SHOWN_EVERY, Seen, Show, Stage, Suspected};
use crate::quiet::Quiet;
use crate::timer;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use sunder_access::{Address, ProcessId, ThreadId, Time};
use sunder_findings::Limit;
use sunder_observe::perf::Wait;
use sunder_observe::watch::{Budget, BurstRequest, CodeDecoder, ProcessCode, WatchError, Watcher};
use sunder_observe::{ObserveError, monotonic_now, proc};
use sunder_pipeline::{Session, take, take_rest};
use sunder_sharing::{Burst, Suspect};
use sunder_wire::{Claim, Registry};

/// Pause between two drains of the observer, by the time since the start: short at first, so
/// that a program of 100 ms gets its answer, and longer later.
const PAUSES: [(Duration, Duration); 3] = [
    (Duration::from_millis(0), Duration::from_millis(4)),
    (Duration::from_millis(200), Duration::from_millis(15)),
    (Duration::from_secs(3), Duration::from_millis(50)),
];

/// The same while the kernel's samples raise no suspicion, by the time since the program has
/// had several threads. The first entry also holds while it has one.
const CALM_PAUSES: [(Duration, Duration); 4] = [
    (Duration::from_millis(0), Duration::from_millis(5)),
    (Duration::from_millis(50), Duration::from_millis(10)),
    (Duration::from_millis(300), Duration::from_millis(25)),
    (Duration::from_secs(3), Duration::from_millis(50)),
];

/// Pause between two searches for suspects. A burst of a few milliseconds in each interval
/// spreads over the phases of a program.
const SUSPECT_EVERY: Duration = Duration::from_millis(25);
/// The same at first, as long as there is none.
const NONE_YET: Duration = Duration::from_millis(5);
/// How long that is at most.
const AT_FIRST: Duration = Duration::from_millis(300);
/// So long after a line was first suspected, the pause between searches is half of that.
const DOUBT: Duration = Duration::from_millis(100);

/// Of this much time, reading the mappings takes one part at most: a program of 10,000 threads has
/// 20,000 mappings, which takes some 25 ms each time.
const READING_IS_ONE_IN: u32 = 100;
/// The same in the first moments, in which a program maps most of what it will have.
const READING_IS_ONE_IN_AT_FIRST: u32 = 4;

/// Of this much time, searches for suspects take one part at most, with what is worked out for the bursts.
const SEARCHING_IS_ONE_IN: u32 = 50;

/// The longest duration of one burst.
const BURST: Duration = Duration::from_millis(4);
/// The most hits in one burst. Ten rounds between two threads confirm, and some hits are lost
/// because the threads are armed one after the other.
const BURST_HITS: u32 = 64;
/// The most threads watched at once. More would need more ring buffers than an unprivileged
/// user may map.
const BURST_THREADS: usize = 8;

/// A suspect that costs less than this share of time is not watched.
const WORTH_WATCHING: f64 = 0.002;

/// Whether execution bursts may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    Free,
    /// A suspect line comes first, and waits for the budget.
    Waits,
    /// The kernel refuses them.
    Refused,
}

/// The loop's state.
pub struct Live {
    /// The data of all observed processes.
    pub session: Session,
    observer: Box<dyn LiveObserver>,
    registry: Option<Registry>,
    root: ProcessId,
    budget: Budget,
    watchers: HashMap<ProcessId, Watcher>,
    quiet: Quiet,
    /// Whether the last burst was one of executions.
    asked: bool,
    /// Whether execution bursts wait: the kernel refuses them, or a suspect line waits for the budget.
    asking: Asking,
    started: Instant,
    start: Time,
    next_maps: Duration,
    searches: Looks,
    /// When the first line was suspected, since the start.
    pub first_suspect: Option<Duration>,
    /// Why watchpoints are no longer used, if so.
    pub watch_refused: Option<String>,
    /// Shows how far the observation has come, if anybody does.
    pub show: Option<Show>,
    next_show: Duration,
    stage: Latest,
    best: Option<(ProcessId, Address, f64)>,
    /// The kernel's samples came, or will come, after the start of the program. Until an event
    /// tells which program the process executes, only the runtime's claims do.
    came_late: bool,
}

impl Live {
    /// Begins to observe `root`.
    pub fn new(
        mut session: Session,
        observer: Box<dyn LiveObserver>,
        registry: Option<Registry>,
        root: ProcessId,
        budget: Budget,
    ) -> Self {
        session.hold();
        Self {
            came_late: observer.comes_late(),
            session,
            observer,
            registry,
            root,
            budget,
            watchers: HashMap::new(),
            quiet: Quiet::default(),
            asked: false,
            asking: Asking::Free,
            started: Instant::now(),
            start: monotonic_now(),
            next_maps: Duration::ZERO,
            searches: Looks::new(Duration::from_millis(10), SEARCHING_IS_ONE_IN),
            first_suspect: None,
            show: None,
            next_show: Duration::ZERO,
            stage: Latest::default(),
            best: None,
            watch_refused: (budget.share <= 0.0).then(|| "they were switched off".into()),
        }
    }

    /// How closely the observer observes.
    pub fn attention(&self) -> Attention {
        self.observer.attention()
    }

    /// The time at which the observation began.
    pub const fn start(&self) -> Time {
        self.start
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits for the observer once and takes its events. `until`, counted from the start,
    /// limits the wait. Returns whether the target has ended, which `ended` is asked for with
    /// the longest time to wait.
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
        // The samplers see the end of all threads a moment before the process can be waited
        // for. The timer observer has nothing else to wait on.
        let over = waited == Wait::Ended && ended(pause);
        self.drain(false);
        let elapsed = self.elapsed();
        if !over {
            self.refresh_mappings(elapsed);
            if self.searches.begin(elapsed, self.suspects_after()) {
                self.watch();
                self.searches.end();
            }
            if elapsed >= self.next_show {
                self.next_show = elapsed + SHOWN_EVERY;
                self.show(self.stage.at(elapsed));
            }
        }
        Ok(over)
    }

    /// Notes for whoever shows the progress that this is done now.
    pub fn note(&mut self, stage: Stage) {
        self.stage.note(stage, self.elapsed());
    }

    /// Shows how far the observation has come.
    pub(crate) fn show(&mut self, stage: Stage) {
        let Some(show) = self.show else { return };
        let (samples, threads) = self.session.seen_so_far();
        let suspect = self.best.map(|(process, line, cost_share)| {
            let mappings = self.session.process(process).mappings();
            let of = mappings.at(line).map(|mapping| mapping.path.clone());
            Suspected {
                line,
                of: of.unwrap_or_default(),
                cost_share,
            }
        });
        show(&Seen {
            elapsed: self.elapsed(),
            stage,
            samples,
            threads,
            suspect,
        });
    }

    /// Remembers the suspect that may cost most.
    fn remember(&mut self, process: ProcessId, suspects: &[Suspect]) {
        let dearest = suspects
            .iter()
            .max_by(|a, b| a.cost_share.total_cmp(&b.cost_share));
        let Some(dearest) = dearest else { return };
        let is_better = self.best.is_none_or(|(known, line, share)| {
            dearest.cost_share > share || (process, dearest.line) == (known, line)
        });
        if is_better {
            self.best = Some((process, dearest.line, dearest.cost_share));
        }
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

    /// At a low frequency suspects are searched for more often, so that the frequency rises
    /// soon; and when one has just been found, so that it is confirmed soon.
    fn suspects_after(&self) -> Duration {
        match self.observer.attention() {
            _ if self.first_suspect.is_none() && self.elapsed() < AT_FIRST => NONE_YET,
            Attention::Calm(_) => SUSPECT_EVERY / 2,
            Attention::Alerted(since) if since < DOUBT => SUSPECT_EVERY / 2,
            Attention::Steady | Attention::Alerted(_) => SUSPECT_EVERY,
        }
    }

    /// Takes everything that is left, after the target has ended or the time is over.
    pub fn finish(&mut self) {
        self.drain(true);
    }

    /// Whether the observer makes child processes of the program itself.
    pub fn makes_processes(&self) -> bool {
        self.observer.makes_processes()
    }

    /// What the observer could not see, for the report.
    pub fn observer_limits(&self) -> Vec<Limit> {
        let mut limits = self.observer.limits();
        limits.extend(self.session.memory_limit());
        limits
    }

    /// Why watchpoints could not be used, if so.
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
        let observer = &mut *self.observer;
        let Ok(()) = if last {
            take_rest(observer, &mut self.session)
        } else {
            take(observer, &mut self.session)
        };
    }

    /// Takes the claims of images that have loaded the runtime.
    fn claims(&mut self) {
        let Some(registry) = &mut self.registry else {
            return;
        };
        let inside = self.observer.is_inside();
        for claim in registry.poll() {
            let lives = match claimed(&claim, self.root) {
                Claimed::Anothers => continue,
                Claimed::Ended => {
                    self.session.has_ended_before(claim.process);
                    false
                }
                Claimed::Living(files) => {
                    self.session.lives(claim.process, files);
                    true
                }
            };
            if inside {
                // The image that this one replaces has ended, so all of its samples are in its
                // segment.
                take_last_samples(&mut self.session, &claim);
            }
            let is_untold = self.came_late && !self.session.knows_program();
            self.session.claim(&claim, inside || is_untold);
            // The periodic reading of mappings would come too late for a short process.
            if inside
                && lives
                && !claim.refused
                && let Ok(mappings) = proc::mappings(claim.process)
                && mappings.iter().next().is_some()
            {
                self.session.set_mappings(claim.process, mappings);
                self.session.refresh_code(claim.process);
            }
        }
    }

    /// Reads the mappings that perf does not report (those of data, or all of them for the
    /// timer observer) while the process lives: soon after the start, and then ever more
    /// rarely.
    fn refresh_mappings(&mut self, elapsed: Duration) {
        if elapsed < self.next_maps {
            return;
        }
        let begun = Instant::now();
        let mut living = self.session.living();
        if living.is_empty() {
            living.push(self.root);
        }
        for process in living {
            if !proc::is_alive(process) || !self.is_known(process) {
                // The report tells what the program's own runtime says, even if nothing was sampled.
                if process != self.root {
                    self.session.ended(process);
                }
            } else if let Ok(mappings) = proc::mappings(process)
                && mappings.iter().next().is_some()
                && self.is_known(process)
            {
                self.session.set_mappings(process, mappings);
                self.session.process(process).read_thread_locals();
                if self.observer.is_inside() {
                    self.session.refresh_code(process);
                    self.refresh_threads(process);
                }
            }
        }
        let took = begun.elapsed();
        self.next_maps = (elapsed * 2).clamp(
            elapsed + Duration::from_millis(4).max(took * READING_IS_ONE_IN_AT_FIRST),
            elapsed + Duration::from_secs(2).max(took * READING_IS_ONE_IN),
        );
    }

    /// Whether a process is still the one that was found by its number. The program itself is not
    /// waited for before the observation ends, so that no other gets its number.
    fn is_known(&mut self, process: ProcessId) -> bool {
        process == self.root || self.session.process(process).files.is_alive()
    }

    /// Reads threads and their names from `/proc`: the timer observer has no events for them.
    fn refresh_threads(&mut self, process: ProcessId) {
        for thread in proc::threads(process).unwrap_or_default() {
            let name = proc::thread_name(process, thread);
            self.session.exists(process, thread, name.ok());
        }
    }

    /// The registry from which runtimes claim their segments.
    pub const fn registry(&self) -> Option<&Registry> {
        self.registry.as_ref()
    }

    /// Watches the costliest suspect that is not settled yet, for one burst.
    fn watch(&mut self) {
        for process in self.session.living() {
            let asked = self.ask(process);
            let suspects = self
                .session
                .process(process)
                .judge
                .suspects(monotonic_now());
            if suspects.is_empty() {
                if !asked {
                    self.suspect_waits(false);
                }
                continue;
            }
            self.first_suspect.get_or_insert(self.started.elapsed());
            self.remember(process, &suspects);
            if suspects.iter().any(|s| s.cost_share >= WORTH_WATCHING) {
                self.observer.alert();
            }
            for suspect in suspects.iter().take(64) {
                self.session
                    .watch_line(process, suspect.line, suspect.since);
            }
            if asked || self.watch_refused.is_some() {
                continue;
            }
            let now = self.started.elapsed();
            let worth = |s: &&Suspect| s.cost_share >= WORTH_WATCHING;
            let is_time = |s: &&Suspect| self.quiet.is_over(process, s, now);
            let Some(suspect) = suspects.iter().filter(worth).find(is_time) else {
                self.suspect_waits(false);
                continue;
            };
            self.quiet.burst_requested(process, suspect, now);
            let mut threads = suspect.threads.clone();
            threads.truncate(BURST_THREADS);
            self.burst(process, suspect.words.clone(), threads);
        }
    }

    /// Makes an execution burst, if it is time for one: they and the bursts of watchpoints take
    /// turns. Returns whether one was made.
    fn ask(&mut self, process: ProcessId) -> bool {
        let may_ask = self.watch_refused.is_none() && self.asking == Asking::Free;
        self.asked = !self.asked && may_ask;
        if !self.asked {
            return false;
        }
        let watcher = watcher(&mut self.watchers, process, self.budget);
        let asked = executing::ask(&mut self.session, watcher, process);
        self.asked = asked.unwrap_or_else(|_| {
            // Watchpoints on data may be allowed all the same. What stays unknown is in the result.
            self.asking = Asking::Refused;
            false
        });
        self.asked
    }

    /// Whether a suspect line waits until the budget allows to watch it.
    fn suspect_waits(&mut self, waits: bool) {
        if self.asking != Asking::Refused {
            self.asking = if waits { Asking::Waits } else { Asking::Free };
        }
    }

    fn burst(&mut self, process: ProcessId, words: Vec<Address>, threads: Vec<ThreadId>) {
        let watcher = watcher(&mut self.watchers, process, self.budget);
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
                self.note(Stage::Confirming);
                self.suspect_waits(false);
                let accesses = burst.complete().to_vec();
                let complete = Burst {
                    words: &burst.watched,
                    started: burst.started,
                    ended: burst.complete_until,
                    accesses: &accesses,
                };
                self.session.watched(process, &complete);
            }
            // The burst was not possible now; a later one may be.
            Err(WatchError::BudgetSpent(_)) => self.suspect_waits(true),
            Err(WatchError::NoThreads(_)) => self.suspect_waits(false),
            Err(error) => self.watch_refused = Some(error.to_string()),
        }
    }
}

/// The watcher of `process`, which is made when it is first needed.
fn watcher(
    watchers: &mut HashMap<ProcessId, Watcher>,
    process: ProcessId,
    budget: Budget,
) -> &mut Watcher {
    let new = || Watcher::new(process, budget);
    watchers.entry(process).or_insert_with(new)
}

/// Takes the last samples of the image that the claim's image replaces: that image has ended.
fn take_last_samples(session: &mut Session, claim: &Claim) {
    let before = session.heaps();
    for heap in before.iter().filter(|h| h.process == claim.process) {
        timer::take_samples(session, heap);
    }
    session.pass_on();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use sunder_pipeline::{Follow, Observer, judge_config};
    use sunder_wire::SegmentOptions;

    /// An observer that sees nothing.
    struct Blind;

    impl Observer for Blind {
        type Error = std::convert::Infallible;

        fn drain(&mut self, _session: &mut Session) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    impl LiveObserver for Blind {}

    /// The mappings may be due just as the program has ended, and before anybody has noticed.
    #[test]
    fn the_runtime_of_a_program_that_has_ended_without_a_sample_is_kept() {
        let mut child = std::process::Command::new("true").spawn().expect("starts");
        let root = ProcessId(child.id());
        while proc::is_alive(root) {
            std::thread::yield_now();
        }
        let registry = Registry::create(SegmentOptions::default(), false, 1).expect("memory");
        let serial = registry.view().claim().expect("one is ready");
        let entry = registry.view().entry(serial);
        entry.process.store(root.0, Ordering::Release);
        let config = judge_config(64, None).expect("a size of lines");
        let session = Session::new(config, Follow::Only(root));
        let budget = Budget::of(0.0);
        let mut live = Live::new(session, Box::new(Blind), Some(registry), root, budget);
        live.claims();
        live.session.process(root);
        assert_eq!(live.session.heaps().len(), 1);
        live.refresh_mappings(live.next_maps);
        assert_eq!(live.session.heaps().len(), 1);
        child.wait().expect("its end");
    }
}
