//! Which pages are moved, from what the judge says of their lines; and which are
//! left alone, with the reason.

use super::gauge::Bytes;
use super::known::Known;
use crate::naming::{name_line, show_object};
use crate::process::Process;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use sunder_access::{Address, Mappings, ThreadId, Time};
use sunder_findings::Unrepaired;
use sunder_plan::remap::{self, Group, Use};
use sunder_sharing::{Confidence, Sharing, Verdict};
use sunder_wire::remap::{GROUPS, MOST_MOVED};

pub const PAGE: u64 = 4096;

/// What costs less is not worth the faults.
const WORTH_MOVING: f64 = 0.04;
/// A line that was not touched for so long is no longer contended, in ns.
const RECENT: u64 = 200_000_000;

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

/// What the looks at a program have led to.
#[derive(Default)]
pub struct Chooser {
    /// Pages that are done with.
    done: HashSet<u64>,
    /// What there is to be moved.
    pending: Option<Pending>,
    /// What a saved result says.
    pub known: Known,
}

/// Lines that were confirmed and are about to be moved.
struct Pending {
    since: Time,
    /// Who had used them by then.
    mark: Mark,
}

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

/// How long more lines are waited for when the first is confirmed, in ns.
const GATHERING: u64 = 30_000_000;
/// How long for its threads to be measured, in ns.
const MEASURED: u64 = 120_000_000;
/// Where contention has not been seen again for so long it is over, in ns.
const OVER: u64 = 300_000_000;

/// How much each thread had used each line by some moment: who contends since then is
/// who has used it more (Plastic's verification, section 4.5).
pub struct Mark(BTreeMap<(u64, u32), f64>);

impl Mark {
    fn of<'a>(lines: impl Iterator<Item = &'a Verdict>) -> Self {
        let all = lines.flat_map(|v| {
            let threads = v.threads.iter();
            threads.map(|t| ((v.line.0, t.thread.0), t.touched_ns))
        });
        Self(all.collect())
    }

    /// Before anybody used anything.
    #[cfg(test)]
    pub const fn nothing() -> Self {
        Self(BTreeMap::new())
    }

    /// Of some pages of `process`.
    pub fn of_pages(process: &mut Process, page: u64, len: u64) -> Self {
        let verdicts = process.judge.verdicts();
        Self::of(on_pages(&verdicts, page, len))
    }

    /// Whether two threads have used the line since.
    fn is_contended(&self, line: &Verdict) -> bool {
        let more = line.threads.iter().filter(|t| {
            let before = self.0.get(&(line.line.0, t.thread.0));
            t.touched_ns > before.copied().unwrap_or(0.0)
        });
        more.count() >= 2
    }
}

fn on_pages(verdicts: &[Verdict], page: u64, len: u64) -> impl Iterator<Item = &Verdict> {
    let falsely = |v: &&Verdict| v.owner.is_none() && v.sharing == Sharing::False;
    let on = move |v: &&Verdict| v.line.0.wrapping_sub(page) < len;
    verdicts.iter().filter(falsely).filter(on)
}

/// The bytes of these pages that threads write on lines for which they have contended
/// since `mark`; none if they have not.
pub fn contended(process: &mut Process, page: u64, len: u64, mark: &Mark) -> Vec<Bytes> {
    let verdicts = process.judge.verdicts();
    let lines = on_pages(&verdicts, page, len).filter(|v| mark.is_contended(v));
    lines.flat_map(written).collect()
}

/// The bytes of a line that only one thread was seen to use, and to write.
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
        let verdicts = process.judge.verdicts();
        let open = |v: &&Verdict| {
            v.owner.is_none()
                && now.since(v.last) < RECENT
                && !self.done.contains(&(v.line.0 & !(PAGE - 1)))
        };
        let recognised = recognised(&mut self.known, process, verdicts.iter().filter(open));
        let settled = |v: &&Verdict| {
            v.confirmed
                || unwatched && v.confidence() >= Confidence::Sampled
                || recognised.contains_key(&v.line.0)
        };
        let settled: Vec<&Verdict> = verdicts.iter().filter(open).filter(settled).collect();
        let dear = |v: &&&Verdict| v.cost_share >= WORTH_MOVING;
        let saved = |v: &&&Verdict| recognised.contains_key(&v.line.0);
        let first = settled.iter().filter(saved).find(dear);
        let Some(&first) = first.or_else(|| settled.iter().find(dear)) else {
            self.pending = None;
            return Look::Nothing;
        };
        let object_of_first = recognised.get(&first.line.0).copied();
        // Of what is known no more lines are waited for.
        let gathering = if object_of_first.is_some() {
            0
        } else {
            GATHERING
        };
        let pending = self.pending.get_or_insert_with(|| Pending {
            since: now,
            mark: Mark::of(settled.iter().copied()),
        });
        let waited = now.since(pending.since);
        let falsely = first.sharing == Sharing::False;
        let contended = !falsely || pending.mark.is_contended(first);
        let measured = measured || !falsely || waited >= MEASURED;
        if waited < gathering || !contended && waited < OVER || !measured {
            let lines = settled.iter().filter(|v| v.sharing == Sharing::False);
            return Look::Gathering(lines.copied().flat_map(written).collect());
        }
        self.pending = None;
        if !contended {
            return Look::Nothing;
        }
        let of_object = object_of_first.and_then(|object| pages_of(self.known.span(object)?));
        let pages = of_object.unwrap_or_else(|| around(first.line.0, settled.iter().copied()));
        let all = pages.1 / PAGE;
        self.done.extend((0..all).map(|n| pages.0 + n * PAGE));
        let lines: Vec<&Verdict> = settled
            .into_iter()
            .filter(|v| v.line.0.wrapping_sub(pages.0) < pages.1)
            .collect();
        let object = called(process, first);
        // Bytes of other lines stay together.
        let falsely = lines.iter().filter(|v| v.sharing == Sharing::False);
        let seen: Vec<Use> = falsely.flat_map(|v| uses(v, pages.0)).collect();
        let saved = object_of_first.filter(|_| of_object.is_some());
        let saved = saved.and_then(|o| self.known.uses(o, pages.0, &seen));
        let proposal = saved
            .and_then(|uses| propose(process, first, &uses, pages, object.clone()).ok())
            .map_or_else(|| propose(process, first, &seen, pages, object.clone()), Ok);
        match proposal {
            Ok(proposal) => Look::Move(proposal),
            Err(reason) => Look::Leave(Unrepaired {
                object,
                address: format!("{:#x}", first.line.0),
                reason,
            }),
        }
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
    let dear = lines.filter(|v| v.sharing == Sharing::False && v.cost_share >= WORTH_MOVING);
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
    uses: &[Use],
    (page, len): (u64, u64),
    object: String,
) -> Result<Proposal, String> {
    match first.sharing {
        Sharing::False => {}
        Sharing::True => return Err("its threads share the very bytes".into()),
        Sharing::Mixed => return Err("its threads share some of the bytes truly".into()),
    }
    can_be_moved(process, process.mappings(), page, len)?;
    let groups = remap::groups(uses, GROUPS).map_err(|why| why.why().to_owned())?;
    Ok(Proposal {
        page,
        len,
        groups,
        object,
        cost_share: first.cost_share,
        threads: first.threads.iter().map(|t| t.thread).collect(),
        code: first.sites.first().map_or(0, |s| s.instruction.0),
    })
}

fn uses(verdict: &Verdict, page: u64) -> Vec<Use> {
    let mut uses: BTreeMap<u64, Use> = BTreeMap::new();
    for word in &verdict.words {
        let offset = verdict.line.0 + u64::from(word.offset) - page;
        let used = uses.entry(offset).or_insert_with(|| Use {
            offset,
            size: 0,
            threads: BTreeSet::new(),
            written: false,
        });
        used.size = used.size.max(word.size.into());
        for one in &word.threads {
            used.threads.insert(one.thread.0);
            used.written |= one.writes + one.updates > 0;
        }
    }
    uses.into_values().collect()
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
    if process.stops_to_move {
        return Ok(());
    }
    let Some(heap) = process.heap() else {
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
