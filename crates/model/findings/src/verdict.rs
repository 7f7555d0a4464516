//! The answer of a run in one word: whether false sharing was found, or none, or whether the run could
//! not tell. Used by reports and by `--fail-on`; it must not look at anything but the result.

use crate::{Findings, Limit, Machine, Run};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// With a larger share of the time without addresses, that nothing was found does not mean that there
/// is nothing.
const MOST_UNATTRIBUTED_PERCENT: f64 = 10.0;

/// If two threads ran at once for a lesser share of the time, what they share could hardly show.
const LEAST_AT_ONCE_PERCENT: f64 = 10.0;

/// If processes that were not looked at used a larger share of the CPU time, the program's work may be
/// theirs: it is a script, or starts others.
const MOST_LEFT_OUT_PERCENT: f64 = 50.0;

/// If a program used so much CPU time and gave no sample, it could not be observed, as one with
/// set-user-id.
const MUCH_UNSEEN_SECONDS: f64 = 0.2;

/// A program that used less CPU time, in seconds, has hardly shared anything with other processes.
const LEAST_SHARING_SECONDS: f64 = 0.2;

/// Fewer samples than this say little: for the least evidence that a finding needs, a line would have
/// to take one in ten of them.
pub const FEW_SAMPLES: u64 = 100;

/// The answer of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Verdict {
    /// The answer.
    pub answer: Answer,
    /// Why the run is inconclusive; empty if it is not.
    #[serde(default)]
    pub reasons: Vec<Reason>,
}

/// Whether there is false sharing that costs as much as the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Some was found.
    Found,
    /// None was found, and the run would have shown it.
    None,
    /// None was found, and the run may not have shown it.
    Inconclusive,
}

/// Why a run may not have shown what there is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case", tag = "reason")]
#[non_exhaustive]
pub enum Reason {
    /// The program may use one CPU only, or all of its threads ran on one.
    OneCpu {
        /// The kernel's number of the CPU on which they ran, if they might have used others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cpu: Option<u32>,
        /// How many CPUs the machine has; 0 if that is not known.
        #[serde(default, skip_serializing_if = "is_zero")]
        online: u32,
    },
    /// The program's control group grants it less than the time of two CPUs. Told beside another
    /// reason that this may explain.
    CpuQuota {
        /// The time in CPUs, as 0.5 for half of one.
        cpus: f64,
    },
    /// The recording does not tell on which CPU threads ran.
    NoCpuNumbers,
    /// Two threads ran at once for too little of the time.
    SeldomAtOnce {
        /// The share of the time in which a thread ran, 0 to 100, at most.
        percent: f64,
    },
    /// Other processes, which were not looked at, did most of the work.
    OtherProcesses {
        /// Their share of the CPU time, 0 to 100.
        percent: f64,
    },
    /// One thread was seen, and it can write memory that other processes may have, which were not
    /// looked at.
    SharedMemory,
    /// There were too few samples.
    FewSamples {
        /// How many.
        samples: u64,
    },
    /// Most samples were of 32-bit code, which is not decoded.
    OtherCode,
    /// For too much of the time, the addresses of accesses are not known.
    Unattributed {
        /// The share of the time, 0 to 100.
        percent: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneCpu { online: 1, .. } => f.write_str("the machine has one CPU only"),
            Self::OneCpu { cpu: None, .. } => f.write_str(
                "an affinity mask (taskset) or a cpuset leaves the program one CPU only",
            ),
            Self::OneCpu { cpu: Some(cpu), .. } => write!(
                f,
                "all threads ran on CPU {cpu} (by an affinity mask, as of taskset, or a cpuset, or beside other busy programs)"
            ),
            Self::CpuQuota { cpus } => write!(
                f,
                "the program's control group grants it the time of {cpus:.1} CPUs (cpu.max)"
            ),
            Self::NoCpuNumbers => f.write_str(
                "the recording does not tell on which CPU threads ran (perf record --sample-cpu)",
            ),
            Self::SeldomAtOnce { percent } if *percent < 0.5 => {
                f.write_str("two threads hardly ever ran at once")
            }
            Self::SeldomAtOnce { percent } => write!(
                f,
                "two threads ran at once for at most {percent:.0} % of the time"
            ),
            Self::OtherProcesses { percent } => write!(
                f,
                "processes that the program started used {percent:.0} % of the CPU time, and were not \
                 looked at"
            ),
            Self::SharedMemory => f.write_str(
                "its one thread can write memory that it may share with other processes, which were \
                 not looked at",
            ),
            Self::FewSamples { samples: 0 } => f.write_str("there were no samples"),
            Self::FewSamples { samples } => write!(f, "there were only {samples} samples"),
            Self::OtherCode => f.write_str("its code is 32-bit, and only 64-bit code is decoded"),
            Self::Unattributed { percent } => write!(
                f,
                "{percent:.0} % of the time is in code whose addresses could not be worked out"
            ),
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
pub(crate) const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Findings {
    /// The answer of this result, for findings that cost at least `threshold_percent`.
    pub fn answer(&self, threshold_percent: f64) -> Verdict {
        if self.significant(threshold_percent).next().is_some() {
            return Verdict {
                answer: Answer::Found,
                reasons: Vec::new(),
            };
        }
        let reasons = if self.is_of_other_code() {
            vec![Reason::OtherCode]
        } else {
            reasons(&self.run, &self.machine)
        };
        let answer = if reasons.is_empty() {
            Answer::None
        } else {
            Answer::Inconclusive
        };
        Verdict { answer, reasons }
    }

    /// Whether most samples of a program with threads were of code that is not decoded. A file has
    /// the limits as sentences; there it is known from the reasons of the saved verdict.
    pub fn is_of_other_code(&self) -> bool {
        let saved = self.verdict.iter().flat_map(|verdict| &verdict.reasons);
        self.run.threads > 1
            && (saved.into_iter().any(|reason| *reason == Reason::OtherCode)
                || self.limits.iter().any(|limit| {
                    matches!(limit, Limit::SamplesOf32BitPrograms(samples) if *samples > self.run.samples)
                }))
    }
}

/// The CPU time of the program itself, without its children, in seconds; 0 if it is not known.
fn own_seconds(run: &Run) -> f64 {
    let others = run.left_out_percent.unwrap_or(0.0) / 100.0;
    run.program_cpu_seconds.unwrap_or(0.0) * (1.0 - others)
}

/// Why a run that found nothing may not have shown what there is. A trace has every access, and one
/// thread has nothing to share.
fn reasons(run: &Run, machine: &Machine) -> Vec<Reason> {
    let mut all = Vec::new();
    if run.observer == "trace" {
        return all;
    }
    // Memory events and comparisons of pages count accesses, not samples.
    let seen = run.samples.saturating_add(run.accesses);
    // One thread has nothing to share; but it has to be known that there was no other.
    let was_unseen = run.samples == 0 && own_seconds(run) >= MUCH_UNSEEN_SECONDS;
    let one = run.threads == 1 && run.left_out_percent.is_none() && !was_unseen;
    if seen < FEW_SAMPLES && !one {
        all.push(Reason::FewSamples {
            samples: run.samples,
        });
    }
    if let Some(percent) = run.left_out_percent
        && percent >= MOST_LEFT_OUT_PERCENT
    {
        all.push(Reason::OtherProcesses { percent });
    }
    if run.threads <= 1 {
        let ran = |cpu| cpu >= LEAST_SHARING_SECONDS;
        if run.shares_memory && run.program_cpu_seconds.is_none_or(ran) {
            all.push(Reason::SharedMemory);
        }
        return all;
    }
    let online = machine.cpus_online;
    let live = run.observer != "import";
    if live && machine.cpus == 1 {
        all.push(Reason::OneCpu { cpu: None, online });
    } else if run.without_cpu {
        all.push(Reason::NoCpuNumbers);
    } else if let Some(percent) = run.at_once_percent
        && percent < LEAST_AT_ONCE_PERCENT
    {
        let one = |cpu| Reason::OneCpu {
            cpu: Some(cpu),
            online,
        };
        all.push(run.only_cpu.map_or(Reason::SeldomAtOnce { percent }, one));
    }
    if let Some(cpus) = machine.cpu_quota
        && cpus < 2.0
        && !all.is_empty()
    {
        all.push(Reason::CpuQuota { cpus });
    }
    if let Some(percent) = run.unattributed_percent
        && percent >= MOST_UNATTRIBUTED_PERCENT
    {
        all.push(Reason::Unattributed { percent });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;

    fn of(run: Run) -> Verdict {
        let all = Findings {
            run,
            machine: Machine {
                cpus: 2,
                ..Machine::default()
            },
            ..Findings::default()
        };
        all.answer(1.0)
    }

    fn good() -> Run {
        Run {
            threads: 3,
            samples: 1000,
            at_once_percent: Some(80.0),
            unattributed_percent: Some(2.0),
            observer: "perf".to_owned(),
            ..Run::default()
        }
    }

    #[test]
    fn a_run_that_would_have_shown_it_says_none() {
        assert_eq!(of(good()).answer, Answer::None);
        // One thread has nothing to share, however little was seen of its addresses.
        let alone = Run {
            threads: 1,
            at_once_percent: Some(0.0),
            unattributed_percent: Some(50.0),
            ..good()
        };
        assert_eq!(of(alone).answer, Answer::None);
    }

    #[test]
    fn a_program_that_gave_no_samples_may_have_had_threads() {
        let unseen = |seconds| Run {
            threads: 1,
            samples: 0,
            program_cpu_seconds: Some(seconds),
            ..good()
        };
        assert_eq!(of(unseen(0.01)).answer, Answer::None);
        let none = Reason::FewSamples { samples: 0 };
        assert_eq!(of(unseen(2.0)).reasons, [none]);
    }

    #[test]
    fn one_thread_may_share_with_other_processes() {
        let alone = |shares_memory, cpu| Run {
            threads: 1,
            shares_memory,
            program_cpu_seconds: cpu,
            ..good()
        };
        assert_eq!(of(alone(false, None)).answer, Answer::None);
        let verdict = of(alone(true, None));
        assert_eq!(verdict.reasons, [Reason::SharedMemory]);
        // What hardly ran has hardly shared.
        assert_eq!(of(alone(true, Some(0.1))).answer, Answer::None);
    }

    #[test]
    fn a_script_says_nothing_of_the_programs_that_it_starts() {
        let script = |percent| Run {
            threads: 1,
            samples: 3,
            left_out_percent: Some(percent),
            ..good()
        };
        let few = Reason::FewSamples { samples: 3 };
        assert_eq!(of(script(20.0)).reasons, [few]);
        let verdict = of(script(98.0));
        assert_eq!(verdict.answer, Answer::Inconclusive);
        let others = Reason::OtherProcesses { percent: 98.0 };
        assert_eq!(verdict.reasons, [few, others]);
    }

    #[test]
    fn each_thing_that_hides_sharing_is_a_reason() {
        let cases = [
            Run {
                at_once_percent: Some(3.2),
                ..good()
            },
            Run {
                unattributed_percent: Some(10.0),
                ..good()
            },
            Run {
                samples: 99,
                ..good()
            },
            Run {
                threads: 0,
                samples: 0,
                ..good()
            },
            Run {
                without_cpu: true,
                ..good()
            },
        ];
        let sentences = cases.map(|run| {
            let verdict = of(run);
            assert_eq!(verdict.answer, Answer::Inconclusive);
            assert_eq!(verdict.reasons.len(), 1);
            verdict.reasons[0].to_string()
        });
        assert_eq!(
            sentences,
            [
                "two threads ran at once for at most 3 % of the time",
                "10 % of the time is in code whose addresses could not be worked out",
                "there were only 99 samples",
                "there were no samples",
                "the recording does not tell on which CPU threads ran (perf record --sample-cpu)",
            ]
        );
    }

    #[test]
    fn code_that_is_not_decoded_is_the_only_reason() {
        let mut all = Findings {
            run: Run {
                samples: 10,
                ..good()
            },
            limits: vec![Limit::SamplesOf32BitPrograms(700)],
            ..Findings::default()
        };
        let verdict = all.answer(1.0);
        assert_eq!(verdict.answer, Answer::Inconclusive);
        assert_eq!(verdict.reasons, [Reason::OtherCode]);
        // Saved and read again.
        all.verdict = Some(verdict.clone());
        let json = serde_json::to_string(&all).expect("serializable");
        let read: Findings = serde_json::from_str(&json).expect("just written");
        assert_eq!(read.answer(5.0), verdict);
        // A short helper of a 64-bit program.
        all.verdict = None;
        all.run.samples = 5000;
        assert_eq!(all.answer(1.0).answer, Answer::None);
    }

    #[test]
    fn one_cpu_is_told_with_what_left_no_other() {
        let of = |cpus, cpus_online, only_cpu, cpu_quota| {
            let run = Run {
                only_cpu,
                at_once_percent: Some(0.0),
                ..good()
            };
            let machine = Machine {
                cpus,
                cpus_online,
                cpu_quota,
                ..Machine::default()
            };
            let reasons = reasons(&run, &machine);
            reasons.iter().map(Reason::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of(1, 1, Some(0), None), ["the machine has one CPU only"]);
        assert_eq!(
            of(1, 8, Some(3), None),
            ["an affinity mask (taskset) or a cpuset leaves the program one CPU only"]
        );
        assert_eq!(
            of(8, 8, Some(3), None),
            [
                "all threads ran on CPU 3 (by an affinity mask, as of taskset, or a cpuset, or beside other busy programs)"
            ]
        );
        assert_eq!(
            of(8, 8, None, Some(0.5)),
            [
                "two threads hardly ever ran at once",
                "the program's control group grants it the time of 0.5 CPUs (cpu.max)"
            ]
        );
        assert_eq!(of(8, 8, None, Some(2.0)).len(), 1);
    }

    #[test]
    fn the_form_in_a_file_is_stable() {
        let verdict = Verdict {
            answer: Answer::Inconclusive,
            reasons: vec![
                Reason::OneCpu {
                    cpu: None,
                    online: 0,
                },
                Reason::SeldomAtOnce { percent: 3.0 },
            ],
        };
        assert_eq!(
            serde_json::to_string(&verdict).expect("a text"),
            r#"{"answer":"inconclusive","reasons":[{"reason":"one_cpu"},{"reason":"seldom_at_once","percent":3.0}]}"#
        );
    }
}
