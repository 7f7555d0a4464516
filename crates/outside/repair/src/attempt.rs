//! The life of one repair: moved, settled, measured, kept or put back, moved again.
//! The pipeline lets it live at each step; it looks at its area and says what is to be
//! wanted next. It asks no thread and judges no line itself.

use super::attach::Applied;
use super::choose::Proposal;
use super::gauge::{Bytes, Gauge, Windows, gains};
use super::layout::layout;
use super::mark::Mark;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;
use sunder_access::{Mappings, ProcessId, ThreadId, Time};
use sunder_findings::MovedGroup;
use sunder_plan::progress::{Gain, WORTH_KEEPING};
use sunder_plan::remap::{self as plan, EndReason};
use sunder_wire::remap::{
    ACTIVE, APPLY, APPLY_AGAIN, APPLYING, Area, BY_FAULTS, BY_FORK, BY_KERNEL, BY_MAPPING, BY_TOOL,
    FREE, NOTHING, REFUSED, ROLL_BACK, ROLLED_BACK,
};

/// Threads have found their copies of code when none has faulted for so long.
const QUIET: Duration = Duration::from_millis(5);
/// They are measured then or so long after the move.
const SETTLED: Duration = Duration::from_millis(40);
/// A window that has no end by then, since threads do not run, is given up.
const PATIENCE: Duration = Duration::from_secs(1);
/// Contention is looked for so long at a time.
const LOOK_FOR: Duration = Duration::from_millis(100);
/// And not looked for so long between.
const LOOK_AWAY: Duration = Duration::from_millis(400);
/// Threads are asked in so many looks before others are moved meanwhile.
const PATIENCE_OF_OTHERS: u32 = 20;
/// What a fault costs its thread.
const FAULT: Duration = Duration::from_micros(3);

/// From one reading of the clock to another.
const fn elapsed(from: u64, to: u64) -> Duration {
    Time(to).since(Time(from))
}

/// One time that the bytes were moved.
#[derive(Clone, Debug, Default)]
pub struct Stay {
    /// When, on the monotonic clock.
    pub applied: u64,
    /// How long moving took, in ns.
    pub took: u64,
    /// Faults on the area before.
    faults_before: u64,
    /// Faults since.
    pub faults: u64,
    /// What was gained, by thread; empty if that is not known.
    pub gains: Vec<(ThreadId, Gain)>,
    /// Why it was put back, by number, and when.
    pub back: Option<(u32, u64)>,
}

impl Stay {
    /// How many times as fast threads got on.
    pub fn gain(&self) -> Option<f64> {
        mean(&self.gains)
    }
}

/// The geometric mean: where one thread got on twice as fast and the other half as fast,
/// nothing was gained.
fn mean(gains: &[(ThreadId, Gain)]) -> Option<f64> {
    let sum: f64 = gains.iter().map(|g| g.1.ratio.ln()).sum();
    (!gains.is_empty()).then(|| (sum / gains.len() as f64).exp())
}

/// Where it stands.
enum Phase {
    /// A thread was asked to move it.
    Asked,
    /// Threads find their way.
    Settling { faults: u64, since: u64 },
    /// They are measured; a window without a gain is followed by another.
    Measuring {
        gauge: Gauge,
        since: u64,
        second: bool,
    },
    /// It is where it is.
    Settled,
    /// Put back, and moved again from then on if the bytes are contended.
    Resting { until: u64 },
    /// Contention is measured again.
    Looking {
        gauge: Option<Gauge>,
        mark: Mark,
        since: u64,
    },
    /// It stays as it is.
    Over,
}

/// What is to be done for it.
pub enum Next {
    /// Nothing.
    Nothing,
    /// A mark of who has used its lines so far.
    Mark,
    /// To be moved again, if that is still allowed: contention is as it was.
    Again,
}

/// Whether a thread is to move it, or does.
pub fn is_on_its_way(area: &Area) -> bool {
    let state = area.state.load(Acquire);
    let again = area.wanted.load(Acquire) == APPLY_AGAIN;
    matches!(state, FREE | APPLYING) || again && state == ROLLED_BACK
}

/// One range of pages that was to be moved.
pub struct Attempt {
    /// What and why.
    pub proposal: Proposal,
    /// Its area; none in a dry run.
    pub area: Option<usize>,
    /// Groups as they moved.
    pub groups: Vec<MovedGroup>,
    /// When it was decided.
    pub decided: Time,
    /// What the program had mapped when it was last to be moved.
    pub mappings: Mappings,
    /// How often threads were asked to move it.
    pub asked: u32,
    /// Every time that it was moved.
    pub stays: Vec<Stay>,
    /// What was in the way when all threads were stopped for it.
    pub hindrance: Option<String>,
    /// Why it was not measured.
    pub unmeasured: Option<&'static str>,
    before: Windows,
    phase: Phase,
    /// So many stays were told to be over.
    told_over: usize,
}

impl Attempt {
    /// One that a thread is asked to move. `before` is how its threads get on.
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
            before,
            phase: Phase::Asked,
            told_over: 0,
        }
    }

    /// Whether its bytes have gone back since this was asked, for a reason that another
    /// layout might not meet.
    pub fn has_gone_back(&mut self) -> bool {
        let mut over = self.stays.iter().filter_map(|stay| stay.back);
        let new = over.clone().count() > self.told_over;
        self.told_over = over.clone().count();
        let last = over.next_back().map(|back| back.0);
        new && matches!(last, Some(BY_TOOL | BY_FAULTS | BY_KERNEL | BY_MAPPING))
    }

    /// Whether something is measured, so that the next look should come soon.
    pub fn is_measuring(&self) -> bool {
        matches!(
            self.phase,
            Phase::Settling { .. }
                | Phase::Measuring { .. }
                | Phase::Looking { gauge: Some(_), .. }
        )
    }

    /// Whether its threads are being asked, or find their way.
    pub fn is_unsettled(&self) -> bool {
        matches!(self.phase, Phase::Asked | Phase::Settling { .. })
    }

    /// A moment has passed. `contended` says whether threads have contended for its
    /// lines since a mark.
    pub fn step(
        &mut self,
        area: &Area,
        process: ProcessId,
        now: u64,
        contended: &mut dyn FnMut(&Proposal, &Mark) -> Vec<Bytes>,
    ) -> Next {
        self.follow(area, now);
        match std::mem::replace(&mut self.phase, Phase::Settled) {
            Phase::Settling { faults, since } => {
                self.phase = self.settle(area, process, now, faults, since);
            }
            Phase::Measuring {
                gauge,
                since,
                second,
            } => self.phase = self.measure(area, process, now, gauge, since, second),
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

    /// Who has used its lines so far: contention is measured from here on.
    pub fn look_from(&mut self, mark: Mark, now: u64) {
        self.phase = Phase::Looking {
            gauge: None,
            mark,
            since: now,
        };
    }

    /// Nothing more is done.
    pub fn end(&mut self) {
        self.phase = Phase::Over;
    }

    /// A thread is to move it again.
    pub fn again(&mut self, area: &Area) {
        self.asked = 0;
        self.phase = Phase::Asked;
        area.wanted.store(APPLY_AGAIN, Release);
    }

    /// What came of stopping all threads for it; nobody stops them again after the last
    /// time, or if nothing can come of it.
    pub fn told(&mut self, area: &Area, done: Applied, last: bool) {
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

    /// Start and bytes of its pages.
    pub const fn pages(&self) -> (u64, u64) {
        (self.proposal.page, self.proposal.len)
    }

    /// Whether nothing else is to be moved before something has come of it. Threads that
    /// are never seen to run hold up what is other threads' only for so long.
    pub fn holds_up(&self, area: &Area) -> bool {
        if !is_on_its_way(area) {
            return self.is_unsettled();
        }
        self.asked <= PATIENCE_OF_OTHERS || area.state.load(Acquire) == APPLYING
    }

    /// No thread could be made to move it. One that begins just now wins.
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

    /// What has become of the area since the last look.
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
            let faults_before = self.stays.iter().map(|s| s.faults).sum();
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
            // Asked to move again, in vain.
            if area.spoilt.load(Relaxed) != 0 {
                self.phase = Phase::Over;
            }
            return;
        }
        stay.faults = area.faults.load(Relaxed) - stay.faults_before;
        if state == ROLLED_BACK {
            let reason = area.reason.load(Relaxed);
            stay.back = Some((reason, area.rolled_back.load(Relaxed)));
            let spoilt = area.spoilt.load(Relaxed) != 0;
            let pause = plan::pause(&self.past()).filter(|_| !spoilt);
            self.phase = pause.map_or(Phase::Over, |pause| Phase::Resting { until: now + pause });
        }
    }

    /// Its stays that are over, as the plan sees them.
    fn past(&self) -> Vec<plan::Stay> {
        let over = self
            .stays
            .iter()
            .filter_map(|stay| Some((stay, stay.back?)));
        over.map(|(stay, (reason, at))| plan::Stay {
            threads: self.proposal.threads.len(),
            gain: stay.gain(),
            lasted_ns: at.saturating_sub(stay.applied),
            cost_ns: 2 * stay.took + stay.faults * FAULT.as_nanos() as u64,
            ended: match reason {
                BY_TOOL => EndReason::NoGain,
                BY_KERNEL | BY_MAPPING | BY_FORK => EndReason::Hindered,
                _ => EndReason::Impossible,
            },
        })
        .collect()
    }

    /// Measuring begins when threads have found their copies.
    fn settle(
        &mut self,
        area: &Area,
        process: ProcessId,
        now: u64,
        faults: u64,
        since: u64,
    ) -> Phase {
        let count = area.faults.load(Relaxed);
        let applied = area.applied.load(Relaxed);
        if count != faults && elapsed(applied, now) < SETTLED {
            return Phase::Settling {
                faults: count,
                since: now,
            };
        }
        if elapsed(since, now) < QUIET && elapsed(applied, now) < SETTLED {
            return Phase::Settling { faults, since };
        }
        self.window(process, now, false)
    }

    /// A window begins, if the threads were measured before.
    fn window(&mut self, process: ProcessId, now: u64, second: bool) -> Phase {
        let threads: Vec<ThreadId> = self.before.keys().copied().collect();
        if threads.is_empty() {
            self.unmeasured = Some("its threads could not be measured before");
            return Phase::Settled;
        }
        match Gauge::begin(process, &threads) {
            Some(gauge) => Phase::Measuring {
                gauge,
                since: now,
                second,
            },
            None => {
                self.unmeasured = Some("its threads had ended, or could not be measured");
                Phase::Settled
            }
        }
    }

    fn measure(
        &mut self,
        area: &Area,
        process: ProcessId,
        now: u64,
        mut gauge: Gauge,
        since: u64,
        second: bool,
    ) -> Phase {
        gauge.read(&self.moved_bytes(area));
        if !gauge.is_enough() && elapsed(since, now) < PATIENCE {
            return Phase::Measuring {
                gauge,
                since,
                second,
            };
        }
        self.judge(area, process, now, gauge.end(), second)
    }

    /// What follows from a window after the move.
    fn judge(
        &mut self,
        area: &Area,
        process: ProcessId,
        now: u64,
        after: Windows,
        second: bool,
    ) -> Phase {
        let found = gains(&self.before, &after);
        let Some(gain) = mean(&found) else {
            self.unmeasured = Some("they changed no value by steady amounts");
            return Phase::Settled;
        };
        let Some(stay) = self.stays.last_mut() else {
            return Phase::Settled;
        };
        if stay.gain().is_none_or(|known| gain > known) {
            stay.gains = found;
        }
        if gain >= WORTH_KEEPING {
            return Phase::Settled;
        }
        if second {
            self.asked = 0;
            area.wanted.store(ROLL_BACK, Release);
            return Phase::Settled;
        }
        self.window(process, now, true)
    }

    /// Whether it is contended again, while its threads are measured.
    fn look(
        &mut self,
        process: ProcessId,
        now: u64,
        gauge: Option<Gauge>,
        mark: Mark,
        since: u64,
        contended: &mut dyn FnMut(&Proposal, &Mark) -> Vec<Bytes>,
    ) -> (Phase, Next) {
        let bytes = contended(&self.proposal, &mark);
        if bytes.is_empty() {
            let over = elapsed(since, now) > LOOK_FOR;
            let phase = if over {
                Phase::Resting {
                    until: Time(now).after(LOOK_AWAY).0,
                }
            } else {
                Phase::Looking { gauge, mark, since }
            };
            return (phase, Next::Nothing);
        }
        let mut threads: Vec<ThreadId> = bytes.iter().map(|b| b.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        let gauge = gauge.or_else(|| Gauge::begin(process, &threads));
        let Some(mut gauge) = gauge else {
            self.before = Windows::new();
            self.proposal.threads = threads;
            return (Phase::Over, Next::Again);
        };
        gauge.read(&bytes);
        if !gauge.is_enough() && elapsed(since, now) < PATIENCE {
            let gauge = Some(gauge);
            return (Phase::Looking { gauge, mark, since }, Next::Nothing);
        }
        self.before = gauge.end();
        self.proposal.threads = threads;
        (Phase::Over, Next::Again)
    }

    /// Where the bytes of its groups are.
    fn moved_bytes(&self, area: &Area) -> Vec<Bytes> {
        let at = area.at.load(Relaxed);
        let layout = layout(&self.proposal).unwrap_or_default();
        let groups = self.proposal.groups.iter().zip(layout);
        groups
            .flat_map(|(group, to)| {
                group.threads.iter().map(move |&thread| Bytes {
                    thread: ThreadId(thread),
                    original: self.proposal.page + group.offset,
                    at: at + to,
                    len: group.size,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
