//! Which objects on a line may be isolated, by all that was seen of them. Called by `choose`, and by
//! `cure` before something else is tried with them. It must not choose or ask for anything.

use super::allowed::{RECENT, counts, is_certain, may_be_isolated, used_by_one_each};
use super::lasting::{GONE, Lasting};
use super::pages::LARGEST;
use std::collections::HashSet;
use sunder_access::Span;
use sunder_observe::monotonic_now;
use sunder_pipeline::{Part, Process, objects_on_line, show_object};
use sunder_sharing::{PageRuns, Verdict};

/// Lines that together cost a smaller share of their threads' time are not worth stopping the program
/// for.
pub const WORTH_ISOLATING: f64 = 0.04;
/// Most lines that are named to say whether bytes could be isolated, as each takes a moment.
const MOST_NAMED: usize = 4;

/// What was seen of a line, and of all lines of its program.
pub struct Seen<'a> {
    /// The line.
    pub line: &'a Verdict,
    /// All lines, this one too.
    pub all: &'a [Verdict],
    /// As in [`sunder_plan::isolation`].
    pub strict: bool,
}

/// The memory of the objects on a line, which are these parts of it, in the pieces that may be isolated.
/// Those that are `chosen` already are left out, unless they are on the line itself.
///
/// # Errors
/// Says why one of the objects must stay shared.
pub fn isolatable(
    process: &mut Process,
    parts: &[Part],
    seen: &Seen<'_>,
    chosen: &dyn Fn(Span) -> bool,
) -> Result<Vec<(Span, Lasting)>, String> {
    let (line, strict) = (seen.line, seen.strict);
    let mut subjects = Vec::new();
    for part in parts {
        let object = show_object(process, &part.name, None);
        let span = part.name.span().ok_or("its size is not known")?;
        let lasting = Lasting::of(process, &object, (span, part.name.thread), line)?;
        let lines: HashSet<u64> = if lasting.is_private_mapping() {
            let one_each = used_by_one_each(process, &object, line.line, strict);
            let certain = seen.all.iter().filter(|v| is_certain(v));
            certain.map(|v| v.line.0).chain(one_each).collect()
        } else {
            seen.all.iter().map(|v| v.line.0).collect()
        };
        // All of a part counts, not only this line of it.
        let may_be = |span: Span| {
            let mut others = seen.all.iter().filter(|v| counts(v, span));
            others.try_for_each(|other| may_be_isolated(&object, span, other, strict))
        };
        let mut spans = lasting.parts(span, line.line.0, &lines).into_iter();
        let first = spans.next().ok_or(GONE)?;
        may_be_isolated(&object, first, line, strict)?;
        may_be(first)?;
        subjects.push((first, lasting.clone()));
        let others = spans.filter(|&span| !chosen(span) && may_be(span).is_ok());
        subjects.extend(others.map(|span| (span, lasting.clone())));
    }
    if subjects.is_empty() {
        return Err("it is not known what it is".into());
    }
    Ok(subjects)
}

/// Whether what threads contend for in these bytes could be isolated, as far as was seen: the objects on
/// the lines that cost most.
pub fn could_isolate(process: &mut Process, within: Span) -> bool {
    let now = monotonic_now();
    let verdicts = process.judge.verdicts();
    let runs = PageRuns::of(verdicts.iter(), LARGEST);
    let is_dear = |v: &&Verdict| {
        counts(v, within) && runs.cost(v) >= WORTH_ISOLATING && now.since(runs.last(v)) < RECENT
    };
    let mut dear: Vec<&Verdict> = verdicts.iter().filter(is_dear).collect();
    dear.sort_by(|one, other| other.cost_share.total_cmp(&one.cost_share));
    dear.truncate(MOST_NAMED);
    let mappings = process.mappings().clone();
    process.names.set_mappings(mappings);
    let could = |line: &&Verdict| {
        let parts = objects_on_line(process, line);
        let parts: Vec<Part> = parts.ranked().cloned().collect();
        let seen = Seen {
            line,
            all: &verdicts,
            strict: false,
        };
        isolatable(process, &parts, &seen, &|_| false).is_ok()
    };
    !dear.is_empty() && dear.iter().all(could)
}
