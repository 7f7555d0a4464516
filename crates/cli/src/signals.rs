//! What Sunder does with signals while a program runs: those of the terminal go
//! to the program anyway (it is in the same process group) and must not end us
//! before it; those sent to us alone are passed on.

use std::sync::atomic::{AtomicI32, Ordering};
use sunder_access::ProcessId;

/// Sent by the terminal to the whole group.
const FROM_TERMINAL: [i32; 2] = [libc::SIGINT, libc::SIGQUIT];
/// Sent to us by somebody who means the program.
const PASSED_ON: [i32; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

static TARGET: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: i32) {
    let target = TARGET.load(Ordering::Relaxed);
    if target > 0 {
        // SAFETY: async-signal-safe, and takes two integers.
        unsafe { libc::kill(target, signal) };
    }
}

extern "C" fn stay(_signal: i32) {}

/// Holds the dispositions; gives them back when released.
pub struct Signals {
    old: Vec<(i32, libc::sigaction)>,
}

impl Signals {
    /// From now on signals do not end us.
    pub fn hold() -> Self {
        let mut old = Vec::new();
        for signal in FROM_TERMINAL {
            old.extend(set(signal, stay).map(|o| (signal, o)));
        }
        for signal in PASSED_ON {
            old.extend(set(signal, pass_on).map(|o| (signal, o)));
        }
        Self { old }
    }

    /// The program that is meant.
    pub fn forward_to(&self, process: ProcessId) {
        TARGET.store(process.0 as i32, Ordering::Relaxed);
    }

    /// Signals mean us again.
    pub fn release(self) {}
}

impl Drop for Signals {
    fn drop(&mut self) {
        TARGET.store(0, Ordering::Relaxed);
        for (signal, old) in &self.old {
            // SAFETY: `old` is what the kernel gave us for this signal.
            unsafe { libc::sigaction(*signal, old, std::ptr::null_mut()) };
        }
    }
}

/// Sets a handler; what was there before. A signal that was ignored (`nohup`)
/// stays ignored.
fn set(signal: i32, handler: extern "C" fn(i32)) -> Option<libc::sigaction> {
    // SAFETY: `sigaction` is plain data for which zeroes are valid.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a query into a valid place.
    if unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut old) } != 0
        || old.sa_sigaction == libc::SIG_IGN
    {
        return None;
    }
    // SAFETY: as above.
    let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
    new.sa_sigaction = handler as *const () as usize;
    new.sa_flags = libc::SA_RESTART;
    // SAFETY: both point to valid actions; the handlers are async-signal-safe.
    (unsafe { libc::sigaction(signal, &raw const new, std::ptr::null_mut()) } == 0).then_some(old)
}
