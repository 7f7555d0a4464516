//! Starts a program with our heap in place of its own. The heap places objects by a policy, or
//! gives the objects of a saved result lines of their own (SCSTallocator's placement, live).
//!
//! Used by the library `sunder` and the program, for `sunder run`. It must not observe or print: a message
//! about objects of a result that can't be used goes to the caller's `Notices`.

mod keeper;

use anyhow::{Context, Result, ensure};
use keeper::Keeper;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use sunder_findings::Findings;
use sunder_guests::MemoryFile;
use sunder_hooking::call_sites::call_sites;
use sunder_live::program;
use sunder_live::{Begun, Notices, Signals};
use sunder_observe::launch::Launch;

/// The variable that the heap reads: the policy, the bytes of a line, and the path of the file
/// with the call sites to be padded.
const HEAP_VARIABLE: &str = "SUNDER_HEAP";

/// Bytes of a line if there is no result that says it.
const LINE: u32 = sunder_access::LINE as u32;

/// Which program to run with our heap, and how it places objects.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// Which objects may share lines and pages.
    pub placement: Placement,
    /// A saved result whose heap objects get lines of their own.
    pub fix: Option<PathBuf>,
    /// As [`sunder_live::Observation::begun`].
    pub begun: Option<Begun>,
}

/// Which objects may share lines and pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One heap for all threads; objects lie as they come.
    General,
    /// A heap for each thread: no line has objects of two threads.
    Hoard,
    /// Only objects of one size on a page.
    Sized,
    /// Only objects of one call site on a page.
    CallSite,
    /// Only objects of one size and call site on a page.
    SizedCallSite,
}

/// Runs the program to its end: natively, with a notice, if it can't be given another heap.
///
/// # Errors
/// If the program can't be started, or the result can't be read.
pub fn run(options: &Options, notices: &dyn Notices) -> Result<ExitStatus> {
    let (name, arguments) = options
        .program
        .split_first()
        .context("no program was given")?;
    if let Some(why) = program::cannot_be_loaded(name) {
        notices.note(&format!("the program runs natively: {why}"));
        let launch = Launch::new(name.clone()).arguments(arguments.to_vec());
        return wait_for(&launch, options.begun);
    }
    let mut line = LINE;
    let mut sites = None;
    if let Some(file) = &options.fix {
        let findings =
            Findings::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        if findings.machine.line_size > 0 {
            line = findings.machine.line_size;
        }
        let list = call_sites(&findings);
        for what in &list.left_out {
            notices.note(what);
        }
        ensure!(
            !list.is_empty(),
            "{} has no heap object whose call site is known, so there is nothing to pad",
            file.display()
        );
        let text = list.text();
        let made = MemoryFile::holding(c"sunder-call-sites", text.as_bytes());
        sites = Some(made.context("cannot hand the call sites over")?);
    }
    let heap = MemoryFile::heap().context("cannot make the heap available")?;
    let policy = policy_name(options.placement);
    let mut wanted = OsString::from(format!("{policy},{line}"));
    let files: Vec<_> = [Some(&heap), sites.as_ref()]
        .into_iter()
        .flatten()
        .collect();
    let kept: Vec<_> = files.iter().map(|file| file.descriptor()).collect();
    // Without a keeper, only processes that outlive the program could miss the files.
    let keeper = Keeper::start(&kept).ok();
    let holder = keeper.as_ref().map_or(std::process::id(), Keeper::process);
    if let Some(sites) = &sites {
        wanted.push(",");
        wanted.push(sites.path_in(holder));
    }
    let launch = Launch::new(name.clone())
        .arguments(arguments.to_vec())
        .environment("LD_PRELOAD", Some(preload(&heap.path_in(holder))))
        .environment(HEAP_VARIABLE, Some(wanted));
    wait_for(&launch, options.begun)
}

fn wait_for(launch: &Launch, begun: Option<Begun>) -> Result<ExitStatus> {
    let signals = Signals::hold();
    let prepared = launch.prepare()?;
    let process = prepared.pid();
    signals.forward_to(process);
    let mut child = prepared.go()?;
    if let Some(begun) = begun {
        begun(process);
    }
    let exit = child.wait()?;
    signals.program_ended(begun.is_some());
    Ok(exit)
}

/// Our library comes first: the loader takes the first definition of `malloc`.
fn preload(heap: &Path) -> OsString {
    let mut all = heap.as_os_str().to_owned();
    if let Some(own) = std::env::var_os("LD_PRELOAD") {
        all.push(":");
        all.push(own);
    }
    all
}

const fn policy_name(choice: Placement) -> &'static str {
    match choice {
        Placement::General => "general",
        Placement::Hoard => "hoard",
        Placement::Sized => "sized",
        Placement::CallSite => "call-site",
        Placement::SizedCallSite => "sized-call-site",
    }
}
