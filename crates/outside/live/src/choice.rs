//! Chooses an observer and opens it. This is the only place that knows all observers by name.

use crate::observer::Observer;
use crate::perf::{Coming, Perf};
use crate::timer::Timer;
use anyhow::{Context, Result, bail};
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_findings::Limit;
use sunder_observe::machine;
use sunder_observe::perf::{FirstEvent, FrequencyPlan, PerfSampler};
use sunder_observe::pmu::PmuSampler;

/// The observer that the user asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObserverChoice {
    /// The best that this machine offers.
    #[default]
    Auto,
    /// Samples from the kernel's perf interface.
    Perf,
    /// Samples from timers inside the program.
    Timer,
    /// Memory events of the processor's performance monitoring unit.
    Pmu,
    /// Comparisons of pages: each isolated thread computes on pages of its own.
    Isolate,
}

/// An observer that can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Samples from the kernel's perf interface.
    Perf,
    /// Timers inside the target.
    Timer,
    /// The PMU's memory events.
    Pmu,
    /// Comparisons of the pages of isolated threads.
    Isolate,
}

/// An opened observer, as the report describes it.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// Its name in the result.
    pub name: &'static str,
    /// Highest and lowest samples a second and thread.
    pub frequencies: (u32, u32),
}

/// The observer that `choice` means on this machine. If `Auto` has to do without a better one,
/// the reason is added to `limits`.
///
/// # Errors
/// If the observer that was asked for does not work here.
pub fn choose(choice: ObserverChoice, limits: &mut Vec<Limit>) -> Result<Kind> {
    // Each probe delays the start of the program, so only what `choice` needs is probed.
    match choice {
        ObserverChoice::Timer => Ok(Kind::Timer),
        ObserverChoice::Isolate => Ok(Kind::Isolate),
        ObserverChoice::Perf => {
            let registers = machine::probe_user_registers();
            if registers.available {
                return Ok(Kind::Perf);
            }
            bail!(
                "the perf observer does not work here: {}; --observer timer does without",
                registers.detail
            )
        }
        ObserverChoice::Pmu => {
            let events = machine::probe_memory_events();
            if events.available {
                return Ok(Kind::Pmu);
            }
            bail!(
                "the pmu observer does not work here: {}; --observer auto takes what there is",
                events.detail
            )
        }
        ObserverChoice::Auto => {
            if machine::probe_memory_events().available {
                return Ok(Kind::Pmu);
            }
            let registers = machine::probe_user_registers();
            if registers.available {
                return Ok(Kind::Perf);
            }
            limits.push(Limit::TimersForPerf {
                why: registers.detail,
            });
            Ok(Kind::Timer)
        }
    }
}

/// Begins to open the kernel's first perf event, if `choice` leads to the perf observer.
/// Opening it can take long; [`open_after`] lets the program run meanwhile. `None` if another
/// observer is meant, or if the event can't be opened.
pub fn first_event(choice: ObserverChoice) -> Option<FirstEvent> {
    let clock = match choice {
        ObserverChoice::Perf => true,
        ObserverChoice::Auto => !machine::probe_memory_events().available,
        _ => false,
    };
    let first = clock.then(FirstEvent::open).flatten();
    // A program that inherits our real-time priority may leave the kernel no CPU to open it.
    while is_real_time() && first.as_ref().is_some_and(|first| !first.is_open()) {
        std::thread::sleep(Duration::from_micros(200));
    }
    first
}

fn is_real_time() -> bool {
    // SAFETY: asks for the calling thread's policy; no memory is passed.
    let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
    matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR)
}

/// Opens the perf observer, at a low frequency until a line is suspected, on a child that has
/// not yet been let go. If `first` is not open yet, the samples begin later.
///
/// # Errors
/// If the kernel refuses the samples.
pub fn open_after(
    first: FirstEvent,
    child: ProcessId,
    frequency: Option<u32>,
) -> Result<(Box<dyn Observer>, Chosen)> {
    let plan = frequency.map_or_else(FrequencyPlan::watchful, FrequencyPlan::fixed);
    let chosen = Chosen {
        name: "perf",
        frequencies: range(&plan),
    };
    let perf = if first.is_open() {
        Perf::Sampling(Box::new(PerfSampler::for_child(child, plan, false)?))
    } else {
        Perf::Coming(Coming { first, plan })
    };
    Ok((Box::new(perf), chosen))
}

/// Opens the observer on a child that has not yet been let go.
///
/// # Errors
/// If the kernel refuses it.
pub fn open(
    kind: Kind,
    child: ProcessId,
    frequency: Option<u32>,
    follow_children: bool,
) -> Result<(Box<dyn Observer>, Chosen)> {
    Ok(match kind {
        Kind::Perf => {
            let plan = frequency.map_or_else(FrequencyPlan::default, FrequencyPlan::fixed);
            let chosen = Chosen {
                name: "perf",
                frequencies: range(&plan),
            };
            let sampler = PerfSampler::for_child(child, plan, follow_children)?;
            (Box::new(Perf::Sampling(Box::new(sampler))), chosen)
        }
        Kind::Timer => {
            // The kernel checks timers of CPU time only at its clock ticks.
            let hz = timer_frequency(frequency).min(ticks_per_second());
            let chosen = Chosen {
                name: "timer",
                frequencies: (hz, hz),
            };
            (Box::new(Timer), chosen)
        }
        Kind::Isolate => bail!("the isolate observer is for `sunder detect` only"),
        Kind::Pmu => {
            let hz = frequency.unwrap_or(PMU_FREQUENCY);
            let sampler = PmuSampler::for_child(child, hz, follow_children)
                .context("cannot open the PMU's memory events")?;
            let chosen = Chosen {
                name: "pmu",
                frequencies: (hz, hz),
            };
            (Box::new(sampler), chosen)
        }
    })
}

/// Memory events per second, thread and kind of event. Each costs an interrupt of some
/// microseconds, as a sample of the clock does.
const PMU_FREQUENCY: u32 = 1000;

/// The highest and the lowest frequency of a plan.
pub fn range(plan: &FrequencyPlan) -> (u32, u32) {
    let all = plan.frequencies();
    let (highest, lowest) = (all.first(), all.last());
    (
        highest.copied().unwrap_or_default(),
        lowest.copied().unwrap_or_default(),
    )
}

/// The frequency of the timer observer. It has no ring buffer of the kernel that could
/// overflow, so one frequency serves the whole run. A signal costs about 3 us.
pub fn timer_frequency(asked: Option<u32>) -> u32 {
    asked.unwrap_or(1000)
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

/// The number of descriptors, at most `wanted`, that can be used in addition to the observers'
/// own: an eighth of this process's limit.
pub fn descriptors(wanted: u32) -> u32 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place for the result.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    let share = u32::try_from(limit.rlim_cur / 8).unwrap_or(u32::MAX);
    if known { wanted.min(share) } else { 2 }
}
