//! Kernel calls that the tool's signal has ended early. The tool asks threads that run, but one may
//! have entered a call by the time that the signal arrives. The kernel restarts most calls
//! (`SA_RESTART`), but never some of them, such as `poll` and `nanosleep`. The program must not
//! notice, so these are restarted here.
//!
//! Contexts: signal.

use crate::shared;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sunder_guest::system;

/// Calls that any handler ends with `EINTR`, whatever its flags ("signal(7)"), and that have no
/// effect then that a repetition would not have.
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

/// The thread that the tool asked last, and a count of how often it asked any.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// The bits of [`ASKED`] for the thread's id.
const THREAD: u64 = 0xffff_ffff;

/// [`ASKED`], which changes each time that a thread is asked.
pub fn asked() -> u64 {
    ASKED.load(Acquire)
}

/// Counts that the calling thread was asked.
pub fn count() {
    let times = (ASKED.load(Relaxed) >> 32).wrapping_add(1);
    ASKED.store(times << 32 | u64::from(system::thread_id()), Release);
}

/// Whether a call must be restarted: the call `number`, which the calling thread began when
/// [`asked`] was `before`, and which has returned `result`.
pub fn is_ended_by_us(number: i64, result: isize, before: u64) -> bool {
    let now = asked();
    result as i64 == ENDED
        && now != before
        && !shared::is_confined()
        && now & THREAD == u64::from(system::thread_id())
        && CALLS.contains(&number)
}

/// Whether the thread has just returned from a call that was ended early. So does any code look that
/// has the same number in the register for results.
pub fn has_ended(state: &libc::ucontext_t) -> bool {
    state.uc_mcontext.gregs.get(libc::REG_RAX as usize) == Some(&ENDED)
}

/// If the thread has just returned from a call that was ended early, changes its state so that it
/// makes the call again. `waiting` says whether a handler of the program's runs next: then the call
/// would have ended natively, too.
pub fn restart(state: &mut libc::ucontext_t, waiting: impl FnOnce(u64) -> bool) {
    if !has_ended(state) {
        return;
    }
    let registers = &mut state.uc_mcontext.gregs;
    let Some(&next) = registers.get(libc::REG_RIP as usize) else {
        return;
    };
    let Some(number) = sunder_hooks::number_before(next as usize) else {
        return;
    };
    // SAFETY: a `sigset_t` begins with the kernel's 64-bit mask.
    let mask = unsafe { (&raw const state.uc_sigmask).cast::<u64>().read_unaligned() };
    if !CALLS.contains(&number.into()) || waiting(system::pending() & !mask) {
        return;
    }
    // The kernel call's instruction is two bytes long and leaves all arguments unchanged.
    for (index, value) in [
        (libc::REG_RAX, i64::from(number)),
        (libc::REG_RIP, next - 2),
    ] {
        if let Some(register) = registers.get_mut(index as usize) {
            *register = value;
        }
    }
}
