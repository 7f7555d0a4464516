//! The topics of `sunder explain` that belong to findings and limits. The texts are in `docs/explain`.

use crate::limit::Limit;
use crate::schema::Finding;
use crate::sharing::Sharing;
use crate::verdict::Reason;

/// Beginnings, or parts, of the sentences of limits, and the topics that explain them. Files hold the
/// sentences alone; nothing is decided by them, only which text is offered.
const SENTENCES: [(&str, &str); 48] = [
    ("No samples were taken: ", "no-samples"),
    ("No samples were taken; ", "few-samples"),
    (" samples were taken; a longer run", "few-samples"),
    (" samples were lost; ", "lost-samples"),
    (" samples were of 32-bit programs", "other-code"),
    (
        "without the fields that are needed",
        "samples-without-fields",
    ),
    ("for want of file descriptors", "unobserved-threads"),
    ("Samples were taken by timers", "timers-for-perf"),
    (" got no timer ", "threads-without-timer"),
    ("took the signal of the timer observer", "signal-taken"),
    ("The program confined itself", "confined"),
    ("memory cannot be read", "unread-memory"),
    ("Watchpoints confirmed nothing", "no-watchpoints"),
    ("the addresses of accesses are not known", "unattributed"),
    ("What a fix gains was not measured", "gain-not-measured"),
    ("Findings marked as not confirmed", "unconfirmed"),
    ("it may be coincidence", "coincidences"),
    ("that it started go", "processes-not-followed"),
    (
        "processes, which were not looked at",
        "processes-not-followed",
    ),
    ("did not load the runtime library", "processes-missed"),
    ("faster than segments could be made", "processes-missed"),
    ("in another process namespace", "processes-missed"),
    ("without the runtime library", "processes-missed"),
    ("nothing was preloaded", "nothing-preloaded"),
    ("Heap objects are not named", "nothing-preloaded"),
    (
        "Heap objects have no names and call stacks",
        "nothing-preloaded",
    ),
    ("No heap object was seen", "no-heap-object"),
    ("beyond the table of threads", "full-tables"),
    ("beyond the table of blocks", "full-tables"),
    ("beyond the table of call stacks", "full-tables"),
    ("A recorded file tells nothing", "recorded-file"),
    ("An attached process tells nothing", "recorded-file"),
    ("The run was recorded with lines of", "recorded-file"),
    ("ended before the time was over", "ended-early"),
    (
        "hand data over there by plain loads and stores",
        "isolate-observer",
    ),
    ("The isolate observer sees what", "isolate-observer"),
    ("Nothing was observed: ", "isolate-observer"),
    ("Observation ended early: ", "isolate-observer"),
    ("Observation paused for some seconds", "isolate-observer"),
    ("had no room in the tables", "isolate-observer"),
    (
        "changes came faster than they were taken",
        "isolate-observer",
    ),
    ("The trace is partial", "partial-trace"),
    ("made nodes miss fewer than", "left-out"),
    ("more objects and pairs of objects shared pages", "left-out"),
    ("debug information", "names"),
    (" debug file ", "names"),
    (" is stripped", "names"),
    ("its code and data have no names", "names"),
];

/// The topics of all limits, findings and reasons, for whoever has to have them all.
pub fn topics() -> impl Iterator<Item = &'static str> {
    let of_findings = ["false-sharing", "true-sharing", "mixed-sharing", "latent"];
    let of_reasons = ["one-cpu", "cpu-quota", "no-cpu-numbers", "seldom-at-once"];
    let of_limits = SENTENCES.iter().map(|(_, topic)| *topic);
    let others = ["cost", "gain"].into_iter();
    of_findings
        .into_iter()
        .chain(of_reasons)
        .chain(of_limits)
        .chain(others)
}

impl Finding {
    /// The topic of `sunder explain` about its kind.
    pub const fn topic(&self) -> &'static str {
        match (self.latent, self.sharing) {
            (true, _) => "latent",
            (false, Sharing::False) => "false-sharing",
            (false, Sharing::True) => "true-sharing",
            (false, Sharing::Mixed) => "mixed-sharing",
        }
    }
}

impl Reason {
    /// The topic of `sunder explain` about it.
    pub const fn topic(&self) -> &'static str {
        match self {
            Self::OneCpu { .. } => "one-cpu",
            Self::CpuQuota { .. } => "cpu-quota",
            Self::NoCpuNumbers => "no-cpu-numbers",
            Self::SeldomAtOnce { .. } => "seldom-at-once",
            Self::OtherProcesses { .. } | Self::SharedMemory => "processes-not-followed",
            Self::FewSamples { .. } => "few-samples",
            Self::OtherCode => "other-code",
            Self::Unattributed { .. } => "unattributed",
        }
    }
}

impl Limit {
    /// The topic of `sunder explain` that says more; `None` if there is none. It follows from the
    /// sentence alone, so that a saved result offers the same.
    pub fn topic(&self) -> Option<&'static str> {
        let sentence = self.to_string();
        let found = SENTENCES.iter().find(|(part, _)| sentence.contains(part));
        found.map(|(_, topic)| *topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each variant, and what its topic must be.
    fn all() -> Vec<(Limit, &'static str)> {
        let why = || "it refused".to_owned();
        vec![
            (
                Limit::Names("x has no debug information: only symbols".to_owned()),
                "names",
            ),
            (
                Limit::Names("x: its separate debug file y was not found".to_owned()),
                "names",
            ),
            (
                Limit::Names("x is stripped but for the names".to_owned()),
                "names",
            ),
            (
                Limit::Names("x: its code and data have no names, because".to_owned()),
                "names",
            ),
            (Limit::NoSamples { why: why() }, "no-samples"),
            (Limit::FewSamples(0), "few-samples"),
            (Limit::FewSamples(7), "few-samples"),
            (Limit::LostSamples { lost: 1, all: 2 }, "lost-samples"),
            (Limit::SamplesOf32BitPrograms(3), "other-code"),
            (Limit::SamplesWithoutFields(3), "samples-without-fields"),
            (Limit::UnobservedThreads(3), "unobserved-threads"),
            (Limit::TimersForPerf { why: why() }, "timers-for-perf"),
            (Limit::ThreadsWithoutTimer(3), "threads-without-timer"),
            (Limit::SignalTaken, "signal-taken"),
            (Limit::Confined, "confined"),
            (Limit::UnreadMemory { why: why() }, "unread-memory"),
            (Limit::NoWatchpoints { why: why() }, "no-watchpoints"),
            (
                Limit::Unattributed {
                    percent: 60.0,
                    functions: Vec::new(),
                },
                "unattributed",
            ),
            (Limit::GainNotMeasured { why: why() }, "gain-not-measured"),
            (Limit::Unconfirmed, "unconfirmed"),
            (Limit::Coincidences(1), "coincidences"),
            (Limit::Coincidences(5), "coincidences"),
            (Limit::ProcessesLeftOut, "processes-not-followed"),
            (Limit::ProcessesNotFollowed, "processes-not-followed"),
            (
                Limit::ProcessesGoOn {
                    named: vec!["1 (a)".to_owned()],
                    more: 0,
                },
                "processes-not-followed",
            ),
            (
                Limit::ProcessesGoOn {
                    named: vec!["1 (a)".to_owned(), "2 (a)".to_owned()],
                    more: 3,
                },
                "processes-not-followed",
            ),
            (Limit::ProcessesWithoutTimer, "processes-missed"),
            (Limit::ProcessesMissed(3), "processes-missed"),
            (Limit::ForeignProcesses, "processes-missed"),
            (
                Limit::ProcessesWithoutHeap {
                    named: vec!["1 (a)".to_owned()],
                    more: 0,
                },
                "processes-missed",
            ),
            (
                Limit::ProcessesWithoutHeap {
                    named: vec!["1 (a)".to_owned()],
                    more: 4,
                },
                "processes-missed",
            ),
            (Limit::NothingPreloaded { why: why() }, "nothing-preloaded"),
            (Limit::NoSegment { why: why() }, "nothing-preloaded"),
            (Limit::NoRuntime { why: why() }, "nothing-preloaded"),
            (Limit::NoHeapObject, "no-heap-object"),
            (Limit::ThreadsBeyondTable(3), "full-tables"),
            (Limit::BlocksBeyondTable(3), "full-tables"),
            (Limit::StacksBeyondTable(3), "full-tables"),
            (Limit::RecordedFile, "recorded-file"),
            (Limit::OtherLineSize(64), "recorded-file"),
            (Limit::Attached, "recorded-file"),
            (Limit::EndedEarly, "ended-early"),
            (Limit::WritesOnly, "isolate-observer"),
            (Limit::NothingIsolated { why: None }, "isolate-observer"),
            (Limit::IsolationEnded { why: why() }, "isolate-observer"),
            (
                Limit::IsolationPaused {
                    times: 1,
                    percent: 60,
                },
                "isolate-observer",
            ),
            (Limit::PagesBeyondTable(3), "isolate-observer"),
            (Limit::PagesHandedOver(3), "isolate-observer"),
            (Limit::ChangesLost(3), "isolate-observer"),
            (Limit::PartialTrace { why: why() }, "partial-trace"),
            (
                Limit::FewMisses {
                    objects: 2,
                    least: 5,
                },
                "left-out",
            ),
            (
                Limit::MoreObjects {
                    objects: 2,
                    misses: 5,
                },
                "left-out",
            ),
        ]
    }

    #[test]
    fn every_limit_has_its_topic_also_when_it_comes_from_a_file() {
        for (limit, topic) in all() {
            assert_eq!(limit.topic(), Some(topic), "{limit}");
            let read = Limit::Text(limit.to_string());
            assert_eq!(read.topic(), Some(topic), "{limit}");
        }
        assert_eq!(Limit::Text("Something else.".to_owned()).topic(), None);
    }
}
