//! What was observed: the program, how long, and how much of it was seen.

use crate::clean::clean;
use crate::figures::{counted, grouped, seconds};
use std::collections::BTreeMap;
use sunder_findings::{Answer, Exit, Findings, Process};

/// With fewer samples, a run that found nothing says little.
const FEW_SAMPLES: u64 = 200;

/// The number of threads that were seen; if several processes ran, of how many. Then it is the threads of these: a
/// shell that waits has one, too, but was not seen running.
fn threads(all: &Findings) -> String {
    match threads_that_ran(&all.processes) {
        (_, 0 | 1) => counted(all.run.threads as usize, "thread"),
        (threads, many) => format!("{} of {many} processes", counted(threads, "thread")),
    }
}

/// How many threads of how many processes these are. A process that executed another program is listed once for
/// each.
fn threads_that_ran(listed: &[Process]) -> (usize, usize) {
    let mut ran: BTreeMap<u32, usize> = BTreeMap::new();
    for process in listed {
        let threads = ran.entry(process.id).or_default();
        *threads = (process.threads as usize).max(*threads);
    }
    (ran.values().sum(), ran.len())
}

/// Sentences on what was observed, for a run that found nothing.
pub(crate) fn looked_at(all: &Findings) -> Vec<String> {
    let run = &all.run;
    if let Some(simulation) = &all.simulation {
        return vec![format!(
            "Replayed {} accesses of {}: {} misses bring what another thread wrote, {} are useless.",
            grouped(simulation.accesses),
            counted(run.threads as usize, "thread"),
            grouped(simulation.totals.true_sharing),
            grouped(simulation.totals.false_sharing),
        )];
    }
    let watched = if run.watched_accesses > 0 {
        format!(
            "; watchpoints trapped {} more",
            grouped(run.watched_accesses)
        )
    } else {
        String::new()
    };
    let mut out = vec![format!(
        "Looked at {} samples of {} in {}, which gave {} accesses with known addresses{watched}.",
        grouped(run.samples),
        threads(all),
        seconds(run.seconds),
        grouped(run.accesses),
    )];
    if run.threads == 1 && all.answer(run.threshold_percent).answer == Answer::Inconclusive {
        out.push("Only one thread was seen.".to_owned());
    } else if run.threads == 1 {
        out.push("Only one thread was seen, so nothing could be shared.".to_owned());
    } else if run.samples < FEW_SAMPLES && !all.is_of_other_code() {
        out.push(
            "That is too little to be sure: let the program run longer, or raise --frequency."
                .to_owned(),
        );
    }
    out
}

/// The run in short facts: command, time, threads, samples, how it ended.
pub(crate) fn run_facts(all: &Findings) -> Vec<String> {
    let run = &all.run;
    let seen = match &all.simulation {
        Some(simulation) => format!("{} accesses replayed", grouped(simulation.accesses)),
        None => format!(
            "{} samples ({})",
            grouped(run.samples),
            clean(&run.observer)
        ),
    };
    let mut facts = vec![seconds(run.seconds), threads(all), seen];
    if run.lost_samples > 0 {
        facts.push(format!("{} lost", grouped(run.lost_samples)));
    }
    match all.program.exit {
        Some(Exit::Status(0)) | None => {}
        Some(Exit::Status(status)) => facts.push(format!("exit status {status}")),
        Some(Exit::Signal(signal)) => facts.push(format!("killed by signal {signal}")),
    }
    facts
}

/// The command line as one line.
pub(crate) fn command(all: &Findings) -> String {
    let joined = all.program.command.join(" ");
    if joined.is_empty() {
        clean(all.program.path.as_deref().unwrap_or("(unknown program)"))
    } else {
        clean(&joined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_counts_once_whatever_it_executed() {
        let process = |id, threads| Process {
            id,
            threads,
            ..Process::default()
        };
        // The second executed another program.
        let listed = [process(7, 3), process(9, 1), process(9, 4)];
        assert_eq!(threads_that_ran(&listed), (7, 2));
        assert_eq!(threads_that_ran(&[]), (0, 0));
    }
}
