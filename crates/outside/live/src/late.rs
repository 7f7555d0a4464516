//! Signals after the end of the program or of the observation, while the report is made. Called by
//! `signals` and `look`, for a process that exists for this run alone and is about to exit.
//!
//! A user presses Ctrl-C twice; `timeout` signals a process and then its group; the shell of a closed
//! terminal signals its jobs, and the kernel does so again. What comes right after the end still means
//! what has ended, and must not cost the report. Later, the signals by which a user ends a program end
//! this process at once: making the report can take long, and the user need not wait.

use crate::leaving::leave;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Signals that come so soon after the end belong to it.
const BELONGS: Duration = Duration::from_secs(1);

/// Signals that end this process later.
const ENDS: [i32; 3] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Signals that no longer mean anything: nobody is at a closed terminal who could want the report less,
/// and the others were for the program.
const MEANINGLESS: [i32; 3] = [libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// When that was, in ns of the monotonic clock.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// The end has come. Of `held`, the signals that have a handler of ours so far, none ends this process
/// for a while.
pub fn begin(held: impl Iterator<Item = i32>) {
    ENDED.store(now(), Ordering::Relaxed);
    for signal in held {
        let action = if MEANINGLESS.contains(&signal) {
            libc::SIG_IGN
        } else if ENDS.contains(&signal) {
            late as *const () as usize
        } else {
            libc::SIG_DFL
        };
        // SAFETY: the handler makes async-signal-safe calls only.
        unsafe { libc::signal(signal, action) };
    }
}

extern "C" fn late(signal: i32) {
    let since = now().saturating_sub(ENDED.load(Ordering::Relaxed));
    if u128::from(since) >= BELONGS.as_nanos() {
        leave();
        // SAFETY: both are async-signal-safe and take numbers. The signal is blocked until this handler
        // returns, and then has its usual effect.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}

fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the answer; the call is async-signal-safe.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
