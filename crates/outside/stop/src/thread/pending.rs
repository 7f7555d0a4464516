//! Signals that are pending for a stopped thread. Reads them; must not take any away.

/// Whether a stopped thread has faulted and the signal for the fault is still pending.
pub fn has_fault(thread: i32) -> bool {
    const PEEK_SIGNALS: u32 = 0x4209;
    const COUNT: usize = 8;
    #[repr(C)]
    struct PeekArguments {
        from: u64,
        flags: u32,
        count: i32,
    }
    let faults = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGTRAP,
    ];
    let is_fault = |signal: &libc::siginfo_t| {
        // A positive code: the kernel raised the signal for a fault. Other senders have codes of 0
        // or less.
        faults.contains(&signal.si_signo) && signal.si_code > 0
    };
    for from in (0..).step_by(COUNT) {
        let which = PeekArguments {
            from,
            flags: 0,
            count: COUNT as i32,
        };
        // SAFETY: plain data, for which zeroes are valid.
        let mut signals: [libc::siginfo_t; COUNT] = unsafe { std::mem::zeroed() };
        // SAFETY: `which` is a valid request and `signals` has room for `COUNT` answers.
        let got = unsafe { libc::ptrace(PEEK_SIGNALS, thread, &raw const which, &raw mut signals) };
        let got = usize::try_from(got).unwrap_or(0);
        if signals.iter().take(got).any(is_fault) {
            return true;
        }
        if got < COUNT {
            return false;
        }
    }
    false
}
