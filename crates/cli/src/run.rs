//! `sunder run`: starts a program with our heap in place of its own, which
//! places objects by a policy or gives the objects of a saved result lines of
//! their own. Nothing is observed; the exit status is the program's.

mod keeper;

use crate::args::{PlacementChoice, Run};
use crate::detect::{exit_code, start_failure};
use crate::embed::MemoryFile;
use crate::fix::call_sites;
use crate::observers::{self, Linkage};
use crate::output::note;
use crate::signals::Signals;
use anyhow::{Context, Result, ensure};
use keeper::Keeper;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitStatus;
use sunder_findings::Findings;
use sunder_observe::launch::Launch;

/// The variable that the heap reads: policy, bytes of a line, file of the call
/// sites to be padded.
const HEAP_VARIABLE: &str = "SUNDER_HEAP";

/// Bytes of a line where no result says otherwise.
const LINE: u32 = 64;

/// Runs the command; the value is the status to exit with.
///
/// # Errors
/// If the program can't be given another heap, or the result can't be read.
pub fn run(options: &Run) -> Result<u8> {
    let (name, arguments) = options
        .program
        .split_first()
        .context("no program was given")?;
    can_be_preloaded(name)?;
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
            note(what);
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
    // Without one, only what the program leaves behind could miss the files.
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
    match wait_for(&launch) {
        Ok(exit) => Ok(exit_code(exit)),
        Err(error) => Ok(start_failure(&error)),
    }
}

fn wait_for(launch: &Launch) -> Result<ExitStatus> {
    let signals = Signals::hold();
    let prepared = launch.prepare()?;
    signals.forward_to(prepared.pid());
    let mut child = prepared.go()?;
    let exit = child.wait()?;
    signals.release();
    Ok(exit)
}

/// # Errors
/// If nothing can be loaded into the program, with the reason.
fn can_be_preloaded(name: &OsStr) -> Result<()> {
    if let Some(why) = observers::preload_hindrance(name) {
        anyhow::bail!("the program can't be given another heap: {why}");
    }
    let why = match observers::find(name).map(|path| observers::linkage(&path)) {
        Some(Linkage::Static) => "the program is statically linked",
        Some(Linkage::Privileged) => "the program has set-user-id or other privileges",
        _ => return Ok(()),
    };
    anyhow::bail!("the program can't be given another heap: {why}")
}

/// Ours first: the loader takes the first definition of `malloc`.
fn preload(heap: &Path) -> OsString {
    let mut all = heap.as_os_str().to_owned();
    if let Some(own) = std::env::var_os("LD_PRELOAD") {
        all.push(":");
        all.push(own);
    }
    all
}

const fn policy_name(choice: PlacementChoice) -> &'static str {
    match choice {
        PlacementChoice::General => "general",
        PlacementChoice::Hoard => "hoard",
        PlacementChoice::Sized => "sized",
        PlacementChoice::CallSite => "call-site",
        PlacementChoice::SizedCallSite => "sized-call-site",
    }
}
