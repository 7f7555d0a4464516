//! `sunder protect`: runs a program natively, and while threads of it compute on pages
//! that are falsely shared, gives each of these threads such a page for itself. How:
//! `docs/design/isolate.md`. The exit status is the program's.
//!
//! This process decides who is isolated when. It stops a thread for a moment with
//! `ptrace`, looks where it is, and sends it into the library that was preloaded.

mod apart;
mod choose;
mod eager;
mod guard;
mod hooks;
mod image;
pub(crate) mod keeper;
mod live;
mod pages;
mod report;
pub(crate) mod shared;
mod target;
mod threads;
pub(crate) mod trace;
mod waits;

use crate::args::Protect;
use crate::detect::{Loaded, exit_code, start_failure};
use crate::embed::MemoryFile;
use crate::observers::{self, Linkage};
use crate::output::{self, note};
use crate::signals::Signals;
use crate::status;
use anyhow::{Context, Result};
use keeper::Keeper;
pub(crate) use report::closed_because;
use shared::Shared;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;
use sunder_observe::launch::Launch;
use sunder_wire::isolation::ISOLATE_VARIABLE;
use target::Targets;

/// Runs the command; the value is the status to exit with.
///
/// # Errors
/// If the result can't be read or the program not be started.
pub fn run(options: &Protect) -> Result<u8> {
    let (name, _) = options
        .program
        .split_first()
        .context("no program was given")?;
    if let Some(path) = &options.report {
        output::can_be_written(path)?;
    }
    if let Some(why) = cannot_be_loaded(name) {
        return run_natively(options, why);
    }
    if options.eager {
        eager::run(options)
    } else if options.from.is_none() && options.isolate_global.is_empty() {
        live::run(options, Targets::default())
    } else {
        run_with_targets(options)
    }
}

/// Isolates what is named beforehand.
fn run_with_targets(options: &Protect) -> Result<u8> {
    let targets = Targets::new(options)?;
    let name = options.program.first();
    if targets.must_be_watched() && name.and_then(|n| targets.is_of_another(n)).is_none() {
        return live::run(options, targets);
    }
    let launch = launch(options)?;
    if let Some(why) = options.program.first().and_then(|n| targets.hindrance(n)) {
        return run_natively(options, &why);
    }
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
        .environment(loaded.variable, Some(loaded.value));
    let signals = Signals::hold();
    let prepared = match launch.prepare() {
        Ok(prepared) => prepared,
        Err(error) => return Ok(start_failure(&error.into())),
    };
    let process = prepared.pid();
    // Before the program begins, which it would outlive if this failed.
    let collector = trace::Collector::start(process.0 as i32).context("cannot start a thread")?;
    targets.ask_for_blocks(&shared);
    let mut keeper = Keeper::new(shared, options, process.0 as i32);
    signals.forward_to(process);
    // It is waited for below, with its threads.
    let child = match prepared.go() {
        Ok(child) => child,
        Err(error) => return Ok(start_failure(&error.into())),
    };
    std::mem::forget(child);
    let exit = keep(&mut keeper, &targets);
    drop(collector);
    signals.release();
    let own = exit_code(exit);
    Ok(tell(&keeper, &targets.left_out, None, None, options, own))
}

/// Until the program ends; how it did.
fn keep(keeper: &mut Keeper, targets: &Targets) -> ExitStatus {
    let watch = observers::pidfd(sunder_access::ProcessId(keeper.process().unsigned_abs()));
    // What the library had said of blocks when pages were last chosen.
    let mut changes = None;
    loop {
        observers::wait_end(&watch, keeper.look());
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

/// What the program loads, and how it finds the two files.
pub(crate) fn loaded(library: &MemoryFile, shared: &Shared) -> Loaded {
    let [control, memory] = shared.paths();
    let library = library.path();
    let mut value = OsString::from(control);
    value.push(",");
    value.push(memory);
    value.push(",");
    value.push(&library);
    Loaded {
        library,
        variable: ISOLATE_VARIABLE.into(),
        value,
    }
}

/// The line at the end, and the report of a program that ended with `own`; the status to exit with.
/// `others` says whether it started processes that nobody looked at, if that is known.
fn tell(
    keeper: &Keeper,
    left_out: &[String],
    objects: Option<&[report::Isolated]>,
    others: Option<bool>,
    options: &Protect,
    own: u8,
) -> u8 {
    let told = report::Told::new(&keeper.shared, keeper.refusal(), left_out, objects)
        .beside_others(others);
    if !options.quiet {
        note(&told.line());
    }
    write(&told, options, own)
}

/// What failed with us is not told in the place of what the program says.
fn write(told: &report::Told, options: &Protect, own: u8) -> u8 {
    let Some(path) = &options.report else {
        return own;
    };
    match output::write(path, &told.json()) {
        Ok(()) => own,
        Err(error) => {
            output::complain(&error);
            if own == 0 { status::FAILED } else { own }
        }
    }
}

fn launch(options: &Protect) -> Result<Launch> {
    let (name, arguments) = options
        .program
        .split_first()
        .context("no program was given")?;
    Ok(Launch::new(name.clone()).arguments(arguments.to_vec()))
}

fn run_natively(options: &Protect, why: &str) -> Result<u8> {
    if !options.quiet {
        note(&format!("the program runs natively: {why}"));
    }
    let launch = launch(options)?;
    let signals = Signals::hold();
    let run = || -> Result<ExitStatus> {
        let prepared = launch.prepare()?;
        signals.forward_to(prepared.pid());
        Ok(prepared.go()?.wait()?)
    };
    let result = run();
    signals.release();
    match result {
        Ok(exit) => Ok(write(&report::Told::native(why), options, exit_code(exit))),
        Err(error) => Ok(start_failure(&error)),
    }
}

fn cannot_be_loaded(name: &OsStr) -> Option<&'static str> {
    if let Some(why) = observers::preload_hindrance(name) {
        return Some(why);
    }
    match observers::find(name).map(|path| observers::linkage(&path)) {
        Some(Linkage::Static) => Some("it is statically linked"),
        Some(Linkage::Privileged) => Some("it has set-user-id or other privileges"),
        _ => None,
    }
}
