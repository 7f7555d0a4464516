//! What threads do with contended lines and with what lies around them, and how it is
//! taken apart. Called by the chooser at each look; decides nothing of whether, and moves
//! nothing.

use super::choose::{can_be_moved, can_come_apart};
use super::layout::have_room;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;
use sunder_access::{Address, LINE, PAGE, Span, Time};
use sunder_pipeline::Process;
use sunder_pipeline::name_line;
use sunder_plan::remap::{Count, Extent, Group, Grouping, Unmoved, Use, groups, widen};
use sunder_sharing::{Sharing, ThreadUse, Verdict, WordUse};
use sunder_wire::remap::{GROUPS, MOST_MOVED};

/// What was seen less often may as well be of other threads.
const SEEN: u64 = 4;
/// The same of what is used so many times less often than the line's busiest word.
const SELDOM: u64 = 32;
/// Who has not run for so long is in nobody's way beside contended lines.
const RUNS: Duration = Duration::from_millis(30);
/// The same of who contended, which is more than chance.
const GONE: Duration = Duration::from_millis(500);

/// An object: its bytes, and those of an element.
type Object = (Span, Option<u64>);

/// Objects on lines that were looked at, since naming takes time.
#[derive(Default)]
pub struct Objects(HashMap<u64, Vec<Object>>);

/// Pages, and what goes to lines of its own.
#[derive(Clone, Debug)]
pub struct Apart {
    /// The first page.
    pub page: u64,
    /// Bytes of all.
    pub len: u64,
    /// See there.
    pub grouping: Grouping,
}

impl Objects {
    /// Those on these lines, or the lines themselves where they are not known.
    fn on<'a>(
        &mut self,
        process: &mut Process,
        lines: impl Iterator<Item = &'a Verdict>,
    ) -> Vec<Object> {
        let mut all: Vec<Object> = Vec::new();
        for line in lines {
            let here = self.0.entry(line.line.0);
            let here = here.or_insert_with(|| objects_on(process, line));
            for one in here.iter() {
                if !all.iter().any(|known| known.0.overlaps(one.0)) {
                    all.push(*one);
                }
            }
        }
        all
    }
}

fn objects_on(process: &mut Process, line: &Verdict) -> Vec<Object> {
    let parts = name_line(process, line).parts;
    let known = parts.iter().filter_map(|part| {
        let span = part.name.span().filter(|span| span.len > 0)?;
        (span.len <= MOST_MOVED).then_some((span, part.name.element_size))
    });
    let known: Vec<Object> = known.collect();
    match known[..] {
        [] => vec![(Span::new(line.line, LINE), None)],
        _ => known,
    }
}

/// How the lines of `settled` on these pages are taken apart by `uses` of them, if that is
/// known, and by what was seen. Pages on which their objects go on are taken along if the
/// same threads use them there, and they are not among those that are `taken`.
///
/// # Errors
/// If moving would not help, or there are too many pieces.
pub fn take_apart(
    process: &mut Process,
    objects: &mut Objects,
    settled: &[&Verdict],
    (page, len): (u64, u64),
    uses: Option<&[Use]>,
    taken: &HashSet<u64>,
) -> Result<Apart, Unmoved> {
    let first = match uses {
        Some(uses) => groups(uses, GROUPS)?,
        None => groups(&seen(process, settled, page, len), GROUPS)?,
    };
    let lines = settled.iter().copied().filter(|v| on(v, page, len));
    let objects = objects.on(process, lines);
    let beside = beside(process, &objects);
    let wide = around(&first.groups, &objects, &beside, (page, len));
    let mut new = (0..wide.1 / PAGE).map(|n| wide.0 + n * PAGE);
    let grown = wide != (page, len)
        && uses.is_none()
        && !new.any(|page| taken.contains(&page))
        && can_be_moved(process, process.mappings(), wide.0, wide.1).is_ok();
    let (page, len) = if grown { wide } else { (page, len) };
    let mut all = match uses {
        Some(uses) => uses.to_vec(),
        None => seen(process, settled, page, len),
    };
    let mut found = if grown { groups(&all, GROUPS)? } else { first };
    let there = beside.iter().filter(|(at, _)| at.0 >= page);
    all.extend(there.map(|(at, word)| used(word, at.0 - page)));
    let extents: Vec<Extent> = objects.iter().map(|o| extent(o, page)).collect();
    let wide = widen(&found.groups, &all, &extents, len);
    if have_room(&wide) {
        found.groups = wide;
    }
    Ok(Apart {
        page,
        len,
        grouping: found,
    })
}

fn on(line: &Verdict, page: u64, len: u64) -> bool {
    line.line.0.wrapping_sub(page) < len
}

/// What was seen of the lines on these pages that can come apart. Bytes of others stay
/// together, and threads that do not run any more have none.
pub fn seen(process: &Process, settled: &[&Verdict], page: u64, len: u64) -> Vec<Use> {
    let since = latest(process, GONE);
    let times = process.judge.thread_time();
    let gone = times.iter().filter(|t| t.last < since);
    let gone: BTreeSet<u32> = gone.map(|t| t.thread.0).collect();
    let lines = settled.iter().filter(|v| on(v, page, len));
    let apart = lines.filter(|v| can_come_apart(v));
    apart.flat_map(|v| uses(v, page, &gone)).collect()
}

/// So long before the last thing that was seen.
fn latest(process: &Process, before: Duration) -> Time {
    let last = process.judge.span_of_time().map_or(Time(0), |time| time.1);
    last.before(before)
}

const fn extent(&(span, element): &Object, page: u64) -> Extent {
    Extent {
        start: span.start.0.wrapping_sub(page) as i64,
        size: span.len,
        element,
    }
}

/// What running threads were seen to use of these objects, on whatever line.
fn beside(process: &Process, objects: &[Object]) -> Vec<(Address, WordUse)> {
    let since = latest(process, RUNS);
    let spans = objects.iter().map(|o| o.0);
    let mut all: Vec<_> = spans
        .flat_map(|span| process.judge.used(span, since))
        .collect();
    all.sort_by_key(|(at, word)| (*at, word.size));
    all.dedup();
    all
}

/// The pages, and those beside them on which threads of groups use the same objects.
fn around(
    groups: &[Group],
    objects: &[Object],
    beside: &[(Address, WordUse)],
    (page, len): (u64, u64),
) -> (u64, u64) {
    let (mut from, mut to) = (page, page + len);
    for (span, _) in objects {
        let inside = |g: &&Group| Span::new(Address(page + g.offset), g.size).overlaps(*span);
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

/// What is known of the words of a line, at offsets from `page`. Where several threads
/// share some of the bytes, a word that was hardly ever seen says nothing of whose it is.
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

/// A word's use, at this offset.
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
