//! What of a running program is isolated, from what the judge says of its lines: whole
//! objects, of which each word that was seen contended has one thread. Called by `live`;
//! writes down heap blocks in the control file, so that the program tells when they go.

use super::image::is_systems;
use super::keeper::Keeper;
use super::pages::{Asked, LARGEST};
use super::report::Isolated;
use super::target;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;
use sunder_access::{Address, LINE, Span, Time};
use sunder_findings::{Finding, Line, Object, ObjectKind, ThreadUse, Word};
use sunder_pipeline::Process;
use sunder_pipeline::show_sharing;
use sunder_pipeline::{Part, name_line, show_object};
use sunder_plan::cannot_be_isolated;
use sunder_sharing::{Confidence, Sharing, Verdict};

/// What costs a smaller share of its threads' time is not worth stopping the program.
const WORTH_ISOLATING: f64 = 0.04;
/// A line that was not touched for so long is no longer contended.
const RECENT: Duration = Duration::from_millis(200);
/// How long more lines are waited for when the first is confirmed.
const GATHERING: Duration = Duration::from_millis(30);
/// A line that was refused is judged again after so long, then after twice that.
const AGAIN: Duration = Duration::from_millis(250);
/// What is said of a block that was freed: nothing that anybody wants to know.
const GONE: &str = "it is gone";
/// Lines that are named in one look: that takes a moment each.
const AT_ONCE: usize = 16;

/// An object that is isolated, or that is about to be.
struct Subject {
    asked: Asked,
    /// When its block was allocated: not before.
    born: Option<Time>,
    /// Its block was still there after it was written down.
    settled: bool,
}

/// What was refused, and when it is judged again.
struct Refused {
    /// The first touch of the line: later than that, it is another object's.
    first: Time,
    until: Time,
    pause: Duration,
}

/// See the module's head.
#[derive(Default)]
pub struct Chooser {
    /// No byte may have been used by two threads, not even to set it up.
    strict: bool,
    subjects: Vec<Subject>,
    refused: HashMap<u64, Refused>,
    /// Since when something is there to be isolated.
    pending: Option<Time>,
    /// What the program had said of its blocks when pages were last asked for.
    changes: Option<u32>,
    /// What was isolated.
    pub isolated: Vec<Isolated>,
    /// What was not, one sentence each.
    pub left_out: Vec<String>,
}

impl Chooser {
    /// Nothing is chosen yet. `strict` as in [`sunder_plan::isolation`].
    pub fn new(strict: bool) -> Self {
        Self {
            strict,
            ..Self::default()
        }
    }

    /// Looks at the lines of the process at `now`, `seconds` after its beginning.
    /// `unwatched` says that bursts can't confirm anything here.
    pub fn look(
        &mut self,
        process: &mut Process,
        keeper: &mut Keeper,
        now: Time,
        seconds: f64,
        unwatched: bool,
    ) {
        let verdicts = process.judge.verdicts();
        let settled = |v: &&Verdict| {
            v.owner.is_none()
                && v.cost_share >= WORTH_ISOLATING
                && now.since(v.last) < RECENT
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
            // An object of the last one may have it too.
            if self.is_decided(verdict, now) {
                continue;
            }
            let line = name_line(process, verdict);
            let name = line.parts.first().map_or_else(
                || format!("memory at {}", verdict.line),
                |part| {
                    show_object(process, &part.name, None)
                        .short_name()
                        .to_owned()
                },
            );
            match self.take(process, keeper, verdict, &line.parts, &verdicts) {
                Ok(spans) => self.isolated.push(Isolated {
                    name,
                    address: spans.first().map_or(0, |s| s.start.0),
                    bytes: spans.iter().map(|s| s.len).sum(),
                    at_seconds: seconds,
                    cost_percent: verdict.cost_share * 100.0,
                }),
                Err(why) => self.refuse(verdict, now, format!("`{name}`: {why}")),
            }
        }
    }

    /// Whether anything is isolated, or about to be.
    pub const fn is_busy(&self) -> bool {
        !self.subjects.is_empty() || self.pending.is_some()
    }

    fn is_decided(&self, verdict: &Verdict, now: Time) -> bool {
        let at = Span::new(verdict.line, LINE);
        let has = |s: &Subject| at.overlaps(Span::new(Address(s.asked.start), s.asked.size));
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

    /// Has the objects on a line isolated; their bytes.
    fn take(
        &mut self,
        process: &Process,
        keeper: &mut Keeper,
        verdict: &Verdict,
        parts: &[Part],
        verdicts: &[Verdict],
    ) -> Result<Vec<Span>, String> {
        let mut subjects = Vec::new();
        for part in parts {
            let object = show_object(process, &part.name, None);
            let span = part.name.span().ok_or("its size is not known")?;
            may_be_isolated(&object, span, verdict, self.strict)?;
            // What the whole object is said to be, not this line alone.
            for other in verdicts.iter().filter(|v| counts(v, span)) {
                may_be_isolated(&object, span, other, self.strict)?;
            }
            let born = match object.kind {
                ObjectKind::Heap => Some(birth(process, span, verdict)?),
                _ => None,
            };
            subjects.push((span, born));
        }
        if subjects.is_empty() {
            return Err("it is not known what it is".into());
        }
        let spans = subjects.iter().map(|(span, _)| *span).collect();
        for (span, born) in subjects {
            let block = match born {
                Some(_) => Some(write_down(keeper, span).ok_or("there are too many objects")?),
                None => None,
            };
            self.subjects.push(Subject {
                asked: Asked {
                    start: span.start.0,
                    size: span.len,
                    whole_pages: false,
                    block,
                },
                born,
                settled: born.is_none(),
            });
        }
        self.changes = None;
        keeper.let_rest();
        Ok(spans)
    }

    /// Asks for the pages of what was chosen in an earlier look and is still there.
    pub fn ask(&mut self, process: &Process, keeper: &mut Keeper) {
        let open = self.subjects.iter().any(|s| !s.settled);
        let changes = keeper.shared.block_changes.load(SeqCst);
        if !open && self.changes == Some(changes) {
            return;
        }
        self.changes = Some(changes);
        let shared = &keeper.shared;
        self.subjects.retain_mut(|subject| {
            let Some(block) = subject.asked.block.and_then(|at| shared.blocks.get(at)) else {
                return true;
            };
            let start = subject.asked.start;
            if block.address.load(SeqCst) != start {
                return false;
            }
            if !subject.settled {
                // It was written down before, so whoever frees it from here on says so.
                let still = process
                    .heap()
                    .and_then(|h| h.segment.block_at(Address(start)));
                let same = still
                    .is_some_and(|b| b.freed.is_none() && Some(b.born.earliest) == subject.born);
                if !same {
                    let _ = block.address.compare_exchange(start, 0, SeqCst, Relaxed);
                    return false;
                }
                subject.settled = true;
            }
            true
        });
        for subject in &self.subjects {
            keeper.ask(subject.asked);
        }
        target::ask_for_blocks_of(keeper, true);
    }
}

/// Whether what was seen there says something of an object in `span`.
fn counts(verdict: &Verdict, span: Span) -> bool {
    let certain = verdict.confirmed || verdict.confidence() >= Confidence::Sampled;
    certain && verdict.owner.is_none() && Span::new(verdict.line, LINE).overlaps(span)
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
    match cannot_be_isolated(&as_finding(object, verdict), strict) {
        Some(why) => Err(why.into()),
        None => Ok(()),
    }
}

/// What was seen of a line, as the rules for results take it.
fn as_finding(object: &Object, verdict: &Verdict) -> Finding {
    let words = verdict.words.iter().map(|word| Word {
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
        sharing: show_sharing(verdict.sharing),
        object: object.clone(),
        lines: vec![Line {
            words: words.collect(),
            ..Line::default()
        }],
        ..Finding::default()
    }
}

/// When the block was allocated of which `verdict` tells.
///
/// # Errors
/// If it is not known, or is another one by now.
fn birth(process: &Process, span: Span, verdict: &Verdict) -> Result<Time, String> {
    let block = process
        .heap()
        .and_then(|heap| heap.segment.block_at(span.start))
        .ok_or("its block is not known")?;
    if block.span != span || block.freed.is_some() || verdict.first < block.born.earliest {
        return Err(GONE.into());
    }
    Ok(block.born.earliest)
}

/// Puts a block into the table that the program looks at when it frees; its place.
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
