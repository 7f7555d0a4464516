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
mod beside;
mod busy;
pub mod by_hand;
mod chaos;
mod choose;
mod code;
mod common;
mod contended;
mod control;
mod decisions;
mod descendants;
mod elements;
pub mod follow;
mod known;
mod layout;
mod lines;
mod mark;
mod movable;
mod outcome;
mod pages;
mod pattern;
mod place;
mod proposal;
mod repairer;
mod request;
mod sampled;
mod saved;
mod serve;
mod soundness;
mod tell;
mod urgency;

pub use beside::CouldTake;
pub use repairer::{Detail, Repairer};

use anyhow::{Context, Result};
use attach::entry::Entry;
use choose::LeftByPlan;
use follow::How;
use known::Known;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use sunder_access::{Span, Time};
use sunder_findings::{Findings, IsolatedObject, Limit, Object, ObjectKind};
use sunder_live::{Begun, Observation, ObserveOptions, ObserverChoice, Show, program};
use sunder_observe::monotonic_now;

/// What to repair, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// Only say what would be moved.
    pub dry_run: bool,
    /// Repair the processes that the program starts, too, as long as it runs.
    pub follow_children: bool,
    /// Move the objects of this saved result as soon as threads contend for them.
    pub from: Option<PathBuf>,
    /// Move random pages at random moments, chosen by this seed, and put them back. For tests.
    pub chaos: Option<u64>,
    /// Let copies of code compare each address with all moved ranges, in place of those that the thread
    /// uses, and stay also where that is slower. It shows what specialising gains (the thesis, Figure
    /// 5.4).
    pub compares_all: bool,
    /// How much of the result is wanted: finding names takes time after the program's end.
    pub detail: Detail,
    /// Which observer takes the samples.
    pub observer: ObserverChoice,
    /// How it takes them.
    pub observe: ObserveOptions,
    /// As [`sunder_live::Observation::begun`].
    pub begun: Option<Begun>,
    /// As [`sunder_live::Observation::show`].
    pub show: Option<Show>,
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

impl Options {
    /// How the program is observed.
    fn observation(&self) -> Observation {
        Observation {
            program: self.program.clone(),
            observer: self.observer,
            options: self.observe,
            begun: self.begun,
            show: self.show,
            ..Observation::default()
        }
    }
}

/// Runs a program and repairs it, to its end.
///
/// # Errors
/// If Sunder itself failed before the program could run.
pub fn run(options: &Options) -> Result<Outcome> {
    let mut repairer = Repairer::of_a_child(options)?;
    let follow = options.follow_children.then_some(How {
        dry_run: options.dry_run,
        observe: options.observe,
    });
    let (mut findings, exit, followed) =
        follow::observe_all(&options.observation(), &mut repairer, follow)?;
    let mut lines = repairer.tell(&mut findings);
    if let Some(followed) = followed {
        follow::tell(&mut lines, &followed);
    }
    Ok(Outcome {
        exit,
        findings,
        lines,
    })
}

impl Repairer {
    /// The repairer of a program that is about to be started.
    ///
    /// # Errors
    /// If a saved result can't be read, or the kernel gives us no memory.
    pub fn of_a_child(options: &Options) -> Result<Self> {
        // The program is as confined as we are now, and the caller may confine us further.
        attach::remember_own_confinement()?;
        let entry = if options.dry_run {
            Entry::Never
        } else {
            Entry::of_a_child()?
        };
        let mut repairer = Self::new(entry, options.chaos)?;
        let name = options.program.first();
        repairer.unloadable = name.and_then(|name| program::cannot_be_loaded(name));
        repairer.dry_run = options.dry_run;
        repairer.compares_all = options.compares_all;
        repairer.may_stop = !options.dry_run || sunder_stop::may_trace();
        repairer.detail = options.detail;
        if let Some(file) = &options.from {
            let saved =
                Findings::open(file).with_context(|| format!("cannot read {}", file.display()))?;
            repairer.chooser.known = Known::of(&saved);
        }
        Ok(repairer)
    }

    /// Moves the objects of the result of an earlier run as soon as threads contend for them, but
    /// not those that were moved in vain or `isolated` then, or whose blocks get lines of their own
    /// when they are allocated.
    pub fn follow(&mut self, saved: &Findings, isolated: &[IsolatedObject], placed: &[&Object]) {
        let left = saved::left(saved, isolated);
        let is_placed = |object: &Object| {
            let same = |one: &&Object| one.allocation == object.allocation;
            object.kind == ObjectKind::Heap && placed.iter().any(same)
        };
        let mut moved = saved.clone();
        moved.findings.retain(|finding| {
            !left.contains_key(finding.object.short_name()) && !is_placed(&finding.object)
        });
        self.chooser.known = Known::of(&moved);
        self.chooser.left = LeftByPlan::new(left);
    }

    /// Whether the followed result says that another remedy is to take some of its objects.
    pub fn leaves_any_to_others(&self) -> bool {
        self.chooser.left.isolates_any()
    }

    /// The pages of what the followed result left to another remedy, as far as they were seen in this run.
    pub fn left_to_others(&self) -> &[Span] {
        &self.chooser.left.pages
    }

    /// Another remedy that the caller has, if it can act on the program now. It comes first where bytes would
    /// fall into many pieces.
    pub fn set_beside(&mut self, other: Option<CouldTake>) {
        self.chooser.beside.other = other;
    }

    /// Bytes that were left to the other remedy may be moved, if it is taken not to come.
    fn take_back(&mut self) {
        let spans = self.chooser.beside.take_back(monotonic_now());
        if !spans.is_empty() {
            self.wanted_again(&spans);
        }
    }

    /// Takes everything of ours out of the program, if anything is in it, and moves nothing any
    /// more. To be called while no bytes are away.
    pub fn retire(&mut self) {
        self.retired = true;
        if matches!(self.entry, Entry::Inside(_)) {
            // What can't be taken out stays without effect.
            let _ = self.leave();
        }
    }

    /// After [`Self::retire`]: moves again, if nothing of ours was in the program; whether it does. What was
    /// left to the other remedy is looked at again.
    pub fn come_back(&mut self) -> bool {
        let comes = self.retired && matches!(self.entry, Entry::Late(_));
        if comes {
            self.retired = false;
            let spans = self.chooser.beside.take_back(Time(u64::MAX));
            self.wanted_again(&spans);
        }
        comes
    }

    /// Adds to the result of a program that has ended what was repaired in it, and says it in lines
    /// for people.
    pub fn tell(mut self, findings: &mut Findings) -> Vec<String> {
        let wanted = self.detail == Detail::Report;
        let mut names = wanted.then(|| {
            let files = Arc::clone(&self.files);
            tell::code_names(files, self.mappings.clone())
        });
        let mut repair = self.finish(&mut |at| names.as_mut().and_then(|name| name(at)));
        tell::name(&mut repair, findings);
        tell::drop_moved(&mut repair);
        let saved = self.chooser.known.program.as_deref();
        let now = findings.program.path.as_deref();
        let of_another = tell::of_another(&mut repair, saved, now);
        let mut limits = findings.limits.iter();
        let others = limits.any(|limit| matches!(limit, Limit::ProcessesLeftOut));
        let mut lines = of_another.into_iter().collect::<Vec<_>>();
        lines.extend(tell::tell(&repair, findings.run.seconds, others));
        findings.repair = Some(repair);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_left_nothing_in_the_program_may_come_back() {
        let entry = Entry::of_a_child().expect("our library");
        let mut late = Repairer::new(entry, None).expect("memory");
        assert!(!late.come_back(), "it has not retired");
        late.retire();
        assert!(late.come_back() && !late.retired);
        let mut never = Repairer::new(Entry::Never, None).expect("memory");
        never.retire();
        assert!(!never.come_back() && never.retired);
    }
}
