//! Chooses which objects of a running program are isolated, from the judge's verdicts on lines:
//! whole objects in which each word that was seen contended belongs to one thread. Called by
//! `live`. Enters heap blocks and mappings into the control file, so that the library reports when
//! they are freed or unmapped. Must not isolate a thread itself: it asks the keeper for pages.

use super::commits::CommitLog;
use super::image::is_systems;
use super::keeper::Keeper;
use super::lasting::{GONE, Lasting};
use super::pages::{LARGEST, PageRequest, Pages};
use super::report::Isolated;
use super::target;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;
use sunder_access::{Address, LINE, PAGE, Span, Time};
use sunder_findings::{Finding, Line, Object, ObjectKind, ThreadUse, Word};
use sunder_pipeline::Process;
use sunder_pipeline::show_sharing;
use sunder_pipeline::{Part, objects_on_line, show_object};
use sunder_plan::cannot_be_isolated_here;
use sunder_sharing::{Confidence, PageRuns, Sharing, Verdict, WordUse};

/// Lines that together cost a smaller share of their threads' time are not worth stopping the program
/// for.
const WORTH_ISOLATING: f64 = 0.04;
/// A line that was not touched for this long is no longer contended.
const RECENT: Duration = Duration::from_millis(200);
/// How long we wait for further lines after the first one is confirmed.
const GATHERING: Duration = Duration::from_millis(30);
/// Pause before a refused line is judged again; doubled after each refusal.
const AGAIN: Duration = Duration::from_millis(250);
/// Most lines that are named in one look, as each takes a moment.
const AT_ONCE: usize = 16;

/// An object that is isolated, or that is about to be.
struct Subject {
    request: PageRequest,
    lasting: Lasting,
    /// It was seen to be there after it was entered into the control file.
    settled: bool,
}

/// A line that was refused.
struct Refused {
    /// The line's first touch. A verdict with another first touch is about another object.
    first: Time,
    until: Time,
    pause: Duration,
}

/// Keeps what was chosen and what was refused; see the head of this file.
#[derive(Default)]
pub struct Chooser {
    /// Refuse objects of which two threads used the same byte, even if only to set it up.
    strict: bool,
    /// Where lines must lie to be looked at; everywhere if this is `None`.
    pub only: Option<Vec<Span>>,
    subjects: Vec<Subject>,
    refused: HashMap<u64, Refused>,
    /// Since when there are lines to be isolated.
    pending: Option<Time>,
    /// The library's count of changes to heap blocks when pages were last asked for.
    changes: Option<u32>,
    /// The objects that were isolated.
    pub isolated: Vec<Isolated>,
    /// Objects that were not isolated, one sentence each.
    pub left_out: Vec<String>,
}

impl Chooser {
    /// Without any choice yet. `strict` as in [`sunder_plan::isolation`].
    pub fn new(strict: bool) -> Self {
        Self {
            strict,
            ..Self::default()
        }
    }

    /// Judges the lines of the process at `now`, `seconds` after its start. `unwatched` says that
    /// watchpoints can't confirm anything on this machine.
    pub fn look(
        &mut self,
        process: &mut Process,
        keeper: &mut Keeper,
        now: Time,
        seconds: f64,
        unwatched: bool,
    ) {
        let verdicts = process.judge.verdicts();
        let runs = PageRuns::of(verdicts.iter(), LARGEST);
        let is_wanted = |line: Address| {
            let on = |span: &Span| span.overlaps(Span::new(line, LINE));
            self.only.as_ref().is_none_or(|only| only.iter().any(on))
        };
        let settled = |v: &&Verdict| {
            v.owner.is_none()
                && is_wanted(v.line)
                && runs.cost(v) >= WORTH_ISOLATING
                && now.since(runs.last(v)) < RECENT
                && (v.confirmed || unwatched && v.confidence() >= Confidence::Sampled)
        };
        let fresh: Vec<&Verdict> = verdicts
            .iter()
            .filter(settled)
            .filter(|v| !self.is_decided(v, now))
            .collect();
        if fresh.is_empty() {
            self.pending = None;
            return;
        }
        let since = *self.pending.get_or_insert(now);
        if now.since(since) < GATHERING {
            return;
        }
        let mappings = process.mappings().clone();
        process.names.set_mappings(mappings);
        for verdict in fresh.into_iter().take(AT_ONCE) {
            // An object that was chosen for an earlier line may lie on this line too.
            if self.is_decided(verdict, now) {
                continue;
            }
            let parts: Vec<Part> = objects_on_line(process, verdict)
                .ranked()
                .cloned()
                .collect();
            let name = parts.first().map_or_else(
                || format!("memory at {}", verdict.line),
                |part| {
                    show_object(process, &part.name, None)
                        .short_name()
                        .to_owned()
                },
            );
            match self.take(process, keeper, verdict, &parts, &verdicts) {
                Ok(spans) => {
                    let new = Isolated {
                        name,
                        spans,
                        at_seconds: seconds,
                        cost_percent: runs.cost(verdict).min(1.0) * 100.0,
                        interleaved_writes: None,
                    };
                    self.note(new, keeper.log.as_mut());
                }
                Err(why) => self.refuse(verdict, now, format!("`{name}`: {why}")),
            }
        }
    }

    /// Notes what is isolated, unless it was before: a frame's object is chosen again when its thread
    /// waits again, and its writes go on counting.
    fn note(&mut self, new: Isolated, log: Option<&mut CommitLog>) {
        let same = |old: &Isolated| {
            let counts = old.interleaved_writes.is_none();
            counts && (&old.name, old.address()) == (&new.name, new.address())
        };
        if self.isolated.iter().any(same) {
            return;
        }
        if let Some(log) = log {
            self.begin_to_count(log, &new);
        }
        self.isolated.push(new);
    }

    /// Writes to the bytes of a new object count for it from here on. Objects that were there before
    /// keep what was counted.
    fn begin_to_count(&mut self, log: &mut CommitLog, new: &Isolated) {
        log.take();
        for old in &mut self.isolated {
            let on_new = |span: &Span| new.spans.iter().any(|s| s.overlaps(*span));
            if old.interleaved_writes.is_none() && old.spans.iter().any(on_new) {
                old.interleaved_writes = Some(old.turns(&log.ledger));
                log.ledger.clean(&old.spans);
            }
        }
        for span in &new.spans {
            log.object(*span, &new.name);
        }
    }

    /// Whether an object is isolated or about to be.
    pub const fn is_busy(&self) -> bool {
        !self.subjects.is_empty() || self.pending.is_some()
    }

    /// Whether an object was chosen and still exists.
    pub const fn has_chosen(&self) -> bool {
        !self.subjects.is_empty()
    }

    fn is_decided(&self, verdict: &Verdict, now: Time) -> bool {
        let at = Span::new(verdict.line, LINE);
        let has = |s: &Subject| at.overlaps(Span::new(Address(s.request.start), s.request.size));
        let refused = |r: &Refused| r.first == verdict.first && now < r.until;
        self.refused.get(&verdict.line.0).is_some_and(refused) || self.subjects.iter().any(has)
    }

    fn refuse(&mut self, verdict: &Verdict, now: Time, why: String) {
        let first = verdict.first;
        let before = self.refused.get(&verdict.line.0);
        let before = before.filter(|r| r.first == first);
        let pause = before.map_or(AGAIN, |r| r.pause.saturating_mul(2));
        let until = now.after(pause);
        self.refused.insert(
            verdict.line.0,
            Refused {
                first,
                until,
                pause,
            },
        );
        if !why.ends_with(GONE) && !self.left_out.contains(&why) {
            self.left_out.push(why);
        }
    }

    /// Asks for the objects on a line to be isolated; gives their bytes.
    fn take(
        &mut self,
        process: &mut Process,
        keeper: &mut Keeper,
        verdict: &Verdict,
        parts: &[Part],
        verdicts: &[Verdict],
    ) -> Result<Vec<Span>, String> {
        let mut subjects = Vec::new();
        for part in parts {
            let object = show_object(process, &part.name, None);
            let span = part.name.span().ok_or("its size is not known")?;
            let lasting = Lasting::of(process, &object, (span, part.name.thread), verdict)?;
            let seen = if lasting.is_private_mapping() {
                let one_each = used_by_one_each(process, &object, verdict.line, self.strict);
                let certain = verdicts.iter().filter(|v| is_certain(v));
                certain.map(|v| v.line.0).chain(one_each).collect()
            } else {
                verdicts.iter().map(|v| v.line.0).collect()
            };
            // All of a part counts, not only this line of it.
            let may_be = |span: Span| {
                let mut others = verdicts.iter().filter(|v| counts(v, span));
                others.try_for_each(|other| may_be_isolated(&object, span, other, self.strict))
            };
            let mut spans = lasting.parts(span, verdict.line.0, &seen).into_iter();
            let first = spans.next().ok_or(GONE)?;
            may_be_isolated(&object, first, verdict, self.strict)?;
            may_be(first)?;
            subjects.push((first, lasting.clone()));
            let is_chosen = |span: &Span| {
                let has = |s: &Subject| {
                    let (start, end) = (s.request.start, s.request.start + s.request.size);
                    start <= span.start.0 && span.end().0 <= end
                };
                self.subjects.iter().any(has)
            };
            let others = spans.filter(|span| !is_chosen(span) && may_be(*span).is_ok());
            subjects.extend(others.map(|span| (span, lasting.clone())));
        }
        if subjects.is_empty() {
            return Err("it is not known what it is".into());
        }
        let spans = subjects.iter().map(|(span, _)| *span).collect();
        for (span, lasting) in subjects {
            let block = match lasting {
                Lasting::Global => None,
                _ => Some(write_down(keeper, span).ok_or("there are too many objects")?),
            };
            self.subjects.push(Subject {
                request: PageRequest {
                    start: span.start.0,
                    size: span.len,
                    whole_pages: false,
                    common: lasting.is_common(),
                    block,
                },
                lasting,
                settled: block.is_none(),
            });
        }
        self.changes = None;
        keeper.let_rest();
        Ok(spans)
    }

    /// Gives up objects in frames of threads that have run since: the frames may have ended.
    fn give_up_frames(&mut self, process: &Process, keeper: &Keeper) {
        self.subjects.retain(|subject| {
            let start = subject.request.start;
            if !subject.lasting.is_in_a_frame() || subject.lasting.is_there(process, start) {
                return true;
            }
            if let Some(block) = subject
                .request
                .block
                .and_then(|at| keeper.shared.blocks.get(at))
            {
                let _ = block.address.compare_exchange(start, 0, SeqCst, Relaxed);
            }
            Pages::give_up(&keeper.shared, start, subject.request.size);
            false
        });
    }

    /// Asks for the pages of objects that were chosen in an earlier look and are still alive.
    pub fn request_pages(&mut self, process: &Process, keeper: &mut Keeper) {
        self.give_up_frames(process, keeper);
        let open = self.subjects.iter().any(|s| !s.settled);
        let changes = keeper.shared.block_changes.load(SeqCst);
        if !open && self.changes == Some(changes) {
            return;
        }
        self.changes = Some(changes);
        let shared = &keeper.shared;
        self.subjects.retain_mut(|subject| {
            let Some(block) = subject.request.block.and_then(|at| shared.blocks.get(at)) else {
                return true;
            };
            let start = subject.request.start;
            if block.address.load(SeqCst) != start {
                return false;
            }
            if !subject.settled {
                // It was entered before this check, so that it is reported if it goes away from
                // here on.
                if !subject.lasting.is_there(process, start) {
                    let _ = block.address.compare_exchange(start, 0, SeqCst, Relaxed);
                    return false;
                }
                subject.settled = true;
            }
            true
        });
        for subject in &self.subjects {
            keeper.request_pages(subject.request);
        }
        target::ask_for_blocks_of(keeper, true);
    }
}

/// The other lines on the page of `line` that threads were seen to use, as far as each of their words
/// has one thread: of an object that lies there, not all lines are contended.
fn used_by_one_each(
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
fn is_certain(verdict: &Verdict) -> bool {
    (verdict.confirmed || verdict.confidence() >= Confidence::Sampled) && verdict.owner.is_none()
}

/// Whether a verdict is certain enough, and about bytes in `span`.
fn counts(verdict: &Verdict, span: Span) -> bool {
    is_certain(verdict) && Span::new(verdict.line, LINE).overlaps(span)
}

/// # Errors
/// Says why an object must stay shared.
fn may_be_isolated(
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

/// Enters a block into the table that the library reads when blocks are freed; gives its place.
fn write_down(keeper: &Keeper, span: Span) -> Option<usize> {
    let shared = &keeper.shared;
    let taken = |at: &sunder_wire::isolation::Block| {
        at.address.compare_exchange(0, 1, SeqCst, Relaxed).is_ok()
    };
    let place = shared.blocks.iter().position(taken)?;
    let block = &shared.blocks[place];
    block.bytes.store(span.len, SeqCst);
    block.address.store(span.start.0, SeqCst);
    shared.block_changes.fetch_add(1, SeqCst);
    Some(place)
}
