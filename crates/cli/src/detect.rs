//! `sunder detect`: observes a program to its end, reports, and exits as the program did.

use crate::args::Detect;
use crate::confined;
use crate::kept::Recording;
use crate::output::{Output, complain};
use crate::progress::{Observing, Until};
use crate::status;
use crate::usage::wrong;
use anyhow::Result;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use sunder_gain::{Effort, Experiment};
use sunder_live::{Observation, ObserverChoice};
use sunder_observe::ObserveError;

/// Runs the command. Returns the exit status.
///
/// # Errors
/// If Sunder itself failed before the program could run.
pub fn run(options: &Detect) -> Result<u8> {
    if options.measure && options.observer == ObserverChoice::Isolate {
        return Err(wrong(
            "--measure needs threads as they are, and --observer isolate makes processes of them: leave one of \
             the two away",
        ));
    }
    if options.record.is_some() && options.observer == ObserverChoice::Isolate {
        return Err(wrong(
            "--record keeps samples, and --observer isolate compares pages: leave one of the two away",
        ));
    }
    let isolates = options.observer == ObserverChoice::Isolate;
    let effort = match (options.measure, options.no_measure || isolates) {
        (true, _) => Some(Effort::Much),
        (_, true) => None,
        _ => Some(Effort::Little),
    };
    let mut output = Output::new(&options.tell, false)?;
    output.keep_writable()?;
    let recording = Recording::begin(options.record.as_deref())?;
    let progress = Observing::begin(options.tell.quiet, Until::ProgramEnds);
    let what = Observation {
        program: options.program.clone(),
        observer: options.observer,
        options: (&options.observe).into(),
        follow_children: options.follow_children,
        threshold: options.tell.threshold,
        begun: Some(if effort.is_some() || isolates {
            confined::beside_our_own_to_repair
        } else {
            confined::beside_our_own
        }),
        show: progress.show(),
        recorder: recording.as_ref().map(Recording::recorder),
    };
    let program = match effort {
        _ if isolates => sunder_protect::observer::observe(&what, options.sampled),
        Some(effort) => sunder_live::observe_with(&what, &mut Experiment::of_command(effort)),
        None => sunder_live::observe(&what),
    };
    progress.end();
    let (findings, exit) = match program {
        Ok(done) => done,
        Err(error) => return Ok(start_failure(&error)),
    };
    let written = output.write(&findings);
    let told = recording.map(|one| one.tell(options.tell.quiet));
    let failed = written.failed || told == Some(false);
    let own = exit_code(exit);
    Ok(match output.verdict(&findings) {
        Some(found) if own == 0 => found,
        _ if own == 0 && failed => status::FAILED,
        _ => own,
    })
}

/// The exit status with which a shell would report `exit`.
pub fn exit_code(exit: ExitStatus) -> u8 {
    let code = exit
        .code()
        .or_else(|| exit.signal().map(|s| 128 + s))
        .unwrap_or(i32::from(status::FAILED));
    u8::try_from(code).unwrap_or(status::FAILED)
}

/// Prints why the program did not start. Returns the exit status for it.
pub fn start_failure(error: &anyhow::Error) -> u8 {
    if let Some(ObserveError::Execute { program, source }) = error.downcast_ref() {
        let (why, code) = match source.raw_os_error() {
            Some(libc::ENOENT) => (not_found(program), status::NOT_FOUND),
            Some(libc::EACCES) => (
                "it is not an executable file".to_owned(),
                status::NOT_EXECUTABLE,
            ),
            Some(libc::ENOEXEC) => (
                "it is no program for this machine: wrong architecture or format".to_owned(),
                status::NOT_EXECUTABLE,
            ),
            _ => (source.to_string(), status::NOT_EXECUTABLE),
        };
        crate::output::note(&format!("cannot execute {program}: {why}"));
        return code;
    }
    complain(error);
    status::FAILED
}

/// Why `program` was not found.
fn not_found(program: &str) -> String {
    if std::path::Path::new(program).is_file() {
        return "the interpreter that it asks for was not found".to_owned();
    }
    "it was not found".to_owned()
}
