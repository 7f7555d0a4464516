//! The watch stage (design 4.3): for a few milliseconds, hardware watchpoints trap every access of
//! the threads to the words of one suspect line. A burst records exact bytes, directions and the
//! order between threads.
//!
//! Called by the program for lines that samples made suspect. It must keep within its budget of the
//! target's time and must leave no watchpoint behind. It must not judge whether an order of
//! accesses is false sharing.
//!
//! A trap slows the thread down, so the *rate* of accesses during a burst is not the program's;
//! their order and the accessing threads are.

mod arm;
mod budget;
mod decode;
mod error;
mod executions;

pub use budget::{ARM_COST, Budget, TYPICAL_HIT_COST};
pub(crate) use decode::kind_of;
pub use decode::{Code, CodeBefore, CodeDecoder, HitDecoder, ProcessCode, Trap, TrappedAccess};
pub use error::WatchError;
pub use executions::{ExecutionRequest, Executions};

use crate::Registers;
use crate::clock::monotonic_now;
use crate::perf_event::{Attr, EventTarget, PerfEvent, Sample};
use arm::{Armed, Stop};
use budget::{Account, MIN_HITS};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sunder_access::{Access, Address, ProcessId, Provenance, ThreadId, Time};

/// Watchpoints that a thread can have (Intel SDM volume 3B, 18.2: DR0 to DR3).
pub const SLOTS: usize = 4;

/// Pause between two readings of the rings.
const POLL_PAUSE: Duration = Duration::from_micros(500);

/// The words, threads and limits of a burst.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BurstRequest {
    /// Aligned words of one line, the most suspect first. The first [`SLOTS`] are watched;
    /// [`Burst::watched`] says which. Others need another burst.
    pub words: Vec<Address>,
    /// The threads to watch.
    pub threads: Vec<ThreadId>,
    /// The kernel disables a thread's watchpoint after this many hits, and the burst ends soon
    /// after every thread has used them up. The budget may allow fewer.
    pub max_hits_per_thread: u32,
    /// The burst ends after this time, or when every thread has used up the hits of one word.
    pub max_duration: Duration,
}

/// The result of a burst.
#[derive(Clone, Debug, PartialEq)]
pub struct Burst {
    /// The accesses, ordered by time.
    pub accesses: Vec<Access>,
    /// The words that were watched.
    pub watched: Vec<Address>,
    /// The time at which all watchpoints were set.
    pub started: Time,
    /// The time at which the first of them was removed.
    pub ended: Time,
    /// The time until which no watchpoint had used up its hits: before it, no access of a watched
    /// thread to a watched word is missing.
    pub complete_until: Time,
    /// How many traps there were.
    pub hits: u64,
    /// Hits that are not in `accesses`: the instruction is unknown, or the hit was the second half
    /// of an access to two words.
    pub suppressed: u64,
    /// Accesses whose word is certain but whose position in the word is a guess.
    pub guessed: u64,
    /// How many threads were watched.
    pub threads: u32,
    /// How many threads could not be watched, because they had ended or slots or descriptors ran
    /// out.
    pub skipped: u32,
}

impl Burst {
    /// The accesses of the time in which every watchpoint was active, so that their order between
    /// threads is complete.
    pub fn complete(&self) -> &[Access] {
        let end = self
            .accesses
            .partition_point(|access| access.time <= self.complete_until);
        let start = self.accesses[..end].partition_point(|access| access.time < self.started);
        &self.accesses[start..end]
    }
}

/// The effort of all bursts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchStatistics {
    /// How many bursts were made.
    pub bursts: u64,
    /// How many bursts were not made because the budget was spent.
    pub deferred: u64,
    /// How many traps there were.
    pub hits: u64,
    /// Estimated time of the target that traps and the setting of watchpoints took.
    pub cost: Duration,
    /// CPU time of the target since watching began.
    pub target_time: Duration,
    /// The cost of one trap on this machine.
    pub hit_cost: Duration,
}

/// Watches the threads of one process.
#[derive(Debug)]
pub struct Watcher {
    process: ProcessId,
    account: Account,
    /// The process's CPU time when watching began.
    cpu_start: Duration,
    /// Its CPU time when last read; kept when it has ended.
    cpu_now: Duration,
    hit_cost: Option<Duration>,
    statistics: WatchStatistics,
}

impl Watcher {
    /// A watcher of `process` that spends no more than `budget`. Sets no watchpoint yet and cannot
    /// fail.
    pub fn new(process: ProcessId, budget: Budget) -> Self {
        let cpu = cpu_time(process).unwrap_or_default();
        Self {
            process,
            account: Account::new(budget),
            cpu_start: cpu,
            cpu_now: cpu,
            hit_cost: None,
            statistics: WatchStatistics::default(),
        }
    }

    /// Makes one burst. Blocks for its duration.
    ///
    /// # Errors
    /// If nothing was watched; see [`WatchError`].
    pub fn burst(
        &mut self,
        request: &BurstRequest,
        decode: &mut dyn HitDecoder,
    ) -> Result<Burst, WatchError> {
        let words = checked_words(request)?;
        let affordable = self.affordable_hits(request.threads.len(), words.len(), MIN_HITS)?;
        let fair_share = affordable / (request.threads.len() as u32).max(1);
        let limit = request.max_hits_per_thread.min(fair_share);
        let mut armed = Armed::set(self.process, &request.threads, Stop::Access, words, limit)?;

        armed.enable();
        let started = monotonic_now();
        run(&mut armed, affordable.into(), request.max_duration);
        let ended = monotonic_now();
        armed.disable();
        armed.collect();

        let hits = armed.hit_count();
        self.charge(&armed, hits);
        let mut burst = Burst {
            accesses: Vec::new(),
            watched: armed.words().to_vec(),
            started,
            ended,
            complete_until: ended,
            hits,
            suppressed: 0,
            guessed: 0,
            threads: armed.threads(),
            skipped: armed.skipped(),
        };
        for (thread, samples) in armed.hits() {
            burst.add_thread(thread, samples, armed.limit(), decode);
        }
        burst.accesses.sort_by_key(|access| access.time);
        Ok(burst)
    }

    /// The effort so far.
    pub fn statistics(&self) -> WatchStatistics {
        WatchStatistics {
            target_time: self.cpu_now.saturating_sub(self.cpu_start),
            hit_cost: self.hit_cost.unwrap_or(TYPICAL_HIT_COST),
            ..self.statistics
        }
    }

    /// How many hits all threads together may have now, if it is enough for `least` in each. It is not known beforehand which words they
    /// will access, so a burst may overspend until that is noticed ([`POLL_PAUSE`]); the account
    /// keeps the debt, and the next burst comes later.
    fn affordable_hits(
        &mut self,
        threads: usize,
        words: usize,
        least: u32,
    ) -> Result<u32, WatchError> {
        // For a process that has ended, the last known time counts.
        self.cpu_now = cpu_time(self.process).unwrap_or(self.cpu_now);
        let hit_cost = *self.hit_cost.get_or_insert_with(measure_hit_cost);
        let target_time = self.cpu_now.saturating_sub(self.cpu_start);
        self.account
            .hits(target_time, threads as u32, words as u32, least, hit_cost)
            .map_err(|wait| {
                self.statistics.deferred += 1;
                WatchError::BudgetSpent(wait)
            })
    }

    fn charge(&mut self, armed: &Armed, hits: u64) {
        let hit_cost = self.hit_cost.unwrap_or(TYPICAL_HIT_COST);
        let traps = u32::try_from(hits).unwrap_or(u32::MAX);
        let cost = hit_cost
            .saturating_mul(traps)
            .saturating_add(ARM_COST * armed.watchpoints());
        self.account.spend(cost);
        self.statistics.bursts += 1;
        self.statistics.hits += hits;
        self.statistics.cost += cost;
    }
}

impl Burst {
    /// Adds the hits of one thread, in the order in which they happened.
    fn add_thread(
        &mut self,
        thread: ThreadId,
        samples: &[Sample],
        limit: u32,
        decode: &mut dyn HitDecoder,
    ) {
        let mut last = LastAccess::default();
        for sample in samples {
            let access = trap_of(thread, sample).and_then(|trap| decode.access_before(&trap));
            match access {
                Some(access) if !last.is_again(sample, access) => {
                    self.guessed += u64::from(!access.exact);
                    self.accesses.push(Access {
                        time: Time(sample.time.unwrap_or(0)),
                        thread,
                        instruction: access.instruction,
                        address: access.address,
                        width: access.width,
                        kind: access.kind,
                        provenance: Provenance::Watched,
                        weight: 1.0,
                    });
                }
                _ => self.suppressed += 1,
            }
        }
        for &word in &self.watched {
            let mut of_word = samples
                .iter()
                .filter(|sample| sample.address == Some(word.0));
            if let Some(exhausting) = of_word.nth(limit as usize - 1) {
                let time = Time(exhausting.time.unwrap_or(0));
                self.complete_until = self.complete_until.min(time);
            }
        }
    }
}

/// The last access of a thread. An access to several watched words traps once, and is reported once
/// for each of them.
#[derive(Default)]
struct LastAccess {
    access: Option<TrappedAccess>,
    registers: Option<Registers>,
    words: Vec<u64>,
}

impl LastAccess {
    /// Whether `sample` is another report of the last access. If not, it becomes the last one. A
    /// report of the same word means that the instruction was executed again.
    fn is_again(&mut self, sample: &Sample, access: TrappedAccess) -> bool {
        let word = sample.address.unwrap_or(0);
        let again = self.access == Some(access)
            && self.registers == sample.registers
            && !self.words.contains(&word);
        if !again {
            self.access = Some(access);
            self.registers = sample.registers;
            self.words.clear();
        }
        self.words.push(word);
        again
    }
}

fn trap_of(thread: ThreadId, sample: &Sample) -> Option<Trap> {
    Some(Trap {
        thread,
        registers: sample.registers?,
        word: Address(sample.address?),
    })
}

fn checked_words(request: &BurstRequest) -> Result<&[Address], WatchError> {
    if let Some(&odd) = request.words.iter().find(|word| word.0 % 8 != 0) {
        return Err(WatchError::Unaligned(odd));
    }
    if request.words.is_empty() || request.max_hits_per_thread == 0 {
        return Err(WatchError::Empty);
    }
    Ok(&request.words[..request.words.len().min(SLOTS)])
}

/// Waits until every thread has used up its hits, until there were `affordable` hits in all, or
/// for `duration`.
fn run(armed: &mut Armed, affordable: u64, duration: Duration) {
    let deadline = Instant::now() + duration;
    loop {
        armed.collect();
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || armed.is_used_up() || armed.hit_count() >= affordable {
            return;
        }
        thread::sleep(left.min(POLL_PAUSE));
    }
}

/// The CPU time of all threads of a process, including those that have ended.
fn cpu_time(process: ProcessId) -> Option<Duration> {
    let mut id = 0;
    // SAFETY: writes a clock's number to `id`.
    let failed = unsafe { libc::clock_getcpuclockid(process.0 as libc::pid_t, &mut id) };
    (failed == 0).then(|| clock(id)).flatten()
}

fn clock(id: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the time to `time`.
    let failed = unsafe { libc::clock_gettime(id, &mut time) };
    (failed == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// The cost of a trap on this machine, measured on our own thread: the design's machine needs 5 us,
/// a nested virtual machine several times that. Measured in the thread's CPU time, so that other
/// load changes little.
fn measure_hit_cost() -> Duration {
    const HITS: u32 = 32;
    static WORD: AtomicU64 = AtomicU64::new(0);
    let timed = || -> Option<Duration> {
        let event = PerfEvent::open(
            &Attr::breakpoint(WORD.as_ptr() as u64),
            EventTarget::Thread(0),
        )
        .ok()?;
        event.enable().ok()?;
        let start = clock(libc::CLOCK_THREAD_CPUTIME_ID)?;
        for _ in 0..HITS {
            WORD.store(1, Ordering::Relaxed);
        }
        let time = clock(libc::CLOCK_THREAD_CPUTIME_ID)?.saturating_sub(start);
        event.disable().ok()?;
        (event.count().ok()? == u64::from(HITS)).then_some(time / HITS)
    };
    // The measurement lacks the recording of registers, so the cost is never below the typical one.
    timed().map_or(TYPICAL_HIT_COST, |cost| {
        cost.clamp(TYPICAL_HIT_COST, 20 * TYPICAL_HIT_COST)
    })
}

#[cfg(test)]
mod tests;
