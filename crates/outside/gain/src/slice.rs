//! One comparison: a thread is measured for some milliseconds beside its rivals, and then while they
//! are stopped. Called by `experiment`. It must let all threads go on before it returns.

use crate::gauge::{Bytes, Gauge, Windows, gain_alone};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sunder_access::{ProcessId, ThreadId, Time};
use sunder_observe::{PerfRefusal, Presence, Turns};
use sunder_plan::progress::Alone;
use sunder_stop::{Held, StopError};

/// How the thread's progress is read.
///
/// While we read, we may have the processor of a rival, and the thread gets on better for a moment.
/// With two busy processors, readings of some 40 us each 300 us made contention look a sixth cheaper
/// than it is. So the kernel takes the readings where it can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// From registers, which the kernel records.
    #[default]
    Registers,
    /// The same for longer: where contention comes and goes within a millisecond, nothing grows
    /// steadily in a shorter time.
    Longer,
    /// Also from the stack and from bytes that the thread writes, which we read.
    Memory,
}

impl Reading {
    /// What to try where this shows no progress.
    pub const fn next(self) -> Self {
        match self {
            Self::Registers => Self::Longer,
            Self::Longer | Self::Memory => Self::Memory,
        }
    }

    /// How much of its own CPU time the thread is measured for in each half, in ms.
    const fn length(self) -> u64 {
        match self {
            Self::Registers => 5,
            Self::Longer => 16,
            Self::Memory => 24,
        }
    }

    /// One sample of the thread's registers per this much of its CPU time.
    const fn every(self) -> Duration {
        Duration::from_micros(match self {
            Self::Registers => 200,
            Self::Longer | Self::Memory => 800,
        })
    }

    /// Pause between two readings.
    const fn pause(self) -> Duration {
        match self {
            Self::Registers | Self::Longer => Duration::from_millis(self.length()),
            Self::Memory => Duration::from_micros(1_500),
        }
    }
}

/// The half without rivals is over after this many times the wanted time, even if the thread has not run
/// for that time.
const PATIENCE: u32 = 2;
/// The same beside the rivals, of whom nobody waits meanwhile. With many threads, it is one thread's turn
/// after some time.
const PATIENCE_BESIDE: u32 = 10;

/// What a comparison led to.
#[derive(Debug)]
pub enum Compared {
    /// How many times as fast the thread got on while its rivals were stopped.
    Ratio(f64),
    /// No value of the thread's counts its progress, or it did not run in both halves.
    NoClock,
    /// Without its rivals it waited for them, at a barrier for example, and what counted was the wait.
    Waits,
    /// Its rivals had no processor while it had one, for most of the time; they were not stopped.
    Unopposed,
    /// A thread could not be measured or stopped at the moment; it may have ended.
    NotNow,
    /// The kernel does not let us stop threads, or measure them.
    Refused(String),
}

/// Compares the progress of `subject` beside `rivals` and without them, and says for how long they
/// were held. `own` are bytes that only it writes.
pub fn compare(
    process: ProcessId,
    subject: ThreadId,
    rivals: &[ThreadId],
    own: &[Bytes],
    reading: Reading,
) -> (Compared, Duration) {
    let (beside, opposed_share) = match beside(process, subject, rivals, own, reading) {
        Ok(measured) => measured,
        Err(other) => return (other, Duration::ZERO),
    };
    if opposed_share < LEAST_OPPOSED {
        return (Compared::Unopposed, Duration::ZERO);
    }
    let began = Instant::now();
    match without(process, subject, rivals, own, reading) {
        Ok(alone) => {
            let held = began.elapsed();
            let compared = match gain_alone(subject, &beside, &alone) {
                Alone::Gain(gain) => Compared::Ratio(opposed(gain.ratio, opposed_share)),
                Alone::NoClock => Compared::NoClock,
                Alone::Waits => Compared::Waits,
            };
            (compared, held)
        }
        Err(other) => (other, began.elapsed()),
    }
}

/// What `subject` does while its rivals run, and the share of its time in which one of them had a
/// processor.
fn beside(
    process: ProcessId,
    subject: ThreadId,
    rivals: &[ThreadId],
    own: &[Bytes],
    reading: Reading,
) -> Result<(Windows, f64), Compared> {
    let mut all = rivals.to_vec();
    all.push(subject);
    let presence = Presence::begin(process, &all).map_err(|refusal| match refusal {
        PerfRefusal::Other { .. } => Compared::NotNow,
        _ => Compared::Refused(format!("its threads can't be measured: {refusal}")),
    })?;
    let windows = window(process, subject, own, reading, PATIENCE_BESIDE)?;
    let turns = presence.end().ok_or(Compared::NotNow)?;
    Ok((windows, share_opposed(&turns, subject)))
}

/// The share of the subject's time in which another of these threads had a processor, too.
fn share_opposed(all: &[Turns], subject: ThreadId) -> f64 {
    let (own, rivals): (Vec<&Turns>, Vec<&Turns>) = all.iter().partition(|t| t.thread == subject);
    let mut rivals: Vec<&Range<Time>> = rivals.iter().flat_map(|t| &t.turns).collect();
    rivals.sort_by_key(|turn| turn.start);
    let (mut ran, mut opposed) = (0, 0);
    for turn in own.iter().flat_map(|t| &t.turns) {
        ran += turn.end.nanoseconds_since(turn.start);
        let mut counted = turn.start;
        for rival in &rivals {
            let from = rival.start.max(counted);
            let until = rival.end.min(turn.end);
            opposed += until.nanoseconds_since(from);
            counted = counted.max(until);
        }
    }
    opposed as f64 / (ran.max(1)) as f64
}

/// The ratio that a thread would have if one of its rivals had always run, where one did so for `share`
/// of its time: for the rest it got on as it does without them.
fn opposed(ratio: f64, share: f64) -> f64 {
    let share = share.clamp(LEAST_OPPOSED, 1.0);
    let speed = (1.0 / ratio - (1.0 - share)) / share;
    1.0 / speed.max(LEAST_SPEED)
}

/// With less of the time beside rivals, the speed there would be a small difference of large numbers.
const LEAST_OPPOSED: f64 = 0.5;
/// No thread is so slow beside its rivals; a lesser speed is an error of measurement.
const LEAST_SPEED: f64 = 0.02;

/// What `subject` does while `rivals` are stopped.
fn without(
    process: ProcessId,
    subject: ThreadId,
    rivals: &[ThreadId],
    own: &[Bytes],
    reading: Reading,
) -> Result<Windows, Compared> {
    let held = Held::stop(process, rivals).map_err(|error| match error {
        StopError::Refused(why) => {
            Compared::Refused(format!("its threads can't be stopped: {why}"))
        }
        _ => Compared::NotNow,
    })?;
    let computing = held
        .threads()
        .iter()
        .filter(|t| t.computing_at().is_some())
        .count();
    with_busy_processors(computing, || {
        window(process, subject, own, reading, PATIENCE)
    })
}

fn window(
    process: ProcessId,
    subject: ThreadId,
    own: &[Bytes],
    reading: Reading,
    patience: u32,
) -> Result<Windows, Compared> {
    let length = Duration::from_millis(reading.length());
    let gauge = Gauge::sampling(process, &[subject], reading.every());
    let mut gauge = gauge.map_err(|refusal| match refusal {
        // Mostly, the thread has ended.
        PerfRefusal::Other { .. } => Compared::NotNow,
        _ => Compared::Refused(format!("its threads can't be measured: {refusal}")),
    })?;
    let began = Instant::now();
    let mut pause = reading.pause();
    loop {
        thread::sleep(pause);
        match reading {
            Reading::Registers | Reading::Longer => gauge.take(),
            Reading::Memory => gauge.read(own),
        }
        if gauge.has_run_for(length * 4 / 5) || began.elapsed() >= length * patience {
            return Ok(gauge.end());
        }
        pause = pause.min(Duration::from_millis(2));
    }
}

/// Calls `measure` while `count` threads of ours compute, as the stopped ones did: with a processor
/// idle, others run at a higher frequency, or have a core to themselves that two of them share.
fn with_busy_processors<T>(count: usize, measure: impl FnOnce() -> T) -> T {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..count.min(processors.saturating_sub(1)) {
            let compute = || {
                while !done.load(Ordering::Relaxed) {
                    std::hint::black_box(0u64);
                }
            };
            // Without room for another thread the processor stays idle.
            let _ = thread::Builder::new().spawn_scoped(scope, compute);
        }
        let measured = measure();
        done.store(true, Ordering::Relaxed);
        measured
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_an_opponent_is_taken_out() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
        near(opposed(4.0, 1.0), 4.0);
        // A tenth of the time at full speed and the rest at a quarter: 0.1 + 0.9 / 4 = 0.325.
        near(opposed(1.0 / 0.325, 0.9), 4.0);
        // Nothing is left: the thread had no speed beside its rivals.
        near(opposed(10.0, 0.5), 50.0);
        near(opposed(1.0, 0.5), 1.0);
    }

    #[test]
    fn a_thread_is_opposed_while_any_rival_has_a_processor() {
        let of = |thread: u32, turns: &[(u64, u64)]| Turns {
            thread: ThreadId(thread),
            turns: turns.iter().map(|t| Time(t.0)..Time(t.1)).collect(),
        };
        let share = |rivals: &[Turns]| {
            let mut all = vec![of(1, &[(0, 10), (20, 40), (90, 100)])];
            all.extend_from_slice(rivals);
            share_opposed(&all, ThreadId(1))
        };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
        near(share(&[]), 0.0);
        near(share(&[of(2, &[(0, 100)])]), 1.0);
        // 5 of the first turn, 10 of the second.
        near(share(&[of(2, &[(5, 15), (25, 35)])]), 15.0 / 40.0);
        // Two at once count once: 25 to 38, of 40.
        let two = [of(2, &[(25, 35)]), of(3, &[(30, 38)])];
        near(share(&two), 13.0 / 40.0);
    }
}
