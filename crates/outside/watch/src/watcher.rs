//! The loop: samples of all CPUs are counted, processes whose threads run at once are looked at closely,
//! a few at a time and as the budget allows, and what is found is told.

mod choosing;
mod paying;

use crate::accounts::Accounts;
use crate::aside::{Aside, Work};
use crate::census::Census;
use crate::interest::Interest;
use crate::known::{Change, Known};
use crate::look::{Conditions, Look};
use crate::looked::LookedAt;
use crate::naming::{Heavy, Named, Naming};
use crate::options::{Asked, Options};
use crate::owner::Owners;
use crate::spend::Spend;
use crate::turns::Turns;
use anyhow::{Context, Result};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use sunder_access::ProcessId;
use sunder_findings::{
    DEFAULT_THRESHOLD_PERCENT, Finding, Findings, Happening, Origin, Record, Standing,
    WATCH_SCHEMA, WATCH_VERSION, WatchStatus, Watched,
};
use sunder_observe::machine::{self, Machine};
use sunder_observe::perf::{SystemSampler, interrupt_cost};
use sunder_observe::{Event, proc};

/// How long a look takes in a watch that goes on, unless its interval is shorter.
const LOOK: Duration = Duration::from_secs(10);
/// If no line is contended after so long, the look ends.
const QUIET: Duration = Duration::from_secs(3);
/// The most processes at a time that name what was found.
const MOST_NAMINGS: usize = 2;

/// Pauses between two readings of the rings: without looks, and during one. Pointers in memory are read
/// soon after the sample that needs them.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_LOOKING: Duration = Duration::from_millis(50);
/// How often processes are chosen.
const CHOOSE_EVERY: Duration = Duration::from_millis(500);
/// Samples a second and CPU for a single look: there is no time to wait for rare ones.
const HZ_ONCE: u32 = 199;
/// How long the end waits for what is being named. A service has little time to end.
const LAST: Duration = Duration::from_secs(10);
/// The same after a single look, which is for that answer.
const LAST_ONCE: Duration = Duration::from_secs(60);

/// Watches until the caller asks for the end, or the time is over. Records go to `tell`.
///
/// # Errors
/// If the machine can't be sampled.
pub fn watch(
    options: Options,
    tell: &mut dyn FnMut(Record),
    asked: &mut dyn FnMut() -> Asked,
) -> Result<()> {
    options.pending.note_here();
    let mut watcher = Watcher::begin(options)?;
    loop {
        match asked() {
            Asked::Nothing => {}
            Asked::Anew => watcher.begin_anew()?,
            Asked::End | Asked::Now => break,
        }
        if watcher.options.once.is_some_and(|d| watcher.elapsed() >= d) {
            break;
        }
        watcher.step(tell)?;
    }
    watcher.end(tell, asked);
    Ok(())
}

struct Watcher {
    options: Options,
    conditions: Conditions,
    sampler: SystemSampler,
    spend: Spend,
    accounts: Accounts,
    owners: Owners,
    census: Census,
    interest: Interest,
    /// Empty; kept for its memory.
    events: Vec<Event>,
    looks: Vec<Look>,
    namings: Vec<Naming>,
    /// Namings that are over and whose processes are not gone from the kernel's table yet.
    ended: Vec<Naming>,
    known: Known,
    looked: LookedAt,
    turns: Turns,
    heavy: Heavy,
    started: Instant,
    next_choice: Duration,
    next_tick: Duration,
    lost: u64,
    status: WatchStatus,
    /// Interrupts of samplers that have been closed.
    interrupts_before: f64,
    samples_before: u64,
}

impl Watcher {
    fn begin(options: Options) -> Result<Self> {
        let machine = Machine::read();
        let line = options.line_size.map_or(machine.line.bytes(), u64::from);
        let conditions = Conditions {
            transfer: machine::transfer_cost().map(|cost| cost.nanoseconds),
            threshold: options.threshold.unwrap_or(DEFAULT_THRESHOLD_PERCENT),
            watch_share: options.watch_budget / 100.0,
            line,
            machine,
        };
        // What it is not known to cost is taken to be dear.
        const DEAR_NS: f64 = 30_000.0;
        let spend = Spend::new(options.budget_percent, interrupt_cost().unwrap_or(DEAR_NS));
        let sampler = open(&options, &spend)?;
        Ok(Self {
            conditions,
            sampler,
            spend,
            accounts: Accounts::default(),
            owners: Owners::default(),
            census: Census::default(),
            interest: Interest::default(),
            events: Vec::new(),
            looks: Vec::new(),
            namings: Vec::new(),
            ended: Vec::new(),
            known: Known::default(),
            looked: LookedAt::default(),
            turns: Turns::default(),
            heavy: Heavy::default(),
            started: Instant::now(),
            next_choice: CHOOSE_EVERY,
            // The first status says that it has begun.
            next_tick: options.once.map_or(Duration::ZERO, |_| options.interval),
            lost: 0,
            status: WatchStatus {
                begun_unix_ns: now_unix_ns(),
                ..WatchStatus::default()
            },
            interrupts_before: 0.0,
            samples_before: 0,
            options,
        })
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// CPUs may have come or gone. What is known stays, but for builds whose debug information once took too
    /// much: that may have been for want of memory.
    fn begin_anew(&mut self) -> Result<()> {
        self.heavy = Heavy::default();
        self.conditions.machine = Machine::read();
        let sampler = open(&self.options, &self.spend)?;
        let mut old = std::mem::replace(&mut self.sampler, sampler);
        self.interrupts_before += old.interrupts();
        let mut events = Vec::new();
        old.finish(&mut |event| events.push(event));
        self.samples_before += old.samples();
        events.into_iter().for_each(|event| self.take(event));
        Ok(())
    }

    fn interrupts(&self) -> f64 {
        self.interrupts_before + self.sampler.interrupts()
    }

    fn step(&mut self, tell: &mut dyn FnMut(Record)) -> Result<()> {
        let mut pause = if self.looks.is_empty() && self.namings.is_empty() {
            PAUSE
        } else {
            PAUSE_LOOKING
        };
        if let Some(once) = self.options.once {
            pause = pause.min(once.saturating_sub(self.elapsed()));
        }
        self.sampler.wait(pause)?;
        let mut events = self.read();
        let lost = self.lost;
        let before = self.looks_begin();
        for event in events.drain(..) {
            self.take_and_tell(event, tell);
        }
        self.events = events;
        self.looks.iter_mut().for_each(Look::step);
        self.looks_took(before);
        if self.lost > lost {
            self.find_ended(tell);
        }
        self.end_looks(tell);
        self.take_names(tell);
        let elapsed = self.elapsed();
        if elapsed >= self.next_choice {
            self.next_choice = elapsed + CHOOSE_EVERY;
            self.account();
            self.choose();
        }
        if elapsed >= self.next_tick {
            self.next_tick = elapsed + self.options.interval;
            self.tick(tell);
            if !self.sampler.covers_the_machine() {
                self.begin_anew()?;
            }
        }
        Ok(())
    }

    /// The events that matter, in the order of time. Their place is to be given back.
    fn read(&mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.events);
        self.interest.begin();
        let of = |origin: &Origin, process: ProcessId| origin.pid == process.0;
        let is_looked_at =
            |process: ProcessId| self.looks.iter().any(|look| of(&look.origin, process));
        let is_known = |process: ProcessId| {
            self.census.has(process)
                || self.turns.has(process)
                || self.known.has(process)
                || is_looked_at(process)
                || self.namings.iter().any(|one| of(&one.origin, process))
        };
        let interest = &mut self.interest;
        self.sampler.drain(
            |event| interest.is_in(event, is_known, is_looked_at),
            &mut |event| events.push(event),
        );
        events
    }

    fn take_and_tell(&mut self, event: Event, tell: &mut dyn FnMut(Record)) {
        if let Some(process) = image_that_ends(&event) {
            // Where only the first thread has ended (`pthread_exit` in `main`), the process goes on.
            let first_thread = matches!(event, Event::ThreadEnd { .. });
            let matters = self.known.has(process)
                || self.looks.iter().any(|look| look.origin.pid == process.0);
            if !(first_thread && matters && proc::is_alive(process)) {
                self.image_ends(process, tell);
            }
        }
        self.take(event);
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Sample(sample) => {
                self.census.sampled(&sample);
                let mut looks = self.looks.iter_mut();
                let look = looks.find(|look| look.origin.pid == sample.process.0 && !look.over);
                if let Some(look) = look {
                    look.sampled(sample);
                }
            }
            Event::ThreadStart { process, .. } | Event::ThreadName { process, .. } => {
                let mut looks = self.looks.iter_mut();
                let look = looks.find(|look| look.origin.pid == process.0 && !look.over);
                if let Some(look) = look {
                    look.reported(event);
                }
            }
            Event::Lost(count) => self.lost += count,
            _ => {}
        }
    }

    /// The process ends or executes another program.
    fn image_ends(&mut self, process: ProcessId, tell: &mut dyn FnMut(Record)) {
        self.census.forget(process);
        self.turns.forget(process);
        self.owners.forget(process);
        let of = |pid: u32| pid == process.0;
        for look in self.looks.iter_mut().filter(|look| of(look.origin.pid)) {
            look.over = true;
        }
        let namings = self.namings.iter_mut();
        for naming in namings.filter(|naming| of(naming.origin.pid)) {
            naming.over = true;
        }
        let gone = self.known.ended(process);
        self.tell_all(gone, tell);
    }

    /// Ends looks whose time is over.
    fn end_looks(&mut self, tell: &mut dyn FnMut(Record)) {
        let once = self.options.once.is_some();
        for mut look in std::mem::take(&mut self.looks) {
            let elapsed = look.elapsed();
            let is_quiet = elapsed >= QUIET && !look.is_contended();
            let whole = LOOK.min(self.options.interval);
            let is_done = is_quiet || look.over || (!once && elapsed >= whole);
            // Its findings wait for a place among those that are named.
            if is_done && (!look.may_have_findings() || self.may_name(&look, MOST_NAMINGS)) {
                self.end_look(look, tell);
            } else {
                self.looks.push(look);
            }
        }
    }

    /// Ends a look, and has what it found named if that may count.
    fn end_look(&mut self, mut look: Look, tell: &mut dyn FnMut(Record)) {
        self.status.looks += 1;
        let (origin, over) = (look.origin.clone(), look.over);
        let owner = look.owner.clone();
        self.status.samples_looked_at += look.samples();
        if !over {
            self.turns.looked(ProcessId(origin.pid), Instant::now());
        }
        if !look.may_have_findings() {
            self.shown(origin, Vec::new(), over, tell);
            return;
        }
        let answers = self.options.answers.clone();
        let extent = self.heavy.extent(&origin);
        let named = Aside::begin(extent, move |extent| {
            Named::by(look, answers.as_ref(), extent)
        });
        match named {
            Ok(aside) => self.namings.push(Naming {
                origin,
                owner,
                aside,
                told_seconds: 0.0,
                over,
            }),
            Err(_) => self.status.looks_failed += 1,
        }
    }

    /// Takes what has been named meanwhile.
    fn take_names(&mut self, tell: &mut dyn FnMut(Record)) {
        for mut naming in std::mem::take(&mut self.namings) {
            let Work::Done(answer) = naming.aside.poll() else {
                self.namings.push(naming);
                continue;
            };
            let named = Named::parts(&answer);
            if !named.whole {
                self.heavy.add(&naming.origin);
                self.status.looks_by_symbols += u64::from(!named.findings.is_empty());
            }
            if let Some(answers) = &self.options.answers {
                // What is not kept is looked up again.
                let _ = answers.add(named.learned);
            }
            let findings = Findings::read(named.findings);
            let process = ProcessId(naming.origin.pid);
            self.turns.named(process, findings.is_ok());
            match findings {
                Ok(findings) => {
                    let unknown = findings.run.unattributed_percent.unwrap_or(0.0);
                    let samples = findings.run.samples;
                    let unattributed = samples as f64 * unknown / 100.0;
                    self.status.samples_unattributed += unattributed;
                    let now = now_unix_ns();
                    let counted = (samples, unattributed);
                    self.looked.add(&naming.origin, counted, now);
                    let threshold = findings.run.threshold_percent;
                    let all = findings.findings.into_iter();
                    let shown = all.filter(|f| f.standing(threshold) == Standing::Significant);
                    self.shown(naming.origin.clone(), shown.collect(), naming.over, tell);
                }
                Err(_) => self.status.looks_failed += 1,
            }
            self.ended.push(naming);
        }
        self.forget_ended();
    }

    /// A look has shown these findings that count.
    fn shown(
        &mut self,
        origin: Origin,
        findings: Vec<Finding>,
        over: bool,
        tell: &mut dyn FnMut(Record),
    ) {
        let process = ProcessId(origin.pid);
        let now = now_unix_ns();
        let changes = self.known.looked(&origin, findings, now);
        self.tell_all(changes, tell);
        if over {
            let gone = self.known.ended(process);
            self.tell_all(gone, tell);
        }
    }

    fn tell_all(&self, changes: Vec<Change>, tell: &mut dyn FnMut(Record)) {
        let once = self.options.once.is_some();
        for change in changes {
            let event = match change.event {
                Happening::Appeared if once => Happening::Present,
                Happening::Gone if once => continue,
                other => other,
            };
            tell(Record::Finding(Box::new(Watched {
                schema: WATCH_SCHEMA.into(),
                version: WATCH_VERSION,
                tool: env!("CARGO_PKG_VERSION").into(),
                time_unix_ns: now_unix_ns(),
                event,
                fingerprint: change.fingerprint,
                origin: change.origin,
                before_percent: change.before_percent,
                finding: change.finding,
            })));
        }
    }

    /// Ends a period: what was lost in it, and the status.
    fn tick(&mut self, tell: &mut dyn FnMut(Record)) {
        self.find_ended(tell);
        let census = &self.census;
        self.known
            .add_lost(|process, threads| census.seconds_of(process, threads));
        self.tell_status(tell);
        self.census.begin_period();
    }

    /// Finds processes that have ended, of those that are looked at or have findings: the kernel's report of
    /// an end may have been lost, and another process may have the number by now.
    fn find_ended(&mut self, tell: &mut dyn FnMut(Record)) {
        let looks = self.looks.iter().map(|look| &look.origin);
        let namings = self.namings.iter().map(|naming| &naming.origin);
        let all = self.known.processes().chain(looks).chain(namings);
        let is_gone = |o: &&Origin| proc::start_ticks(ProcessId(o.pid)) != Some(o.started_ticks);
        let gone: Vec<ProcessId> = all.filter(is_gone).map(|o| ProcessId(o.pid)).collect();
        for process in gone {
            self.image_ends(process, tell);
        }
    }

    fn tell_status(&mut self, tell: &mut dyn FnMut(Record)) {
        self.account();
        let memory = proc::own_memory().map_or(0, |memory| memory.resident);
        let status = WatchStatus {
            schema: WATCH_SCHEMA.into(),
            version: WATCH_VERSION,
            time_unix_ns: now_unix_ns(),
            host: self.options.host.clone(),
            seconds: self.elapsed().as_secs_f64(),
            samples: self.samples_before + self.sampler.samples(),
            lost_records: self.lost,
            frequency_hz: self.sampler.frequency(),
            cpus: u32::try_from(self.sampler.cpus()).unwrap_or(u32::MAX),
            processes: self.census.count() as u64,
            own_cpu_seconds: self.own_seconds(),
            interrupt_seconds: self.spend.of_interrupts(self.interrupts()),
            budget_percent: match self.options.once {
                Some(_) => 0.0,
                None => self.options.budget_percent,
            },
            spent_percent: self.spend.lately_percent(),
            memory_bytes: memory,
            present: self.known.present(),
            looked: self.looked.take(),
            ..self.status.clone()
        };
        tell(Record::Status(Box::new(status)));
    }

    /// Ends all looks, waits for the names, and tells the last status.
    fn end(mut self, tell: &mut dyn FnMut(Record), asked: &mut dyn FnMut() -> Asked) {
        let mut events = Vec::new();
        self.sampler.finish(&mut |event| events.push(event));
        for event in events {
            self.take(event);
        }
        let since = Instant::now();
        let most = match self.options.once {
            Some(_) => LAST_ONCE,
            None => LAST,
        };
        for mut look in std::mem::take(&mut self.looks) {
            look.step();
            // Debug information takes memory.
            while self.namings.len() >= MOST_NAMINGS && since.elapsed() < most {
                std::thread::sleep(Duration::from_millis(5));
                self.take_names(tell);
            }
            self.end_look(look, tell);
        }
        while !self.namings.is_empty() && since.elapsed() < most && asked() != Asked::Now {
            std::thread::sleep(Duration::from_millis(5));
            self.take_names(tell);
        }
        self.status.looks_failed += self.namings.len() as u64;
        let census = &self.census;
        self.known
            .add_lost(|process, threads| census.seconds_of(process, threads));
        self.tell_status(tell);
    }
}

/// The process whose image an event ends.
fn image_that_ends(event: &Event) -> Option<ProcessId> {
    match event {
        Event::ThreadEnd {
            process, thread, ..
        } if process.0 == thread.0 => Some(*process),
        Event::ThreadName {
            process,
            exec: true,
            ..
        } => Some(*process),
        _ => None,
    }
}

fn open(options: &Options, spend: &Spend) -> Result<SystemSampler> {
    let cpus = Machine::read().online.len();
    let usual = if options.once.is_some() {
        HZ_ONCE
    } else {
        spend.frequency(cpus)
    };
    SystemSampler::open(options.frequency.unwrap_or(usual)).context("cannot watch this machine")
}

fn now_unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as u64)
}
