//! Which observer to use, and how to open it: the one place that knows all of them by name.

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

/// What the user wants.
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
    /// What threads change while each computes on pages of its own.
    Isolate,
}

/// An observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The kernel's samples.
    Perf,
    /// Timers inside the target.
    Timer,
    /// The PMU's memory events.
    Pmu,
    /// Comparisons of pages, by threads that are isolated.
    Isolate,
}

/// An opened observer, for the report.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// As the result has it.
    pub name: &'static str,
    /// Highest and lowest samples a second and thread.
    pub frequencies: (u32, u32),
}

/// What `choice` means on this machine. `limits` learns why a better one was
/// not taken.
///
/// # Errors
/// If the wanted one is not to be had.
pub fn choose(choice: ObserverChoice, limits: &mut Vec<Limit>) -> Result<Kind> {
    // Each probe takes part of the program's time: only what is asked.
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

/// The kernel's first event, begun to be opened, if `choice` comes to the kernel's
/// samples and that can be said without it. For those who do not wait for it.
pub fn first_event(choice: ObserverChoice) -> Option<FirstEvent> {
    let clock = match choice {
        ObserverChoice::Perf => true,
        ObserverChoice::Auto => !machine::probe_memory_events().available,
        _ => false,
    };
    let first = clock.then(FirstEvent::open).flatten();
    // A program that has our real-time priority may leave the kernel no CPU to open it.
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

/// The kernel's samples, few until something is in doubt, of a child that waits to be let
/// go; or those to come, if the kernel takes its time over `first`.
///
/// # Errors
/// If the kernel refuses them.
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

/// Opens the observer on a child that waits to be let go.
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
            // The kernel looks at timers of CPU time at its ticks only.
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

/// Memory events a second, thread and event: each costs an interrupt of some
/// microseconds, as a sample of the clock does.
const PMU_FREQUENCY: u32 = 1000;

/// Highest and lowest frequency of a plan.
pub fn range(plan: &FrequencyPlan) -> (u32, u32) {
    let all = plan.frequencies();
    let (highest, lowest) = (all.first(), all.last());
    (
        highest.copied().unwrap_or_default(),
        lowest.copied().unwrap_or_default(),
    )
}

/// The timer observer has no rings of the kernel's between it and us: one
/// frequency serves. A signal costs some 3 us.
pub fn timer_frequency(asked: Option<u32>) -> u32 {
    asked.unwrap_or(1000)
}

/// How often the kernel's clock ticks: its coarse clock moves once a tick.
fn ticks_per_second() -> u32 {
    let mut tick = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `tick` is a valid place for the answer.
    let known = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut tick) } == 0;
    match u32::try_from(tick.tv_nsec) {
        Ok(nanoseconds) if known && nanoseconds > 0 => (1_000_000_000 / nanoseconds).max(1),
        _ => u32::MAX,
    }
}

/// How many descriptors, at most `wanted`, can be spent beside the observers'
/// own: an eighth of what this process may have.
pub fn descriptors(wanted: u32) -> u32 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place for the answer.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    let share = u32::try_from(limit.rlim_cur / 8).unwrap_or(u32::MAX);
    if known { wanted.min(share) } else { 2 }
}
