//! Which pages this worker's thread writes: all of the program's sharable memory but the
//! thread's own stack is write-protected in the worker's page table, so that the first
//! write to each page faults (SHERIFF, section 4.1). A page with one writer is made
//! writable; one that several threads write becomes private, with a twin.
//!
//! Contexts: [`add`] and [`begin`] in the worker before it computes; [`on_write`] and
//! [`on_tick`] in its signal handler, where no code of the C library may be executed.

use crate::{control, private, system};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use sunder_wire::isolation::{Control, PAGES, Registers, Slot};
use sunder_wire::tracking::{MOMENT_WORDS, Writers, mode, page};

const PAGE: usize = 4096;
/// Ranges that are watched; what is beyond is shared.
const RANGES: usize = 256;
/// First writes that are caught in one period: some 3 ms of an interval of 10.
const MOST_FAULTS: usize = 1024;
/// Of the mapping that the stack pointer lies in, what is taken for the thread's stack.
const BELOW: usize = 1 << 20;
/// See [`BELOW`]: the C library's threads have 8 MiB, and their thread-local data above.
const ABOVE: usize = 8 << 20;

/// Of the time that a thread spent at home, a moment stands for so many intervals at most.
const MOST_INTERVALS: u64 = 5;

static STARTS: [AtomicUsize; RANGES] = [const { AtomicUsize::new(0) }; RANGES];
static ENDS: [AtomicUsize; RANGES] = [const { AtomicUsize::new(0) }; RANGES];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Whether writers are looked for in this period.
static LOOKING: AtomicBool = AtomicBool::new(false);
/// First writes that were caught in this period.
static FAULTS: AtomicUsize = AtomicUsize::new(0);
/// What was decided when pages were last protected.
static DECIDED: AtomicU32 = AtomicU32::new(0);
/// CPU time of this process at the last tick, in ns.
static SPENT: AtomicU64 = AtomicU64::new(0);

/// Whether there is anything to do here.
pub fn is_on(control: &Control) -> bool {
    control.tracking.mode.load(Relaxed) != mode::OFF
}

/// Adds sharable memory that the program may write. `stack` is the thread's stack pointer.
pub fn add(start: usize, end: usize, stack: usize) {
    if (start..end).contains(&stack) {
        let low = (stack.saturating_sub(BELOW) & !(PAGE - 1)).max(start);
        let high = (stack.saturating_add(ABOVE) & !(PAGE - 1)).min(end);
        put(start, low);
        put(high, end);
    } else {
        put(start, end);
    }
}

fn put(start: usize, end: usize) {
    let count = COUNT.load(Relaxed);
    if start < end
        && let (Some(from), Some(to)) = (STARTS.get(count), ENDS.get(count))
    {
        from.store(start, Relaxed);
        to.store(end, Relaxed);
        COUNT.store(count + 1, Relaxed);
    }
}

fn ranges() -> impl Iterator<Item = (usize, usize)> {
    STARTS
        .iter()
        .zip(&ENDS)
        .take(COUNT.load(Relaxed))
        .map(|(start, end)| (start.load(Relaxed), end.load(Relaxed)))
}

fn is_watched(address: usize) -> bool {
    ranges().any(|(start, end)| (start..end).contains(&address))
}

/// The first period of an episode, of which the thread begins with `registers`.
pub fn begin(control: &Control, slot: &Slot, registers: &Registers) -> bool {
    if slot.episodes.load(Relaxed) == 0 {
        // Another thread had the slot before.
        slot.periods.store(0, Relaxed);
        slot.told.store(0, Relaxed);
        slot.left.store(0, Relaxed);
    }
    SPENT.store(worker_time(), Relaxed);
    if is_told(control) {
        // It was stopped at a moment of the tool's choice. What it spent at home belongs
        // to code of all kinds: never more of it than of some intervals.
        let spent = slot.spent.load(Relaxed);
        let home = spent.saturating_sub(slot.told.swap(spent, Relaxed));
        let most = u64::from(control.tick.load(Relaxed)) * 1000 * MOST_INTERVALS;
        let period = (home + slot.left.swap(0, Relaxed)).min(most);
        let [rip, _, _, rsp, _] = &registers.frame;
        let [
            r15,
            r14,
            r13,
            r12,
            rbp,
            rbx,
            r11,
            r10,
            r9,
            r8,
            rax,
            rcx,
            rdx,
            rsi,
            rdi,
        ] = &registers.general;
        let values = [
            rip, rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15,
        ]
        .map(|r| r.load(Relaxed));
        tell_moment(control, slot, &values, period);
    }
    period(control, slot)
}

fn is_told(control: &Control) -> bool {
    control.tracking.mode.load(Relaxed) == mode::DETECT
}

fn worker_time() -> u64 {
    system::worker_clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// The episode ends: what was spent since the last tick is told with the next moment.
pub fn end(control: &Control, slot: &Slot) {
    if is_told(control) {
        let since = worker_time().saturating_sub(SPENT.load(Relaxed));
        slot.left.fetch_add(since, Relaxed);
    }
}

/// A period begins. False if the kernel refused.
fn period(control: &Control, slot: &Slot) -> bool {
    let tracking = &control.tracking;
    tracking.periods.fetch_add(1, Relaxed);
    let number = slot.periods.fetch_add(1, Relaxed);
    let cycle = u64::from(tracking.cycle.load(Relaxed)).max(1);
    let looking = number % cycle < u64::from(tracking.sampled.load(Relaxed));
    let before = LOOKING.swap(looking, Relaxed);
    FAULTS.store(0, Relaxed);
    if looking {
        DECIDED.store(tracking.decided.load(Relaxed), Relaxed);
        // Not those that are private already: commits write them.
        ranges().all(|(start, end)| protect(start, end, libc::PROT_READ))
            && private::addresses()
                .filter(|at| is_watched(*at))
                .all(|at| protect(at, at + PAGE, libc::PROT_READ | libc::PROT_WRITE))
    } else if before {
        open_all(control)
    } else {
        protect_new(control)
    }
}

/// Nobody's writes are caught any more but those to private pages that this worker does
/// not have yet.
fn open_all(control: &Control) -> bool {
    LOOKING.store(false, Relaxed);
    DECIDED.store(u32::MAX, Relaxed);
    ranges().all(|(start, end)| protect(start, end, libc::PROT_READ | libc::PROT_WRITE))
        && protect_new(control)
}

/// Protects pages that have become private, if there may be new ones.
fn protect_new(control: &Control) -> bool {
    let tracking = &control.tracking;
    let now = tracking.decided.load(Relaxed);
    if DECIDED.swap(now, Relaxed) == now {
        return true;
    }
    tracking.shared_pages().all(|(_, shared)| {
        let at = shared.address.load(Relaxed) as usize;
        let wanted = shared.state.load(Relaxed) == page::PRIVATE;
        !wanted
            || !is_watched(at)
            || private::is_taken(at)
            || protect(at, at + PAGE, libc::PROT_READ)
    })
}

fn protect(start: usize, end: usize, protection: i32) -> bool {
    let arguments = [start, end - start, protection as usize, 0, 0, 0];
    // SAFETY: memory of the program, whose contents stay; a fault is ours to handle.
    unsafe { system::worker_call(libc::SYS_mprotect, arguments) == 0 }
}

/// A write faulted, by `instruction`; whether the worker may go on with it.
pub fn on_write(control: &Control, slot: &Slot, address: usize, instruction: usize) -> bool {
    let at = address & !(PAGE - 1);
    if !is_on(control) || !is_watched(at) {
        return false;
    }
    let tracking = &control.tracking;
    tracking.faults.fetch_add(1, Relaxed);
    let open = || protect(at, at + PAGE, libc::PROT_READ | libc::PROT_WRITE);
    if private::is_taken(at) {
        return open();
    }
    let place = control::place(control, slot) as u32;
    let thread = slot.thread.load(Relaxed);
    let lives = |place: u32, thread: u32| {
        let slot = control.slots.get(place as usize);
        slot.is_some_and(|s| s.thread.load(Relaxed) == thread)
    };
    // Writable first: what keeps the shared page elsewhere inherits that.
    if !open() {
        return false;
    }
    if let Writers::Several(place) = tracking.written(at as u64, place, thread, lives)
        && let Some(shared) = tracking.shared.get(place)
        && shared.state.load(Relaxed) == page::PRIVATE
        // Or it stays shared, in this episode.
        && private::take(PAGES + place, at)
    {
        private::hit(at, address, instruction);
    }
    if LOOKING.load(Relaxed) && FAULTS.fetch_add(1, Relaxed) >= MOST_FAULTS {
        return open_all(control);
    }
    true
}

/// A commit was made: a period ends and another begins. Tells where the thread was.
pub fn on_tick(control: &Control, slot: &Slot, registers: &[libc::greg_t; 23]) -> bool {
    if !is_on(control) {
        return true;
    }
    if is_told(control) {
        let now = worker_time();
        let period = now.saturating_sub(SPENT.swap(now, Relaxed));
        let register = |i: i32| registers.get(i as usize).map_or(0, |r| *r as u64);
        let values = [
            register(libc::REG_RIP),
            register(libc::REG_RAX),
            register(libc::REG_RCX),
            register(libc::REG_RDX),
            register(libc::REG_RBX),
            register(libc::REG_RSP),
            register(libc::REG_RBP),
            register(libc::REG_RSI),
            register(libc::REG_RDI),
            register(libc::REG_R8),
            register(libc::REG_R9),
            register(libc::REG_R10),
            register(libc::REG_R11),
            register(libc::REG_R12),
            register(libc::REG_R13),
            register(libc::REG_R14),
            register(libc::REG_R15),
        ];
        tell_moment(control, slot, &values, period);
    }
    period(control, slot)
}

/// Tells where the thread is: `ip` and the general registers in the order of their
/// numbers. `period` is the CPU time since the last moment.
fn tell_moment(control: &Control, slot: &Slot, at: &[u64; 17], period: u64) {
    let mut cpu = 0u32;
    // SAFETY: a valid place for the answer.
    unsafe { system::worker_call(libc::SYS_getcpu, [&raw mut cpu as usize, 0, 0, 0, 0, 0]) };
    let thread = u64::from(slot.thread.load(Relaxed)) | u64::from(cpu) << 32;
    let time = system::worker_clock(libc::CLOCK_MONOTONIC);
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q] = *at;
    let record: [u64; MOMENT_WORDS] = [
        time, thread, period, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q,
    ];
    if !control.tracking.moments().push(&record) {
        control.tracking.lost.fetch_add(1, Relaxed);
    }
}
