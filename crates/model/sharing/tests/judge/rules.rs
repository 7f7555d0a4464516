//! Every rule of sharing as a stream: SHERIFF's Table 1, the thesis's Listing
//! A.1, CCBench (Plastic, Table 1), and what has fooled other tools.

use crate::stream::*;
use sunder_access::{Address, Kind, Span, ThreadId, Time};
use sunder_sharing::{ByteState, Confidence, Config, Judge, Sharing};

use Kind::{Atomic, Read, Update, Write};

fn word(index: u64) -> u64 {
    LINE + 8 * index
}

/// Threads numbered from 1, each spending all its time on its uses, in equal parts.
fn busy(all: &[&[Use]]) -> Vec<Model> {
    let model = |(i, uses): (usize, &&[Use])| {
        let share = 1.0 / uses.len() as f64;
        let uses: Vec<_> = uses.iter().map(|&u| (u, share)).collect();
        Model::new(i as u32 + 1, &uses)
    };
    all.iter().enumerate().map(model).collect()
}

fn sharing_of(all: &[&[Use]]) -> (Sharing, f64) {
    let judge = judged(&busy(all), 2 * SECOND);
    let v = verdict_on(&judge, LINE).expect("the line is contended all the time");
    (v.sharing, v.false_share)
}

// SHERIFF, Table 1.

#[test]
fn adjacent_objects_share_falsely() {
    let judge = judged(
        &busy(&[&[(word(0), 4, Update)], &[(LINE + 4, 4, Update)]]),
        2 * SECOND,
    );
    let v = verdict_on(&judge, LINE).expect("false sharing");
    assert_eq!(v.sharing, Sharing::False);
    assert_near(v.false_share, 1.0, 0.0);
    // Both threads do nothing else, so only their time bounds the loss. The minimum of two
    // noisy counts is some 7% low.
    assert_near(v.cost_share, 1.0, 0.12);
    assert_eq!(v.confidence(), Confidence::Sampled);
    assert_eq!(&v.bytes[..8], [ByteState::Written; 8]);
    assert_eq!(v.bytes[8], ByteState::Unused);
}

#[test]
fn array_elements_share_falsely() {
    let threads: Vec<[Use; 1]> = (0..8).map(|i| [(word(i), 8, Update)]).collect();
    let uses: Vec<&[Use]> = threads.iter().map(|u| u.as_slice()).collect();
    let judge = judged(&busy(&uses), 2 * SECOND);
    let v = verdict_on(&judge, LINE).expect("pseudo sharing");
    assert_eq!(v.sharing, Sharing::False);
    assert_eq!((v.threads.len(), v.words.len()), (8, 8));
    for (i, w) in v.words.iter().enumerate() {
        assert_eq!((w.offset, w.size), (8 * i as u32, 8));
        assert_eq!(w.threads.len(), 1, "each element has one thread");
        assert_eq!(w.threads[0].thread, ThreadId(i as u32 + 1));
    }
}

#[test]
fn one_common_counter_is_true_sharing() {
    let (sharing, false_share) = sharing_of(&[&[(word(0), 8, Update)], &[(word(0), 8, Update)]]);
    assert_eq!(sharing, Sharing::True);
    assert_near(false_share, 0.0, 0.0);
}

#[test]
fn two_threads_one_after_the_other_do_not_share() {
    let models = [
        Model::new(1, &[((word(0), 8, Update), 1.0)]).during(|t| t < SECOND),
        Model::new(2, &[((word(1), 8, Update), 1.0)]).during(|t| t >= SECOND),
    ];
    assert_eq!(judged(&models, 2 * SECOND).verdicts(), []);
}

/// Threads 1 and 2 in the first second, 3 and 4 in the second, 5 and 6 in the third.
fn in_steps(uses: [&[Use]; 2]) -> Vec<Model> {
    let steps: [fn(u64) -> bool; 3] = [
        |t| t < SECOND,
        |t| (SECOND..2 * SECOND).contains(&t),
        |t| t >= 2 * SECOND,
    ];
    let step = |i: usize| {
        let share = 1.0 / uses[i % 2].len() as f64;
        let uses: Vec<_> = uses[i % 2].iter().map(|&u| (u, share)).collect();
        Model::new(i as u32 + 1, &uses).during(steps[i / 2])
    };
    (0..6).map(step).collect()
}

#[test]
fn threads_created_for_each_step_share_as_lasting_threads_do() {
    // Each step has two new threads, which use the elements that the two threads before used.
    let own = in_steps([&[(word(0), 8, Update)], &[(word(1), 8, Update)]]);
    let v = verdict_on(&judged(&own, 3 * SECOND), LINE).expect("contended in each step");
    assert_eq!((v.sharing, v.false_share), (Sharing::False, 1.0));
    assert_eq!(&v.bytes[..16], [ByteState::Written; 16]);

    // What the two threads of a step share truly stays true.
    let common = [(word(0), 8, Update)];
    let v = verdict_on(&judged(&in_steps([&common, &common]), 3 * SECOND), LINE);
    assert_eq!(v.expect("contended").sharing, Sharing::True);
    let (a, b) = (
        [(word(0), 8, Update), (word(1), 8, Update)],
        [(word(0), 8, Update), (word(2), 8, Update)],
    );
    let v = verdict_on(&judged(&in_steps([&a, &b]), 3 * SECOND), LINE).expect("contended");
    assert_eq!(v.sharing, Sharing::Mixed);
    // The share is that of two threads that do so all the time
    // (`a_common_word_and_own_words_in_equal_parts_are_half_false`).
    assert_near(v.false_share, 0.5, 0.1);
}

/// Two new threads every 5 ms, of which a millisecond's samples see little. The order of so few visits
/// may be chance, but the ends of threads are known.
#[test]
fn threads_that_had_ended_were_never_there_with_those_that_came_later() {
    let kind = |ends_are_known: bool| {
        let mut judge = judge();
        for step in 0..100u32 {
            let begin = u64::from(step) * 5 * MS;
            for visit in 0..8u32 {
                let (thread, own) = (1 + 2 * step + visit % 2, u64::from(visit % 2));
                let time = begin + u64::from(visit) * MS / 2;
                sample(&mut judge, time, thread, MS, &[(word(own), 8, Update)]);
            }
            for thread in [1 + 2 * step, 2 + 2 * step] {
                if ends_are_known {
                    judge.ended(ThreadId(thread), Time(begin + 4 * MS));
                }
            }
        }
        let v = verdict_on(&judge, LINE).expect("contended in each step");
        (v.sharing, v.bytes[0])
    };
    assert_eq!(kind(true), (Sharing::False, ByteState::Written));
    assert_eq!(kind(false).1, ByteState::WrittenShared);
}

#[test]
fn threads_that_take_turns_on_the_cpus_count_as_present_throughout() {
    // Four threads on two CPUs: 1 and 2 for 100 ms, then 3 and 4 on the same words, and so on.
    let turns: [fn(u64) -> bool; 2] = [
        |t| (t / (100 * MS)).is_multiple_of(2),
        |t| t / (100 * MS) % 2 == 1,
    ];
    let uses = [(word(0), 8, Update), (word(1), 8, Update)];
    let model = |i: usize| Model::new(i as u32 + 1, &[(uses[i % 2], 1.0)]).during(turns[i / 2]);
    let models: Vec<_> = (0..4).map(model).collect();
    let v = verdict_on(&judged(&models, 2 * SECOND), LINE).expect("contended in each turn");
    assert_eq!(v.sharing, Sharing::Mixed);
    assert_eq!(&v.bytes[..16], [ByteState::WrittenShared; 16]);
}

#[test]
fn a_reused_heap_address_is_not_sharing() {
    let mut judge = judge();
    // The allocator hands the block back and forth faster than samples can show.
    for round in 0..200 {
        let thread = 1 + round % 2;
        let time = u64::from(round) * 2 * MS;
        sample(&mut judge, time, thread, MS, &[(word(0), 8, Update)]);
        sample(&mut judge, time + MS, thread, MS, &[(word(1), 8, Write)]);
        judge.retire(
            Span::new(Address(LINE), 16),
            Time(time + MS + 1),
            round.into(),
        );
    }
    judge.check_invariants();
    assert_eq!(judge.verdicts(), []);
}

#[test]
fn without_retiring_the_same_stream_is_sharing() {
    let mut judge = judge();
    for round in 0..200u64 {
        let thread = 1 + (round % 2) as u32;
        sample(&mut judge, round * MS, thread, MS, &[(word(0), 8, Update)]);
    }
    assert!(verdict_on(&judge, LINE).is_some());
}

// The thesis, Listing A.1, each variant with its number of threads.

#[test]
fn thesis_v1_and_v2_increment_own_elements() {
    let v1: [&[Use]; 2] = [&[(word(0), 8, Update)], &[(word(1), 8, Update)]];
    assert_eq!(sharing_of(&v1).0, Sharing::False);
    let own = |i| [(word(i), 8, Read), (word(i), 8, Write)];
    assert_eq!(sharing_of(&[&own(0), &own(1)]).0, Sharing::False);
}

#[test]
fn thesis_v3_updates_one_byte_of_each_word() {
    // ptr = (char *)(globalvar + id); ptr[id]++
    let byte = |id: u64| [(word(id) + id, 1, Update)];
    let judge = judged(&busy(&[&byte(0), &byte(1), &byte(2)]), SECOND);
    let v = verdict_on(&judge, LINE).expect("false sharing");
    assert_eq!(v.sharing, Sharing::False);
    let runs: Vec<_> = v.words.iter().map(|w| (w.offset, w.size)).collect();
    assert_eq!(runs, [(0, 1), (9, 1), (18, 1)]);
}

#[test]
fn thesis_v4_reads_and_updates_in_turn() {
    let own = |i| [(word(i), 8, Read), (word(i), 8, Update)];
    assert_eq!(sharing_of(&[&own(0), &own(1)]).0, Sharing::False);
}

#[test]
fn thesis_v5_readers_share_a_word_with_their_writer() {
    let writer = |off| [(word(off), 8, Update)];
    let reader = |off| [(word(off), 8, Read)];
    // Two threads: both on element 0.
    assert_eq!(sharing_of(&[&writer(0), &reader(0)]).0, Sharing::True);
    // Four threads with n/4 accesses each: 5 of the 6 pairs of threads conflict, which gives
    // 2 * 5 (n/4)^2 / n = 5n/8 changes. One word alone has 2 (n/4)^2 / (n/2) = n/4, both words
    // have n/2. One fifth goes away.
    let (sharing, share) = sharing_of(&[&writer(0), &reader(0), &writer(1), &reader(1)]);
    assert_eq!(sharing, Sharing::Mixed);
    assert_near(share, 0.2, 0.05);
}

// CCBench.

#[test]
fn ccbench_fs_mixed_is_mixed() {
    // Both threads read one range and update another, in equal parts. Of the 4 ordered pairs
    // each way 3 conflict: 2 * 3/4 * (n/2)^2 / n = 3n/8 changes. The updated range alone has 2
    // (n/4)^2 / (n/2) = n/4. One third goes away.
    let both: &[Use] = &[(word(0), 8, Read), (word(4), 8, Update)];
    let (sharing, share) = sharing_of(&[both, both]);
    assert_eq!(sharing, Sharing::Mixed);
    assert_near(share, 1.0 / 3.0, 0.05);
}

#[test]
fn ccbench_bitmask_and_true_share_are_true() {
    let flags: &[Use] = &[(word(0), 1, Read), (word(0), 1, Atomic)];
    assert_eq!(sharing_of(&[flags, flags]).0, Sharing::True);
    let lock: &[Use] = &[(word(0), 4, Read), (word(0), 4, Atomic)];
    assert_eq!(sharing_of(&[lock, lock, lock]).0, Sharing::True);
}

// Mixtures.

#[test]
fn a_common_word_and_own_words_in_equal_parts_are_half_false() {
    // All n accesses: 2 (n/2)^2 / n = n/2 changes. The common word alone, with half of the
    // accesses: n/4. Half of the changes go away.
    let uses = |own| [(word(0), 8, Update), (word(own), 8, Update)];
    let (sharing, share) = sharing_of(&[&uses(1), &uses(2)]);
    assert_eq!(sharing, Sharing::Mixed);
    assert_near(share, 0.5, 0.05);
}

#[test]
fn two_fields_that_both_threads_update_are_true_sharing() {
    // On separate lines, each field would change hands as often as both do now.
    let both: &[Use] = &[(word(0), 8, Update), (word(5), 8, Update)];
    let (sharing, share) = sharing_of(&[both, both]);
    assert_eq!(sharing, Sharing::True);
    assert_near(share, 0.0, 0.05);
}

#[test]
fn many_common_fields_are_true_sharing_also_by_few_samples() {
    // 16 fields, of which each is seen about eight times: with such small counts a biased
    // estimate would call a tenth of the changes false.
    let fields: Vec<Use> = (0..16).map(|i| (LINE + 4 * i, 4, Update)).collect();
    let shares: Vec<f64> = (0..40)
        .map(|seed| {
            let mut judge = judge();
            simulate(&mut judge, &busy(&[&fields, &fields]), MS, 64 * MS, seed);
            verdict_on(&judge, LINE).expect("contended").false_share
        })
        .collect();
    let mean = shares.iter().sum::<f64>() / 40.0;
    assert_near(mean, 0.0, 0.06);
}

#[test]
fn one_writer_beside_readers_of_other_bytes_is_false_sharing() {
    let (sharing, share) = sharing_of(&[
        &[(word(0), 8, Write)],
        &[(word(1), 8, Read)],
        &[(word(1), 8, Read)],
    ]);
    assert_eq!((sharing, share), (Sharing::False, 1.0));
}

#[test]
fn readers_alone_do_not_contend() {
    let judge = judged(
        &busy(&[&[(word(0), 8, Read)], &[(word(0), 8, Read)]]),
        SECOND,
    );
    assert_eq!(judge.verdicts(), []);
}

// Plastic, Figure 6.

#[test]
fn bytes_have_the_states_of_plastics_figure_6() {
    let judge = judged(
        &busy(&[
            &[
                (word(0), 1, Read),
                (word(1), 1, Read),
                (word(2), 1, Write),
                (word(3), 1, Write),
                (word(4), 1, Update),
            ],
            &[
                (word(1), 1, Read),
                (word(3), 1, Read),
                (word(4), 1, Write),
                (word(5), 1, Atomic),
            ],
        ]),
        4 * SECOND,
    );
    let v = verdict_on(&judge, LINE).expect("contended");
    let state = |i: usize| v.bytes[8 * i].letters();
    let states: Vec<_> = (0..7).map(state).collect();
    assert_eq!(states, ["R", "RS", "RW", "RWS", "RWS", "RW", "-"]);
    assert!(!v.bytes[1].is_written(), "only the first byte was touched");
    assert_eq!(v.sharing, Sharing::Mixed);
}

// Order and time.

#[test]
fn initialisation_by_the_main_thread_is_no_use_by_it() {
    let mut models = busy(&[&[(word(0), 8, Update)], &[(word(1), 8, Update)]]);
    for m in &mut models {
        m.active = |t| t >= SECOND;
    }
    let all: Vec<_> = (0..8).map(|i| ((word(i), 8, Write), 0.125)).collect();
    models.push(Model::new(9, &all).during(|t| t < SECOND));
    let judge = judged(&models, 2 * SECOND);
    let v = verdict_on(&judge, LINE).expect("false sharing of the workers");
    assert_eq!(v.sharing, Sharing::False);
    assert!(v.threads.iter().all(|t| t.thread != ThreadId(9)));
    assert_eq!(v.words.len(), 2, "only what the workers touch");
}

#[test]
fn long_phases_in_turn_cost_next_to_nothing() {
    // Phases of 50 ms in turn, on words of one line, for 10 s: 200 changes in all.
    let models = [
        Model::new(1, &[((word(0), 8, Update), 1.0)]).during(|t| (t / (50 * MS)).is_multiple_of(2)),
        Model::new(2, &[((word(1), 8, Update), 1.0)]).during(|t| t / (50 * MS) % 2 == 1),
    ];
    let judge = judged(&models, 10 * SECOND);
    for v in judge.verdicts() {
        assert!(v.cost_share < 0.01, "{} of the time", v.cost_share);
    }
}

#[test]
fn an_object_prepared_used_and_collected_is_no_evidence() {
    let mut judge = judge();
    for (time, thread) in [(0, 1), (1, 1), (2, 1), (3, 2), (5, 1), (6, 1)] {
        sample(&mut judge, time * MS, thread, MS, &[(word(0), 8, Update)]);
    }
    assert!(verdict_on(&judge, LINE).is_none());
}

#[test]
fn a_thread_on_another_cpu_is_still_one_thread() {
    // An access names no CPU: a thread that migrates is one thread to the judge.
    let judge = judged(
        &busy(&[&[(word(0), 8, Update), (word(1), 8, Update)]]),
        SECOND,
    );
    assert_eq!(judge.verdicts(), []);
}

/// Two threads that update a word each all the time, in turns of a millisecond. `cpus` gives
/// the threads' CPUs in each turn.
fn alternating(cpus: impl Fn(u64) -> [u32; 2]) -> Option<sunder_sharing::Verdict> {
    let mut judge = judge();
    for i in 0..1000u64 {
        for thread in [1u32, 2] {
            let time = i * 2 * MS + u64::from(thread) * MS;
            let accesses = [(access((word(thread.into()), 8, Update), thread, time), 0)];
            let sample = sunder_sharing::Sample {
                time: Time(time),
                thread: ThreadId(thread),
                period_ns: MS,
                accesses: &accesses,
                near: &[],
                ways: None,
            };
            judge.sample_on(cpus(i)[thread as usize - 1], &sample);
        }
    }
    judge.check_invariants();
    verdict_on(&judge, LINE)
}

#[test]
fn threads_that_take_turns_on_one_cpu_do_not_contend() {
    assert!(alternating(|_| [0, 0]).is_none());
    assert!(alternating(|i| [i as u32 / 100, i as u32 / 100]).is_none());
    let apart = alternating(|_| [0, 1]).expect("false sharing");
    assert_near(apart.cost_share, 1.0, 0.05);
    // They change places every 20 ms, but are still on two CPUs.
    let hopping = alternating(|i| [i as u32 / 10 % 2, 1 - i as u32 / 10 % 2]).expect("contended");
    assert_near(hopping.cost_share, 1.0, 0.05);
    assert_eq!(hopping.sharing, Sharing::False);
}

#[test]
fn a_reader_loses_no_more_than_its_rare_writer_spends() {
    let models = [
        Model::new(1, &[((word(0), 8, Read), 1.0)]),
        Model::new(2, &[((word(1), 8, Write), 0.02)]),
    ];
    let judge = judged(&models, 20 * SECOND);
    let v = verdict_on(&judge, LINE).expect("seen 400 times");
    assert_eq!(v.sharing, Sharing::False);
    // The writer touches the line for 2% of 20 s. Each thread can lose that much, of 40 s.
    assert_near(v.cost_share, 0.02, 0.005);
}

#[test]
fn an_access_over_the_border_touches_both_lines() {
    let models = [
        Model::new(1, &[((LINE + 60, 8, Update), 1.0)]),
        Model::new(2, &[((LINE + 32, 8, Update), 1.0)]),
        Model::new(3, &[((LINE + 64 + 32, 8, Update), 1.0)]),
    ];
    let judge = judged(&models, SECOND);
    let first = verdict_on(&judge, LINE).expect("left half");
    let second = verdict_on(&judge, LINE + 64).expect("right half");
    let runs = |v: &sunder_sharing::Verdict| -> Vec<_> {
        v.words.iter().map(|w| (w.offset, w.size)).collect()
    };
    assert_eq!(runs(&first), [(32, 8), (60, 4)]);
    assert_eq!(runs(&second), [(0, 4), (32, 8)]);
    assert_eq!(
        (first.sharing, second.sharing),
        (Sharing::False, Sharing::False)
    );
}

// Change of owner.

#[test]
fn a_freed_object_is_still_reported_and_its_successor_is_clean() {
    let mut judge = judge();
    let pair = busy(&[&[(word(0), 8, Update)], &[(word(1), 8, Update)]]);
    simulate(&mut judge, &pair, MS, SECOND, 1);
    judge.retire(Span::new(Address(LINE), 64), Time(SECOND), 77);
    for i in 0..100 {
        sample(&mut judge, SECOND + i * MS, 3, MS, &[(word(1), 8, Update)]);
    }
    judge.check_invariants();
    let all = judge.verdicts();
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].owner, all[0].sharing), (Some(77), Sharing::False));
    assert_near(all[0].cost_share, 1.0, 0.15);
}

#[test]
fn a_single_touch_of_a_freed_object_is_forgotten_too() {
    let mut judge = judge();
    sample(&mut judge, 0, 1, MS, &[(word(0), 8, Update)]);
    judge.retire(Span::new(Address(LINE), 64), Time(MS), 1);
    sample(&mut judge, 2 * MS, 2, MS, &[(word(0), 8, Update)]);
    sample(&mut judge, 3 * MS, 1, MS, &[(word(0), 8, Update)]);
    // Thread 2 is between two touches of thread 1, but they are not of one object.
    assert_eq!(judge.verdicts(), []);
}

#[test]
fn a_neighbour_survives_the_retirement_of_untouched_bytes() {
    let mut judge = judge();
    let pair = busy(&[&[(word(0), 8, Update)], &[(word(1), 8, Update)]]);
    simulate(&mut judge, &pair, MS, SECOND, 1);
    judge.retire(Span::new(Address(word(4)), 32), Time(SECOND), 1);
    let v = verdict_on(&judge, LINE).expect("nothing of it changed hands");
    assert_eq!(v.owner, None);
}

#[test]
fn accesses_from_before_a_change_of_owner_are_dropped() {
    let mut judge = judge();
    sample(&mut judge, 0, 1, MS, &[(word(0), 8, Update)]);
    sample(&mut judge, MS, 1, MS, &[(word(4), 8, Update)]);
    judge.retire(Span::new(Address(word(0)), 8), Time(5 * MS), 1);
    sample(&mut judge, 4 * MS, 1, MS, &[(word(0), 8, Update)]);
    assert_eq!(judge.counts().late, 1);
    sample(&mut judge, 6 * MS, 1, MS, &[(word(0), 8, Update)]);
    assert_eq!(judge.counts().late, 1);
}

/// Two threads, sampled at 4 kHz, of whose samples 3% touch one word: both threads run all the
/// time, or in turns of 5 ms as under an interpreter's lock.
fn rarely_touched(in_turns: bool) -> f64 {
    const PERIOD: u64 = MS / 4;
    let mut judge = Judge::new(Config::default());
    let mut random = Random(11);
    for i in 0..40_000 {
        let time = i * PERIOD;
        for thread in [1, 2] {
            if in_turns && time / (5 * MS) % 2 != u64::from(thread) - 1 {
                continue;
            }
            let touches: &[Use] = match random.next() % 100 {
                0..3 => &[(word(0), 8, Update)],
                _ => &[],
            };
            sample(&mut judge, time, thread, PERIOD, touches);
        }
    }
    verdict_on(&judge, LINE).map_or(0.0, |v| v.cost_share)
}

#[test]
fn phases_in_turn_cost_little_though_samples_alternate() {
    // Touches are 33 samples apart and turns last 20, so the order of the touches looks random.
    // But the other thread is not running.
    let at_once = rarely_touched(false);
    let in_turns = rarely_touched(true);
    assert!((0.02..0.035).contains(&at_once), "{at_once}");
    // A thread counts as running for four periods more than the twenty of its turn.
    assert!(in_turns < at_once * 0.3, "{in_turns}");
}

// Smaller lines than today's.

fn within_32(all: &[&[Use]]) -> Option<Sharing> {
    let judge = judged(&busy(all), SECOND);
    let half = sunder_access::Granule::new(32).expect("a power of two");
    verdict_on(&judge, LINE).expect("contended").within(half)
}

#[test]
fn a_pair_that_smaller_lines_part_is_not_shared_there() {
    let [first, last] = [0, 7].map(|i| [(word(i), 8, Update)]);
    assert_eq!(within_32(&[&first, &last]), None);
}

#[test]
fn a_pair_in_one_half_is_shared_on_smaller_lines_too() {
    let [a, b] = [0, 3].map(|i| [(word(i), 8, Update)]);
    assert_eq!(within_32(&[&a, &b]), Some(Sharing::False));
    assert_eq!(within_32(&[&a, &a]), Some(Sharing::True));
}

#[test]
fn on_smaller_lines_the_truly_shared_half_of_a_mixed_line_remains() {
    // Threads 1 and 2 update word 0, 3 and 4 word 7.
    let [a, b] = [0, 7].map(|i| [(word(i), 8, Update)]);
    assert_eq!(within_32(&[&a, &a, &b, &b]), Some(Sharing::True));
}

#[test]
fn readers_alone_leave_nothing_in_their_half() {
    // Thread 1 writes word 0; the others read words 5 and 6.
    let [w, r, q] = [(0, Write), (5, Read), (6, Read)].map(|(i, k)| [(word(i), 8, k)]);
    assert_eq!(within_32(&[&w, &r, &q]), None);
}
