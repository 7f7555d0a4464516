//! The life of one repair: bytes are moved, threads settle, are measured, and the bytes are kept or
//! put back, and perhaps moved again. `repairer` calls it at each look. It reads its area of the
//! control file and says what to ask for next. It must not signal a thread or judge a line itself.

mod measuring;
mod stay;

pub use self::stay::{Rethought, Stay};
use super::attach::inject::Applied;
use super::decisions::RETHINK;
use super::mark::Mark;
use super::proposal::Proposal;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;
use sunder_access::{Mappings, ProcessId, Time};
use sunder_findings::MovedGroup;
use sunder_gain::gauge::{Bytes, Gauge, Windows};

use sunder_plan::remap::{self as plan, EndReason};
use sunder_wire::remap::{
    ACTIVE, APPLY, APPLY_AGAIN, APPLYING, Area, BY_END, BY_FAULTS, BY_FORK, BY_KERNEL, BY_MAPPING,
    BY_OWNER, BY_TOOL, FREE, NOTHING, REFUSED, ROLL_BACK, ROLLED_BACK,
};

/// After this many unanswered requests to its threads, other moves no longer wait for this one.
const PATIENCE_OF_OTHERS: u32 = 20;
/// What a fault costs its thread, roughly.
const FAULT: Duration = Duration::from_micros(3);

/// A lesser gain is little.
const LITTLE: f64 = 1.25;
/// So many times as much as was gained is much more.
const MUCH: f64 = 1.25;
/// No contention leaves its threads less of their time than this.
const LEAST_LEFT: f64 = 0.01;

/// The time between two readings of the monotonic clock in ns.
const fn elapsed(from: u64, to: u64) -> Duration {
    Time(to).since(Time(from))
}

/// How far a repair has come.
enum Phase {
    /// Its bytes are to be moved.
    Asked,
    /// The bytes have moved, and threads fault until they have their copies of code.
    Settling { faults: u64, since: u64 },
    /// Threads are measured in a window that began at `since`.
    Measuring {
        gauge: Gauge,
        since: u64,
        earlier: Earlier,
    },
    /// Nothing is under way.
    Settled,
    /// The bytes were put back. From `until` on they may be moved again, if they are contended.
    Resting { until: u64 },
    /// Whether threads contend for the bytes again; they are measured for a new comparison.
    Looking {
        gauge: Option<Gauge>,
        mark: Mark,
        since: u64,
    },
    /// It is over, and stays as it is.
    Over,
}

/// The windows of a stay before the present one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Earlier {
    /// How many there were.
    windows: u32,
    /// Whether one has shown that the move does not pay.
    loss: bool,
}

impl Earlier {
    /// These and a window that has shown a `loss`, or nothing.
    const fn and(self, loss: bool) -> Self {
        Self {
            windows: self.windows + 1,
            loss: self.loss || loss,
        }
    }
}

/// What the caller must do next for a repair.
pub enum Next {
    /// Nothing.
    Nothing,
    /// Make a mark of what threads have used of its lines so far.
    Mark,
    /// Move the bytes again if that is still allowed: threads contend for them as before.
    Again,
}

/// Whether a thread is to move the area's bytes, or is moving them.
pub fn is_on_its_way(area: &Area) -> bool {
    let state = area.state.load(Acquire);
    let again = area.wanted.load(Acquire) == APPLY_AGAIN;
    matches!(state, FREE | APPLYING) || again && state == ROLLED_BACK
}

/// One range of pages whose bytes were to be moved.
pub struct Attempt {
    /// Which bytes, and why.
    pub proposal: Proposal,
    /// Index of its area; `None` in a dry run.
    pub area: Option<usize>,
    /// The groups, with their new places.
    pub groups: Vec<MovedGroup>,
    /// When the move was decided.
    pub decided: Time,
    /// The program's mappings when the bytes were last to be moved.
    pub mappings: Mappings,
    /// How many times threads were asked to move the bytes.
    pub asked: u32,
    /// Every stay at the new place.
    pub stays: Vec<Stay>,
    /// What prevented the move when all threads were stopped for it.
    pub hindrance: Option<String>,
    /// Why the threads' gain was not measured.
    pub unmeasured: Option<&'static str>,
    /// Whether the bytes stay where they are even if threads get on no faster: to measure how slow that is.
    pub stays_anyway: bool,
    before: Windows,
    phase: Phase,
    /// Its bytes are to go back, and to stay there.
    is_undone: bool,
    /// The number of ended stays that [`Self::has_gone_back`] has reported.
    told_over: usize,
}

impl Attempt {
    /// A repair whose bytes are to be moved. `before` holds measurements of its threads.
    pub fn new(
        proposal: Proposal,
        groups: Vec<MovedGroup>,
        area: Option<usize>,
        decided: Time,
        before: Windows,
    ) -> Self {
        Self {
            proposal,
            area,
            groups,
            decided,
            mappings: Mappings::new(),
            asked: 0,
            stays: Vec::new(),
            hindrance: None,
            unmeasured: None,
            stays_anyway: false,
            before,
            phase: Phase::Asked,
            is_undone: false,
            told_over: 0,
        }
    }

    /// Whether bytes were put back since the last call, for a reason that another layout might
    /// avoid.
    pub fn has_gone_back(&mut self) -> bool {
        let mut over = self.stays.iter().filter_map(|stay| stay.back);
        let new = over.clone().count() > self.told_over;
        self.told_over = over.clone().count();
        let last = over.next_back().map(|back| back.0);
        let is_left = self.rethought().is_some_and(|why| !why.seeks_layout());
        new && !is_left && matches!(last, Some(BY_TOOL | BY_FAULTS | BY_KERNEL | BY_MAPPING))
    }

    /// Whether its bytes did not stay away, and whoever else can help is welcome at `now`: not as long
    /// as another layout is looked for because some bytes had stayed together, or they are about to be
    /// tried again because one thread seemed to lose.
    pub fn has_failed(&self, now: u64) -> bool {
        let mixed = self.stays.iter().filter(|stay| stay.is_mixed()).count();
        let is_over = |stay: &Stay| {
            let seeks = stay.rethought.is_some_and(Rethought::seeks_layout);
            let again = stay.is_mixed() && mixed == 1;
            let waits = u64::from(seeks || again) * RETHINK.as_nanos() as u64;
            stay.back
                .is_some_and(|(_, at)| now >= at.saturating_add(waits))
        };
        self.stays.iter().any(is_over)
    }

    /// Whether threads are being measured, so that the next look must come soon.
    pub fn is_measuring(&self) -> bool {
        matches!(
            self.phase,
            Phase::Settling { .. }
                | Phase::Measuring { .. }
                | Phase::Looking { gauge: Some(_), .. }
        )
    }

    /// Whether the move is still to be made, or threads have not found their copies yet.
    pub fn is_unsettled(&self) -> bool {
        matches!(self.phase, Phase::Asked | Phase::Settling { .. })
    }

    /// Takes the repair one step further. `contended` gives the bytes for which threads have
    /// contended on its lines since a mark.
    pub fn step(
        &mut self,
        area: &Area,
        process: ProcessId,
        now: u64,
        contended: &mut dyn FnMut(&Proposal, &Mark) -> Vec<Bytes>,
    ) -> Next {
        self.follow(area, now);
        if self.is_undone {
            self.phase = Phase::Over;
            return Next::Nothing;
        }
        match std::mem::replace(&mut self.phase, Phase::Settled) {
            Phase::Settling { faults, since } => {
                self.phase = self.settle(area, process, now, faults, since);
            }
            Phase::Measuring {
                gauge,
                since,
                earlier,
            } => self.phase = self.measure(area, process, now, (gauge, since), earlier),
            Phase::Resting { until } => {
                self.phase = Phase::Resting { until };
                if now >= until {
                    return Next::Mark;
                }
            }
            Phase::Looking { gauge, mark, since } => {
                let (phase, next) = self.look(process, now, gauge, mark, since, contended);
                self.phase = phase;
                return next;
            }
            other => self.phase = other,
        }
        Next::Nothing
    }

    /// Looks for contention from `mark` on.
    pub fn look_from(&mut self, mark: Mark, now: u64) {
        self.phase = Phase::Looking {
            gauge: None,
            mark,
            since: now,
        };
    }

    /// Ends the repair: nothing more is done.
    pub fn end(&mut self) {
        self.phase = Phase::Over;
    }

    /// Whether its bytes are to go back, and to stay there.
    pub const fn is_undone(&self) -> bool {
        self.is_undone
    }

    /// Asks for the bytes to go back, and to stay there. A move that is under way comes to its end
    /// first, so this has to be called until they are back.
    pub fn undo(&mut self, area: &Area) {
        self.is_undone = true;
        match area.state.load(Acquire) {
            FREE => {
                let refused = area.state.compare_exchange(FREE, REFUSED, AcqRel, Relaxed);
                if refused.is_ok() {
                    self.hindrance = Some("you put it back before it was moved".into());
                }
            }
            ACTIVE if area.wanted.load(Acquire) != ROLL_BACK => {
                self.asked = 0;
                area.wanted.store(ROLL_BACK, Release);
                if let Some(stay) = self.stays.last_mut() {
                    stay.undone = true;
                }
            }
            ROLLED_BACK if area.wanted.load(Acquire) == APPLY_AGAIN => {
                area.wanted.store(NOTHING, Release);
            }
            _ => {}
        }
    }

    /// Why the last stay ends, or has ended, though something was gained.
    fn rethought(&self) -> Option<Rethought> {
        self.stays.last()?.rethought
    }

    /// Whether threads were measured and gained much less by the present stay than their contention seemed
    /// to cost them.
    pub fn gained_little(&self) -> bool {
        let stay = self.stays.last().filter(|stay| stay.back.is_none());
        let gain = stay
            .filter(|stay| stay.rethought.is_none())
            .and_then(Stay::gain);
        let promised = 1.0 / (1.0 - self.proposal.cost_share).max(LEAST_LEFT);
        matches!(self.phase, Phase::Settled)
            && gain.is_some_and(|gain| gain < LITTLE && gain * MUCH < promised)
    }

    /// Asks for the bytes to go back because something else is expected to do better. Nothing is done if
    /// they are back, or on their way.
    pub fn rearrange(&mut self, area: &Area, why: Rethought) {
        let stays = area.state.load(Acquire) == ACTIVE && area.wanted.load(Acquire) != ROLL_BACK;
        let stay = self.stays.last_mut().filter(|stay| stay.back.is_none());
        let Some(stay) = stay.filter(|_| stays && !self.is_undone) else {
            return;
        };
        stay.rethought = Some(why);
        self.phase = self.put_back(area);
    }

    /// Asks for the bytes to be moved again.
    pub fn again(&mut self, area: &Area) {
        self.asked = 0;
        self.phase = Phase::Asked;
        area.wanted.store(APPLY_AGAIN, Release);
    }

    /// Takes in the outcome of stopping all threads for it. They are not stopped again after the
    /// last attempt, or if the move can never succeed.
    pub fn answered(&mut self, area: &Area, done: Applied, last: bool) {
        let never = matches!(done, Applied::Never(_));
        if let Applied::Never(why) | Applied::NotNow(why) = done {
            self.hindrance = Some(why);
        }
        match area.state.load(Acquire) {
            FREE if never || last => area.state.store(REFUSED, Release),
            ROLLED_BACK if never => {
                area.wanted.store(NOTHING, Release);
                self.phase = Phase::Over;
            }
            _ => {}
        }
    }

    /// Address of its first page, and the length of its pages in bytes.
    pub const fn pages(&self) -> (u64, u64) {
        (self.proposal.page, self.proposal.len)
    }

    /// Whether other moves must wait for this one. If its threads are never seen to run, others
    /// wait only for some time.
    pub fn holds_up(&self, area: &Area) -> bool {
        if !is_on_its_way(area) {
            return self.is_unsettled();
        }
        self.asked <= PATIENCE_OF_OTHERS || area.state.load(Acquire) == APPLYING
    }

    /// No thread could be made to move the bytes. A thread that begins at this moment wins.
    pub fn give_up(&mut self, area: &Area) {
        let given_up = match area.wanted.load(Acquire) {
            APPLY => area.state.compare_exchange(FREE, REFUSED, AcqRel, Relaxed),
            _ => area
                .wanted
                .compare_exchange(APPLY_AGAIN, NOTHING, AcqRel, Relaxed),
        };
        if given_up.is_ok() {
            self.hindrance
                .get_or_insert_with(|| "none of its threads was seen to run".into());
            self.phase = Phase::Over;
        }
    }

    /// Takes in what has happened to the area since the last look.
    pub fn follow(&mut self, area: &Area, now: u64) {
        let state = area.state.load(Acquire);
        if state == REFUSED {
            self.phase = Phase::Over;
        }
        if !matches!(state, ACTIVE | ROLLED_BACK) {
            return;
        }
        let applied = area.applied.load(Relaxed);
        if self.stays.last().map(|s| s.applied) != Some(applied) {
            let faults = self.stays.iter().map(|s| s.faults);
            let faults_before = faults.fold(0, u64::saturating_add);
            self.stays.push(Stay {
                applied,
                took: area.took.load(Relaxed),
                faults_before,
                ..Stay::default()
            });
            self.phase = Phase::Settling {
                faults: 0,
                since: now,
            };
        }
        let Some(stay) = self.stays.last_mut() else {
            return;
        };
        if stay.back.is_some() {
            // The library was asked to move the bytes again and could not: their new place is in
            // use.
            if area.spoilt.load(Relaxed) != 0 {
                self.phase = Phase::Over;
            }
            return;
        }
        // The program may write any number there.
        stay.count(now, area.faults.load(Relaxed));
        if state == ROLLED_BACK {
            let reason = area.reason.load(Relaxed);
            stay.back = Some((reason, area.rolled_back.load(Relaxed)));
            let spoilt = area.spoilt.load(Relaxed) != 0;
            // First another layout is looked for.
            let least = u64::from(stay.rethought.is_some()) * RETHINK.as_nanos() as u64;
            let pause = plan::pause(&self.past()).filter(|_| !spoilt);
            let pause = pause.map(|pause| pause.max(least));
            self.phase = pause.map_or(Phase::Over, |pause| Phase::Resting { until: now + pause });
        }
    }

    /// The stays that have ended, in the form that `sunder_plan` takes.
    fn past(&self) -> Vec<plan::Stay> {
        let over = self
            .stays
            .iter()
            .filter_map(|stay| Some((stay, stay.back?)));
        over.map(|(stay, (reason, at))| plan::Stay {
            threads: self.proposal.threads.len(),
            gain: stay.gain(),
            lasted_ns: at.saturating_sub(stay.applied),
            // The program may have written any numbers.
            cost_ns: stay
                .took
                .saturating_mul(2)
                .saturating_add(stay.faults.saturating_mul(FAULT.as_nanos() as u64)),
            ended: match reason {
                BY_TOOL if stay.rethought == Some(Rethought::Crossed) => EndReason::Impossible,
                BY_TOOL if stay.rethought.is_some() => EndReason::Hindered,
                BY_TOOL => EndReason::NoGain,
                BY_KERNEL | BY_MAPPING | BY_FORK | BY_END | BY_OWNER => EndReason::Hindered,
                _ => EndReason::Impossible,
            },
        })
        .collect()
    }
}

#[cfg(test)]
mod tests;
