//! From a finding to what to change in the source: alignment, padding, copies a
//! thread, or sharing less. Called once a finding after naming, before any
//! report. Pure: it sees findings only, and neither files nor the target.
//!
//! Called by the pipeline, and by `repair` for groups of bytes and clocks of progress. It
//! must not read sources or change anything: advice is for a person, and a plan for a remedy.
#![forbid(unsafe_code)]

mod array;
mod array_type;
mod breaks;
mod called;
pub mod cores;
mod counters;
mod fields;
mod foreign;
pub mod gain;
mod hoist;
mod isolate;
mod language;
mod layout;
mod library_types;
mod own_lines;
mod pages;
mod pair;
mod place;
pub mod progress;
pub mod remap;
mod slices;
mod truly_shared;
mod words;

use called::called;
pub use isolate::{Isolation, cannot_be_isolated_here, isolation};
use layout::{Layout, PASSED_ON};
use sunder_findings::{Advice, Finding, Fix, LatentOn, Sharing};

/// The advice for `finding` on a machine with lines of `line_size` bytes, the best first. Never
/// empty; a `line_size` of 0 counts as 64.
pub fn advise(finding: &Finding, line_size: u32) -> Vec<Advice> {
    let line_size = if line_size == 0 { 64 } else { line_size };
    if let Some(own) = counters::advise(finding) {
        return vec![own];
    }
    if finding.latent {
        return latent(finding, line_size);
    }
    if let Some(own) = foreign::advise(finding) {
        return vec![own];
    }
    if let Some(on) = &finding.on_pages {
        return pages::advise(finding, on);
    }
    match finding.sharing {
        Sharing::False => take_apart(&Layout::of(finding, line_size)),
        Sharing::True => truly(&Layout::of(finding, line_size)),
        Sharing::Mixed => mixed(&Layout::of(finding, line_size)),
    }
}

/// Advice that brings data of different threads onto different lines.
fn take_apart(layout: &Layout) -> Vec<Advice> {
    if layout.finding.neighbour.is_none() && layout.finding.object.is_bare_stack() {
        return vec![unnamed(layout)];
    }
    pair::advise(layout)
        .or_else(|| array::advise(layout))
        .or_else(|| fields::advise(layout))
        .unwrap_or_else(|| vec![unnamed(layout)])
}

/// Advice for true sharing; if the samples say that it is false, both kinds.
fn truly(layout: &Layout) -> Vec<Advice> {
    let mut all = truly_shared::advise(layout);
    if let Some(share) = layout.finding.sampled_false_share {
        let mut apart = take_apart(layout);
        if let Some(first) = apart.first_mut() {
            first.text = format!(
                "It is not certain that this is true sharing: by samples alone {:.0} % of it is false. \
                 Watchpoints slow threads down, and one side of a queue may then look at the other's \
                 position more often. `sunder repair` tries what follows, and measures it. {}",
                (share.clamp(0.0, 1.0) * 100.0).round(),
                first.text
            );
        }
        all.extend(apart);
    }
    all
}

fn mixed(layout: &Layout) -> Vec<Advice> {
    let share = (layout.finding.false_share.clamp(0.0, 1.0) * 100.0).round();
    // Of elements that are used one by one, each lock is with its data.
    let is_nearly_false = layout.finding.false_share >= PASSED_ON;
    let elements = is_nearly_false.then(|| array::advise(layout)).flatten();
    let mut all = elements
        .or_else(|| fields::lock_beside_data(layout))
        .unwrap_or_else(|| take_apart(layout));
    // What rounds to nothing needs no advice.
    if share >= 100.0 {
        return all;
    }
    if share <= 0.0 {
        return truly_shared::advise(layout);
    }
    if let Some(first) = all.first_mut() {
        first.text = format!(
            "{share:.0} % of the interleavings are false sharing. {}",
            first.text
        );
    }
    let mut rest = truly_shared::advise(layout);
    if let Some(first) = rest.first_mut() {
        first.text = format!(
            "{:.0} % of the interleavings are true sharing, which padding can't mend. {}",
            100.0 - share,
            first.text
        );
    }
    // If less than half is false sharing, reducing the true sharing helps more.
    if share < 50.0 && !rest.is_empty() {
        std::mem::swap(&mut all, &mut rest);
    }
    all.extend(rest);
    all
}

fn latent(finding: &Finding, line_size: u32) -> Vec<Advice> {
    let (line_size, when) = match finding.latent_on {
        Some(LatentOn::LineSize(bytes)) if bytes > 0 => (
            bytes,
            format!(
                "It costs nothing here. Do this before the program runs where lines have {bytes} bytes{}:",
                if bytes == 128 {
                    " (some ARM and POWER CPUs; many x86 CPUs fetch pairs of 64-byte lines)"
                } else {
                    ""
                }
            ),
        ),
        Some(LatentOn::StartOffset(offset)) => (
            line_size,
            format!(
                "It costs nothing as long as {} starts where it does now, which nothing \
                 guarantees: if it started at byte {offset} of a line, threads would share lines.",
                called(&finding.object)
            ),
        ),
        Some(LatentOn::MoreCpusThan(cpus)) => (
            line_size,
            format!(
                "These threads share a line, but took turns on {} in this run, so that it cost \
                 nothing. It will cost as soon as they run at the same time, as with a CPU for \
                 each.",
                match cpus {
                    1 => "one CPU".to_owned(),
                    cpus => format!("{cpus} CPUs"),
                }
            ),
        ),
        _ => (line_size, "It costs nothing here.".to_owned()),
    };
    let start_moves = matches!(finding.latent_on, Some(LatentOn::StartOffset(_)));
    let mut layout = Layout::of(finding, line_size);
    layout.start_is_chance |= start_moves;
    let mut all = take_apart(&layout);
    // What only pays while the sharing costs something (hoisting, thread pools) is no advice
    // for a latent finding.
    all.retain(|a| !matches!(a.fix, Fix::Hoist | Fix::PerThread));
    if all.is_empty() {
        all.push(unnamed(&layout));
    }
    for advice in &mut all {
        advice.text = match when.ends_with(':') {
            true => format!("{when} {}", words::continued(&advice.text)),
            false => format!("{when} {}", advice.text),
        };
    }
    all
}

/// Advice for memory without names: which threads use which bytes, and how to learn more.
fn unnamed(layout: &Layout) -> Advice {
    let line = layout.line_size;
    let object = &layout.finding.object;
    // A runtime's code has names and no files.
    let sites = &layout.finding.sites;
    // The symbols of a runtime itself have names without files whatever it was started with.
    let managed = matches!(layout.language, language::Language::Managed(_));
    let bare = |name: &str| name.starts_with("0x") || !managed && name.contains("+0x");
    let unknown = |s: &sunder_findings::Site| s.file.is_none() && bare(&s.function);
    let learn = match if managed {
        sites.iter().any(unknown)
    } else {
        // Of a prediction no code is known.
        !sites.is_empty() && sites.iter().all(unknown)
    } {
        true => layout.language.to_learn_more(),
        false => "",
    };
    if object.is_bare_stack() {
        let who: Vec<String> = layout
            .finding
            .threads()
            .iter()
            .map(|t| layout.thread(t.id))
            .collect();
        let text = format!(
            "{} use bytes of one line on {}: {}.{learn}",
            words::short_list(&who, 4),
            called(object),
            place::off_the_stack(layout, object)
        );
        return Advice {
            fix: Fix::Separate,
            text: words::capital(&text),
            grows_by: None,
        };
    }
    // If only one word is written, the bytes of its readers are shown too.
    let all = layout.parts.iter().filter(|p| p.written()).count() < 2;
    let shown: Vec<&layout::Part> = layout.parts.iter().filter(|p| all || p.written()).collect();
    // What has no names and belongs to one thread may stay together.
    let together = |a: &&layout::Part, b: &&layout::Part| {
        let names = |p: &layout::Part| p.word.field.is_some();
        !names(a) && !names(b) && a.owner().is_some() && a.owner() == b.owner()
    };
    let mut places: Vec<String> = shown
        .chunk_by(together)
        .take(4)
        .filter_map(|run| Some((*run.first()?, *run.last()?)))
        .map(|(p, last)| {
            let who = p
                .owner()
                .map_or_else(|| "several threads".to_owned(), |t| layout.thread(t));
            // Several words may be of one field.
            let alike = |o: &&layout::Part| o.word.field == p.word.field;
            let what = match layout.parts.iter().filter(alike).count() {
                1 => p.called(layout),
                _ => p.bytes_to(last, layout),
            };
            format!("{what} ({who})")
        })
        .collect();
    if places.is_empty() {
        places.push("the bytes of different threads".to_owned());
    }
    let code = layout
        .busiest_site()
        .map(|s| format!(" The busiest code is {s}."))
        .unwrap_or_default();
    Advice {
        fix: Fix::Separate,
        text: format!(
            "Keep {} at least {line} bytes apart, each on lines of its own.{}{code}{learn}",
            words::list(&places),
            layout.language.own_fix(),
        ),
        grows_by: None,
    }
}

#[cfg(test)]
mod tests;
