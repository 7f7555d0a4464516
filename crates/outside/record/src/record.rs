//! Runs a program and records it: directly if it was built with `sunder cc`, and under an
//! emulator otherwise.

use crate::emulated::{self, Emulated};
use anyhow::{Context, Result};
use rustix::fs::AtFlags;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_live::{Notices, Signals, pidfd, wait_end};
use sunder_observe::launch::{Child, Launch};
use sunder_trace::Trace as Recorded;
use sunder_trace::meta::{self, PREFIX_BYTES, Progress};
use sunder_trace::{MAGIC, damage};

/// What to record, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// Where to write the trace.
    pub output: PathBuf,
    /// How to record.
    pub via: Via,
    /// Called when the program has ended and there is a trace, before it is read. Only for a process that
    /// exists for this run alone: signals are not given back to it afterwards.
    pub before_reading: Option<fn()>,
}

/// How to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Instrumented if the program has the hooks, else emulated.
    Auto,
    /// By the hooks of a program that was built with them.
    Instrumented,
    /// Under an emulator.
    Emulated,
}

/// The end of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    /// How the program ended.
    pub exit: ExitStatus,
    /// Whether a trace was written; the caller's notices say why not.
    pub is_there: bool,
}

/// The interval of the calls to `progress`.
const EVERY: Duration = Duration::from_millis(200);

/// Records the program to its end. `progress`, if given, is called regularly with the events
/// recorded so far.
///
/// # Errors
/// If the file can't be made or the program can't be started.
pub fn record(
    options: &Options,
    notices: &dyn Notices,
    progress: Option<&mut dyn FnMut(&Progress)>,
) -> Result<Recording> {
    let (name, arguments) = options
        .program
        .split_first()
        .context("no program was given: sunder trace -o FILE -- PROGRAM")?;
    let emulated = match options.via {
        Via::Instrumented => None,
        Via::Auto if emulated::is_instrumented(name) => None,
        // A program that can't be executed at all fails later, when it is started, with that
        // error.
        Via::Auto | Via::Emulated if !emulated::is_executable(name) => None,
        Via::Auto | Via::Emulated => Some(Emulated::new(name)?),
    };
    let launch = match &emulated {
        None => Launch::new(name.clone()).arguments(arguments.to_vec()),
        Some(emulated) => emulated.launch(name, arguments)?,
    };
    let output = Output::create(&options.output)?;
    let (file, path) = (&output.file, &output.path);
    let signals = Signals::hold();
    let launch = launch.environment("SUNDER_TRACE", Some(path.clone().into_os_string()));
    let launch = match &emulated {
        None => launch.padded(),
        // The emulator makes the program's environment of its own.
        Some(_) => launch,
    };
    let started = launch.prepare().and_then(|prepared| {
        let pid = prepared.pid();
        signals.forward_to(pid);
        prepared.go().map(|child| (pid, child))
    });
    let (pid, mut child) = match started {
        Ok(started) => started,
        Err(error) => {
            output.remove();
            return Err(error.into());
        }
    };
    if let Some(progress) = progress {
        follow(&mut child, file, progress)?;
    }
    let exit = child.wait()?;
    signals.program_ended(options.before_reading.is_some());
    let nothing = |why: String| {
        notices.note(&format!("nothing was recorded: {why}"));
        Recording {
            exit,
            is_there: false,
        }
    };
    if !output.has_begun() {
        let why = why_nothing(&output, name, emulated.is_some());
        output.remove();
        return Ok(nothing(why));
    }
    if let Some(before_reading) = options.before_reading {
        before_reading();
    }
    if output.is_small() && output.read().is_err() {
        let why = why_nothing(&output, name, emulated.is_some());
        // The right to remove it may have been given up.
        let _ = output.file.set_len(0);
        return Ok(nothing(why));
    }
    match look_at(&output, pid, exit) {
        Ok(Some(sentence)) => notices.note(&sentence),
        Ok(None) => {}
        Err(error) => notices.note(&error.to_string()),
    }
    Ok(Recording {
        exit,
        is_there: true,
    })
}

/// Calls `progress` with the figures at the beginning of the file until the program has ended.
///
/// # Errors
/// If the program's exit status was collected elsewhere.
fn follow(child: &mut Child, file: &File, progress: &mut dyn FnMut(&Progress)) -> Result<()> {
    let pidfd = pidfd(child.pid());
    while child.try_wait()?.is_none() {
        // Without a pidfd this only sleeps.
        wait_end(&pidfd, EVERY);
        if let Some(now) = read(file) {
            progress(&now);
        }
    }
    Ok(())
}

fn read(file: &File) -> Option<Progress> {
    let mut prefix = [0; PREFIX_BYTES];
    file.read_exact_at(&mut prefix, 0).ok()?;
    Progress::from_prefix(&prefix)
}

/// Why the file holds no trace.
fn why_nothing(output: &Output, name: &OsStr, emulated: bool) -> String {
    // The recorder can't report a file that it can't write, so this is tried here.
    if let Err(error) = takes_bytes(&output.file) {
        return format!("the trace can't be written: {error}");
    }
    let why = if emulated {
        "did not run under the emulator"
    } else {
        "was not built for it; build it with `sunder cc`, `sunder c++` or `sunder cargo`"
    };
    format!("{} {why}", name.to_string_lossy())
}

/// Whether the file can grow to hold the beginning of a trace. Changes the file.
fn takes_bytes(mut file: &File) -> io::Result<()> {
    const LEAST: usize = 64 << 10;
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` is a valid place for the result.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if limit.rlim_cur < LEAST as u64 {
        // Writing beyond the limit would end us by a signal.
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    file.write_all(&[0; LEAST])
}

/// A sentence about what is wrong with the trace, if anything. If the recorded process is the
/// one that has ended, and it could not mark the end itself, the mark is added to the trace
/// first.
///
/// # Errors
/// If the file is no trace.
fn look_at(output: &Output, pid: ProcessId, exit: ExitStatus) -> Result<Option<String>> {
    let mut trace = output.read()?;
    if trace.header().process == pid.0 && !trace.summary().ended {
        let signal = exit.signal().map_or(0, i32::unsigned_abs);
        if meta::note_death(&output.file, signal).unwrap_or(false) {
            trace = output.read()?;
        }
    }
    Ok(damage(&trace, 0))
}

/// The trace's file. The program may put another file in its place, so that its path is only for
/// the program.
struct Output {
    file: File,
    /// Absolute.
    path: PathBuf,
    /// The folder in which it was made, and its name there.
    folder: File,
    name: OsString,
}

impl Output {
    /// Creates an empty file.
    fn create(output: &Path) -> Result<Self> {
        let here = || format!("cannot write {}", output.display());
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(output)
            .with_context(here)?;
        let path = output.canonicalize().with_context(here)?;
        anyhow::ensure!(
            file.metadata().is_ok_and(|m| m.is_file()),
            "{} is no regular file; a trace must be written to one",
            output.display()
        );
        let (folder, name) = path.parent().zip(path.file_name()).with_context(here)?;
        Ok(Self {
            folder: File::open(folder).with_context(here)?,
            name: name.to_owned(),
            file,
            path,
        })
    }

    /// Whether the first bytes are those of a trace. Nothing else of it is looked at.
    fn has_begun(&self) -> bool {
        let mut first = [0; MAGIC.len()];
        self.file.read_exact_at(&mut first, 0).is_ok() && first == MAGIC
    }

    /// Whether a trace may lack its header.
    fn is_small(&self) -> bool {
        // Larger than the header of a trace.
        const SMALL: u64 = 256 << 10;
        self.file.metadata().map_or(0, |m| m.len()) < SMALL
    }

    /// Reads the trace from this file, whatever its path leads to now.
    fn read(&self) -> Result<Recorded> {
        Ok(Recorded::of(self.file.try_clone()?, &self.path)?)
    }

    /// Removes the file, if it is still there.
    fn remove(&self) {
        let name = self.name.as_os_str();
        let there = rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_it = there.is_ok_and(|there| {
            let own = self.file.metadata();
            own.is_ok_and(|own| (own.dev(), own.ino()) == (there.st_dev, there.st_ino))
        });
        if is_it {
            let _ = rustix::fs::unlinkat(&self.folder, name, AtFlags::empty());
        }
    }
}
