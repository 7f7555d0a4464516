//! Sets watchpoints in the threads of another process and removes them.
//!
//! Every thread gets the same words, a ring of its own (the kernel does not send one thread's
//! records to another thread's ring), and a limit on hits. The kernel enforces the limit, so a
//! thread stops trapping even if this process does not run. Dropping [`Armed`] closes everything.

use super::error::WatchError;
use crate::PerfRefusal;
use crate::perf_event::{
    Attr, EventTarget, PAGE, PerfEvent, Ring, Sample, SampleLayout, USER_REGISTERS, kernel,
};
use std::io;
use sunder_access::{Address, ProcessId, ThreadId};

/// The fields of a hit.
const LAYOUT: SampleLayout = SampleLayout {
    sample_type: (kernel::PERF_SAMPLE_IP
        | kernel::PERF_SAMPLE_TID
        | kernel::PERF_SAMPLE_TIME
        | kernel::PERF_SAMPLE_ADDR
        | kernel::PERF_SAMPLE_REGS_USER) as u64,
    read_format: 0,
    branch_sample_type: 0,
    user_registers: USER_REGISTERS,
};

/// Bytes of one hit in a ring: header, four fields, the ABI and 17 registers.
const RECORD: usize = 8 + 4 * 8 + 8 + 17 * 8;

/// What a breakpoint stops at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Accesses to the word of 8 bytes at its address.
    Access,
    /// The instruction at its address.
    Execution,
}

impl Stop {
    fn attribute(self, address: Address) -> Attr {
        match self {
            Self::Access => Attr::breakpoint(address.0),
            Self::Execution => Attr::execution(address.0),
        }
    }
}

/// The watchpoints of one thread.
struct Thread {
    id: ThreadId,
    /// By word.
    events: Vec<PerfEvent>,
    ring: Ring,
    /// The hits read from the ring, in the order of time.
    hits: Vec<Sample>,
    /// Hits of each word.
    counts: Vec<u32>,
}

/// Watchpoints on the same words in several threads.
pub(super) struct Armed {
    threads: Vec<Thread>,
    stop: Stop,
    /// The watched words or instructions: as many of those given as there were slots for.
    words: Vec<Address>,
    /// After this many hits, the kernel disables a watchpoint.
    limit: u32,
    /// Threads that are not watched: they ended, or descriptors or slots ran out after other
    /// threads had got theirs.
    skipped: u32,
}

/// Why a thread could not be watched.
enum Failure {
    /// It has ended.
    Gone,
    /// Another process uses the slots.
    NoSlot,
    /// The kernel refuses the event.
    Refused(io::Error),
    /// Its ring could not be mapped.
    NoRing(PerfRefusal),
}

impl Armed {
    /// Sets watchpoints on `words` (at most the number of slots; instructions, if `stop` is
    /// [`Stop::Execution`]) in `threads`, disabled, each for `limit` hits.
    ///
    /// # Errors
    /// If no thread can be watched.
    pub(super) fn set(
        process: ProcessId,
        threads: &[ThreadId],
        stop: Stop,
        words: &[Address],
        limit: u32,
    ) -> Result<Self, WatchError> {
        let mut armed = Self {
            stop,
            threads: Vec::new(),
            words: words.to_vec(),
            limit,
            skipped: 0,
        };
        let mut failed = None;
        for &thread in threads {
            match armed.arm(thread) {
                Ok(thread) => armed.threads.push(thread),
                Err(why) => {
                    armed.skipped += 1;
                    failed.get_or_insert((thread, why));
                }
            }
        }
        match failed {
            Some((thread, why)) if armed.threads.is_empty() => Err(why.explain(process, thread)),
            _ if armed.threads.is_empty() => Err(WatchError::NoThreads(process)),
            _ => Ok(armed),
        }
    }

    fn arm(&mut self, thread: ThreadId) -> Result<Thread, Failure> {
        let mut events: Vec<PerfEvent> = Vec::with_capacity(self.words.len());
        for word in &self.words {
            let mut attr = self.stop.attribute(*word);
            attr.sample_type = LAYOUT.sample_type;
            attr.sample_regs_user = LAYOUT.user_registers;
            match PerfEvent::open(&attr, EventTarget::Thread(thread.0)) {
                Ok(event) => events.push(event),
                Err(error) => match Failure::of(error) {
                    // A debugger uses some: watch fewer words, but the same ones in all threads.
                    Failure::NoSlot if self.threads.is_empty() && !events.is_empty() => break,
                    failure => return Err(failure),
                },
            }
        }
        self.words.truncate(events.len());
        let ring = self.map_ring(&events[0])?;
        for event in &events[1..] {
            event.set_output(&events[0]).map_err(Failure::Refused)?;
        }
        Ok(Thread {
            id: thread,
            events,
            ring,
            hits: Vec::new(),
            counts: vec![0; self.words.len()],
        })
    }

    /// Maps a ring that holds all hits that the limit allows. If locked memory is short, the limit
    /// is lowered instead of losing hits; the first thread decides it for all.
    fn map_ring(&mut self, event: &PerfEvent) -> Result<Ring, Failure> {
        let hits = self.words.len() * self.limit as usize;
        let mut pages = (hits * RECORD).div_ceil(PAGE).next_power_of_two();
        loop {
            match Ring::map(event, pages) {
                Ok(ring) => return Ok(ring),
                Err(libc::EPERM | libc::ENOMEM) if pages > 1 && self.threads.is_empty() => {
                    pages /= 2;
                    let room = pages * PAGE / RECORD / self.words.len();
                    self.limit = self.limit.min(room as u32);
                }
                Err(errno) => return Err(Failure::NoRing(PerfRefusal::from_map_errno(errno))),
            }
        }
    }

    /// The watched words.
    pub(super) fn words(&self) -> &[Address] {
        &self.words
    }

    /// The number of watchpoints, over all threads.
    pub(super) fn watchpoints(&self) -> u32 {
        (self.threads.len() * self.words.len()) as u32
    }

    pub(super) fn skipped(&self) -> u32 {
        self.skipped
    }

    pub(super) fn threads(&self) -> u32 {
        self.threads.len() as u32
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Enables the watchpoints. A thread that has ended meanwhile is skipped.
    pub(super) fn enable(&self) {
        // Word by word, so that the threads' watched times differ little.
        for word in 0..self.words.len() {
            for thread in &self.threads {
                let _ = thread.events[word].refresh(self.limit);
            }
        }
    }

    pub(super) fn disable(&self) {
        for event in self.threads.iter().flat_map(|thread| &thread.events) {
            let _ = event.disable();
        }
    }

    /// Reads the rings.
    pub(super) fn collect(&mut self) {
        let mut records = Vec::new();
        for thread in &mut self.threads {
            records.clear();
            thread.ring.take(&mut records);
            for hit in LAYOUT.samples(&records) {
                if let Some(word) = self.words.iter().position(|w| hit.address == Some(w.0)) {
                    thread.counts[word] += 1;
                }
                thread.hits.push(hit);
            }
        }
    }

    /// Whether every thread has used up the hits of one of its watchpoints: from then on, no order
    /// of accesses is complete.
    pub(super) fn is_used_up(&self) -> bool {
        let used_up = |thread: &Thread| thread.counts.iter().any(|&count| count >= self.limit);
        self.threads.iter().all(used_up)
    }

    /// The number of hits so far.
    pub(super) fn hit_count(&self) -> u64 {
        self.threads
            .iter()
            .map(|thread| thread.hits.len() as u64)
            .sum()
    }

    /// All hits by thread, each in the order in which they happened.
    pub(super) fn hits(&self) -> impl Iterator<Item = (ThreadId, &[Sample])> {
        self.threads
            .iter()
            .map(|thread| (thread.id, thread.hits.as_slice()))
    }
}

impl Failure {
    fn of(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH) => Self::Gone,
            // ENOSPC from the kernel's slot accounting; EBUSY where ptrace or kgdb uses the slots.
            Some(libc::ENOSPC | libc::EBUSY) => Self::NoSlot,
            _ => Self::Refused(error),
        }
    }

    fn explain(self, process: ProcessId, thread: ThreadId) -> WatchError {
        match self {
            Self::Gone => WatchError::NoThreads(process),
            Self::NoSlot => WatchError::SlotsTaken(thread),
            Self::Refused(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                PerfRefusal::from_errno(errno, process).into()
            }
            Self::NoRing(refusal) => refusal.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    static LINE: [u64; 8] = [0; 8];

    fn words(range: std::ops::Range<usize>) -> Vec<Address> {
        range
            .map(|word| Address(&raw const LINE[word] as u64))
            .collect()
    }

    fn own_thread() -> [ThreadId; 1] {
        [crate::own_thread()]
    }

    /// Arms the calling thread, unless this machine has no watchpoints.
    fn armed(words: &[Address]) -> Option<Armed> {
        let process = ProcessId(std::process::id());
        match Armed::set(process, &own_thread(), Stop::Access, words, 10) {
            Ok(armed) => Some(armed),
            Err(error) => {
                println!("SKIP: {error}");
                None
            }
        }
    }

    #[test]
    fn taken_slots_leave_fewer_words_or_an_error_that_names_them() {
        let process = ProcessId(std::process::id());
        let Some(first) = armed(&words(0..3)) else {
            return;
        };
        assert_eq!(first.words(), words(0..3));
        // One slot is left, so only the first of two words is watched.
        let second = Armed::set(process, &own_thread(), Stop::Access, &words(4..6), 10).ok();
        assert_eq!(second.as_ref().map(|armed| armed.words().len()), Some(1));
        let third = Armed::set(process, &own_thread(), Stop::Access, &words(6..8), 10).err();
        assert!(
            matches!(third, Some(WatchError::SlotsTaken(_))),
            "{third:?}"
        );
        // Dropping frees the slots, unless another test has just forked a child: until that
        // executes its program, it has a copy of all descriptors, and so of the slots.
        drop((first, second));
        let deadline = Instant::now() + Duration::from_secs(20);
        let again = loop {
            let again = Armed::set(process, &own_thread(), Stop::Access, &words(0..4), 10).ok();
            let count = again.map(|armed| armed.watchpoints());
            if count == Some(4) || Instant::now() > deadline {
                break count;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(again, Some(4));
    }

    #[test]
    fn the_kernel_stops_a_watchpoint_after_its_hits() {
        let Some(mut armed) = armed(&words(0..1)) else {
            return;
        };
        armed.enable();
        for _ in 0..100 {
            // SAFETY: reads a word that is alive for ever.
            unsafe { (&raw const LINE[0]).read_volatile() };
        }
        armed.disable();
        armed.collect();
        assert!(armed.is_used_up());
        // Ten, and perhaps hits that happened until the watchpoint was disabled.
        assert!(
            (10..100).contains(&armed.hit_count()),
            "{}",
            armed.hit_count()
        );
    }
}
