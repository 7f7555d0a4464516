//! Which objects on a line may be isolated, by all that was seen of them. Called by `choose`, and by
//! `cure` before something else is tried with them. It must not choose or ask for anything.

use super::allowed::{RECENT, counts, is_certain, may_be_isolated, used_by_one_each};
use super::lasting::{GONE, Lasting};
use super::pages::LARGEST;
use std::collections::HashSet;
use sunder_access::{Span, Time};
use sunder_observe::monotonic_now;
use sunder_pipeline::{Part, Process, objects_on_line, show_object};
use sunder_sharing::{PageRuns, ThreadUse, Verdict, WordUse};

/// Lines that together cost a smaller share of their threads' time are not worth stopping the program
/// for.
pub const WORTH_ISOLATING: f64 = 0.04;
/// So many words must have been seen in use twice, each by one thread alone. With slots of a queue whose sides
/// use them equally often and independently, that would happen once in 65,536 times.
const SEEN_TWICE: usize = 16;
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

/// Whether each of these words is one thread's, as far as uses tell. Both sides of a queue use each of its
/// slots, and may hand data over by plain stores, which isolation would delay. Where there are many slots, only
/// one side was seen in each at first. So enough words must have been seen twice.
fn is_of_one_each<'a>(words: impl Iterator<Item = &'a WordUse>) -> bool {
    let mut seen_twice = 0;
    for word in words {
        let sum = |count: fn(&ThreadUse) -> u64| word.threads.iter().map(count).sum::<u64>();
        let writes = sum(|one| one.writes + one.updates);
        if sum(|one| one.atomics) > 0 || word.threads.len() > 1 && writes > 0 {
            return false;
        }
        seen_twice += usize::from(sum(|one| one.reads) + writes > 1);
    }
    seen_twice >= SEEN_TWICE
}

/// Whether what threads contend for in these bytes could be isolated, and enough was seen to say so: of
/// all bytes, and of the objects on the lines that cost most.
pub fn could_isolate(process: &mut Process, within: Span) -> bool {
    let last = process.judge.span_of_time().map_or(Time(0), |time| time.1);
    let used = process.judge.used(within, last.before(RECENT));
    if !is_of_one_each(used.iter().map(|(_, word)| word)) {
        return false;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::ThreadId;

    /// A word that threads read and wrote so often.
    fn word(threads: &[(u64, u64)]) -> WordUse {
        let one = |(thread, &(reads, writes)): (u32, &(u64, u64))| ThreadUse {
            thread: ThreadId(thread),
            reads,
            writes,
            ..ThreadUse::default()
        };
        WordUse {
            offset: 0,
            size: 4,
            threads: (1..).zip(threads).map(one).collect(),
        }
    }

    #[test]
    fn words_are_one_threads_if_enough_were_seen_twice_and_none_with_two_threads() {
        let own = |count| vec![word(&[(1, 1)]); count];
        assert!(is_of_one_each(own(16).iter()));
        assert!(!is_of_one_each(own(15).iter()), "too few");
        let once = vec![word(&[(0, 1)]); 100];
        assert!(!is_of_one_each(once.iter()), "none was seen twice");
        let beside = |one: WordUse| own(16).into_iter().chain([one]).collect::<Vec<_>>();
        assert!(
            !is_of_one_each(beside(word(&[(0, 1), (1, 0)])).iter()),
            "handed over"
        );
        assert!(
            is_of_one_each(beside(word(&[(1, 0), (1, 0)])).iter()),
            "only read"
        );
        let mut lock = word(&[(0, 0)]);
        (lock.threads[0].updates, lock.threads[0].atomics) = (1, 1);
        assert!(!is_of_one_each(beside(lock).iter()));
    }
}
