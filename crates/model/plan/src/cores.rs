//! What a fix gains on a machine with more CPUs, from a run on few. Called by the room `gain`, with what
//! that has measured. Pure.
//!
//! A line is at one CPU at a time, so a thread that uses it waits for each other thread that does, in
//! turn: what contention costs a thread grows with the number of threads on its line, while the work
//! of its own is divided among more CPUs. How many threads come to a line follows from the layout:
//! where two threads use 8 bytes each, a line of 64 bytes has room for eight. Learned from the
//! workloads, and checked on other programs, on a machine of 16 CPUs (docs/design/judge.md, "On more
//! CPUs").

use crate::gain::{Shares, ThreadGain};
use sunder_findings::{Finding, Line, OnMoreCpus};

/// For so many CPUs it is told: as many as the machine has on which the model was checked.
pub const CPUS: u32 = 16;

/// How many times as long a thread waits for each other thread on a line where 16 CPUs are busy with
/// such lines as where two are: each transfer takes longer. The median of eleven workloads.
const CROWDED: f64 = 1.4;

/// How far off the model is, as a factor either way: that held all eleven workloads, and nine of eleven
/// other programs.
const WITHIN: f64 = 2.5;

/// The least part of the time that is left for the threads' own work. Less can't be told from nothing.
const LEAST_OWN: f64 = 0.01;

/// A run on few CPUs.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// All threads of the program.
    pub threads: &'a [ThreadGain],
    /// How long it took.
    pub wall_ns: f64,
    /// The CPUs that the program could run on.
    pub cpus: u32,
    /// Bytes of a cache line.
    pub line_size: u32,
}

/// How many times as fast the program is with a fix of `finding` as without on [`CPUS`] CPUs with a
/// thread on each, where the fix gains `gain` in this run. `None` if this run had as many CPUs or
/// only one, or if no line is known that several threads use.
pub fn on_more_cpus(finding: &Finding, gain: Shares, run: Run<'_>) -> Option<OnMoreCpus> {
    if run.cpus < 2 || run.cpus >= CPUS || run.wall_ns <= 0.0 {
        return None;
    }
    let contenders = Contenders::of(finding, run)?;
    let more = f64::from(CPUS) / f64::from(run.cpus);
    let serial = serial(run);
    let model = |gain: f64| {
        let serial = serial.min(1.0 - gain).max(0.0);
        let own = (1.0 - gain - serial).max(LEAST_OWN);
        let contended = CROWDED * gain * contenders.then / contenders.now;
        (serial + (own + contended) / more) / (serial + own / more)
    };
    let likely = model(gain.likely);
    Some(OnMoreCpus {
        cpus: CPUS,
        times_as_fast: likely,
        low: (likely / WITHIN).max(1.0),
        high: likely * WITHIN,
    })
}

/// The share of the run in which one thread prepares the work of the others, or gathers it: what the
/// busiest thread took that never contended. (CPUs that stood still tell less: a thread that has won
/// most of the contention ends early.)
fn serial(run: Run<'_>) -> f64 {
    let apart = run.threads.iter().filter(|t| t.contended_ns <= 0.0);
    let longest = apart.map(|thread| thread.cpu_ns).fold(0.0, f64::max);
    (longest / run.wall_ns).min(1.0)
}

/// How many threads use one line at the same time, in the mean over interleavings.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Contenders {
    now: f64,
    then: f64,
}

impl Contenders {
    fn of(finding: &Finding, run: Run<'_>) -> Option<Self> {
        let (mut now, mut then, mut weight) = (0.0, 0.0, 0.0);
        for line in &finding.lines {
            let Some((threads, bytes)) = users(line) else {
                continue;
            };
            let at_once = |threads: f64, cpus: u32| threads.min(f64::from(cpus));
            let room = (f64::from(run.line_size) * threads / bytes).floor();
            let often = line.interleavings_per_second.max(f64::MIN_POSITIVE);
            now += often * at_once(threads, run.cpus);
            then += often * at_once(threads.max(room), CPUS);
            weight += often;
        }
        (weight > 0.0).then(|| Self {
            now: now / weight,
            then: then / weight,
        })
    }
}

/// The number of threads that use the line, and the bytes from the first to the last that they use;
/// `None` if there are not two.
fn users(line: &Line) -> Option<(f64, f64)> {
    let words = || line.words.iter().filter(|word| !word.threads.is_empty());
    let mut threads: Vec<u32> = words()
        .flat_map(|w| w.threads.iter().map(|t| t.id))
        .collect();
    threads.sort_unstable();
    threads.dedup();
    let first = words().map(|word| word.offset).min()?;
    let end = words().map(|word| word.offset + word.size).max()?;
    let count = u32::try_from(threads.len())
        .ok()
        .filter(|count| *count > 1)?;
    Some((f64::from(count), f64::from((end - first).max(1))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_findings::{ThreadUse, Word};

    /// A line on which each of `threads` threads uses `size` bytes behind those of the one before.
    fn line(threads: u32, size: u32) -> Line {
        let word = |n| Word {
            offset: n * size,
            size,
            threads: vec![ThreadUse {
                id: 100 + n,
                ..ThreadUse::default()
            }],
            ..Word::default()
        };
        Line {
            interleavings_per_second: 1e6,
            words: (0..threads).map(word).collect(),
            ..Line::default()
        }
    }

    fn finding(lines: Vec<Line>) -> Finding {
        Finding {
            lines,
            ..Finding::default()
        }
    }

    /// Two threads that were busy for the whole second.
    fn busy() -> Vec<ThreadGain> {
        let thread = ThreadGain {
            cpu_ns: 1e9,
            contended_ns: 1e9,
            ..ThreadGain::default()
        };
        vec![thread; 2]
    }

    fn ask(finding: &Finding, gain: f64, threads: &[ThreadGain], cpus: u32) -> Option<OnMoreCpus> {
        let gain = Shares {
            low: gain,
            likely: gain,
            high: gain,
        };
        let run = Run {
            threads,
            wall_ns: 1e9,
            cpus,
            line_size: 64,
        };
        on_more_cpus(finding, gain, run)
    }

    #[test]
    fn a_line_with_room_for_eight_threads_is_contended_by_eight() {
        // Of each second a quarter is own work; the rest is the wait for one other thread on the
        // line. With eight on it the wait takes four times as long, and 1.4 times that where all are
        // busy: 1/4 + 3/4 * 4 * 1.4 = 4.45.
        let told = ask(&finding(vec![line(2, 8)]), 0.75, &busy(), 2).expect("a model");
        assert!((told.times_as_fast - 17.8).abs() < 1e-9, "{told:?}");
        assert!(told.low < told.times_as_fast && told.times_as_fast < told.high);
    }

    #[test]
    fn a_line_that_two_threads_fill_gains_little_more_than_now() {
        // 1/4 + 3/4 * 1.4 = 1.3.
        let told = ask(&finding(vec![line(2, 32)]), 0.75, &busy(), 2).expect("a model");
        assert!((told.times_as_fast - 5.2).abs() < 1e-9, "{told:?}");
    }

    #[test]
    fn what_one_thread_does_alone_bounds_the_gain() {
        // For half of the time the main thread prepares. That stays; the other half, of which the fix
        // takes half, shrinks to an eighth, by which its contention takes 1.4 times as long.
        let mut threads = busy();
        threads.push(ThreadGain {
            cpu_ns: 0.5e9,
            ..ThreadGain::default()
        });
        let told = ask(&finding(vec![line(2, 32)]), 0.25, &threads, 2).expect("a model");
        let expected = (0.5 + (0.25 + 1.4 * 0.25) / 8.0) / (0.5 + 0.25 / 8.0);
        assert!((told.times_as_fast - expected).abs() < 1e-9, "{told:?}");
    }

    #[test]
    fn nothing_is_told_where_nothing_is_known() {
        let two = finding(vec![line(2, 8)]);
        for cpus in [1, 16, 64] {
            assert_eq!(ask(&two, 0.5, &busy(), cpus), None, "{cpus} CPUs");
        }
        let one = finding(vec![line(1, 8)]);
        assert_eq!(
            ask(&one, 0.5, &busy(), 2),
            None,
            "one thread shares nothing"
        );
    }
}
