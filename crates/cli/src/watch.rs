//! `sunder watch`: three processes. One observes: it has rights over others, reads what these wrote, and can
//! neither write nor connect. Another, this one, hands its records on, and has no such rights. The third, between
//! them, looks after the one that observes.

mod appended;
mod keeper;
mod observing;
mod signals;
mod told;

use crate::args::Watch;
use crate::destination::print;
use crate::output::note;
use crate::{confined, status};
use anyhow::{Context, Result, bail};
use observing::Observing;
use std::path::Path;
use sunder_access::ProcessId;
use sunder_export::is_of_another;
use sunder_findings::Record;
use sunder_observe::pending::Pending;
use sunder_pipeline::own_cpu_seconds;
use sunder_watch::{Answers, Options, Selection, Shunned};
use told::Told;

/// Runs the command. Returns the exit status.
///
/// # Errors
/// If the machine can't be watched, or a sink can't be opened.
pub fn run(options: &Watch) -> Result<u8> {
    let missing = sunder_watch::missing();
    if options.check {
        return check(&missing);
    }
    if let Some(first) = missing.iter().find(|one| one.is_needed) {
        bail!("{} To watch this machine, {}.", first.what, first.remedy);
    }
    let watch = convert(options)?;
    if !watch.selection.fits_any() {
        // One that starts later is watched, too, but a look at once would say that all is well.
        let none = "no process that runs now fits what was chosen";
        if watch.once.is_some() {
            bail!("{none}: see --pid, --name, --cgroup, --unit and --container");
        }
        note(&format!("{none}; it is watched once there is one"));
    }
    let host = watch.host.clone();
    let mut told = Told::open(options)?;
    let mut observing = Observing::begin(watch)?;
    confined::to_send();
    told.start(options, &host)?;
    let own = own_cpu_seconds();
    while let Some(mut record) = observing.next()? {
        if observing.is_asked_anew() {
            told.open_anew();
        }
        if let Record::Status(status) = &mut record {
            status.own_cpu_seconds += own_cpu_seconds() - own;
        }
        told.tell(&record);
        if told.is_for_nobody() {
            break;
        }
    }
    told.end();
    if observing.has_failed() {
        return Ok(status::FAILED);
    }
    Ok(if told.failed { status::FAILED } else { 0 })
}

fn convert(options: &Watch) -> Result<Options> {
    let mut selection = Selection::of_names(&options.name)?;
    selection.processes = options.pid.iter().copied().map(ProcessId).collect();
    selection.groups.clone_from(&options.cgroup);
    selection.units.clone_from(&options.unit);
    selection.containers.clone_from(&options.container);
    Ok(Options {
        once: options.once,
        interval: options.interval,
        budget_percent: options.budget,
        frequency: options.observe.frequency,
        selection,
        threshold: options.threshold,
        line_size: options.observe.line_size,
        watch_budget: options.observe.watch_budget,
        host: options.host.clone().unwrap_or_else(own_name),
        answers: options.cache.as_deref().map(cache).transpose()?,
        shunned: Shunned::default(),
        pending: Pending::shared().context("cannot get memory")?,
    })
}

/// The file of answers in a folder, which is made if it is not there.
fn cache(folder: &Path) -> Result<Answers> {
    let opened = std::fs::create_dir_all(folder).and_then(|()| {
        if is_of_another(folder)? {
            return Err(std::io::Error::other("it belongs to another user"));
        }
        Answers::open(folder)
    });
    opened.with_context(|| format!("cannot keep answers in {}", folder.display()))
}

/// What this machine calls itself.
fn own_name() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

/// Says what is missing.
fn check(missing: &[sunder_watch::Missing]) -> Result<u8> {
    for one in missing {
        print(&format!("{}\n  {}\n", one.what, one.remedy))?;
    }
    if missing.is_empty() {
        print("Nothing is missing: every process of this machine can be watched.\n")?;
    }
    let is_needed = missing.iter().any(|one| one.is_needed);
    Ok(if is_needed { status::FAILED } else { 0 })
}
