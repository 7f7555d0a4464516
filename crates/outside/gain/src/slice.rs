//! One comparison: a thread is measured for some milliseconds beside its rivals, and then while they
//! are stopped. Called by `experiment`. It must let all threads go on before it returns.

use crate::gauge::{Bytes, Gauge, Windows, gain_alone};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sunder_access::{ProcessId, ThreadId};
use sunder_observe::PerfRefusal;
use sunder_observe::proc::waited_for_processor;
use sunder_plan::progress::Gain;
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
    let without_processor = WithoutProcessor::begin(process, rivals);
    let beside = match window(process, subject, own, reading, PATIENCE_BESIDE) {
        Ok(beside) => beside,
        Err(other) => return (other, Duration::ZERO),
    };
    let unopposed = without_processor.end();
    let began = Instant::now();
    match without(process, subject, rivals, own, reading) {
        Ok(alone) => {
            let held = began.elapsed();
            let gain = gain_alone(subject, &beside, &alone);
            let ratio = |gain: Gain| Compared::Ratio(opposed(gain.ratio, unopposed));
            (gain.map_or(Compared::NoClock, ratio), held)
        }
        Err(other) => (other, began.elapsed()),
    }
}

/// The ratio that a thread would have if one of its rivals had always run. For a part `unopposed` of
/// the time beside them none had a processor, mostly because we did, and the thread got on as it
/// does without them.
fn opposed(ratio: f64, unopposed: f64) -> f64 {
    let unopposed = unopposed.clamp(0.0, MOST_UNOPPOSED);
    let speed = (1.0 / ratio - unopposed) / (1.0 - unopposed);
    1.0 / speed.max(LEAST_SPEED)
}

/// With less left to go by, the rest would be a small difference of large numbers.
const MOST_UNOPPOSED: f64 = 0.5;
/// No thread is so slow beside its rivals; a lesser speed is an error of measurement.
const LEAST_SPEED: f64 = 0.02;

/// How long rivals wait for a processor.
struct WithoutProcessor<'a> {
    process: ProcessId,
    rivals: &'a [ThreadId],
    before: Vec<Option<Duration>>,
    since: Instant,
}

impl<'a> WithoutProcessor<'a> {
    fn begin(process: ProcessId, rivals: &'a [ThreadId]) -> Self {
        let waited = rivals.iter().map(|&r| waited_for_processor(process, r));
        Self {
            process,
            rivals,
            before: waited.collect(),
            since: Instant::now(),
        }
    }

    /// The share of the time since the beginning in which all rivals waited, if they did so
    /// independently of each other.
    fn end(self) -> f64 {
        let time = self.since.elapsed().as_secs_f64();
        let shares = self
            .rivals
            .iter()
            .zip(&self.before)
            .map(|(&rival, &before)| {
                let waited = waited_for_processor(self.process, rival).zip(before);
                let waited = waited.map_or(Duration::ZERO, |(now, then)| now.saturating_sub(then));
                (waited.as_secs_f64() / time).min(1.0)
            });
        shares.product()
    }
}

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
        near(opposed(4.0, 0.0), 4.0);
        // A tenth of the time at full speed and the rest at a quarter: 0.1 + 0.9 / 4 = 0.325.
        near(opposed(1.0 / 0.325, 0.1), 4.0);
        // Nothing is left: the thread had no speed beside its rivals.
        near(opposed(10.0, 0.5), 50.0);
        near(opposed(1.0, 1.0), 1.0);
    }
}
