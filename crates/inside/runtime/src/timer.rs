//! Samples of a thread's registers, taken by a timer on its CPU time (design
//! 4.1, for where perf events are refused). Contexts: normal; [`sample`] runs
//! in a signal handler.
//!
//! The timers use a real-time signal that the program does not. If the program starts to use that
//! signal after all, the timers are deleted and the signal is left to it: when it sets an action, or
//! when the signal comes from anywhere but our timers. Such a signal is sent again, so that it does
//! what it would do without us.

use crate::local::{BLOCKS, local};
use crate::state::CONFINEMENT;
use crate::{real, state};
use core::ffi::{c_int, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicI32, Ordering};
use sunder_guest::system;
use sunder_wire::layout::{ThreadRecord, View};

/// Notify one thread (`SIGEV_THREAD_ID`).
const NOTIFY_THREAD: c_int = 4;
/// The origin of a timer's signal (`SI_TIMER`).
const FROM_TIMER: c_int = -2;

/// The timers' signal; 0 for none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// `struct sigevent` as the kernel has it.
#[repr(C)]
struct Notification {
    value: u64,
    signal: c_int,
    notify: c_int,
    thread: c_int,
    rest: [c_int; 11],
}

/// The timers' signal, if there is one.
pub fn signal() -> Option<c_int> {
    Some(SIGNAL.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
}

/// The timers' signal, also after it was left to the program; 0 for none.
static EVER: AtomicI32 = AtomicI32::new(0);

/// The timers' signal if it was left to the program.
pub fn given_up() -> Option<c_int> {
    let ever = EVER.load(Ordering::Acquire);
    (ever != 0 && signal().is_none()).then_some(ever)
}

/// The value that our timers send.
fn mark() -> u64 {
    (&raw const SIGNAL) as u64
}

/// Whether a signal is from one of our timers. The program may have timers of its own.
pub fn is_from_timer(info: &libc::siginfo_t) -> bool {
    // SAFETY: signals of timers have a value.
    info.si_code == FROM_TIMER && unsafe { info.si_value().sival_ptr } as u64 == mark()
}

/// Whether `other` is the timers' signal.
pub fn is_ours(other: c_int) -> bool {
    signal() == Some(other)
}

/// Chooses the signal and installs the handler, if samples are wanted.
pub fn prepare(view: View) {
    if view.control().timer_hz.load(Ordering::Relaxed) == 0 {
        return;
    }
    // Debuggers often use the last real-time signal.
    for signal in (libc::SIGRTMIN() + 8..libc::SIGRTMAX()).rev() {
        if install(signal) {
            EVER.store(signal, Ordering::Release);
            SIGNAL.store(signal, Ordering::Release);
            let taken = &view.status().timer_signal;
            taken.store(signal as u32, Ordering::Relaxed);
            return;
        }
    }
}

/// In a forked child: signal and handler are inherited, and its threads get timers of their own.
pub fn again(view: View) {
    if let Some(signal) = signal() {
        let taken = &view.status().timer_signal;
        taken.store(signal as u32, Ordering::Relaxed);
    }
}

/// Installs the handler if the signal is at its default.
fn install(signal: c_int) -> bool {
    let Some(sigaction) = real::sigaction() else {
        return false;
    };
    // SAFETY: plain data, and calls as the manual describes them. All signals are blocked while the
    // handler runs, so that no other handler runs between claiming an entry of the ring and filling
    // it.
    unsafe {
        let mut old: libc::sigaction = core::mem::zeroed();
        if sigaction(signal, null(), &raw mut old) != 0 || old.sa_sigaction != libc::SIG_DFL {
            return false;
        }
        let mut new: libc::sigaction = core::mem::zeroed();
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = sample;
        new.sa_sigaction = handler as usize;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigfillset(&raw mut new.sa_mask);
        sigaction(signal, &raw const new, null_mut()) == 0
    }
}

/// Gives the calling thread its timer, if samples are wanted.
pub fn arm(view: View, record: Option<&ThreadRecord>, armed_hz: &mut u32) {
    let signal = SIGNAL.load(Ordering::Acquire);
    let hz = view.control().timer_hz.load(Ordering::Relaxed);
    if signal == 0 || hz == 0 {
        return;
    }
    let refused = &view.status().timers_refused;
    let Some(record) = record else {
        refused.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let event = Notification {
        value: mark(),
        signal,
        notify: NOTIFY_THREAD,
        thread: system::thread_id() as c_int,
        rest: [0; 11],
    };
    let mut id: c_int = 0;
    // SAFETY: both pointers are to locals of the kernel's types.
    let made = unsafe {
        system::call(
            libc::SYS_timer_create,
            [
                libc::CLOCK_THREAD_CPUTIME_ID as usize,
                &raw const event as usize,
                &raw mut id as usize,
                0,
                0,
                0,
            ],
        )
    };
    if made != 0 {
        refused.fetch_add(1, Ordering::Relaxed);
        return;
    }
    record.timer.store(id as u32 + 1, Ordering::Release);
    set(id, hz);
    *armed_hz = hz;
}

/// Sets timer `id` to `hz`; 0 stops it. Async-signal-safe.
fn set(id: c_int, hz: u32) {
    let every = 1_000_000_000u64.checked_div(u64::from(hz)).unwrap_or(0);
    let every = [every / 1_000_000_000, every % 1_000_000_000];
    let times = [every, every];
    // SAFETY: two pairs of seconds and nanoseconds: `struct itimerspec`.
    unsafe {
        system::call(
            libc::SYS_timer_settime,
            [id as usize, 0, &raw const times as usize, 0, 0, 0],
        )
    };
}

/// Deletes a thread's timer, from any thread.
pub fn disarm(record: &ThreadRecord) {
    if let Some(id) = record.timer.swap(0, Ordering::AcqRel).checked_sub(1) {
        // SAFETY: the call takes the number of a timer that `arm` made.
        unsafe { system::call(libc::SYS_timer_delete, [id as usize, 0, 0, 0, 0, 0]) };
    }
}

/// The program wants the timers' signal: from here on it belongs to the program.
pub fn yield_signal() {
    if SIGNAL.swap(0, Ordering::AcqRel) == 0 {
        return;
    }
    if let Some(view) = state::segment() {
        view.status().signal_taken.store(1, Ordering::Relaxed);
        for record in view.threads() {
            disarm(record);
        }
    }
}

/// Ends sampling for good, so that no sample comes any more.
pub fn end() {
    let signal = SIGNAL.load(Ordering::Acquire);
    yield_signal();
    if signal == 0 {
        return;
    }
    // To ignore a signal drops those that have been sent and did not arrive yet.
    if let Some(action) = system::action(signal as usize) {
        let ignored = system::Action {
            handler: libc::SIG_IGN,
            ..system::Action::default()
        };
        // SAFETY: the second call restores the action, whose handler is ours or the program's.
        unsafe {
            system::set_action(signal as usize, &ignored);
            system::set_action(signal as usize, &action);
        }
    }
}

/// The handler. Context: signal. Async-signal-safe: reads clocks, stores into
/// the segment, sets its own timer.
extern "C" fn sample(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the C library returns the valid address of this thread's `errno`.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel passes both to a handler with SA_SIGINFO.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        if !is_from_timer(&*info) {
            pass_on(signal, &*info, context);
        } else if let (Some(view), Some(_calls)) = (state::segment(), CONFINEMENT.begin()) {
            take(view, context);
        }
    }
    // SAFETY: the C library returns the valid address of this thread's `errno`.
    unsafe { *libc::__errno_location() = errno };
}

/// A signal that the program, or another one, has sent. Without us this thread would not have got it
/// if it blocks the signal; else it would have done what it does by default. From the end of the
/// handler on it is so, and the signal is sent again.
///
/// # Safety
/// The kernel has passed these to the handler.
unsafe fn pass_on(signal: c_int, info: &libc::siginfo_t, context: &mut libc::ucontext_t) {
    /// The origin of a signal for one thread (`SI_TKILL`).
    const FOR_THREAD: c_int = -6;
    yield_signal();
    let mut blocks = false;
    let (process, thread) = (system::process_id(), system::thread_id());
    let info_at = core::ptr::from_ref(info) as usize;
    // SAFETY: the thread's own words; the set begins with the kernel's 64-bit mask; the kernel reads
    // the information, which it has written itself.
    unsafe {
        if (*local()).phase & BLOCKS != 0 {
            (*local()).phase &= !BLOCKS;
            blocks = true;
            let mask = (&raw mut context.uc_sigmask).cast::<u64>();
            mask.write_unaligned(mask.read_unaligned() | 1 << (signal - 1));
        } else if system::action(signal as usize)
            .is_some_and(|action| action.handler == sample as *const () as usize)
        {
            system::set_action(signal as usize, &system::Action::default());
        }
        let (process, thread, signal) = (process as usize, thread as usize, signal as usize);
        // A thread that does not block the signal might have been given it anyway. If it blocks it,
        // another thread may wait for it.
        if info.si_code == FOR_THREAD || !blocks {
            let arguments = [process, thread, signal, info_at, 0, 0];
            system::call(libc::SYS_rt_tgsigqueueinfo, arguments);
            return;
        }
        let arguments = [process, signal, info_at, 0, 0, 0];
        let sent = system::call(libc::SYS_rt_sigqueueinfo, arguments);
        if sent != 0 {
            // Only the first thread may say that another process has sent it.
            system::call(libc::SYS_kill, [process, signal, 0, 0, 0, 0]);
        }
    }
}

/// # Safety
/// Only called in the handler: uses the interrupted thread's own tables.
unsafe fn take(view: View, context: &libc::ucontext_t) {
    let now = system::clock(libc::CLOCK_THREAD_CPUTIME_ID);
    let hz = view.control().timer_hz.load(Ordering::Relaxed);
    let mut period = 1_000_000_000u64.checked_div(u64::from(hz)).unwrap_or(0);
    // SAFETY: the thread's own words and tables.
    let (thread, index) = unsafe { ((*local()).thread, (*local()).index) };
    // SAFETY: the tables are null or the calling thread's own.
    if let Some(thread) = unsafe { thread.as_mut() } {
        period = now.saturating_sub(thread.sampled);
        thread.sampled = now;
        if thread.timer_hz != hz {
            thread.timer_hz = hz;
            let record = view.threads().get(index as usize);
            let id = record.and_then(|r| r.timer.load(Ordering::Acquire).checked_sub(1));
            if let Some(id) = id {
                set(id as c_int, hz);
            }
        }
    }
    let mut cpu = 0u32;
    // SAFETY: the first pointer is that of a local; the others may be null.
    unsafe { system::call(libc::SYS_getcpu, [&raw mut cpu as usize, 0, 0, 0, 0, 0]) };
    let thread_and_cpu = u64::from(system::thread_id()) | u64::from(cpu) << 32;
    let g = &context.uc_mcontext.gregs;
    let r = |index: c_int| g.get(index as usize).map_or(0, |&value| value as u64);
    let record = [
        system::clock(libc::CLOCK_MONOTONIC),
        thread_and_cpu,
        period,
        r(libc::REG_RIP),
        r(libc::REG_RAX),
        r(libc::REG_RCX),
        r(libc::REG_RDX),
        r(libc::REG_RBX),
        r(libc::REG_RSP),
        r(libc::REG_RBP),
        r(libc::REG_RSI),
        r(libc::REG_RDI),
        r(libc::REG_R8),
        r(libc::REG_R9),
        r(libc::REG_R10),
        r(libc::REG_R11),
        r(libc::REG_R12),
        r(libc::REG_R13),
        r(libc::REG_R14),
        r(libc::REG_R15),
    ];
    if !view.samples().push(&record) {
        let dropped = &view.status().samples_dropped;
        dropped.fetch_add(1, Ordering::Relaxed);
    }
}
