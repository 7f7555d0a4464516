//! Which pages are moved, from what the judge says of their lines; and which are
//! left alone, with the reason.

use super::gauge::Bytes;
use super::known::Known;
use super::mark::Mark;
use super::pattern::{Apart, Objects, seen, take_apart};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;
use sunder_access::{Address, Mappings, PAGE, ThreadId, Time};
use sunder_findings::Unrepaired;
use sunder_pipeline::Process;
use sunder_pipeline::{name_line, show_object};
use sunder_plan::remap::Group;
use sunder_sharing::{Confidence, Sharing, Verdict};
use sunder_wire::remap::MOST_MOVED;

/// What costs less is not worth the faults.
const WORTH_MOVING: f64 = 0.04;
/// A line that was not touched for so long is no longer contended.
const RECENT: Duration = Duration::from_millis(200);

/// Pages that could be moved.
pub struct Proposal {
    /// The first page.
    pub page: u64,
    /// Bytes of all.
    pub len: u64,
    /// What goes to lines of its own.
    pub groups: Vec<Group>,
    /// The object on them.
    pub object: String,
    /// The share of its threads' time that the sharing costs at most.
    pub cost_share: f64,
    /// Threads that use it, the busiest first.
    pub threads: Vec<ThreadId>,
    /// The busiest instruction.
    pub code: u64,
}

impl Proposal {
    /// Where its groups lie.
    fn layout(&self) -> Layout {
        let groups = self.groups.iter();
        groups
            .map(|g| (self.page + g.offset, self.page + g.end()))
            .collect()
    }

    /// Whether an address lies on its pages.
    pub fn holds(&self, address: Address) -> bool {
        address.0.wrapping_sub(self.page) < self.len
    }
}

/// What the looks at a program have led to.
#[derive(Default)]
pub struct Chooser {
    /// Pages that are done with.
    done: HashSet<u64>,
    /// Pages that are left alone as long as their lines are shared as they are.
    told: HashSet<u64>,
    /// What there is to be moved.
    pending: Option<Pending>,
    /// What a saved result says.
    pub known: Known,
    objects: Objects,
    /// Pages whose bytes went back.
    back: Vec<Back>,
    /// Layouts that were moved.
    tried: Vec<Layout>,
}

/// Pages whose bytes went back, for which another layout may be found.
struct Back {
    page: u64,
    len: u64,
    /// When they are looked at next, and when not any more.
    next: Time,
    until: Time,
}

impl Back {
    const fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.page) < self.len
    }
}

/// Lines that were confirmed and are about to be moved.
struct Pending {
    since: Time,
    /// Who had used them by then.
    mark: Mark,
    /// How they would be taken apart, and since when that is so.
    layout: (Layout, Time),
}

/// First and last address of each group.
type Layout = Vec<(u64, u64)>;

/// What came of a look.
pub enum Look {
    /// There is nothing to be done.
    Nothing,
    /// These bytes may be about to be moved, once more is known of them.
    Gathering(Vec<Bytes>),
    /// To be moved.
    Move(Proposal),
    /// To be left alone.
    Leave(Unrepaired),
}

/// How long more lines are waited for when the first is confirmed.
const GATHERING: Duration = Duration::from_millis(30);
/// How long what is known of them must have led to the same groups: elements that
/// were not seen yet are met one after the other.
const STEADY: Duration = Duration::from_millis(15);
/// They are moved as they are known by then.
const LONGEST: Duration = Duration::from_millis(150);
/// The same where a layout was tried before: what was missing then may come seldom.
const STEADIER: Duration = Duration::from_millis(60);
/// How long another layout is looked for when bytes went back, and how often.
const RETHINK: Duration = Duration::from_secs(1);
/// See [`RETHINK`].
const RETHINK_EVERY: Duration = Duration::from_millis(40);
/// So many layouts of bytes are tried.
const LAYOUTS: usize = 3;
/// How long for its threads to be measured.
const MEASURED: Duration = Duration::from_millis(120);
/// Where contention has not been seen again for so long it is over.
const OVER: Duration = Duration::from_millis(300);

/// The lines of these pages that can come apart.
pub fn on_pages(verdicts: &[Verdict], page: u64, len: u64) -> impl Iterator<Item = &Verdict> {
    let apart = |v: &&Verdict| v.owner.is_none() && can_come_apart(v);
    let on = move |v: &&Verdict| v.line.0.wrapping_sub(page) < len;
    verdicts.iter().filter(apart).filter(on)
}

/// Whether threads use different bytes of it, be it beside common ones.
pub fn can_come_apart(line: &Verdict) -> bool {
    line.sharing != Sharing::True
}

/// What its false part costs, as a share of its threads' time.
fn false_cost(line: &Verdict) -> f64 {
    if can_come_apart(line) {
        line.cost_share * line.false_share
    } else {
        0.0
    }
}

/// The threads that use lines of these pages for which they have contended since `mark`,
/// with the bytes that only they write; none if they have not contended, or for what these
/// groups do not take apart.
pub fn contended(process: &mut Process, proposal: &Proposal, mark: &Mark) -> Vec<Bytes> {
    let (page, groups) = (proposal.page, &proposal.groups);
    let verdicts = process.judge.verdicts();
    let lines = on_pages(&verdicts, page, proposal.len);
    let lines = lines.filter(|v| mark.is_contended(v) && mark.comes_apart(v, page, groups));
    lines.flat_map(measurable).collect()
}

/// What the threads of a line can be measured by: the bytes that only one was seen to
/// use, and to write; no bytes for those who have none.
fn measurable(line: &Verdict) -> Vec<Bytes> {
    let mut all: Vec<Bytes> = written(line).collect();
    for one in &line.threads {
        if !all.iter().any(|bytes| bytes.thread == one.thread) {
            all.push(Bytes {
                thread: one.thread,
                original: line.line.0,
                at: line.line.0,
                len: 0,
            });
        }
    }
    all
}

fn written(line: &Verdict) -> impl Iterator<Item = Bytes> {
    let own = line
        .words
        .iter()
        .filter_map(|word| match &word.threads[..] {
            [only] if only.writes + only.updates > 0 => Some((word, only.thread)),
            _ => None,
        });
    own.map(|(word, thread)| {
        let at = line.line.0 + u64::from(word.offset);
        Bytes {
            thread,
            original: at,
            at,
            len: word.size.into(),
        }
    })
}

impl Chooser {
    /// Looks at the lines of `process` at `now`. `unwatched` says that bursts can't
    /// confirm anything here, `measured` that the threads of what was gathered have
    /// been measured, or can't be.
    pub fn look(
        &mut self,
        process: &mut Process,
        now: Time,
        unwatched: bool,
        measured: bool,
    ) -> Look {
        self.give_up_old(now);
        let verdicts = process.judge.verdicts();
        let rests = |line: u64| self.back.iter().any(|b| b.holds(line) && now < b.next);
        let open = |v: &&Verdict| {
            v.owner.is_none()
                && now.since(v.last) < RECENT
                && !self.done.contains(&(v.line.0 & !(PAGE - 1)))
                && !rests(v.line.0)
        };
        let recognised = recognised(&mut self.known, process, verdicts.iter().filter(open));
        let settled = |v: &&Verdict| {
            v.confirmed
                || unwatched && v.confidence() >= Confidence::Sampled
                || recognised.contains_key(&v.line.0)
        };
        let settled: Vec<&Verdict> = verdicts.iter().filter(open).filter(settled).collect();
        let dear = |v: &&&Verdict| false_cost(v) >= WORTH_MOVING;
        let saved = |v: &&&Verdict| recognised.contains_key(&v.line.0);
        let first = settled.iter().filter(saved).find(dear);
        let first = first.or_else(|| settled.iter().find(dear));
        // What can't be helped is told, once.
        let told = |v: &&&Verdict| {
            v.cost_share >= WORTH_MOVING && !self.told.contains(&(v.line.0 & !(PAGE - 1)))
        };
        let Some(&first) = first.or_else(|| settled.iter().find(told)) else {
            self.pending = None;
            return Look::Nothing;
        };
        let saved = recognised.get(&first.line.0).copied();
        let worth = false_cost(first) >= WORTH_MOVING;
        let proposal = self.plan(process, first, &settled, saved);
        let is_known = saved.is_some();
        if let Some(look) = self.wait(first, &settled, &proposal, now, measured, is_known) {
            return look;
        }
        let line = first.line.0;
        let pages = proposal.as_ref().map_or_else(
            |_| around(line, settled.iter().copied()),
            |proposal| (proposal.page, proposal.len),
        );
        let all = (0..pages.1 / PAGE).map(|n| pages.0 + n * PAGE);
        if worth {
            self.done.extend(all);
        } else {
            self.told.extend(all);
        }
        match proposal {
            Ok(proposal) => {
                self.tried.push(proposal.layout());
                Look::Move(Proposal {
                    object: called(process, first),
                    ..proposal
                })
            }
            Err(reason) => Look::Leave(Unrepaired {
                object: called(process, first),
                address: Some(Address(line)),
                reason,
            }),
        }
    }

    /// What is to be said as long as the time for what was planned has not come; none if
    /// it has. `is_known` says that it is as a saved result has it.
    fn wait(
        &mut self,
        first: &Verdict,
        settled: &[&Verdict],
        planned: &Result<Proposal, String>,
        now: Time,
        measured: bool,
        is_known: bool,
    ) -> Option<Look> {
        let layout = planned.as_ref().map(Proposal::layout).unwrap_or_default();
        let back = self.back.iter_mut().filter(|b| b.holds(first.line.0));
        let back: Vec<&mut Back> = back.collect();
        let enough = if back.is_empty() { STEADY } else { STEADIER };
        if self.tried.contains(&layout) || !back.is_empty() && planned.is_err() {
            for one in back {
                one.next = now.after(RETHINK_EVERY);
            }
            self.pending = None;
            return Some(Look::Nothing);
        }
        let pending = self.pending.get_or_insert_with(|| Pending {
            since: now,
            mark: Mark::of(settled.iter().copied()),
            layout: (layout.clone(), now),
        });
        if pending.layout.0 != layout {
            pending.layout = (layout, now);
        }
        let waited = now.since(pending.since);
        let worth = false_cost(first) >= WORTH_MOVING;
        // Of what is known no more lines are waited for.
        let gathered = is_known || waited >= GATHERING;
        let steady = now.since(pending.layout.1) >= enough || waited >= LONGEST;
        let steady = !worth || is_known || steady;
        let contended = !worth || pending.mark.is_contended(first);
        let measured = measured || !worth || waited >= MEASURED;
        if !gathered || !contended && waited < OVER || !measured || !steady {
            let lines = settled.iter().filter(|v| can_come_apart(v));
            let bytes = lines.copied().flat_map(measurable);
            return Some(Look::Gathering(bytes.collect()));
        }
        self.pending = None;
        (!contended).then_some(Look::Nothing)
    }

    /// What was moved of these pages is back: another layout may do better, if more is
    /// known by now.
    pub fn went_back(&mut self, page: u64, len: u64, now: Time) {
        let on = |&&(from, _): &&(u64, u64)| from.wrapping_sub(page) < len;
        let of_these = |layout: &&Layout| layout.iter().any(|group| on(&group));
        if self.tried.iter().filter(of_these).count() >= LAYOUTS {
            return;
        }
        self.open(page, len);
        self.back.push(Back {
            page,
            len,
            next: now.after(RETHINK_EVERY),
            until: now.after(RETHINK),
        });
    }

    /// The same bytes are moved again as they were.
    pub fn goes_again(&mut self, page: u64, len: u64) {
        self.back.retain(|b| b.page != page);
        self.done.extend((0..len / PAGE).map(|n| page + n * PAGE));
    }

    fn open(&mut self, page: u64, len: u64) {
        self.back.retain(|b| b.page != page);
        self.done.retain(|at| at.wrapping_sub(page) >= len);
    }

    /// Pages for which no other layout was found in time are done with.
    fn give_up_old(&mut self, now: Time) {
        let over = self.back.extract_if(.., |b| b.until <= now);
        for old in over {
            let pages = (0..old.len / PAGE).map(|n| old.page + n * PAGE);
            self.done.extend(pages);
        }
    }

    /// What would be moved now, yet without a name, of the pages around `first`; `saved` is the object of a
    /// saved result that it belongs to.
    fn plan(
        &mut self,
        process: &mut Process,
        first: &Verdict,
        settled: &[&Verdict],
        saved: Option<(usize, u64)>,
    ) -> Result<Proposal, String> {
        let of_object = saved.and_then(|object| pages_of(self.known.span(object)?));
        let pages = of_object.unwrap_or_else(|| around(first.line.0, settled.iter().copied()));
        let uses = saved.filter(|_| of_object.is_some()).and_then(|object| {
            let seen = seen(process, settled, pages.0, pages.1);
            self.known.uses(object, pages.0, &seen)
        });
        let mut plan = |uses: Option<&[_]>| {
            let apart = take_apart(process, &mut self.objects, settled, pages, uses, &self.done);
            let apart = apart.map_err(|why| why.why().to_owned());
            propose(process, first, pages, apart)
        };
        let by_result = uses.and_then(|uses| plan(Some(&uses)).ok());
        by_result.map_or_else(|| plan(None), Ok)
    }
}

/// Start and bytes of the run of pages around `line` that have settled lines.
fn around<'a>(line: u64, lines: impl Iterator<Item = &'a Verdict>) -> (u64, u64) {
    let pages: BTreeSet<u64> = lines.map(|v| v.line.0 & !(PAGE - 1)).collect();
    let mut start = line & !(PAGE - 1);
    let mut end = start + PAGE;
    while start >= PAGE && pages.contains(&(start - PAGE)) && end - start < MOST_MOVED {
        start -= PAGE;
    }
    while pages.contains(&end) && end - start < MOST_MOVED {
        end += PAGE;
    }
    (start, end - start)
}

/// Start and bytes of the pages that hold this; none if they are too many.
fn pages_of((start, end): (u64, u64)) -> Option<(u64, u64)> {
    let page = start & !(PAGE - 1);
    let len = end.checked_sub(page)?.next_multiple_of(PAGE);
    (len <= MOST_MOVED).then_some((page, len))
}

/// Lines that cost enough and hold an object of the saved result: which, and where it
/// begins.
fn recognised<'a>(
    known: &mut Known,
    process: &mut Process,
    lines: impl Iterator<Item = &'a Verdict>,
) -> HashMap<u64, (usize, u64)> {
    if known.is_empty() {
        return HashMap::new();
    }
    let dear = lines.filter(|v| false_cost(v) >= WORTH_MOVING);
    dear.filter_map(|v| Some((v.line.0, known.on(process, v)?)))
        .collect()
}

fn called(process: &mut Process, verdict: &Verdict) -> String {
    let named = name_line(process, verdict);
    let part = named.parts.first().map(|part| part.name.clone());
    part.map_or_else(
        || format!("memory at {:#x}", verdict.line.0),
        |name| show_object(process, &name, None).short_name().to_owned(),
    )
}

fn propose(
    process: &Process,
    first: &Verdict,
    (page, len): (u64, u64),
    apart: Result<Apart, String>,
) -> Result<Proposal, String> {
    if !can_come_apart(first) {
        return Err("its threads share the very bytes".into());
    }
    can_be_moved(process, process.mappings(), page, len)?;
    let Apart {
        page,
        len,
        grouping,
    } = apart?;
    // The judge saw the order of accesses, but takes every variable for itself; groups
    // hold several.
    let worth = first.cost_share * first.false_share.min(grouping.apart);
    if worth < WORTH_MOVING {
        return Err(format!(
            "its threads share most of the bytes truly: the rest costs up to {:.0} % of their time",
            worth * 100.0
        ));
    }
    Ok(Proposal {
        page,
        len,
        groups: grouping.groups,
        object: String::new(),
        cost_share: first.cost_share,
        threads: first.threads.iter().map(|t| t.thread).collect(),
        code: first.sites.first().map_or(0, |s| s.instruction.0),
    })
}

/// Whether pages may be moved at all.
///
/// # Errors
/// Says why not.
pub fn can_be_moved(
    process: &Process,
    mappings: &Mappings,
    page: u64,
    len: u64,
) -> Result<(), String> {
    fits(mappings, page, len)?;
    let mapping = mappings.at(Address(page));
    if mapping.is_some_and(|m| process.makes_stacks_in(m)) {
        // A fault on the stack that its thread is on is the program's end.
        return Err("the program keeps stacks there that it made itself".into());
    }
    no_thread_lives_on(process, page, len)
}

/// The pages are private memory that the program may read and write, and nothing
/// else.
fn fits(mappings: &Mappings, page: u64, len: u64) -> Result<(), String> {
    let mapping = mappings.at(Address(page));
    let mapping = mapping.ok_or("its mapping is not known")?;
    let program = mappings
        .iter()
        // Code of ours may lie below it.
        .find(|m| m.is_file() && !m.path.starts_with("/memfd:sunder-"))
        .map_or("", |m| m.path.as_str());
    if mapping.span.end().0 < page + len {
        return Err("it lies on two mappings".into());
    }
    if mapping.shared {
        return Err("its memory may be shared with other processes".into());
    }
    if !mapping.read || !mapping.write || mapping.execute {
        return Err("its memory is not plain data".into());
    }
    match mapping.path.as_str() {
        "[heap]" => {}
        "[stack]" => return Err("it lies on a stack".into()),
        path if path.is_empty() || path.starts_with("[anon") => {
            // What a library's file does not fill lies right behind it.
            let before = |end: u64| mappings.iter().find(|m| m.span.end().0 == end);
            let mut start = mapping.span.start.0;
            while let Some(previous) = before(start) {
                if previous.is_file() && previous.path != program {
                    return Err("it belongs to a library".into());
                }
                if previous.is_file() || !previous.path.is_empty() {
                    break;
                }
                start = previous.span.start.0;
            }
        }
        path if path == program => {}
        // A library can be unloaded without the C library's knowing.
        _ => return Err("it belongs to a library".into()),
    }
    Ok(())
}

/// No thread has its stack or its own variables there: they are used with all
/// signals blocked.
fn no_thread_lives_on(process: &Process, page: u64, len: u64) -> Result<(), String> {
    let Some(heap) = process.heap() else {
        if process.stops_to_move {
            return Ok(());
        }
        return Err("nothing is known of the program's threads".into());
    };
    let threads = heap.segment.threads();
    // The stack of a thread that has ended will be another's.
    for thread in &threads {
        let start = thread.stack.start.0;
        // The thread's descriptor lies above its variables.
        let end = thread.stack.end().0.max(thread.fs_base.0 + PAGE);
        if start < page + len && page < end {
            return Err("it lies on a thread's stack".into());
        }
        let own = thread.fs_base.0;
        if own.wrapping_add(PAGE) > page && own < page + len + (64 << 10) {
            return Err("it lies beside a thread's own variables".into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::tests::writable;
    use sunder_access::ProcessId;

    const HERE: u64 = 0x5000_0000;

    /// A fault on the stack that a thread is on ends the program, and a program that makes
    /// stacks for itself has others beside the one that was seen.
    #[test]
    fn memory_in_which_a_program_makes_stacks_is_left_alone() {
        let heap = writable(HERE, HERE + 0x10_0000, "[heap]");
        let elsewhere = writable(HERE + 0x20_0000, HERE + 0x30_0000, "");
        let own = writable(0x7ffd_0000_0000, 0x7ffd_0002_0000, "[stack]");
        let mappings: Mappings = [heap, elsewhere, own].into_iter().collect();
        let mut process = Process::recorded(ProcessId(1), sunder_sharing::Config::default());
        process.stops_to_move = true;
        let moved = |process: &Process, page| can_be_moved(process, &mappings, page, PAGE);
        process.threads.sampled(ThreadId(1), 0x7ffd_0001_0000);
        assert_eq!(
            moved(&process, HERE),
            Ok(()),
            "the first thread's own is another"
        );
        process.threads.sampled(ThreadId(1), HERE + 0x8_0ff8);
        process.threads.sampled(ThreadId(1), 0x7ffd_0001_0000);
        assert!(
            moved(&process, HERE).is_err(),
            "also when it is back on its own"
        );
        assert!(moved(&process, HERE + 0xf_f000).is_err());
        assert_eq!(moved(&process, HERE + 0x20_0000), Ok(()));
    }

    /// Another layout is looked for a while, and not again and again.
    #[test]
    fn pages_whose_bytes_went_back_are_open_for_a_while_and_for_few_layouts() {
        let mut chooser = Chooser::default();
        let is_open = |chooser: &Chooser| !chooser.done.contains(&HERE);
        chooser.goes_again(HERE, 2 * PAGE);
        for n in 0..LAYOUTS as u64 {
            assert!(!is_open(&chooser));
            chooser.tried.push(vec![(HERE + PAGE, HERE + PAGE + 8 * n)]);
            chooser.went_back(HERE, 2 * PAGE, Time(0));
            assert_eq!(is_open(&chooser), n + 1 < LAYOUTS as u64, "{n}");
            // Moved as it was, or nothing else found: done with.
            match n % 2 {
                0 => chooser.goes_again(HERE, 2 * PAGE),
                _ => chooser.give_up_old(Time(0).after(RETHINK)),
            }
            assert!(chooser.back.is_empty());
        }
        // Those of other pages do not count.
        chooser.went_back(HERE + 4 * PAGE, PAGE, Time(0));
        assert_eq!(chooser.back.len(), 1);
        chooser.give_up_old(Time(0).after(RETHINK - Duration::from_nanos(1)));
        assert_eq!(chooser.back.len(), 1);
    }
}
