//! The commands that change how a program runs: `run`, `protect`, `repair` and `cure`. Each exits
//! with the program's status, and prints on standard error what it did.

use crate::args::{Cure, Protect, Repair, Run};
use crate::confined;
use crate::destination::{Destination, keep_writable};
use crate::detect::{exit_code, start_failure};
use crate::output::{self, Standard, complain, note};
use crate::progress::{Observing, Until};
use crate::status;
use anyhow::Result;
use std::path::Path;
use sunder_live::{NoNotices, Notices};
use sunder_repair::Detail;

/// `sunder run`. Returns the exit status.
///
/// # Errors
/// If the program can't be started, or the result can't be read.
pub fn run(options: &Run) -> Result<u8> {
    let wanted = sunder_place::Options {
        program: options.program.clone(),
        placement: options.placement.into(),
        fix: options.fix.clone(),
        begun: Some(confined::beside_our_own),
    };
    match sunder_place::run(&wanted, &Standard) {
        Ok(exit) => Ok(exit_code(exit)),
        Err(error) => Ok(start_failure(&error)),
    }
}

/// Where the report goes, which can be written whatever rights are given up.
fn report(path: Option<&Path>) -> Result<Option<Destination>> {
    let Some(path) = path else {
        return Ok(None);
    };
    let mut report = Destination::new(path)?;
    keep_writable(&mut [&mut report])?;
    Ok(Some(report))
}

/// `sunder protect`. Returns the exit status.
///
/// # Errors
/// If the result can't be read or the report can't be written.
pub fn protect(options: &Protect) -> Result<u8> {
    let report = report(options.report.as_deref())?;
    let progress = Observing::begin(options.quiet, Until::ProgramEnds);
    let wanted = sunder_protect::Options {
        program: options.program.clone(),
        from: options.from.clone(),
        eager: options.eager,
        strict: options.strict,
        isolate_global: options.isolate_global.clone(),
        every: options.every,
        any_code: options.any_code,
        commits: options.commits.clone(),
        observer: options.observer,
        observe: (&options.observe).into(),
        begun: Some(confined::beside_our_own_to_repair),
        show: progress.show(),
    };
    let notices: &dyn Notices = if options.quiet { &NoNotices } else { &Standard };
    let done = sunder_protect::run(&wanted, notices);
    progress.end();
    let done = match done {
        Ok(done) => done,
        Err(error) => return Ok(start_failure(&error)),
    };
    if let Some(line) = done.line.filter(|_| !options.quiet) {
        note(&line);
    }
    let own = exit_code(done.exit);
    Ok(match (&report, done.report) {
        (Some(file), Some(report)) => with_report(own, file, Ok(report)),
        _ => own,
    })
}

/// `sunder repair`. Returns the exit status.
///
/// # Errors
/// If the result can't be read or the report can't be written.
pub fn repair(options: &Repair) -> Result<u8> {
    let report = report(options.report.as_deref())?;
    let progress = Observing::begin(options.quiet, Until::ProgramEnds);
    let wanted = sunder_repair::Options {
        program: options.program.clone(),
        dry_run: options.dry_run,
        follow_children: options.follow_children,
        from: options.from.clone(),
        chaos: options.chaos,
        compares_all: options.compare_all,
        detail: detail(report.is_some(), options.quiet),
        observer: options.observer,
        observe: (&options.observe).into(),
        begun: Some(confined::beside_our_own_to_repair),
        show: progress.show(),
    };
    let done = sunder_repair::run(&wanted);
    progress.end();
    let done = match done {
        Ok(done) => done,
        Err(error) => return Ok(start_failure(&error)),
    };
    if !options.quiet {
        done.lines.iter().for_each(|line| note(line));
    }
    let own = exit_code(done.exit);
    Ok(match &report {
        Some(file) => with_report(own, file, output::pretty(&done.findings)),
        None => own,
    })
}

/// How much of the result is needed.
const fn detail(is_written: bool, quiet: bool) -> Detail {
    match (is_written, quiet) {
        (true, _) => Detail::Report,
        (false, true) => Detail::Nothing,
        (false, false) => Detail::Lines,
    }
}

/// `sunder cure`. Returns the exit status.
///
/// # Errors
/// If the plan can't be read or written.
pub fn cure(options: &Cure) -> Result<u8> {
    let plan = report(options.save.as_deref())?;
    let progress = Observing::begin(options.quiet, Until::ProgramEnds);
    let wanted = sunder_cure::Options {
        program: options.program.clone(),
        plan: options.plan.clone(),
        follow_children: options.follow_children,
        detail: detail(plan.is_some(), options.quiet),
        observer: options.observer,
        observe: (&options.observe).into(),
        begun: Some(confined::beside_our_own_to_repair),
        show: progress.show(),
    };
    let done = sunder_cure::run(&wanted);
    progress.end();
    let done = match done {
        Ok(done) => done,
        Err(error) => return Ok(start_failure(&error)),
    };
    if !options.quiet {
        done.lines.iter().for_each(|line| note(line));
    }
    let own = exit_code(done.exit);
    Ok(match &plan {
        Some(file) => with_report(own, file, output::pretty(&done.findings)),
        None => own,
    })
}

/// Writes the report of a program that ended with the status `own`. If that fails, the
/// program's own failure status still wins.
fn with_report(own: u8, file: &Destination, report: Result<String>) -> u8 {
    match report.and_then(|report| file.write(&report)) {
        Ok(()) => own,
        Err(error) => {
            complain(&error);
            if own == 0 { status::FAILED } else { own }
        }
    }
}
