//! How threads use contended lines and the memory around them, and into which groups the bytes are
//! taken apart. Called by `choose` at each look. It must not decide whether something is moved, or
//! move it.

use super::elements::{Object, Objects};
use super::layout::have_room;
use super::lines::can_come_apart;
use super::movable::can_be_moved;
use super::pages::Pages;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;
use sunder_access::{Address, PAGE, Span, Time};
use sunder_pipeline::Process;
use sunder_plan::remap::{
    Count, Extent, Group, Grouping, Unmoved, Use, groups, whole_elements, widen,
};
use sunder_sharing::{Sharing, ThreadUse, Verdict, WordUse};
use sunder_wire::remap::{GROUPS, MOST_MOVED};

/// A word that was seen less often than this may just as well be used by other threads.
const SEEN: u64 = 4;
/// The same for a word that is used this many times less often than the busiest word of its line.
const SELDOM: u64 = 32;
/// Beside contended lines, a thread that has not run for this long is left out: it cannot contend.
const OFF_CPU_LIMIT: Duration = Duration::from_millis(30);
/// The same for threads that contended for the line, whose use of it is more than chance.
const GONE: Duration = Duration::from_millis(500);

/// Pages, and the groups that go to lines of their own.
#[derive(Clone, Debug)]
pub struct Apart {
    /// Address of the first page.
    pub page: u64,
    /// Length of the pages in bytes.
    pub len: u64,
    /// The groups, and how much they take apart.
    pub grouping: Grouping,
}

/// How the lines of `settled` on these pages are taken apart: by `uses` if given, else by the
/// accesses that were seen, with those that are `learned` of these pages. If the objects on them go
/// on on neighbouring pages, and the same threads use them there, these pages are included, unless
/// they are among the `taken` ones.
///
/// # Errors
/// If moving would not help, or there would be too many groups.
pub fn take_apart(
    process: &mut Process,
    objects: &mut Objects,
    settled: &[&Verdict],
    (page, len): (u64, u64),
    uses: Option<&[Use]>,
    taken: &Pages,
    learned: &Learned,
) -> Result<Apart, Unmoved> {
    let known = |process: &Process, page, len| {
        let seen = || learned.with(seen(process, settled, page, len), page, len);
        uses.map_or_else(seen, <[Use]>::to_vec)
    };
    let first = groups(&known(process, page, len), GROUPS)?;
    let lines = || settled.iter().copied().filter(|v| on(v, page, len));
    let others_run = others_run(process, &first.groups);
    let wanted = in_several_places(&first.groups)
        || (others_run || have_gaps(&first.groups)) && {
            let known = objects.on(process, lines(), false);
            known
                .iter()
                .any(|o| o.may_have_elements(&first.groups, page))
        };
    let objects = objects.on(process, lines(), wanted);
    let beside = beside(process, &objects);
    let wide = around(&first.groups, &objects, &beside, (page, len));
    let mut new = (0..wide.1 / PAGE).map(|n| wide.0 + n * PAGE);
    let grown = wide != (page, len) && uses.is_none() && !new.any(|page| taken.hold(page)) && {
        let mappings = process.mappings().clone();
        can_be_moved(process, &mappings, wide.0, wide.1).is_ok()
    };
    let (page, len) = if grown { wide } else { (page, len) };
    let mut all = known(process, page, len);
    let mut found = if grown { groups(&all, GROUPS)? } else { first };
    let there = beside.iter().filter(|(at, _)| at.0 >= page);
    all.extend(there.map(|(at, word)| used(word, at.0 - page)));
    let extents: Vec<Extent> = objects.iter().map(|o| o.extent(page)).collect();
    let whole = whole_elements(&found.groups, &all, &extents, len, others_run);
    let wide = widen(&whole, &all, &extents, len);
    if wide.len() <= GROUPS && have_room(&wide) {
        found.groups = wide;
    }
    Ok(Apart {
        page,
        len,
        grouping: found,
    })
}

/// Accesses to bytes that stayed together while others were moved, by the addresses that the program
/// uses. Without them, these threads would contend for half a second at the old place before they are
/// known again.
#[derive(Debug, Default)]
pub struct Learned(BTreeMap<u64, Use>);

impl Learned {
    /// More of them; the offsets are addresses.
    pub fn add(&mut self, uses: impl IntoIterator<Item = Use>) {
        for new in uses {
            let known = self.0.entry(new.offset).or_insert_with(|| Use {
                threads: BTreeMap::new(),
                ..new
            });
            known.size = known.size.max(new.size);
            new.threads.into_iter().for_each(|(t, n)| known.add(t, n));
        }
    }

    /// What is known of these pages no longer counts.
    pub fn forget(&mut self, page: u64, len: u64) {
        self.0.retain(|at, _| at.wrapping_sub(page) >= len);
    }

    /// These accesses to pages, with those that are known.
    fn with(&self, mut seen: Vec<Use>, page: u64, len: u64) -> Vec<Use> {
        for (at, known) in self.0.range(page..page.saturating_add(len)) {
            let offset = at - page;
            let here = |one: &&mut Use| one.offset == offset && one.size >= known.size;
            match seen.iter_mut().find(here) {
                Some(one) => known.threads.iter().for_each(|(t, n)| one.add(*t, *n)),
                None => seen.push(Use {
                    offset,
                    ..known.clone()
                }),
            }
        }
        seen
    }
}

fn on(line: &Verdict, page: u64, len: u64) -> bool {
    line.line.0.wrapping_sub(page) < len
}

/// The accesses that were seen to the lines on these pages that can come apart, without those of
/// threads that do not run any more. Bytes of other lines stay together.
pub fn seen(process: &Process, settled: &[&Verdict], page: u64, len: u64) -> Vec<Use> {
    let since = latest(process, GONE);
    let times = process.judge.thread_time();
    let gone = times.iter().filter(|t| t.last < since);
    let gone: BTreeSet<u32> = gone.map(|t| t.thread.0).collect();
    let lines = settled.iter().filter(|v| on(v, page, len));
    let apart = lines.filter(|v| can_come_apart(v));
    apart.flat_map(|v| uses(v, page, &gone)).collect()
}

/// The time that lies `before` the last event.
fn latest(process: &Process, before: Duration) -> Time {
    let last = process.judge.span_of_time().map_or(Time(0), |time| time.1);
    last.before(before)
}

/// Whether some thread has bytes between those of others. Then it matters whose the bytes are that were
/// not seen yet, which the elements of the object may tell: code that uses the thread's bytes needs no
/// guards if all of them move alike.
fn in_several_places(groups: &[Group]) -> bool {
    let mut met = HashSet::new();
    groups.iter().any(|group| !met.insert(&group.threads))
}

/// Whether there are bytes between two groups that no thread was seen to use. They may be either's, which
/// the elements of the object may tell: an instruction that uses bytes of both groups at once faults.
fn have_gaps(groups: &[Group]) -> bool {
    let mut pairs = groups.iter().zip(groups.iter().skip(1));
    pairs.any(|(one, next)| one.end() < next.offset && one.threads != next.threads)
}

/// Whether threads run that are in none of these groups. They may have elements of the object, too.
fn others_run(process: &Process, groups: &[Group]) -> bool {
    let since = latest(process, OFF_CPU_LIMIT);
    let known: HashSet<u32> = groups.iter().flat_map(|g| &g.threads).copied().collect();
    let times = process.judge.thread_time();
    let mut running = times.iter().filter(|t| t.samples > 0 && t.last >= since);
    running.any(|t| !known.contains(&t.thread.0))
}

/// The accesses of running threads to these objects, on any line.
fn beside(process: &Process, objects: &[Object]) -> Vec<(Address, WordUse)> {
    let since = latest(process, OFF_CPU_LIMIT);
    let spans = objects.iter().map(|o| o.span);
    let mut all: Vec<_> = spans
        .flat_map(|span| process.judge.used(span, since))
        .collect();
    all.sort_by_key(|(at, word)| (*at, word.size));
    all.dedup();
    all
}

/// The pages, with neighbouring pages on which the threads of the groups use the same objects.
fn around(
    groups: &[Group],
    objects: &[Object],
    beside: &[(Address, WordUse)],
    (page, len): (u64, u64),
) -> (u64, u64) {
    let (mut from, mut to) = (page, page + len);
    for span in objects.iter().map(|o| o.span) {
        let inside = |g: &&Group| Span::new(Address(page + g.offset), g.size).overlaps(span);
        for (at, word) in beside.iter().filter(|(at, _)| span.contains(*at)) {
            let users = used(word, 0).users();
            let mut owners = groups.iter().filter(inside);
            if owners.any(|group| users.is_subset(&group.threads)) {
                from = from.min(at.0 & !(PAGE - 1));
                to = to.max((at.0 + u64::from(word.size)).next_multiple_of(PAGE));
            }
        }
    }
    if to - from <= MOST_MOVED {
        (from, to - from)
    } else {
        (page, len)
    }
}

/// The accesses to the words of a line, at offsets from `page`. If threads share some bytes of the
/// line truly, rarely used words are left out: a few accesses do not tell whose a word is.
fn uses(verdict: &Verdict, page: u64, gone: &BTreeSet<u32>) -> Vec<Use> {
    let mut uses: BTreeMap<u64, Use> = BTreeMap::new();
    for word in &verdict.words {
        let offset = verdict.line.0 + u64::from(word.offset) - page;
        let here = uses.entry(offset).or_insert_with(|| Use {
            offset,
            ..Use::default()
        });
        let new = used(word, offset);
        here.size = here.size.max(new.size);
        let there = new.threads.into_iter().filter(|t| !gone.contains(&t.0));
        there.for_each(|(thread, count)| here.add(thread, count));
    }
    uses.retain(|_, used| !used.threads.is_empty());
    let mixed = verdict.sharing == Sharing::Mixed;
    let most = uses.values().map(Use::accesses).max().unwrap_or(0);
    let seen = |u: &Use| !mixed || u.accesses() >= SEEN.max(most / SELDOM);
    uses.into_values().filter(seen).collect()
}

/// The accesses to a word, at `offset`.
pub fn used(word: &WordUse, offset: u64) -> Use {
    let mut used = Use {
        offset,
        size: word.size.into(),
        ..Use::default()
    };
    for one in &word.threads {
        used.add(one.thread.0, count(one));
    }
    used
}

const fn count(one: &ThreadUse) -> Count {
    Count {
        reads: one.reads,
        writes: one.writes + one.updates,
        atomics: one.atomics,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(offset: u64, thread: u32, writes: u64) -> Use {
        let mut one = Use {
            offset,
            size: 4,
            ..Use::default()
        };
        let count = Count {
            writes,
            ..Count::default()
        };
        one.add(thread, count);
        one
    }

    /// The threads' records of 24 bytes follow each other, and of the first one nothing was seen behind its
    /// first 16 bytes: its end can't be told from what was seen.
    #[test]
    fn bytes_between_two_threads_groups_may_be_eithers() {
        let group = |offset, size, thread| Group {
            offset,
            size,
            threads: BTreeSet::from([thread]),
        };
        assert!(have_gaps(&[group(0, 16, 1), group(24, 24, 2)]));
        assert!(!have_gaps(&[group(0, 24, 1), group(24, 24, 2)]));
        assert!(
            !have_gaps(&[group(0, 8, 1), group(16, 8, 1)]),
            "both are one thread's"
        );
    }

    /// Two threads were seen on the page; two others only where their bytes had moved together.
    #[test]
    fn what_was_learned_of_bytes_that_stayed_together_counts_as_seen() {
        const PAGE: u64 = 0x5000_0000;
        let mut learned = Learned::default();
        learned.add([written(PAGE + 8, 3, 5), written(PAGE + 12, 4, 5)]);
        learned.add([written(PAGE + 8, 3, 2), written(PAGE + 4096, 9, 9)]);
        let seen = vec![written(0, 1, 50), written(8, 3, 1)];
        let all = learned.with(seen.clone(), PAGE, 4096);
        assert_eq!(
            all,
            [written(0, 1, 50), written(8, 3, 8), written(12, 4, 5)]
        );
        learned.forget(PAGE, 4096);
        assert_eq!(learned.with(seen.clone(), PAGE, 4096), seen);
        assert_eq!(
            learned.with(Vec::new(), PAGE + 4096, 4096),
            [written(0, 9, 9)]
        );
    }
}
