//! Repairs the objects that a person chooses while he watches a running program: each on its own, put
//! back on its own. The library goes in at the first wish; at the end all bytes are put back and it
//! is taken out. Used by `sunder top`. What may be moved, and whether it stays, is decided as for
//! `sunder attach --repair`; a wish never moves what that would leave alone.

use crate::attach::entry::{Entry, Planned};
use crate::attach::leave::Left;
use crate::attach::plan::Stay;
use crate::attach::refuse::unless_sound;
use crate::attach::{farewell, remnant};
use crate::attempt::{Attempt, is_on_its_way};
use crate::repairer::Repairer;
use crate::{outcome, tell};
use anyhow::{Context, Result};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;
use sunder_access::{Address, ProcessId, Span, Time};
use sunder_findings::{Findings, Repair};
use sunder_hooking::Calls;
use sunder_live::{Live, LiveRemedy};
use sunder_observe::launch::Child;
use sunder_observe::{ObserveError, monotonic_now};
use sunder_wire::remap::{ACTIVE, APPLY_AGAIN, REFUSED, ROLL_BACK, ROLLED_BACK, ROLLING_BACK};

/// How an object stands that was wished to be repaired.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// It is moved once threads contend for it so much that a move pays.
    Waits,
    /// Its bytes are being moved, or threads find their copies of code.
    Moving,
    /// Its bytes have moved, and threads are measured.
    Measuring,
    /// Its bytes are on lines of their own.
    Moved {
        /// What that gained, if it was measured.
        gain: Option<Gained>,
        /// Why that was not measured, if so.
        unmeasured: Option<&'static str>,
    },
    /// Its bytes are being put back.
    PuttingBack,
    /// Its bytes are where they were, for this reason.
    Back(String),
    /// It was not moved, for this reason.
    Refused(String),
}

/// How many times as fast threads got on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gained {
    /// The mean of all threads.
    pub mean: f64,
    /// The thread that gained least.
    pub least: f64,
    /// The thread that gained most.
    pub most: f64,
    /// Threads that were measured.
    pub threads: usize,
}

/// An object that was wished to be repaired.
struct Wish {
    name: String,
    spans: Vec<Span>,
    since: Time,
    /// It is to be put back, and to stay so.
    is_undone: bool,
}

impl Wish {
    fn concerns(&self, attempt: &Attempt) -> bool {
        let pages = pages_of(attempt);
        attempt.decided >= self.since && self.spans.iter().any(|span| span.overlaps(pages))
    }
}

fn pages_of(attempt: &Attempt) -> Span {
    let (page, len) = attempt.pages();
    Span::new(Address(page), len)
}

/// Repairs what a person chooses.
pub struct ByHand {
    repairer: Repairer,
    wishes: Vec<Wish>,
}

/// What was done, at the end.
#[derive(Clone, Debug)]
pub struct Done {
    repair: Repair,
    farewell: Option<String>,
    /// Whether something of ours had to be left in the process.
    pub left_something: bool,
}

impl ByHand {
    /// Puts the library into the process, which is being watched by `live`. Nothing is moved yet.
    ///
    /// # Errors
    /// Says why the process can't be repaired. It is then as it was, or the error says what stays.
    pub fn begin(process: ProcessId, live: &mut Live) -> Result<Self> {
        let mut calls = Calls::to_move();
        remnant::take_out(process)?;
        unless_sound(process, &mut calls)?;
        let mut repairer = Repairer::new(Entry::Never, None)?;
        let planned = Planned::of(process, calls, Stay::ForAWhile, Vec::new());
        let put = planned.and_then(|planned| repairer.put(process, planned));
        put.with_context(|| format!("process {process} can't be repaired"))?;
        repairer.chooser.only = Some(Vec::new());
        live.session.process(process).stops_to_move = true;
        repairer.begins(process)?;
        Ok(Self {
            repairer,
            wishes: Vec::new(),
        })
    }

    /// The object `name`, which lies in `spans`, is to be repaired as soon as that pays.
    pub fn wish(&mut self, name: &str, spans: Vec<Span>) {
        self.wishes.retain(|wish| wish.name != name);
        self.repairer.wanted_again(&spans);
        self.wishes.push(Wish {
            name: name.to_owned(),
            spans,
            since: monotonic_now(),
            is_undone: false,
        });
        self.choose();
    }

    /// The bytes of the object `name` are to go back, and to stay there.
    pub fn undo(&mut self, name: &str) {
        let control = self.repairer.file.control();
        for wish in self.wishes.iter_mut().filter(|wish| wish.name == name) {
            wish.is_undone = true;
            let attempts = self.repairer.attempts.iter_mut();
            for attempt in attempts.filter(|attempt| wish.concerns(attempt)) {
                if let Some(area) = attempt.area.map(|number| &control.areas[number]) {
                    attempt.undo(area);
                }
            }
        }
        // What was never begun has nothing to show.
        let (attempts, wishes) = (&self.repairer.attempts, &mut self.wishes);
        wishes.retain(|wish| !wish.is_undone || attempts.iter().any(|one| wish.concerns(one)));
        self.choose();
        self.repairer.request_moves();
    }

    /// Tells the chooser which lines it may look at. Those of bytes that are still on their way back
    /// are not among them.
    fn choose(&mut self) {
        let control = self.repairer.file.control();
        let attempts = &self.repairer.attempts;
        let going_back = attempts.iter().filter(|attempt| {
            let area = attempt.area.map(|number| &control.areas[number]);
            let state = area.map(|area| area.state.load(Acquire));
            attempt.is_undone() && !matches!(state, Some(ROLLED_BACK | REFUSED) | None)
        });
        let going_back: Vec<Span> = going_back.map(pages_of).collect();
        let wanted = self.wishes.iter().filter(|wish| {
            let mut spans = wish.spans.iter();
            !wish.is_undone && !spans.any(|span| going_back.iter().any(|one| one.overlaps(*span)))
        });
        let spans = wanted.flat_map(|wish| wish.spans.iter().copied()).collect();
        self.repairer.chooser.only = Some(spans);
    }

    /// A move that was under way when it was undone has ended by now.
    fn put_back(&mut self) {
        let control = self.repairer.file.control();
        let attempts = self.repairer.attempts.iter_mut();
        for attempt in attempts.filter(|attempt| attempt.is_undone()) {
            if let Some(area) = attempt.area.map(|number| &control.areas[number]) {
                attempt.undo(area);
            }
        }
    }

    /// As [`LiveRemedy::step`].
    pub fn step(&mut self, live: &mut Live) {
        self.put_back();
        self.choose();
        self.repairer.step(live);
    }

    /// As [`LiveRemedy::patience`].
    pub fn patience(&self) -> Option<Duration> {
        self.repairer.patience()
    }

    /// As [`LiveRemedy::collect`].
    ///
    /// # Errors
    /// As that.
    pub fn collect(&mut self, child: &mut Child) -> Result<Option<ExitStatus>, ObserveError> {
        self.repairer.collect(child)
    }

    /// How all objects stand that were wished to be repaired, by name.
    pub fn standings(&self) -> Vec<(String, Standing)> {
        let told = self.wishes.iter();
        told.map(|wish| (wish.name.clone(), self.standing(wish)))
            .collect()
    }

    fn standing(&self, wish: &Wish) -> Standing {
        if let Some(why) = &self.repairer.hindrance {
            return Standing::Refused(why.clone());
        }
        let mut attempts = self.repairer.attempts.iter().rev();
        let Some(attempt) = attempts.find(|attempt| wish.concerns(attempt)) else {
            let mut refused = self.repairer.refused.iter().rev();
            let refused = refused.find(|one| tell::is_on_pages_of(one, &wish.spans));
            return refused.map_or(Standing::Waits, |one| Standing::Refused(one.reason.clone()));
        };
        let Some(area) = attempt.area.map(|n| &self.repairer.file.control().areas[n]) else {
            return Standing::Waits;
        };
        let (state, wanted) = (area.state.load(Acquire), area.wanted.load(Acquire));
        match state {
            REFUSED => Standing::Refused(outcome::refusal(attempt, area)),
            _ if is_on_its_way(area) => Standing::Moving,
            ACTIVE if wanted == ROLL_BACK => Standing::PuttingBack,
            ROLLING_BACK => Standing::PuttingBack,
            ACTIVE if attempt.is_measuring() => Standing::Measuring,
            ACTIVE => Standing::Moved {
                gain: gained(attempt),
                unmeasured: attempt.unmeasured,
            },
            ROLLED_BACK if wanted == APPLY_AGAIN => Standing::Moving,
            ROLLED_BACK if wish.is_undone => Standing::Back(outcome::YOU.into()),
            _ => {
                let refusal = attempt.area.and_then(|n| self.repairer.refusal_of(n));
                let why = outcome::why_back(attempt, refusal.as_deref());
                Standing::Back(why.unwrap_or_default())
            }
        }
    }

    /// Puts everything back and takes the library out, if the process lives.
    pub fn end(mut self) -> Done {
        let repair = self.repairer.finish(&mut |_| None);
        let process = self.repairer.process;
        let left = self.repairer.leave();
        Done {
            repair,
            farewell: left.as_ref().and_then(|left| farewell(process, left)),
            left_something: matches!(left, Some(Left::Memory(_))),
        }
    }
}

/// How a child has ended whose threads were stopped, if it has: `ptrace` reports its end, too.
pub fn exit(process: ProcessId) -> Option<ExitStatus> {
    sunder_stop::exit(process).map(ExitStatus::from_raw)
}

fn gained(attempt: &Attempt) -> Option<Gained> {
    let stay = attempt.stays.last()?;
    let ratios = stay.gains.iter().map(|(_, gain)| gain.ratio);
    Some(Gained {
        mean: stay.gain()?,
        least: stay.least_gain()?,
        most: ratios.max_by(f64::total_cmp)?,
        threads: stay.gains.len(),
    })
}

impl Done {
    /// Adds to the result what was done, and returns it as lines for people.
    pub fn tell(&self, findings: &mut Findings) -> Vec<String> {
        let mut repair = self.repair.clone();
        tell::name(&mut repair, findings);
        let mut lines = tell::tell(&repair, f64::INFINITY, false);
        lines.extend(self.farewell.clone());
        findings.repair = Some(repair);
        lines
    }
}
