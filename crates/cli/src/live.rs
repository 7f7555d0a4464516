//! The loop around a running target: drains the observers, keeps the heap's
//! clock, spends the watch budget on suspects. It knows nothing of how the
//! target was started and prints nothing.

use crate::heap::Heap;
use crate::isolate_observer::Tap;
use crate::session::Session;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use sunder_access::{Address, ProcessId, ThreadId, Time};
use sunder_observe::perf::{FirstEvent, FrequencyPlan, PerfSampler, Wait};
use sunder_observe::pmu::PmuSampler;
use sunder_observe::watch::{Budget, BurstRequest, CodeDecoder, ProcessCode, WatchError, Watcher};
use sunder_observe::{Event, ObserveError, RawSample, Registers, monotonic_now, proc};
use sunder_sharing::{Burst, Suspect};
use sunder_wire::{Claim, Registry};

/// Who takes the samples.
pub enum Sampler {
    /// The kernel.
    Perf(PerfSampler),
    /// Timers inside the target; they arrive in the segment.
    Timer,
    /// The PMU.
    Pmu(PmuSampler),
    /// Commits of isolated threads.
    Isolate(Tap),
    /// The kernel, which has not allowed it yet: the program runs meanwhile.
    Coming(Coming),
    /// Nobody, because of this.
    Nobody(String),
}

/// What is known of the kernel's samples before there are any.
pub struct Coming {
    /// Once this is open they can be had.
    pub first: FirstEvent,
    /// How often they are to be taken.
    pub plan: FrequencyPlan,
}

impl Sampler {
    /// Whether samples come from inside the target, and nothing tells of mappings and
    /// threads but its runtime.
    const fn is_inside(&self) -> bool {
        matches!(self, Self::Timer | Self::Isolate(_))
    }
}

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

/// How often it is looked whether the kernel allows samples.
const ARRIVAL: Duration = Duration::from_millis(2);

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

/// A line that stays quiet in so many bursts is left alone for a while: its threads may not have
/// run side by side just then, or do so later.
const QUIET_ENOUGH: u32 = 3;
/// For how long at first; twice as long after each further quiet burst.
const QUIET_PAUSE: Duration = Duration::from_millis(250);
/// And at most, so that a line is looked at in each phase of a long run.
const LONGEST_QUIET_PAUSE: Duration = Duration::from_secs(16);
/// Lines whose pauses are remembered.
const MOST_QUIET: usize = 1024;

/// Suspects that cost less than this share of time get no burst.
const WORTH_WATCHING: f64 = 0.002;

/// Pauses of lines that were quiet: until when.
#[derive(Debug, Default)]
struct Quiet(HashMap<(ProcessId, Address), Duration>);

impl Quiet {
    /// Whether a burst may be asked for, at `now` from the beginning.
    fn is_over(&self, process: ProcessId, suspect: &Suspect, now: Duration) -> bool {
        too_quiet(suspect).is_none()
            || self
                .0
                .get(&(process, suspect.line))
                .is_none_or(|until| *until <= now)
    }

    /// One is asked for. Whether it is made, and loud, is seen by the next.
    fn asked(&mut self, process: ProcessId, suspect: &Suspect, now: Duration) {
        // Before the burst that may be the last for a while.
        let further = match too_quiet(suspect) {
            Some(further) => further + 1,
            None if suspect.quiet_bursts + 1 >= QUIET_ENOUGH + suspect.loud_bursts => 0,
            None => return,
        };
        if self.0.len() >= MOST_QUIET {
            self.0.retain(|_, until| *until > now);
        }
        let pause = QUIET_PAUSE.saturating_mul(1u32.checked_shl(further).unwrap_or(u32::MAX));
        let until = now + pause.min(LONGEST_QUIET_PAUSE);
        self.0.insert((process, suspect.line), until);
    }
}

/// By how many bursts a line was quieter than is enough, if it was.
fn too_quiet(suspect: &Suspect) -> Option<u32> {
    suspect
        .quiet_bursts
        .checked_sub(QUIET_ENOUGH + suspect.loud_bursts)
}

/// The loop's state.
pub struct Live {
    /// What has been seen.
    pub session: Session,
    sampler: Sampler,
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
        sampler: Sampler,
        registry: Option<Registry>,
        root: ProcessId,
        watch_share: f64,
    ) -> Self {
        session.hold();
        Self {
            is_untold: matches!(sampler, Sampler::Coming(_)),
            session,
            sampler,
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
        self.arrive();
        let elapsed = self.elapsed();
        let mut pause = self.pause(elapsed);
        if let Some(until) = until {
            pause = pause.min(until.saturating_sub(elapsed));
        }
        let waited = match &mut self.sampler {
            Sampler::Perf(sampler) => sampler.wait(pause)?,
            Sampler::Pmu(sampler) => sampler.wait(pause)?,
            Sampler::Coming(_) => {
                pause = pause.min(ARRIVAL);
                Wait::Ended
            }
            Sampler::Timer | Sampler::Isolate(_) | Sampler::Nobody(_) => Wait::Ended,
        };
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
        let Sampler::Perf(sampler) = &self.sampler else {
            return of(&PAUSES, elapsed);
        };
        match (sampler.alerted(), sampler.calm()) {
            (Some(since), _) => of(&PAUSES, since),
            (None, calm) => of(&CALM_PAUSES, calm.unwrap_or_default()),
        }
    }

    /// Few samples are looked at often, so that there are soon more.
    fn suspects_after(&self) -> Duration {
        match &self.sampler {
            Sampler::Perf(sampler) if sampler.alerted().is_none() => SUSPECT_EVERY / 2,
            _ => SUSPECT_EVERY,
        }
    }

    /// If the kernel has come to allow samples of the program, they begin.
    fn arrive(&mut self) {
        let Sampler::Coming(coming) = &self.sampler else {
            return;
        };
        if !coming.first.is_open() {
            return;
        }
        let attached = PerfSampler::attach(self.root, coming.plan.clone(), false);
        self.session.begin_anew(self.root);
        self.sampler = match attached {
            Ok(sampler) => Sampler::Perf(sampler),
            Err(ObserveError::NoSuchProcess(_)) => {
                Sampler::Nobody("the program ended before the kernel allowed them".into())
            }
            Err(error) => Sampler::Nobody(error.to_string()),
        };
    }

    /// Takes in what is left when the target has ended or the time is over.
    pub fn finish(&mut self) {
        self.drain(true);
    }

    /// Whether the program has children that are our doing.
    pub const fn makes_processes(&self) -> bool {
        matches!(self.sampler, Sampler::Isolate(_))
    }

    /// What the sampler says it could not see.
    pub fn sampler_limits(&self) -> Vec<String> {
        let mut limits = Vec::new();
        if let Sampler::Perf(sampler) = &self.sampler {
            if sampler.unobserved_threads() > 0 {
                limits.push(format!(
                    "{} threads could not be observed for want of file descriptors; raise `ulimit -n`.",
                    sampler.unobserved_threads()
                ));
            }
            if sampler.samples_without_registers() > 0 {
                limits.push(format!(
                    "{} samples were of 32-bit programs, which are not decoded.",
                    sampler.samples_without_registers()
                ));
            }
        }
        if let Sampler::Nobody(why) = &self.sampler {
            limits.push(format!("No samples were taken: {why}."));
        }
        limits.extend(self.session.memory_limit());
        limits
    }

    /// Why watchpoints did not confirm what they might have.
    pub fn watch_limit(&self) -> Option<String> {
        if matches!(self.sampler, Sampler::Isolate(_)) {
            // Commits confirm.
            return None;
        }
        let why = self.watch_refused.as_ref()?;
        Some(format!("Watchpoints confirmed nothing (more): {why}."))
    }

    fn drain(&mut self, last: bool) {
        self.claims();
        // The epoch must begin before the samples that it is compared with.
        let now = monotonic_now();
        for heap in self.session.heaps() {
            heap.segment.advance_epoch(now);
        }
        let session = &mut self.session;
        let is_untold = &mut self.is_untold;
        let mut sink = |event| {
            *is_untold &= !matches!(event, Event::ThreadName { exec: true, .. });
            session.event(event);
        };
        match &mut self.sampler {
            Sampler::Perf(sampler) if last => sampler.finish(&mut sink),
            Sampler::Perf(sampler) => sampler.drain(&mut sink),
            Sampler::Pmu(sampler) if last => sampler.finish(&mut sink),
            Sampler::Pmu(sampler) => sampler.drain(&mut sink),
            Sampler::Timer | Sampler::Coming(_) | Sampler::Nobody(_) => {}
            Sampler::Isolate(tap) => tap.drain(session),
        }
        if matches!(self.sampler, Sampler::Timer) {
            for heap in self.session.heaps() {
                self.timer_samples(&heap);
            }
        }
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
        let timer = self.sampler.is_inside();
        for claim in registry.poll() {
            if timer {
                // The image that this one replaces has ended: all of its samples
                // are there.
                self.last_samples(&claim);
            }
            self.session.claim(&claim, timer || self.is_untold);
            // What is read now and then would come late for a short process.
            if timer
                && !claim.refused
                && let Ok(mappings) = proc::mappings(claim.process)
                && mappings.iter().next().is_some()
            {
                self.session.set_mappings(claim.process, mappings);
                self.session.refresh_code(claim.process);
            }
        }
    }

    fn last_samples(&mut self, claim: &Claim) {
        let before = self.session.heaps();
        for heap in before.iter().filter(|h| h.process == claim.process) {
            self.timer_samples(heap);
        }
        self.session.pass_on();
    }

    fn timer_samples(&mut self, heap: &Heap) {
        let process = heap.process;
        heap.segment.drain_samples(&mut |s| {
            self.session.sample(&RawSample {
                time: s.time,
                process,
                thread: s.thread,
                cpu: s.cpu,
                period_ns: s.period_ns,
                registers: Registers {
                    general: s.registers,
                    ip: s.ip,
                },
            });
        });
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
                if self.sampler.is_inside() {
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
            if let Sampler::Perf(sampler) = &mut self.sampler
                && suspects.iter().any(|s| s.cost_share >= WORTH_WATCHING)
            {
                sampler.alert();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Follow, judge_config};
    use sunder_observe::launch::Launch;

    fn suspect(quiet: u32, loud: u32) -> Suspect {
        Suspect {
            line: Address(0x1000),
            since: Time(0),
            words: Vec::new(),
            threads: Vec::new(),
            cost_ns: 0.0,
            cost_share: 1.0,
            confirmed: false,
            loud_bursts: loud,
            quiet_bursts: quiet,
        }
    }

    /// Bursts that found a thread off its CPU say nothing of what comes later.
    #[test]
    fn a_quiet_line_is_asked_again_after_pauses_that_grow() {
        let (process, mut quiet) = (ProcessId(1), Quiet::default());
        let at = Duration::from_millis;
        let mut now = at(0);
        let mut asked = Vec::new();
        let mut bursts = 0;
        while now < at(60_000) {
            let line = suspect(bursts, 0);
            if quiet.is_over(process, &line, now) {
                quiet.asked(process, &line, now);
                asked.push(now.as_millis());
                bursts += 1;
            }
            now += at(25);
        }
        let expected = [0, 25, 50, 300, 800, 1800, 3800, 7800, 15800, 31800, 47800];
        assert_eq!(asked, expected);
        // Of another process nothing is known, and one that is loud need not wait.
        assert!(quiet.is_over(ProcessId(2), &suspect(bursts, 0), now));
        assert!(quiet.is_over(process, &suspect(bursts, bursts), at(47_900)));
        assert!(!quiet.is_over(process, &suspect(bursts, 0), at(47_900)));
    }

    /// The kernel's answer may take longer than the program's start.
    #[test]
    fn samples_that_come_late_are_of_what_the_program_has_become() {
        let Some(first) = FirstEvent::open() else {
            println!("SKIP: the kernel refuses samples");
            return;
        };
        let script = ["-c", "exec sh -c 'while :; do :; done'"];
        let prepared = Launch::new("sh").arguments(script).prepare();
        let prepared = prepared.expect("a child");
        let pid = prepared.pid();
        let mut child = prepared.go().expect("a shell");
        let coming = Sampler::Coming(Coming {
            first,
            plan: FrequencyPlan::default(),
        });
        let config = judge_config(64, None).expect("a size of lines");
        let session = Session::new(config, Follow::Only(pid));
        let mut live = Live::new(session, coming, None, pid, 0.0);
        let mut ended = |pause| {
            std::thread::sleep(pause);
            false
        };
        while live.session.process(pid).figures.samples < 3 && live.elapsed().as_secs() < 20 {
            live.step(None, &mut ended).expect("a wait");
        }
        assert!(matches!(live.sampler, Sampler::Perf(_)));
        let process = live.session.process(pid);
        assert!(process.figures.samples >= 3);
        assert_eq!(process.threads.count(), 1);
        assert!(process.mappings().iter().any(|m| m.execute));
        // SAFETY: a child of ours that has not been waited for.
        unsafe { libc::kill(pid.0 as i32, libc::SIGKILL) };
        child.wait().expect("its end");
    }
}
