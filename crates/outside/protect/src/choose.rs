//! Chooses which objects of a running program are isolated, from the judge's verdicts on lines:
//! whole objects in which each word that was seen contended belongs to one thread. Called by
//! `live`. Enters heap blocks and mappings into the control file, so that the library reports when
//! they are freed or unmapped. Must not isolate a thread itself: it asks the keeper for pages.

use super::allowed::RECENT;
use super::commits::CommitLog;
use super::gains::{Gained, Gains};
use super::isolatable::{Seen, WORTH_ISOLATING, isolatable};
use super::keeper::Keeper;
use super::lasting::{GONE, Lasting};
use super::pages::{LARGEST, PageRequest, Pages};
use super::report::Isolated;
use super::target;
use std::collections::HashMap;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;
use sunder_access::{Address, LINE, Span, Time};
use sunder_gain::gained::{progress, told};
use sunder_gain::gauge::measurable;
use sunder_pipeline::Process;
use sunder_pipeline::{Part, objects_on_line, show_object};
use sunder_sharing::{Confidence, PageRuns, Verdict};
use sunder_wire::isolation::{COSTLY, GONE as NOT_THERE};

/// How long we wait for further lines after the first one is confirmed.
const GATHERING: Duration = Duration::from_millis(30);
/// How long at most we wait for the threads to be measured, for comparison with their speed in isolation.
const MEASURED: Duration = Duration::from_millis(60);
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

impl Subject {
    fn span(&self) -> Span {
        Span::new(Address(self.request.start), self.request.size)
    }

    /// Its pages are shared again, `why` as in `sunder_wire::isolation`.
    fn give_up(&self, keeper: &Keeper, why: u32) {
        let PageRequest { start, size, .. } = self.request;
        let block = self.request.block;
        if let Some(block) = block.and_then(|at| keeper.shared.blocks.get(at)) {
            let _ = block.address.compare_exchange(start, 0, SeqCst, Relaxed);
        }
        Pages::give_up(&keeper.shared, start, size, why);
    }
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
    /// On lines that lie here, samples are enough.
    pub trusted: Vec<Span>,
    subjects: Vec<Subject>,
    refused: HashMap<u64, Refused>,
    /// Since when there are lines to be isolated.
    pending: Option<Time>,
    /// Measures what isolating gains.
    pub gains: Gains,
    /// Bytes by whose isolation threads lost time. They stay shared.
    in_vain: Vec<Span>,
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
        let trusted = |line: Address| {
            let on = |span: &Span| span.overlaps(Span::new(line, LINE));
            self.trusted.iter().any(on)
        };
        let settled = |v: &&Verdict| {
            v.owner.is_none()
                && is_wanted(v.line)
                && runs.cost(v) >= WORTH_ISOLATING
                && now.since(runs.last(v)) < RECENT
                && (v.confirmed
                    || (unwatched || trusted(v.line)) && v.confidence() >= Confidence::Sampled)
        };
        let fresh: Vec<&Verdict> = verdicts
            .iter()
            .filter(settled)
            .filter(|v| !self.is_decided(v.line, v.first, now))
            .collect();
        if fresh.is_empty() {
            self.pending = None;
            self.gains.expect_nothing();
            return;
        }
        let since = *self.pending.get_or_insert(now);
        let measurable = || fresh.iter().copied().flat_map(measurable).collect();
        self.gains.expect(process.id, measurable);
        let waited = now.since(since);
        if waited < GATHERING || waited < MEASURED && !self.gains.is_ready() {
            return;
        }
        let known = self.isolated.len();
        let mappings = process.mappings().clone();
        process.names.set_mappings(mappings);
        for verdict in fresh.into_iter().take(AT_ONCE) {
            // An object that was chosen for an earlier line may lie on this line too.
            if self.is_decided(verdict.line, verdict.first, now) {
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
                        progress: None,
                        in_vain: None,
                    };
                    self.note(new, keeper.log.as_mut());
                }
                Err(why) => self.refuse(verdict, now, format!("`{name}`: {why}")),
            }
        }
        if known < self.isolated.len() {
            self.gains.isolated(known..self.isolated.len(), now);
        }
        self.gains.expect_nothing();
    }

    /// Takes in what isolating objects has gained. Those by which threads lost time are shared again, as
    /// are those whose threads are hardly ever isolated.
    pub fn take_in(&mut self, gained: Gained, keeper: &Keeper) {
        let progress = progress(&gained.threads);
        let lost = progress.as_ref().filter(|_| gained.is_loss()).map(told);
        let seldom = gained.too_seldom().map(|part| {
            let percent = part * 100.0;
            format!("its threads were isolated for {percent:.0} % of the time only")
        });
        let why = lost.or(seldom);
        for one in self.isolated.get_mut(gained.objects).into_iter().flatten() {
            one.progress = progress.clone().or(one.progress.take());
            if let Some(why) = &why {
                let name = &one.name;
                self.left_out.push(format!(
                    "`{name}` any more: isolating it did not help: {why}"
                ));
                one.in_vain = Some(why.clone());
                self.in_vain.extend(&one.spans);
            }
        }
        if why.is_some() {
            let in_vain = &self.in_vain;
            self.subjects.retain(|subject| {
                let lost = in_vain.iter().any(|span| span.overlaps(subject.span()));
                if lost {
                    subject.give_up(keeper, COSTLY);
                }
                !lost
            });
        }
    }

    /// None of the chosen objects is to be isolated, as no thread computed there for long.
    pub fn give_up(&mut self, keeper: &Keeper) {
        for subject in std::mem::take(&mut self.subjects) {
            subject.give_up(keeper, NOT_THERE);
            self.in_vain.push(subject.span());
        }
        for one in std::mem::take(&mut self.isolated) {
            self.left_out
                .push(format!("`{}`: no thread computed there for long", one.name));
        }
        self.gains = Gains::default();
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

    /// Whether nothing is to be decided at `now` about a line that was touched from `first` on.
    fn is_decided(&self, line: Address, first: Time, now: Time) -> bool {
        let at = Span::new(line, LINE);
        let refused = |r: &Refused| r.first == first && now < r.until;
        self.refused.get(&line.0).is_some_and(refused)
            || self.subjects.iter().any(|s| at.overlaps(s.span()))
            || self.in_vain.iter().any(|span| at.overlaps(*span))
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
        let is_chosen = |span: Span| {
            let has = |s: &Subject| {
                let (start, end) = (s.request.start, s.request.start + s.request.size);
                start <= span.start.0 && span.end().0 <= end
            };
            self.subjects.iter().any(has)
        };
        let seen = Seen {
            line: verdict,
            all: verdicts,
            strict: self.strict,
        };
        let subjects = isolatable(process, parts, &seen, &is_chosen)?;
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
            subject.give_up(keeper, NOT_THERE);
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

#[cfg(test)]
mod tests;
