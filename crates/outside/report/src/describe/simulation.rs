//! What a replay counted, tried, predicted and moved.

use crate::clean::clean;
use crate::figures::{counted, grouped, percent, seconds};
use sunder_findings::{Finding, Findings, Simulation, Tried};

/// The simulated machine and its totals, each line a label and a figure.
pub(crate) fn simulated(simulation: &Simulation) -> (String, Vec<(&'static str, String)>) {
    let machine = format!(
        "{}, {} bytes kept coherent, {}, caches: {}{}",
        counted(simulation.nodes as usize, "node"),
        simulation.granule,
        simulation.protocol,
        simulation.caches,
        if simulation.heap_only {
            "; accesses to heap objects alone"
        } else {
            ""
        },
    );
    let totals = &simulation.totals;
    let all = totals.references.max(1) as f64;
    let figure = |number: u64| {
        format!(
            "{:>15}  {:>6}",
            grouped(number),
            percent(number as f64 / all * 100.0)
        )
    };
    let alone = |number: u64| format!("{:>15}", grouped(number));
    let rows = vec![
        ("references", alone(totals.references)),
        ("hits", figure(totals.hits)),
        ("cold misses", figure(totals.cold)),
        ("replacement misses", figure(totals.replacement)),
        ("true-sharing misses", figure(totals.true_sharing)),
        ("false-sharing misses", figure(totals.false_sharing)),
        ("upgrades", figure(totals.upgrades)),
        ("invalidations", alone(totals.invalidations)),
        ("transfers of dirty lines", alone(totals.hitm)),
        ("transfers of clean lines", alone(totals.forwards)),
        ("write-backs", alone(totals.write_backs)),
    ];
    (machine, rows)
}

/// A row of the table of changes that were tried.
pub(crate) struct TriedRow {
    /// `saves 1,996 misses (99 %)`, or that it saves none.
    pub(crate) saves: String,
    /// Whether it saves any misses.
    pub(crate) helps: bool,
    /// `+112 bytes`; empty for none.
    pub(crate) bytes: String,
    /// The finding that it is for.
    pub(crate) about: String,
    /// The change in words.
    pub(crate) change: String,
    /// The arguments that make the change.
    pub(crate) arguments: String,
}

/// The rows for the changes that were tried, the best first.
pub(crate) fn tried(all: &Findings) -> Vec<TriedRow> {
    let (Some(what_if), Some(simulation)) = (&all.what_if, &all.simulation) else {
        return Vec::new();
    };
    let totals = &simulation.totals;
    let moves = (totals.true_sharing + totals.false_sharing).max(1) as f64;
    let row = |tried: &Tried| {
        let saved = tried.misses_saved;
        let share = percent(saved.unsigned_abs() as f64 / moves * 100.0);
        let count = grouped(saved.unsigned_abs());
        TriedRow {
            saves: match saved {
                0 => "saves no misses".to_owned(),
                1.. => format!("saves {count} misses ({share})"),
                _ => format!("adds {count} misses ({share})"),
            },
            helps: saved > 0,
            bytes: match tried.bytes {
                0 => String::new(),
                bytes => format!("+{} bytes", grouped(bytes)),
            },
            about: match tried.finding {
                Some(rank) => format!("#{rank}"),
                None => "heap".to_owned(),
            },
            change: clean(&tried.change),
            arguments: clean(&tried.arguments.join(" ")),
        }
    };
    what_if.changes.iter().map(row).collect()
}

/// The total of misses that the figures of [`tried`] refer to, and the number of changes and
/// replays.
pub(crate) fn tried_of(all: &Findings) -> Option<String> {
    let what_if = all.what_if.as_ref()?;
    let totals = &all.simulation.as_ref()?.totals;
    Some(format!(
        "Of the {} misses because another thread wrote; {} tried in {} of the trace, {}",
        grouped(totals.true_sharing + totals.false_sharing),
        counted(what_if.changes.len(), "change"),
        counted(what_if.replays as usize, "replay"),
        seconds(what_if.seconds),
    ))
}

/// What the finding is on other machines, in sentences.
pub(crate) fn elsewhere(finding: &Finding) -> Vec<String> {
    let all = on_more_cpus(finding).into_iter();
    all.chain(predicted(finding)).collect()
}

/// What the fix gains on a machine with more CPUs, as a sentence.
fn on_more_cpus(finding: &Finding) -> Option<String> {
    // Nothing that would be noticed is not told.
    let on = finding.on_more_cpus.filter(|on| on.times_as_fast >= 1.05)?;
    let times = |times: f64| match times {
        small if small < 10.0 => format!("{small:.1}"),
        large => format!("{large:.0}"),
    };
    Some(format!(
        "With a thread on each of {} CPUs, the fix would make the program about {} times as fast ({} \
         to {}, by a model).",
        on.cpus,
        times(on.times_as_fast),
        times(on.low),
        times(on.high)
    ))
}

/// The line sizes and starts with which the object would be falsely shared, if they were
/// simulated.
fn predicted(finding: &Finding) -> Option<String> {
    let predicted = finding.predicted.as_ref()?;
    let sizes = predicted.line_sizes.iter().map(|on| on.false_sharing);
    let starts = predicted.starts.iter().map(|at| at.false_sharing);
    // Up to a hundredth of the worst count is caused by a program's start and end.
    let most = sizes.chain(starts).max()?;
    let counts = |misses: u64| misses > 0 && misses >= most / 100;
    let on = |falsely: bool| -> Vec<String> {
        let chosen = predicted.line_sizes.iter();
        chosen
            .filter(|on| counts(on.false_sharing) == falsely)
            .map(|on| on.line_size.to_string())
            .collect()
    };
    let (with, without) = (on(true), on(false));
    let mut out = match (with.is_empty(), without.is_empty()) {
        (true, true) => return None,
        (true, false) => format!("Not falsely shared on lines of {} bytes", listed(&without)),
        (false, true) => format!("Falsely shared on lines of {} bytes", listed(&with)),
        (false, false) => format!(
            "Falsely shared on lines of {} bytes, not on lines of {}",
            listed(&with),
            listed(&without)
        ),
    };
    if !predicted.starts.is_empty() {
        let starts = predicted.starts.iter();
        let bad: Vec<String> = starts
            .filter(|at| counts(at.false_sharing))
            .map(|at| at.offset.to_string())
            .collect();
        let all = predicted.starts.len();
        out.push_str(&format!("; at {} of {all} start offsets", bad.len()));
        if !bad.is_empty() && bad.len() < all {
            out.push_str(&format!(" ({})", bad.join(", ")));
        }
    }
    Some(format!("{out}."))
}

/// `32, 64 and 128`.
fn listed(all: &[String]) -> String {
    match all {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Where the replay placed objects, and what that takes, if it placed any.
pub(crate) fn placed(simulation: &Simulation) -> Option<String> {
    let placement = simulation.placement.as_ref()?;
    let mut out = match placement.policy.as_str() {
        "actual" => "Objects lie as recorded".to_owned(),
        policy => format!("Heap objects lie as {} places them", clean(policy)),
    };
    for change in &placement.changes {
        out.push_str(&format!(", {}", clean(change)));
    }
    if placement.policy != "actual" {
        out.push_str(&format!(
            ": {} in {}, {} of {} bytes where one heap for all needs {}",
            counted(placement.allocations as usize, "block"),
            counted(placement.buckets as usize, "bucket"),
            counted(placement.pages as usize, "page"),
            grouped(placement.page),
            grouped(placement.general_pages),
        ));
    }
    if placement.grown_bytes > 0 {
        out.push_str(&format!(
            "; what was changed takes {} bytes more",
            grouped(placement.grown_bytes)
        ));
    }
    if placement.unplaced > 0 {
        let many = counted(placement.unplaced as usize, "block");
        out.push_str(&format!("; {many} could not be placed and did not move"));
    }
    Some(format!("{out}."))
}
