//! Measures how fast threads get on, before bytes are moved and after: reads values
//! that may be clocks of progress ([`sunder_plan::progress`]) from their registers,
//! their stacks and the groups. Called by the pipeline at each step; only reads.

use super::code::TargetCode;
use std::collections::BTreeMap;
use std::time::Duration;
use sunder_access::{ProcessId, ThreadId};
use sunder_observe::Pace;
use sunder_plan::progress::{self, Gain, ValuePlace, Window};

/// One sample of registers in so much of a thread's CPU time.
const EVERY: Duration = Duration::from_millis(1);
/// Below the stack pointer lie up to so many bytes of a function's own.
const RED_ZONE: u64 = 128;
/// So many above it are read.
const FRAMES: u64 = 512;
/// Bytes of a group that are read.
const OF_GROUP: u64 = 128;
/// Threads that are measured; more say the same.
const MOST: usize = 16;
/// So much of its own CPU time a thread is measured for.
const ENOUGH: Duration = Duration::from_millis(20);
/// The same where no clock is found.
const LONGEST: Duration = Duration::from_millis(60);

/// Where a thread's bytes are now.
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// Whose.
    pub thread: ThreadId,
    /// The address that they have for the program.
    pub original: u64,
    /// Where they are.
    pub at: u64,
    /// How many; 0 if only the thread is of interest.
    pub len: u64,
}

/// What was read in one window, by thread.
pub type Windows = BTreeMap<ThreadId, Window>;

/// Threads under measurement.
pub struct Gauge {
    code: TargetCode,
    paces: Vec<Pace>,
    /// The stack pointers that were seen last.
    stacks: BTreeMap<ThreadId, u64>,
    windows: Windows,
}

impl Gauge {
    /// Begins a window; none if the kernel lets us measure no thread.
    pub fn begin(process: ProcessId, threads: &[ThreadId]) -> Option<Self> {
        let paces: Vec<Pace> = threads
            .iter()
            .take(MOST)
            .filter_map(|&thread| Pace::begin(process, thread, EVERY).ok())
            .collect();
        (!paces.is_empty()).then(|| Self {
            code: TargetCode::new(process),
            paces,
            stacks: BTreeMap::new(),
            windows: Windows::new(),
        })
    }

    /// Takes in what can be read now, of `moved` too.
    pub fn read(&mut self, moved: &[Bytes]) {
        for pace in &mut self.paces {
            let thread = pace.thread();
            let window = self.windows.entry(thread).or_default();
            for sample in pace.take() {
                self.stacks.insert(thread, sample.registers.general[4]);
                window.registers(sample.cpu_ns, sample.registers.general);
            }
            let mut take = |at: u64, len: u64, place: ValuePlace| {
                let before = pace.cpu_ns();
                let bytes = self.code.read(at, len as usize);
                if let (Some(before), Some(bytes), Some(after)) = (before, bytes, pace.cpu_ns()) {
                    window.bytes(place, u64::midpoint(before, after), bytes);
                }
            };
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
        }
    }

    /// Whether most threads have been measured for long enough: until there is a clock
    /// of their progress, or none is likely to come.
    pub fn is_enough(&self) -> bool {
        let long = self
            .windows
            .values()
            .map(|w| (Duration::from_nanos(w.cpu_ns()), w))
            .filter(|(cpu, w)| *cpu >= LONGEST || *cpu >= ENOUGH && w.has_clock());
        2 * long.count() > self.paces.len()
    }

    /// What was read.
    pub fn end(self) -> Windows {
        self.windows
    }
}

/// How threads got on in `after` and in `before`.
pub fn gains(before: &Windows, after: &Windows) -> Vec<(ThreadId, Gain)> {
    let all = before.iter();
    all.filter_map(|(&thread, window)| {
        let gain = progress::gain(window, after.get(&thread)?)?;
        Some((thread, gain))
    })
    .collect()
}
