//! Takes falsely shared data of a program apart while it runs, by the remedy that fits: bytes are
//! moved (`sunder-repair`), or threads are isolated (`sunder-protect`). A user need not know which.
//! Moving comes first, as it works for atomic data too and costs nothing once it is done. What
//! can't be moved, or did not gain anything at its new place, is isolated, if that is safe. At any
//! time at most one of the two acts on the program. Beside them, blocks that are allocated later get
//! lines of their own where blocks from the same calls had shared lines falsely (`placer`). What was
//! chosen can be saved and followed in the next run ([`Options::plan`]). See `docs/design/cure.md`.
//!
//! Used by the program `sunder`. It must not print or exit, and must not decide whether a remedy is
//! safe: each remedy does that for itself.

mod both;
mod placer;
mod tell;

use anyhow::{Context, Result};
use both::Both;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use sunder_findings::{Cure, Findings, Object};
use sunder_live::{Begun, Observation, ObserveOptions, ObserverChoice, Show, program};
use sunder_repair::follow::{self, How};
use sunder_repair::{Detail, Repairer};
use sunder_stop::may_trace;

/// What to cure, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// The result of an earlier run of the same program under [`run`]: its objects are taken apart
    /// as soon as threads contend for them, by the remedies that were chosen then.
    pub plan: Option<PathBuf>,
    /// Move falsely shared bytes in the processes that the program starts, too, as long as it runs.
    pub follow_children: bool,
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

/// How the program ended, and what was done.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub exit: ExitStatus,
    /// The result; its `repair` and `cure` say what was done. It is a plan for the next run.
    pub findings: Findings,
    /// What was done, as lines for people.
    pub lines: Vec<String>,
}

/// Runs a program and takes its falsely shared data apart, to its end.
///
/// # Errors
/// If the plan can't be read, or Sunder itself failed before the program could run.
pub fn run(options: &Options) -> Result<Outcome> {
    let (name, _) = options
        .program
        .split_first()
        .context("no program was given")?;
    let mut mover = Repairer::of_a_child(&sunder_repair::Options {
        program: options.program.clone(),
        detail: options.detail,
        ..sunder_repair::Options::default()
    })?;
    let open = |file: &PathBuf| {
        Findings::open(file).with_context(|| format!("cannot read {}", file.display()))
    };
    let plan = options.plan.as_ref().map(open).transpose()?;
    if let Some(saved) = &plan {
        let cure = || saved.cure.iter();
        let isolated: Vec<_> = cure().flat_map(|cure| &cure.isolated).cloned().collect();
        let placed = cure().flat_map(|cure| &cure.placed);
        let placed: Vec<&Object> = placed.map(|one| &one.object).collect();
        mover.follow(saved, &isolated, &placed);
    }
    let what = Observation {
        program: options.program.clone(),
        observer: options.observer,
        options: options.observe,
        begun: options.begun,
        show: options.show,
        ..Observation::default()
    };
    let follow = options.follow_children.then_some(How {
        dry_run: false,
        observe: options.observe,
    });
    // Isolating needs a library from the start and `ptrace`.
    let unloadable = program::cannot_be_loaded(name);
    let cannot_isolate = sunder_protect::cannot_isolate();
    if !may_trace() || unloadable.is_some() || cannot_isolate.is_some() {
        let (mut findings, exit, followed) = follow::observe_all(&what, &mut mover, follow)?;
        let moved = mover.tell(&mut findings);
        findings.cure = Some(Cure::default());
        let mut lines = match unloadable {
            Some(why) => vec![format!("the program ran natively: {why}")],
            None => {
                let isolated = cannot_isolate.map(|why| format!("isolated nothing: {why}"));
                isolated
                    .into_iter()
                    .chain(tell::only_moved(moved))
                    .collect()
            }
        };
        if let Some(followed) = followed {
            follow::tell(&mut lines, &followed);
        }
        return Ok(Outcome {
            exit,
            findings,
            lines,
        });
    }
    let protect = sunder_protect::Options::default();
    let mut both = Both::new(mover, &protect, plan.as_ref())?;
    let (mut findings, exit, followed) = follow::observe_all(&what, &mut both, follow)?;
    let mut lines = both.tell(&mut findings, exit);
    if let Some(followed) = followed {
        follow::tell(&mut lines, &followed);
    }
    Ok(Outcome {
        exit,
        findings,
        lines,
    })
}
