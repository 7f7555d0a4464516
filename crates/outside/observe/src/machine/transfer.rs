//! What it costs to move a cache line from one core to another.
//!
//! The judge multiplies interleavings by this cost. Two pinned threads pass a token to and fro on
//! one line for a few milliseconds. The measurement must not hang and must not change the caller:
//! it pins only threads of its own, and if one of them does not get its CPU (a busy machine, a
//! throttled cgroup), only the time limit is lost.

use super::Cpu;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Round trips of the token in one measurement: at 100 ns one way, 20 us, well below a scheduler
/// tick, so that most measurements are not interrupted.
const PASSES: u64 = 100;
/// Measurements per pair, of which the median counts; odd, so that there is one.
const ROUNDS: usize = 21;
/// A pair with fewer measurements than this is discarded.
const MIN_ROUNDS: usize = 5;
/// The time limit of all pairs together. On an idle machine they need 2 ms; the rest is for threads
/// that have to wait for their CPUs.
const LIMIT: Duration = Duration::from_millis(9);
/// How many pairs are measured.
const MAX_PAIRS: usize = 3;

/// The cost to assume, in nanoseconds one way, where it cannot be measured: between two cores of
/// one socket it is 40 to 100 on the CPUs of the last ten years (80 to 100 on the machine of the
/// design's section 4).
pub const TYPICAL_TRANSFER_NS: f64 = 80.0;

/// The cost of moving a line from one core to another.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferCost {
    /// Nanoseconds for one line to go one way: the median over `pairs`.
    pub nanoseconds: f64,
    /// The measurements, by pair of CPUs.
    pub pairs: Vec<PairCost>,
}

/// The cost between two given CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairCost {
    /// The two CPUs, by the kernel's numbers.
    pub cpus: (u32, u32),
    /// Nanoseconds one way: the median over the rounds.
    pub nanoseconds: f64,
}

/// The line that the token lies on. Aligned to two lines, because some CPUs
/// fetch lines in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Line {
    /// Counts passes: at an even value it is the starter's turn, at an odd one the partner's;
    /// `STOP` ends both threads.
    token: AtomicU64,
}

const STOP: u64 = u64::MAX;
/// Says that the partner is on its CPU and waits; counting never reaches this value.
const READY: u64 = 1 << 62;

/// Measures the cost between up to three pairs of the CPUs that this process may use. Takes about
/// 2 ms, at most about 10. `None` if there are fewer than two CPUs, or if all pairs were too busy.
pub fn transfer_cost() -> Option<TransferCost> {
    transfer_cost_between(&super::Machine::read().allowed)
}

/// As [`transfer_cost`], between pairs of `cpus`.
pub fn transfer_cost_between(cpus: &[Cpu]) -> Option<TransferCost> {
    let chosen = choose_pairs(cpus);
    let limit = LIMIT / chosen.len().max(1) as u32;
    let pairs: Vec<PairCost> = chosen
        .into_iter()
        .filter_map(|(a, b)| measure_pair(a, b, limit))
        .collect();
    let nanoseconds = median(pairs.iter().map(|pair| pair.nanoseconds).collect())?;
    Some(TransferCost { nanoseconds, pairs })
}

/// A pair of near CPUs, one of far ones, and one of others. Hyperthreads of one core are a pair
/// only if there is nothing else, since a line between them does not move.
fn choose_pairs(cpus: &[Cpu]) -> Vec<(u32, u32)> {
    let mut cores: Vec<Cpu> = Vec::new();
    for cpu in cpus {
        if cpu.core.is_none() || !cores.iter().any(|seen| seen.core == cpu.core) {
            cores.push(*cpu);
        }
    }
    let cpus: Vec<u32> = if cores.len() < 2 { cpus } else { &cores[..] }
        .iter()
        .map(|cpu| cpu.number)
        .collect();
    let [first, second, .., last] = cpus[..] else {
        return match cpus[..] {
            [first, second] => vec![(first, second)],
            _ => Vec::new(),
        };
    };
    let mut pairs = vec![(first, second), (first, last), (cpus[cpus.len() / 2], last)];
    pairs.retain(|(a, b)| a != b);
    pairs.dedup();
    pairs.truncate(MAX_PAIRS);
    pairs
}

fn measure_pair(a: u32, b: u32, limit: Duration) -> Option<PairCost> {
    let line = Arc::new(Line::default());
    let deadline = Instant::now() + limit;
    let (result, measured) = mpsc::channel();

    // No thread is joined: one that does not get its CPU would delay the caller. Both end by
    // themselves, and the last one frees the line.
    let partner = Arc::clone(&line);
    spawn("sunder-pong", move || {
        if pin(b) {
            answer(&partner, deadline);
        }
    })?;
    spawn("sunder-ping", move || {
        if pin(a) {
            let rounds = serve(&line, deadline);
            line.token.store(STOP, Ordering::Release);
            // The receiver may have given up waiting for the result.
            let _ = result.send(rounds);
        }
    })?;

    let rounds = measured
        .recv_timeout(limit + Duration::from_micros(500))
        .ok()?;
    if rounds.len() < MIN_ROUNDS {
        return None;
    }
    Some(PairCost {
        cpus: (a, b),
        nanoseconds: median(rounds)?,
    })
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Option<()> {
    // If the thread is refused (a limit on tasks), there is no measurement, which is no error.
    let thread = thread::Builder::new()
        .name(name.into())
        .stack_size(64 * 1024)
        .spawn(body);
    thread.ok().map(drop)
}

/// Nanoseconds one way, by round, as many as came before the deadline.
fn serve(line: &Line, deadline: Instant) -> Vec<f64> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    if !wait_for(line, READY, deadline) {
        return rounds;
    }
    let mut turn = 0;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..PASSES {
            line.token.store(turn + 1, Ordering::Release);
            turn += 2;
            if !wait_for(line, turn, deadline) {
                return rounds;
            }
        }
        rounds.push(start.elapsed().as_nanos() as f64 / (2 * PASSES) as f64);
    }
    rounds
}

fn answer(line: &Line, deadline: Instant) {
    line.token.store(READY, Ordering::Release);
    let mut turn = 1;
    while wait_for(line, turn, deadline) {
        line.token.store(turn + 1, Ordering::Release);
        turn += 2;
    }
}

/// Whether the token became `value` in time.
fn wait_for(line: &Line, value: u64, deadline: Instant) -> bool {
    loop {
        // Reading the clock takes 20 ns and more, so it is read rarely.
        for _ in 0..256 {
            match line.token.load(Ordering::Acquire) {
                seen if seen == value => return true,
                STOP => return false,
                _ => spin_loop(),
            }
        }
        if Instant::now() >= deadline {
            return false;
        }
    }
}

/// Binds the calling thread to one CPU.
fn pin(cpu: u32) -> bool {
    let cpu = cpu as usize;
    if cpu >= CpuSet::MAX_CPU {
        return false;
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    // `None` is the calling thread.
    sched_setaffinity(None, &set).is_ok()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(cores: &[u32]) -> Vec<Cpu> {
        cores
            .iter()
            .zip(0..)
            .map(|(&core, number)| Cpu {
                number,
                core: Some((0, core)),
            })
            .collect()
    }

    #[test]
    fn fewer_than_two_cpus_have_no_price() {
        assert_eq!(transfer_cost_between(&[]), None);
        assert_eq!(transfer_cost_between(&cpus(&[0])), None);
    }

    #[test]
    fn pairs_are_on_different_cores() {
        // CPUs 0 and 1 are hyperthreads of core 0, 2 and 3 of core 1.
        assert_eq!(choose_pairs(&cpus(&[0, 0, 1, 1])), [(0, 2)]);
        assert_eq!(choose_pairs(&cpus(&[0, 1])), [(0, 1)]);
        assert_eq!(choose_pairs(&cpus(&[0, 1, 2])), [(0, 1), (0, 2), (1, 2)]);
        // Only hyperthreads: their cost is better than none.
        assert_eq!(choose_pairs(&cpus(&[0, 0])), [(0, 1)]);
        for (a, b) in choose_pairs(&cpus(&[0, 1, 2, 3, 4, 5, 6, 7])) {
            assert_ne!(a, b);
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_gives_no_price_instead_of_a_wait_without_end() {
        let missing = [0, 1_000_000].map(|number| Cpu { number, core: None });
        assert_eq!(transfer_cost_between(&missing), None);
    }

    #[test]
    fn a_partner_that_never_answers_ends_at_the_deadline() {
        let line = Line::default();
        assert_eq!(serve(&line, Instant::now()), Vec::<f64>::new());
        assert_eq!(serve(&line, Instant::now()).len(), 0);
    }

    #[test]
    fn the_price_of_this_machine_is_a_time() {
        match transfer_cost() {
            Some(cost) => {
                println!("{cost:?}");
                assert!(cost.nanoseconds > 0.0 && cost.nanoseconds.is_finite());
                assert!(!cost.pairs.is_empty() && cost.pairs.len() <= MAX_PAIRS);
            }
            None => println!("SKIP: fewer than two free CPUs, no price of a transfer"),
        }
    }
}
