//! The kernel's calls and their arguments. Sources: `include/linux/syscalls.h` and
//! `include/uapi/asm-generic/unistd.h` of Linux for the arguments, section 2 of the manual for their
//! meaning. Sources of sizes stand beside them.
//!
//! These calls are left out on purpose, so that any memory counts as used:
//! - calls that change mappings, their sharing or the handling of signals, and calls that make, end
//!   or confine processes and threads;
//! - `io_uring_enter`, `io_submit`, `io_getevents`, `io_pgetevents`, `vmsplice`: the kernel also uses
//!   memory that it was given earlier;
//! - `process_vm_readv` and its brothers: they take addresses in another process, which may be the
//!   caller;
//! - `ioctl`, `bpf` and others whose arguments differ by device or command.

use Extent::{
    Address, Bits, Bytes, Elements, Exactly, Message, MessageText, Messages, Path, Vectors, Waiters,
};
use Pointer::{Mask, MaskBehind, Reads, Updates, Writes};
use Takes::{Always, AsBefore, ByOperation};

use crate::call::Argument::{self, Fifth, First, Fourth, Second, Sixth, Third};

/// `struct timespec`, `struct timeval`: two words.
const TIME: u64 = 16;
/// `struct itimerval`, `struct itimerspec`, and the two times of a file.
const TIMES: u64 = 2 * TIME;
/// `int` and `unsigned int`: states, lengths, priorities, futex words.
const INT: u64 = 4;
/// `loff_t`, a position in a file; `time_t`.
const LONG: u64 = 8;
/// Two descriptors.
const DESCRIPTORS: u64 = 8;
/// `struct pollfd` (asm-generic/poll.h).
const POLL: u64 = 8;
/// `struct epoll_event`, which is packed on this machine (linux/eventpoll.h).
const EVENT: u64 = 12;
/// `struct sembuf` (linux/sem.h).
const SEMAPHORE: u64 = 6;
/// `struct flock` (asm-generic/fcntl.h).
const LOCK: u64 = 32;
/// `siginfo_t` (asm-generic/siginfo.h).
const INFO: u64 = 128;
/// `sigevent_t` (asm-generic/siginfo.h).
const NOTICE: u64 = 64;
/// `struct rusage` (linux/resource.h).
const USAGE: u64 = 144;
/// `struct rlimit`, `struct rlimit64` (linux/resource.h).
const LIMIT: u64 = 16;
/// `struct stat` (asm/stat.h).
const STAT: u64 = 144;
/// `struct statx` (linux/stat.h).
const STATX: u64 = 256;
/// `struct statfs` (asm-generic/statfs.h).
const STATFS: u64 = 120;
/// `struct new_utsname` (linux/utsname.h): six names of 65 bytes.
const UTSNAME: u64 = 390;
/// `struct sysinfo` (linux/sysinfo.h).
const SYSINFO: u64 = 112;
/// `struct tms` (linux/times.h).
const TMS: u64 = 32;
/// `struct timezone` (linux/time.h).
const ZONE: u64 = 8;
/// `struct mq_attr` (linux/mqueue.h).
const QUEUE: u64 = 64;
/// The kernel's `sigset_t`.
const SET: u64 = 8;
/// `struct sockaddr_storage` (linux/socket.h): the kernel reads and writes no more than this.
pub const SOCKET_ADDRESS: u64 = 128;
/// The word of a futex of `futex_wait` and `futex_waitv`: 4 bytes at present, up to 8 by its flags
/// (linux/futex.h).
pub const WORD: u64 = 8;

/// How many bytes an argument points to.
#[derive(Clone, Copy, Debug)]
pub enum Extent {
    /// This many bytes.
    Exactly(u64),
    /// As many bytes as the other argument says, a `size_t`.
    Bytes(Argument),
    /// `struct msgbuf` with as many bytes of text as the other argument says.
    MessageText(Argument),
    /// A socket address of as many bytes as the other argument says, an `int`.
    Address(Argument),
    /// As many elements as the other argument says, an `int`, of this many bytes each.
    Elements(Argument, u64),
    /// As many bits as the other argument says, an `int`, in whole words.
    Bits(Argument),
    /// As many `struct iovec` as the other argument says, and their targets.
    Vectors(Argument),
    /// `struct msghdr`, and its targets.
    Message,
    /// As many `struct mmsghdr` as the other argument says, and their targets.
    Messages(Argument),
    /// As many `struct futex_waitv` as the other argument says, and their targets.
    Waiters(Argument),
    /// A path, to its zero byte.
    Path,
}

/// An argument that is a pointer.
#[derive(Clone, Copy, Debug)]
pub enum Pointer {
    /// The kernel reads there.
    Reads(Argument, Extent),
    /// The kernel writes there.
    Writes(Argument, Extent),
    /// The kernel reads and writes there.
    Updates(Argument, Extent),
    /// To a signal mask that replaces the thread's own during the call.
    Mask(Argument),
    /// To the address and size of such a mask.
    MaskBehind(Argument),
}

/// How the pointers among a call's arguments are found.
#[derive(Clone, Copy, Debug)]
pub enum Takes {
    /// These arguments are pointers.
    Always(&'static [Pointer]),
    /// The second argument says which ones are. For a value that is not known, any memory may be
    /// used.
    ByOperation(fn(u32) -> Option<&'static [Pointer]>),
    /// The call continues one of [`CONTINUED`], whose arguments are still in the registers.
    AsBefore,
}

/// The number of `restart_syscall`.
pub const RESTART: i64 = 219;

macro_rules! calls {
    ($($number:literal $name:ident $takes:expr;)*) => {
        /// All calls that are known, by number.
        const CALLS: &[(i64, Takes)] = &[$(($number, $takes)),*];

        /// Their numbers by their names.
        #[cfg(test)]
        const NAMED: &[(i64, i64)] = &[$(($number, names::$name)),*];
    };
}

#[rustfmt::skip]
calls! {
    0 SYS_read Always(&[Writes(Second, Bytes(Third))]);
    1 SYS_write Always(&[Reads(Second, Bytes(Third))]);
    2 SYS_open Always(&[Reads(First, Path)]);
    3 SYS_close Always(&[]);
    4 SYS_stat Always(&[Reads(First, Path), Writes(Second, Exactly(STAT))]);
    5 SYS_fstat Always(&[Writes(Second, Exactly(STAT))]);
    6 SYS_lstat Always(&[Reads(First, Path), Writes(Second, Exactly(STAT))]);
    7 SYS_poll Always(&[Updates(First, Elements(Second, POLL))]);
    8 SYS_lseek Always(&[]);
    17 SYS_pread64 Always(&[Writes(Second, Bytes(Third))]);
    18 SYS_pwrite64 Always(&[Reads(Second, Bytes(Third))]);
    19 SYS_readv Always(&[Writes(Second, Vectors(Third))]);
    20 SYS_writev Always(&[Reads(Second, Vectors(Third))]);
    21 SYS_access Always(&[Reads(First, Path)]);
    22 SYS_pipe Always(&[Writes(First, Exactly(DESCRIPTORS))]);
    23 SYS_select Always(&[
        Updates(Second, Bits(First)), Updates(Third, Bits(First)), Updates(Fourth, Bits(First)),
        Updates(Fifth, Exactly(TIME)),
    ]);
    24 SYS_sched_yield Always(&[]);
    32 SYS_dup Always(&[]);
    33 SYS_dup2 Always(&[]);
    34 SYS_pause Always(&[]);
    35 SYS_nanosleep Always(&[Reads(First, Exactly(TIME)), Writes(Second, Exactly(TIME))]);
    36 SYS_getitimer Always(&[Writes(Second, Exactly(TIMES))]);
    37 SYS_alarm Always(&[]);
    38 SYS_setitimer Always(&[Reads(Second, Exactly(TIMES)), Writes(Third, Exactly(TIMES))]);
    39 SYS_getpid Always(&[]);
    40 SYS_sendfile Always(&[Updates(Third, Exactly(LONG))]);
    41 SYS_socket Always(&[]);
    42 SYS_connect Always(&[Reads(Second, Address(Third))]);
    43 SYS_accept Always(&[Writes(Second, Exactly(SOCKET_ADDRESS)), Updates(Third, Exactly(INT))]);
    44 SYS_sendto Always(&[Reads(Second, Bytes(Third)), Reads(Fifth, Address(Sixth))]);
    45 SYS_recvfrom Always(&[
        Writes(Second, Bytes(Third)), Writes(Fifth, Exactly(SOCKET_ADDRESS)), Updates(Sixth, Exactly(INT)),
    ]);
    46 SYS_sendmsg Always(&[Reads(Second, Message)]);
    47 SYS_recvmsg Always(&[Updates(Second, Message)]);
    48 SYS_shutdown Always(&[]);
    49 SYS_bind Always(&[Reads(Second, Address(Third))]);
    50 SYS_listen Always(&[]);
    51 SYS_getsockname Always(&[Writes(Second, Exactly(SOCKET_ADDRESS)), Updates(Third, Exactly(INT))]);
    52 SYS_getpeername Always(&[Writes(Second, Exactly(SOCKET_ADDRESS)), Updates(Third, Exactly(INT))]);
    53 SYS_socketpair Always(&[Writes(Fourth, Exactly(DESCRIPTORS))]);
    61 SYS_wait4 Always(&[Writes(Second, Exactly(INT)), Writes(Fourth, Exactly(USAGE))]);
    62 SYS_kill Always(&[]);
    63 SYS_uname Always(&[Writes(First, Exactly(UTSNAME))]);
    64 SYS_semget Always(&[]);
    65 SYS_semop Always(&[Reads(Second, Elements(Third, SEMAPHORE))]);
    68 SYS_msgget Always(&[]);
    69 SYS_msgsnd Always(&[Reads(Second, MessageText(Third))]);
    70 SYS_msgrcv Always(&[Writes(Second, MessageText(Third))]);
    72 SYS_fcntl ByOperation(control);
    73 SYS_flock Always(&[]);
    74 SYS_fsync Always(&[]);
    75 SYS_fdatasync Always(&[]);
    76 SYS_truncate Always(&[Reads(First, Path)]);
    77 SYS_ftruncate Always(&[]);
    78 SYS_getdents Always(&[Writes(Second, Elements(Third, 1))]);
    79 SYS_getcwd Always(&[Writes(First, Bytes(Second))]);
    80 SYS_chdir Always(&[Reads(First, Path)]);
    81 SYS_fchdir Always(&[]);
    82 SYS_rename Always(&[Reads(First, Path), Reads(Second, Path)]);
    83 SYS_mkdir Always(&[Reads(First, Path)]);
    84 SYS_rmdir Always(&[Reads(First, Path)]);
    85 SYS_creat Always(&[Reads(First, Path)]);
    86 SYS_link Always(&[Reads(First, Path), Reads(Second, Path)]);
    87 SYS_unlink Always(&[Reads(First, Path)]);
    88 SYS_symlink Always(&[Reads(First, Path), Reads(Second, Path)]);
    89 SYS_readlink Always(&[Reads(First, Path), Writes(Second, Elements(Third, 1))]);
    90 SYS_chmod Always(&[Reads(First, Path)]);
    91 SYS_fchmod Always(&[]);
    92 SYS_chown Always(&[Reads(First, Path)]);
    93 SYS_fchown Always(&[]);
    94 SYS_lchown Always(&[Reads(First, Path)]);
    95 SYS_umask Always(&[]);
    96 SYS_gettimeofday Always(&[Writes(First, Exactly(TIME)), Writes(Second, Exactly(ZONE))]);
    97 SYS_getrlimit Always(&[Writes(Second, Exactly(LIMIT))]);
    98 SYS_getrusage Always(&[Writes(Second, Exactly(USAGE))]);
    99 SYS_sysinfo Always(&[Writes(First, Exactly(SYSINFO))]);
    100 SYS_times Always(&[Writes(First, Exactly(TMS))]);
    102 SYS_getuid Always(&[]);
    104 SYS_getgid Always(&[]);
    107 SYS_geteuid Always(&[]);
    108 SYS_getegid Always(&[]);
    110 SYS_getppid Always(&[]);
    111 SYS_getpgrp Always(&[]);
    121 SYS_getpgid Always(&[]);
    124 SYS_getsid Always(&[]);
    127 SYS_rt_sigpending Always(&[Writes(First, Exactly(SET))]);
    128 SYS_rt_sigtimedwait Always(&[
        Reads(First, Exactly(SET)), Writes(Second, Exactly(INFO)), Reads(Third, Exactly(TIME)),
    ]);
    129 SYS_rt_sigqueueinfo Always(&[Reads(Third, Exactly(INFO))]);
    130 SYS_rt_sigsuspend Always(&[Mask(First)]);
    137 SYS_statfs Always(&[Reads(First, Path), Writes(Second, Exactly(STATFS))]);
    138 SYS_fstatfs Always(&[Writes(Second, Exactly(STATFS))]);
    140 SYS_getpriority Always(&[]);
    141 SYS_setpriority Always(&[]);
    142 SYS_sched_setparam Always(&[Reads(Second, Exactly(INT))]);
    143 SYS_sched_getparam Always(&[Writes(Second, Exactly(INT))]);
    144 SYS_sched_setscheduler Always(&[Reads(Third, Exactly(INT))]);
    145 SYS_sched_getscheduler Always(&[]);
    146 SYS_sched_get_priority_max Always(&[]);
    147 SYS_sched_get_priority_min Always(&[]);
    148 SYS_sched_rr_get_interval Always(&[Writes(Second, Exactly(TIME))]);
    162 SYS_sync Always(&[]);
    186 SYS_gettid Always(&[]);
    187 SYS_readahead Always(&[]);
    200 SYS_tkill Always(&[]);
    201 SYS_time Always(&[Writes(First, Exactly(LONG))]);
    202 SYS_futex ByOperation(futex);
    203 SYS_sched_setaffinity Always(&[Reads(Third, Elements(Second, 1))]);
    204 SYS_sched_getaffinity Always(&[Writes(Third, Elements(Second, 1))]);
    217 SYS_getdents64 Always(&[Writes(Second, Elements(Third, 1))]);
    219 SYS_restart_syscall AsBefore;
    220 SYS_semtimedop Always(&[Reads(Second, Elements(Third, SEMAPHORE)), Reads(Fourth, Exactly(TIME))]);
    221 SYS_fadvise64 Always(&[]);
    222 SYS_timer_create Always(&[Reads(Second, Exactly(NOTICE)), Writes(Third, Exactly(INT))]);
    223 SYS_timer_settime Always(&[Reads(Third, Exactly(TIMES)), Writes(Fourth, Exactly(TIMES))]);
    224 SYS_timer_gettime Always(&[Writes(Second, Exactly(TIMES))]);
    225 SYS_timer_getoverrun Always(&[]);
    226 SYS_timer_delete Always(&[]);
    228 SYS_clock_gettime Always(&[Writes(Second, Exactly(TIME))]);
    229 SYS_clock_getres Always(&[Writes(Second, Exactly(TIME))]);
    230 SYS_clock_nanosleep Always(&[Reads(Third, Exactly(TIME)), Writes(Fourth, Exactly(TIME))]);
    232 SYS_epoll_wait Always(&[Writes(Second, Elements(Third, EVENT))]);
    233 SYS_epoll_ctl Always(&[Reads(Fourth, Exactly(EVENT))]);
    234 SYS_tgkill Always(&[]);
    235 SYS_utimes Always(&[Reads(First, Path), Reads(Second, Exactly(TIMES))]);
    241 SYS_mq_unlink Always(&[Reads(First, Path)]);
    242 SYS_mq_timedsend Always(&[Reads(Second, Bytes(Third)), Reads(Fifth, Exactly(TIME))]);
    243 SYS_mq_timedreceive Always(&[
        Writes(Second, Bytes(Third)), Writes(Fourth, Exactly(INT)), Reads(Fifth, Exactly(TIME)),
    ]);
    245 SYS_mq_getsetattr Always(&[Reads(Second, Exactly(QUEUE)), Writes(Third, Exactly(QUEUE))]);
    247 SYS_waitid Always(&[Writes(Third, Exactly(INFO)), Writes(Fifth, Exactly(USAGE))]);
    253 SYS_inotify_init Always(&[]);
    254 SYS_inotify_add_watch Always(&[Reads(Second, Path)]);
    255 SYS_inotify_rm_watch Always(&[]);
    257 SYS_openat Always(&[Reads(Second, Path)]);
    258 SYS_mkdirat Always(&[Reads(Second, Path)]);
    259 SYS_mknodat Always(&[Reads(Second, Path)]);
    260 SYS_fchownat Always(&[Reads(Second, Path)]);
    262 SYS_newfstatat Always(&[Reads(Second, Path), Writes(Third, Exactly(STAT))]);
    263 SYS_unlinkat Always(&[Reads(Second, Path)]);
    264 SYS_renameat Always(&[Reads(Second, Path), Reads(Fourth, Path)]);
    265 SYS_linkat Always(&[Reads(Second, Path), Reads(Fourth, Path)]);
    266 SYS_symlinkat Always(&[Reads(First, Path), Reads(Third, Path)]);
    267 SYS_readlinkat Always(&[Reads(Second, Path), Writes(Third, Elements(Fourth, 1))]);
    268 SYS_fchmodat Always(&[Reads(Second, Path)]);
    269 SYS_faccessat Always(&[Reads(Second, Path)]);
    270 SYS_pselect6 Always(&[
        Updates(Second, Bits(First)), Updates(Third, Bits(First)), Updates(Fourth, Bits(First)),
        Updates(Fifth, Exactly(TIME)), MaskBehind(Sixth),
    ]);
    271 SYS_ppoll Always(&[Updates(First, Elements(Second, POLL)), Updates(Third, Exactly(TIME)), Mask(Fourth)]);
    275 SYS_splice Always(&[Updates(Second, Exactly(LONG)), Updates(Fourth, Exactly(LONG))]);
    276 SYS_tee Always(&[]);
    277 SYS_sync_file_range Always(&[]);
    280 SYS_utimensat Always(&[Reads(Second, Path), Reads(Third, Exactly(TIMES))]);
    281 SYS_epoll_pwait Always(&[Writes(Second, Elements(Third, EVENT)), Mask(Fifth)]);
    282 SYS_signalfd Always(&[Reads(Second, Exactly(SET))]);
    283 SYS_timerfd_create Always(&[]);
    284 SYS_eventfd Always(&[]);
    285 SYS_fallocate Always(&[]);
    286 SYS_timerfd_settime Always(&[Reads(Third, Exactly(TIMES)), Writes(Fourth, Exactly(TIMES))]);
    287 SYS_timerfd_gettime Always(&[Writes(Second, Exactly(TIMES))]);
    288 SYS_accept4 Always(&[Writes(Second, Exactly(SOCKET_ADDRESS)), Updates(Third, Exactly(INT))]);
    289 SYS_signalfd4 Always(&[Reads(Second, Exactly(SET))]);
    290 SYS_eventfd2 Always(&[]);
    291 SYS_epoll_create1 Always(&[]);
    292 SYS_dup3 Always(&[]);
    293 SYS_pipe2 Always(&[Writes(First, Exactly(DESCRIPTORS))]);
    294 SYS_inotify_init1 Always(&[]);
    295 SYS_preadv Always(&[Writes(Second, Vectors(Third))]);
    296 SYS_pwritev Always(&[Reads(Second, Vectors(Third))]);
    297 SYS_rt_tgsigqueueinfo Always(&[Reads(Fourth, Exactly(INFO))]);
    299 SYS_recvmmsg Always(&[Updates(Second, Messages(Third)), Updates(Fifth, Exactly(TIME))]);
    302 SYS_prlimit64 Always(&[Reads(Third, Exactly(LIMIT)), Writes(Fourth, Exactly(LIMIT))]);
    306 SYS_syncfs Always(&[]);
    307 SYS_sendmmsg Always(&[Updates(Second, Messages(Third))]);
    309 SYS_getcpu Always(&[Writes(First, Exactly(INT)), Writes(Second, Exactly(INT))]);
    316 SYS_renameat2 Always(&[Reads(Second, Path), Reads(Fourth, Path)]);
    318 SYS_getrandom Always(&[Writes(First, Bytes(Second))]);
    324 SYS_membarrier Always(&[]);
    326 SYS_copy_file_range Always(&[Updates(Second, Exactly(LONG)), Updates(Fourth, Exactly(LONG))]);
    327 SYS_preadv2 Always(&[Writes(Second, Vectors(Third))]);
    328 SYS_pwritev2 Always(&[Reads(Second, Vectors(Third))]);
    332 SYS_statx Always(&[Reads(Second, Path), Writes(Fifth, Exactly(STATX))]);
    424 SYS_pidfd_send_signal Always(&[Reads(Third, Exactly(INFO))]);
    434 SYS_pidfd_open Always(&[]);
    437 SYS_openat2 Always(&[Reads(Second, Path), Reads(Third, Bytes(Fourth))]);
    438 SYS_pidfd_getfd Always(&[]);
    439 SYS_faccessat2 Always(&[Reads(Second, Path)]);
    441 SYS_epoll_pwait2 Always(&[
        Writes(Second, Elements(Third, EVENT)), Reads(Fourth, Exactly(TIME)), Mask(Fifth),
    ]);
    449 SYS_futex_waitv Always(&[Reads(First, Waiters(Second)), Reads(Fourth, Exactly(TIME))]);
    452 SYS_fchmodat2 Always(&[Reads(Second, Path)]);
    454 SYS_futex_wake Always(&[Reads(First, Exactly(WORD))]);
    455 SYS_futex_wait Always(&[Reads(First, Exactly(WORD)), Reads(Fifth, Exactly(TIME))]);
}

/// Calls with a time limit that the kernel continues by `restart_syscall` after a stop, and the
/// pointers that it uses then. The kernel has kept the limit itself; see "restart_syscall(2)". All
/// other calls are made again with their own number.
const CONTINUED: [(i64, &[Pointer]); 4] = [
    // poll
    (7, &[Updates(First, Elements(Second, POLL))]),
    // nanosleep
    (35, &[Writes(Second, Exactly(TIME))]),
    // futex
    (202, &[Reads(First, Exactly(INT))]),
    // clock_nanosleep
    (230, &[Writes(Fourth, Exactly(TIME))]),
];

/// How the call of this number takes pointers; `None` if it is not known.
pub fn takes(number: i64) -> Option<Takes> {
    let place = CALLS.binary_search_by_key(&number, |row| row.0).ok()?;
    CALLS.get(place).map(|row| row.1)
}

/// The pointers that the kernel uses when it continues a call of this number; `None` if it never
/// does.
pub fn continued(number: i64) -> Option<&'static [Pointer]> {
    let row = CONTINUED.iter().find(|row| row.0 == number);
    row.map(|row| row.1)
}

/// The same for each call that the kernel continues.
pub fn continued_calls() -> impl Iterator<Item = &'static [Pointer]> {
    CONTINUED.iter().map(|row| row.1)
}

/// The fourth and the fifth argument are pointers in some operations only; see "futex(2)" and
/// linux/futex.h.
fn futex(operation: u32) -> Option<&'static [Pointer]> {
    const PRIVATE: u32 = 128;
    const CLOCK_REALTIME: u32 = 256;
    const FUTEX: Pointer = Updates(First, Exactly(INT));
    const LIMIT: Pointer = Reads(Fourth, Exactly(TIME));
    const OTHER: Pointer = Updates(Fifth, Exactly(INT));
    let is_private = operation & PRIVATE != 0;
    match operation & !(PRIVATE | CLOCK_REALTIME) {
        // WAKE and WAKE_BITSET: private waiters are found by the address alone.
        1 | 10 if is_private => Some(&[]),
        1 | 10 => Some(&[FUTEX]),
        // WAIT, LOCK_PI, WAIT_BITSET, LOCK_PI2
        0 | 6 | 9 | 13 => Some(&[FUTEX, LIMIT]),
        // WAIT_REQUEUE_PI
        11 => Some(&[FUTEX, LIMIT, OTHER]),
        // UNLOCK_PI, TRYLOCK_PI
        7 | 8 => Some(&[FUTEX]),
        // REQUEUE, CMP_REQUEUE, WAKE_OP, CMP_REQUEUE_PI
        3 | 4 | 5 | 12 => Some(&[FUTEX, OTHER]),
        _ => None,
    }
}

/// The third argument is a pointer in some commands only; see "fcntl(2)" and
/// asm-generic/fcntl.h.
fn control(command: u32) -> Option<&'static [Pointer]> {
    match command {
        // F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW
        6 | 7 | 37 | 38 => Some(&[Reads(Third, Exactly(LOCK))]),
        // F_GETLK, F_OFD_GETLK
        5 | 36 => Some(&[Updates(Third, Exactly(LOCK))]),
        // F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC
        0..=4 | 1030 => Some(&[]),
        _ => None,
    }
}

#[cfg(test)]
mod names;
#[cfg(test)]
mod tests;
