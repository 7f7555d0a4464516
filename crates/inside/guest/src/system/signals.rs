//! The calling thread's mask of signals, what signals do, and sending them. Sets of signals
//! are the kernel's: 64 bits, the lowest for signal 1. Contexts: all.

use super::{call, process_id, thread_id};

/// As `rt_sigprocmask`: `how` is `SIG_SETMASK` or one of its like. What the mask was before.
pub fn set_mask(how: i32, mask: u64) -> u64 {
    let mut before = 0u64;
    let (new, old) = (&raw const mask as usize, &raw mut before as usize);
    // SAFETY: valid places for both sets.
    unsafe { call(libc::SYS_rt_sigprocmask, [how as usize, new, old, 8, 0, 0]) };
    before
}

/// Holds off all signals of the calling thread until dropped.
#[derive(Debug)]
pub struct NoSignals(u64);

impl NoSignals {
    /// From now on.
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

/// What a signal does, as the kernel takes it. The default is the kernel's.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Action {
    /// The handler's address, `SIG_DFL` or `SIG_IGN`.
    pub handler: usize,
    /// `SA_…`; those of the C library and `SA_RESTORER`.
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: usize,
    /// The signals that are blocked while the handler runs.
    pub mask: u64,
}

/// As `rt_sigaction`: sets what a signal does.
///
/// # Safety
/// The handler can run at any time.
pub unsafe fn set_action(signal: usize, action: &Action) -> isize {
    let arguments = [signal, &raw const *action as usize, 0, 8, 0, 0];
    // SAFETY: an action of the kernel's layout; the rest by this function's contract.
    unsafe { call(libc::SYS_rt_sigaction, arguments) }
}

/// What a signal does; none if there is no such signal.
#[must_use]
pub fn action(signal: usize) -> Option<Action> {
    let mut action = Action::default();
    let arguments = [signal, 0, &raw mut action as usize, 8, 0, 0];
    // SAFETY: a valid place for the answer.
    (unsafe { call(libc::SYS_rt_sigaction, arguments) } == 0).then_some(action)
}

/// The signals that have come to the calling thread or its process and are blocked.
#[must_use]
pub fn pending() -> u64 {
    let mut set = 0u64;
    let arguments = [&raw mut set as usize, 8, 0, 0, 0, 0];
    // SAFETY: a place for the kernel's set.
    unsafe { call(libc::SYS_rt_sigpending, arguments) };
    set
}

/// Sends the calling thread a signal.
pub fn send(signal: i32) {
    send_to(process_id(), thread_id(), signal);
}

/// Sends a thread of a process a signal.
pub fn send_to(process: u32, thread: u32, signal: i32) {
    let arguments = [process as usize, thread as usize, signal as usize, 0, 0, 0];
    // SAFETY: takes integers; what the signal does is the receiver's own choice.
    unsafe { call(libc::SYS_tgkill, arguments) };
}

/// Sends a process a signal.
pub fn kill(process: u32, signal: i32) {
    // SAFETY: as above.
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
