//! How threads share the lines of a finding, and how that is known.

use super::verdict::threads_of;
use crate::clean::clean;
use crate::figures::{counted, grouped, percent, short};
use sunder_findings::{Finding, Findings, PageState, PrivatePage, ProcessName, Sharing, Simulated};

/// The processes of a finding, if the program has several: `in process 71 (worker, started by
/// 70)`.
fn processes(all: &Findings, finding: &Finding) -> Option<String> {
    if all.processes.len() < 2 || finding.processes.is_empty() {
        return None;
    }
    let one = |p: &ProcessName| match (&p.name, p.parent) {
        (Some(name), Some(parent)) => format!("{} ({}, started by {parent})", p.id, clean(name)),
        (Some(name), None) => format!("{} ({})", p.id, clean(name)),
        (None, Some(parent)) => format!("{} (started by {parent})", p.id),
        (None, None) => p.id.to_string(),
    };
    let shown: Vec<String> = finding.processes.iter().take(PROCESSES).map(one).collect();
    let left = finding.processes.len() - shown.len();
    Some(match (finding.processes.len(), left) {
        (1, _) => format!("in process {}", shown.join("")),
        (_, 0) => format!("between processes {}", shown.join(", ")),
        _ => format!("between processes {} and {left} more", shown.join(", ")),
    })
}

/// The most processes of a finding that are named; a server may have hundreds.
const PROCESSES: usize = 4;

/// How the threads share the line, and on what evidence.
pub(crate) fn evidence(all: &Findings, finding: &Finding) -> String {
    if let Some(counts) = &finding.simulated {
        return replayed(finding, counts);
    }
    let threads = counted(finding.threads().len(), "thread");
    let lines = counted(finding.all_lines(), "line");
    // Only watchpoints show that a line passes between threads; samples only bound how often.
    let (verb, bound) = match finding.confirmed {
        true => ("pass", ""),
        false => ("may pass", "up to "),
    };
    let mut out = if finding.latent {
        format!("{threads} would share what lies on {lines} today")
    } else {
        let rate = short(finding.interleavings_per_second);
        format!("{threads} {verb} {lines} back and forth {bound}{rate} times a second")
    };
    if let Some(writes) = finding.interleaved_writes {
        let writes = counted(writes as usize, "interleaved write");
        out.push_str(&format!(", {writes} seen in commits"));
    }
    if let Some(processes) = processes(all, finding) {
        out.push(' ');
        out.push_str(&processes);
    }
    if finding.sharing == Sharing::Mixed {
        let falsely = match percent(finding.false_share * 100.0) {
            all if all == "100 %" => "nearly all".to_owned(),
            share => share,
        };
        out.push_str(&format!(", {falsely} of it falsely"));
    }
    out.push_str(match (finding.latent, finding.confirmed) {
        (true, _) => "",
        (false, true) => "; bytes and order confirmed",
        (false, false) => "; from samples, not confirmed",
    });
    out
}

/// What is known of a page of which threads had private copies, as a sentence without its end.
pub(crate) fn private_page(page: &PrivatePage) -> String {
    let until = match page.state {
        PageState::Private => "",
        PageState::OtherBytes => ", until other bytes than the isolated ones changed on it",
        PageState::SameBytes => ", until two threads changed the same bytes",
        PageState::Awaited => ", until a thread was seen to wait there for what others write",
        PageState::Costly => ", until its copies took too much of the threads' time",
        PageState::Released => ", until its object was gone",
    };
    let threads = page.threads.iter().map(|one| {
        format!(
            "{} ({} of {})",
            super::thread_label(one.id, one.name.as_deref()),
            counted(one.commits as usize, "commit"),
            counted(one.bytes as usize, "byte")
        )
    });
    let threads: Vec<String> = threads.collect();
    let wrote = match threads.len() {
        0 => "nothing written in isolation".to_owned(),
        _ => format!("written by {}", threads.join(", ")),
    };
    let turns = counted(page.interleaved_writes as usize, "interleaved write");
    format!("page {}, private{until}: {wrote}; {turns}", page.address)
}

/// The counts of a simulation on the lines of a finding.
fn replayed(finding: &Finding, counts: &Simulated) -> String {
    let pages = finding.on_pages.as_ref().map_or_else(String::new, |on| {
        let pages = counted(on.pages as usize, "page");
        format!(" on {pages} of {} bytes", grouped(on.page))
    });
    format!(
        "{} missed {} times{pages} because another wrote: {} times for nothing, {} times for new \
         values; {} of {} references hit",
        counted(threads_of(finding), "thread"),
        grouped(counts.false_sharing + counts.true_sharing),
        grouped(counts.false_sharing),
        grouped(counts.true_sharing),
        grouped(counts.hits),
        grouped(counts.references),
    )
}
