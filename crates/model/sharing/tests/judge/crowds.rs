//! Arrays of many lines, each of which has too few visits to be judged alone. Threads of known
//! behaviour walk over 256 lines; bursts show what such threads would do.

use crate::stream::*;
use sunder_access::{Access, Address, CodeAddress, Kind, Provenance, ThreadId, Time};
use sunder_sharing::{Burst, Judge, Sample, Sharing, Verdict};

const LINES: u64 = 256;
const PERIOD: u64 = 4 * MS;
const SECONDS: u64 = 10;

/// How the threads use the array.
#[derive(Clone, Copy)]
enum Use {
    /// Each has its words on every line.
    InTurns,
    /// Both use the same words of every line.
    TheSame,
    /// Each has one half of the lines, but for two lines in the middle.
    InHalves,
    /// Each has one half of the lines, and the halves change owner each 700 ms.
    InChangingHalves,
}

/// The line and word that a thread uses at `time`, if it draws this line.
fn used(how: Use, thread: u32, time: u64, drawn: u64) -> Address {
    let index = u64::from(thread - 1);
    let half = LINES / 2;
    let (line, word) = match how {
        Use::InTurns => (drawn, index),
        Use::TheSame => (drawn, 0),
        Use::InHalves => (drawn % (half + 1) + index * (half - 1), index),
        Use::InChangingHalves => {
            let side = (index + time / (700 * MS)) % 2;
            (drawn % half + side * half, index)
        }
    };
    Address(LINE + 64 * line + 8 * word)
}

fn access_at(address: Address, thread: u32, time: u64, provenance: Provenance) -> Access {
    Access {
        time: Time(time),
        thread: ThreadId(thread),
        // All threads execute one loop.
        instruction: CodeAddress(0x40_1000),
        address,
        width: 8,
        kind: Kind::Update,
        provenance,
        weight: 1.0,
    }
}

/// Two threads that spend half of their time on the array, as `how` says.
fn walked(how: Use, seed: u64) -> Judge {
    walked_wide(how, seed, 1)
}

/// The same, with a loop of which each round is on so many lines.
fn walked_wide(how: Use, seed: u64, wide: u64) -> Judge {
    let mut judge = judge();
    let mut random = Random(seed);
    let mut all: Vec<(u64, u32, Option<Address>)> = Vec::new();
    for thread in [1, 2] {
        let mut time = 0.0;
        loop {
            time += random.exponential(PERIOD as f64);
            if time >= (SECONDS * SECOND) as f64 {
                break;
            }
            let is_there = random.unit() < 0.5;
            let at = used(how, thread, time as u64, random.next() % LINES);
            all.push((time as u64, thread, is_there.then_some(at)));
        }
    }
    all.sort_unstable();
    for (time, thread, at) in all {
        let lines = (0..wide).filter_map(|n| Some(at?.offset(64 * n as i64)));
        let accesses: Vec<_> = lines
            .map(|at| (access_at(at, thread, time, Provenance::Sampled), 0))
            .collect();
        judge.sample(&Sample {
            time: Time(time),
            thread: ThreadId(thread),
            period_ns: PERIOD,
            accesses: &accesses,
            near: &[],
            ways: None,
        });
    }
    judge.check_invariants();
    judge
}

/// Watches the suspects one after another, as a program that uses its array as `how` says would
/// answer, at most `most` times.
fn watch(judge: &mut Judge, how: Use, most: usize) -> usize {
    let at = SECONDS * SECOND;
    for done in 0..most {
        let suspects = judge.suspects(Time(at));
        let wanted = suspects.iter().filter(|s| s.cost_share > 0.01);
        let Some(suspect) = wanted
            .min_by_key(|s| s.quiet_bursts + s.loud_bursts)
            .cloned()
        else {
            return done;
        };
        // In a burst of 4 ms each thread passes the line 40 times, if the line is its own now.
        let mut hits: Vec<Access> = Vec::new();
        for pass in 0..80 {
            let (time, thread) = (at + pass * 50_000, 1 + (pass % 2) as u32);
            let line = (suspect.line.0 - LINE) / 64;
            let reached = (0..LINES).map(|drawn| used(how, thread, time, drawn));
            let mut reached = reached.filter(|a| (a.0 - LINE) / 64 == line);
            hits.extend(
                reached
                    .next()
                    .map(|a| access_at(a, thread, time, Provenance::Watched)),
            );
        }
        judge.burst(&Burst {
            words: &suspect.words,
            started: Time(at),
            ended: Time(at + 4 * MS),
            accesses: &hits,
        });
    }
    most
}

fn cost(verdicts: &[Verdict]) -> f64 {
    verdicts.iter().map(|v| v.cost_share).sum()
}

#[test]
fn an_array_whose_elements_are_used_in_turns_costs_the_time_on_it() {
    let mut shares = Vec::new();
    for seed in 1..=5 {
        let mut judge = walked(Use::InTurns, seed);
        // Its lines are suspects at once: without them no burst would ever look at it.
        assert!(judge.suspects(Time(SECONDS * SECOND)).len() >= 64);
        let bursts = watch(&mut judge, Use::InTurns, 40);
        assert!(bursts < 40, "they end when enough is known");
        let verdicts = judge.verdicts();
        assert!(verdicts.iter().all(|v| v.sharing == Sharing::False));
        assert!(verdicts.len() > 200, "{}", verdicts.len());
        shares.push(cost(&verdicts));
    }
    // Half of the time is spent there, and each can lose all of it. Five visits of each thread on
    // a line: hardly a line has visits of one thread alone.
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    assert_near(mean, 0.5 * 0.95, 0.5 * 0.1);
}

#[test]
fn a_loop_that_is_on_several_lines_at_once_loses_its_time_once() {
    let mut judge = walked_wide(Use::InTurns, 1, 3);
    watch(&mut judge, Use::InTurns, 40);
    let cost = cost(&judge.verdicts());
    assert_near(cost, 0.5 * 0.95, 0.5 * 0.15);
}

#[test]
fn without_bursts_only_what_lines_show_alone_counts() {
    let judge = walked(Use::InTurns, 1);
    // A quarter of the half that is true.
    assert!(
        cost(&judge.verdicts()) < 0.15,
        "{}",
        cost(&judge.verdicts())
    );
}

#[test]
fn memory_that_is_freed_keeps_what_its_crowd_cost() {
    let mut judge = walked(Use::InTurns, 1);
    watch(&mut judge, Use::InTurns, 40);
    let before = cost(&judge.verdicts());
    let all = sunder_access::Span::new(Address(LINE), 64 * LINES);
    judge.retire(all, Time(SECONDS * SECOND + 10 * MS), 7);
    let verdicts = judge.verdicts();
    assert!(verdicts.iter().all(|v| v.owner == Some(7)));
    assert_near(cost(&verdicts), before, 0.02);
}

#[test]
fn words_that_both_use_are_no_false_sharing() {
    let mut judge = walked(Use::TheSame, 1);
    watch(&mut judge, Use::TheSame, 40);
    let mut verdicts = judge.verdicts();
    assert!(verdicts.iter().any(|v| v.confirmed));
    verdicts.retain(|v| v.sharing != Sharing::True);
    assert_eq!(verdicts, []);
}

#[test]
fn parts_of_an_array_that_belong_to_one_thread_each_cost_nothing() {
    let mut judge = walked(Use::InHalves, 1);
    watch(&mut judge, Use::InHalves, 40);
    let verdicts = judge.verdicts();
    // The lines in the middle are shared, and have a hundredth of the time.
    assert!(verdicts.len() <= 2 && cost(&verdicts) < 0.02);
}

#[test]
fn parts_that_change_owner_are_given_up_after_quiet_bursts() {
    let mut judge = walked(Use::InChangingHalves, 1);
    watch(&mut judge, Use::InChangingHalves, 40);
    let verdicts = judge.verdicts();
    assert!(verdicts.iter().all(|v| !v.confirmed));
    assert!(cost(&verdicts) < 0.1, "{}", cost(&verdicts));
}
