//! Compares the table with sizes and arguments that are written down here once more from the
//! manual; tries registers that mean nothing, and invented counts and addresses.

extern crate std;

use super::{CALLS, NAMED, names};
use crate::{KernelCall, Use};
use proptest::prelude::*;
use std::cell::Cell;
use std::vec::Vec;
use std::{format, vec};

/// The pages that are to move.
const PAGE: u64 = 0x7000_0000;
const LEN: u64 = 0x1000;
const END: u64 = PAGE + LEN;
/// Other memory of the program.
const ELSEWHERE: u64 = 0x5000_0000;
/// The end of that memory.
const ELSEWHERES_END: u64 = ELSEWHERE + 0x4_0000;
/// No memory is mapped here.
const UNMAPPED: u64 = 0x6000_0000;

/// The memory of a program: zeroes around the pages and in [`ELSEWHERE`], unless other bytes were
/// written.
#[derive(Default)]
struct Program {
    parts: Vec<(u64, Vec<u8>)>,
    /// Bytes that were read so far.
    read: Cell<usize>,
}

impl Program {
    /// Writes words at `at`.
    fn with(mut self, at: u64, words: &[u64]) -> Self {
        let bytes = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.parts.insert(0, (at, bytes));
        self
    }

    fn with_bytes(mut self, at: u64, bytes: &[u8]) -> Self {
        self.parts.insert(0, (at, bytes.to_vec()));
        self
    }

    /// Whether the program's call may use the pages or replaces the signal mask.
    fn is_in_the_way(&self, number: i64, arguments: [u64; 6]) -> bool {
        let read = |at: u64, into: &mut [u8]| {
            self.read.set(self.read.get() + into.len());
            self.copy(at, into)
        };
        let mut meets = |used| match used {
            Use::Memory { at, len } => at < END && PAGE < at.saturating_add(len),
            Use::Mask(_) | Use::Anything => true,
        };
        KernelCall { number, arguments }.any_use(&read, &mut meets)
    }

    fn copy(&self, at: u64, into: &mut [u8]) -> bool {
        let zeroes = [ELSEWHERE..ELSEWHERES_END, PAGE - LEN..END + LEN];
        into.iter_mut().enumerate().all(|(i, byte)| {
            let Some(place) = at.checked_add(i as u64) else {
                return false;
            };
            let written = self.parts.iter().find_map(|(start, bytes)| {
                let offset = usize::try_from(place.checked_sub(*start)?).ok()?;
                bytes.get(offset).copied()
            });
            let zero = || zeroes.iter().any(|z| z.contains(&place)).then_some(0);
            let there = written.or_else(zero);
            *byte = there.unwrap_or(0);
            there.is_some()
        })
    }
}

fn is_in_the_way(number: i64, arguments: [u64; 6]) -> bool {
    Program::default().is_in_the_way(number, arguments)
}

/// Placeholder for a register that is no argument of the call.
const S: u64 = 0x1111_2222_3333_4444;
/// Placeholder for a pointer.
const P: u64 = 0x5555_6666_7777_8888;

/// Calls with their arguments, and the number of bytes that each of their pointers covers. Those
/// that threads wait in come first.
#[rustfmt::skip]
const WAITS: &[(i64, [u64; 6], &[u64])] = &[
    (libc::SYS_read, [0, P, 1, S, S, S], &[1]),
    (libc::SYS_read, [0, P, 8192, S, S, S], &[8192]),
    (libc::SYS_write, [1, P, 100, S, S, S], &[100]),
    (libc::SYS_pread64, [3, P, 100, PAGE, S, S], &[100]),
    (libc::SYS_pwrite64, [3, P, 100, PAGE, S, S], &[100]),
    (libc::SYS_readv, [3, P, 3, S, S, S], &[48]),
    (libc::SYS_writev, [3, P, 1, S, S, S], &[16]),
    (libc::SYS_preadv, [3, P, 2, PAGE, 0, S], &[32]),
    (libc::SYS_pwritev, [3, P, 2, PAGE, 0, S], &[32]),
    (libc::SYS_preadv2, [3, P, 2, PAGE, 0, 0], &[32]),
    (libc::SYS_pwritev2, [3, P, 2, PAGE, 0, 0], &[32]),
    (libc::SYS_sendfile, [3, 4, P, PAGE, S, S], &[8]),
    (libc::SYS_splice, [3, P, 4, P, PAGE, 0], &[8, 8]),
    (libc::SYS_copy_file_range, [3, P, 4, P, PAGE, 0], &[8, 8]),
    (libc::SYS_tee, [3, 4, PAGE, 0, S, S], &[]),
    (libc::SYS_getrandom, [P, 32, 0, S, S, S], &[32]),
    (libc::SYS_accept, [3, P, P, S, S, S], &[128, 4]),
    (libc::SYS_accept4, [3, P, P, 0, S, S], &[128, 4]),
    (libc::SYS_connect, [3, P, 16, S, S, S], &[16]),
    (libc::SYS_sendto, [3, P, 10, 0, P, 28], &[10, 28]),
    (libc::SYS_recvfrom, [3, P, 10, 0, P, P], &[10, 128, 4]),
    (libc::SYS_sendmsg, [3, P, 0, S, S, S], &[56]),
    (libc::SYS_recvmsg, [3, P, 0, S, S, S], &[56]),
    (libc::SYS_sendmmsg, [3, P, 3, 0, S, S], &[192]),
    (libc::SYS_recvmmsg, [3, P, 3, 0, P, S], &[192, 16]),
    (libc::SYS_poll, [P, 5, 1000, S, S, S], &[40]),
    (libc::SYS_ppoll, [P, 5, P, 0, 8, S], &[40, 16]),
    // 65 descriptors take two words.
    (libc::SYS_select, [65, P, P, P, P, S], &[16, 16, 16, 16]),
    (libc::SYS_pselect6, [64, P, P, P, P, P], &[8, 8, 8, 16, 16]),
    (libc::SYS_epoll_wait, [3, P, 7, 1000, S, S], &[84]),
    (libc::SYS_epoll_pwait, [3, P, 7, 1000, 0, 8], &[84]),
    (libc::SYS_epoll_pwait2, [3, P, 7, P, 0, 8], &[84, 16]),
    (libc::SYS_futex, [P, WAIT, 1, P, S, S], &[4, 16]),
    (libc::SYS_futex, [P, WAIT_BITSET, 1, P, S, 1], &[4, 16]),
    (libc::SYS_futex, [P, LOCK, 0, P, S, S], &[4, 16]),
    (libc::SYS_futex, [P, WAIT_REQUEUE, 1, P, P, S], &[4, 16, 4]),
    // Private waiters are found without their futex.
    (libc::SYS_futex, [S, WAKE, 1, S, S, S], &[]),
    (libc::SYS_futex, [P, libc::FUTEX_WAKE as u64, 1, S, S, S], &[4]),
    (libc::SYS_futex, [P, REQUEUE, 1, PAGE, P, 1], &[4, 4]),
    (libc::SYS_futex_waitv, [P, 2, 0, P, 1, S], &[48, 16]),
    (libc::SYS_wait4, [1, P, 0, P, S, S], &[4, 144]),
    (libc::SYS_waitid, [1, 2, P, 4, P, S], &[128, 144]),
    (libc::SYS_rt_sigtimedwait, [P, P, P, 8, S, S], &[8, 128, 16]),
    (libc::SYS_pause, [S, S, S, S, S, S], &[]),
    (libc::SYS_sched_yield, [S, S, S, S, S, S], &[]),
    (libc::SYS_nanosleep, [P, P, S, S, S, S], &[16, 16]),
    (libc::SYS_clock_nanosleep, [0, 0, P, P, S, S], &[16, 16]),
    (libc::SYS_semop, [3, P, 2, S, S, S], &[12]),
    (libc::SYS_semtimedop, [3, P, 2, P, S, S], &[12, 16]),
    (libc::SYS_msgsnd, [3, P, 100, 0, S, S], &[108]),
    (libc::SYS_msgrcv, [3, P, 100, PAGE, 0, S], &[108]),
    (libc::SYS_mq_timedsend, [3, P, 100, PAGE, P, S], &[100, 16]),
    (
        libc::SYS_mq_timedreceive,
        [3, P, 100, P, P, S],
        &[100, 4, 16],
    ),
    (libc::SYS_flock, [3, 2, S, S, S, S], &[]),
    (
        libc::SYS_fcntl,
        [3, libc::F_SETLKW as u64, P, S, S, S],
        &[32],
    ),
    (
        libc::SYS_fcntl,
        [3, libc::F_OFD_SETLKW as u64, P, S, S, S],
        &[32],
    ),
    (libc::SYS_fsync, [3, S, S, S, S, S], &[]),
    (libc::SYS_fdatasync, [3, S, S, S, S, S], &[]),
    (libc::SYS_sync, [S, S, S, S, S, S], &[]),
    (libc::SYS_syncfs, [3, S, S, S, S, S], &[]),
    (libc::SYS_sync_file_range, [3, PAGE, PAGE, 7, S, S], &[]),
    // Where nothing else is written, a zero byte.
    (libc::SYS_open, [P, 0, 0, S, S, S], &[1]),
    (libc::SYS_openat, [3, P, 0, 0, S, S], &[1]),
    (libc::SYS_close, [3, S, S, S, S, S], &[]),
    (libc::SYS_stat, [ELSEWHERE, P, S, S, S, S], &[size::<libc::stat>()]),
    (libc::SYS_lstat, [ELSEWHERE, P, S, S, S, S], &[size::<libc::stat>()]),
    (libc::SYS_fstat, [3, P, S, S, S, S], &[size::<libc::stat>()]),
    (libc::SYS_newfstatat, [3, ELSEWHERE, P, 0, S, S], &[size::<libc::stat>()]),
    (libc::SYS_statx, [3, ELSEWHERE, 0, 0, P, S], &[size::<libc::statx>()]),
    (libc::SYS_statfs, [ELSEWHERE, P, S, S, S, S], &[size::<libc::statfs>()]),
    (libc::SYS_fstatfs, [3, P, S, S, S, S], &[size::<libc::statfs>()]),
    (libc::SYS_pipe, [P, S, S, S, S, S], &[size::<[i32; 2]>()]),
    (libc::SYS_pipe2, [P, 0, S, S, S, S], &[size::<[i32; 2]>()]),
    (libc::SYS_socketpair, [1, 1, 0, P, S, S], &[size::<[i32; 2]>()]),
    (libc::SYS_bind, [3, P, 16, S, S, S], &[16]),
    (libc::SYS_getsockname, [3, P, P, S, S, S], &[128, 4]),
    (libc::SYS_getpeername, [3, P, P, S, S, S], &[128, 4]),
    (libc::SYS_getitimer, [0, P, S, S, S, S], &[size::<libc::itimerval>()]),
    (libc::SYS_setitimer, [0, P, P, S, S, S], &[size::<libc::itimerval>(); 2]),
    (libc::SYS_timer_create, [0, P, P, S, S, S], &[size::<libc::sigevent>(), 4]),
    (libc::SYS_timer_settime, [0, 0, P, P, S, S], &[size::<libc::itimerspec>(); 2]),
    (libc::SYS_timer_gettime, [0, P, S, S, S, S], &[size::<libc::itimerspec>()]),
    (libc::SYS_timerfd_settime, [3, 0, P, P, S, S], &[size::<libc::itimerspec>(); 2]),
    (libc::SYS_timerfd_gettime, [3, P, S, S, S, S], &[size::<libc::itimerspec>()]),
    (libc::SYS_uname, [P, S, S, S, S, S], &[size::<libc::utsname>()]),
    (libc::SYS_sysinfo, [P, S, S, S, S, S], &[size::<libc::sysinfo>()]),
    (libc::SYS_times, [P, S, S, S, S, S], &[size::<libc::tms>()]),
    (libc::SYS_getrusage, [0, P, S, S, S, S], &[size::<libc::rusage>()]),
    (libc::SYS_getrlimit, [0, P, S, S, S, S], &[size::<libc::rlimit>()]),
    (libc::SYS_prlimit64, [0, 0, P, P, S, S], &[size::<libc::rlimit64>(); 2]),
    (libc::SYS_gettimeofday, [P, P, S, S, S, S], &[size::<libc::timeval>(), size::<[i32; 2]>()]),
    (libc::SYS_time, [P, S, S, S, S, S], &[size::<libc::time_t>()]),
    (libc::SYS_clock_gettime, [0, P, S, S, S, S], &[size::<libc::timespec>()]),
    (libc::SYS_clock_getres, [0, P, S, S, S, S], &[size::<libc::timespec>()]),
    (libc::SYS_sched_rr_get_interval, [0, P, S, S, S, S], &[size::<libc::timespec>()]),
    (libc::SYS_sched_setparam, [0, P, S, S, S, S], &[size::<libc::sched_param>()]),
    (libc::SYS_sched_getparam, [0, P, S, S, S, S], &[size::<libc::sched_param>()]),
    (libc::SYS_sched_setscheduler, [0, 0, P, S, S, S], &[size::<libc::sched_param>()]),
    (libc::SYS_sched_setaffinity, [0, 24, P, S, S, S], &[24]),
    (libc::SYS_sched_getaffinity, [0, 128, P, S, S, S], &[128]),
    (libc::SYS_getcpu, [P, P, S, S, S, S], &[4, 4]),
    (libc::SYS_getdents, [3, P, 100, S, S, S], &[100]),
    (libc::SYS_getdents64, [3, P, 100, S, S, S], &[100]),
    (libc::SYS_getcwd, [P, 100, S, S, S, S], &[100]),
    (libc::SYS_readlink, [ELSEWHERE, P, 100, S, S, S], &[100]),
    (libc::SYS_readlinkat, [3, ELSEWHERE, P, 100, S, S], &[100]),
    (libc::SYS_rt_sigpending, [P, 8, S, S, S, S], &[8]),
    (libc::SYS_rt_sigqueueinfo, [1, 2, P, S, S, S], &[size::<libc::siginfo_t>()]),
    (libc::SYS_rt_tgsigqueueinfo, [1, 2, 3, P, S, S], &[size::<libc::siginfo_t>()]),
    (libc::SYS_pidfd_send_signal, [3, 2, P, 0, S, S], &[size::<libc::siginfo_t>()]),
    (libc::SYS_signalfd, [3, P, 8, S, S, S], &[8]),
    (libc::SYS_signalfd4, [3, P, 8, 0, S, S], &[8]),
    (libc::SYS_epoll_ctl, [3, 1, 4, P, S, S], &[size::<libc::epoll_event>()]),
    (libc::SYS_utimes, [ELSEWHERE, P, S, S, S, S], &[size::<[libc::timeval; 2]>()]),
    (libc::SYS_utimensat, [3, ELSEWHERE, P, 0, S, S], &[size::<[libc::timespec; 2]>()]),
    (libc::SYS_mq_getsetattr, [3, P, P, S, S, S], &[size::<libc::mq_attr>(); 2]),
    (libc::SYS_openat2, [3, ELSEWHERE, P, 24, S, S], &[24]),
    (names::SYS_futex_wake, [P, 1, 1, 2, S, S], &[8]),
    (names::SYS_futex_wait, [P, 1, 1, 2, P, 1], &[8, 16]),
    (libc::SYS_fcntl, [3, libc::F_SETLK as u64, P, S, S, S], &[size::<libc::flock>()]),
    (libc::SYS_fcntl, [3, libc::F_GETLK as u64, P, S, S, S], &[size::<libc::flock>()]),
    (libc::SYS_fcntl, [3, libc::F_GETFL as u64, S, S, S, S], &[]),
    (libc::SYS_fcntl, [3, libc::F_DUPFD_CLOEXEC as u64, S, S, S, S], &[]),
];

/// Size of a type of the C library, in bytes; the kernel's is the same in the calls above.
const fn size<T>() -> u64 {
    size_of::<T>() as u64
}

/// Which arguments are paths.
#[rustfmt::skip]
const PATHS: &[(i64, &[usize])] = &[
    (libc::SYS_open, &[0]), (libc::SYS_stat, &[0]), (libc::SYS_lstat, &[0]), (libc::SYS_access, &[0]),
    (libc::SYS_truncate, &[0]), (libc::SYS_chdir, &[0]), (libc::SYS_rename, &[0, 1]),
    (libc::SYS_mkdir, &[0]), (libc::SYS_rmdir, &[0]), (libc::SYS_creat, &[0]), (libc::SYS_link, &[0, 1]),
    (libc::SYS_unlink, &[0]), (libc::SYS_symlink, &[0, 1]), (libc::SYS_readlink, &[0]),
    (libc::SYS_chmod, &[0]), (libc::SYS_chown, &[0]), (libc::SYS_lchown, &[0]), (libc::SYS_statfs, &[0]),
    (libc::SYS_utimes, &[0]), (libc::SYS_mq_unlink, &[0]), (libc::SYS_inotify_add_watch, &[1]),
    (libc::SYS_openat, &[1]), (libc::SYS_mkdirat, &[1]), (libc::SYS_mknodat, &[1]),
    (libc::SYS_fchownat, &[1]), (libc::SYS_newfstatat, &[1]), (libc::SYS_unlinkat, &[1]),
    (libc::SYS_renameat, &[1, 3]), (libc::SYS_linkat, &[1, 3]), (libc::SYS_symlinkat, &[0, 2]),
    (libc::SYS_readlinkat, &[1]), (libc::SYS_fchmodat, &[1]), (libc::SYS_faccessat, &[1]),
    (libc::SYS_utimensat, &[1]), (libc::SYS_renameat2, &[1, 3]), (libc::SYS_statx, &[1]),
    (libc::SYS_openat2, &[1]), (libc::SYS_faccessat2, &[1]), (libc::SYS_fchmodat2, &[1]),
];

/// Calls that take numbers only.
#[rustfmt::skip]
const WITHOUT_POINTERS: &[i64] = &[
    libc::SYS_lseek, libc::SYS_dup, libc::SYS_dup2, libc::SYS_dup3, libc::SYS_alarm, libc::SYS_getpid,
    libc::SYS_socket, libc::SYS_shutdown, libc::SYS_listen, libc::SYS_kill, libc::SYS_semget,
    libc::SYS_msgget, libc::SYS_ftruncate, libc::SYS_fchdir, libc::SYS_fchmod, libc::SYS_fchown,
    libc::SYS_umask, libc::SYS_getuid, libc::SYS_getgid, libc::SYS_geteuid, libc::SYS_getegid,
    libc::SYS_getppid, libc::SYS_getpgrp, libc::SYS_getpgid, libc::SYS_getsid, libc::SYS_getpriority,
    libc::SYS_setpriority, libc::SYS_sched_getscheduler, libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min, libc::SYS_gettid, libc::SYS_readahead, libc::SYS_tkill,
    libc::SYS_fadvise64, libc::SYS_timer_getoverrun, libc::SYS_timer_delete, libc::SYS_tgkill,
    libc::SYS_inotify_init, libc::SYS_inotify_rm_watch, libc::SYS_timerfd_create, libc::SYS_eventfd,
    libc::SYS_fallocate, libc::SYS_eventfd2, libc::SYS_epoll_create1, libc::SYS_inotify_init1,
    libc::SYS_membarrier, libc::SYS_pidfd_open, libc::SYS_pidfd_getfd,
];

const PRIVATE: u64 = libc::FUTEX_PRIVATE_FLAG as u64;
const WAIT: u64 = libc::FUTEX_WAIT as u64 | PRIVATE;
const WAIT_BITSET: u64 = libc::FUTEX_WAIT_BITSET as u64 | libc::FUTEX_CLOCK_REALTIME as u64;
const LOCK: u64 = libc::FUTEX_LOCK_PI as u64;
const WAIT_REQUEUE: u64 = libc::FUTEX_WAIT_REQUEUE_PI as u64 | PRIVATE;
const WAKE: u64 = libc::FUTEX_WAKE as u64 | PRIVATE;
const REQUEUE: u64 = libc::FUTEX_CMP_REQUEUE as u64 | PRIVATE;

/// The arguments with `pointer` as pointer number `turn`; other pointers lead elsewhere.
fn given(arguments: [u64; 6], turn: usize, pointer: u64, stale: u64) -> [u64; 6] {
    let mut pointers = 0;
    arguments.map(|argument| match argument {
        S => stale,
        P => {
            pointers += 1;
            if pointers - 1 == turn {
                pointer
            } else {
                ELSEWHERE
            }
        }
        other => other,
    })
}

#[test]
fn calls_are_sorted_and_have_their_numbers() {
    assert!(CALLS.is_sorted_by(|a, b| a.0 < b.0));
    for (number, named) in NAMED {
        assert_eq!(number, named);
    }
}

#[test]
fn each_call_is_tried() {
    // Their arguments are tried in tests of their own, or change nothing.
    let others = [libc::SYS_rt_sigsuspend, libc::SYS_restart_syscall];
    for (number, _) in CALLS {
        let is_tried = WAITS.iter().any(|w| w.0 == *number)
            || PATHS.iter().any(|p| p.0 == *number)
            || WITHOUT_POINTERS.contains(number)
            || others.contains(number);
        assert!(is_tried, "{number} is not tried");
    }
}

#[test]
fn calls_without_pointers_use_nothing() {
    for number in WITHOUT_POINTERS {
        assert!(!is_in_the_way(*number, [PAGE; 6]), "{number}");
    }
}

#[test]
fn paths_are_arguments_of_these_calls() {
    for &(number, places) in PATHS {
        let is_more = WAITS.iter().any(|w| w.0 == number);
        let others = if is_more { 0 } else { PAGE };
        for place in places {
            for (at, wanted) in [(PAGE - 8, false), (PAGE - 7, true)] {
                let mut arguments = [others; 6];
                places.iter().for_each(|p| arguments[*p] = ELSEWHERE);
                arguments[*place] = at;
                let program = Program::default().with_bytes(at, b"aaaaaaa\0");
                let meets = program.is_in_the_way(number, arguments);
                assert_eq!(meets, wanted, "argument {place} of {number}");
            }
        }
    }
}

#[test]
fn a_pointer_leads_to_as_many_bytes_as_the_call_uses() {
    for &(number, arguments, sizes) in WAITS {
        let pointers = arguments.iter().filter(|a| **a == P).count();
        assert_eq!(pointers, sizes.len(), "{number}");
        for (turn, &bytes) in sizes.iter().enumerate() {
            let meets = |at| is_in_the_way(number, given(arguments, turn, at, ELSEWHERE));
            let what = format!("argument {turn} of {number}");
            assert!(!meets(PAGE - bytes), "{what} ends before the page");
            assert!(meets(PAGE - bytes + 1), "{what} ends in the page");
            assert!(meets(PAGE), "{what} begins with the page");
            assert!(meets(END - 1), "{what} begins in the page");
            assert!(!meets(END), "{what} begins behind the page");
            assert!(!meets(0), "{what} is null");
        }
    }
}

/// The case that led to the table: `read(0, …, 1)` on a distant stack, and a stale `r9` that
/// pointed to the program's constants below the page.
#[test]
fn a_register_that_read_does_not_have_is_in_nobodys_way() {
    for stale in [PAGE - (26 << 10), PAGE, PAGE + 8] {
        let arguments = [0, ELSEWHERE, 1, stale, stale, stale];
        assert!(!is_in_the_way(libc::SYS_read, arguments), "{stale:#x}");
    }
}

fn anything() -> impl Strategy<Value = u64> {
    prop_oneof![
        PAGE - 0x2_0000..END + 0x1000,
        Just(PAGE),
        Just(0),
        Just(u64::MAX),
        any::<u64>(),
    ]
}

proptest! {
    #[test]
    fn registers_that_a_call_does_not_use_are_ignored(
        (wait, stale) in (0..WAITS.len(), proptest::array::uniform6(anything())),
    ) {
        let (number, arguments, _) = WAITS[wait];
        let mut all = given(arguments, usize::MAX, 0, 0);
        for (i, argument) in all.iter_mut().enumerate() {
            if arguments[i] == S {
                *argument = stale[i];
            }
        }
        prop_assert!(!is_in_the_way(number, all), "{number}: {all:x?}");
    }

    /// The tool neither panics nor reads without a bound, whatever registers and memory hold.
    #[test]
    fn any_call_gets_an_answer(
        (wait, all, words) in (
            0..CALLS.len(),
            proptest::array::uniform6(anything()),
            proptest::collection::vec(anything(), 64),
        ),
        at in prop_oneof![Just(ELSEWHERE), Just(UNMAPPED)],
    ) {
        const MOST: usize = (1 << 20) + (16 << 10);
        let number = CALLS[wait].0;
        let program = Program::default().with(ELSEWHERE, &words);
        let all = all.map(|a| if a == 0 { at } else { a });
        program.is_in_the_way(number, all);
        prop_assert!(program.read.get() < MOST, "{}", program.read.get());
    }
}

#[test]
fn vectors_are_followed() {
    for number in [libc::SYS_readv, libc::SYS_pwritev2] {
        let with = |words: &[u64], count| {
            let program = Program::default().with(ELSEWHERE, words);
            program.is_in_the_way(number, [3, ELSEWHERE, count, 0, 0, 0])
        };
        let far = [ELSEWHERE, 64];
        assert!(!with(&[far, far].concat(), 2));
        assert!(with(&[far, [PAGE - 63, 64]].concat(), 2));
        assert!(!with(&[far, [PAGE - 64, 64]].concat(), 2));
        assert!(!with(&[far, [PAGE, 0]].concat(), 2), "an empty vector");
        assert!(!with(&[far, [PAGE, 64]].concat(), 1), "beyond the count");
        assert!(
            with(&[far, [PAGE - 1, u64::MAX]].concat(), 2),
            "a length beyond the limit"
        );
        assert!(!with(&[far, [u64::MAX, u64::MAX]].concat(), 2));
        // More than are read at once.
        let mut many = far.repeat(1024);
        assert!(!with(&many, 1024));
        many[2 * 1023] = PAGE;
        assert!(with(&many, 1024));
        assert!(!with(&many, 1023));
        // More than the kernel takes: it would have refused the call, so any memory counts.
        for count in [1025, 1 << 32, u64::MAX] {
            assert!(with(&many, count), "{count:#x}");
        }
    }
}

#[test]
fn what_cant_be_read_counts_as_any_memory() {
    for number in [libc::SYS_readv, libc::SYS_sendmsg, libc::SYS_recvmmsg] {
        assert!(is_in_the_way(number, [3, UNMAPPED, 1, 0, 0, 0]));
        assert!(is_in_the_way(number, [3, u64::MAX - 8, 1, 0, 0, 0]));
    }
    let waiters = [UNMAPPED, 1, 0, 0, 0, 0];
    assert!(is_in_the_way(libc::SYS_futex_waitv, waiters));
    let path = [0, UNMAPPED, 0, 0, 0, 0];
    assert!(is_in_the_way(libc::SYS_openat, path));
    let mask = [0, 0, 0, 0, 0, UNMAPPED];
    assert!(is_in_the_way(libc::SYS_pselect6, mask));
    // Only a part can be read.
    let number = libc::SYS_writev;
    let end = ELSEWHERES_END - 16;
    let program = Program::default();
    assert!(!program.is_in_the_way(number, [3, end, 1, 0, 0, 0]));
    assert!(program.is_in_the_way(number, [3, end, 2, 0, 0, 0]));
}

#[test]
fn messages_are_followed() {
    const VECTORS: u64 = ELSEWHERE + 0x1000;
    let vectors = [ELSEWHERE, 8, ELSEWHERE, 8];
    let quiet = [ELSEWHERE, 16, VECTORS, 2, ELSEWHERE, 64, 0, 0];
    // A field of a message, and whether its value is in the way.
    let cases = [
        ([0, 0, 0, 0, 0, 0, 0, 0], false),
        (quiet, false),
        ([PAGE - 15, 16, VECTORS, 2, 0, 0, 0, 0], true),
        ([PAGE - 16, 16, VECTORS, 2, 0, 0, 0, 0], false),
        // The four bytes beside the length mean nothing.
        ([PAGE, 7 << 32, VECTORS, 2, 0, 0, 0, 0], false),
        // The kernel takes no longer address.
        ([PAGE - 127, 0xffff_ffff, 0, 0, 0, 0, 0, 0], true),
        ([PAGE - 128, 0xffff_ffff, 0, 0, 0, 0, 0, 0], false),
        ([0, 0, VECTORS, 2, PAGE - 63, 64, 0, 0], true),
        ([0, 0, VECTORS, 2, PAGE - 64, 64, 0, 0], false),
        ([0, 0, VECTORS, 2, PAGE, 0, 0, 0], false),
        ([0, 0, VECTORS, 3, 0, 0, 0, 0], true),
        ([0, 0, PAGE - 15, 1, 0, 0, 0, 0], true),
        ([0, 0, UNMAPPED, 1, 0, 0, 0, 0], true),
        ([0, 0, VECTORS, 1025, 0, 0, 0, 0], true),
    ];
    for (message, wanted) in cases {
        let program = || {
            Program::default()
                .with(VECTORS, &[&vectors[..], &[PAGE, 1]].concat())
                .with(ELSEWHERE, &[&quiet[..], &message].concat())
        };
        for number in [libc::SYS_recvmsg, libc::SYS_sendmsg] {
            let arguments = [3, ELSEWHERE + 64, 0, PAGE, PAGE, PAGE];
            let got = program().is_in_the_way(number, arguments);
            assert_eq!(got, wanted, "{number}: {message:x?}");
        }
        for number in [libc::SYS_recvmmsg, libc::SYS_sendmmsg] {
            let mut arguments = [3, ELSEWHERE, 2, 0, 0, PAGE];
            let got = program().is_in_the_way(number, arguments);
            assert_eq!(got, wanted, "{number}: {message:x?}");
            arguments[2] = 1;
            assert!(!program().is_in_the_way(number, arguments));
        }
    }
}

/// A thousand messages of a thousand vectors each would take long to read.
#[test]
fn messages_of_many_vectors_are_not_all_read() {
    const VECTORS: u64 = ELSEWHERE + 0x1_0000;
    let messages = [0, 0, VECTORS, 1024, 0, 0, 0, 0].repeat(1024);
    let number = libc::SYS_sendmmsg;
    let program = Program::default()
        .with(VECTORS, &[0; 2048])
        .with(ELSEWHERE, &messages);
    assert!(!program.is_in_the_way(number, [3, ELSEWHERE, 16, 0, 0, 0]));
    program.read.set(0);
    assert!(program.is_in_the_way(number, [3, ELSEWHERE, 1024, 0, 0, 0]));
    assert!(program.read.get() < 1 << 20, "{}", program.read.get());
    for count in [1025, 0xffff_ffff] {
        assert!(program.is_in_the_way(number, [3, ELSEWHERE, count, 0, 0, 0]));
    }
}

#[test]
fn futexes_that_are_waited_for_are_followed() {
    let number = libc::SYS_futex_waitv;
    for (word, wanted) in [(ELSEWHERE, false), (PAGE + 4, true), (END, false)] {
        let program = Program::default().with(ELSEWHERE, &[0, 0, 2, 0, word, 2]);
        let got = program.is_in_the_way(number, [ELSEWHERE, 2, 0, 0, 0, PAGE]);
        assert_eq!(got, wanted, "{word:#x}");
    }
    assert!(!is_in_the_way(number, [ELSEWHERE, 128, 0, 0, 0, 0]));
    assert!(is_in_the_way(number, [ELSEWHERE, 129, 0, 0, 0, 0]));
}

#[test]
fn paths_end_with_their_zero_byte() {
    let number = libc::SYS_openat;
    let meets = |path: &[u8], at: u64| {
        let program = Program::default().with_bytes(at, path);
        program.is_in_the_way(number, [0, at, 0, 0, PAGE, PAGE])
    };
    for len in [1, 63, 64, 65, 300, 4000] {
        let path = [&vec![b'a'; len - 1][..], &[0]].concat();
        let len = len as u64;
        assert!(!meets(&path, PAGE - len), "{len}");
        assert!(meets(&path, PAGE - len + 1), "{len}");
    }
    // A path without an end.
    let path = vec![b'a'; 0x1000];
    assert!(!meets(&path, PAGE - 0x1000));
    assert!(meets(&path, PAGE - 0xfff));
}

#[test]
fn counts_are_taken_as_the_kernel_takes_them() {
    // For an `int`, half of the register counts.
    let garbage = 0xdead_beef_0000_0001;
    let poll = |count| is_in_the_way(libc::SYS_poll, [PAGE - 8, count, 0, 0, 0, 0]);
    assert!(!poll(garbage));
    assert!(poll(garbage + 1));
    assert!(poll(0xffff_ffff));
    let epoll = |count| is_in_the_way(libc::SYS_epoll_wait, [3, PAGE - 12, count, 0, 0, 0]);
    assert!(!epoll(garbage));
    assert!(epoll(garbage + 1));
    // For a `size_t`, all of it; but no call transfers more than 2 GiB.
    let read = |at, count| is_in_the_way(libc::SYS_read, [0, at, count, 0, 0, 0]);
    assert!(read(PAGE - 8, garbage));
    assert!(read(PAGE - (1 << 30), u64::MAX));
    assert!(!read(0x1000, 1 << 30));
    assert!(!read(u64::MAX, u64::MAX), "its end would overflow");
    let message = |at, count| is_in_the_way(libc::SYS_msgrcv, [0, at, count, 0, 0, 0]);
    assert!(message(PAGE - 8, u64::MAX));
    // The kernel takes no longer address.
    let connect = |at| is_in_the_way(libc::SYS_connect, [0, at, 0xffff_ffff, 0, 0, 0]);
    assert!(connect(PAGE - 127));
    assert!(!connect(PAGE - 128));
}

#[test]
fn a_mask_for_the_time_of_the_call_hides_another() {
    for (number, place) in [
        (libc::SYS_ppoll, 3),
        (libc::SYS_epoll_pwait, 4),
        (libc::SYS_epoll_pwait2, 4),
        (libc::SYS_rt_sigsuspend, 0),
    ] {
        let mut arguments = [0; 6];
        assert!(!is_in_the_way(number, arguments), "{number}");
        arguments[place] = ELSEWHERE;
        assert!(is_in_the_way(number, arguments), "{number}");
    }
    let number = libc::SYS_pselect6;
    for (words, wanted) in [([0, 8], false), ([ELSEWHERE, 8], true)] {
        let program = Program::default().with(ELSEWHERE, &words);
        let got = program.is_in_the_way(number, [0, 0, 0, 0, 0, ELSEWHERE]);
        assert_eq!(got, wanted);
    }
}

#[test]
fn operations_decide_what_is_a_pointer() {
    let futex = |operation: i32, fourth, fifth| {
        let arguments = [ELSEWHERE, operation as u64, 1, fourth, fifth, PAGE];
        is_in_the_way(libc::SYS_futex, arguments)
    };
    // A wait has no second futex. Operations that wake or requeue have a count of threads in place
    // of the time limit.
    assert!(!futex(libc::FUTEX_WAIT, 0, PAGE));
    assert!(!futex(libc::FUTEX_WAKE, PAGE, PAGE));
    assert!(!futex(libc::FUTEX_CMP_REQUEUE, PAGE, ELSEWHERE));
    assert!(futex(libc::FUTEX_CMP_REQUEUE, 0, PAGE));
    // Operations that do not exist.
    for operation in [14, 64, 1 << 20, -1] {
        assert!(futex(operation, 0, 0), "{operation}");
    }
    // The upper half of the register means nothing.
    let arguments = [ELSEWHERE, WAIT | 7 << 32, 1, 0, PAGE, PAGE];
    assert!(!is_in_the_way(libc::SYS_futex, arguments));
    for command in [libc::F_SETLEASE, libc::F_SETOWN, 1500, -1] {
        let arguments = [3, command as u64, 0, 0, 0, 0];
        assert!(is_in_the_way(libc::SYS_fcntl, arguments), "{command}");
    }
}

/// They are in the way even of pages that no register points to.
#[test]
fn calls_that_are_not_in_the_table_are_always_in_the_way() {
    for number in [
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_mprotect,
        libc::SYS_madvise,
        libc::SYS_brk,
        libc::SYS_shmat,
        libc::SYS_remap_file_pages,
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_fork,
        libc::SYS_vfork,
        libc::SYS_execve,
        libc::SYS_exit,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_ioctl,
        libc::SYS_io_uring_enter,
        libc::SYS_io_getevents,
        libc::SYS_vmsplice,
        libc::SYS_process_vm_readv,
        // The same number in the x32 ABI, and no call at all.
        0x4000_0000 | libc::SYS_read,
        -1,
        i64::MAX,
    ] {
        assert!(is_in_the_way(number, [0; 6]), "{number}");
    }
}
