//! Repairs false sharing while the program runs (Plastic): moves bytes that different threads use
//! from one cache line to lines of their own. [`run`] starts a program and repairs it;
//! [`attach::run`] repairs a process that runs already, and puts everything back at the end. What
//! can't be moved safely is left alone, and the outcome says why. See `docs/design/remap.md` and
//! `docs/design/attach.md`.
//!
//! Used by the library `sunder` and the program. It must not print or exit, and must leave every process as it
//! found it, or say what stays in it.

pub mod attach;
mod attempt;
mod before;
mod bell;
mod chaos;
mod choose;
mod code;
mod control;
mod entry;
mod gauge;
mod known;
mod layout;
mod mark;
mod outcome;
mod pattern;
mod place;
mod serve;
mod soundness;
mod tell;

use anyhow::{Context, Result};
use attach::Left;
use attempt::{Attempt, Next, is_on_its_way};
use before::Before;
use chaos::Chaos;
use choose::{Chooser, Look, Proposal, can_be_moved, contended};
use control::ControlFile;
use entry::{Entry, Planned};
use gauge::Windows;
use known::Known;
use layout::{groups_of, layout, rules};
use mark::Mark;
use outcome::outcome;
use serve::Server;
use soundness::{has_its_code, is_sound};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;
use sunder_access::{Address, CodeAddress, Mappings, ProcessId, Span, Time};
use sunder_findings::{Findings, Limit, MovedGroup, Repair, Unrepaired};
use sunder_hooking::Calls;
use sunder_live::{
    Live, LiveRemedy, Loaded, Observation, ObserveOptions, ObserverChoice, observe_with,
};
use sunder_observe::ObserveError;
use sunder_observe::launch::Child;
use sunder_observe::{monotonic_now, proc};
use sunder_pipeline::Wanted;
use sunder_wire::remap::{
    ACTIVE, APPLY, APPLY_AGAIN, AREA_BYTES, AREAS, Area, CACHE, FREE, NO_HOOKS, NOT_LOADED, READY,
    ROLL_BACK, ROLLED_BACK,
};

/// Pause between two looks at the lines.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Pause between two looks at threads that are being measured.
const MEASURE_EVERY: Duration = Duration::from_millis(2);
/// Looks that a thread has to move the bytes once it is asked; then another thread is asked.
const PATIENCE: u32 = 20;
/// How many times in a row all threads are stopped to move something; after that only now and then.
const ATTEMPTS: u32 = 8;

/// Why bytes that were moved before are not moved again.
const OTHER_CODE: &str = "other code lies where some was that has been copied";

/// What to repair, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// Only say what would be moved.
    pub dry_run: bool,
    /// Move the objects of this saved result as soon as threads contend for them.
    pub from: Option<PathBuf>,
    /// Move random pages at random moments, chosen by this seed, and put them back. For tests.
    pub chaos: Option<u64>,
    /// How much of the result is wanted: finding names takes time after the program's end.
    pub detail: Detail,
    /// Which observer takes the samples.
    pub observer: ObserverChoice,
    /// How it takes them.
    pub observe: ObserveOptions,
}

/// How much of the result is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// All findings, and everything that was done.
    #[default]
    Report,
    /// The names of objects that were moved or left alone.
    Lines,
    /// Only whether something was done; no names.
    Nothing,
}

/// How a repaired program ended, and what was repaired.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub exit: ExitStatus,
    /// The result; its `repair` says what was repaired.
    pub findings: Findings,
    /// What was repaired, as lines for people.
    pub lines: Vec<String>,
}

/// Runs a program and repairs it, to its end.
///
/// # Errors
/// If Sunder itself failed before the program could run.
pub fn run(options: &Options) -> Result<Outcome> {
    let entry = if options.dry_run {
        Entry::Never
    } else {
        Entry::of_a_child()?
    };
    let mut repairer = Repairer::new(entry, options.chaos)?;
    repairer.dry_run = options.dry_run;
    repairer.detail = options.detail;
    if let Some(file) = &options.from {
        let saved =
            Findings::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        repairer.chooser.known = Known::of(&saved);
    }
    let what = Observation {
        program: options.program.clone(),
        observer: options.observer,
        options: options.observe,
        follow_children: false,
        threshold: None,
    };
    let (mut findings, exit) = observe_with(&what, &mut repairer)?;
    let wanted = options.detail == Detail::Report;
    let mut names = wanted.then(|| tell::code_names(repairer.mappings.clone()));
    let mut repair = repairer.finish(&mut |at| names.as_mut().and_then(|name| name(at)));
    tell::name(&mut repair, &findings);
    let mut limits = findings.limits.iter();
    let others = limits.any(|limit| matches!(limit, Limit::ProcessesLeftOut));
    let lines = tell::tell(&repair, others);
    findings.repair = Some(repair);
    Ok(Outcome {
        exit,
        findings,
        lines,
    })
}

/// Repairs a program while it is observed: chooses pages, has them moved, and follows them.
struct Repairer {
    dry_run: bool,
    file: Arc<ControlFile>,
    /// How the library gets into the program.
    entry: Entry,
    server: Option<Server>,
    process: ProcessId,
    started: Time,
    next_look: Duration,
    chooser: Chooser,
    calls: Calls,
    /// In chaos mode: picks random pages in place of falsely shared ones.
    chaos: Option<Chaos>,
    attempts: Vec<Attempt>,
    gauge: Before,
    /// The program's mappings when bytes were last moved.
    mappings: Mappings,
    refused: Vec<Unrepaired>,
    /// Address ranges of ours in the program, mapped or about to be.
    taken: Vec<(u64, u64)>,
    hindrance: Option<String>,
    /// The library was seen in place.
    began: bool,
    /// Threads of the program were stopped. `ptrace` reports the program's end too, so it must be
    /// asked of `sunder_stop`.
    stops: bool,
    detail: Detail,
}

impl LiveRemedy for Repairer {
    fn load(&self) -> Option<Loaded> {
        let Entry::Preloaded(library) = &self.entry else {
            return None;
        };
        let library = library.path();
        let mut value = library.clone().into_os_string();
        value.push(",");
        value.push(self.file.path());
        Some(Loaded {
            library,
            variable: "SUNDER_REMAP".into(),
            value,
        })
    }

    fn waits_for_samples(&self) -> bool {
        false
    }

    fn can_follow(&self) -> bool {
        false
    }

    fn wanted(&self) -> Wanted {
        match self.detail {
            Detail::Report => Wanted::All,
            Detail::Nothing => Wanted::Of(Vec::new()),
            Detail::Lines => {
                let moved = self.attempts.iter().map(|a| a.pages());
                let moved = moved.map(|(page, len)| Span::new(Address(page), len));
                let left = self.refused.iter().filter_map(tell::line_of);
                Wanted::Of(moved.chain(left).collect())
            }
        }
    }

    fn begins(&mut self, process: ProcessId) -> Result<()> {
        self.process = process;
        self.started = monotonic_now();
        if matches!(self.entry, Entry::Preloaded(_)) {
            self.file.control().process.store(process.0, Release);
            self.serve(process)?;
        }
        Ok(())
    }

    fn step(&mut self, live: &mut Live) {
        if self.stops {
            // A thread that did not stop in time is let go on as soon as it has stopped. An end of
            // the program that is learned of meanwhile is remembered by `sunder_stop`.
            let _ = sunder_stop::exit(self.process);
        }
        self.ring_again();
        self.see_the_beginning();
        let elapsed = live.elapsed();
        self.gauge.read();
        if self.chaos.is_some() {
            self.make_chaos(live);
            return;
        }
        self.let_live(live);
        if elapsed < self.next_look || live.first_suspect.is_none() {
            return;
        }
        self.next_look = elapsed + LOOK_EVERY;
        live.session.process(self.process).stops_to_move = self.stops_to_move();
        if !self.can_move() {
            return;
        }
        let now = monotonic_now();
        let unwatched = live.watch_refused.is_some();
        let process = live.session.process(self.process);
        let measured = self.dry_run || self.gauge.is_enough() && self.entry.is_planned();
        match self.chooser.look(process, now, unwatched, measured) {
            Look::Nothing => self.gauge = Before::Nothing,
            Look::Gathering(bytes) => {
                self.entry.plan(self.process);
                self.gauge.measure(self.process, bytes, self.dry_run);
            }
            Look::Move(proposal) => {
                // An earlier refusal was about another pattern of sharing.
                self.refused
                    .retain(|r| !r.address.is_some_and(|at| proposal.holds(at)));
                let before = std::mem::take(&mut self.gauge).end();
                // These pages get another layout now, so earlier layouts are not used again.
                let (page, end) = (proposal.page, proposal.page + proposal.len);
                let earlier = self.attempts.iter_mut().filter(|a| {
                    let (from, len) = a.pages();
                    from < end && page < from + len
                });
                earlier.for_each(Attempt::end);
                self.begin(proposal, before);
            }
            Look::Leave(refused) => {
                self.gauge = Before::Nothing;
                self.refused.push(refused);
            }
        }
    }

    fn patience(&self) -> Option<Duration> {
        let measuring = matches!(self.gauge, Before::Measuring(..))
            || self.attempts.iter().any(Attempt::is_measuring);
        (measuring || self.chaos.is_some()).then_some(MEASURE_EVERY)
    }

    fn collect(&mut self, child: &mut Child) -> Result<Option<ExitStatus>, ObserveError> {
        if self.stops {
            return Ok(sunder_stop::exit(self.process).map(ExitStatus::from_raw));
        }
        child.try_wait()
    }
}

impl Repairer {
    fn new(entry: Entry, chaos: Option<u64>) -> Result<Self> {
        let file = match entry {
            Entry::Preloaded(_) => ControlFile::with_plan()?,
            _ => ControlFile::unshared()?,
        };
        Ok(Self {
            dry_run: false,
            file: Arc::new(file),
            entry,
            server: None,
            stops: false,
            detail: Detail::Report,
            process: ProcessId(0),
            started: Time(0),
            next_look: Duration::ZERO,
            chooser: Chooser::default(),
            calls: Calls::to_move(),
            chaos: chaos.map(Chaos::new),
            attempts: Vec::new(),
            gauge: Before::Nothing,
            mappings: Mappings::new(),
            refused: Vec::new(),
            taken: Vec::new(),
            hindrance: None,
            began: false,
        })
    }

    /// Starts answering the program's threads.
    fn serve(&mut self, process: ProcessId) -> Result<()> {
        let server = Server::start(Arc::clone(&self.file), process);
        self.server = Some(server.context("cannot start a thread")?);
        Ok(())
    }

    /// Whether all threads are stopped to move bytes.
    const fn stops_to_move(&self) -> bool {
        matches!(self.entry, Entry::Late(_) | Entry::Inside(_))
    }

    /// Puts the library into the program, and starts the thread that answers it.
    fn put(&mut self, process: ProcessId, planned: Planned) -> Result<()> {
        self.stops = true;
        let (inside, file, mut calls) = planned.put(process)?;
        self.file = Arc::new(file);
        if let Err(error) = self.serve(process) {
            if let Left::Memory(why) = inside.take_out(&self.file) {
                return Err(error.context(format!("our library stays in it, as {why}")));
            }
            return Err(error);
        }
        self.taken.extend(inside.ours());
        let code: Vec<_> = inside.code().map(|(start, end)| [start, end]).collect();
        calls.know(&code);
        self.calls = calls;
        self.began = true;
        self.entry = Entry::Inside(Box::new(inside));
        Ok(())
    }

    /// Something is to be moved: puts the library into the program if it waits for that
    /// ([`Entry::Late`]). False if it could not be put in.
    fn bring_in(&mut self) -> bool {
        match std::mem::replace(&mut self.entry, Entry::Never) {
            Entry::Late(late) => {
                let process = self.process;
                let planned = late.take(process);
                if let Err(error) = planned.and_then(|planned| self.put(process, planned)) {
                    if !bell::has_ended(process) {
                        self.hindrance = Some(format!("{error:#}"));
                    }
                    return false;
                }
                true
            }
            other => {
                self.entry = other;
                true
            }
        }
    }

    /// Notes the code that was there when the library was put in place: it is the library's own.
    fn see_the_beginning(&mut self) {
        if self.began || self.file.control().ready.load(Acquire) != READY {
            return;
        }
        self.began = true;
        if let Ok(mappings) = proc::mappings(self.process) {
            self.calls.begin(&mappings);
        }
    }

    /// Whether the library is in place and another move may begin.
    fn can_move(&mut self) -> bool {
        if self.dry_run {
            return self.attempts.len() < AREAS;
        }
        let chaos = self.chaos.is_some();
        let under_way = self.attempts.iter().any(|attempt| {
            let area = attempt.area.map(|n| self.area(n));
            area.is_some_and(|area| {
                if chaos {
                    is_on_its_way(area)
                } else {
                    attempt.holds_up(area)
                }
            })
        });
        let ready = self.file.control().ready.load(Acquire) == READY
            || matches!(self.entry, Entry::Late(_));
        ready && !under_way && self.attempts.len() < AREAS
    }

    fn area(&self, number: usize) -> &Area {
        &self.file.control().areas[number]
    }

    fn begin(&mut self, proposal: Proposal, before: Windows) {
        let refuse = |proposal: &Proposal, reason: String| Unrepaired {
            object: proposal.object.clone(),
            address: Some(Address(proposal.page)),
            reason,
        };
        let groups = groups_of(&proposal, None);
        let number = self.attempts.len();
        if self.dry_run {
            self.push(proposal, groups, None, before);
            return;
        }
        if !self.bring_in() {
            if self.hindrance.is_none() {
                let reason = "the program ended before it could be moved".into();
                self.refused.push(refuse(&proposal, reason));
            }
            return;
        }
        if let Err(reason) = is_sound(self.process, proposal.page, proposal.len) {
            self.refused.push(refuse(&proposal, reason));
            return;
        }
        match self.prepare(&proposal, number) {
            Ok(at) => {
                let groups = groups_of(&proposal, Some(at));
                self.push(proposal, groups, Some(number), before);
                self.attempts[number].mappings.clone_from(&self.mappings);
                self.area(number).wanted.store(APPLY, Release);
                self.ring_again();
            }
            Err(reason) => self.refused.push(refuse(&proposal, reason)),
        }
    }

    fn push(
        &mut self,
        proposal: Proposal,
        groups: Vec<MovedGroup>,
        area: Option<usize>,
        before: Windows,
    ) {
        let now = monotonic_now();
        self.attempts
            .push(Attempt::new(proposal, groups, area, now, before));
    }

    /// Follows the bytes that were moved: measures threads, puts bytes back, moves them again.
    fn let_live(&mut self, live: &mut Live) {
        let now = monotonic_now().0;
        let id = self.process;
        for number in 0..self.attempts.len() {
            let attempt = &mut self.attempts[number];
            let Some(area) = attempt.area.map(|n| &self.file.control().areas[n]) else {
                continue;
            };
            let process = live.session.process(id);
            let next = attempt.step(area, id, now, &mut |proposal, mark| {
                contended(process, proposal, mark)
            });
            let (page, len) = (attempt.proposal.page, attempt.proposal.len);
            if attempt.has_gone_back() {
                self.chooser.went_back(page, len, Time(now));
            }
            match next {
                Next::Nothing => {}
                Next::Mark => {
                    let mark = Mark::of_pages(live.session.process(id), page, len);
                    attempt.look_from(mark, now);
                }
                Next::Again => match self.may_again(live, number) {
                    Ok(()) => {
                        self.chooser.goes_again(page, len);
                        self.move_again(number);
                    }
                    Err(_) => self.attempts[number].end(),
                },
            }
        }
    }

    /// Whether bytes may be moved again. All checks of the first time are repeated, as the program
    /// may have changed.
    fn may_again(&mut self, live: &mut Live, number: usize) -> Result<(), String> {
        let (page, len) = self.attempts[number].pages();
        is_sound(self.process, page, len)?;
        let mappings = proc::mappings(self.process).map_err(|e| e.to_string())?;
        self.calls.all_seen(&mappings)?;
        can_be_moved(live.session.process(self.process), &mappings, page, len)?;
        let attempt = &mut self.attempts[number];
        if let Some(area) = attempt.area.map(|n| &self.file.control().areas[n])
            && !has_its_code(area, &attempt.mappings, &mappings)
        {
            return Err(OTHER_CODE.into());
        }
        if let Some(server) = &self.server {
            server.renew(&mappings);
        }
        attempt.mappings = mappings;
        Ok(())
    }

    fn move_again(&mut self, number: usize) {
        let attempt = &mut self.attempts[number];
        if let Some(area) = attempt.area.map(|n| &self.file.control().areas[n]) {
            attempt.again(area);
            self.ring_again();
        }
    }

    /// Enters a move into an area of the control file; gives the address of the area's data.
    fn prepare(&mut self, proposal: &Proposal, number: usize) -> Result<u64, String> {
        let mappings = proc::mappings(self.process).map_err(|e| e.to_string())?;
        self.mappings.clone_from(&mappings);
        self.calls.all_seen(&mappings)?;
        let end = proposal.page + proposal.len;
        let ours = |&(from, to): &(u64, u64)| from < end && proposal.page < to;
        if self.taken.iter().any(ours) {
            return Err("it is memory of ours".into());
        }
        let full = || "there is no room near it in the address space".to_owned();
        let at = place::near(&mappings, &self.taken, proposal.page, AREA_BYTES).ok_or_else(full)?;
        self.taken.push((at, at + AREA_BYTES));
        let text = if proposal.code == 0 {
            proposal.page
        } else {
            proposal.code
        };
        let code = place::near(&mappings, &self.taken, text, CACHE).ok_or_else(full)?;
        self.taken.push((code, code + CACHE));
        let layout = layout(proposal)
            .ok_or_else(|| "its groups do not fit into the room for them".to_owned())?;
        let area = self.area(number);
        area.page.store(proposal.page, Relaxed);
        area.len.store(proposal.len, Relaxed);
        area.at.store(at, Relaxed);
        area.code.store(code, Relaxed);
        for (slot, (group, to)) in area.group.iter().zip(proposal.groups.iter().zip(&layout)) {
            slot.from.store(group.offset as u32, Relaxed);
            slot.len.store(group.size as u32, Relaxed);
            slot.to.store(*to as u32, Relaxed);
        }
        area.groups.store(layout.len() as u32, Relaxed);
        let moved = rules(proposal, &layout, at);
        if let Some(server) = &self.server {
            server.renew(&mappings);
            server.moves(number, moved, proposal.groups.clone(), code);
        }
        Ok(at)
    }

    /// Has all open requests carried out. If the library was put in while the program ran, all
    /// threads are stopped for that. If it was loaded at the start, a thread is asked by a signal;
    /// one that runs, so that none of its kernel calls is interrupted.
    fn ring_again(&mut self) {
        let process = self.process;
        let control = self.file.control();
        for attempt in &mut self.attempts {
            let Some(area) = attempt.area.map(|n| &control.areas[n]) else {
                continue;
            };
            let open = matches!(
                (area.state.load(Acquire), area.wanted.load(Acquire)),
                (FREE, APPLY) | (ROLLED_BACK, APPLY_AGAIN) | (ACTIVE, ROLL_BACK)
            );
            if !open {
                continue;
            }
            attempt.asked += 1;
            if attempt.asked > PATIENCE * PATIENCE {
                attempt.give_up(area);
                // Bytes that must go back are asked for as long as they are away, but less often.
                if area.wanted.load(Acquire) != ROLL_BACK || !attempt.asked.is_multiple_of(PATIENCE)
                {
                    continue;
                }
            }
            if !bell::listens(process) {
                let became = "the program became another, into which nothing was loaded";
                if !bell::has_ended(process) {
                    self.hindrance.get_or_insert_with(|| became.into());
                }
                return;
            }
            if let Entry::Inside(inside) = &self.entry {
                // Each attempt stops all threads for a moment.
                if attempt.asked > ATTEMPTS && !attempt.asked.is_multiple_of(ATTEMPTS) {
                    continue;
                }
                let number = attempt.area.unwrap_or(0);
                let done = if area.wanted.load(Acquire) == ROLL_BACK {
                    inside.roll_back(&self.file, number)
                } else {
                    inside.apply(&self.file, number, &mut self.calls, &attempt.mappings)
                };
                attempt.told(area, done, attempt.asked == PATIENCE * PATIENCE);
                continue;
            }
            // A thread that runs but blocks the signal is not asked for ever.
            let threads = &attempt.proposal.threads;
            let first = (attempt.asked / PATIENCE) as usize;
            let mut threads = threads.iter().cycle().skip(first).take(threads.len());
            // Never the first thread: if the program executes another one at this moment, only that
            // thread is left, and the signal would end the new program.
            if let Some(thread) = threads.find(|t| t.0 != process.0 && bell::runs(process, t.0)) {
                bell::ring(process, thread.0);
            }
        }
    }

    /// What was repaired. `function` gives the name of code that was copied.
    fn finish(&mut self, function: &mut dyn FnMut(CodeAddress) -> Option<String>) -> Repair {
        let ready = self.file.control().ready.load(Acquire);
        let preloaded = matches!(self.entry, Entry::Preloaded(_));
        if preloaded && ready != READY && self.attempts.is_empty() {
            self.hindrance = Some(
                match ready {
                    NOT_LOADED => "the library was not loaded into the program",
                    NO_HOOKS => "the C library's kernel calls can't be led through hooks",
                    _ => "the program confines itself, or makes processes in a way that can't be followed",
                }
                .into(),
            );
        }
        let mut repair = Repair {
            dry_run: self.dry_run,
            hindrance: self.hindrance.take(),
            moved: Vec::new(),
            refused: std::mem::take(&mut self.refused),
        };
        let now = monotonic_now().0;
        let areas = &self.file.control().areas;
        for attempt in &mut self.attempts {
            let area = attempt.area.map(|n| (n, &areas[n]));
            if let Some((_, area)) = area {
                attempt.follow(area, now);
            }
            match outcome(attempt, area, self.server.as_ref(), self.started, function) {
                Ok(moved) => repair.moved.push(moved),
                Err(refused) => repair.refused.push(refused),
            }
        }
        repair.refused.extend(self.chooser.known.refused());
        repair
    }
}
