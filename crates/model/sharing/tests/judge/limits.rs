//! What the judge guesses (undecoded instructions), predicts (other line sizes and starts) and
//! drops (for lack of room).

use crate::stream::*;
use sunder_access::{Address, CodeAddress, Granule, Kind, Span, ThreadId, Time};
use sunder_sharing::{Config, Error, Judge, Sample, Sharing};

use Kind::{Read, Update};

fn word(index: u64) -> u64 {
    LINE + 8 * index
}

#[test]
fn time_on_undecoded_instructions_is_added_by_their_habits() {
    // In every other sample of a thread its instruction is decoded on the line; in the others
    // it is only known to be near.
    let mut judge = judge();
    for i in 0..2000u64 {
        for thread in [1u32, 2] {
            let what = (word(thread.into()), 8, Update);
            let decoded = [(access(what, thread, 0), 1)];
            let near = [decoded[0].0.instruction];
            judge.sample(&Sample {
                time: Time(i * MS + u64::from(thread) * 1000),
                thread: ThreadId(thread),
                period_ns: MS,
                accesses: if i % 2 == 0 { &decoded } else { &[] },
                near: if i % 2 == 0 { &[] } else { &near },
                ways: None,
            });
        }
    }
    judge.check_invariants();
    let v = verdict_on(&judge, LINE).expect("false sharing");
    // All of the time counts, not half of it. Learning costs a few samples, and halving the
    // counts now and then some tenths of a percent.
    assert_near(v.cost_share, 1.0, 0.03);
}

#[test]
fn an_undecoded_instruction_that_touches_many_lines_adds_nothing() {
    let mut judge = judge();
    for i in 0..2000u64 {
        for thread in [1u32, 2] {
            // One in ten decoded touches is on the line, the others go elsewhere.
            let line = if i % 20 == 0 {
                word(thread.into())
            } else {
                0x50_0000 + i * 64 + u64::from(thread) * 0x100_0000
            };
            let mut a = access((line, 8, Update), thread, 0);
            a.instruction = CodeAddress(0x40);
            let decoded = [(a, 0)];
            let near = [a.instruction];
            judge.sample(&Sample {
                time: Time(i * MS + u64::from(thread) * 1000),
                thread: ThreadId(thread),
                period_ns: MS,
                accesses: if i % 2 == 0 { &decoded } else { &[] },
                near: if i % 2 == 0 { &[] } else { &near },
                ways: None,
            });
        }
    }
    let v = verdict_on(&judge, LINE).expect("false sharing");
    assert_near(v.cost_share, 0.05, 0.01);
}

#[test]
fn habits_end_with_the_object_that_they_were_learned_on() {
    let mut judge = judge();
    let old = access((word(0), 8, Update), 1, 0).instruction;
    for i in 0..100 {
        sample(&mut judge, i * MS, 1, MS, &[(word(0), 8, Update)]);
    }
    judge.retire(Span::new(Address(LINE), 64), Time(100 * MS), 1);
    // Another object is there now. Both threads touch it in every tenth sample, and the old
    // instruction is near in the other samples.
    for i in 0..1000u64 {
        for thread in [1u32, 2] {
            let time = (101 + i) * MS + u64::from(thread) * 1000;
            if i % 10 == 0 {
                let own = (word(2 + u64::from(thread)), 8, Update);
                sample(&mut judge, time, thread, MS, &[own]);
                continue;
            }
            judge.sample(&Sample {
                time: Time(time),
                thread: ThreadId(thread),
                period_ns: MS,
                accesses: &[],
                near: &[old],
                ways: None,
            });
        }
    }
    let v = verdict_on(&judge, LINE).expect("false sharing on the new object");
    for t in &v.threads {
        assert_near(t.touched_ns, 100.0 * MS as f64, MS as f64);
    }
}

// Prediction.

fn granule(bytes: u64) -> Granule {
    Granule::new(bytes).expect("a power of two")
}

#[test]
fn neighbouring_lines_are_latent_on_longer_ones() {
    let judge = judged(
        &[
            Model::new(1, &[((word(0), 8, Update), 0.5)]),
            Model::new(2, &[((word(8), 8, Update), 0.5)]),
        ],
        2 * SECOND,
    );
    assert_eq!(judge.verdicts(), []);
    let all = judge.latent(&[granule(32), granule(128)]);
    assert_eq!(all.len(), 1);
    let l = &all[0];
    assert_eq!((l.granule, l.base), (granule(128), Address(LINE)));
    assert_eq!(l.lines, [Address(LINE), Address(LINE + 64)]);
    let words: Vec<_> = l.words.iter().map(|w| w.bytes.start.0).collect();
    assert_eq!(words, [word(0), word(8)]);
    assert_near(l.cost_share, 0.5, 0.05);
    assert_eq!(judge.latent(&[granule(256)]).len(), 1);
}

#[test]
fn lines_in_different_long_ones_or_without_writers_are_not_latent() {
    let apart = |at: u64, kind| {
        judged(
            &[
                Model::new(1, &[((word(8), 8, kind), 0.5)]),
                Model::new(2, &[((at, 8, kind), 0.5)]),
            ],
            SECOND,
        )
        .latent(&[granule(128)])
    };
    assert_eq!(apart(word(16), Update), []);
    assert_eq!(apart(word(0), Read), []);
    assert_eq!(apart(word(0), Update).len(), 1);
}

#[test]
fn lines_used_at_different_times_or_by_both_are_not_latent() {
    let early = Model::new(1, &[((word(0), 8, Update), 0.5)]).during(|t| t < SECOND);
    let late = Model::new(2, &[((word(8), 8, Update), 0.5)]).during(|t| t > SECOND + 100 * MS);
    assert_eq!(
        judged(&[early, late], 2 * SECOND).latent(&[granule(128)]),
        []
    );
    // The threads run one after the other, and have one time slot in common.
    let early = Model::new(1, &[((word(0), 8, Update), 0.5)]).during(|t| t < SECOND);
    let late = Model::new(2, &[((word(8), 8, Update), 0.5)]).during(|t| t >= SECOND);
    assert_eq!(
        judged(&[early, late], 2 * SECOND).latent(&[granule(128)]),
        []
    );
    let both = |t| {
        Model::new(
            t,
            &[((word(0), 8, Update), 0.5), ((word(8), 8, Update), 0.5)],
        )
    };
    assert_eq!(
        judged(&[both(1), both(2)], SECOND).latent(&[granule(128)]),
        []
    );
}

#[test]
fn threads_that_took_turns_share_their_line_on_more_processors() {
    // Two threads have one processor in turns of 4 ms and use two words of a line.
    let even = |t: u64| (t / (4 * MS)).is_multiple_of(2);
    let odd = |t: u64| !(t / (4 * MS)).is_multiple_of(2);
    let of = |second: u64, kind| {
        judged(
            &[
                Model::new(1, &[((word(0), 8, kind), 0.5)]).during(even),
                Model::new(2, &[((second, 8, kind), 0.5)]).during(odd),
            ],
            2 * SECOND,
        )
    };
    let judge = of(word(1), Update);
    let all = judge.latent_turns(|_, _| false);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].lines, [Address(LINE)]);
    assert_eq!(all[0].threads, [ThreadId(1), ThreadId(2)]);
    // Each spends half of its samples on its word.
    assert_near(all[0].cost_share, 0.5, 0.05);
    // Threads that met and did not contend would not with more processors.
    assert_eq!(judge.latent_turns(|_, _| true), []);
    // One word is shared truly, words that are read cost nothing, and nor do other lines.
    assert_eq!(of(word(0), Update).latent_turns(|_, _| false), []);
    assert_eq!(of(word(1), Read).latent_turns(|_, _| false), []);
    assert_eq!(of(word(8), Update).latent_turns(|_, _| false), []);
}

/// The field at the start of the word may be padding.
#[test]
fn predictions_name_the_bytes_that_are_used_and_no_others_of_their_word() {
    let judge = judged(
        &[
            Model::new(1, &[((word(0), 4, Update), 0.5)]),
            Model::new(
                2,
                &[
                    ((word(8) + 4, 4, Update), 0.3),
                    ((word(9), 2, Update), 0.1),
                    ((word(9) + 4, 2, Update), 0.1),
                ],
            ),
        ],
        2 * SECOND,
    );
    let all = judge.latent(&[granule(128)]);
    let words = all[0].words.iter();
    let bytes: Vec<_> = words.map(|w| (w.bytes.start.0, w.bytes.len)).collect();
    assert_eq!(
        bytes,
        [(word(0), 4), (word(8) + 4, 4), (word(9), 6)],
        "of the last word, two parts with two bytes between them"
    );
    let sites = judge.sites_on(Address(LINE));
    assert_eq!(sites.len(), 1);
    assert_eq!(sites[0].threads, [ThreadId(1)]);
}

/// Elements of `stride` bytes, one a thread, of which each thread updates the
/// words at 0 and 48, like the sums of linear_regression.
fn elements(stride: u64) -> Judge {
    let model = |t: u32| {
        let base = LINE + stride * u64::from(t - 1);
        Model::new(
            t,
            &[((base, 8, Update), 0.4), ((base + 48, 8, Update), 0.4)],
        )
    };
    judged(&[model(1), model(2)], 2 * SECOND)
}

#[test]
fn elements_of_a_line_share_if_they_start_within_one() {
    let judge = elements(64);
    assert_eq!(judge.verdicts(), []);
    let found = judge
        .latent_alignment(Span::new(Address(LINE), 128), 8)
        .expect("48 of one and 0 of the next are 16 apart");
    // The two words are on one line if the object starts at 16 or later.
    assert_eq!((found.today, found.offset), (0, 16));
    let words: Vec<_> = found.words.iter().map(|w| w.bytes.start.0).collect();
    assert_eq!(words, [LINE + 48, LINE + 64]);
    assert_near(found.cost_share, 0.4, 0.05);
    // At multiples of 16 it is the same one; at multiples of 32 the first of those is 32. What always
    // starts on a line has no other start.
    let at = |alignment| judge.latent_alignment(Span::new(Address(LINE), 128), alignment);
    assert_eq!(at(16).map(|found| found.offset), Some(16));
    assert_eq!(at(32).map(|found| found.offset), Some(32));
    assert_eq!(at(64), None);
    assert_eq!(at(4096), None);
}

#[test]
fn padded_elements_share_at_no_start() {
    // 128 - 48 = 80 bytes between the words: more than a line.
    let judge = elements(128);
    assert_eq!(
        judge.latent_alignment(Span::new(Address(LINE), 256), 8),
        None
    );
}

// Limits of the tables, and bad input.

#[test]
fn the_table_of_lines_stays_within_its_bound() {
    let mut config = Config::default();
    config.max_lines = 100;
    let mut judge = Judge::new(config);
    for i in 0..5000u64 {
        for thread in [1u32, 2] {
            let time = i * MS + u64::from(thread) * 1000;
            // Each stray line is touched twice: after a single touch it would have no record.
            let stray = i / 2 * 2 + u64::from(thread) - 1;
            let stray = (0x200_0000 + stray * 64, 8, Read);
            let hot = (word(thread.into()), 8, Update);
            sample(&mut judge, time, thread, MS, &[stray, hot]);
        }
        judge.check_invariants();
    }
    let v = verdict_on(&judge, LINE).expect("the contended line is kept");
    assert_near(v.cost_share, 1.0, 0.05);
    let counts = judge.counts();
    assert!(counts.dropped_lines >= 5000 - 100);
    assert_eq!(counts.dropped_contended, 0);
}

#[test]
fn a_thousand_threads_one_after_another_stay_within_bounds() {
    let mut judge = judge();
    for t in 0..2000u32 {
        for k in 0..3u64 {
            let time = u64::from(t) * 3 * MS + k * MS;
            sample(&mut judge, time, 10 + t, MS, &[(word(0), 8, Read)]);
            sample(&mut judge, time + 1000, 1, MS, &[(word(1), 8, Update)]);
        }
    }
    judge.check_invariants();
    let v = verdict_on(&judge, LINE).expect("a writer beside readers");
    assert_eq!(v.sharing, Sharing::False);
    assert!(v.cost_share <= 1.0);
}

#[test]
fn lines_longer_than_a_mask_are_refused() {
    assert_eq!(Config::new(granule(512)), Err(Error::GranuleTooLarge(512)));
    assert!(Config::new(granule(256)).is_ok());
}

#[test]
fn accesses_at_the_ends_of_the_address_space_are_harmless() {
    let mut judge = judge();
    for (i, address) in [0, 1, u64::MAX, u64::MAX - 63, u64::MAX - 3]
        .into_iter()
        .enumerate()
    {
        sample(&mut judge, i as u64, 1, MS, &[(address, 64, Update)]);
        sample(&mut judge, i as u64, 2, 0, &[(address, 0, Update)]);
    }
    judge.retire(Span::new(Address(u64::MAX - 100), u64::MAX), Time(10), 1);
    judge.retire(Span::new(Address(0), u64::MAX), Time(10), 1);
    judge.check_invariants();
}
