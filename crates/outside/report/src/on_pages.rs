//! Sentences and tables for findings on pages, shared by text and HTML: which object took the
//! pages from which, and what lies on a page. A page has too many words to draw, so it is shown
//! as ranges of bytes.

use crate::clean::clean;
use crate::describe::{Touch, thread_label};
use crate::figures::counted;
use sunder_findings::{Finding, Line, Object, PageCause, Site, Word};

/// The most threads that are named in one cell.
const NAMED: usize = 4;

/// The most causes that are shown.
const CAUSES: usize = 4;

/// A range of bytes of a page that is used alike.
pub(crate) struct PageRun {
    /// Its first and last byte.
    pub(crate) bytes: String,
    /// The object at these bytes.
    pub(crate) object: String,
    /// The threads that touch it, and how.
    pub(crate) who: String,
}

/// The ranges of a page, in order of their bytes.
pub(crate) fn runs(page: &Line) -> Vec<PageRun> {
    page.words.iter().map(PageRun::new).collect()
}

/// The ranges of the finding's own objects, and the number of ranges of other objects. If there
/// are more than `most` of its own, adjacent ones of the same object are joined.
pub(crate) fn own_runs(finding: &Finding, page: &Line, most: usize) -> (Vec<PageRun>, usize) {
    let objects = std::iter::once(&finding.object).chain(&finding.neighbour);
    let labels: Vec<String> = objects.map(Object::label).collect();
    let is_own = |word: &&Word| word.field.as_ref().is_some_and(|f| labels.contains(f));
    let (own, others): (Vec<&Word>, Vec<&Word>) = page.words.iter().partition(is_own);
    let mut words: Vec<Word> = Vec::new();
    for &word in &own {
        match words.last_mut() {
            Some(last) if own.len() > most && last.field == word.field => join(last, word),
            _ => words.push(word.clone()),
        }
    }
    (words.iter().map(PageRun::new).collect(), others.len())
}

impl PageRun {
    fn new(word: &Word) -> Self {
        Self {
            bytes: format!("{}-{}", word.offset, end(word) - 1),
            object: clean(word.field.as_deref().unwrap_or("-")),
            who: who(word),
        }
    }
}

fn end(word: &Word) -> u32 {
    word.offset.saturating_add(word.size.max(1))
}

fn join(word: &mut Word, next: &Word) {
    word.size = end(next).max(end(word)) - word.offset;
    for user in &next.threads {
        match word.threads.iter_mut().find(|known| known.id == user.id) {
            Some(known) => {
                known.reads = known.reads.saturating_add(user.reads);
                known.writes = known.writes.saturating_add(user.writes);
                known.updates = known.updates.saturating_add(user.updates);
                known.atomics = known.atomics.saturating_add(user.atomics);
            }
            None => word.threads.push(user.clone()),
        }
    }
}

/// The threads that touch a word: `written by 4711, 4712 and 3 more, read by 4713`.
fn who(word: &Word) -> String {
    let by = |touch: Touch, verb: &str| {
        let threads = word.threads.iter();
        let threads = threads.filter(|t| Touch::of(t) == Some(touch));
        let all: Vec<String> = threads
            .map(|t| thread_label(t.id, t.name.as_deref()))
            .collect();
        let named = all.iter().take(NAMED).cloned().collect::<Vec<_>>();
        let more = match all.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!all.is_empty()).then(|| format!("{verb} by {}{more}", named.join(", ")))
    };
    let told = [
        by(Touch::Atomic, "updated"),
        by(Touch::Write, "written"),
        by(Touch::Read, "read"),
    ];
    told.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Which of two objects took the pages from the other, with the most misses first. Empty for
/// findings on lines and on one object.
pub(crate) fn causes(finding: &Finding) -> Vec<String> {
    let (Some(pages), Some(_)) = (&finding.on_pages, &finding.neighbour) else {
        return Vec::new();
    };
    let called = |neighbour: bool| match neighbour {
        false => "the first",
        true => "the second",
    };
    let sentence = |cause: &PageCause| {
        let (asked, written) = (
            called(cause.neighbour_missed),
            called(cause.neighbour_written),
        );
        format!(
            "Asked for {asked} after {written} was written on the page: {} for nothing, {} for new \
             values.",
            counted(cause.false_sharing as usize, "time"),
            counted(cause.true_sharing as usize, "time"),
        )
    };
    let causes = pages.causes.iter();
    let causes = causes.filter(|cause| cause.true_sharing + cause.false_sharing > 0);
    causes.take(CAUSES).map(sentence).collect()
}

/// The misses of a site: `missed 120 times for nothing, took it away 119 times`.
pub(crate) fn misses(site: &Site) -> Option<String> {
    let misses = site.misses?;
    let times = |count: u64| counted(count as usize, "time");
    let mut told = Vec::new();
    if misses.false_sharing > 0 {
        told.push(format!(
            "missed {} for nothing",
            times(misses.false_sharing)
        ));
    }
    if misses.true_sharing > 0 {
        told.push(format!(
            "missed {} for new values",
            times(misses.true_sharing)
        ));
    }
    if misses.destroyed > 0 {
        told.push(format!("took it away {}", times(misses.destroyed)));
    }
    Some(told.join(", "))
}
