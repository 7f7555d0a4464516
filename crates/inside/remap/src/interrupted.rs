//! Kernel calls that the tool's signal has ended early. The tool asks threads that run,
//! but one may have entered a call by the time that the signal comes; most calls are
//! then begun anew by the kernel, since the handler is installed so, but some never are
//! (`poll`, `nanosleep`). The program must not see that: these are begun anew here.
//! Contexts: signal.

use crate::shared;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sunder_guest::system;

/// Calls that a handler ends with `EINTR`, whatever was asked for ("signal(7)"), and
/// which have done nothing then that they do not do again.
const CALLS: [i64; 28] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_pause,
    libc::SYS_nanosleep,
    libc::SYS_accept,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_semop,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    libc::SYS_futex,
    libc::SYS_io_getevents,
    libc::SYS_semtimedop,
    libc::SYS_clock_nanosleep,
    libc::SYS_epoll_wait,
    libc::SYS_pselect6,
    libc::SYS_ppoll,
    libc::SYS_epoll_pwait,
    libc::SYS_accept4,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_epoll_pwait2,
];

/// What a call that was ended early returns.
const ENDED: i64 = -(libc::EINTR as i64);

/// The thread that was asked last, and how often threads were.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// Bits of [`ASKED`] that are the thread's number.
const THREAD: u64 = 0xffff_ffff;

/// Who was asked last, as a value that changes each time.
pub fn asked() -> u64 {
    ASKED.load(Acquire)
}

/// The calling thread was asked.
pub fn count() {
    let times = (ASKED.load(Relaxed) >> 32).wrapping_add(1);
    ASKED.store(times << 32 | u64::from(system::thread_id()), Release);
}

/// Whether the call of this number, which the calling thread began when [`asked`] was
/// `before` and which has returned `result`, is to be begun anew.
pub fn is_ended_by_us(number: i64, result: isize, before: u64) -> bool {
    let now = asked();
    result as i64 == ENDED
        && now != before
        && !shared::is_confined()
        && now & THREAD == u64::from(system::thread_id())
        && CALLS.contains(&number)
}

/// If the thread has just returned from a call that was ended early, it is sent to
/// make it again. `waiting` says whether a handler of the program's runs next: then the
/// call would have ended anyway.
pub fn begin_anew(state: &mut libc::ucontext_t, waiting: impl FnOnce(u64) -> bool) {
    let registers = &mut state.uc_mcontext.gregs;
    let (Some(&result), Some(&next)) = (
        registers.get(libc::REG_RAX as usize),
        registers.get(libc::REG_RIP as usize),
    ) else {
        return;
    };
    if result != ENDED {
        return;
    }
    let Some(number) = sunder_hooks::number_before(next as usize) else {
        return;
    };
    // SAFETY: a set of signals begins with the kernel's word.
    let mask = unsafe { (&raw const state.uc_sigmask).cast::<u64>().read_unaligned() };
    if !CALLS.contains(&number.into()) || waiting(system::pending() & !mask) {
        return;
    }
    // The kernel call's instruction has two bytes and left all arguments as they were.
    for (place, value) in [
        (libc::REG_RAX, i64::from(number)),
        (libc::REG_RIP, next - 2),
    ] {
        if let Some(register) = registers.get_mut(place as usize) {
            *register = value;
        }
    }
}
