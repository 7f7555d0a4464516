//! Puts what was measured into a result: the gain of each finding, or why there is none. Called when
//! the observation is over.

use crate::experiment::{Experiment, MOST_RIVALS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use sunder_findings::{Finding, Findings, Limit, Sharing};
use sunder_plan::cores::{Run, on_more_cpus};
use sunder_plan::gain::{ThreadGain, of_finding, of_threads};

/// What an experiment measured. A recording of the run keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What is known of each thread.
    threads: Vec<(u32, ThreadGain)>,
    /// For how long the thread that was held longest was held, in ns.
    held_ns: u64,
    /// Why nothing was measured, if so.
    why: String,
}

/// Why a comparison says nothing.
const WAITED: &str = "its threads waited for those that were stopped, as at a barrier";

impl Measured {
    /// What a recording kept.
    ///
    /// # Errors
    /// If it is not what this type is written as.
    pub fn kept(text: &str) -> anyhow::Result<Self> {
        let measured: Self = serde_json::from_str(text)?;
        let all = || measured.threads.iter().map(|(_, thread)| thread);
        let times = all().flat_map(|one| [one.cpu_ns, one.contended_ns]);
        let speeds = all().flat_map(|one| one.speeds.iter().copied());
        let is_possible = |number: f64| number.is_finite() && number >= 0.0;
        anyhow::ensure!(
            times.chain(speeds).all(is_possible),
            "what was measured is impossible"
        );
        Ok(measured)
    }

    /// Sets the gain of each finding whose threads were compared, and says so if none was.
    pub fn fill(&self, result: &mut Findings) {
        let threads = &self.threads;
        let comparisons: usize = threads.iter().map(|(_, t)| t.speeds.len()).sum();
        let wall = result.run.seconds * 1e9 - self.held_ns as f64;
        let only: Vec<ThreadGain> = threads.iter().map(|t| t.1.clone()).collect();
        let run = Run {
            threads: &only,
            wall_ns: wall,
            cpus: result.machine.cpus,
            line_size: result.machine.line_size,
        };
        let measured = of_threads(&only, wall, run.cpus);
        let costs: Vec<(BTreeSet<u32>, f64)> = result.findings.iter().map(of).collect();
        let Some(all) = measured else {
            if result.findings.iter().any(is_to_measure) {
                result.limits.push(Limit::GainNotMeasured {
                    why: self.why.clone(),
                });
            }
            return;
        };
        let mut left = 0;
        let compared = |id: &u32| threads.iter().any(|(t, g)| t == id && !g.speeds.is_empty());
        for (finding, (own, cost)) in result.findings.iter_mut().zip(&costs) {
            if !is_to_measure(finding) {
                continue;
            }
            if !own.iter().any(compared) {
                left += 1;
                continue;
            }
            let together = costs.iter().filter(|(other, _)| !other.is_disjoint(own));
            let together: f64 = together.map(|(_, cost)| cost).sum();
            let gain = of_finding(finding, all, cost / together.max(f64::MIN_POSITIVE));
            finding.gain_percent = Some(gain.percent(comparisons));
            finding.on_more_cpus = on_more_cpus(finding, gain, run);
        }
        if left > 0 {
            let why = match left {
                1 => "of one object no thread was compared",
                _ => "of some objects no thread was compared",
            };
            result
                .limits
                .push(Limit::GainNotMeasured { why: why.into() });
        }
    }
}

impl Experiment {
    /// What was measured.
    pub(crate) fn outcome(&self) -> Measured {
        Measured {
            threads: self.threads(),
            held_ns: u64::try_from(self.longest_held().as_nanos()).unwrap_or(u64::MAX),
            why: self.why(),
        }
    }

    fn threads(&self) -> Vec<(u32, ThreadGain)> {
        let all = self.clocks.all().map(|(thread, used)| {
            let ratios = self.compared.get(&thread).map(|c| &c.ratios);
            let speeds = ratios.into_iter().flatten().map(|ratio| 1.0 / ratio);
            // Both leave out the time after the rivals' end.
            let opposed = self.opposed.get(&thread).copied().unwrap_or(1.0);
            let gain = ThreadGain {
                cpu_ns: used.cpu_ns as f64,
                contended_ns: used.contended_ns.min(opposed * used.cpu_ns as f64),
                speeds: speeds.collect(),
            };
            (thread.0, gain)
        });
        all.collect()
    }

    /// Why no gain was measured.
    fn why(&self) -> String {
        if let Some(why) = &self.refused {
            return why.clone();
        }
        if self.compared.values().any(|c| !c.ratios.is_empty()) {
            return "the program ended before a thread was compared often enough".into();
        }
        let vain: usize = self.compared.values().map(|c| c.vain).sum();
        // What hindered most comparisons; of equals, the first.
        let hindrances = [
            (self.waits, WAITED),
            (
                vain.saturating_sub(self.waits),
                "no value in its threads' registers or stacks counts their progress",
            ),
            (
                self.unopposed,
                "contending threads seldom ran at the same time",
            ),
            (
                self.missed,
                "its threads could not be stopped when that was tried, or had ended",
            ),
        ];
        if self.too_many && vain == 0 {
            return format!("more than {MOST_RIVALS} threads contend with each other");
        }
        let most = hindrances.into_iter().rev().max_by_key(|(times, _)| *times);
        if let Some((_, why)) = most.filter(|(times, _)| *times > 0) {
            return why.into();
        }
        "no line was known to be contended for long enough while the threads ran".into()
    }
}

/// Whether a fix of the finding gains something that can be measured.
fn is_to_measure(finding: &Finding) -> bool {
    !finding.latent && finding.sharing != Sharing::True
}

/// The threads of a finding, and their loss in percent of their time.
fn of(finding: &Finding) -> (BTreeSet<u32>, f64) {
    let words = finding.lines.iter().flat_map(|line| &line.words);
    let threads = words.flat_map(|word| word.threads.iter().map(|t| t.id));
    let cost = if finding.latent {
        0.0
    } else {
        finding.cost_percent
    };
    (threads.collect(), cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hindered_most_comparisons_is_told() {
        let mut experiment = Experiment::default();
        (experiment.waits, experiment.unopposed) = (1, 3);
        assert!(experiment.why().contains("seldom ran at the same time"));
        experiment.waits = 3;
        assert_eq!(experiment.why(), WAITED);
        assert!(Experiment::default().why().contains("no line was known"));
    }
}
