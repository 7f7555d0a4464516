//! Sentences about findings and runs, shared by text, HTML and SARIF.

use crate::clean::clean;
use crate::figures::{counted, grouped, percent, seconds, short};
use sunder_findings::{
    AccessKind, Exit, Finding, Findings, LatentOn, Line, Location, Object, ObjectKind, ProcessName,
    Sharing, Simulated, Simulation, Site, Standing, ThreadUse, Tried, Word, file_name,
};

/// With fewer samples, a run that found nothing says little.
const FEW_SAMPLES: u64 = 200;

/// The number of findings of each standing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) significant: usize,
    pub(crate) below: usize,
    pub(crate) truly: usize,
    pub(crate) latent: usize,
}

impl Counts {
    pub(crate) fn of(all: &Findings, threshold: f64) -> Self {
        let mut counts = Self::default();
        for finding in &all.findings {
            *match finding.standing(threshold) {
                Standing::Significant => &mut counts.significant,
                Standing::BelowThreshold => &mut counts.below,
                Standing::TrueSharing => &mut counts.truly,
                Standing::Latent => &mut counts.latent,
            } += 1;
        }
        counts
    }
}

/// The result in one sentence.
pub(crate) fn answer(all: &Findings, threshold: f64) -> String {
    let mut significant = all.significant(threshold);
    let Some(first) = significant.next() else {
        return format!(
            "No false sharing found that costs {} or more.",
            percent(threshold)
        );
    };
    let many = significant.count() + 1;
    let cost = format!(
        "up to {} of the time of {}",
        percent(first.false_cost_percent()),
        counted(threads_of(first), "thread")
    );
    let name = clean(&first.subject());
    if many == 1 {
        format!("False sharing in {name}: it costs {cost}.")
    } else {
        format!("{many} objects are falsely shared; the first, {name}, costs {cost}.")
    }
}

/// The number of threads that were seen; if there are several processes, of how many.
fn threads(all: &Findings) -> String {
    let threads = counted(all.run.threads as usize, "thread");
    match all.processes.len() {
        0 | 1 => threads,
        many => format!("{threads} of {many} processes"),
    }
}

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
    if run.threads == 1 {
        out.push("Only one thread was seen, so nothing could be shared.".to_owned());
    } else if run.samples < FEW_SAMPLES {
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

/// The kind of the finding: `false sharing`, `latent false sharing` and so on.
pub(crate) fn kind(finding: &Finding) -> &'static str {
    match (finding.latent, finding.sharing) {
        (true, _) => "latent false sharing",
        (false, Sharing::False) => "false sharing",
        (false, Sharing::True) => "true sharing",
        (false, Sharing::Mixed) => "mixed sharing",
    }
}

/// The cost of the finding, or the condition of a latent one; for mixed sharing also the cost
/// of the false part.
pub(crate) fn cost(finding: &Finding) -> String {
    match false_part(finding) {
        Some(part) => format!("{}, {part}", whole_cost(finding)),
        None => whole_cost(finding),
    }
}

/// The cost of the whole finding, or the condition of a latent one.
pub(crate) fn whole_cost(finding: &Finding) -> String {
    if !finding.latent {
        return format!("up to {}", percent(finding.cost_percent));
    }
    match finding.latent_on {
        Some(LatentOn::LineSize(bytes)) => format!("with {bytes}-byte lines"),
        Some(LatentOn::StartOffset(byte)) => format!("if it starts at byte {byte} of a line"),
        None => "not on this machine".to_owned(),
    }
}

/// The false part's cost, as in `5.7 % falsely`, for mixed sharing that is present.
pub(crate) fn false_part(finding: &Finding) -> Option<String> {
    (finding.sharing == Sharing::Mixed && !finding.latent)
        .then(|| format!("{} falsely", percent(finding.false_cost_percent())))
}

/// A source position: `file.c:12`.
pub(crate) fn place(location: &Location) -> String {
    let file = clean(file_name(&location.file));
    match location.line {
        Some(line) => format!("{file}:{line}"),
        None => file,
    }
}

/// Size, kind and origin of an object: `256 bytes, allocated at a.c:3 in main`.
pub(crate) fn origin(object: &Object) -> String {
    let mut facts = Vec::new();
    let named = object.name.is_some() || object.type_name.is_some();
    if let Some(blocks) = object.blocks {
        let each = object
            .size
            .map(|size| format!(" of {} bytes", grouped(size)))
            .unwrap_or_default();
        facts.push(format!("{} blocks{each}", grouped(blocks)));
    } else if let (Some(size), true) = (object.size, named) {
        facts.push(format!("{} bytes", grouped(size)));
    }
    if let Some(site) = object.allocation_site() {
        let at = object
            .place()
            .map(|p| format!(" at {}", place(&p)))
            .unwrap_or_default();
        // The allocation of a variable on a stack is the frame that declares it.
        let how = match object.kind {
            ObjectKind::Stack => "declared",
            _ => "allocated",
        };
        facts.push(format!("{how}{at} in {}", clean(&site.function)));
    } else if let Some(declared) = &object.declared {
        facts.push(format!(
            "{} declared at {}",
            object.kind.words(),
            place(declared)
        ));
    } else if object.kind != ObjectKind::Unknown && named {
        facts.push(object.kind.words().to_owned());
    }
    if let Some(thread) = &object.thread {
        let who = thread_label(thread.id, thread.name.as_deref());
        facts.push(match object.kind {
            ObjectKind::Stack | ObjectKind::Tls => format!("of thread {who}"),
            _ => format!("by thread {who}"),
        });
    }
    if object.freed {
        facts.push("freed later".to_owned());
    }
    if facts.is_empty() {
        facts.push("no symbol and no allocation record tells its name or size".to_owned());
    }
    if let (true, None, Some(module)) = (
        object.allocation.is_empty(),
        &object.declared,
        &object.module,
    ) {
        facts.push(format!("in {}", clean(file_name(module))));
    }
    facts.join(", ")
}

/// How the threads share the line, and on what evidence.
pub(crate) fn evidence(all: &Findings, finding: &Finding) -> String {
    if let Some(counts) = &finding.simulated {
        return replayed(finding, counts);
    }
    let threads = counted(finding.threads().len(), "thread");
    let lines = counted(finding.lines.len(), "line");
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
    if let Some(processes) = processes(all, finding) {
        out.push(' ');
        out.push_str(&processes);
    }
    if finding.sharing == Sharing::Mixed {
        out.push_str(&format!(
            ", {} of it falsely",
            percent(finding.false_share * 100.0)
        ));
    }
    out.push_str(match (finding.latent, finding.confirmed) {
        (true, _) => "",
        (false, true) => "; bytes and order confirmed",
        (false, false) => "; from samples, not confirmed",
    });
    out
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

/// The number of threads that take part. On pages, not all of them touch the bytes that are
/// shown.
pub(crate) fn threads_of(finding: &Finding) -> usize {
    match &finding.on_pages {
        Some(pages) => pages.threads.len(),
        None => finding.threads().len(),
    }
}

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

/// The line sizes and starts with which the object would be falsely shared, if they were
/// simulated.
pub(crate) fn predicted(finding: &Finding) -> Option<String> {
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

/// The sharing that would remain with lines of another size, if that was determined.
pub(crate) fn on_smaller_lines(finding: &Finding) -> Option<String> {
    let smaller = finding.on_smaller_lines?;
    let left = match smaller.sharing {
        None => "nothing of this would be left",
        Some(Sharing::True) if finding.sharing != Sharing::True => {
            "only true sharing would be left"
        }
        Some(Sharing::True) => "it would be true sharing all the same",
        Some(Sharing::False) => "there would be false sharing all the same",
        Some(Sharing::Mixed) => "there would be true and false sharing all the same",
    };
    Some(format!("On lines of {} bytes {left}.", smaller.line_size))
}

/// A thread's number and name: `4701 worker`.
pub(crate) fn thread_label(id: u32, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{id} {}", clean(name)),
        None => id.to_string(),
    }
}

/// What a thread does to a word, the strongest kind first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Touch {
    Read,
    Write,
    Atomic,
}

impl Touch {
    pub(crate) fn of(thread: &ThreadUse) -> Option<Self> {
        if thread.atomics > 0 {
            Some(Self::Atomic)
        } else if thread.stores() > 0 {
            Some(Self::Write)
        } else if thread.reads > 0 {
            Some(Self::Read)
        } else {
            None
        }
    }

    /// The verb for a sentence.
    pub(crate) const fn verb(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Atomic => "updates atomically",
        }
    }

    /// The class in the style sheet.
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Atomic => "atomic",
        }
    }

    pub(crate) const fn letter(self) -> char {
        match self {
            Self::Read => 'r',
            Self::Write => 'W',
            Self::Atomic => 'A',
        }
    }
}

/// The verb for what an instruction does.
pub(crate) const fn access_kind(kind: AccessKind) -> &'static str {
    match kind {
        AccessKind::Read => "read",
        AccessKind::Write => "write",
        AccessKind::Update => "update",
        AccessKind::Atomic => "atomic",
    }
}

/// The line number of a site, or its address if there is none. A function with an offset
/// already has a position, which is the same in every run.
pub(crate) fn site_place(site: &Site) -> String {
    match site.line {
        Some(line) => line.to_string(),
        None if site.function.contains("+0x") => String::new(),
        None => site.address.to_string(),
    }
}

/// A field as seen from its object: without the object's own name.
pub(crate) fn inner_field(field: &str, object: &Object) -> String {
    let name = object.name.as_deref().unwrap_or_default();
    let last = name.rsplit("::").next().unwrap_or(name);
    for prefix in [name, last] {
        if let Some(rest) = field.strip_prefix(prefix).filter(|_| !prefix.is_empty()) {
            if let Some(member) = rest.strip_prefix('.') {
                return clean(member);
            }
            if rest.starts_with('[') {
                return clean(rest);
            }
        }
    }
    clean(field)
}

/// The findings that are not shown, if any: `1 truly shared object, 2 below 1 %`.
pub(crate) fn hidden(counts: Counts, threshold: f64) -> Option<String> {
    let mut parts = Vec::new();
    if counts.truly > 0 {
        parts.push(counted(counts.truly, "truly shared object"));
    }
    if counts.below > 0 {
        parts.push(format!(
            "{} below {}",
            counted(counts.below, "falsely shared object"),
            percent(threshold)
        ));
    }
    (!parts.is_empty()).then(|| parts.join(" and "))
}

/// The position of a line in its object, if it is known.
pub(crate) fn line_position(line: &Line) -> Option<String> {
    Some(match line.object_offset? {
        0 => "start of the object".to_owned(),
        offset if offset > 0 => format!("byte {offset} of the object"),
        offset => format!("the object starts at its byte {}", offset.unsigned_abs()),
    })
}

/// A word's field and bytes.
pub(crate) fn word_name(word: &Word) -> String {
    let last = word.offset.saturating_add(word.size.max(1) - 1);
    match &word.field {
        Some(field) => format!("{} (bytes {}-{last})", clean(field), word.offset),
        None => format!("bytes {}-{last}", word.offset),
    }
}

/// The number of bytes of a line to draw: the machine's line size, or the one with which a
/// latent finding would happen; more if a word lies beyond it.
pub(crate) fn drawn_line_size(all: &Findings, finding: &Finding) -> u32 {
    let nominal = match finding.latent_on {
        Some(LatentOn::LineSize(bytes)) => bytes,
        _ => all.machine.line_size,
    };
    let touched = finding
        .lines
        .iter()
        .flat_map(|l| &l.words)
        .map(|w| w.offset.saturating_add(w.size))
        .max()
        .unwrap_or(0);
    let needed = touched.clamp(8, 256).next_power_of_two();
    nominal.clamp(8, 256).max(needed)
}
