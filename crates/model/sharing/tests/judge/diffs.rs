//! Streams of an observer that compares pages at intervals (SHERIFF). Changes in neighbouring
//! intervals tell which threads interleave; the samples taken at the same moments tell how long
//! each thread is on a line.

use crate::stream::*;
use sunder_access::{Access, CodeAddress, Kind, Provenance, ThreadId, Time};
use sunder_sharing::{Config, Judge, Sample, Sharing};

const INTERVAL: u64 = 10_000_000;

fn judge() -> Judge {
    let mut config = Config::default();
    config.diff_interval_ns = Some(INTERVAL);
    Judge::new(config)
}

fn access(what: Use, thread: u32, time: u64, provenance: Provenance) -> Access {
    Access {
        provenance,
        instruction: CodeAddress(0),
        ..traced(what, thread, time)
    }
}

/// A thread's commit: its changes, and a sample that touches what it changed.
fn commit(judge: &mut Judge, thread: u32, time: u64, word: u64) {
    let what = (LINE + 8 * word, 8, Kind::Write);
    judge.access(&access(what, thread, time, Provenance::Diffed));
    let seen = [(access(what, thread, time, Provenance::Sampled), 0)];
    judge.sample(&Sample {
        time: Time(time),
        thread: ThreadId(thread),
        period_ns: INTERVAL,
        accesses: &seen,
        near: &[],
        ways: None,
    });
}

#[test]
fn changes_in_the_same_intervals_are_interleaved() {
    let mut judge = judge();
    for n in 0..100 {
        commit(&mut judge, 1, n * INTERVAL, 0);
        commit(&mut judge, 2, n * INTERVAL + 3_000_000, 1);
    }
    judge.check_invariants();
    let v = verdict_on(&judge, LINE).expect("false sharing");
    assert_eq!(v.sharing, Sharing::False);
    assert!(v.confirmed);
    // 200 commits, less the arrivals of the two threads.
    assert_eq!(v.evidence, 198);
    // Every sample is on the line: both threads may lose all of their time.
    assert_near(v.cost_share, 1.0, 0.02);
    assert!(
        v.sites.is_empty(),
        "nobody knows the instruction: {:?}",
        v.sites
    );
}

/// A sample between two commits is no further turn.
#[test]
fn interleaved_writes_are_those_of_commits() {
    let mut judge = judge();
    for n in 0..100 {
        commit(&mut judge, 1, n * INTERVAL, 0);
        commit(&mut judge, 2, n * INTERVAL + 3_000_000, 1);
        for (thread, word, later) in [(1, 0, 4_000_000), (2, 1, 5_000_000)] {
            let time = n * INTERVAL + later;
            let what = (LINE + 8 * word, 8, Kind::Write);
            let seen = [(access(what, thread, time, Provenance::Sampled), 0)];
            judge.sample(&Sample {
                time: Time(time),
                thread: ThreadId(thread),
                period_ns: INTERVAL,
                accesses: &seen,
                near: &[],
                ways: None,
            });
        }
    }
    let v = verdict_on(&judge, LINE).expect("false sharing");
    // 200 commits in turns, of which the first follows none.
    assert_eq!(v.interleaved_writes, 199);
}

#[test]
fn turns_longer_than_an_interval_are_no_sharing() {
    let mut judge = judge();
    for n in 0..100 {
        let (thread, word) = if n / 3 % 2 == 0 { (1, 0) } else { (2, 1) };
        commit(&mut judge, thread, n * INTERVAL, word);
    }
    assert!(verdict_on(&judge, LINE).is_none_or(|v| v.evidence == 0));
}

#[test]
fn one_writer_beside_readers_is_not_seen_by_page_diffs() {
    let mut judge = judge();
    for n in 0..100 {
        commit(&mut judge, 1, n * INTERVAL, 0);
        let time = n * INTERVAL + 3_000_000;
        let what = (LINE + 8, 8, Kind::Read);
        let seen = [(access(what, 2, time, Provenance::Sampled), 0)];
        judge.sample(&Sample {
            time: Time(time),
            thread: ThreadId(2),
            period_ns: INTERVAL,
            accesses: &seen,
            near: &[],
            ways: None,
        });
    }
    assert!(verdict_on(&judge, LINE).is_none_or(|v| v.evidence == 0));
}

/// Each thread is on the line in a quarter of its samples. It loses no more than that, and no
/// more than the other's time there.
#[test]
fn the_cost_is_the_time_on_the_line() {
    let mut judge = judge();
    for n in 0..400 {
        for (thread, word) in [(1u32, 0), (2, 1)] {
            let time = n * INTERVAL + u64::from(thread) * 1_000_000;
            let what = (LINE + 8 * word, 8, Kind::Write);
            judge.access(&access(what, thread, time, Provenance::Diffed));
            let elsewhere = (LINE + 0x4000 * u64::from(thread), 8, Kind::Write);
            let touched = if n % 4 == 0 { what } else { elsewhere };
            let seen = [(access(touched, thread, time, Provenance::Sampled), 0)];
            judge.sample(&Sample {
                time: Time(time),
                thread: ThreadId(thread),
                period_ns: INTERVAL,
                accesses: &seen,
                near: &[],
                ways: None,
            });
        }
    }
    let v = verdict_on(&judge, LINE).expect("false sharing");
    assert_near(v.cost_share, 0.25, 0.01);
}
