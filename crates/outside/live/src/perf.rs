//! Samples of the kernel's perf interface, at once or as soon as the kernel allows them:
//! opening the first perf event waits for all CPUs, and the program need not wait for that.

use crate::observer::{Attention, Intake, Observer};
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_findings::Limit;
use sunder_observe::ObserveError;
use sunder_observe::perf::{FirstEvent, FrequencyPlan, PerfSampler, Wait};
use sunder_pipeline::Session;

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

impl Observer for Perf {
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

    fn drain(&mut self, intake: &mut Intake<'_>, last: bool) {
        let Self::Sampling(sampler) = self else {
            return;
        };
        let mut sink = |event| intake.event(event);
        if last {
            sampler.finish(&mut sink);
        } else {
            sampler.drain(&mut sink);
        }
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
        let mut live = Live::new(session, Box::new(coming), None, pid, 0.0);
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
