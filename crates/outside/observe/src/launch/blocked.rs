//! Holds signals back around a `fork`: the child begins without our handlers and does not end before it
//! is ready. Used by `launch`, and by the program for a process of its own. It must not outlive the
//! thread's stay in the same function.

/// Blocks all signals for the calling thread as long as it lives. A forked child that forgets it
/// keeps them blocked.
#[must_use = "signals are let in again when it is dropped"]
pub struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    /// From now on.
    pub fn all() -> Self {
        // SAFETY: all zero bytes are a set of signals, which the calls fill.
        unsafe {
            let (mut all, mut before) = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            Self { before }
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is the one that the kernel returned.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}
