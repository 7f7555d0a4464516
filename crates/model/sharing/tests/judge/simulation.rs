//! Verdicts from samples at 250, 1,000 and 4,000 Hz, against models whose true cost is known:
//! how near the bound is, that no sharing is missed, and that none is made up.

use crate::stream::*;
use sunder_access::Kind::Update;
use sunder_sharing::{Judge, Sharing};

const FREQUENCIES: [u64; 3] = [250, 1000, 4000];
const SEEDS: u64 = 6;

fn two(first: f64, second: f64) -> [Model; 2] {
    [
        Model::new(1, &[((LINE, 8, Update), first)]),
        Model::new(2, &[((LINE + 8, 8, Update), second)]),
    ]
}

fn run(models: &[Model], hz: u64, duration: u64, seed: u64) -> Judge {
    let mut judge = judge();
    simulate(&mut judge, models, SECOND / hz, duration, seed);
    judge
}

/// Mean and standard deviation.
fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, variance.sqrt())
}

/// Shares of the two threads' time that are on the line. Each thread can lose what the one with
/// the smaller share spends, so the bound is the smaller share.
const SHARES: [(f64, f64); 6] = [
    (1.0, 1.0),
    (0.5, 0.5),
    (0.3, 0.1),
    (0.9, 0.05),
    (0.05, 0.05),
    (0.02, 0.02),
];

#[test]
fn the_bound_is_near_the_truth_at_every_frequency() {
    // 10 s at 250 Hz; at the other frequencies 5,000 samples of each thread.
    for (hz, seconds) in [(250, 10.0), (1000, 5.0), (4000, 1.25)] {
        for (a, b) in SHARES {
            let values: Vec<f64> = (0..SEEDS)
                .map(|seed| {
                    let duration = (seconds * 1e9) as u64;
                    let judge = run(&two(a, b), hz, duration, seed);
                    let v = verdict_on(&judge, LINE).expect("missed");
                    assert_eq!(v.sharing, Sharing::False);
                    v.cost_share / a.min(b)
                })
                .collect();
            let (mean, deviation) = moments(&values);
            println!("{hz} Hz, {a} and {b}: {mean:.2} of the truth, +- {deviation:.2}");
            // Where the two are equal, the minimum of two counts is 5% low, and the interleaved
            // share, which noise can only lower, is low too. An estimate from n touches of the
            // thread with fewer has an error of about 1/sqrt(n), once for its rate and once for the
            // interleaved share.
            let touches = a.min(b) * hz as f64 * seconds;
            let noise = 1.0 / touches.sqrt();
            assert_near(mean, 0.95, 0.06 + noise);
            assert!(deviation < 0.02 + 2.0 * noise);
        }
    }
}

#[test]
fn two_percent_of_a_second_are_enough_at_four_kilohertz() {
    // 80 touches a thread give some 40 returns, of which 4 are needed.
    for seed in 0..100 {
        let judge = run(&two(0.02, 0.02), 4000, SECOND, seed);
        assert!(verdict_on(&judge, LINE).is_some(), "missed at seed {seed}");
    }
}

#[test]
fn a_tenth_of_a_second_is_enough_for_a_hot_line() {
    // 100 ms at 4 kHz with 30%: 120 touches a thread.
    for seed in 0..100 {
        let judge = run(&two(0.3, 0.3), 4000, 100 * MS, seed);
        assert!(verdict_on(&judge, LINE).is_some(), "missed at seed {seed}");
    }
}

#[test]
fn private_lines_of_many_threads_are_never_shared() {
    for hz in FREQUENCIES {
        let models: Vec<Model> = (1..=8)
            .map(|t| Model::new(t, &[((LINE + 64 * u64::from(t), 8, Update), 0.9)]))
            .collect();
        assert_eq!(run(&models, hz, 5 * SECOND, 1).verdicts(), []);
    }
}

#[test]
fn taking_turns_costs_less_the_longer_the_turns() {
    // Turns of 5 and of 25 sampling periods at 1 kHz, compared with no turns.
    fn turns(length: u64, duration: u64) -> f64 {
        let a = |m: Model, f| m.during(f);
        let [x, y] = two(1.0, 1.0);
        let models = match length {
            5 => [
                a(x, |t| (t / (5 * MS)).is_multiple_of(2)),
                a(y, |t| t / (5 * MS) % 2 == 1),
            ],
            25 => [
                a(x, |t| (t / (25 * MS)).is_multiple_of(2)),
                a(y, |t| t / (25 * MS) % 2 == 1),
            ],
            _ => [x, y],
        };
        let judge = run(&models, 1000, duration, 7);
        judge.verdicts().first().map_or(0.0, |v| v.cost_share)
    }
    let (none, short, long) = (
        turns(0, 10 * SECOND),
        turns(5, 10 * SECOND),
        turns(25, 10 * SECOND),
    );
    // The number of samples in a turn is Poisson-distributed. A sample is isolated only if it
    // is its turn's only one: 5 e^-5 of 5 samples, compared with 1 in 4.
    assert!(none > 0.85, "{none}");
    assert!(short < 0.10, "{short}");
    assert!(long < 0.01, "{long}");
}

#[test]
fn the_false_share_of_a_mixture_is_found_at_every_frequency() {
    // A common word and a word of one's own, in equal parts: half of the changes are false.
    let model = |t: u32| {
        let own = LINE + 8 * u64::from(t);
        Model::new(t, &[((LINE, 8, Update), 0.3), ((own, 8, Update), 0.3)])
    };
    for hz in FREQUENCIES {
        let shares: Vec<f64> = (0..SEEDS)
            .map(|seed| {
                let judge = run(&[model(1), model(2)], hz, 2 * SECOND, seed);
                let v = verdict_on(&judge, LINE).expect("missed");
                assert_eq!(v.sharing, Sharing::Mixed);
                v.false_share
            })
            .collect();
        let (mean, deviation) = moments(&shares);
        println!("{hz} Hz: false share {mean:.3} +- {deviation:.3}");
        // The lowest frequency gives 600 touches.
        let noise = 1.0 / (2.0 * 0.6 * hz as f64 * 2.0).sqrt();
        assert_near(mean, 0.5, 2.0 * noise);
        assert!(deviation < 2.0 * noise);
    }
}

/// Samples at fixed intervals, as a timer takes them; the threads' timers are `lag` of a period
/// apart. Each thread is on the line for `share` of its time.
fn periodic(share: f64, lag: f64, seed: u64) -> Judge {
    let mut judge = judge();
    let mut random = Random(seed);
    let period = 1_000_000u64;
    for i in 0..5000u64 {
        for t in [1u32, 2] {
            let time = i * period + (f64::from(t - 1) * lag * period as f64) as u64;
            let on_line = random.unit() < share;
            let at = if on_line {
                LINE + 8 * u64::from(t)
            } else {
                0x90_0000 + 4096 * u64::from(t)
            };
            sample(&mut judge, time, t, period, &[(at, 8, Update)]);
        }
    }
    judge
}

#[test]
fn timers_in_step_give_the_same_bound() {
    for share in [1.0, 0.3] {
        for lag in [0.001, 0.5] {
            let v = verdict_on(&periodic(share, lag, 1), LINE).expect("missed");
            // The order is more regular than random, so nothing speaks against interleaving; the
            // rest is as with random intervals.
            assert_near(v.cost_share / share, 0.97, 0.06);
        }
    }
}

#[test]
fn many_lines_that_cost_little_each_add_up() {
    // A pool of 200 locks, each on a line with a neighbour that another thread
    // uses: every line takes half a percent of each thread's time.
    let uses = |t: u64| -> Vec<(Use, f64)> {
        (0..200)
            .map(|i| ((LINE + 64 * i + 8 * t, 8, Update), 0.005))
            .collect()
    };
    let models = [Model::new(1, &uses(0)), Model::new(2, &uses(1))];
    let judge = run(&models, 1000, 10 * SECOND, 1);
    let all = judge.verdicts();
    let cost: f64 = all.iter().map(|v| v.cost_share).sum();
    let evidence: u32 = all.iter().map(|v| v.evidence).sum();
    println!(
        "{} lines, {cost:.2} of the time, evidence {evidence}",
        all.len()
    );
    // All of the time, less the losses of small numbers: a stretch of some 24 visits loses 0.8
    // / sqrt(24) = 16% to the minimum of two counts; the interleaved share of 100 visits loses
    // some 8% because it is at most 1; and each end of a stretch loses a visit or two.
    assert!(cost > 0.6 && cost <= 1.0, "{cost}");
    assert!(evidence > 200 * 10, "{evidence}");
}

#[test]
fn threads_started_for_a_moment_cost_no_more_than_main_writes() {
    // As in kmeans: the main thread writes, in a few microseconds, what each of its short-lived
    // threads reads, for 1,000 rounds of 3 ms.
    let mut judge = judge();
    let mut random = Random(5);
    for round in 0..1000u64 {
        let start = round * 3 * MS;
        if random.unit() < 0.01 {
            sample(
                &mut judge,
                start,
                1,
                MS,
                &[(LINE, 8, sunder_access::Kind::Write)],
            );
        }
        for k in 0..2 {
            let worker = 10 + round as u32 * 2;
            for t in [worker, worker + 1] {
                let time = start + (k + 1) * MS + u64::from(t % 2) * 1000;
                let what = (LINE + 8, 8, sunder_access::Kind::Read);
                sample(&mut judge, time, t, MS, &[what]);
            }
        }
    }
    judge.check_invariants();
    // The main thread is seen writing some ten times, 1 ms each. It loses no more than that. A
    // worker loses nothing, because none is seen both before and after a write.
    let cost: f64 = judge.verdicts().iter().map(|v| v.cost_ns).sum();
    assert!(cost <= 20.0 * MS as f64, "{cost} ns");
}
