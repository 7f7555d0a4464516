//! `sunder attach --repair`: repairs a process that is running already, into which nothing was
//! loaded. It ends when the caller is interrupted, the time is over or the process ends; then all
//! bytes are put back and everything of ours is taken out. Used by the library `sunder`. The
//! library is put into a program that we started in the same way (`entry`). It must not end the target.

mod calls;
mod calls_under_way;
mod check;
pub mod entry;
mod image;
pub mod inject;
mod layout;
pub mod leave;
mod ledger;
mod module;
mod own;
mod parked;
pub(crate) mod plan;
mod presence;
pub(crate) mod refuse;
pub(crate) mod remnant;

use super::repairer::Repairer;
use super::tell;
use anyhow::{Context, Result};
use entry::{Entry, Planned};
use leave::Left;
use plan::Stay;
use refuse::unless_sound;
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_findings::Findings;
use sunder_hooking::Calls;
use sunder_live::{Ending, LiveRemedy, Look, ObserveOptions, Show, Signals, is_program};

/// Which process to repair, and how.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The process to repair.
    pub process: ProcessId,
    /// For how long; `None`: until the process ends or we are interrupted.
    pub duration: Option<Duration>,
    /// Only say what would be moved.
    pub dry_run: bool,
    /// Move random pages at random moments, chosen by this seed, and put them back. For tests.
    pub chaos: Option<u64>,
    /// How to observe.
    pub observe: ObserveOptions,
    /// Findings that cost less than this, in percent, are marked as not significant.
    pub threshold: Option<f64>,
    /// As [`sunder_live::Observation::show`].
    pub show: Option<Show>,
}

/// What was repaired in a process.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The result; its `repair` says what was repaired.
    pub findings: Findings,
    /// What was repaired, and how the process was left, as lines for people.
    pub lines: Vec<String>,
    /// Whether something of ours had to be left in the process.
    pub left_something: bool,
}

/// Remembers how seccomp confines this process. To be called before it confines itself further:
/// otherwise processes that are confined as it was would be refused.
///
/// # Errors
/// If that can't be read.
pub fn remember_own_confinement() -> Result<()> {
    refuse::own_confinement().map(|_| ())
}

impl Outcome {
    /// Whether anything was moved, left alone for a reason, or left in the process.
    pub fn any_found(&self) -> bool {
        let repair = self.findings.repair.as_ref();
        let any = repair.is_some_and(|repair| {
            !repair.moved.is_empty() || !repair.refused.is_empty() || repair.hindrance.is_some()
        });
        any || self.left_something
    }
}

/// Repairs the process, in a process of ours that exists for this alone.
///
/// # Errors
/// If the process can't be repaired. It is then as it was, or the error says what stays in it.
pub fn run(options: &Options) -> Result<Outcome> {
    let _stops = Signals::hold_stops();
    repair(options, Ending::BySignals, &|| true)
}

/// As [`run`], on a thread that takes no signals, as long as `goes_on` says so.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_while(options: &Options, goes_on: &dyn Fn() -> bool) -> Result<Outcome> {
    repair(options, Ending::InTime, goes_on)
}

fn repair(options: &Options, ending: Ending, goes_on: &dyn Fn() -> bool) -> Result<Outcome> {
    let process = options.process;
    is_program(process)?;
    let mut calls = Calls::to_move();
    let mut lines = Vec::new();
    if !options.dry_run && remnant::take_out(process)? {
        lines.push(format!(
            "an earlier Sunder was killed beside process {process}: its library has been taken out"
        ));
    }
    unless_sound(process, &mut calls)?;
    let mut look = Look::begin(process, &options.observe, options.threshold, ending)?;
    look.live.show = options.show;
    let mut repairer = Repairer::new(Entry::Never, options.chaos)?;
    if options.dry_run {
        repairer.dry_run = true;
    } else {
        let planned = Planned::of(process, calls, Stay::ForAWhile, Vec::new());
        let put = planned.and_then(|planned| repairer.put(process, planned));
        put.with_context(|| format!("process {process} can't be repaired"))?;
    }
    look.live.session.process(process).stops_to_move = true;
    let looked = repairer.begins(process).and_then(|()| {
        look.go_on(options.duration, &mut |live| {
            repairer.step(live);
            goes_on()
        })
    });
    repairer.note_undecided(&mut look.live);
    let mut repair = repairer.finish(&mut |_| None);
    let left = repairer.leave();
    looked?;
    let mut findings = look.finish();
    tell::name(&mut repair, &findings);
    lines.extend(tell::tell(&repair, f64::INFINITY, false));
    lines.extend(left.as_ref().and_then(|left| farewell(process, left)));
    findings.repair = Some(repair);
    Ok(Outcome {
        findings,
        lines,
        left_something: matches!(left, Some(Left::Memory(_))),
    })
}

/// What to say about the state in which the process was left.
pub(crate) fn farewell(process: ProcessId, left: &Left) -> Option<String> {
    match left {
        Left::Nothing => Some(format!(
            "process {process} goes on as it was: all bytes are back, and nothing of ours is left in it"
        )),
        Left::Gone => None,
        Left::Memory(why) => Some(format!(
            "process {process} keeps our library, which puts bytes back when they are needed: {why}"
        )),
    }
}

impl Repairer {
    /// Takes the library out, if it was put in.
    pub(crate) fn leave(&mut self) -> Option<Left> {
        match std::mem::replace(&mut self.entry, Entry::Never) {
            Entry::Inside(inside) => {
                let left = inside.take_out(&self.file);
                // Lets go of threads that did not stop in time.
                let _ = sunder_stop::exit(self.process);
                Some(left)
            }
            _ => None,
        }
    }
}
