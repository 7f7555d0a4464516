//! Measures how threads get on before and after a move, and judges what it gained.

use super::{Attempt, Earlier, Next, Phase, elapsed};
use crate::layout::layout;
use crate::mark::Mark;
use crate::proposal::Proposal;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;
use sunder_access::{ProcessId, ThreadId, Time};
use sunder_gain::gained::{mean, pays};
use sunder_gain::gauge::{Bytes, Gauge, Windows, gains};
use sunder_wire::remap::{Area, ROLL_BACK};

/// Threads have found their copies of code when none has faulted for this long.
const QUIET: Duration = Duration::from_millis(5);

/// At the latest this long after the move, threads are measured.
const SETTLED: Duration = Duration::from_millis(40);

/// A window of measurement that is not complete by then, as threads do not run, is given up.
const PATIENCE: Duration = Duration::from_secs(1);

/// Windows in which no value is seen to count progress, after which no further one is tried.
pub(super) const MOST_EMPTY: u32 = 3;

/// How long one search for contention lasts.
const SEARCH_TIME: Duration = Duration::from_millis(100);

/// Pause between two searches for contention.
const SEARCH_PAUSE: Duration = Duration::from_millis(400);

impl Attempt {
    /// Begins to measure once threads have found their copies of code.
    pub(super) fn settle(
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
        self.window(process, now, Earlier::default())
    }

    /// Begins a window of measurement, if the threads were measured before the move.
    fn window(&mut self, process: ProcessId, now: u64, earlier: Earlier) -> Phase {
        let threads: Vec<ThreadId> = self.before.keys().copied().collect();
        if threads.is_empty() {
            self.unmeasured = Some("its threads could not be measured before");
            return Phase::Settled;
        }
        match Gauge::begin(process, &threads) {
            Some(gauge) => Phase::Measuring {
                gauge,
                since: now,
                earlier,
            },
            None => {
                self.unmeasured = Some("its threads had ended, or could not be measured");
                Phase::Settled
            }
        }
    }

    pub(super) fn measure(
        &mut self,
        area: &Area,
        process: ProcessId,
        now: u64,
        (mut gauge, since): (Gauge, u64),
        earlier: Earlier,
    ) -> Phase {
        gauge.read(&self.moved_bytes(area));
        if !gauge.is_enough() && elapsed(since, now) < PATIENCE {
            return Phase::Measuring {
                gauge,
                since,
                earlier,
            };
        }
        self.judge(area, process, now, gauge.end(), earlier)
    }

    /// Decides by a window after the move whether the bytes stay. One that shows no gain is followed
    /// by another, which must show one; one that shows nothing is, too, some times.
    pub(super) fn judge(
        &mut self,
        area: &Area,
        process: ProcessId,
        now: u64,
        after: Windows,
        earlier: Earlier,
    ) -> Phase {
        let found = gains(&self.before, &after);
        let gain = mean(&found);
        let Some((stay, before)) = self.stays.split_last_mut() else {
            return Phase::Settled;
        };
        let earlier_gains: Vec<_> = before
            .iter()
            .flat_map(|stay| &stay.gains)
            .copied()
            .collect();
        let pays = pays(&found, &earlier_gains);
        if pays || gain > stay.gain() {
            stay.gains = found;
        }
        if pays || self.stays_anyway {
            return Phase::Settled;
        }
        if earlier.loss {
            return self.put_back(area);
        }
        let earlier = earlier.and(gain.is_some());
        if gain.is_none() && earlier.windows >= MOST_EMPTY {
            self.unmeasured = Some("they changed no value by steady amounts");
            return Phase::Settled;
        }
        self.window(process, now, earlier)
    }

    /// Asks for the bytes to go back, because the move does not pay.
    pub(super) fn put_back(&mut self, area: &Area) -> Phase {
        self.asked = 0;
        area.wanted.store(ROLL_BACK, Release);
        Phase::Settled
    }

    /// Looks for contention, and measures the threads meanwhile.
    pub(super) fn look(
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
            let over = elapsed(since, now) > SEARCH_TIME;
            let phase = if over {
                Phase::Resting {
                    until: Time(now).after(SEARCH_PAUSE).0,
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

    /// The present places of the bytes of its groups.
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
