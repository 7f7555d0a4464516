//! `sunder repair`: starts a program, and when bytes of different threads are seen
//! to share lines, moves them to lines of their own while it runs. What can't be
//! done safely is left alone, and said. The exit status is the program's.

mod bell;
mod chaos;
mod choose;
mod code;
mod control;
mod layout;
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
use chaos::Chaos;
use choose::{Chooser, Proposal};
use control::ControlFile;
use layout::{groups_of, layout, rules};
use serve::Server;
use soundness::is_sound;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;
use sunder_access::{ProcessId, Time};
use sunder_findings::{Findings, Moved, MovedGroup, Repair, RolledBack, Unrepaired};
use sunder_observe::{monotonic_now, proc};
use sunder_wire::remap::{
    self, ACTIVE, APPLY, APPLYING, AREA_BYTES, AREAS, Area, CACHE, FREE, NO_HOOKS, NOT_LOADED,
    READY, REFUSED, ROLL_BACK, ROLLED_BACK,
};

/// How often the lines are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A thread that is asked to move does it within so many looks, or another is asked.
const PATIENCE: u32 = 20;

/// Runs the command; the value is the status to exit with.
///
/// # Errors
/// If Sunder itself failed before the program could run.
pub fn run(options: &Options) -> Result<u8> {
    let mut repairer = Repairer::new(options.dry_run, options.chaos)?;
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
    let mut repair = repairer.finish();
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

/// One range of pages that was to be moved.
struct Attempt {
    proposal: Proposal,
    /// Its area; none in a dry run.
    area: Option<usize>,
    /// Groups as they moved.
    groups: Vec<MovedGroup>,
    /// When it was decided.
    decided: Time,
    /// How often threads were asked to move it.
    asked: u32,
}

/// Goes along with a program.
struct Repairer {
    dry_run: bool,
    file: Arc<ControlFile>,
    library: MemoryFile,
    server: Option<Server>,
    process: ProcessId,
    started: Time,
    next_look: Duration,
    chooser: Chooser,
    calls: Calls,
    /// Instead of what is worth moving.
    chaos: Option<Chaos>,
    attempts: Vec<Attempt>,
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
        if self.chaos.is_some() {
            self.make_chaos(live);
            return;
        }
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
        match self.chooser.look(process, now, unwatched) {
            Some(Ok(proposal)) => self.begin(proposal),
            Some(Err(refused)) => self.refused.push(refused),
            None => {}
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
            process: ProcessId(0),
            started: Time(0),
            next_look: Duration::ZERO,
            chooser: Chooser::default(),
            // Any may be about bytes that have moved.
            calls: Calls::new(|_| true),
            chaos: chaos.map(Chaos::new),
            attempts: Vec::new(),
            refused: Vec::new(),
            taken: Vec::new(),
            hindrance: None,
            began: false,
        })
    }

    /// Moves something, or puts something back.
    fn make_chaos(&mut self, live: &mut Live) {
        let process = self.process;
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
        let (Ok(mappings), Ok(threads)) = (proc::mappings(process), proc::threads(process)) else {
            return;
        };
        let proposal = chaos.propose(live.session.process(process), &mappings, threads);
        if let Some(proposal) = proposal
            && self.can_move()
        {
            self.begin(proposal);
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
        let under_way = self.attempts.iter().filter_map(|a| a.area).any(|number| {
            let state = self.area(number).state.load(Acquire);
            state == FREE || state == APPLYING
        });
        let ready = self.file.control().ready.load(Acquire) == READY;
        ready && !under_way && self.attempts.len() < AREAS
    }

    fn area(&self, number: usize) -> &Area {
        &self.file.control().areas[number]
    }

    fn begin(&mut self, proposal: Proposal) {
        let refuse = |proposal: &Proposal, reason: String| Unrepaired {
            object: proposal.object.clone(),
            address: format!("{:#x}", proposal.page),
            reason,
        };
        let groups = groups_of(&proposal, None);
        let number = self.attempts.len();
        if self.dry_run {
            self.push(proposal, groups, None);
            return;
        }
        if let Err(reason) = is_sound(self.process) {
            self.refused.push(refuse(&proposal, reason));
            return;
        }
        match self.prepare(&proposal, number) {
            Ok(at) => {
                let groups = groups_of(&proposal, Some(at));
                self.push(proposal, groups, Some(number));
                self.area(number).wanted.store(APPLY, Release);
                self.ring_again();
            }
            Err(reason) => self.refused.push(refuse(&proposal, reason)),
        }
    }

    fn push(&mut self, proposal: Proposal, groups: Vec<MovedGroup>, area: Option<usize>) {
        self.attempts.push(Attempt {
            proposal,
            area,
            groups,
            decided: monotonic_now(),
            asked: 0,
        });
    }

    /// Writes down what is moved where; where the area's data will lie.
    fn prepare(&mut self, proposal: &Proposal, number: usize) -> Result<u64, String> {
        let mappings = proc::mappings(self.process).map_err(|e| e.to_string())?;
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
                (FREE, APPLY) | (ACTIVE, ROLL_BACK)
            );
            if !open {
                continue;
            }
            attempt.asked += 1;
            if attempt.asked > PATIENCE * PATIENCE {
                continue;
            }
            if !bell::listens(process) {
                let became = "the program became another, into which nothing was loaded";
                self.hindrance.get_or_insert_with(|| became.into());
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
    fn finish(mut self) -> Repair {
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
        for attempt in &self.attempts {
            match self.outcome(attempt) {
                Ok(moved) => repair.moved.push(moved),
                Err(refused) => repair.refused.push(refused),
            }
        }
        repair
    }

    fn outcome(&self, attempt: &Attempt) -> Result<Moved, Unrepaired> {
        let proposal = &attempt.proposal;
        let seconds = |time: u64| Time(time).since(self.started) as f64 / 1e9;
        let mut moved = Moved {
            object: proposal.object.clone(),
            address: format!("{:#x}", proposal.page),
            bytes: proposal.len,
            groups: attempt.groups.clone(),
            cost_percent: proposal.cost_share * 100.0,
            at_seconds: seconds(attempt.decided.0),
            ..Moved::default()
        };
        let Some(number) = attempt.area else {
            return Ok(moved);
        };
        let area = self.area(number);
        let state = area.state.load(Acquire);
        if matches!(state, FREE | REFUSED) {
            let reason = if state == FREE {
                "the program ended, or none of its threads ran, before it could be moved".into()
            } else {
                let error = std::io::Error::from_raw_os_error(area.reason.load(Relaxed) as i32);
                format!("the kernel did not move it: {error}")
            };
            return Err(Unrepaired {
                object: proposal.object.clone(),
                address: moved.address,
                reason,
            });
        }
        let (code, refusal) = self
            .server
            .as_ref()
            .map(|s| s.told(number))
            .unwrap_or_default();
        moved.code = code
            .into_iter()
            .map(|(at, mut code)| {
                code.function = format!("{at:#x}");
                code
            })
            .collect();
        moved.at_seconds = seconds(area.applied.load(Relaxed));
        moved.took_microseconds = area.took.load(Relaxed) as f64 / 1000.0;
        moved.faults = area.faults.load(Relaxed);
        moved.requests = area.asked.load(Relaxed);
        if state != ACTIVE && state != APPLYING {
            let number = area.reason.load(Relaxed);
            let mut reason = remap::reason(number).to_owned();
            if number == remap::BY_INSTRUCTION
                && let Some(why) = refusal
            {
                reason = why;
            }
            let back = area.rolled_back.load(Relaxed);
            moved.rolled_back = Some(RolledBack {
                reason,
                at_seconds: if state == ROLLED_BACK {
                    seconds(back)
                } else {
                    0.0
                },
            });
        }
        Ok(moved)
    }
}
