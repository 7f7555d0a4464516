//! Protects a program from its false sharing: it runs natively, and while threads of it compute on
//! falsely shared pages, each gets private copies of these pages (SHERIFF-PROTECT). How this works:
//! `docs/design/isolate.md`. This crate decides which thread is isolated when. It stops the thread
//! for a moment (`sunder-stop`), looks where it is, and sends it into the library that was
//! preloaded (`crates/inside/isolate`).
//!
//! Used by the library `sunder` and the program: [`run`] protects, and [`observer::observe`] observes by the same
//! means (SHERIFF-DETECT). [`commits::format`] is for tools that read what was committed. It must not print or exit; what it has to say goes to the caller's
//! `Notices` or into the [`Outcome`].

mod allowed;
mod apart;
mod choose;
pub mod commits;
mod eager;
mod functions;
mod gains;
mod guard;
mod hooks;
mod image;
mod isolatable;
mod keeper;
mod lasting;
mod ledger;
mod live;
mod named;
pub mod observer;
mod options;
mod outcome;
mod pages;
mod placed;
mod report;
mod shared;
mod target;
mod threads;
mod upkeep;

pub use isolatable::could_isolate;
pub use live::Protector;
pub use options::Options;
pub use outcome::Outcome;

use anyhow::{Context, Result};
use commits::Stream;
use report::Summary;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use sunder_access::ProcessId;
use sunder_live::program;
use sunder_live::{Notices, Signals};
use sunder_observe::proc;
use target::Targets;

/// Runs a program under protection, to its end.
///
/// # Errors
/// If the saved result can't be read or the program can't be started.
pub fn run(options: &Options, notices: &dyn Notices) -> Result<Outcome> {
    let (name, _) = options
        .program
        .split_first()
        .context("no program was given")?;
    let open = |path: &PathBuf| {
        Stream::create(path).with_context(|| format!("cannot write {}", path.display()))
    };
    let stream = options.commits.as_ref().map(open).transpose()?;
    let unable = program::cannot_be_loaded(name).or_else(cannot_isolate);
    let mut outcome = if let Some(why) = unable {
        run_natively(options, stream, notices, why)
    } else if options.eager {
        eager::run(options, stream)
    } else if options.from.is_none() && options.isolate_global.is_empty() {
        live::run(options, Targets::default(), stream)
    } else {
        let targets = Targets::new(options)?;
        if targets.must_be_watched() && targets.is_of_another(name).is_none() {
            live::run(options, targets, stream)
        } else if let Some(why) = targets.hindrance(name) {
            run_natively(options, stream, notices, &why)
        } else {
            named::run(options, &targets, stream)
        }
    }?;
    if let Some(why) = outcome.unwritten.take() {
        notices.note(&why);
    }
    Ok(outcome)
}

/// Why no program that this process starts could be isolated, if so: its memory lies in a file as large
/// as all addresses, and a child inherits the limit of files' sizes.
pub fn cannot_isolate() -> Option<&'static str> {
    let (bytes, _) = proc::own_limit(libc::RLIMIT_FSIZE)?;
    (bytes != libc::RLIM_INFINITY).then_some("the size of files is limited (`ulimit -f`)")
}

fn run_natively(
    options: &Options,
    stream: Option<Stream>,
    notices: &dyn Notices,
    why: &str,
) -> Result<Outcome> {
    notices.note(&format!("the program runs natively: {why}"));
    let launch = options.launch()?;
    let signals = Signals::hold();
    let run = || -> Result<(ProcessId, ExitStatus)> {
        let prepared = launch.prepare()?;
        let process = prepared.pid();
        signals.forward_to(process);
        let mut child = prepared.go()?;
        if let Some(begun) = options.begun {
            begun(process);
        }
        Ok((process, child.wait()?))
    };
    let result = run();
    signals.program_ended(options.begun.is_some());
    let (process, exit) = result?;
    Ok(Outcome {
        exit,
        line: None,
        report: Some(Summary::native(why).json()),
        unwritten: stream.and_then(|stream| stream.of_native(process.0, why, exit.into_raw())),
    })
}
