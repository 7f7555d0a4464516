//! Samples from timers inside the target, for machines whose kernel refuses perf samples. The
//! runtime library writes them into the segment of each program image, from which they are read
//! here.

use crate::kind::{Chosen, Kind, Measure, ObserverChoice, OpenOptions, Opened};
use crate::observer::LiveObserver;
use anyhow::Result;
use std::convert::Infallible;
use sunder_observe::{RawSample, Registers};
use sunder_pipeline::{Heap, Observer, Session};

/// The timer observer before it is opened.
pub static KIND: Kind = Kind {
    choice: ObserverChoice::Timer,
    name: "timer",
    about: "Samples from timers inside the program, where perf is refused",
    in_brief: "samples taken by timers inside the program",
    rank: Some(3),
    refusal: || None,
    instead: "",
    missed: |_| None,
    measure: Measure::Time,
    needs_library: true,
    needs_segment: true,
    open,
};

/// The timer observer. It holds nothing: the samples are in the segments.
struct Timer;

fn open(options: &OpenOptions) -> Result<Opened> {
    // The kernel checks timers of CPU time only at its clock ticks.
    let hz = frequency(options.frequency).min(ticks_per_second());
    let chosen = Chosen {
        name: KIND.name,
        frequencies: (hz, hz),
    };
    Ok((Box::new(Timer), chosen))
}

/// Samples per second and thread. There is no ring buffer of the kernel that could overflow, so
/// one frequency serves the whole run. A signal costs about 3 us.
pub fn frequency(chosen: Option<u32>) -> u32 {
    chosen.unwrap_or(1000)
}

/// The frequency of the kernel's clock tick; its coarse clock advances once a tick.
fn ticks_per_second() -> u32 {
    let mut tick = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `tick` is a valid place for the result.
    let known = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut tick) } == 0;
    match u32::try_from(tick.tv_nsec) {
        Ok(nanoseconds) if known && nanoseconds > 0 => (1_000_000_000 / nanoseconds).max(1),
        _ => u32::MAX,
    }
}

impl Observer for Timer {
    type Error = Infallible;

    fn drain(&mut self, session: &mut Session) -> Result<(), Infallible> {
        for heap in session.heaps() {
            take_samples(session, &heap);
        }
        Ok(())
    }
}

impl LiveObserver for Timer {
    fn is_inside(&self) -> bool {
        true
    }
}

/// Hands over the samples that have come in the segment of an image.
pub fn take_samples(session: &mut Session, heap: &Heap) {
    let process = heap.process;
    heap.segment.drain_samples(&mut |s| {
        session.sample(&RawSample {
            time: s.time,
            process,
            thread: s.thread,
            cpu: s.cpu,
            period_ns: s.period_ns,
            registers: Registers {
                general: s.registers,
                ip: s.ip,
            },
        });
    });
}
