//! Repairs on areas of no program: the tests play the library's part.

use super::measuring::MOST_EMPTY;
use super::*;
use crate::outcome::{YOU, why_back};
use std::sync::atomic::AtomicU64;
use sunder_access::ThreadId;
use sunder_gain::gained::{mean, pays};
use sunder_gain::gauge::gains;
use sunder_plan::progress::Gain;
use sunder_plan::remap::Group;

fn attempt() -> Attempt {
    let group = |offset, thread| Group {
        offset,
        size: 8,
        threads: [thread].into(),
    };
    let proposal = Proposal {
        page: 0x5000_0000,
        len: 4096,
        groups: vec![group(0, 1), group(8, 2)],
        object: "counters".into(),
        cost_share: 0.5,
        threads: vec![ThreadId(1), ThreadId(2)],
        code: 0,
        near: 0,
    };
    Attempt::new(proposal, Vec::new(), Some(0), Time(0), Windows::new())
}

/// An area as the library has it at the start.
fn area() -> Box<Area> {
    // SAFETY: `Area` consists of atomic integers, for which zeroes are valid.
    unsafe { Box::<Area>::new_zeroed().assume_init() }
}

fn moved(area: &Area, at: u64) {
    area.applied.store(at, Relaxed);
    area.state.store(ACTIVE, Release);
}

fn put_back(area: &Area, at: u64, reason: u32) {
    area.reason.store(reason, Relaxed);
    area.rolled_back.store(at, Relaxed);
    area.state.store(ROLLED_BACK, Release);
}

fn step(attempt: &mut Attempt, area: &Area, now: u64, bytes: &[Bytes]) -> Next {
    let own = ProcessId(std::process::id());
    attempt.step(area, own, now, &mut |_, _| bytes.to_vec())
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn bytes_that_the_kernel_needed_are_moved_again_while_contended() {
    let (mut attempt, area) = (attempt(), area());
    moved(&area, SECOND);
    assert!(matches!(
        step(&mut attempt, &area, SECOND, &[]),
        Next::Nothing
    ));
    put_back(&area, 2 * SECOND, BY_KERNEL);
    assert!(matches!(
        step(&mut attempt, &area, 2 * SECOND, &[]),
        Next::Nothing
    ));
    assert_eq!(attempt.stays[0].back, Some((BY_KERNEL, 2 * SECOND)));
    // The pause is over: contention is looked for, from a mark on.
    assert!(matches!(
        step(&mut attempt, &area, 3 * SECOND, &[]),
        Next::Mark
    ));
    let mark = Mark::nothing();
    attempt.look_from(mark, 3 * SECOND);
    assert!(matches!(
        step(&mut attempt, &area, 3 * SECOND + 1, &[]),
        Next::Nothing
    ));
    // Threads that can't be measured (none has this number) do not prevent another move.
    let bytes = [Bytes {
        thread: ThreadId(u32::MAX >> 2),
        original: 0x5000_0000,
        at: 0x5000_0000,
        len: 8,
    }];
    assert!(matches!(
        step(&mut attempt, &area, 3 * SECOND + 2, &bytes),
        Next::Again
    ));
    attempt.again(&area);
    assert_eq!(area.wanted.load(Relaxed), APPLY_AGAIN);
    moved(&area, 4 * SECOND);
    step(&mut attempt, &area, 4 * SECOND, &[]);
    assert_eq!(attempt.stays.len(), 2);
    assert_eq!(attempt.stays[1].back, None);
}

/// Whatever was gained, that is the reason.
#[test]
fn what_the_user_puts_back_is_told_as_that() {
    let (mut attempt, area) = (attempt(), area());
    moved(&area, SECOND);
    step(&mut attempt, &area, SECOND, &[]);
    let gain = Gain {
        ratio: 1.5,
        before: 2e-6,
        after: 3e-6,
        clocks: 1,
    };
    attempt.stays[0].gains = vec![(ThreadId(1), gain)];
    attempt.undo(&area);
    assert_eq!(area.wanted.load(Relaxed), ROLL_BACK);
    put_back(&area, 2 * SECOND, BY_TOOL);
    step(&mut attempt, &area, 2 * SECOND, &[]);
    assert_eq!(why_back(&attempt, None).as_deref(), Some(YOU));
}

/// One thread seemed to lose where the others gained. It is tried again soon, once.
#[test]
fn nobody_else_is_welcome_until_a_mixed_gain_was_tried_again() {
    let (mut attempt, area) = (attempt(), area());
    let gain = |ratio| Gain {
        ratio,
        before: 1.0,
        after: ratio,
        clocks: 1,
    };
    for (times, at) in [(1, SECOND), (2, 11 * SECOND)] {
        moved(&area, at);
        step(&mut attempt, &area, at, &[]);
        let stay = attempt.stays.last_mut().expect("it is moved");
        stay.gains = vec![(ThreadId(1), gain(0.8)), (ThreadId(2), gain(3.0))];
        put_back(&area, at + 1, BY_TOOL);
        step(&mut attempt, &area, at + 1, &[]);
        let soon = at + 1 + SECOND / 2;
        assert_eq!(attempt.has_failed(soon), times == 2);
        let next = step(&mut attempt, &area, soon, &[]);
        assert_eq!(matches!(next, Next::Mark), times == 1);
        attempt.again(&area);
    }
}

/// Other threads came to contend for bytes that no group holds. They go back, and are moved again only
/// after there was time to look for another layout.
#[test]
fn bytes_that_left_others_together_wait_for_another_layout() {
    let (mut attempt, area) = (attempt(), area());
    attempt.rearrange(&area, Rethought::LeftTogether);
    assert_eq!(area.wanted.load(Relaxed), NOTHING, "nothing has moved");
    moved(&area, SECOND);
    step(&mut attempt, &area, SECOND, &[]);
    attempt.rearrange(&area, Rethought::LeftTogether);
    assert_eq!(area.wanted.load(Relaxed), ROLL_BACK);
    put_back(&area, 2 * SECOND, BY_TOOL);
    let early = 2 * SECOND + RETHINK.as_nanos() as u64 - 1;
    assert!(matches!(
        step(&mut attempt, &area, 2 * SECOND, &[]),
        Next::Nothing
    ));
    assert!(attempt.has_gone_back(), "another layout is looked for");
    assert!(!attempt.has_failed(early), "nobody else is welcome yet");
    assert!(attempt.has_failed(early + 1));
    assert!(matches!(
        step(&mut attempt, &area, early, &[]),
        Next::Nothing
    ));
    assert!(matches!(
        step(&mut attempt, &area, 4 * SECOND, &[]),
        Next::Mark
    ));
}

/// The area lies in the program's memory, too.
#[test]
fn any_numbers_in_the_area_are_borne() {
    for number in [0, 1, SECOND, u64::MAX / 2, u64::MAX] {
        let (mut attempt, area) = (attempt(), area());
        for reason in 0..12 {
            for word in [&area.took, &area.faults] {
                word.store(number, Relaxed);
            }
            moved(&area, number.wrapping_add(reason.into()));
            step(&mut attempt, &area, 5 * SECOND, &[]);
            put_back(&area, number, reason);
            step(&mut attempt, &area, 6 * SECOND, &[]);
            step(&mut attempt, &area, 20 * SECOND, &[]);
            attempt.has_failed(20 * SECOND);
        }
    }
}

#[test]
fn bytes_without_contention_are_not_moved_again() {
    let (mut attempt, area) = (attempt(), area());
    moved(&area, SECOND);
    put_back(&area, 2 * SECOND, BY_KERNEL);
    let mut now = 2 * SECOND;
    for _ in 0..1000 {
        now += 10_000_000;
        match step(&mut attempt, &area, now, &[]) {
            Next::Mark => attempt.look_from(Mark::nothing(), now),
            Next::Again => panic!("no thread contends"),
            Next::Nothing => {}
        }
    }
    assert_eq!(attempt.stays.len(), 1);
}

#[test]
fn an_attempt_ends_when_its_bytes_cannot_stay_moved() {
    for (reason, spoilt) in [(sunder_wire::remap::BY_INSTRUCTION, 0), (BY_KERNEL, 1)] {
        let (mut attempt, area) = (attempt(), area());
        moved(&area, SECOND);
        area.spoilt.store(spoilt, Relaxed);
        put_back(&area, 2 * SECOND, reason);
        for n in 0..1000 {
            let next = step(&mut attempt, &area, 2 * SECOND + n * SECOND, &[]);
            assert!(matches!(next, Next::Nothing), "{reason}");
        }
    }
}

/// A repair whose bytes are to be moved, or to be moved again after they were put back, and for
/// which threads were asked `times` times.
fn asked(again: bool, times: u32) -> (Attempt, Box<Area>) {
    let (mut attempt, area) = (attempt(), area());
    if again {
        moved(&area, SECOND);
        step(&mut attempt, &area, SECOND, &[]);
        put_back(&area, 2 * SECOND, BY_KERNEL);
        step(&mut attempt, &area, 2 * SECOND, &[]);
        attempt.again(&area);
    } else {
        area.wanted.store(APPLY, Relaxed);
    }
    attempt.asked = times;
    (attempt, area)
}

#[test]
fn an_unanswered_request_holds_up_others_for_a_while_only() {
    for again in [false, true] {
        let (attempt, area) = asked(again, 1);
        assert!(attempt.holds_up(&area), "threads were asked only once");
        let (mut attempt, area) = asked(again, PATIENCE_OF_OTHERS + 1);
        assert!(!attempt.holds_up(&area));
        // The bytes are moved after all, and threads are measured.
        moved(&area, 3 * SECOND);
        step(&mut attempt, &area, 3 * SECOND, &[]);
        assert!(attempt.holds_up(&area), "threads have not settled");
    }
}

#[test]
fn a_request_that_was_given_up_is_not_carried_out_later() {
    let (mut attempt, area) = asked(false, 400);
    attempt.give_up(&area);
    assert!(!attempt.holds_up(&area) && !is_on_its_way(&area));
    assert_eq!(
        area.state.load(Relaxed),
        REFUSED,
        "no thread finds the area free"
    );
    assert!(attempt.hindrance.is_some(), "the reason is reported");
    let (mut attempt, area) = asked(true, 400);
    attempt.give_up(&area);
    assert!(!attempt.holds_up(&area) && !is_on_its_way(&area));
    assert_eq!(area.wanted.load(Relaxed), NOTHING);
    assert_eq!(area.state.load(Relaxed), ROLLED_BACK);
}

/// The bytes are being moved when patience ends: the repair goes on.
#[test]
fn a_move_that_begins_while_it_is_given_up_goes_on() {
    let (mut attempt, area) = asked(false, 400);
    area.state.store(APPLYING, Relaxed);
    attempt.give_up(&area);
    assert!(attempt.holds_up(&area));
    assert_eq!(area.state.load(Relaxed), APPLYING);
    moved(&area, 3 * SECOND);
    step(&mut attempt, &area, 3 * SECOND, &[]);
    assert_eq!(attempt.stays.len(), 1);
}

/// A repair whose threads get on no faster is put back: the calling thread counts at the same pace
/// in all windows.
#[test]
fn a_move_that_does_not_help_is_put_back() {
    let own = ProcessId(std::process::id());
    // SAFETY: takes no arguments.
    let thread = ThreadId(unsafe { libc::syscall(libc::SYS_gettid) } as u32);
    let counter = AtomicU64::new(0);
    let bytes = [Bytes {
        thread,
        original: counter.as_ptr() as u64,
        at: counter.as_ptr() as u64,
        len: 8,
    }];
    // The thread's own CPU time is the clock, so that the load of the machine does not matter.
    let count = |gauge: &mut Gauge| {
        while !gauge.is_enough() {
            for _ in 0..20_000 {
                counter.fetch_add(1, Relaxed);
            }
            gauge.read(&bytes);
        }
    };
    let Some(mut gauge) = Gauge::begin(own, &[thread]) else {
        println!("SKIP: the kernel lets us measure no thread");
        return;
    };
    count(&mut gauge);
    let (mut attempt, area) = (attempt(), area());
    attempt.before = gauge.end();
    moved(&area, 0);
    // The same readings stand for an unchanged pace.
    let same = attempt.before.clone();
    let found = gains(&attempt.before, &same);
    assert!(found.iter().all(|(_, gain)| gain.ratio == 1.0), "{found:?}");
    assert_eq!(mean(&found), Some(1.0));
    attempt.stays.push(Stay::default());
    // The second window may also show nothing, as if its threads hardly ran.
    for second in [same.clone(), Windows::new()] {
        area.wanted.store(NOTHING, Relaxed);
        let none = Earlier::default();
        let Phase::Measuring { earlier, .. } = attempt.judge(&area, own, 0, same.clone(), none)
        else {
            panic!("one window is not enough");
        };
        assert_eq!(area.wanted.load(Relaxed), NOTHING);
        assert!(matches!(
            attempt.judge(&area, own, 0, second, earlier),
            Phase::Settled
        ));
        assert_eq!(area.wanted.load(Relaxed), ROLL_BACK);
    }
    put_back(&area, SECOND, BY_TOOL);
    attempt.follow(&area, SECOND);
    assert_eq!(attempt.past()[0].ended, EndReason::NoGain);

    // Without any window that shows something, nothing is known, and the bytes stay.
    area.wanted.store(NOTHING, Relaxed);
    let mut earlier = Earlier::default();
    let mut windows = 0;
    attempt.stays.push(Stay::default());
    while let Phase::Measuring { earlier: these, .. } =
        attempt.judge(&area, own, 0, Windows::new(), earlier)
    {
        earlier = these;
        windows += 1;
    }
    assert_eq!(windows, MOST_EMPTY - 1);
    assert_eq!(area.wanted.load(Relaxed), NOTHING);
    assert!(attempt.unmeasured.is_some());
}

#[test]
fn a_move_that_slows_one_thread_down_does_not_pay() {
    let of = |ratios: &[f64]| -> Vec<(ThreadId, Gain)> {
        let gain = |ratio| Gain {
            ratio,
            before: 1.0,
            after: ratio,
            clocks: 1,
        };
        let threads = (1..).map(ThreadId);
        threads.zip(ratios.iter().map(|&r| gain(r))).collect()
    };
    let pays = |ratios: &[f64]| pays(&of(ratios), &[]);
    assert!(pays(&[2.0, 1.2]));
    // One of them a little slower may be chance.
    assert!(pays(&[2.0, 0.97]));
    // The mean is 1.2, and whoever waits for both threads waits longer.
    assert!(!pays(&[1.8, 0.8]));
    assert!(!pays(&[1.02, 1.02]));
    assert!(!pays(&[]));
}
