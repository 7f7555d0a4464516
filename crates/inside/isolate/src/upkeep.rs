//! Measures what isolation takes from a thread ([`sunder_wire::isolation::Upkeep`]): the CPU time in which
//! neither the thread nor its worker computes for the program. What is done about it is decided outside.
//!
//! - Until a worker computes, all of its time counts.
//! - Afterwards the time in its signal handler does, and a fixed time for each signal and page fault, since
//!   the kernel does not tell how long it takes for these.
//! - So does what the worker needs to end, and what the parked thread needs to make and look after it.
//!
//! Contexts: [`began`] in a worker before it computes; [`Handler`] and [`told`] in its signal handler, where
//! no code of the C library may be executed; [`came_home`], [`leaves`] and [`ended`] in a thread with all
//! signals blocked.

use crate::from_worker;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use sunder_guest::system;
use sunder_wire::isolation::Slot;

/// What the kernel needs to deliver a signal and to return from its handler, in ns.
const SIGNAL: u64 = 1_500;
/// What the kernel needs for a page fault: a worker begins with none of its shared pages in its page
/// table. In ns, and what virtual machines need (a machine's own kernel: half).
const FAULT: u64 = 700;

/// CPU time that isolation took in this worker and that was not told yet. In the worker's own memory, as
/// are the others.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// The part of it that private pages took.
static PAGES: AtomicU64 = AtomicU64::new(0);
/// The page faults that were told.
static FAULTS: AtomicU64 = AtomicU64::new(0);

/// CPU time of this worker.
pub fn worker_time() -> u64 {
    from_worker::clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn page_faults() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    let at = usage.as_mut_ptr();
    let arguments = [libc::RUSAGE_SELF as usize, at as usize, 0, 0, 0, 0];
    // SAFETY: the kernel fills the local, unless it refuses.
    unsafe {
        match from_worker::call(libc::SYS_getrusage, arguments) {
            0 => (&raw const (*at).ru_minflt).read() as u64,
            _ => 0,
        }
    }
}

/// The worker is about to compute.
pub fn began(slot: &Slot) {
    FAULTS.store(page_faults(), Relaxed);
    let now = worker_time();
    TAKEN.store(now, Relaxed);
    tell(slot, now);
}

/// The worker is in its signal handler from here until this is dropped.
pub struct Handler {
    since: u64,
}

impl Handler {
    /// The handler begins.
    pub fn enter() -> Self {
        Self {
            since: worker_time(),
        }
    }

    /// The handler's time so far is told, with all that was not told before.
    pub fn tell(&mut self, slot: &Slot) {
        let faults = page_faults();
        let new = faults.saturating_sub(FAULTS.swap(faults, Relaxed));
        let now = worker_time();
        let taken = now.saturating_sub(self.since) + new * FAULT;
        TAKEN.fetch_add(taken, Relaxed);
        self.since = now;
        tell(slot, now);
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        TAKEN.fetch_add(worker_time().saturating_sub(self.since) + SIGNAL, Relaxed);
    }
}

/// Private pages are worked on since this moment of the worker's CPU time.
pub fn worked_on_pages(since: u64) {
    PAGES.fetch_add(worker_time().saturating_sub(since), Relaxed);
}

fn tell(slot: &Slot, now: u64) {
    let new = now.saturating_sub(slot.metered.swap(now, Relaxed));
    let taken = TAKEN.swap(0, Relaxed).min(new);
    slot.upkeep.all.fetch_add(new, Relaxed);
    slot.upkeep.taken.fetch_add(taken, Relaxed);
    let pages = PAGES.swap(0, Relaxed).min(taken);
    slot.upkeep.pages.fetch_add(pages, Relaxed);
}

fn thread_time() -> u64 {
    system::clock_by_call(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The thread begins an episode. Returns its CPU time.
pub fn leaves(slot: &Slot) -> u64 {
    let now = thread_time();
    let before = slot.native_since.load(Relaxed);
    if before != 0 {
        let native = now.saturating_sub(before);
        slot.upkeep.all.fetch_add(native, Relaxed);
    }
    slot.metered.store(0, Relaxed);
    now
}

/// The thread's episode is over; `since` is what [`leaves`] returned.
pub fn came_home(slot: &Slot, since: u64) {
    let now = thread_time();
    let parked = now.saturating_sub(since);
    slot.upkeep.all.fetch_add(parked, Relaxed);
    slot.upkeep.taken.fetch_add(parked, Relaxed);
    slot.native_since.store(now, Relaxed);
}

/// The thread's worker has ended, with this CPU time.
pub fn ended(slot: &Slot, all: u64) {
    let rest = all.saturating_sub(slot.metered.swap(0, Relaxed));
    slot.upkeep.all.fetch_add(rest, Relaxed);
    slot.upkeep.taken.fetch_add(rest, Relaxed);
}
