//! System calls of code inside a target, made without the C library: `errno` does not change, no
//! wait is a cancellation point, and no hook sees them. All system calls are made here, except
//! those of a worker of `isolate`: its filter allows only two instructions of that library.
//!
//! A function that is named after a system call returns the kernel's result: a negative number is
//! an error, which [`outcome`] separates. Contexts: all, signal handlers too. It must not allocate,
//! panic, or call anything but, in [`clock`], the C library's `clock_gettime`.

mod file;
mod memory;
mod signals;
mod wait;

pub use file::{
    Identity, close, duplicate, identity, limit, may_execute, open, open_at, punch_hole, read,
    read_at, read_link, try_lock, write, write_all, write_all_at, write_at,
};
pub use memory::{
    READ_WRITE, advise, lock, map, map_anonymous, map_shared, protect, remap, unlock, unmap,
};
pub use signals::{Action, NoSignals, action, kill, pending, send, send_to, set_action, set_mask};
pub use wait::{Reach, wait, wake};

use core::arch::asm;

/// A system call; a negative result is an error number.
///
/// # Safety
/// As the call demands of its arguments.
#[inline]
pub unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the kernel changes only rcx, r11 and the result; the caller upholds the call's
    // demands on its arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// The result of a system call, or its error number.
///
/// # Errors
/// If the result is negative.
pub fn outcome(result: isize) -> Result<usize, u32> {
    usize::try_from(result).map_err(|_| result.unsigned_abs() as u32)
}

/// The id of the calling process.
#[must_use]
pub fn process_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_getpid, [0; 6]) as u32 }
}

/// The id of the calling process's parent.
#[must_use]
pub fn parent_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_getppid, [0; 6]) as u32 }
}

/// The id of the calling thread.
#[must_use]
pub fn thread_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_gettid, [0; 6]) as u32 }
}

/// The user whose rights the calling thread has.
#[must_use]
pub fn user_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_geteuid, [0; 6]) as u32 }
}

/// The calling thread's thread pointer (`fs` base).
#[inline]
#[must_use]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: by the ABI, the first word of the thread's control block holds its own address.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    pointer
}

/// The time of the monotonic clock in ns, by a system call: the vDSO may be code that a debugger is
/// stepping through.
#[must_use]
pub fn now() -> u64 {
    clock_by_call(libc::CLOCK_MONOTONIC)
}

/// The time of `clock` in ns, by a system call.
#[must_use]
pub fn clock_by_call(clock: libc::clockid_t) -> u64 {
    let mut time = NO_TIME;
    let arguments = [clock as usize, &raw mut time as usize, 0, 0, 0, 0];
    // SAFETY: the result is a local.
    unsafe { call(libc::SYS_clock_gettime, arguments) };
    nanoseconds(&time)
}

/// The time of `clock` in ns, by the C library's function. It needs no system call for the
/// monotonic clock, does not change `errno` when it succeeds, and is async-signal-safe.
#[must_use]
pub fn clock(clock: libc::clockid_t) -> u64 {
    let mut time = NO_TIME;
    // SAFETY: the result is a local.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    nanoseconds(&time)
}

const NO_TIME: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// A `timespec` in ns.
#[must_use]
pub const fn nanoseconds(time: &libc::timespec) -> u64 {
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

/// Lets other threads run on this CPU.
pub fn give_way() {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_sched_yield, [0; 6]) };
}

/// The number of processors on which this process may run.
#[must_use]
pub fn processors() -> u32 {
    let mut mask = [0u64; 128];
    let (bytes, at) = (size_of_val(&mask), mask.as_mut_ptr() as usize);
    // SAFETY: the result is a local.
    unsafe { call(libc::SYS_sched_getaffinity, [0, bytes, at, 0, 0, 0]) };
    mask.iter().map(|m| m.count_ones()).sum::<u32>().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_c_library() {
        assert_eq!(process_id(), std::process::id());
        // SAFETY: the calls take no arguments.
        let (thread, parent) = unsafe { (libc::gettid(), libc::getppid()) };
        assert_eq!(thread_id(), thread as u32);
        assert_eq!(parent_id(), parent as u32);
        // SAFETY: the call takes no arguments. In glibc the result is the thread pointer.
        assert_eq!(thread_pointer(), unsafe { libc::pthread_self() } as usize);
    }

    #[test]
    fn errors_are_in_the_result_only() {
        // SAFETY: the address of the calling thread's `errno`.
        unsafe { *libc::__errno_location() = 77 };
        // SAFETY: no descriptor has this number, so none is closed.
        let result = unsafe { call(libc::SYS_close, [usize::MAX, 0, 0, 0, 0, 0]) };
        assert_eq!(result, -(libc::EBADF as isize));
        assert_eq!(outcome(result), Err(libc::EBADF as u32));
        assert_eq!(outcome(7), Ok(7));
        // SAFETY: the address of the calling thread's `errno`.
        assert_eq!(unsafe { *libc::__errno_location() }, 77);
    }

    #[test]
    fn a_clock_is_the_same_by_both_ways() {
        let before = clock_by_call(libc::CLOCK_MONOTONIC);
        let between = clock(libc::CLOCK_MONOTONIC);
        assert!(before <= between && between <= now());
    }
}
