//! `sunder trace` and the compilers for it: records every memory access of a program, and shows
//! what was recorded.

mod dump;
mod export;
mod info;

use crate::args::{Trace, TraceCommand};
use crate::confined;
use crate::detect::{exit_code, start_failure};
use crate::output::Standard;
use crate::progress::OfRecording;
use crate::status;
use crate::usage::wrong;
use anyhow::Result;
use std::ffi::OsString;
use sunder_record::{Language, Options, record};
use sunder_trace::meta::Progress;

/// Runs the command. Returns the exit status.
///
/// # Errors
/// If a trace can't be read or the program can't be started.
pub fn run(options: &Trace) -> Result<u8> {
    match &options.command {
        Some(TraceCommand::Info { file }) => {
            confined::to_files();
            info::run(file)
        }
        Some(TraceCommand::Dump(options)) => {
            confined::to_files();
            dump::run(options)
        }
        Some(TraceCommand::Export(options)) => export::run(options),
        None => run_recorded(options),
    }
}

/// Records a program. Returns the program's exit status.
fn run_recorded(options: &Trace) -> Result<u8> {
    if options.program.is_empty() {
        return Err(wrong(
            "no program was given: sunder trace -o FILE -- PROGRAM",
        ));
    }
    let Some(output) = options.output.clone() else {
        return Err(wrong("-o FILE must say where to write the trace"));
    };
    let wanted = Options {
        program: options.program.clone(),
        output,
        via: options.via.into(),
        before_reading: Some(confined::to_files),
    };
    let line = if options.quiet {
        None
    } else {
        OfRecording::begin()
    };
    let mut show;
    let progress: Option<&mut dyn FnMut(&Progress)> = match &line {
        Some(line) => {
            show = |progress: &Progress| line.show(progress);
            Some(&mut show)
        }
        None => None,
    };
    let done = match record(&wanted, &Standard, progress) {
        Ok(done) => done,
        Err(error) => return Ok(start_failure(&error)),
    };
    let code = exit_code(done.exit);
    Ok(if !done.is_there && code == 0 {
        status::FAILED
    } else {
        code
    })
}

/// `sunder cc` and `sunder c++`. Returns the compiler's exit status.
///
/// # Errors
/// If the compiler can't be run, or would link a static program.
pub fn compile(language: Language, arguments: &[OsString]) -> Result<u8> {
    sunder_record::compile::run(language, arguments).map(exit_code)
}

/// `sunder cargo`. Returns cargo's exit status.
///
/// # Errors
/// If cargo can't be run, or there is no package.
pub fn cargo(arguments: &[OsString]) -> Result<u8> {
    sunder_record::cargo::run(arguments, &Standard).map(exit_code)
}
