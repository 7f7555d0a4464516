//! Chooses which pages have their bytes moved, from the judge's verdicts on lines, and gives the
//! reason for lines that are left alone. Called by `repairer` at each look. It must not move anything
//! itself.

mod left;

pub use left::LeftByPlan;

use super::beside::Beside;
use super::decisions::Decisions;
use super::elements::Objects;
use super::known::Known;
use super::lines::{can_come_apart, false_cost};
use super::mark::Mark;
use super::movable::can_be_moved;
use super::pattern::{Apart, Learned, seen, take_apart};
use super::proposal::{Layout, Proposal};
use super::sampled::Sampled;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use sunder_access::{Address, CodeAddress, LINE, Mapping, Mappings, PAGE, Span, Time};
use sunder_findings::Unrepaired;
use sunder_gain::before::Measured;
use sunder_gain::gauge::{Bytes, measurable};
use sunder_objects::is_c_library;
use sunder_observe::{machine, proc};
use sunder_pipeline::Process;
use sunder_pipeline::{objects_on_line, show_object};
use sunder_sharing::{Confidence, PageRuns, Verdict};
use sunder_wire::remap::MOST_MOVED;

/// The least cost, as a share of the threads' time, that is worth the faults of a move.
const WORTH_MOVING: f64 = 0.04;
/// A line that was not touched for this long is no longer contended.
const RECENT: Duration = Duration::from_millis(200);

/// What earlier looks at the program have led to.
#[derive(Default)]
pub struct Chooser {
    /// What was decided about pages.
    pub decisions: Decisions,
    /// The lines that may be moved next.
    pending: Option<Pending>,
    /// The objects of a saved result.
    pub known: Known,
    /// Objects that a saved result says not to move.
    pub left: LeftByPlan,
    objects: Objects,
    /// If not all lines may be moved, those that may.
    pub only: Option<Vec<Span>>,
    /// What was seen of bytes that had stayed together.
    pub learned: Learned,
    /// Another remedy that may come first.
    pub beside: Beside,
    sampled: Sampled,
}

/// Confirmed lines that are about to be moved.
struct Pending {
    since: Time,
    /// Looks since then.
    looks: u32,
    /// What threads had used of them by then.
    mark: Mark,
    /// The layout that they would get, and since when it is the same.
    layout: (Layout, Time),
}

/// What is to be done about the first of the gathered lines.
struct Planned<'a> {
    proposal: &'a Result<Proposal, String>,
    /// Whether the lines around it cost enough.
    worth: bool,
    /// Whether they cost so much that a large gain is expected.
    is_large: bool,
    /// Whether the layout comes from a saved result.
    is_known: bool,
    /// Whether debug information that is being read may change it.
    may_change: bool,
}

/// What a look leads to.
pub enum Look {
    /// Nothing is to be done.
    Nothing,
    /// Bytes that may be moved once more is known of them.
    Gathering(Vec<Bytes>),
    /// Bytes that are to be moved.
    Move(Proposal),
    /// An object that is left alone.
    Leave(Unrepaired),
}

/// How long we wait for further lines after the first one is confirmed.
const GATHERING: Duration = Duration::from_millis(30);
/// How often we look for them once it is confirmed.
const LOOKS: u32 = 2;
/// How long the layout must have stayed the same: elements of an object are seen one after the
/// other.
const STEADY: Duration = Duration::from_millis(15);
/// After this long the lines are moved with the layout known by then.
const LONGEST: Duration = Duration::from_millis(150);
/// As [`STEADY`], where another layout was tried before: what it missed may be used rarely.
const STEADIER: Duration = Duration::from_millis(60);
/// How long we wait for the threads to be measured.
const MEASURED: Duration = Duration::from_millis(120);
/// The same for an object of a saved result: what was read until then mostly counts progress, too.
const KNOWN_MEASURED: Duration = Duration::from_millis(30);
/// Threads that lose so much of their time are twice as fast without.
const LARGE: f64 = 0.5;
/// Contention that was not seen again for this long is over.
const OVER: Duration = Duration::from_millis(300);

impl Chooser {
    /// Looks at the lines of `process` at `now`. `unwatched` says that watchpoints can't confirm
    /// anything on this machine; `measured` how well the threads that use the gathered lines were
    /// measured.
    pub fn look(
        &mut self,
        process: &mut Process,
        now: Time,
        unwatched: bool,
        measured: Measured,
    ) -> Look {
        self.decisions.give_up_old(now);
        let mut verdicts = process.judge.verdicts();
        // What is moved is measured, and put back if it does not help.
        verdicts.iter_mut().for_each(Verdict::believe_samples);
        let runs = PageRuns::of(verdicts.iter(), MOST_MOVED);
        let open = |v: &&Verdict| {
            v.owner.is_none()
                && is_among(self.only.as_deref(), v.line)
                && now.since(runs.last(v)) < RECENT
                && self.decisions.is_open(v.line, now)
        };
        let sampled = verdicts.iter().filter(open).filter(|v| {
            v.confidence() >= Confidence::Sampled && runs.false_cost(v) >= WORTH_MOVING
        });
        let sampled: Vec<&Verdict> = sampled.collect();
        self.sampled.look(sampled.iter().map(|v| v.line), now);
        let has_saved = !self.known.is_empty() || !self.left.is_empty();
        let dear = |v: &&Verdict| runs.false_cost(v) >= WORTH_MOVING;
        for line in verdicts.iter().filter(open).filter(dear) {
            if has_saved || line.confidence() >= Confidence::Sampled {
                self.objects.foresee(process, line);
            }
        }
        if has_saved && process.names.is_reading_ahead() {
            // It is known soon what the saved result says of these lines.
            return suspected(&sampled);
        }
        let left: BTreeSet<u64> = (sampled.iter())
            .filter(|v| self.left.object(process, v).is_some())
            .map(|v| v.line.0)
            .collect();
        let recognised = recognised(&mut self.known, process, verdicts.iter().filter(open));
        let settled = |v: &&Verdict| {
            v.confirmed
                || unwatched && v.confidence() >= Confidence::Sampled
                || self
                    .sampled
                    .is_believed(v.line, v.threads.len() > machine::cpus(), now)
                || recognised.contains_key(&v.line.0)
                || left.contains(&v.line.0)
                || runs.speak_for(v) && can_come_apart(v)
        };
        let settled: Vec<&Verdict> = verdicts.iter().filter(open).filter(settled).collect();
        let dear = |v: &&&Verdict| runs.false_cost(v) >= WORTH_MOVING;
        let saved = |v: &&&Verdict| recognised.contains_key(&v.line.0);
        let first = settled.iter().filter(saved).find(dear);
        let first = first.or_else(|| settled.iter().find(dear));
        // A line whose false part is not worth a move is reported, once.
        let is_unreported =
            |v: &&&Verdict| v.cost_share >= WORTH_MOVING && !self.decisions.is_reported(v.line);
        let Some(&first) = first.or_else(|| settled.iter().find(is_unreported)) else {
            self.pending = None;
            return suspected(&sampled);
        };
        let worth = runs.false_cost(first) >= WORTH_MOVING;
        if worth && let Some(left) = self.left.object(process, first) {
            let (page, len) = around(first.line.0, settled.iter().copied());
            self.decisions.decide(page, len);
            self.left.on_pages(&left, Span::new(Address(page), len));
            self.pending = None;
            return Look::Leave(left);
        }
        let saved = recognised.get(&first.line.0).copied();
        let proposal = self.plan(process, first, &settled, saved, &runs);
        // The other remedy names what it could take, which must not wait for debug information.
        let may_leave = worth && saved.is_none() && !process.names.is_reading_ahead();
        let proposal = proposal.and_then(|proposal| match may_leave {
            true => self.beside.leave(process, proposal),
            false => Ok(proposal),
        });
        let planned = Planned {
            proposal: &proposal,
            worth,
            is_large: runs.false_cost(first) >= LARGE,
            is_known: saved.is_some(),
            may_change: process.names.is_reading_ahead(),
        };
        if let Some(look) = self.wait(first, &settled, &planned, now, measured) {
            return look;
        }
        let line = first.line.0;
        let (page, len) = proposal.as_ref().map_or_else(
            |_| around(line, settled.iter().copied()),
            |proposal| (proposal.page, proposal.len),
        );
        if worth {
            self.decisions.decide(page, len);
        } else {
            self.decisions.report(page, len);
        }
        match proposal {
            Ok(proposal) => {
                self.decisions.tries(proposal.layout());
                let object = object_name(process, first);
                Look::Move(Proposal { object, ..proposal })
            }
            Err(reason) => Look::Leave(Unrepaired {
                object: object_name(process, first),
                address: Some(Address(line)),
                reason,
            }),
        }
    }

    /// The look's outcome as long as the planned move must wait; `None` if it may begin.
    fn wait(
        &mut self,
        first: &Verdict,
        settled: &[&Verdict],
        planned: &Planned<'_>,
        now: Time,
        measured: Measured,
    ) -> Option<Look> {
        let Planned {
            proposal,
            worth,
            is_large,
            is_known,
            may_change,
        } = *planned;
        let layout = proposal.as_ref().map(Proposal::layout).unwrap_or_default();
        let went_back = self.decisions.went_back(first.line);
        let enough = if went_back { STEADIER } else { STEADY };
        if self.decisions.were_tried(&layout) || went_back && proposal.is_err() {
            self.decisions.look_later(first.line, now);
            self.pending = None;
            return Some(Look::Nothing);
        }
        let pending = self.pending.get_or_insert_with(|| Pending {
            since: now,
            looks: 0,
            mark: Mark::of(settled.iter().copied()),
            layout: (layout.clone(), now),
        });
        pending.looks += 1;
        if pending.layout.0 != layout {
            pending.layout = (layout, now);
        }
        let waited = now.since(pending.since);
        // A layout from a saved result needs no more lines.
        let since = self.sampled.since(first.line).unwrap_or(now);
        let waited_for_others = now.since(since.min(pending.since));
        let gathered = is_known || waited_for_others >= GATHERING && pending.looks >= LOOKS;
        let steady = now.since(pending.layout.1) >= enough && !may_change || waited >= LONGEST;
        let steady = !worth || is_known || steady;
        let contended = !worth || pending.mark.is_contended(first);
        // A saved run speaks for the move, too. A crowded window may hide a small gain.
        let (wanted, longest) = match (is_known, is_large) {
            (true, _) => (Measured::Once, KNOWN_MEASURED),
            (false, true) => (Measured::ForLarge, MEASURED),
            (false, false) => (Measured::Well, MEASURED),
        };
        // What can't be moved needs no comparison with the time after a move, and another remedy waits.
        let measured = measured >= wanted || !worth || proposal.is_err() || waited >= longest;
        if !gathered || !contended && waited < OVER || !measured || !steady {
            let lines = settled.iter().filter(|v| can_come_apart(v));
            let bytes = lines.copied().flat_map(measurable);
            return Some(Look::Gathering(bytes.collect()));
        }
        self.pending = None;
        (!contended).then_some(Look::Nothing)
    }

    /// The bytes of these spans are looked at again, whatever was decided about them.
    pub fn open_again(&mut self, spans: &[Span]) {
        for span in spans {
            let page = span.start.0 & !(PAGE - 1);
            let len = (span.end().0 - page).next_multiple_of(PAGE);
            self.decisions.forget(page, len);
            self.learned.forget(page, len);
        }
        self.pending = None;
    }

    /// The move for the pages around `first` as far as known now, without the object's name.
    /// `saved` is the object of a saved result that the line belongs to.
    fn plan(
        &mut self,
        process: &mut Process,
        first: &Verdict,
        settled: &[&Verdict],
        saved: Option<(usize, u64)>,
        runs: &PageRuns,
    ) -> Result<Proposal, String> {
        let of_object = saved.and_then(|object| pages_of(self.known.span(object)?));
        let near = around(first.line.0, settled.iter().copied());
        let pages = of_object.unwrap_or_else(|| self.decisions.whole(near));
        let uses = saved.filter(|_| of_object.is_some()).and_then(|object| {
            let seen = seen(process, settled, pages.0, pages.1);
            self.known.uses(object, pages.0, &seen)
        });
        let mut plan = |pages, uses: Option<&[_]>| {
            let (done, learned) = (self.decisions.done(), &self.learned);
            let objects = &mut self.objects;
            let apart = take_apart(process, objects, settled, pages, uses, done, learned);
            let apart = apart.map_err(|why| why.why().to_owned());
            propose(process, first, pages, apart, runs)
        };
        let by_result = uses.and_then(|uses| plan(pages, Some(&uses)).ok());
        match by_result.map_or_else(|| plan(pages, None), Ok) {
            // What can't move with its neighbours moves alone.
            Err(_) if of_object.is_none() && pages != near => plan(near, None),
            planned => planned,
        }
    }
}

/// What to do as long as only samples speak for these lines: their threads can be measured already.
fn suspected(lines: &[&Verdict]) -> Look {
    let lines = lines.iter().filter(|v| can_come_apart(v));
    let bytes: Vec<Bytes> = lines.copied().flat_map(measurable).collect();
    match bytes.is_empty() {
        true => Look::Nothing,
        false => Look::Gathering(bytes),
    }
}

/// Whether bytes on this line may be moved, if not all may.
fn is_among(only: Option<&[Span]>, line: Address) -> bool {
    let line = Span::new(line, LINE);
    only.is_none_or(|only| only.iter().any(|span| span.overlaps(line)))
}

/// Start and length of the run of pages around `line` that have settled lines.
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

/// Start and length of the pages that hold these bytes; `None` if there are too many.
fn pages_of((start, end): (u64, u64)) -> Option<(u64, u64)> {
    let page = start & !(PAGE - 1);
    let len = end.checked_sub(page)?.next_multiple_of(PAGE);
    (len <= MOST_MOVED).then_some((page, len))
}

/// Lines that cost enough and hold an object of the saved result: the object's index and its start
/// address.
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

fn object_name(process: &mut Process, verdict: &Verdict) -> String {
    let objects = objects_on_line(process, verdict);
    let part = objects.ranked().next().map(|part| part.name.clone());
    part.map_or_else(
        || format!("memory at {:#x}", verdict.line.0),
        |name| show_object(process, &name, None).short_name().to_owned(),
    )
}

fn propose(
    process: &mut Process,
    first: &Verdict,
    (page, len): (u64, u64),
    apart: Result<Apart, String>,
    runs: &PageRuns,
) -> Result<Proposal, String> {
    if !can_come_apart(first) {
        return Err("its threads share the very bytes".into());
    }
    let mappings = process.mappings().clone();
    if can_be_moved(process, &mappings, page, len).is_err() {
        // The mappings may have been read while these bytes were away, and their pages without rights.
        let now = proc::mappings(process.id).map_err(|e| e.to_string())?;
        can_be_moved(process, &now, page, len)?;
        process.set_mappings(now);
    }
    let Apart {
        page,
        len,
        grouping,
    } = apart?;
    // The judge saw the order of accesses, but treats each variable separately; a group holds
    // several variables.
    let falsely = runs.false_cost(first);
    let worth = falsely.min(runs.cost(first) * grouping.apart);
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
        cost_share: runs.cost(first).min(1.0),
        threads: first.threads.iter().map(|t| t.thread).collect(),
        code: first.sites.first().map_or(0, |s| s.instruction.0),
        near: copied_near(
            first.sites.iter().map(|s| s.instruction),
            process.mappings(),
        ),
    })
}

/// The instruction near which copies of code are to lie, of the `sites` that use the bytes, busiest
/// first. What the C library does for the program (a lock, `memcpy`) is copied with the program's own
/// loop around it, whose globals and calls of libraries must be within reach: the library's code needs
/// little of that. If no other site is known, it is the program's first code. 0 if there is none.
fn copied_near(mut sites: impl Iterator<Item = CodeAddress>, mappings: &Mappings) -> u64 {
    let is_own = |m: &Mapping| {
        m.execute && m.is_file() && !m.path.starts_with("/memfd:") && !is_c_library(&m.path)
    };
    let own = sites.find(|site| mappings.at(Address(site.0)).is_some_and(is_own));
    let first = || mappings.iter().find(|m| is_own(m)).map(|m| m.span.start.0);
    own.map(|site| site.0).or_else(first).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::tests::writable;

    const HERE: u64 = 0x5000_0000;

    /// A loop that takes a lock uses the bytes in the C library, and is the program's.
    #[test]
    fn copies_lie_near_the_program_rather_than_the_c_library() {
        let code = |start, path: &str| Mapping {
            inode: 1,
            execute: true,
            ..writable(start, start + 0x1000, path)
        };
        let own = code(HERE, "/usr/bin/program");
        let plugin = code(0x7f00_0000_0000, "/usr/lib/plugin.so");
        let c_library = code(0x7f00_1000_0000, "/usr/lib/x86_64-linux-gnu/libc.so.6");
        let copy = code(0x7f00_2000_0000, "/memfd:sunder-remap (deleted)");
        let at = |all: &[&Mapping], sites: &[u64]| {
            let mappings = all.iter().map(|m| (*m).clone()).collect();
            copied_near(sites.iter().map(|&at| CodeAddress(at)), &mappings)
        };
        let all = [&own, &plugin, &c_library, &copy];
        let (lock, in_copy, in_plugin) = (0x7f00_1000_0010, 0x7f00_2000_0010, 0x7f00_0000_0010);
        assert_eq!(at(&all, &[lock, in_copy, in_plugin]), in_plugin);
        assert_eq!(at(&all, &[lock, in_copy]), HERE);
        assert_eq!(at(&all, &[]), HERE);
        assert_eq!(at(&[&c_library], &[lock]), 0);
    }
}
