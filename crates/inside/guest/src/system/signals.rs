//! The calling thread's signal mask, the actions of signals, and sending signals. Signal sets are
//! the kernel's: 64 bits, the lowest for signal 1. Contexts: all.

use super::{call, process_id, thread_id};

/// As `rt_sigprocmask`, with `how` from `SIG_SETMASK` and so on. Returns the mask that was set
/// before.
pub fn set_mask(how: i32, mask: u64) -> u64 {
    let mut before = 0u64;
    let (new, old) = (&raw const mask as usize, &raw mut before as usize);
    // SAFETY: both sets are locals.
    unsafe { call(libc::SYS_rt_sigprocmask, [how as usize, new, old, 8, 0, 0]) };
    before
}

/// Blocks all signals of the calling thread until dropped.
#[derive(Debug)]
pub struct NoSignals(u64);

impl NoSignals {
    /// Blocks all signals from here on.
    #[must_use]
    pub fn hold() -> Self {
        Self(set_mask(libc::SIG_SETMASK, u64::MAX))
    }
}

impl Drop for NoSignals {
    fn drop(&mut self) {
        set_mask(libc::SIG_SETMASK, self.0);
    }
}

/// The action of a signal, in the kernel's layout. `Default` is the default action.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// The handler's address, `SIG_DFL` or `SIG_IGN`.
    pub handler: usize,
    /// `SA_…` flags: those of the C library, and `SA_RESTORER`.
    pub flags: u64,
    /// The address to which the handler returns.
    pub restorer: usize,
    /// The signals that are blocked while the handler runs.
    pub mask: u64,
}

/// As `rt_sigaction`: sets the action of a signal.
///
/// # Safety
/// The handler may run at any time.
pub unsafe fn set_action(signal: usize, action: &Action) -> isize {
    let arguments = [signal, &raw const *action as usize, 0, 8, 0, 0];
    // SAFETY: an action of the kernel's layout; the rest by this function's contract.
    unsafe { call(libc::SYS_rt_sigaction, arguments) }
}

/// The action of a signal; `None` if there is no such signal.
#[must_use]
pub fn action(signal: usize) -> Option<Action> {
    let mut action = Action::default();
    let arguments = [signal, 0, &raw mut action as usize, 8, 0, 0];
    // SAFETY: the result is a local.
    (unsafe { call(libc::SYS_rt_sigaction, arguments) } == 0).then_some(action)
}

/// The signals that are pending for the calling thread or its process and are blocked.
#[must_use]
pub fn pending() -> u64 {
    let mut set = 0u64;
    let arguments = [&raw mut set as usize, 8, 0, 0, 0, 0];
    // SAFETY: the result is a local of the size of the kernel's set.
    unsafe { call(libc::SYS_rt_sigpending, arguments) };
    set
}

/// Sends a signal to the calling thread.
pub fn send(signal: i32) {
    send_to(process_id(), thread_id(), signal);
}

/// Sends a signal to a thread of a process.
pub fn send_to(process: u32, thread: u32, signal: i32) {
    let arguments = [process as usize, thread as usize, signal as usize, 0, 0, 0];
    // SAFETY: the call takes numbers; the receiver has chosen the action of the signal.
    unsafe { call(libc::SYS_tgkill, arguments) };
}

/// Sends a signal to a process.
pub fn kill(process: u32, signal: i32) {
    // SAFETY: the call takes numbers; the receiver has chosen the action of the signal.
    unsafe {
        call(
            libc::SYS_kill,
            [process as usize, signal as usize, 0, 0, 0, 0],
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_held_off_as_long_as_the_guard_lives() {
        let before = set_mask(libc::SIG_BLOCK, 0);
        {
            let _first = NoSignals::hold();
            let _second = NoSignals::hold();
            let blocked = set_mask(libc::SIG_BLOCK, 0);
            assert_ne!(blocked & 1 << (libc::SIGUSR1 - 1), 0);
        }
        assert_eq!(set_mask(libc::SIG_BLOCK, 0), before);
    }
}
