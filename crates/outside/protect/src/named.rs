//! `sunder protect` with a saved result or named globals: what is isolated is known beforehand, and
//! the program is not observed. Called by [`crate::run`].

use crate::commits::Stream;
use crate::keeper::Keeper;
use crate::options::Options;
use crate::outcome::{Outcome, outcome};
use crate::shared::{Shared, loaded};
use crate::target::Targets;
use anyhow::{Context, Result};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;
use sunder_guests::MemoryFile;
use sunder_live::{Signals, pidfd, wait_end};
use sunder_stop::Collector;

/// Runs the program to its end, with the pages of `targets` isolated from the beginning.
///
/// # Errors
/// If the program can't be started or a file can't be made.
pub fn run(options: &Options, targets: &Targets, stream: Option<Stream>) -> Result<Outcome> {
    let launch = options.launch()?;
    let library = MemoryFile::isolate().context("cannot make the library available")?;
    let shared = Rc::new(Shared::new()?);
    let loaded = loaded(&library, &shared);
    let mut preload = loaded.library.into_os_string();
    if let Some(users) = std::env::var_os("LD_PRELOAD") {
        preload.push(":");
        preload.push(users);
    }
    let launch = launch
        .environment("LD_PRELOAD", Some(preload))
        .environment(loaded.variable, Some(loaded.value))
        .padded();
    let signals = Signals::hold();
    let prepared = launch.prepare()?;
    let process = prepared.pid();
    // Started before the program: if this failed afterwards, the program would go on without us.
    let collector = Collector::start(process.0 as i32).context("cannot start a thread")?;
    targets.ask_for_blocks(&shared);
    let mut keeper = Keeper::new(shared, options, process.0 as i32);
    keeper.write_log_to(stream);
    signals.forward_to(process);
    // The keeper reaps the program and its threads, so the handle is not needed.
    let child = prepared.go()?;
    std::mem::forget(child);
    if let Some(begun) = options.begun {
        begun(process);
    }
    let exit = keep(&mut keeper, targets);
    drop(collector);
    signals.program_ended(options.begun.is_some());
    Ok(outcome(&mut keeper, &targets.left_out, None, None, exit))
}

/// Runs the keeper until the program ends; its exit status.
fn keep(keeper: &mut Keeper, targets: &Targets) -> ExitStatus {
    let watch = pidfd(sunder_access::ProcessId(keeper.process().unsigned_abs()));
    // The library's count of changes to heap blocks when pages were last chosen.
    let mut changes = None;
    loop {
        wait_end(&watch, keeper.look());
        if let Some(status) = keeper.exit() {
            return ExitStatus::from_raw(status);
        }
        let now = keeper.shared.block_changes.load(SeqCst);
        if keeper.is_open() && changes != Some(now) {
            changes = Some(now);
            targets.choose_pages(keeper);
        }
        keeper.turn();
    }
}
