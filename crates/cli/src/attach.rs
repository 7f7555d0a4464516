//! `sunder attach`: observes a running process for a while; with `--repair` it also takes apart
//! the data that the process shares falsely.

use crate::args::{Attach, Target};
use crate::confined;
use crate::destination::Destination;
use crate::endless::end_if_a_read_does_not;
use crate::kept::Recording;
use crate::output::{self, Output, complain, note};
use crate::progress::{Observing, Until};
use crate::status;
use crate::usage::wrong;
use anyhow::{Result, bail};
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_confine::Work;
use sunder_gain::{Effort, Experiment};
use sunder_live::{Ending, LiveRemedy, Look, Signals, is_program, processes};
use sunder_observe::proc::{self, Fields, Folder};
use sunder_repair::attach as repair;

/// How long a process is observed by default.
const USUAL: Duration = Duration::from_secs(10);

/// Runs the command. Returns the exit status.
///
/// # Errors
/// If the process can't be observed.
pub fn run(options: &Attach) -> Result<u8> {
    if options.repair {
        return run_repair(options);
    }
    let mut output = Output::new(&options.tell, false)?;
    let process = process(&options.target)?;
    is_program(process)?;
    if let Ok(Some('T' | 't')) = proc::state(Folder::Process(process)) {
        note(&format!(
            "process {process} is stopped, and nothing is seen of it until it goes on (kill -CONT {process})"
        ));
    } else if proc::is_frozen(process) {
        note(&format!(
            "process {process} is frozen by its control group (a container that is paused?), and nothing \
             is seen of it until it goes on"
        ));
    }
    output.hold()?;
    let recording = Recording::begin(options.record.as_deref())?;
    let mut experiment = options
        .measure
        .then(|| Experiment::of(process, Effort::Much));
    if experiment.is_some() {
        repair::remember_own_confinement()?;
        confined::beside(process, Work::Repair);
    } else {
        confined::beside(process, Work::Observe);
    }
    end_if_a_read_does_not();
    // Before Ctrl-Z stops us, the line of the progress is taken away.
    let _stops = Signals::hold_stops();
    let mut look = Look::begin_recorded(
        process,
        &(&options.observe).into(),
        options.tell.threshold,
        Ending::BySignals,
        recording.as_ref().map(Recording::recorder),
    )?;
    let duration = options.duration.unwrap_or(USUAL);
    let progress = Observing::begin(options.tell.quiet, Until::Over(duration));
    look.live.show = progress.show();
    look.go_on(Some(duration), &mut |live| {
        if let Some(experiment) = &mut experiment {
            experiment.step(live);
        }
        true
    })?;
    if let Some(experiment) = &mut experiment {
        experiment.ended(&mut look.live);
        if let Some(measured) = experiment.measured() {
            look.live.session.keep_measured(measured);
        }
    }
    let mut findings = look.finish();
    progress.end();
    if let Some(experiment) = &experiment {
        experiment.complete(&mut findings);
    }
    let written = output.write(&findings);
    let told = recording.map(|one| one.tell(options.tell.quiet));
    let failed = written.failed || told == Some(false);
    Ok(match output.verdict(&findings) {
        Some(found) => found,
        None if failed => status::FAILED,
        None => 0,
    })
}

/// Runs the command with `--repair`.
fn run_repair(options: &Attach) -> Result<u8> {
    let mut tell_options = options.tell.clone();
    // The lines about what was done replace the report, unless a format is asked for.
    let lines = !tell_options.quiet;
    tell_options.quiet |= tell_options.format.is_empty();
    let mut output = Output::new(&tell_options, false)?;
    let report = options.report.as_deref().map(Destination::new);
    let mut report = report.transpose()?;
    let process = process(&options.target)?;
    is_program(process)?;
    output.hold()?;
    report.as_mut().map_or(Ok(()), Destination::hold)?;
    repair::remember_own_confinement()?;
    confined::beside(process, Work::Repair);
    end_if_a_read_does_not();
    let awaited = options.duration.map_or(Until::Interrupted, Until::Over);
    let progress = Observing::begin(options.tell.quiet, awaited);
    let done = repair::run(&repair::Options {
        process,
        duration: options.duration,
        dry_run: options.dry_run,
        chaos: options.chaos,
        observe: (&options.observe).into(),
        threshold: options.tell.threshold,
        show: progress.show(),
    })?;
    progress.end();
    if lines {
        done.lines.iter().for_each(|line| note(line));
    }
    let written = output.write(&done.findings);
    let mut failed = written.failed || done.left_something;
    if let Some(file) = &report
        && let Err(error) = output::pretty(&done.findings).and_then(|text| file.write(&text))
    {
        complain(&error);
        failed = true;
    }
    Ok(match output.verdict(&done.findings) {
        Some(found) => found,
        None if failed => status::FAILED,
        None => 0,
    })
}

/// The process of the thread with this number, as `top -H` and `ps -L` show it: the number itself, if
/// it is a process's, or if there is none.
fn process_of(number: u32) -> u32 {
    let status = Fields::read(Folder::Process(ProcessId(number)));
    let whole = status.ok().and_then(|status| status.number("Tgid"));
    whole.unwrap_or(number)
}

/// The most processes that are listed where several match.
const LISTED: usize = 20;

/// The process that the options name.
///
/// # Errors
/// If there is none; or if there are several, which are listed.
pub fn process(target: &Target) -> Result<ProcessId> {
    if let Some(number) = target.pid {
        let whole = process_of(number);
        if whole != number {
            note(&format!("{number} is a thread of process {whole}"));
        }
        return Ok(ProcessId(whole));
    }
    if target.is_empty() {
        return Err(wrong(
            "say which process: --pid NUMBER, --name NAME, --container ID or --unit NAME",
        ));
    }
    let found = processes(&target.into())?;
    match found.as_slice() {
        [one] => Ok(one.process),
        [] => bail!("no process that can be seen here has {target}; root sees the most"),
        several => {
            note(&format!("{} processes have {target}:", several.len()));
            for one in several.iter().take(LISTED) {
                note(&format!("  {one}"));
            }
            let hidden = several.len().saturating_sub(LISTED);
            if hidden > 0 {
                note(&format!("  and {hidden} more"));
            }
            Err(wrong("say which of them: --pid NUMBER"))
        }
    }
}
