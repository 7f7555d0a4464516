//! What is known of findings from look to look: a finding that appears, changes by a factor of two, or
//! goes away is an event. Pure.

use std::collections::HashMap;
use sunder_access::{ProcessId, ThreadId};
use sunder_findings::{Finding, Happening, Origin, Present, fingerprint};

/// From this factor on a change of the cost is told.
const FACTOR: f64 = 2.0;
/// A change by less than so many percent of the threads' time is not told.
const LEAST_CHANGE: f64 = 2.0;
/// After so many looks in a row that do not show a finding, it is gone. One alone may be chance: the
/// threads may have rested.
const LOOKS_UNTIL_GONE: u32 = 2;
/// The most findings of one process that are kept.
const MOST_OF_A_PROCESS: usize = 64;
/// The most processes with findings that are kept.
const MOST_PROCESSES: usize = 4096;

/// The findings that are there.
#[derive(Debug, Default)]
pub struct Known {
    processes: HashMap<ProcessId, OfProcess>,
}

#[derive(Debug)]
struct OfProcess {
    origin: Origin,
    findings: Vec<OneKnown>,
}

#[derive(Debug)]
struct OneKnown {
    fingerprint: String,
    finding: Finding,
    /// The cost that was told last.
    told_percent: f64,
    /// Looks in a row that did not show it.
    missed: u32,
    threads: Vec<ThreadId>,
    appeared_unix_ns: u64,
    lost_seconds: f64,
}

/// An event to be told.
#[derive(Clone, Debug)]
pub struct Change {
    /// What became of the finding.
    pub event: Happening,
    /// Its identity.
    pub fingerprint: String,
    /// The process.
    pub origin: Origin,
    /// The cost that was told before.
    pub before_percent: Option<f64>,
    /// The finding.
    pub finding: Finding,
}

impl Known {
    /// A look at a process has shown these findings that count, and no others. `now_unix_ns`: the time.
    pub fn looked(
        &mut self,
        origin: &Origin,
        shown: Vec<Finding>,
        now_unix_ns: u64,
    ) -> Vec<Change> {
        let id = ProcessId(origin.pid);
        if shown.is_empty() && !self.processes.contains_key(&id)
            || self.processes.len() >= MOST_PROCESSES && !self.processes.contains_key(&id)
        {
            return Vec::new();
        }
        let of = self.processes.entry(id).or_insert_with(|| OfProcess {
            origin: origin.clone(),
            findings: Vec::new(),
        });
        let mut changes = Vec::new();
        let mut seen: Vec<String> = Vec::new();
        for finding in shown {
            let print = fingerprint(&finding);
            // Two unnamed objects of one look may have the same; the first costs more.
            if seen.contains(&print) {
                continue;
            }
            seen.push(print.clone());
            let threads = finding.threads().iter().map(|t| ThreadId(t.id)).collect();
            let change = |event, before_percent, finding| Change {
                event,
                fingerprint: print.clone(),
                origin: of.origin.clone(),
                before_percent,
                finding,
            };
            if let Some(known) = of.findings.iter_mut().find(|k| k.fingerprint == print) {
                let (old, new) = (known.told_percent, finding.cost_percent);
                known.missed = 0;
                known.threads = threads;
                let factor = old.max(new) / old.min(new).max(f64::MIN_POSITIVE);
                if factor >= FACTOR && (old - new).abs() >= LEAST_CHANGE {
                    known.told_percent = new;
                    changes.push(change(Happening::Changed, Some(old), finding.clone()));
                }
                known.finding = finding;
            } else if of.findings.len() < MOST_OF_A_PROCESS {
                changes.push(change(Happening::Appeared, None, finding.clone()));
                of.findings.push(OneKnown {
                    told_percent: finding.cost_percent,
                    fingerprint: print,
                    finding,
                    missed: 0,
                    threads,
                    appeared_unix_ns: now_unix_ns,
                    lost_seconds: 0.0,
                });
            }
        }
        for known in &mut of.findings {
            known.missed += u32::from(!seen.contains(&known.fingerprint));
        }
        let (there, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut of.findings)
            .into_iter()
            .partition(|known| known.missed < LOOKS_UNTIL_GONE);
        of.findings = there;
        changes.extend(gone.into_iter().map(|known| known.gone(&of.origin)));
        if of.findings.is_empty() {
            self.processes.remove(&id);
        }
        changes
    }

    /// The process has ended, or executes another program.
    pub fn ended(&mut self, process: ProcessId) -> Vec<Change> {
        let Some(of) = self.processes.remove(&process) else {
            return Vec::new();
        };
        let all = of.findings.into_iter();
        all.map(|known| known.gone(&of.origin)).collect()
    }

    /// Whether findings of this process are there.
    pub fn has(&self, process: ProcessId) -> bool {
        self.processes.contains_key(&process)
    }

    /// The processes with findings.
    pub fn processes(&self) -> impl Iterator<Item = &Origin> {
        self.processes.values().map(|of| &of.origin)
    }

    /// Adds what the findings cost in a period in which their threads ran for so many seconds.
    pub fn add_lost(&mut self, seconds: impl Fn(ProcessId, &[ThreadId]) -> f64) {
        for (&process, of) in &mut self.processes {
            for known in of.findings.iter_mut().filter(|known| known.missed == 0) {
                let ran = seconds(process, &known.threads);
                known.lost_seconds += ran * known.finding.cost_percent / 100.0;
            }
        }
    }

    /// The findings that are there.
    pub fn present(&self) -> Vec<Present> {
        let all = self.processes.values();
        let all = all.flat_map(|of| of.findings.iter().map(|known| (&of.origin, known)));
        all.map(|(origin, known)| Present {
            fingerprint: known.fingerprint.clone(),
            object: known.finding.subject(),
            program: origin.program.clone(),
            container: origin.container.clone(),
            pid: origin.pid,
            build_id: origin.build_id.clone(),
            appeared_unix_ns: known.appeared_unix_ns,
            cost_percent: known.finding.cost_percent,
            lost_seconds: known.lost_seconds,
        })
        .collect()
    }
}

impl OneKnown {
    fn gone(self, origin: &Origin) -> Change {
        Change {
            event: Happening::Gone,
            fingerprint: self.fingerprint,
            origin: origin.clone(),
            before_percent: Some(self.told_percent),
            finding: self.finding,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_findings::examples;

    fn origin(pid: u32) -> Origin {
        Origin {
            pid,
            ..Origin::default()
        }
    }

    fn costing(percent: f64) -> Finding {
        Finding {
            cost_percent: percent,
            ..examples::linear_regression()
        }
    }

    fn told(changes: Vec<Change>) -> Vec<Happening> {
        changes.into_iter().map(|change| change.event).collect()
    }

    #[test]
    fn a_finding_is_told_when_it_appears_doubles_halves_and_goes() {
        let mut known = Known::default();
        let mut look = |shown| told(known.looked(&origin(1), shown, 7));
        assert_eq!(look(vec![]), []);
        assert_eq!(look(vec![costing(10.0)]), [Happening::Appeared]);
        assert_eq!(look(vec![costing(19.0)]), []);
        assert_eq!(look(vec![costing(20.0)]), [Happening::Changed]);
        assert_eq!(look(vec![costing(11.0)]), []);
        assert_eq!(look(vec![costing(10.0)]), [Happening::Changed]);
        // One look without it is not enough.
        assert_eq!(look(vec![]), []);
        assert_eq!(look(vec![costing(10.0)]), []);
        assert_eq!(look(vec![]), []);
        assert_eq!(look(vec![]), [Happening::Gone]);
        assert_eq!(look(vec![costing(10.0)]), [Happening::Appeared]);
    }

    /// Which fields a look sees is partly chance.
    #[test]
    fn a_look_that_sees_other_fields_sees_the_same_finding() {
        let mut known = Known::default();
        let mut other = costing(10.0);
        other.lines[0].words.remove(0);
        known.looked(&origin(1), vec![costing(10.0)], 7);
        assert_eq!(told(known.looked(&origin(1), vec![other], 7)), []);
        assert_eq!(told(known.looked(&origin(1), vec![costing(10.0)], 7)), []);
    }

    #[test]
    fn a_small_cost_may_double_unheard() {
        let mut known = Known::default();
        let mut look = |percent| told(known.looked(&origin(1), vec![costing(percent)], 7));
        assert_eq!(look(1.0), [Happening::Appeared]);
        assert_eq!(look(2.5), []);
        assert_eq!(look(3.0), [Happening::Changed]);
    }

    #[test]
    fn with_its_process_a_finding_goes() {
        let mut known = Known::default();
        known.looked(&origin(1), vec![costing(10.0)], 7);
        known.looked(&origin(2), vec![costing(10.0)], 8);
        known.add_lost(|process, _| f64::from(process.0));
        let lost: f64 = known.present().iter().map(|p| p.lost_seconds).sum();
        assert!((lost - 0.3).abs() < 1e-9, "{lost}");
        assert_eq!(told(known.ended(ProcessId(1))), [Happening::Gone]);
        assert_eq!(told(known.ended(ProcessId(1))), []);
        let present = known.present();
        assert_eq!(present.len(), 1);
        assert_eq!((present[0].pid, present[0].appeared_unix_ns), (2, 8));
    }

    #[test]
    fn a_finding_that_comes_again_has_appeared_anew_and_counts_from_nothing() {
        let mut known = Known::default();
        let appeared = |known: &Known| known.present()[0].appeared_unix_ns;
        known.looked(&origin(1), vec![costing(10.0)], 5);
        known.add_lost(|_, _| 10.0);
        known.looked(&origin(1), vec![costing(10.0)], 6);
        assert_eq!(appeared(&known), 5);
        known.looked(&origin(1), vec![], 7);
        known.looked(&origin(1), vec![], 8);
        known.looked(&origin(1), vec![costing(10.0)], 9);
        assert_eq!(appeared(&known), 9);
        assert_eq!(known.present()[0].lost_seconds.to_bits(), 0);
    }
}
