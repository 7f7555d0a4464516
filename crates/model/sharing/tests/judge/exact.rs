//! Streams without shares of time: traces, PMU events, and watch bursts.

use crate::stream::*;
use sunder_access::{Access, Address, Kind, Provenance, ThreadId, Time};
use sunder_sharing::{
    Burst, CONFIRMING_CHANGES, Confidence, Config, Judge, PageRuns, Sharing, joint_doubt,
    jointly_confirmed,
};

use Kind::{Atomic, Read, Update, Write};

fn word(index: u64) -> u64 {
    LINE + 8 * index
}

/// Feeds `round` again and again, a microsecond apart.
fn trace(round: &[(u32, Use)], rounds: u64) -> Judge {
    let mut judge = judge();
    let mut time = 0;
    for _ in 0..rounds {
        for &(thread, what) in round {
            judge.access(&traced(what, thread, time));
            time += 1000;
        }
    }
    judge.check_invariants();
    judge
}

#[test]
fn every_change_of_thread_in_a_trace_is_counted() {
    let judge = trace(
        &[(1, (word(0), 8, Update)), (2, (word(1), 8, Update))],
        1000,
    );
    let v = verdict_on(&judge, LINE).expect("false sharing");
    // 2000 accesses, 1999 changes, of which one is the second thread's arrival.
    assert_eq!(v.evidence, 1998);
    assert!(v.confirmed);
    assert_eq!((v.sharing, v.false_share), (Sharing::False, 1.0));
    assert_near(v.cost_ns, 1998.0 * 90.0, 0.5);
    assert_near(v.timeline.total(), 1998.0, 0.5);
    // 2 ms of trace, less a microsecond; both threads lose 90 ns of each 2 us.
    assert_near(v.interleavings_per_second, 1998.0 / 1.999e-3, 1.0);
    assert_near(v.cost_share, 0.045, 0.001);
    assert_eq!(v.interleaved_writes, 1999);
    assert_eq!(v.last_writer, Some(ThreadId(2)));
}

#[test]
fn runs_of_one_thread_count_once() {
    let round: Vec<_> = [1u32, 1, 1, 1, 1, 2, 2, 2, 2, 2]
        .map(|t| (t, (word(t.into()), 8, Update)))
        .to_vec();
    let judge = trace(&round, 1000);
    let v = verdict_on(&judge, LINE).expect("false sharing");
    assert_eq!(v.evidence, 1998);
}

#[test]
fn a_block_of_common_fields_is_true_sharing_though_ends_do_not_meet() {
    // Thread 1 touches a and then b, and so does thread 2. No change is between touches of
    // equal bytes, but on separate lines each field would change hands as often as the line
    // does now.
    let one = |t| [(t, (word(0), 8, Update)), (t, (word(1), 8, Update))];
    let judge = trace(&[one(1), one(2)].concat(), 500);
    let v = verdict_on(&judge, LINE).expect("true sharing");
    assert_eq!(v.sharing, Sharing::True);
    assert_near(v.false_share, 0.0, 0.0);
}

#[test]
fn spinning_on_a_lock_beside_its_data_is_mostly_false() {
    // Four times, thread 1 writes data and thread 2 tries the lock; then they change roles
    // through the lock. A round has 16 changes. Of these, those of the lock alone (try,
    // release, take) and of the data alone (one a side) remain.
    let half = |a, b| {
        let mut all = vec![(a, (word(0), 4, Atomic))];
        for _ in 0..4 {
            all.push((a, (word(1), 8, Update)));
            all.push((b, (word(0), 4, Read)));
        }
        all.push((a, (word(0), 4, Write)));
        all
    };
    let judge = trace(&[half(1, 2), half(2, 1)].concat(), 200);
    let v = verdict_on(&judge, LINE).expect("mixed");
    assert_eq!(v.sharing, Sharing::Mixed);
    // A half round in accesses: a(lock) a b a b a b a b a(lock), then b(lock):
    // 10 changes on the line. Lock alone: a b b b b a | b: 3. Data alone: 1.
    assert_near(v.false_share, 1.0 - 4.0 / 10.0, 0.06);
}

#[test]
fn phases_longer_than_two_windows_are_no_interleaving() {
    let mut judge = judge();
    for i in 0..40_000u64 {
        // Phases of 5 ms, with a touch every microsecond.
        let thread = 1 + (i / 5000 % 2) as u32;
        judge.access(&traced((word(thread.into()), 8, Update), thread, i * 1000));
    }
    assert_eq!(judge.verdicts(), []);
}

#[test]
fn a_trace_out_of_order_by_less_than_a_stretch_gives_the_same() {
    let order = |swap: bool| {
        let mut judge = judge();
        for i in (0..2000u64).step_by(2) {
            let pair = [(i, 1), (i + 1, 2)];
            let pair = if swap { [pair[1], pair[0]] } else { pair };
            for (at, thread) in pair {
                let what = (word(thread), 8, Update);
                judge.access(&traced(what, thread as u32, at * 1000));
            }
        }
        verdict_on(&judge, LINE).expect("false sharing").evidence
    };
    // At the end of each stretch one swapped pair is split.
    assert!(order(true).abs_diff(order(false)) <= 2000 / 256 * 4);
}

#[test]
fn pmu_events_count_for_as_many_as_they_stand_for() {
    let mut judge = judge();
    let mut random = Random(3);
    let mut time = 0.0;
    for _ in 0..10_000 {
        time += random.exponential(100_000.0);
        let thread = 1 + random.next() % 2;
        judge.access(&Access {
            provenance: Provenance::Counted,
            weight: 50.0,
            ..access((word(thread), 8, Update), thread as u32, time as u64)
        });
    }
    let v = verdict_on(&judge, LINE).expect("false sharing");
    // 500,000 events of two threads in random order change hands at every second event.
    assert_near(v.cost_ns / 90.0, 250_000.0, 20_000.0);
    assert_eq!(v.confidence(), Confidence::Sampled);
}

// Watch bursts.

fn burst(judge: &mut Judge, time: u64, words: &[u64], hits: &[(u32, Use)]) {
    let accesses: Vec<Access> = hits
        .iter()
        .enumerate()
        .map(|(i, &(thread, what))| Access {
            provenance: Provenance::Watched,
            ..access(what, thread, time + 5000 * i as u64)
        })
        .collect();
    let words: Vec<Address> = words.iter().map(|&w| Address(w)).collect();
    judge.burst(&Burst {
        words: &words,
        started: Time(time),
        ended: Time(time + 2 * MS),
        accesses: &accesses,
    });
    judge.check_invariants();
}

/// Two threads that samples show on words 0 and 1 of the line, each all the time.
fn sampled() -> Judge {
    judged(
        &[
            Model::new(1, &[((word(0), 8, Update), 1.0)]),
            Model::new(2, &[((word(1), 8, Update), 1.0)]),
        ],
        SECOND,
    )
}

#[test]
fn a_burst_with_enough_changes_confirms() {
    let mut judge = sampled();
    assert!(!judge.verdicts()[0].confirmed);
    let before = judge.verdicts()[0].cost_share;
    let hits: Vec<_> = (0..20)
        .map(|i| {
            let t = 1 + i % 2;
            (t, (word(u64::from(t) - 1), 8, Update))
        })
        .collect();
    burst(&mut judge, SECOND, &[word(0), word(1)], &hits);
    let v = &judge.verdicts()[0];
    assert!(v.confirmed && 18 >= CONFIRMING_CHANGES);
    assert_eq!(v.confidence(), Confidence::Confirmed);
    assert_near(v.cost_share, before, 1e-9);
    assert_eq!(judge.suspects(Time(SECOND)), [], "nothing left to find out");
}

#[test]
fn a_burst_on_a_truly_shared_line_confirms_no_false_sharing_of_another() {
    // Both threads use one word of the first line, and each a word of its own of the second.
    let model = |thread: u32| {
        let own = LINE + 64 + 8 * u64::from(thread);
        Model::new(
            thread,
            &[((word(0), 8, Update), 0.5), ((own, 8, Update), 0.5)],
        )
    };
    let mut judge = judged(&[model(1), model(2)], SECOND);
    let hits: Vec<_> = (0..20).map(|i| (1 + i % 2, (word(0), 8, Update))).collect();
    burst(&mut judge, SECOND, &[word(0)], &hits);
    let verdicts = judge.verdicts();
    let confirmed: Vec<_> = verdicts.iter().map(|v| (v.sharing, v.confirmed)).collect();
    assert!(confirmed.contains(&(Sharing::True, true)), "{confirmed:?}");
    assert!(
        confirmed.contains(&(Sharing::False, false)),
        "{confirmed:?}"
    );
    assert!(!jointly_confirmed(verdicts.iter(), Sharing::Mixed));
    assert!(jointly_confirmed(verdicts.iter(), Sharing::True));
}

/// Two threads on words of their own of 40 lines on one page, and of one line elsewhere.
#[test]
fn bursts_on_two_lines_speak_for_the_others_on_their_pages() {
    const FAR: u64 = LINE + (1 << 20);
    let line = |n: u64| LINE + 64 * n;
    let model = |thread: u32| {
        let own = 8 * u64::from(thread);
        let mut uses: Vec<_> = (0..40)
            .map(|n| ((line(n) + own, 8, Update), 0.02))
            .collect();
        uses.push(((FAR + own, 8, Update), 0.2));
        Model::new(thread, &uses)
    };
    let mut judge = judged(&[model(1), model(2)], 10 * SECOND);
    let mut confirm = |at: u64| {
        let own = |i: u32| (1 + i % 2, (at + 8 * u64::from(1 + i % 2), 8, Update));
        let hits: Vec<_> = (0..20).map(own).collect();
        burst(&mut judge, 10 * SECOND, &[at + 8, at + 16], &hits);
        let verdicts = judge.verdicts();
        let runs = PageRuns::of(verdicts.iter(), 64 << 10);
        let of = |base: u64| {
            let one = verdicts.iter().find(|v| v.line == Address(base));
            let one = one.expect("it is contended");
            (one.cost_share, runs.false_cost(one))
        };
        let near = (0..40).map(|n| of(line(n)).0).sum::<f64>();
        (near, of(line(0)), of(FAR))
    };
    // One confirmed line speaks for itself.
    let (_, (own, together), _) = confirm(line(3));
    assert!(together < 3.0 * own, "{own} {together}");
    let (near, (_, together), (far, alone)) = confirm(line(7));
    assert_near(together, near, 1e-9);
    assert!(together > 0.5, "{together} of the time that they took, 0.8");
    assert_near(alone, far, 1e-9);
}

/// Two threads on words of their own of five pages, and on another line of the first page. Accesses to
/// the same place of a page are made by the same instruction.
#[test]
fn a_burst_on_one_line_speaks_for_those_that_the_same_instructions_write() {
    let place = |n: u64| LINE + 4096 * n;
    let other = LINE + 128;
    let model = |thread: u32| {
        let own = 8 * u64::from(thread);
        let mut uses: Vec<_> = (0..5).map(|n| ((place(n) + own, 8, Update), 0.1)).collect();
        uses.push(((other + own, 8, Update), 0.1));
        Model::new(thread, &uses)
    };
    let mut judge = judged(&[model(1), model(2)], 10 * SECOND);
    let own = |i: u32| (1 + i % 2, (place(2) + 8 * u64::from(1 + i % 2), 8, Update));
    let hits: Vec<_> = (0..20).map(own).collect();
    burst(
        &mut judge,
        10 * SECOND,
        &[place(2) + 8, place(2) + 16],
        &hits,
    );
    let verdicts = judge.verdicts();
    let runs = PageRuns::of(verdicts.iter(), 64 << 10);
    let of = |line: u64| {
        let one = verdicts.iter().find(|v| v.line == Address(line));
        one.expect("it is contended")
    };
    for n in 0..5 {
        assert!(runs.speak_for(of(place(n))), "{n}");
    }
    assert!(!runs.speak_for(of(other)));
    let near = (0..5).map(|n| of(place(n)).cost_share).sum::<f64>();
    assert_near(runs.false_cost(of(place(0))), near, 1e-9);
}

#[test]
fn a_line_with_a_single_burst_is_watched_again_at_other_words() {
    // Both threads use six words.
    let all = |t| {
        let uses: Vec<_> = (0..6).map(|w| ((word(w), 8, Update), 1.0 / 6.0)).collect();
        Model::new(t, &uses)
    };
    let mut judge = judged(&[all(1), all(2)], SECOND);
    let first = judge.suspects(Time(SECOND))[0].words.clone();
    let alternately: Vec<_> = (0..20).map(|i| (1 + i % 2, (word(0), 8, Update))).collect();
    let watched: Vec<u64> = first.iter().map(|w| w.0).collect();
    burst(&mut judge, SECOND, &watched, &alternately);
    let suspect = &judge.suspects(Time(SECOND))[0];
    assert!(suspect.confirmed, "but a dozen true changes settle no kind");
    let left: Vec<u64> = (0..6).map(word).filter(|w| !watched.contains(w)).collect();
    assert_eq!(left.len(), 2);
    let next: Vec<u64> = suspect.words.iter().map(|w| w.0).collect();
    assert!(left.iter().all(|w| next.contains(w)), "{next:x?}");
    // After three more bursts like the first there is no doubt.
    for i in 1..4 {
        burst(&mut judge, SECOND + i * 10 * MS, &next, &alternately);
    }
    assert_eq!(judge.suspects(Time(SECOND)), []);
    assert_eq!(judge.verdicts()[0].sharing, Sharing::True);
}

/// Eight threads on two CPUs, each with a word of one line: of two that run, both must be watched.
#[test]
fn of_more_threads_than_words_those_that_ran_last_are_watched() {
    let threads: Vec<_> = (0..8)
        .map(|n| Model::new(n as u32 + 1, &[((word(n), 8, Update), 1.0)]))
        .collect();
    let mut judge = judged(&threads, SECOND);
    for (thread, time) in [(7, SECOND), (3, SECOND + 1)] {
        let uses = [(word(u64::from(thread) - 1), 8, Update)];
        sample(&mut judge, time, thread, 1000, &uses);
    }
    let suspect = &judge.suspects(Time(SECOND + 2))[0];
    assert_eq!(suspect.threads[..2], [ThreadId(3), ThreadId(7)]);
    assert_eq!(suspect.threads.len(), 8);
    assert_eq!(suspect.words[..2], [Address(word(2)), Address(word(6))]);
}

#[test]
fn silent_bursts_speak_against_interleaving() {
    let mut judge = sampled();
    let before = judge.verdicts()[0].cost_share;
    let hits = [(1, (word(0), 8, Update)); 40];
    for i in 0..3 {
        burst(&mut judge, SECOND + i * 10 * MS, &[word(0), word(1)], &hits);
    }
    // Three bursts against the samples, which count as one burst. The order of 2,000 visits had
    // given an interleaved share within some 5% of 1.
    assert_near(judge.verdicts()[0].cost_share, before / 4.0, 0.02);
    let suspect = &judge.suspects(Time(SECOND))[0];
    assert_eq!((suspect.loud_bursts, suspect.quiet_bursts), (0, 3));
}

#[test]
fn a_burst_adds_to_what_the_samples_saw_and_takes_nothing_away() {
    // In the samples both threads update both words. A burst happens to see one word for each
    // thread: at that moment the sharing was false, at others it was true.
    let both = |t| {
        Model::new(
            t,
            &[((word(0), 8, Update), 0.5), ((word(1), 8, Update), 0.5)],
        )
    };
    let mut judge = judged(&[both(1), both(2)], SECOND);
    assert_eq!(judge.verdicts()[0].sharing, Sharing::True);
    let hits: Vec<_> = (0..40)
        .map(|i| {
            let t = 1 + i % 2;
            (t, (word(u64::from(t) - 1), 8, Update))
        })
        .collect();
    burst(&mut judge, SECOND, &[word(0), word(1)], &hits);
    let v = &judge.verdicts()[0];
    assert!(v.confirmed);
    assert_eq!((v.sharing, v.false_share), (Sharing::Mixed, 1.0));
}

/// A ring: one side writes its position, and both read where the slots are. In bursts the other side
/// looks at the position each time; samples mostly find it at the slots.
#[test]
fn true_sharing_of_bursts_that_is_false_by_samples_is_in_doubt() {
    let (position, slots) = (word(0), word(1));
    let sides = |looks: f64| {
        [
            Model::new(1, &[((position, 8, Write), 0.3), ((slots, 8, Read), 0.3)]),
            Model::new(
                2,
                &[
                    ((position, 8, Read), looks),
                    ((slots, 8, Read), 0.6 - looks),
                ],
            ),
        ]
    };
    let hits: Vec<_> = (0..60)
        .map(|i| match i % 2 {
            0 => (1, (position, 8, Write)),
            _ => (2, (position, 8, Read)),
        })
        .collect();
    let judged = |looks: f64| {
        let mut judge = judged(&sides(looks), 4 * SECOND);
        burst(&mut judge, 4 * SECOND, &[position, slots], &hits);
        verdict_on(&judge, LINE).expect("a verdict")
    };
    let mut seldom = judged(0.1);
    assert_eq!(seldom.sharing, Sharing::True);
    // Of the other side's reads five in six are of the slots.
    let doubt = seldom.doubt().expect("samples say otherwise");
    assert!(doubt > 0.5 && doubt < 0.95, "{doubt}");
    assert_eq!(joint_doubt([&seldom].into_iter()), Some(doubt));
    seldom.believe_samples();
    assert_eq!(
        (seldom.sharing, seldom.false_share),
        (Sharing::Mixed, doubt)
    );
    // Where it nearly always looks at the position, there is no doubt.
    let mut always = judged(0.55);
    assert_eq!((always.sharing, always.doubt()), (Sharing::True, None));
    always.believe_samples();
    assert_eq!(always.sharing, Sharing::True);
}

#[test]
fn a_burst_alone_is_enough_for_a_verdict_but_not_for_a_cost() {
    let mut judge = Judge::new(Config::default());
    let hits: Vec<_> = (0..30).map(|i| (1 + i % 2, (word(3), 8, Atomic))).collect();
    burst(&mut judge, 0, &[word(3)], &hits);
    let v = verdict_on(&judge, LINE).expect("confirmed");
    assert_eq!(v.sharing, Sharing::True);
    assert_near(v.cost_ns, 0.0, 0.0);
}

#[test]
fn suspects_name_a_word_of_each_thread() {
    let uses = |own| [((word(0), 8, Read), 0.6), ((word(own), 8, Update), 0.2)];
    let models: Vec<_> = (1..=3)
        .map(|t| Model::new(t, &uses(u64::from(t) + 1)))
        .collect();
    let judge = judged(&models, SECOND);
    let suspects = judge.suspects(Time(SECOND));
    assert_eq!(suspects.len(), 1);
    let mut words: Vec<u64> = suspects[0].words.iter().map(|w| w.0).collect();
    words.sort_unstable();
    assert_eq!(words, [word(0), word(2), word(3), word(4)]);
    assert_eq!(suspects[0].threads.len(), 3);
    // Long after its last touch the line isn't worth a burst.
    assert_eq!(judge.suspects(Time(10 * SECOND)), []);
}

/// A remedy must know what lies beside a contended word, but not what a thread did there that
/// has been sleeping since.
#[test]
fn used_words_include_lines_of_a_single_thread() {
    let mut judge = judge();
    // The first thread clears the whole range, then sleeps.
    for n in 0..32 {
        judge.access(&traced((word(n), 8, Write), 1, n));
    }
    for n in 0..100 {
        let time = 10_000 + 100 * n;
        judge.access(&traced((word(7), 8, Update), 2, time));
        judge.access(&traced((word(9), 4, Update), 3, time + 50));
        judge.access(&traced((word(40), 8, Update), 3, time + 60));
    }
    let used = |since: u64| {
        let span = sunder_access::Span::new(Address(LINE), 128);
        let all = judge.used(span, Time(since)).into_iter();
        all.map(|(at, word)| {
            let threads = word
                .threads
                .iter()
                .map(|t| (t.thread.0, t.writes, t.updates));
            (at.0 - LINE, word.size, threads.collect::<Vec<_>>())
        })
        .collect::<Vec<_>>()
    };
    let own = [(56, 8, vec![(2, 0, 100)]), (72, 4, vec![(3, 0, 100)])];
    assert_eq!(used(5_000), own);
    // All uses ever seen include the clearing: sixteen words, one of them in two parts.
    assert_eq!(used(0).len(), 17);
    assert_eq!(used(0)[7], (56, 8, vec![(1, 1, 0), (2, 0, 100)]));
}
