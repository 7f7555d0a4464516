//! What signals ask of a watch. Each of its processes has its own notes, and passes signals on to the process
//! that it has started.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// Milliseconds within which signals are one: a terminal, or systemd, sends it to both processes, and one
/// of them passes it on to the other.
const ONE_SIGNAL: u64 = 500;
/// When a signal first asked to end, by the clock that never stops, in milliseconds; 0 for not yet.
static END: AtomicU64 = AtomicU64::new(0);
/// Whether another one came later.
static NOW: AtomicBool = AtomicBool::new(false);
static ANEW: AtomicBool = AtomicBool::new(false);
/// The process to which signals are passed on.
static CHILD: AtomicI32 = AtomicI32::new(0);

extern "C" fn note_signal(signal: i32) {
    if signal == libc::SIGHUP {
        ANEW.store(true, Ordering::Relaxed);
    } else {
        let now = milliseconds();
        match END.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
            Err(first) if now - first >= ONE_SIGNAL => NOW.store(true, Ordering::Relaxed),
            _ => {}
        }
    }
    let child = CHILD.load(Ordering::Relaxed);
    if child > 0 {
        // SAFETY: takes two integers, and may be called in a handler. The child is waited for only after
        // its number here is 0.
        unsafe { libc::kill(child, signal) };
    }
}

/// May be called in a handler.
fn milliseconds() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Notes signals from now on.
pub fn note() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler stores to atomics and sends a signal.
        let before = unsafe { libc::signal(signal, note_signal as *const () as usize) };
        if before == libc::SIG_IGN && signal != libc::SIGHUP {
            // SAFETY: takes two integers.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
}

/// Signals are passed on to this process from now on; 0 for none.
pub fn pass_on_to(child: i32) {
    CHILD.store(child, Ordering::Relaxed);
}

/// Whether a signal has asked to end.
pub fn end() -> bool {
    END.load(Ordering::Relaxed) > 0
}

/// Whether another one has come since.
pub fn end_at_once() -> bool {
    NOW.load(Ordering::Relaxed)
}

/// Whether a SIGHUP has come since the last call.
pub fn begin_anew() -> bool {
    ANEW.swap(false, Ordering::Relaxed)
}
