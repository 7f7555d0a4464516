//! Into which groups `sunder repair` splits bytes: by the threads that use them, also if some are
//! shared truly, and never for the sake of true sharing alone. Judged by what was moved and by the
//! program's output, never by time.

use crate::support::repaired::{Run, repaired, strings, until_moved, workload};
use crate::support::targets;
use sunder_findings::{Moved, MovedGroup};

/// One workload: its threads, and the offsets on a line of the bytes that stay. Bytes that no
/// thread uses may move with their neighbours.
struct Case {
    name: &'static str,
    threads: u32,
    stays: std::ops::Range<u64>,
    /// Whether its threads contend all the time, on two CPUs too.
    always: bool,
}

const CASES: [Case; 5] = [
    // The limits, which the other threads read, stay; the progress counters move.
    Case {
        name: "single_writer",
        threads: 2,
        stays: 0..16,
        always: true,
    },
    Case {
        name: "flag_beside_counter",
        threads: 2,
        stays: 8..9,
        always: true,
    },
    // The settings stay; the counters move, whether one thread writes them or two.
    Case {
        name: "fs_mixed",
        threads: 2,
        stays: 0..16,
        always: true,
    },
    Case {
        name: "fs_mixed",
        threads: 4,
        stays: 0..16,
        always: false,
    },
    // Two words, each with a writer and a reader; the allocator's header lies before them.
    Case {
        name: "listing_a1_v5",
        threads: 4,
        stays: 0..16,
        always: false,
    },
];

impl Case {
    fn run(&self, times: u64) -> Run {
        let (arguments, native) = workload(self.name, self.threads, 2 * times);
        let name = format!("{}-{}", self.name, self.threads);
        let run = repaired(&name, &[], &strings(&arguments));
        assert_eq!(run.stdout, native, "{name}: {}", run.stderr);
        assert_eq!(run.status, Some(0), "{name}: {}", run.stderr);
        run
    }

    /// Checks that the bytes are grouped by the threads that use them.
    fn check(&self, moved: &Moved) {
        for group in &moved.groups {
            let from = group.from.0 % 64;
            let stay = from >= self.stays.end || from + group.bytes <= self.stays.start;
            assert!(stay, "{}: {moved:#?}", self.name);
        }
        // No two groups on one line.
        let to = |group: &MovedGroup| group.to.expect("an address").0;
        let mut lines: Vec<u64> = moved.groups.iter().map(|g| to(g) / 64).collect();
        lines.dedup();
        assert_eq!(lines.len(), moved.groups.len(), "{moved:#?}");
    }
}

#[test]
fn what_different_threads_use_comes_apart_beside_what_they_share() {
    let _alone = targets::alone();
    for case in &CASES {
        let what = format!("{} of {} threads", case.name, case.threads);
        let run = until_moved(&what, case.always, |times| case.run(times));
        let Some(run) = run else { continue };
        println!("{what}: {}", run.stderr.trim());
        let moved = &run.repair().moved;
        moved.iter().for_each(|moved| case.check(moved));
    }
}

/// The threads use bits of one byte, or all use one word: moving bytes can't help.
#[test]
fn true_sharing_is_left_alone() {
    let _alone = targets::alone();
    for name in ["bitmask", "true_share", "true_sharing"] {
        let (arguments, native) = workload(name, 2, 1);
        let run = repaired(name, &[], &strings(&arguments));
        assert_eq!(run.stdout, native, "{name}: {}", run.stderr);
        assert_eq!(run.status, Some(0), "{name}: {}", run.stderr);
        assert!(run.repair().moved.is_empty(), "{name}: {}", run.stderr);
    }
}

/// The nodes of two threads' lists lie in turn in one mapping, and only some of them are seen in use
/// before the move. All go to their threads as a whole, unless a node was seen used by both.
#[test]
fn elements_of_which_only_some_were_seen_go_to_their_threads_as_a_whole() {
    const NODE: u64 = 24;
    const TRIES: usize = 4;
    let (words, native) = workload("timer_lists", 2, 4);
    targets::side_by_side("nodes in turn", || {
        let mut said = String::new();
        for _ in 0..TRIES {
            let run = repaired("timer_lists", &[], &strings(&words));
            assert_eq!(run.stdout, native, "{}", run.stderr);
            let is_whole = |moved: &Moved| {
                let node = |group: &MovedGroup| {
                    group.bytes == NODE && (group.from.0 - moved.address.0).is_multiple_of(NODE)
                };
                moved.groups.len() >= 64 && moved.groups.iter().take(64).all(node)
            };
            if run.repair().moved.iter().any(is_whole) {
                return Ok(());
            }
            said = run.stderr;
        }
        Err(said)
    });
}
