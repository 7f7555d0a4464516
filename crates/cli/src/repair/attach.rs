//! `sunder attach --pid PID --repair`: what `repair` does, in a program that is running
//! already and has never heard of us. Until Ctrl-C, the end of the time or of the program;
//! then everything is put back and taken out. The target is never ended by us. `repair`
//! puts its library into the program in the same way.

mod borrowed;
pub(crate) mod check;
mod frame;
mod image;
mod inject;
mod layout;
mod own;
mod plan;
mod refuse;
pub(crate) mod threads;

pub use inject::{Applied, Inside, Left};
pub use plan::{Plan, Stay};
pub use refuse::unless_sound;
pub use threads::{exit, may_trace};

use super::entry::{Entry, Planned};
use super::{Repairer, tell};
use crate::args::Attach as Options;
use crate::attach::Look;
use crate::calls::Calls;
use crate::detect::Beside;
use crate::output::{Output, can_be_written, complain, note};
use crate::signals::Signals;
use crate::status;
use anyhow::{Context, Result};
use sunder_access::ProcessId;

/// Runs the command; the value is the status to exit with.
///
/// # Errors
/// If the process can't be repaired; it is then as it was, or the error says what stays.
pub fn run(options: &Options) -> Result<u8> {
    let _stops = Signals::hold_stops();
    let mut tell_options = options.tell.clone();
    // What was done is told instead, unless a report is asked for.
    let lines = !tell_options.quiet;
    tell_options.quiet |= tell_options.format.is_empty();
    let output = Output::new(&tell_options, false)?;
    if let Some(path) = &options.report {
        can_be_written(path)?;
    }
    let process = ProcessId(options.pid);
    crate::attach::is_program(process)?;
    let mut calls = Calls::to_move();
    unless_sound(process, &mut calls)?;
    let mut look = Look::begin(options)?;
    let mut repairer = Repairer::new(Entry::Never, options.chaos)?;
    if options.dry_run {
        repairer.dry_run = true;
    } else {
        let planned = Planned::of(process, calls, Stay::ForAWhile);
        let put = planned.and_then(|planned| repairer.put(process, planned));
        put.with_context(|| format!("process {process} can't be repaired"))?;
    }
    look.live.session.process(process).stops_to_move = true;
    let looked = repairer
        .begins(process)
        .and_then(|()| look.go_on(options.duration, &mut |live| repairer.step(live)));
    let mut repair = repairer.finish();
    let left = repairer.leave();
    if let Err(error) = looked {
        complain(&error);
        return Ok(status::FAILED);
    }
    let mut findings = look.finish();
    tell::name(&mut repair, &findings);
    if lines {
        for line in tell::tell(&repair, false) {
            note(&line);
        }
        if let Some(line) = left.as_ref().and_then(|left| farewell(process, left)) {
            note(&line);
        }
    }
    findings.repair = Some(repair);
    let written = output.write(&findings);
    let mut failed = written.failed || matches!(left, Some(Left::Memory(_)));
    if let Some(path) = &options.report
        && let Err(error) = super::write(path, &findings)
    {
        complain(&error);
        failed = true;
    }
    Ok(match output.verdict(&findings) {
        Some(found) => found,
        None if failed => status::FAILED,
        None => 0,
    })
}

/// What to say of the program.
fn farewell(process: ProcessId, left: &Left) -> Option<String> {
    match left {
        Left::Nothing => Some(format!(
            "process {process} goes on as it was: all bytes are back, and nothing of ours is left in it"
        )),
        Left::Gone => None,
        Left::Memory(why) => Some(format!(
            "process {process} keeps our library, which puts bytes back when they are needed: {why}"
        )),
    }
}

impl Repairer {
    /// Takes the library out, if it was put in.
    fn leave(&mut self) -> Option<Left> {
        match std::mem::replace(&mut self.entry, Entry::Never) {
            Entry::Inside(inside) => {
                let left = inside.take_out(&self.file);
                // Who did not stop in time.
                let _ = exit(self.process);
                Some(left)
            }
            _ => None,
        }
    }
}
