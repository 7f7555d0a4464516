//! What execution bursts teach the judge: samples without any address become visits of the lines that
//! bursts saw, as far as control is likely to have come that way.

use crate::stream::*;
use sunder_access::{Access, Address};
use sunder_access::{CodeAddress, Kind, Span, ThreadId, Time};
use sunder_sharing::{Execution, Judge, Sample, Sharing, Ways};

/// The instruction that adds, and the join behind it.
const ADDS: CodeAddress = CodeAddress(0x40_0000);
const JOIN: CodeAddress = CodeAddress(0x40_0010);

/// A burst in which `thread` passed the join 8 times and executed the addition `executed` times, at
/// `address`.
fn burst(judge: &mut Judge, thread: u32, executed: u32, address: u64, time: u64) {
    let mut added = access((address, 8, Kind::Update), thread, time);
    added.instruction = ADDS;
    let accesses: Vec<Access> = vec![added; executed as usize];
    judge.execution(&Execution {
        time: Time(time),
        thread: ThreadId(thread),
        at: JOIN,
        passes: 8,
        executed: &[(ADDS, executed)],
        accesses: &accesses,
    });
}

/// A sample at the join, which tells no address.
fn sample_at_join(judge: &mut Judge, thread: u32, time: u64) {
    judge.sample(&Sample {
        time: Time(time),
        thread: ThreadId(thread),
        period_ns: MS,
        accesses: &[],
        near: &[],
        ways: Some(Ways {
            at: JOIN,
            perhaps: &[ADDS],
        }),
    });
}

fn word(thread: u32) -> u64 {
    LINE + 8 * u64::from(thread)
}

/// One second of two threads that are sampled at the join only, after `bursts` bursts of each.
fn a_second(bursts: u64, executed: u32) -> Judge {
    let mut judge = judge();
    for number in 0..bursts {
        for thread in [1, 2] {
            burst(&mut judge, thread, executed, word(thread), number * 1000);
        }
    }
    for i in 1..1000 {
        for thread in [1, 2] {
            sample_at_join(&mut judge, thread, i * MS + u64::from(thread) * 1000);
        }
    }
    judge.check_invariants();
    judge
}

#[test]
fn samples_behind_a_join_are_visits_once_two_bursts_agree() {
    let judge = a_second(2, 8);
    let found = verdict_on(&judge, LINE).expect("false sharing");
    assert_eq!(found.sharing, Sharing::False);
    assert_near(found.cost_share, 1.0, 0.02);
    // Nothing is confirmed by that.
    assert!(!found.confirmed);
    assert!(verdict_on(&a_second(0, 8), LINE).is_none());
    assert!(verdict_on(&a_second(1, 8), LINE).is_none());
}

#[test]
fn bursts_alone_are_no_evidence_of_sharing() {
    let mut judge = judge();
    for number in 0..100 {
        for thread in [1, 2] {
            burst(&mut judge, thread, 8, word(thread), number * 1000);
        }
    }
    judge.check_invariants();
    assert!(judge.verdicts().is_empty());
    assert!(judge.suspects(Time(100_000)).is_empty());
}

/// Of eight passes one comes by the addition: the time at the join is not its.
#[test]
fn time_behind_a_join_does_not_belong_to_the_way_that_is_seldom_taken() {
    assert!(verdict_on(&a_second(4, 1), LINE).is_none());
    // Of seven in eight, most of it is.
    let found = verdict_on(&a_second(4, 7), LINE).expect("false sharing");
    assert_near(found.cost_share, 7.0 / 8.0, 0.02);
}

/// The memory belongs to another object when the samples come.
#[test]
fn what_was_learned_of_freed_memory_is_forgotten() {
    let mut judge = judge();
    for number in 0..2 {
        for thread in [1, 2] {
            burst(&mut judge, thread, 8, word(thread), number * 1000);
        }
    }
    judge.retire(Span::new(Address(LINE), 64), Time(5000), 1);
    for i in 1..1000 {
        for thread in [1, 2] {
            sample_at_join(&mut judge, thread, i * MS + u64::from(thread) * 1000);
        }
    }
    assert!(verdict_on(&judge, LINE).is_none());
}
