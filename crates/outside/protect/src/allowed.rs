//! Whether objects may be isolated, by what was seen of their lines: each word of theirs must be one
//! thread's. Called by `choose`. It must not choose or ask for anything.

use super::image::is_systems;
use super::pages::LARGEST;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use sunder_access::{Address, LINE, PAGE, Span, Time};
use sunder_findings::{Finding, Line, Object, ObjectKind, ThreadUse, Word};
use sunder_pipeline::{Process, show_sharing};
use sunder_plan::cannot_be_isolated_here;
use sunder_sharing::{Confidence, Sharing, Verdict, WordUse};

/// A line that was not touched for this long is no longer contended.
pub const RECENT: Duration = Duration::from_millis(200);

/// The other lines on the page of `line` that threads were seen to use, as far as each of their words
/// has one thread: of an object that lies there, not all lines are contended.
pub fn used_by_one_each(
    process: &Process,
    object: &Object,
    line: Address,
    strict: bool,
) -> impl Iterator<Item = u64> {
    let page = Span::new(Address(line.0 & !(PAGE - 1)), PAGE);
    let last = process.judge.span_of_time().map_or(Time(0), |time| time.1);
    let mut lines: BTreeMap<u64, Vec<WordUse>> = BTreeMap::new();
    for (at, word) in process.judge.used(page, last.before(RECENT)) {
        let line = at.0 & !(LINE - 1);
        let offset = (at.0 - line) as u32;
        let words = lines.entry(line).or_default();
        words.push(WordUse { offset, ..word });
    }
    lines.retain(|_, words| {
        let finding = as_finding(object, Sharing::False, words);
        cannot_be_isolated_here(&finding, strict).is_none()
    });
    lines.into_keys()
}

/// Whether a verdict is certain enough to be asked about its line.
pub fn is_certain(verdict: &Verdict) -> bool {
    (verdict.confirmed || verdict.confidence() >= Confidence::Sampled) && verdict.owner.is_none()
}

/// Whether a verdict is certain enough, and about bytes in `span`.
pub fn counts(verdict: &Verdict, span: Span) -> bool {
    is_certain(verdict) && Span::new(verdict.line, LINE).overlaps(span)
}

/// # Errors
/// Says why an object must stay shared.
pub fn may_be_isolated(
    object: &Object,
    span: Span,
    verdict: &Verdict,
    strict: bool,
) -> Result<(), String> {
    if span.len > LARGEST {
        return Err("it is too large".into());
    }
    let module = object.module.as_deref().map(Path::new);
    if object.kind == ObjectKind::Global && module.is_some_and(is_systems) {
        return Err("it is the C library's".into());
    }
    if verdict.sharing == Sharing::True {
        return Err("threads use the same bytes".into());
    }
    match cannot_be_isolated_here(&as_finding(object, verdict.sharing, &verdict.words), strict) {
        Some(why) => Err(why.into()),
        None => Ok(()),
    }
}

/// What was seen of a line in the form that the rules of `sunder_plan` take.
fn as_finding(object: &Object, sharing: Sharing, words: &[WordUse]) -> Finding {
    let words = words.iter().map(|word| Word {
        offset: word.offset,
        size: word.size,
        field: None,
        threads: word
            .threads
            .iter()
            .map(|u| ThreadUse {
                id: u.thread.0,
                reads: u.reads,
                writes: u.writes,
                updates: u.updates,
                atomics: u.atomics,
                ..ThreadUse::default()
            })
            .collect(),
    });
    Finding {
        sharing: show_sharing(sharing),
        object: object.clone(),
        lines: vec![Line {
            words: words.collect(),
            ..Line::default()
        }],
        ..Finding::default()
    }
}
