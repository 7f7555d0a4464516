//! Memory events of the processor's performance monitoring unit (PMU), which carry addresses of
//! their own.

use crate::kind::{Chosen, Kind, Measure, ObserverChoice, OpenOptions, Opened};
use crate::observer::LiveObserver;
use anyhow::{Context, Result};
use std::convert::Infallible;
use std::time::Duration;
use sunder_observe::perf::Wait;
use sunder_observe::pmu::PmuSampler;
use sunder_observe::{ObserveError, machine};
use sunder_pipeline::{Observer, Session};

/// The PMU observer before it is opened.
pub static KIND: Kind = Kind {
    choice: ObserverChoice::Pmu,
    name: "pmu",
    about: "Memory events of the hardware's performance counters",
    in_brief: "memory events of the processor",
    rank: Some(1),
    refusal: || {
        let events = machine::probe_memory_events();
        (!events.available).then_some(events.detail)
    },
    instead: "--observer auto takes what there is",
    missed: |_| None,
    measure: Measure::Counts,
    needs_library: false,
    needs_segment: false,
    open,
};

/// Memory events per second, thread and kind of event. Each costs an interrupt of some
/// microseconds, as a sample of the clock does.
const FREQUENCY: u32 = 1000;

/// The PMU observer.
struct Pmu(PmuSampler);

fn open(options: &OpenOptions) -> Result<Opened> {
    let hz = options.frequency.unwrap_or(FREQUENCY);
    let sampler = PmuSampler::for_child(options.child, hz, options.follow_children)
        .context("cannot open the PMU's memory events")?;
    let chosen = Chosen {
        name: KIND.name,
        frequencies: (hz, hz),
    };
    Ok((Box::new(Pmu(sampler)), chosen))
}

impl Observer for Pmu {
    type Error = Infallible;

    fn drain(&mut self, session: &mut Session) -> Result<(), Infallible> {
        self.0.drain(&mut |event| session.event(event));
        Ok(())
    }

    fn finish(&mut self, session: &mut Session) -> Result<(), Infallible> {
        self.0.finish(&mut |event| session.event(event));
        Ok(())
    }
}

impl LiveObserver for Pmu {
    fn wait(&mut self, pause: &mut Duration) -> Result<Wait, ObserveError> {
        self.0.wait(*pause)
    }
}
