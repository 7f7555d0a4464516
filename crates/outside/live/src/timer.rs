//! Samples from timers inside the target, for machines whose kernel refuses perf samples. The
//! runtime library writes them into the segment of each program image, from which they are read
//! here.

use crate::observer::{Intake, Observer};
use sunder_observe::{RawSample, Registers};
use sunder_pipeline::{Heap, Session};

/// The timer observer. It holds nothing: the samples are in the segments.
pub struct Timer;

impl Observer for Timer {
    fn drain(&mut self, intake: &mut Intake<'_>, _last: bool) {
        for heap in intake.session.heaps() {
            take_samples(intake.session, &heap);
        }
    }

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
