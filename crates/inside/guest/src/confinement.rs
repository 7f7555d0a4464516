//! A program that confines itself (seccomp). Its filter may end it for a system call that it does not
//! know, such as that for a thread's number, so from then on a library of ours makes none.
//!
//! Contexts: all; [`Confinement::close`] runs before the filter is installed.

use crate::system;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

/// Whether the call with this number and first argument installs a filter, and does not only ask what the
/// kernel has.
#[must_use]
pub fn by(number: i64, first: usize) -> bool {
    match number {
        libc::SYS_seccomp => first <= libc::SECCOMP_SET_MODE_FILTER as usize,
        libc::SYS_prctl => first == libc::PR_SET_SECCOMP as usize,
        _ => false,
    }
}

/// Whether a library may still make system calls of its own, and how many threads may be in one.
#[derive(Debug)]
#[repr(C)]
pub struct Confinement {
    /// The number of threads. The first field: code without a stack counts here, too.
    pub calling: AtomicU32,
    closed: AtomicBool,
}

/// While it lives, the thread may make system calls: a filter for all threads waits for it.
#[derive(Debug)]
pub struct Calls(&'static Confinement);

impl Confinement {
    /// Of a program that has not confined itself.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            calling: AtomicU32::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Whether the program has confined itself.
    pub fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Begins calls of the calling thread; `None` in a program that has confined itself.
    pub fn begin(&'static self) -> Option<Calls> {
        if self.is_closed() {
            return None;
        }
        self.calling.fetch_add(1, SeqCst);
        let calls = Calls(self);
        (!self.is_closed()).then_some(calls)
    }

    /// From here on nobody begins a call. Waits for a while until all threads have ended theirs; one in
    /// which a signal handler has interrupted a thread for long is not waited for.
    pub fn close(&self) {
        const TRIES: u32 = 20_000;
        /// Those that have just been counted out may still be about to make their last call.
        const MORE: u32 = 200;
        self.closed.store(true, SeqCst);
        for _ in 0..TRIES {
            if self.calling.load(SeqCst) == 0 {
                break;
            }
            system::give_way();
        }
        for _ in 0..MORE {
            system::give_way();
        }
    }
}

impl Default for Confinement {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.0.calling.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_what_the_kernel_has_does_not_confine_itself() {
        // As in linux/seccomp.h and linux/prctl.h.
        assert!(by(libc::SYS_seccomp, 0) && by(libc::SYS_seccomp, 1) && by(libc::SYS_prctl, 22));
        assert!(!by(libc::SYS_seccomp, 2) && !by(libc::SYS_prctl, 21) && !by(libc::SYS_read, 1));
    }

    #[test]
    fn a_filter_waits_for_calls_and_no_call_begins_after_it() {
        static ONE: Confinement = Confinement::new();
        let calls = ONE.begin().expect("it is open");
        let closing = std::thread::spawn(|| {
            ONE.close();
            ONE.calling.load(SeqCst)
        });
        while !ONE.is_closed() {
            std::thread::yield_now();
        }
        assert!(ONE.begin().is_none());
        drop(calls);
        assert_eq!(closing.join().expect("it does not panic"), 0);
        assert!(ONE.begin().is_none());
        assert_eq!(ONE.calling.load(SeqCst), 0);
    }
}
