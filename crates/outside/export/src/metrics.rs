//! Sums over all records so far. Sums never fall while the watcher runs. Pure.

use std::collections::{BTreeMap, HashMap};
use sunder_findings::{Happening, Present, Record, WatchStatus};

/// The most sets of labels. What comes after them is counted under [`OTHER`].
pub const MOST_SERIES: usize = 500;
/// The label of what has none of its own.
pub const OTHER: &str = "other";
/// The longest label, in characters.
const LONGEST: usize = 160;

/// Program, object and container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels {
    /// The file name of the program.
    pub program: String,
    /// The object, in a few words.
    pub object: String,
    /// The container's number; empty if it is in none.
    pub container: String,
}

/// How a sink that sends is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sink {
    /// Batches that were dropped for lack of room, or that its receiver refused, whole or in part.
    pub lost_batches: u64,
    /// Bytes that wait to be sent.
    pub waiting_bytes: u64,
    /// Whether its receiver does not want this signal.
    pub is_off: bool,
}

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// The last status.
    pub status: WatchStatus,
    /// How many events there were of each kind.
    pub events: BTreeMap<&'static str, u64>,
    /// CPU seconds lost.
    pub lost_seconds: BTreeMap<Labels, f64>,
    /// The findings that are there: how many, and the highest cost in percent.
    pub present: BTreeMap<Labels, (u64, f64)>,
    /// Samples of close looks at each program, and those of them whose address is not known.
    pub by_program: BTreeMap<String, (f64, f64)>,
    /// How each sink that sends is doing.
    pub sinks: BTreeMap<&'static str, Sink>,
    /// What was known of each finding's lost seconds, by process and identity.
    told: HashMap<(u32, String), f64>,
    /// What was known of each build's samples. The watch keeps few enough of them.
    told_of_builds: HashMap<Build, (f64, f64)>,
}

/// Path and build id.
type Build = (Option<String>, Option<String>);

impl Metrics {
    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        match record {
            Record::Finding(watched) => *self.events.entry(watched.event.word()).or_default() += 1,
            Record::Status(status) => self.add_status(status),
        }
    }

    fn add_status(&mut self, status: &WatchStatus) {
        let mut told = HashMap::new();
        let mut present: BTreeMap<Labels, (u64, f64)> = BTreeMap::new();
        for one in &status.present {
            let key = (one.pid, one.fingerprint.clone());
            let before = self.told.get(&key).copied().unwrap_or(0.0);
            // Less than before: another process has this number.
            let new = match one.lost_seconds - before {
                more if more >= 0.0 => more,
                _ => one.lost_seconds,
            };
            told.insert(key, one.lost_seconds);
            let labels = self.labels(one);
            let (count, cost) = present.entry(labels.clone()).or_default();
            (*count, *cost) = (*count + 1, cost.max(one.cost_percent));
            *self.lost_seconds.entry(labels).or_default() += new.max(0.0);
        }
        (self.told, self.present) = (told, present);
        for looked in &status.looked {
            let build = (looked.path.clone(), looked.build_id.clone());
            let now = (looked.samples as f64, looked.samples_unattributed);
            let before = self.told_of_builds.insert(build, now).unwrap_or_default();
            let program: String = looked.program.chars().take(LONGEST).collect();
            let is_new = !self.by_program.contains_key(&program);
            let sums = match is_new && self.by_program.len() >= MOST_SERIES {
                true => self.by_program.entry(OTHER.into()).or_default(),
                false => self.by_program.entry(program).or_default(),
            };
            sums.0 += (now.0 - before.0).max(0.0);
            sums.1 += (now.1 - before.1).max(0.0);
        }
        self.status = WatchStatus {
            present: Vec::new(),
            looked: Vec::new(),
            ..status.clone()
        };
    }

    /// The labels of a finding; those of the rest if there are too many.
    fn labels(&self, one: &Present) -> Labels {
        let cut = |text: &str| text.chars().take(LONGEST).collect();
        let labels = Labels {
            program: cut(&one.program),
            object: cut(&one.object),
            container: cut(one.container.as_deref().unwrap_or_default()),
        };
        if self.lost_seconds.len() < MOST_SERIES || self.lost_seconds.contains_key(&labels) {
            return labels;
        }
        Labels {
            program: OTHER.into(),
            object: OTHER.into(),
            container: OTHER.into(),
        }
    }

    /// How many events of a kind there were.
    pub fn count_of(&self, event: Happening) -> u64 {
        self.events.get(event.word()).copied().unwrap_or(0)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use sunder_findings::Looked;

    /// A status with these findings: process, object, lost seconds.
    pub fn status(of: &[(u32, &str, f64)]) -> Record {
        let present = of.iter().map(|&(pid, object, lost_seconds)| Present {
            fingerprint: object.into(),
            object: object.into(),
            program: "server".into(),
            pid,
            cost_percent: 10.0,
            lost_seconds,
            ..Present::default()
        });
        Record::Status(Box::new(WatchStatus {
            present: present.collect(),
            ..WatchStatus::default()
        }))
    }

    #[test]
    fn sums_of_processes_add_up_and_never_fall() {
        let mut metrics = Metrics::default();
        let mut lost = |of: &[(u32, &str, f64)]| {
            metrics.add(&status(of));
            metrics.lost_seconds.values().sum::<f64>()
        };
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(lost(&[(1, "a", 2.0), (2, "a", 3.0)]), 5.0));
        assert!(near(lost(&[(1, "a", 2.5), (2, "a", 3.0)]), 5.5));
        assert!(near(lost(&[]), 5.5));
        // The first again, and another process under its number.
        assert!(near(lost(&[(1, "a", 0.5)]), 6.0));
        assert!(near(lost(&[(1, "a", 0.25)]), 6.25));
        assert_eq!(metrics.present.len(), 1);
    }

    #[test]
    fn samples_of_builds_add_up_for_each_program() {
        let mut metrics = Metrics::default();
        let mut looked = |of: &[(&str, &str, u64, f64)]| {
            let looked = of
                .iter()
                .map(|&(program, build, samples, unattributed)| Looked {
                    program: program.into(),
                    build_id: Some(build.into()),
                    samples,
                    samples_unattributed: unattributed,
                    ..Looked::default()
                });
            metrics.add(&Record::Status(Box::new(WatchStatus {
                looked: looked.collect(),
                ..WatchStatus::default()
            })));
            metrics.by_program.clone().into_iter().collect::<Vec<_>>()
        };
        looked(&[("a", "1", 100, 10.0), ("b", "2", 50, 0.0)]);
        // What is told counts since the watch began, and only builds with new looks are told.
        let now = looked(&[("a", "1", 150, 10.0), ("a", "3", 7, 7.0)]);
        assert_eq!(
            now,
            [("a".into(), (157.0, 17.0)), ("b".into(), (50.0, 0.0))]
        );
    }

    #[test]
    fn a_host_with_very_many_objects_has_few_series() {
        let mut metrics = Metrics::default();
        for number in 0..MOST_SERIES as u32 + 50 {
            metrics.add(&status(&[(number, &format!("object {number}"), 1.0)]));
        }
        assert_eq!(metrics.lost_seconds.len(), MOST_SERIES + 1);
        let other = metrics
            .lost_seconds
            .iter()
            .find(|(l, _)| l.program == OTHER);
        assert_eq!(other.map(|(_, lost)| *lost), Some(50.0));
    }
}
