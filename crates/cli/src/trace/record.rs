//! Runs a program and records it: by itself, if it was built with `sunder cc`,
//! else under an emulator.

use super::emulated::{self, Emulated};
use crate::args::{Trace, Via};
use crate::detect::{exit_code, start_failure};
use crate::output::note;
use crate::signals::Signals;
use crate::{observers, status};
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use sunder_observe::launch::{Child, Launch};
use sunder_trace::meta::{PREFIX_BYTES, Progress};

/// How often the progress line is written anew.
const PROGRESS: Duration = Duration::from_millis(200);

/// Records; the status to exit with is the program's.
///
/// # Errors
/// If the file can't be made or the program can't be started.
pub fn run(options: &Trace) -> Result<u8> {
    let (name, arguments) = options
        .program
        .split_first()
        .context("no program was given: sunder trace -o FILE -- PROGRAM")?;
    let output = options
        .output
        .as_deref()
        .context("-o FILE must say where to write the trace")?;
    let emulated = match options.via {
        Via::Instrumented => None,
        Via::Auto if emulated::is_instrumented(name) => None,
        // What can't be started at all is for the start to say.
        Via::Auto | Via::Emulated if !emulated::is_executable(name) => None,
        Via::Auto | Via::Emulated => Some(Emulated::new(name)?),
    };
    let (file, path) = create(output)?;
    let signals = Signals::hold();
    let launch = match &emulated {
        None => Launch::new(name.clone()).arguments(arguments.to_vec()),
        Some(emulated) => emulated.launch(name, arguments),
    };
    let launch = launch.environment("SUNDER_TRACE", Some(path.clone().into_os_string()));
    let started = launch.prepare().and_then(|prepared| {
        let pid = prepared.pid();
        prepared.go().map(|child| (pid, child))
    });
    let (pid, mut child) = match started {
        Ok(started) => started,
        Err(error) => {
            let _ = std::fs::remove_file(&path);
            return Ok(start_failure(&error.into()));
        }
    };
    signals.forward_to(pid);
    watch(&mut child, &file)?;
    let exit = child.wait()?;
    signals.release();
    let code = exit_code(exit);
    if file.metadata().is_ok_and(|m| m.len() == 0) {
        let _ = std::fs::remove_file(&path);
        let why = match emulated {
            None => "was not built for it; build it with `sunder cc` or `sunder c++`",
            Some(_) => "did not run under the emulator",
        };
        note(&format!(
            "nothing was recorded: {} {why}",
            name.to_string_lossy()
        ));
        return Ok(if code == 0 { status::FAILED } else { code });
    }
    match sunder_trace::Trace::open(&path) {
        Ok(trace) => {
            if let Some(sentence) = super::damage(&trace, 0) {
                note(&sentence);
            }
        }
        Err(error) => note(&error.to_string()),
    }
    Ok(code)
}

/// An empty file, and its path from the root.
fn create(output: &Path) -> Result<(File, PathBuf)> {
    let here = || format!("cannot write {}", output.display());
    File::create(output).with_context(here)?;
    let path = output.canonicalize().with_context(here)?;
    let file = File::open(&path).with_context(here)?;
    anyhow::ensure!(
        file.metadata().is_ok_and(|m| m.is_file()),
        "{} is no regular file; a trace must be written to one",
        output.display()
    );
    Ok((file, path))
}

/// Waits for the program's end, with a line about its progress on a terminal.
fn watch(child: &mut Child, file: &File) -> Result<()> {
    let mut terminal = std::io::stderr();
    if !terminal.is_terminal() {
        child.wait()?;
        return Ok(());
    }
    let start = Instant::now();
    let pidfd = observers::pidfd(child.pid());
    while child.try_wait()?.is_none() {
        if pidfd.is_none() {
            std::thread::sleep(PROGRESS);
        }
        observers::wait_end(&pidfd, PROGRESS);
        if let Some(p) = progress(file) {
            let _ = write!(
                terminal,
                "\rsunder: {:.1} s, {:.1} million accesses, {:.1} MB, {} threads\x1b[K",
                start.elapsed().as_secs_f64(),
                p.accesses as f64 / 1e6,
                p.bytes as f64 / 1e6,
                p.threads
            );
        }
    }
    let _ = write!(terminal, "\r\x1b[K");
    Ok(())
}

fn progress(file: &File) -> Option<Progress> {
    let mut prefix = [0; PREFIX_BYTES];
    file.read_exact_at(&mut prefix, 0).ok()?;
    Progress::from_prefix(&prefix)
}
