//! The signals and streams with which this process was started. The Rust runtime ignores SIGPIPE
//! and opens closed standard streams before `main`, and the program installs handlers later; a
//! child must not inherit any of this, as it would not if a shell had started it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Signal numbers end at 64 on Linux (`_NSIG`).
pub(super) const SIGNALS: std::ops::RangeInclusive<i32> = 1..=64;

/// Standard input, output and error.
const STREAMS: std::ops::RangeInclusive<i32> = 0..=2;

/// Bit `n - 1`: signal `n` was ignored.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// Bit `n - 1`: signal `n` was blocked.
static BLOCKED: AtomicU64 = AtomicU64::new(0);
/// Bit `n`: descriptor `n` was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Runs before `main`, and so before the Rust runtime touches a signal.
#[used]
#[unsafe(link_section = ".init_array")]
static CAPTURE: extern "C" fn() = capture;

extern "C" fn capture() {
    let mut ignored = 0;
    let mut blocked = 0;
    // SAFETY: all zero bytes are a valid value of both structures.
    let (mut action, mut mask): (libc::sigaction, libc::sigset_t) = unsafe { std::mem::zeroed() };
    // SAFETY: only queries; the answers go to valid places.
    unsafe {
        libc::sigprocmask(libc::SIG_SETMASK, std::ptr::null(), &mut mask);
        for signal in SIGNALS {
            let bit = 1u64 << (signal - 1);
            if libc::sigaction(signal, std::ptr::null(), &mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
            {
                ignored |= bit;
            }
            if libc::sigismember(&mask, signal) == 1 {
                blocked |= bit;
            }
        }
    }
    let mut closed = 0;
    for stream in STREAMS {
        // SAFETY: a query of a number.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1 {
            closed |= 1 << stream;
        }
    }
    CLOSED.store(closed, Ordering::Relaxed);
    IGNORED.store(ignored, Ordering::Relaxed);
    BLOCKED.store(blocked, Ordering::Relaxed);
}

/// The standard streams that were closed at the start.
pub(super) fn closed_streams() -> impl Iterator<Item = i32> {
    let closed = CLOSED.load(Ordering::Relaxed);
    STREAMS.filter(move |stream| closed >> stream & 1 == 1)
}

/// Signals ignored at the start, and those blocked.
pub(super) fn at_start() -> (u64, u64) {
    (
        IGNORED.load(Ordering::Relaxed),
        BLOCKED.load(Ordering::Relaxed),
    )
}
