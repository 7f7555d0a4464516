//! What happens before kernel calls in a program that was already running. Bytes that the kernel
//! will use, or that must not be away once the call has been made, are moved back.
//!
//! Contexts: all.

use crate::peek::word_in_place;
use crate::process::is_guest;
use crate::program::BIT;
use crate::shared::{control, withdraw};
use crate::{area, cancel, pages, shared};
use sunder_guest::system;
use sunder_hooks::Call;
use sunder_wire::remap::{BY_CONFINEMENT, BY_DEATH, BY_FORK, BY_KERNEL, BY_MAPPING, BY_SIGNALS};

/// Runs before a call that the program's own code then makes. Nothing is moved from here on until
/// the thread is in the kernel.
pub unsafe extern "C" fn before(call: &mut Call) {
    if control().is_none() {
        return;
    }
    let [a, b, c, d, e, f] = call.arguments.map(|a| a as u64);
    match call.number {
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => {
            before_process(call.number, a, b);
        }
        libc::SYS_execve | libc::SYS_execveat | libc::SYS_exit_group => {
            area::roll_back_all(BY_FORK);
        }
        libc::SYS_seccomp => confine(),
        libc::SYS_prctl if a as i32 == libc::PR_SET_SECCOMP => confine(),
        libc::SYS_ptrace => give_up(BY_CONFINEMENT),
        libc::SYS_tgkill if c == cancel::SIGNAL => cancel::begins(b as u32),
        // Before a signal that leaves a core file, as `abort` sends it: the bytes must be in their
        // place.
        libc::SYS_tgkill if !shared::is_confined() && leaves_core(c) => {
            area::roll_back_all(BY_DEATH);
        }
        libc::SYS_rt_sigsuspend => on_wait(a),
        libc::SYS_ppoll => on_wait(d),
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => on_wait(e),
        libc::SYS_pselect6 if f != 0 => on_wait(word_in_place(f).unwrap_or(0)),
        libc::SYS_read | libc::SYS_write | libc::SYS_pread64 | libc::SYS_pwrite64 => {
            move_back(b, c)
        }
        libc::SYS_sendto => {
            move_back(b, c);
            move_back(e, f.min(ADDRESS));
        }
        libc::SYS_recvfrom => {
            move_back(b, c);
            move_back(e, ADDRESS);
            move_back(f, 4);
        }
        libc::SYS_readv | libc::SYS_writev | libc::SYS_preadv | libc::SYS_pwritev => {
            move_back_vectors(b, c);
        }
        libc::SYS_preadv2 | libc::SYS_pwritev2 => move_back_vectors(b, c),
        libc::SYS_recvmsg | libc::SYS_sendmsg => message(b),
        libc::SYS_futex => futex(call),
        number if takes_from_queue(number, [b, c, d, e]) => {}
        number => other(number, a, b, c),
    }
}

/// Upper bound of a socket address, in bytes.
const ADDRESS: u64 = 256;
/// Size of `siginfo_t`, in bytes.
const INFO: u64 = 128;
/// Size of `rusage`, in bytes.
const USAGE: u64 = 144;

/// Whether the call takes something from the kernel's queue before it writes to the program's
/// memory. If the write failed and the call were repeated, it would take the next item, or nothing.
/// So its memory is moved back first.
fn takes_from_queue(number: i64, arguments: [u64; 4]) -> bool {
    let [b, c, d, e] = arguments;
    match number {
        libc::SYS_accept | libc::SYS_accept4 => {
            move_back(b, ADDRESS);
            move_back(c, 4);
        }
        libc::SYS_wait4 => {
            move_back(b, 4);
            move_back(d, USAGE);
        }
        libc::SYS_waitid => {
            move_back(c, INFO);
            move_back(e, USAGE);
        }
        libc::SYS_rt_sigtimedwait => move_back(b, INFO),
        libc::SYS_msgrcv => move_back(b, c.saturating_add(8)),
        libc::SYS_mq_timedreceive => {
            move_back(b, c);
            move_back(d, 4);
        }
        libc::SYS_recvmmsg => area::roll_back_all(BY_KERNEL),
        libc::SYS_setitimer => move_back(c, 32),
        libc::SYS_timer_settime => move_back(d, 32),
        _ => return false,
    }
    true
}

/// Whether this signal ends the program by its default action and may leave a core file.
fn leaves_core(signal: u64) -> bool {
    let ends = [
        libc::SIGQUIT,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGSYS,
    ];
    ends.contains(&(signal as i32))
        && system::action(signal as usize).is_some_and(|action| action.handler == libc::SIG_DFL)
}

/// Handles the calls of `syscall` and a few other functions, whose call number is known only at run
/// time.
fn other(number: i64, a: u64, b: u64, c: u64) {
    match number {
        libc::SYS_rt_sigaction | libc::SYS_rt_sigprocmask => give_up(BY_SIGNALS),
        libc::SYS_mmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect if pages::is_code(c) => {
            area::roll_back_all(BY_MAPPING);
        }
        libc::SYS_mmap | libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_madvise => {
            area::roll_back_in(a, b, BY_MAPPING);
        }
        libc::SYS_pkey_mprotect => area::roll_back_in(a, b, BY_MAPPING),
        // With these the kernel uses memory later, when no thread is in a call.
        libc::SYS_io_uring_setup | libc::SYS_io_setup | libc::SYS_userfaultfd => {
            give_up(BY_KERNEL);
        }
        libc::SYS_mremap | libc::SYS_brk | libc::SYS_shmat | libc::SYS_remap_file_pages => {
            area::roll_back_all(BY_MAPPING);
        }
        libc::SYS_gettid | libc::SYS_getpid | libc::SYS_getcpu => {}
        libc::SYS_sched_yield | libc::SYS_getrandom | libc::SYS_membarrier => {}
        libc::SYS_tgkill | libc::SYS_tkill | libc::SYS_exit | libc::SYS_rt_sigreturn => {}
        // Any other call that uses memory may do so in pieces.
        _ => area::roll_back_all(BY_KERNEL),
    }
}

fn give_up(reason: u32) {
    withdraw();
    area::roll_back_all(reason);
}

/// The program confines itself (seccomp): from here on this library must make no kernel call. Its
/// handlers stay, since they need none: threads may still be in copies of code and leave them by a
/// fault.
fn confine() {
    if shared::is_confined() || is_guest() {
        return;
    }
    give_up(BY_CONFINEMENT);
    shared::confine();
}

fn before_process(number: i64, a: u64, b: u64) {
    const CLONE_ARGUMENTS: [u64; 3] = [0, 5 * 8, 6 * 8];
    // The new thread's first stack frames lie below the top that `clone` gets.
    const FIRST: u64 = 64 << 10;
    let (flags, at, len) = match number {
        libc::SYS_clone => (a, b.saturating_sub(FIRST), 2 * FIRST),
        libc::SYS_clone3 => {
            let [flags, stack, len] = CLONE_ARGUMENTS.map(|o| word_in_place(a + o).unwrap_or(0));
            (flags, stack, len)
        }
        _ => (0, 0, 0),
    };
    if flags & libc::CLONE_THREAD as u64 != 0 {
        area::roll_back_in(at, len, BY_MAPPING);
        return;
    }
    // A process that shares this memory while this one runs would not be noticed.
    let shares = libc::CLONE_VM as u64;
    if flags & (shares | libc::CLONE_VFORK as u64) == shares {
        withdraw();
    }
    area::roll_back_all(BY_FORK);
}

/// A thread waits with this signal mask: handlers that run meanwhile have SIGSEGV blocked.
fn on_wait(mask: u64) {
    if mask != 0 && word_in_place(mask).is_none_or(|mask| mask & BIT != 0) {
        area::roll_back_all(BY_SIGNALS);
    }
}

/// The kernel finds waiting threads by the address, which is the same wherever the bytes are. So
/// only what the kernel reads must be in its place. Waking private waiters reads nothing.
fn futex(call: &Call) {
    let [word, operation, _, time, other, _] = call.arguments.map(|a| a as u64);
    let private = operation as i32 & libc::FUTEX_PRIVATE_FLAG != 0;
    let operation = operation as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    if private && matches!(operation, libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET) {
        return;
    }
    let [has_time, has_other] = pointers_of_futex(operation);
    move_back(word, 4);
    if has_time {
        move_back(time, 16);
    }
    if has_other {
        move_back(other, 4);
    }
}

/// Whether the fourth and the fifth argument are pointers in this operation; see futex(2). In other
/// operations their registers hold anything. In an unknown operation both may be pointers.
const fn pointers_of_futex(operation: i32) -> [bool; 2] {
    match operation {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_LOCK_PI | libc::FUTEX_LOCK_PI2 => {
            [true, false]
        }
        libc::FUTEX_WAKE
        | libc::FUTEX_WAKE_BITSET
        | libc::FUTEX_UNLOCK_PI
        | libc::FUTEX_TRYLOCK_PI => [false, false],
        libc::FUTEX_REQUEUE
        | libc::FUTEX_CMP_REQUEUE
        | libc::FUTEX_CMP_REQUEUE_PI
        | libc::FUTEX_WAKE_OP => [false, true],
        _ => [true, true],
    }
}

/// Moves these bytes back, because the kernel will use them.
fn move_back(at: u64, len: u64) {
    if shared::anything_moved() {
        area::roll_back_in(at, len, BY_KERNEL);
    }
}

/// As [`move_back`], for the ranges of an array of `iovec`.
fn move_back_vectors(at: u64, count: u64) {
    /// The kernel accepts no more vectors.
    const MOST: u64 = 1024;
    if !shared::anything_moved() {
        return;
    }
    for vector in 0..count.min(MOST) {
        let entry = at.wrapping_add(16 * vector);
        let (Some(start), Some(len)) = (word_in_place(entry), word_in_place(entry + 8)) else {
            return;
        };
        area::roll_back_in(start, len, BY_KERNEL);
    }
}

/// As [`move_back`], for a message: its name, vectors and control data.
fn message(at: u64) {
    if !shared::anything_moved() {
        return;
    }
    area::roll_back_in(at, 56, BY_KERNEL);
    let part = |n: u64| word_in_place(at + 8 * n).unwrap_or(0);
    area::roll_back_in(part(0), part(1) & 0xffff_ffff, BY_KERNEL);
    move_back_vectors(part(2), part(3));
    area::roll_back_in(part(4), part(5), BY_KERNEL);
}

#[cfg(test)]
mod tests {
    use super::pointers_of_futex;

    #[test]
    fn futex_operations_have_these_pointers() {
        assert_eq!(pointers_of_futex(libc::FUTEX_WAIT), [true, false]);
        assert_eq!(pointers_of_futex(libc::FUTEX_WAKE), [false, false]);
        assert_eq!(pointers_of_futex(libc::FUTEX_CMP_REQUEUE), [false, true]);
        assert_eq!(pointers_of_futex(libc::FUTEX_WAIT_REQUEUE_PI), [true, true]);
        assert_eq!(pointers_of_futex(77), [true, true]);
    }
}
