//! Samples of the kernel's perf interface, at once or as soon as the kernel allows them:
//! opening the first perf event waits for all CPUs, and the program need not wait for that.

use crate::kind::{Chosen, Kind, Measure, ObserverChoice, OpenOptions, Opened};
use crate::observer::{Attention, LiveObserver};
use anyhow::Result;
use std::convert::Infallible;
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_findings::Limit;
use sunder_observe::perf::{FirstEvent, FrequencyPlan, PerfSampler, Wait};
use sunder_observe::{ObserveError, machine};
use sunder_pipeline::{Observer, Session};

/// The perf observer before it is opened.
pub static KIND: Kind = Kind {
    choice: ObserverChoice::Perf,
    name: "perf",
    about: "Samples from the kernel's perf interface",
    in_brief: "samples taken by the kernel",
    rank: Some(2),
    refusal: || {
        let registers = machine::probe_user_registers();
        (!registers.available).then_some(registers.detail)
    },
    instead: "--observer timer does without",
    missed: |why| Some(Limit::TimersForPerf { why }),
    measure: Measure::Time,
    needs_library: false,
    needs_segment: false,
    open,
};

/// Pause between two checks whether the first event is open.
const ARRIVAL: Duration = Duration::from_millis(2);

/// The perf observer.
pub enum Perf {
    /// Samples are being taken.
    Sampling(Box<PerfSampler>),
    /// The first event is not open yet; the program runs meanwhile.
    Coming(Coming),
    /// The kernel refuses samples, for this reason.
    Refused(String),
}

/// What is needed to begin to sample later.
pub struct Coming {
    /// Samples can be taken once this event is open.
    pub first: FirstEvent,
    /// The frequencies of the samples.
    pub plan: FrequencyPlan,
}

fn open(options: &OpenOptions) -> Result<Opened> {
    let frequency = options.frequency;
    let plan = frequency.map_or_else(FrequencyPlan::default, FrequencyPlan::fixed);
    let chosen = chosen(&plan);
    let sampler = PerfSampler::for_child(options.child, plan, options.follow_children)?;
    Ok((Box::new(Perf::Sampling(Box::new(sampler))), chosen))
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
pub fn open_after(first: FirstEvent, child: ProcessId, frequency: Option<u32>) -> Result<Opened> {
    let plan = frequency.map_or_else(FrequencyPlan::watchful, FrequencyPlan::fixed);
    let chosen = chosen(&plan);
    let perf = if first.is_open() {
        Perf::Sampling(Box::new(PerfSampler::for_child(child, plan, false)?))
    } else {
        Perf::Coming(Coming { first, plan })
    };
    Ok((Box::new(perf), chosen))
}

fn chosen(plan: &FrequencyPlan) -> Chosen {
    Chosen {
        name: KIND.name,
        frequencies: range(plan),
    }
}

/// The highest and the lowest frequency of a plan.
pub fn range(plan: &FrequencyPlan) -> (u32, u32) {
    let all = plan.frequencies();
    let (highest, lowest) = (all.first(), all.last());
    (
        highest.copied().unwrap_or_default(),
        lowest.copied().unwrap_or_default(),
    )
}

impl Observer for Perf {
    type Error = Infallible;

    fn drain(&mut self, session: &mut Session) -> Result<(), Infallible> {
        if let Self::Sampling(sampler) = self {
            sampler.drain(&mut |event| session.event(event));
        }
        Ok(())
    }

    fn finish(&mut self, session: &mut Session) -> Result<(), Infallible> {
        if let Self::Sampling(sampler) = self {
            sampler.finish(&mut |event| session.event(event));
        }
        Ok(())
    }

    fn limits(&self) -> Vec<Limit> {
        let mut limits = Vec::new();
        match self {
            Self::Sampling(sampler) => {
                if sampler.unobserved_threads() > 0 {
                    limits.push(Limit::UnobservedThreads(sampler.unobserved_threads()));
                }
                if sampler.samples_without_registers() > 0 {
                    limits.push(Limit::SamplesOf32BitPrograms(
                        sampler.samples_without_registers(),
                    ));
                }
            }
            Self::Coming(_) => {}
            Self::Refused(why) => limits.push(Limit::NoSamples { why: why.clone() }),
        }
        limits
    }
}

impl LiveObserver for Perf {
    fn prepare(&mut self, root: ProcessId, session: &mut Session) {
        let Self::Coming(coming) = self else {
            return;
        };
        if !coming.first.is_open() {
            return;
        }
        let attached = PerfSampler::attach(root, coming.plan.clone(), false);
        session.begin_anew(root);
        *self = match attached {
            Ok(sampler) => Self::Sampling(Box::new(sampler)),
            Err(ObserveError::NoSuchProcess(_)) => {
                Self::Refused("the program ended before the kernel allowed them".into())
            }
            Err(error) => Self::Refused(error.to_string()),
        };
    }

    fn wait(&mut self, pause: &mut Duration) -> Result<Wait, ObserveError> {
        match self {
            Self::Sampling(sampler) => sampler.wait(*pause),
            Self::Coming(_) => {
                *pause = (*pause).min(ARRIVAL);
                Ok(Wait::Ended)
            }
            Self::Refused(_) => Ok(Wait::Ended),
        }
    }

    fn attention(&self) -> Attention {
        let Self::Sampling(sampler) = self else {
            return Attention::Steady;
        };
        match (sampler.alerted(), sampler.calm()) {
            (Some(since), _) => Attention::Alerted(since),
            (None, calm) => Attention::Calm(calm.unwrap_or_default()),
        }
    }

    fn alert(&mut self) {
        if let Self::Sampling(sampler) = self {
            sampler.alert();
        }
    }

    fn comes_late(&self) -> bool {
        matches!(self, Self::Coming(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watching::Live;
    use sunder_observe::launch::Launch;
    use sunder_observe::watch::Budget;
    use sunder_pipeline::{Follow, judge_config};

    /// The kernel may open its first event only after the program has started.
    #[test]
    fn samples_that_come_late_are_of_what_the_program_has_become() {
        let Some(first) = FirstEvent::open() else {
            println!("SKIP: the kernel refuses samples");
            return;
        };
        let script = ["-c", "exec sh -c 'while :; do :; done'"];
        let prepared = Launch::new("sh").arguments(script).prepare();
        let prepared = prepared.expect("a child");
        let pid = prepared.pid();
        let mut child = prepared.go().expect("a shell");
        let coming = Perf::Coming(Coming {
            first,
            plan: FrequencyPlan::default(),
        });
        let config = judge_config(64, None).expect("a size of lines");
        let session = Session::new(config, Follow::Only(pid));
        let mut live = Live::new(session, Box::new(coming), None, pid, Budget::of(0.0));
        let mut ended = |pause| {
            std::thread::sleep(pause);
            false
        };
        while live.session.process(pid).figures.samples < 3 && live.elapsed().as_secs() < 20 {
            live.step(None, &mut ended).expect("a wait");
        }
        assert!(matches!(
            live.attention(),
            Attention::Alerted(_) | Attention::Calm(_)
        ));
        let process = live.session.process(pid);
        assert!(process.figures.samples >= 3);
        assert_eq!(process.threads.count(), 1);
        assert!(process.mappings().iter().any(|m| m.execute));
        // SAFETY: the process is a child of ours that has not been waited for, so its number is
        // not reused.
        unsafe { libc::kill(pid.0 as i32, libc::SIGKILL) };
        child.wait().expect("its end");
    }
}
