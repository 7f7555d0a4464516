//! Protects a program from its false sharing: it runs natively, and while threads of it compute on
//! falsely shared pages, each gets private copies of these pages (SHERIFF-PROTECT). How this works:
//! `docs/design/isolate.md`. This crate decides which thread is isolated when. It stops the thread
//! for a moment (`sunder-stop`), looks where it is, and sends it into the library that was
//! preloaded (`crates/inside/isolate`).
//!
//! Used by the library `sunder` and the program: [`run`] protects, and [`observer::observe`] observes by the same
//! means (SHERIFF-DETECT). It must not print or exit; what it has to say goes to the caller's
//! `Notices` or into the [`Outcome`].

mod apart;
mod choose;
mod eager;
mod guard;
mod hooks;
mod image;
mod keeper;
mod live;
pub mod observer;
mod pages;
mod report;
mod shared;
mod target;
mod threads;

use anyhow::{Context, Result};
use keeper::Keeper;
pub(crate) use report::closed_because;
use shared::Shared;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;
use sunder_guests::MemoryFile;
use sunder_live::program::{self, Linkage};
use sunder_live::{
    Loaded, Notices, Observation, ObserveOptions, ObserverChoice, Signals, pidfd, wait_end,
};
use sunder_observe::launch::Launch;
use sunder_stop::Collector;
use sunder_wire::isolation::ISOLATE_VARIABLE;
use target::Targets;

/// What to protect, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// A saved result that names what is isolated from the beginning; then the program is not
    /// observed.
    pub from: Option<PathBuf>,
    /// Isolate every page that two threads write (SHERIFF, section 5).
    pub eager: bool,
    /// Isolate only objects of which no byte was ever seen used by two threads, not even to set it
    /// up.
    pub strict: bool,
    /// Isolate the pages of these global variables, whatever a result says of them.
    pub isolate_global: Vec<String>,
    /// Microseconds between two looks at threads, and between two commits; episodes then may be of
    /// any length. `None` for the defaults.
    pub every: Option<u32>,
    /// Let isolated threads execute any code.
    pub any_code: bool,
    /// Which observer takes the samples.
    pub observer: ObserverChoice,
    /// How it takes them.
    pub observe: ObserveOptions,
}

impl Options {
    fn observation(&self) -> Observation {
        Observation {
            program: self.program.clone(),
            observer: self.observer,
            options: self.observe,
            follow_children: false,
            threshold: None,
        }
    }
}

/// How a protected program ended, and what was isolated.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub exit: ExitStatus,
    /// What was isolated, as a sentence for people; `None` if all has been said already.
    pub line: Option<String>,
    /// What was isolated, as JSON; `None` if nothing is known.
    pub report: Option<String>,
}

impl Outcome {
    /// For a program that could not be protected.
    const fn nothing(exit: ExitStatus) -> Self {
        Self {
            exit,
            line: None,
            report: None,
        }
    }
}

/// Runs a program under protection, to its end.
///
/// # Errors
/// If the saved result can't be read or the program can't be started.
pub fn run(options: &Options, notices: &dyn Notices) -> Result<Outcome> {
    let (name, _) = options
        .program
        .split_first()
        .context("no program was given")?;
    if let Some(why) = cannot_be_loaded(name) {
        return run_natively(options, notices, why);
    }
    if options.eager {
        eager::run(options)
    } else if options.from.is_none() && options.isolate_global.is_empty() {
        live::run(options, Targets::default())
    } else {
        run_with_targets(options, notices)
    }
}

/// Isolates what the options name beforehand.
fn run_with_targets(options: &Options, notices: &dyn Notices) -> Result<Outcome> {
    let targets = Targets::new(options)?;
    let name = options.program.first();
    if targets.must_be_watched() && name.and_then(|n| targets.is_of_another(n)).is_none() {
        return live::run(options, targets);
    }
    let launch = launch(options)?;
    if let Some(why) = options.program.first().and_then(|n| targets.hindrance(n)) {
        return run_natively(options, notices, &why);
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
    let prepared = launch.prepare()?;
    let process = prepared.pid();
    // Started before the program: if this failed afterwards, the program would go on without us.
    let collector = Collector::start(process.0 as i32).context("cannot start a thread")?;
    targets.ask_for_blocks(&shared);
    let mut keeper = Keeper::new(shared, options, process.0 as i32);
    signals.forward_to(process);
    // The keeper reaps the program and its threads, so the handle is not needed.
    let child = prepared.go()?;
    std::mem::forget(child);
    let exit = keep(&mut keeper, &targets);
    drop(collector);
    signals.release();
    Ok(outcome(&keeper, &targets.left_out, None, None, exit))
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

/// What the program preloads, and the variable that tells the library its control and memory files.
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

/// What was isolated in a program that has ended. `others` says whether it started processes that
/// were not looked at, if that is known.
fn outcome(
    keeper: &Keeper,
    left_out: &[String],
    objects: Option<&[report::Isolated]>,
    others: Option<bool>,
    exit: ExitStatus,
) -> Outcome {
    let told = report::Told::new(&keeper.shared, keeper.refusal(), left_out, objects)
        .beside_others(others);
    Outcome {
        exit,
        line: Some(told.line()),
        report: Some(told.json()),
    }
}

fn launch(options: &Options) -> Result<Launch> {
    let (name, arguments) = options
        .program
        .split_first()
        .context("no program was given")?;
    Ok(Launch::new(name.clone()).arguments(arguments.to_vec()))
}

fn run_natively(options: &Options, notices: &dyn Notices, why: &str) -> Result<Outcome> {
    notices.note(&format!("the program runs natively: {why}"));
    let launch = launch(options)?;
    let signals = Signals::hold();
    let run = || -> Result<ExitStatus> {
        let prepared = launch.prepare()?;
        signals.forward_to(prepared.pid());
        Ok(prepared.go()?.wait()?)
    };
    let result = run();
    signals.release();
    Ok(Outcome {
        exit: result?,
        line: None,
        report: Some(report::Told::native(why).json()),
    })
}

fn cannot_be_loaded(name: &OsStr) -> Option<&'static str> {
    if let Some(why) = program::preload_hindrance(name) {
        return Some(why);
    }
    match program::find(name).map(|path| program::linkage(&path)) {
        Some(Linkage::Static) => Some("it is statically linked"),
        Some(Linkage::Privileged) => Some("it has set-user-id or other privileges"),
        _ => None,
    }
}
