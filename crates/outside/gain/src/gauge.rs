//! Measures how fast threads get on, before a change and after. Reads values that may count a
//! thread's progress ([`sunder_plan::progress`]): from registers, from stacks, and from bytes that
//! it writes. Called by the experiment beside it, and by `repair`. Only reads.

use std::collections::BTreeMap;
use std::time::Duration;
use sunder_access::{Address, ProcessId, ThreadId};
use sunder_observe::{Pace, PerfRefusal, machine, remote};
use sunder_plan::progress::{self, Alone, Gain, ValuePlace, Window};
use sunder_sharing::Verdict;

/// One sample of the registers per this much of a thread's CPU time, for a window that is read at
/// leisure.
const EVERY: Duration = Duration::from_millis(1);
/// Bytes below the stack pointer that a function may use (the red zone of the System V ABI).
const RED_ZONE: u64 = 128;
/// Bytes above the stack pointer that are read.
const FRAMES: u64 = 512;
/// Most bytes of a group that are read.
const OF_GROUP: u64 = 128;
/// Most threads that are measured; more would add nothing.
const MOST: usize = 16;
/// How much of its own CPU time a thread is measured for.
const ENOUGH: Duration = Duration::from_millis(20);
/// The same where threads outnumber the CPUs and take turns: at least this much of each.
const FEWEST: Duration = Duration::from_millis(10);
/// The same if none of its values counts progress.
const LONGEST: Duration = Duration::from_millis(60);

/// Pause between two readings of threads that are being measured.
pub const READ_EVERY: Duration = Duration::from_millis(2);

/// The present place of bytes that a thread uses.
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// The thread that uses them.
    pub thread: ThreadId,
    /// The address that they have for the program.
    pub original: u64,
    /// The address at which they lie.
    pub at: u64,
    /// How many bytes; 0 if only the thread is to be measured.
    pub len: u64,
}

/// The values that were read in one window, by thread.
pub type Windows = BTreeMap<ThreadId, Window>;

/// Bytes by which the threads of a line can be measured: those that a single thread was seen to use
/// and to write. A thread without such bytes gets an entry of length 0.
pub fn measurable(line: &Verdict) -> Vec<Bytes> {
    let mut all: Vec<Bytes> = written(line).collect();
    for one in &line.threads {
        if !all.iter().any(|bytes| bytes.thread == one.thread) {
            all.push(Bytes {
                thread: one.thread,
                original: line.line.0,
                at: line.line.0,
                len: 0,
            });
        }
    }
    all
}

fn written(line: &Verdict) -> impl Iterator<Item = Bytes> {
    let own = line
        .words
        .iter()
        .filter_map(|word| match &word.threads[..] {
            [only] if only.writes + only.updates > 0 => Some((word, only.thread)),
            _ => None,
        });
    own.map(|(word, thread)| {
        let at = line.line.0 + u64::from(word.offset);
        Bytes {
            thread,
            original: at,
            at,
            len: word.size.into(),
        }
    })
}

/// Threads that are being measured.
pub struct Gauge {
    process: ProcessId,
    paces: Vec<Pace>,
    /// The stack pointer of each thread in its last sample.
    stacks: BTreeMap<ThreadId, u64>,
    windows: Windows,
}

/// How much of its CPU time each of so many threads is measured for on so many CPUs.
fn enough(threads: usize, cpus: usize) -> Duration {
    let turns = threads.max(1).div_ceil(cpus.max(1)).min(MOST) as u32;
    (ENOUGH / turns).max(FEWEST)
}

impl Gauge {
    /// Begins a window; `None` if the kernel lets us measure none of the threads.
    pub fn begin(process: ProcessId, threads: &[ThreadId]) -> Option<Self> {
        Self::sampling(process, threads, EVERY).ok()
    }

    /// As [`Self::begin`], with one sample per `every` of a thread's CPU time.
    ///
    /// # Errors
    /// The last refusal, if the kernel lets us measure none of the threads.
    pub fn sampling(
        process: ProcessId,
        threads: &[ThreadId],
        every: Duration,
    ) -> Result<Self, PerfRefusal> {
        let mut refused = PerfRefusal::Other { errno: 0 };
        let mut paces = Vec::new();
        for &thread in threads.iter().take(MOST) {
            match Pace::begin(process, thread, every) {
                Ok(pace) => paces.push(pace),
                Err(refusal) => refused = refusal,
            }
        }
        if paces.is_empty() {
            return Err(refused);
        }
        Ok(Self {
            process,
            paces,
            stacks: BTreeMap::new(),
            windows: Windows::new(),
        })
    }

    /// Measures `thread` too from now on, as at leisure. Whether it can be measured.
    pub fn join(&mut self, thread: ThreadId) -> bool {
        let has_room = self.paces.len() < MOST;
        let pace = has_room.then(|| Pace::begin(self.process, thread, EVERY).ok());
        let pace = pace.flatten();
        let joins = pace.is_some();
        self.paces.extend(pace);
        joins
    }

    /// Takes the registers that the kernel has recorded.
    pub fn take(&mut self) {
        for pace in &mut self.paces {
            let window = self.windows.entry(pace.thread()).or_default();
            for sample in pace.take() {
                window.registers(sample.cpu_ns, sample.registers.general);
                window.at(sample.cpu_ns, sample.registers.ip.0);
            }
        }
    }

    /// Reads all values at this moment, with those of `moved`.
    pub fn read(&mut self, moved: &[Bytes]) {
        let process = self.process;
        for pace in &mut self.paces {
            let thread = pace.thread();
            let window = self.windows.entry(thread).or_default();
            for sample in pace.take() {
                self.stacks.insert(thread, sample.registers.general[4]);
                window.registers(sample.cpu_ns, sample.registers.general);
                window.at(sample.cpu_ns, sample.registers.ip.0);
            }
            // Asking for the time interrupts the thread, so it is asked once for all values.
            let mut values = Vec::new();
            let mut take = |at: u64, len: u64, place: ValuePlace| {
                let bytes = remote::read(process, Address(at), len as usize);
                let bytes = bytes.filter(|bytes| bytes.len() as u64 == len);
                values.extend(bytes.map(|bytes| (place, bytes)));
            };
            let before = pace.cpu_ns();
            if let Some(&stack) = self.stacks.get(&thread) {
                let from = stack.saturating_sub(RED_ZONE) & !7;
                take(from, RED_ZONE + FRAMES, ValuePlace::Stack(from));
            }
            for bytes in moved.iter().filter(|b| b.thread == thread && b.len > 0) {
                take(
                    bytes.at,
                    bytes.len.clamp(8, OF_GROUP),
                    ValuePlace::Moved(bytes.original),
                );
            }
            if let (Some(before), Some(after)) = (before, pace.cpu_ns()) {
                let now = u64::midpoint(before, after);
                for (place, bytes) in values {
                    window.bytes(place, now, bytes);
                }
            }
        }
    }

    /// Whether most threads were measured for long enough: until one of their values is known to
    /// count progress, or none is likely to.
    pub fn is_enough(&self) -> bool {
        let enough = enough(self.paces.len(), machine::cpus());
        let long = self
            .windows
            .values()
            .map(|w| (Duration::from_nanos(w.cpu_ns()), w))
            .filter(|(cpu, w)| *cpu >= LONGEST || *cpu >= enough && w.has_clock());
        2 * long.count() > self.paces.len()
    }

    /// How much CPU time all threads together were measured for.
    pub fn cpu(&self) -> Duration {
        self.windows
            .values()
            .map(|w| Duration::from_nanos(w.cpu_ns()))
            .sum()
    }

    /// Whether all threads were measured for `length` of their CPU time.
    pub fn has_run_for(&self, length: Duration) -> bool {
        let long = |w: &Window| Duration::from_nanos(w.cpu_ns()) >= length;
        self.windows.len() == self.paces.len() && self.windows.values().all(long)
    }

    /// The values that were read so far.
    pub const fn windows(&self) -> &Windows {
        &self.windows
    }

    /// The values that were read.
    pub fn end(self) -> Windows {
        self.windows
    }
}

/// The gain of `thread` from a window `beside` its rivals to one in which it ran `alone`.
pub fn gain_alone(thread: ThreadId, beside: &Windows, alone: &Windows) -> Alone {
    match beside.get(&thread).zip(alone.get(&thread)) {
        Some((beside, alone)) => progress::gain_alone(beside, alone),
        None => Alone::NoClock,
    }
}

/// The gain of each thread from `before` to `after`.
pub fn gains(before: &Windows, after: &Windows) -> Vec<(ThreadId, Gain)> {
    let all = before.iter();
    all.filter_map(|(&thread, window)| {
        let gain = progress::gain(window, after.get(&thread)?)?;
        Some((thread, gain))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_take_turns_are_each_measured_for_less() {
        for (threads, cpus) in [(1, 2), (2, 2), (16, 16), (0, 0)] {
            assert_eq!(enough(threads, cpus), ENOUGH, "{threads} on {cpus}");
        }
        assert_eq!(enough(4, 2), ENOUGH / 2);
        assert_eq!(enough(3, 2), ENOUGH / 2);
        assert_eq!(enough(16, 1), FEWEST, "a rate needs some values");
    }
}
