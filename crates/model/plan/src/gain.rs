//! What a fix of a finding gains, as a share of the program's time, from how fast its threads got on
//! while their rivals were stopped. Called by the room `gain`, which measures that. Pure; it must not
//! look at the program.
//!
//! The time of a run is its longest thread's CPU time, or what all threads take on the CPUs that there
//! are, whichever is more, and what was waited for besides. If a thread gets on at a fraction `speed` of
//! what it does alone, its contended time shrinks to that fraction. The gain is how much less the
//! whole then takes.

use sunder_findings::{Finding, GainPercent, Sharing};

/// What is known of one thread at the end of a run. Times are in ns of its CPU time.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ThreadGain {
    /// All CPU time of the thread.
    pub cpu_ns: f64,
    /// The part of it in which the thread contended for a line, and a rival ran beside it.
    pub contended_ns: f64,
    /// Each comparison's speed beside the rivals as a share of the speed without them; empty if
    /// the thread was not compared.
    pub speeds: Vec<f64>,
}

/// A gain as shares (0 to 1) of the run's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// Less is unlikely (one time of twenty).
    pub low: f64,
    /// The best guess.
    pub likely: f64,
    /// More is unlikely (one time of twenty).
    pub high: f64,
}

/// The fewest comparisons of a thread whose mean counts.
pub const LEAST_COMPARISONS: usize = 3;

/// Of so many comparisons, the highest and the lowest do not count: a rival may have been off its CPU
/// anyway, or a value that grew by chance was taken for progress. The others are not a median: where
/// threads take turns in being the faster one, all of it counts.
const WITH_EXTREMES: usize = 5;

/// What a thread's speed in one run tells of its speed in the next, besides the error of the mean: the
/// same contention costs more in one run than in another, as threads meet in another rhythm. In
/// points of speed. Learned from every second workload, for intervals that hold nine gains of ten,
/// and checked on the others (docs/design/judge.md, "What a fix gains").
const BETWEEN_RUNS: f64 = 0.15;

/// The gain of a program with these threads whose run took `wall_ns` on so many `cpus`, if nothing
/// contended any more. `None` if too little was compared.
pub fn of_threads(threads: &[ThreadGain], wall_ns: f64, cpus: u32) -> Option<Shares> {
    let cpus = f64::from(cpus.max(1));
    let least_time = |times: &[f64]| {
        let longest = times.iter().copied().fold(0.0, f64::max);
        longest.max(times.iter().sum::<f64>() / cpus)
    };
    let times: Vec<f64> = threads.iter().map(|t| t.cpu_ns).collect();
    let longest = least_time(&times);
    // A few threads stand for others that do the same.
    let known: Vec<(f64, f64)> = threads.iter().filter_map(speed).collect();
    if known.is_empty() || longest <= 0.0 || wall_ns <= 0.0 {
        return None;
    }
    let middle = known.iter().map(|k| k.0).sum::<f64>() / known.len() as f64;
    let doubt = known.iter().map(|k| k.1).fold(0.0, f64::max) + between_threads(&known);
    let wall = wall_ns.max(longest);
    let saved = |shift: f64| {
        let after = threads.iter().map(|thread| {
            let (speed, error) = speed(thread).unwrap_or((middle, doubt));
            let left = (speed + shift * error).clamp(0.0, 1.0);
            thread.cpu_ns - thread.contended_ns.min(thread.cpu_ns) * (1.0 - left)
        });
        let after: Vec<f64> = after.collect();
        (longest - least_time(&after)).max(0.0) / wall
    };
    Some(Shares {
        low: saved(1.0),
        likely: saved(0.0),
        high: saved(-1.0),
    })
}

/// How much threads that were not compared may differ from those that were, in points of speed: as much
/// as these differ from each other. Threads at the end of an array have one neighbour, others two.
fn between_threads(known: &[(f64, f64)]) -> f64 {
    /// One thread tells nothing of this, so a quarter is a choice and no measurement.
    const BY_ONE: f64 = 0.25;
    let slowest = known.iter().map(|k| k.0).fold(f64::INFINITY, f64::min);
    let fastest = known.iter().map(|k| k.0).fold(0.0, f64::max);
    match known.len() {
        1 => BY_ONE,
        _ => fastest - slowest,
    }
}

/// The mean speed of a thread, and how far off it may be (at 90 %).
fn speed(thread: &ThreadGain) -> Option<(f64, f64)> {
    let mut speeds = thread.speeds.clone();
    speeds.sort_by(f64::total_cmp);
    if speeds.len() >= WITH_EXTREMES {
        speeds.pop();
        speeds.remove(0);
    }
    let count = speeds.len();
    if count < LEAST_COMPARISONS {
        return None;
    }
    let mean = speeds.iter().sum::<f64>() / count as f64;
    let squares = speeds.iter().map(|s| (s - mean).powi(2)).sum::<f64>();
    let error = (squares / (count - 1) as f64 / count as f64).sqrt();
    Some((mean, student(count - 1) * error + BETWEEN_RUNS))
}

/// The 95 % quantile of Student's distribution with `freedom` degrees of freedom (at least 1).
fn student(freedom: usize) -> f64 {
    const QUANTILES: [f64; 10] = [
        6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812,
    ];
    QUANTILES.get(freedom - 1).copied().unwrap_or(1.75)
}

/// The gain of fixing `finding` alone, where taking away all contention of its threads gains `all`.
/// `part` (0 to 1) is the finding's part in what its threads lose.
///
/// What a part of the contention costs is not known exactly: others may take its place. So with a
/// part below 1 the interval reaches from half of that part's share to all.
pub fn of_finding(finding: &Finding, all: Shares, part: f64) -> Shares {
    let falsely = match finding.sharing {
        Sharing::False => 1.0,
        Sharing::Mixed => finding.false_share.clamp(0.0, 1.0),
        Sharing::True => return Shares::default(),
    };
    let part = part.clamp(0.0, 1.0) * falsely;
    if part >= NEARLY_ALL {
        return all;
    }
    Shares {
        low: all.low * part / 2.0,
        likely: all.likely * (1.0 + part) / 2.0,
        high: all.high,
    }
}

/// From this part on a finding counts as all that its threads contend for.
const NEARLY_ALL: f64 = 0.95;

impl Shares {
    /// In percent, after so many comparisons.
    pub fn percent(self, comparisons: usize) -> GainPercent {
        GainPercent {
            low: 100.0 * self.low,
            likely: 100.0 * self.likely,
            high: 100.0 * self.high,
            comparisons: u32::try_from(comparisons).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread with one second of CPU time, all of it contended, at these speeds.
    fn contending(speeds: &[f64]) -> ThreadGain {
        ThreadGain {
            cpu_ns: 1e9,
            contended_ns: 1e9,
            speeds: speeds.to_vec(),
        }
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn two_threads_at_a_quarter_of_their_speed_gain_three_quarters() {
        let all = [contending(&[0.25; 4]), contending(&[0.25; 4])];
        let gain = of_threads(&all, 1e9, 2).expect("both were compared");
        assert!(near(gain.likely, 0.75), "{gain:?}");
        // Equal speeds have no error of their own; what remains is the difference between runs.
        assert!(near(gain.low, 0.75 - BETWEEN_RUNS), "{gain:?}");
        assert!(near(gain.high, 0.75 + BETWEEN_RUNS), "{gain:?}");
    }

    #[test]
    fn threads_that_share_cpus_gain_together() {
        // Four threads of one second each on two CPUs take two seconds.
        let all = vec![contending(&[0.25; 4]); 4];
        let gain = of_threads(&all, 2e9, 2).expect("they were compared");
        assert!(near(gain.likely, 0.75), "{gain:?}");
        // On four CPUs they take one second, and the other one was waited for something else.
        let gain = of_threads(&all, 2e9, 4).expect("they were compared");
        assert!(near(gain.likely, 0.375), "{gain:?}");
    }

    #[test]
    fn time_in_which_a_thread_does_not_contend_or_run_does_not_shrink() {
        let mut half = contending(&[0.5; 4]);
        half.contended_ns = 0.5e9;
        // Of one second 0.75 s are left, and one more second is waited for.
        let gain = of_threads(&[half], 2e9, 2).expect("it was compared");
        assert!(near(gain.likely, 0.125), "{gain:?}");
    }

    #[test]
    fn the_longest_thread_limits_the_gain() {
        let alone = ThreadGain {
            cpu_ns: 0.8e9,
            ..ThreadGain::default()
        };
        let gain = of_threads(&[contending(&[0.1; 4]), alone], 1e9, 2).expect("one was compared");
        assert!(near(gain.likely, 0.2), "{gain:?}");
    }

    #[test]
    fn threads_that_were_not_compared_are_as_fast_as_those_that_were() {
        let silent = contending(&[]);
        let one = [contending(&[0.4; 4]), silent.clone()];
        let gain = of_threads(&one, 1e9, 2).expect("one was compared");
        assert!(near(gain.likely, 0.6), "{gain:?}");
        // The other one may be a quarter slower or faster, besides.
        assert!(near(gain.low, 0.6 - BETWEEN_RUNS - 0.25), "{gain:?}");
        let two = [contending(&[0.3; 4]), contending(&[0.5; 4]), silent];
        let gain = of_threads(&two, 1e9, 3).expect("two were compared");
        // The fastest that was not compared limits the gain: 0.4, and 0.2 for the difference.
        assert!(near(gain.low, 1.0 - (0.6 + BETWEEN_RUNS)), "{gain:?}");
        assert_eq!(
            of_threads(&[contending(&[0.4; 2])], 1e9, 2),
            None,
            "too few"
        );
        assert_eq!(of_threads(&[], 1e9, 2), None);
    }

    #[test]
    fn an_extreme_speed_does_not_count_and_wide_ones_widen_the_interval() {
        let odd = of_threads(&[contending(&[0.3, 0.3, 23.5, 0.3, 0.3])], 1e9, 2);
        assert!(near(odd.expect("compared").likely, 0.7));
        // 0.2, 0.4 and 0.6 of 0.1 to 0.7 remain: deviation 0.2, error 0.2 / sqrt(3), t = 2.920.
        let wide = of_threads(&[contending(&[0.1, 0.2, 0.4, 0.6, 0.7])], 1e9, 2).expect("compared");
        let error = 2.920 * 0.2 / 3f64.sqrt() + BETWEEN_RUNS;
        assert!(
            near(wide.likely, 0.6) && near(wide.low, 0.6 - error),
            "{wide:?}"
        );
    }

    #[test]
    fn only_what_takes_apart_all_contention_gains_all_of_it() {
        let all = Shares {
            low: 0.6,
            likely: 0.7,
            high: 0.8,
        };
        let of = |sharing, false_share, part| {
            let finding = Finding {
                sharing,
                false_share,
                ..Finding::default()
            };
            of_finding(&finding, all, part)
        };
        assert_eq!(of(Sharing::False, 1.0, 1.0), all);
        let half = of(Sharing::False, 1.0, 0.5);
        assert!(near(half.low, 0.15) && near(half.likely, 0.525) && near(half.high, 0.8));
        let mixed = of(Sharing::Mixed, 0.5, 1.0);
        assert!(near(mixed.low, 0.15) && near(mixed.high, 0.8));
        assert_eq!(of(Sharing::True, 0.0, 1.0).high, 0.0);
    }
}
