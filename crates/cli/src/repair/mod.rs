//! `sunder repair`: starts a program, and when bytes of different threads are seen
//! to share lines, moves them to lines of their own while it runs. What can't be
//! done safely is left alone, and said. The exit status is the program's.

pub mod attach;
mod attempt;
mod bell;
mod chaos;
mod choose;
mod code;
mod control;
mod gauge;
mod known;
mod layout;
mod outcome;
mod place;
mod serve;
mod soundness;
mod tell;

use crate::args::Repair as Options;
use crate::calls::Calls;
use crate::detect::{Beside, Loaded, exit_code, observe_beside, start_failure};
use crate::embed::MemoryFile;
use crate::live::Live;
use crate::output::{complain, note};
use crate::status;
use anyhow::{Context, Result};
use attach::Inside;
use attempt::{Attempt, Next};
use chaos::Chaos;
use choose::{Chooser, Look, Mark, Proposal, can_be_moved, contended};
use control::ControlFile;
use gauge::{Bytes, Gauge, Windows};
use known::Known;
use layout::{groups_of, layout, rules};
use outcome::outcome;
use serve::Server;
use soundness::is_sound;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;
use sunder_access::{Mappings, ProcessId, ThreadId, Time};
use sunder_findings::{Findings, MovedGroup, Repair, Unrepaired};
use sunder_observe::{monotonic_now, proc};
use sunder_wire::remap::{
    ACTIVE, APPLY, APPLY_AGAIN, APPLYING, AREA_BYTES, AREAS, Area, CACHE, FREE, NO_HOOKS,
    NOT_LOADED, READY, ROLL_BACK, ROLLED_BACK,
};

/// How often the lines are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often threads are looked at that are measured.
const MEASURE_EVERY: Duration = Duration::from_millis(2);
/// A thread that is asked to move does it within so many looks, or another is asked.
const PATIENCE: u32 = 20;
/// So many times in a row all threads are stopped to move something.
const ATTEMPTS: u32 = 8;

/// Runs the command; the value is the status to exit with.
///
/// # Errors
/// If Sunder itself failed before the program could run.
pub fn run(options: &Options) -> Result<u8> {
    let mut repairer = Repairer::new(options.dry_run, options.chaos)?;
    if let Some(file) = &options.from {
        let saved =
            Findings::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        repairer.chooser.known = Known::of(&saved);
    }
    let done = observe_beside(
        &options.program,
        options.observer,
        &options.observe,
        false,
        None,
        &mut repairer,
    );
    let (mut findings, exit) = match done {
        Ok(done) => done,
        Err(error) => return Ok(start_failure(&error)),
    };
    let mappings = repairer.mappings.clone();
    let mut repair = repairer.finish();
    tell::name_code(&mut repair, mappings);
    tell::name(&mut repair, &findings);
    if !options.quiet {
        for line in tell::tell(&repair) {
            note(&line);
        }
    }
    findings.repair = Some(repair);
    let own = exit_code(exit);
    if let Some(path) = &options.report
        && let Err(error) = write(path, &findings)
    {
        complain(&error);
        return Ok(if own == 0 { status::FAILED } else { own });
    }
    Ok(own)
}

fn write(path: &std::path::Path, findings: &Findings) -> Result<()> {
    let text = serde_json::to_string_pretty(findings).context("cannot show the result")?;
    std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
}

/// Goes along with a program.
struct Repairer {
    dry_run: bool,
    file: Arc<ControlFile>,
    library: MemoryFile,
    server: Option<Server>,
    /// The library, where we have put it into the program ourselves.
    inside: Option<Inside>,
    process: ProcessId,
    started: Time,
    next_look: Duration,
    chooser: Chooser,
    calls: Calls,
    /// Instead of what is worth moving.
    chaos: Option<Chaos>,
    attempts: Vec<Attempt>,
    gauge: Before,
    /// The program's memory when something was last moved.
    mappings: Mappings,
    refused: Vec<Unrepaired>,
    /// Addresses that were given out.
    taken: Vec<(u64, u64)>,
    hindrance: Option<String>,
    /// The library was seen in place.
    began: bool,
}

impl Beside for Repairer {
    fn load(&self) -> Option<Loaded> {
        if self.dry_run {
            return None;
        }
        let library = self.library.path();
        let mut value = library.clone().into_os_string();
        value.push(",");
        value.push(self.file.path());
        Some(Loaded {
            library,
            variable: "SUNDER_REMAP".into(),
            value,
        })
    }

    fn begins(&mut self, process: ProcessId) -> Result<()> {
        self.process = process;
        self.started = monotonic_now();
        self.file.control().process.store(process.0, Release);
        let server = Server::start(Arc::clone(&self.file), process);
        self.server = Some(server.context("cannot start a thread")?);
        Ok(())
    }

    fn step(&mut self, live: &mut Live) {
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
        if !self.can_move() {
            return;
        }
        let now = monotonic_now();
        let unwatched = live.watch_refused.is_some();
        let process = live.session.process(self.process);
        let measured = self.dry_run || self.gauge.is_enough();
        match self.chooser.look(process, now, unwatched, measured) {
            Look::Nothing => self.gauge = Before::Nothing,
            Look::Gathering(bytes) => self.gauge.measure(self.process, bytes, self.dry_run),
            Look::Move(proposal) => {
                let before = std::mem::take(&mut self.gauge).end();
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
        measuring.then_some(MEASURE_EVERY)
    }
}

/// Whether a thread is to move it, or does.
fn is_on_its_way(area: &Area) -> bool {
    let state = area.state.load(Acquire);
    let again = area.wanted.load(Acquire) == APPLY_AGAIN;
    matches!(state, FREE | APPLYING) || again && state == ROLLED_BACK
}

/// How threads get on whose bytes may be about to be moved.
#[derive(Default)]
enum Before {
    /// None are.
    #[default]
    Nothing,
    /// They are measured, with these bytes.
    Measuring(Box<Gauge>, Vec<Bytes>),
    /// They can't be.
    Refused,
}

impl Before {
    fn measure(&mut self, process: ProcessId, bytes: Vec<Bytes>, dry_run: bool) {
        if !matches!(self, Self::Nothing) || dry_run {
            return;
        }
        let mut threads: Vec<ThreadId> = bytes.iter().map(|b| b.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        *self = match Gauge::begin(process, &threads) {
            Some(gauge) => Self::Measuring(Box::new(gauge), bytes),
            None => Self::Refused,
        };
    }

    fn read(&mut self) {
        if let Self::Measuring(gauge, bytes) = self {
            gauge.read(bytes);
        }
    }

    fn is_enough(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Measuring(gauge, _) => gauge.is_enough(),
            Self::Refused => true,
        }
    }

    fn end(self) -> Windows {
        match self {
            Self::Measuring(gauge, _) => gauge.end(),
            _ => Windows::new(),
        }
    }
}

impl Repairer {
    fn new(dry_run: bool, chaos: Option<u64>) -> Result<Self> {
        Ok(Self {
            dry_run,
            file: Arc::new(ControlFile::new()?),
            library: MemoryFile::remap().context("cannot make the library available")?,
            server: None,
            inside: None,
            process: ProcessId(0),
            started: Time(0),
            next_look: Duration::ZERO,
            chooser: Chooser::default(),
            // Any may be about bytes that have moved.
            calls: Calls::new(|_| true),
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

    /// Moves something, or puts something back.
    fn make_chaos(&mut self, live: &mut Live) {
        let process = self.process;
        let now = monotonic_now().0;
        for attempt in &mut self.attempts {
            if let Some(number) = attempt.area {
                attempt.follow(&self.file.control().areas[number], now);
            }
        }
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
            let (page, len) = self.attempts[which].pages();
            if back && self.may_again(live, page, len).is_ok() {
                self.move_again(which);
            }
            return;
        }
        let (Ok(mappings), Ok(threads)) = (proc::mappings(process), proc::threads(process)) else {
            return;
        };
        let proposal = chaos.propose(live.session.process(process), &mappings, threads);
        if let Some(proposal) = proposal
            && self.can_move()
        {
            self.begin(proposal, Windows::new());
        }
    }

    /// What was there when the library was put in place is its own.
    fn see_the_beginning(&mut self) {
        if self.began || self.file.control().ready.load(Acquire) != READY {
            return;
        }
        self.began = true;
        if let Ok(mappings) = proc::mappings(self.process) {
            self.calls.begin(&mappings);
        }
    }

    /// Whether the library is in place and there is room for more.
    fn can_move(&mut self) -> bool {
        if self.dry_run {
            return self.attempts.len() < AREAS;
        }
        let under_way = self.attempts.iter().any(|attempt| {
            attempt.area.is_some_and(|n| is_on_its_way(self.area(n)))
                || self.chaos.is_none() && attempt.is_unsettled()
        });
        let ready = self.file.control().ready.load(Acquire) == READY;
        ready && !under_way && self.attempts.len() < AREAS
    }

    fn area(&self, number: usize) -> &Area {
        &self.file.control().areas[number]
    }

    fn begin(&mut self, proposal: Proposal, before: Windows) {
        let refuse = |proposal: &Proposal, reason: String| Unrepaired {
            object: proposal.object.clone(),
            address: format!("{:#x}", proposal.page),
            reason,
        };
        let groups = groups_of(&proposal, None);
        let number = self.attempts.len();
        if self.dry_run {
            self.push(proposal, groups, None, before);
            return;
        }
        if let Err(reason) = is_sound(self.process) {
            self.refused.push(refuse(&proposal, reason));
            return;
        }
        match self.prepare(&proposal, number) {
            Ok(at) => {
                let groups = groups_of(&proposal, Some(at));
                self.push(proposal, groups, Some(number), before);
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

    /// Lets what was moved live on: measures it, puts it back, moves it again.
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
                contended(process, proposal.page, proposal.len, mark)
            });
            let (page, len) = (attempt.proposal.page, attempt.proposal.len);
            match next {
                Next::Nothing => {}
                Next::Mark => {
                    let mark = Mark::of_pages(live.session.process(id), page, len);
                    attempt.look_from(mark, now);
                }
                Next::Again => match self.may_again(live, page, len) {
                    Ok(()) => self.move_again(number),
                    Err(_) => self.attempts[number].end(),
                },
            }
        }
    }

    /// What was asked before the first time is asked again: the program may have
    /// changed.
    fn may_again(&mut self, live: &mut Live, page: u64, len: u64) -> Result<(), String> {
        is_sound(self.process)?;
        let mappings = proc::mappings(self.process).map_err(|e| e.to_string())?;
        self.calls.all_seen(&mappings)?;
        can_be_moved(live.session.process(self.process), &mappings, page, len)
    }

    fn move_again(&mut self, number: usize) {
        let attempt = &mut self.attempts[number];
        if let Some(area) = attempt.area.map(|n| &self.file.control().areas[n]) {
            attempt.again(area);
            self.ring_again();
        }
    }

    /// Writes down what is moved where; where the area's data will lie.
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
            server.moves(number, moved, code);
        }
        Ok(at)
    }

    /// Asks a thread to carry out what is wanted and has not begun: one that runs, so
    /// that no kernel call of its is interrupted.
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
                continue;
            }
            if let Some(inside) = &self.inside {
                // Each attempt stops the program for a moment.
                if attempt.asked > ATTEMPTS && !attempt.asked.is_multiple_of(ATTEMPTS) {
                    continue;
                }
                let number = attempt.area.unwrap_or(0);
                let done = if area.wanted.load(Acquire) == ROLL_BACK {
                    inside.roll_back(&self.file, number)
                } else {
                    inside.apply(&self.file, number)
                };
                attempt.told(area, done, attempt.asked == PATIENCE * PATIENCE);
                continue;
            }
            if !bell::listens(process) {
                let became = "the program became another, into which nothing was loaded";
                if !bell::has_ended(process) {
                    self.hindrance.get_or_insert_with(|| became.into());
                }
                return;
            }
            let mut threads = attempt.proposal.threads.iter();
            // Not the first thread: it alone is still there if the program becomes
            // another from now on, whose end the signal would be.
            if let Some(thread) = threads.find(|t| t.0 != process.0 && bell::runs(process, t.0)) {
                bell::ring(process, thread.0);
            }
        }
    }

    /// What was done.
    fn finish(&mut self) -> Repair {
        let ready = self.file.control().ready.load(Acquire);
        if !self.dry_run && ready != READY && self.attempts.is_empty() {
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
            match outcome(attempt, area, self.server.as_ref(), self.started) {
                Ok(moved) => repair.moved.push(moved),
                Err(refused) => repair.refused.push(refused),
            }
        }
        repair.refused.extend(self.chooser.known.refused());
        repair
    }
}
