//! seccomp: only the system calls are left that a command needs. Any other fails with `EPERM`, as
//! if a right was missing, so that an unforeseen one costs a sentence and not the process.

use seccompiler::{
    SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Op, SeccompCondition as Condition,
    SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use sunder_access::ProcessId;
use sunder_observe::proc::{NS_GET_OWNER_UID, NS_GET_PARENT};

/// What a command goes on to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It reads files.
    Files,
    /// It reads files and makes new ones, where Landlock lets it.
    NewFiles,
    /// It observes processes, and changes nothing in them.
    Observe,
    /// It observes all processes, and has what it found named in processes of its own.
    Watch,
    /// It stops threads of a process and moves its bytes.
    Repair,
}

/// The process that the work is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    pub process: ProcessId,
    /// Whether we have started it. Then signals are passed on to it, and it is waited for.
    pub is_ours: bool,
}

/// Calls that need no look at their arguments: a process's own memory, threads, time, and what is
/// open already.
#[rustfmt::skip]
const PLAIN: &[i64] = &[
    // Descriptors that are open.
    libc::SYS_read, libc::SYS_readv, libc::SYS_pread64, libc::SYS_preadv,
    libc::SYS_write, libc::SYS_writev, libc::SYS_pwrite64, libc::SYS_lseek, libc::SYS_ftruncate,
    libc::SYS_fsync, libc::SYS_close, libc::SYS_close_range, libc::SYS_dup, libc::SYS_dup2,
    libc::SYS_dup3, libc::SYS_fcntl, libc::SYS_pipe2, libc::SYS_eventfd2, libc::SYS_poll,
    libc::SYS_ppoll, libc::SYS_select, libc::SYS_pselect6, libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl, libc::SYS_epoll_wait, libc::SYS_epoll_pwait, libc::SYS_fadvise64,
    // What is known of files.
    libc::SYS_stat, libc::SYS_fstat, libc::SYS_lstat, libc::SYS_newfstatat, libc::SYS_statx,
    libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_access, libc::SYS_faccessat,
    libc::SYS_faccessat2, libc::SYS_readlink, libc::SYS_readlinkat, libc::SYS_getdents64,
    libc::SYS_getcwd,
    // Its own memory.
    libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_brk, libc::SYS_mlock,
    libc::SYS_munlock, libc::SYS_mincore, libc::SYS_membarrier,
    // Its own threads and signals.
    libc::SYS_futex, libc::SYS_set_robust_list, libc::SYS_set_tid_address, libc::SYS_rseq,
    libc::SYS_arch_prctl, libc::SYS_sched_yield, libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn, libc::SYS_rt_sigtimedwait, libc::SYS_sigaltstack, libc::SYS_exit,
    libc::SYS_exit_group, libc::SYS_restart_syscall,
    // Time, and who and where it is.
    libc::SYS_nanosleep, libc::SYS_clock_nanosleep, libc::SYS_clock_gettime,
    libc::SYS_clock_getres, libc::SYS_gettimeofday, libc::SYS_time, libc::SYS_times,
    libc::SYS_getrusage, libc::SYS_getrandom, libc::SYS_uname, libc::SYS_sysinfo,
    libc::SYS_getpid, libc::SYS_getppid, libc::SYS_gettid, libc::SYS_getuid, libc::SYS_geteuid,
    libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getgroups, libc::SYS_getresuid,
    libc::SYS_getresgid, libc::SYS_capget, libc::SYS_getcpu,
    // Another filter answers it: of two errors the newer filter's would win.
    libc::SYS_clone3,
];

/// What observing needs beside. Not `openat2`, whose flags a filter can't see: it could open files for
/// writing.
const OBSERVING: &[i64] = &[
    libc::SYS_perf_event_open,
    libc::SYS_process_vm_readv,
    libc::SYS_pidfd_open,
];

/// What repairing needs beside. Which processes these may reach, the kernel decides by rights.
const REPAIRING: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    // The limit of time of a socket whose thread was stopped in a call.
    libc::SYS_getsockopt,
    libc::SYS_memfd_create,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
];

/// What beside a program that we have started is needed as well: to wait for its end, and to make the
/// memory that a process of its is given.
const BESIDE_OURS: &[i64] = &[libc::SYS_wait4, libc::SYS_waitid, libc::SYS_memfd_create];

/// What watching needs beside: to wait for the processes that name what was found.
const WATCHING: &[i64] = &[libc::SYS_wait4];

/// What taking the rights of a process for one call needs. Without these calls, rights that were
/// given up for good can't be had back.
const CHANGING_RIGHTS: &[i64] = &[
    libc::SYS_setgroups,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_capset,
];

/// Installs the filter for all threads of this process. Returns whether it is in effect. `subject`:
/// what the work is about, if it is about a process. `changes_rights`: the rights of processes go on to
/// be taken for single calls.
pub fn only_for(work: Work, subject: Option<Subject>, changes_rights: bool) -> bool {
    // glibc goes back to `clone`, whose flags can be looked at, only for this error.
    let no_clone3 = [(libc::SYS_clone3, Vec::new())];
    let no_clone3 = SeccompFilter::new(
        no_clone3.into_iter().collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS as u32),
        TargetArch::x86_64,
    );
    let allowed = rules(work, subject, changes_rights).and_then(|rules| {
        SeccompFilter::new(
            rules,
            SeccompAction::Errno(libc::EPERM as u32),
            SeccompAction::Allow,
            TargetArch::x86_64,
        )
    });
    let (Ok(no_clone3), Ok(allowed)) = (no_clone3, allowed) else {
        return false;
    };
    // The second filter no longer allows the call that installs a filter.
    [no_clone3, allowed].into_iter().all(|filter| {
        let Ok(program) = seccompiler::BpfProgram::try_from(filter) else {
            return false;
        };
        seccompiler::apply_filter_all_threads(&program).is_ok()
    })
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The calls that are allowed, with what their arguments must be; no rule: anything.
fn rules(
    work: Work,
    subject: Option<Subject>,
    changes_rights: bool,
) -> Result<Rules, seccompiler::BackendError> {
    let mut rules = Rules::new();
    let more: &[&[i64]] = match work {
        Work::Files | Work::NewFiles => &[],
        Work::Observe => &[OBSERVING],
        Work::Watch => &[OBSERVING, WATCHING],
        Work::Repair => &[OBSERVING, REPAIRING],
    };
    let more = more.iter().copied().flatten();
    let rights = CHANGING_RIGHTS.iter().filter(|_| changes_rights);
    let ours = subject.is_some_and(|subject| subject.is_ours);
    let beside_ours = BESIDE_OURS.iter().filter(|_| ours);
    for &call in PLAIN.iter().chain(more).chain(rights).chain(beside_ours) {
        rules.insert(call, Vec::new());
    }
    // Our own code stays as it is: nothing becomes executable.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![rule([none_of(2, libc::PROT_EXEC as u64)?])?]);
    }
    // Files are opened for reading; what is written to has been opened before. A repair maps
    // memory that it shares with the process.
    let writing = libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND;
    let writing = match work {
        Work::Files | Work::NewFiles | Work::Observe | Work::Watch => writing | libc::O_ACCMODE,
        Work::Repair => writing,
    };
    rules.insert(libc::SYS_open, vec![rule([none_of(1, writing as u64)?])?]);
    let mut opening = vec![rule([none_of(2, writing as u64)?])?];
    if work == Work::NewFiles {
        // Never one that is there.
        let all = (writing | libc::O_EXCL | libc::O_ACCMODE) as u64;
        let new = (libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY) as u64;
        let making = Condition::new(2, Length::Dword, Op::MaskedEq(all), new)?;
        opening.push(rule([making])?);
    }
    rules.insert(libc::SYS_openat, opening);
    // Threads, and no processes.
    let thread = libc::CLONE_VM | libc::CLONE_THREAD;
    let thread = all_of(0, thread as u64)?;
    let spaces = none_of(0, NAMESPACES)?;
    let mut clones = vec![rule([thread, spaces])?];
    if work == Work::Watch {
        // Plain forks: with this filter, and with memory of their own.
        let others = NAMESPACES | (libc::CLONE_VM | libc::CLONE_PARENT) as u64;
        clones.push(rule([none_of(0, others)?])?);
    }
    rules.insert(libc::SYS_clone, clones);
    if work == Work::Repair {
        // A thread of our own that answers the program's threads runs before others.
        rules.insert(libc::SYS_sched_setscheduler, vec![rule([equals(0, 0)?])?]);
    }
    signals(work, subject, &mut rules)?;
    // Limits of our own are read and set; those of others are not.
    rules.insert(libc::SYS_prlimit64, vec![rule([equals(0, 0)?])?]);
    let options = [
        libc::PR_SET_NAME,
        libc::PR_GET_NAME,
        libc::PR_GET_DUMPABLE,
        libc::PR_SET_DUMPABLE,
        libc::PR_SET_VMA,
        PR_GET_AUXV,
    ];
    let options = options.iter().map(|&o| rule([equals(0, o as u64)?]));
    rules.insert(libc::SYS_prctl, options.collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_ioctl, requests(work)?);
    Ok(rules)
}

/// Which signals may be sent.
fn signals(
    work: Work,
    subject: Option<Subject>,
    rules: &mut Rules,
) -> Result<(), seccompiler::BackendError> {
    // `abort` and panics signal the own process.
    let own = equals(0, u64::from(std::process::id()))?;
    let mut to_threads = vec![rule([own])?];
    if work == Work::Watch {
        // To its own group of processes, of which the others do work for it.
        rules.insert(libc::SYS_kill, vec![rule([equals(0, 0)?])?]);
    }
    if let Some(Subject { process, is_ours }) = subject {
        let its = || equals(0, u64::from(process.0));
        if is_ours {
            // What is sent to us is passed on to it. Signal 0 only asks whether a process or a thread
            // is still there, also of those that the program has started.
            let to_process = vec![rule([its()?])?, rule([equals(1, 0)?])?];
            rules.insert(libc::SYS_kill, to_process);
            to_threads.push(rule([equals(2, 0)?])?);
        } else if work == Work::Repair {
            to_threads.push(rule([its()?, equals(2, 0)?])?);
            rules.insert(libc::SYS_kill, vec![rule([its()?, equals(1, 0)?])?]);
        }
        if is_ours && work == Work::Repair {
            // How a thread is asked to look into the memory that it shares with us.
            let asks = rule([its()?, equals(2, libc::SIGSEGV as u64)?])?;
            rules.insert(libc::SYS_rt_tgsigqueueinfo, vec![asks]);
        }
    }
    rules.insert(libc::SYS_tgkill, to_threads);
    Ok(())
}

/// Asks for the auxiliary vector (`linux/prctl.h`; `libc` does not have it for glibc).
const PR_GET_AUXV: i32 = 0x4155_5856;

/// Flags of `clone` that make namespaces (`linux/sched.h`).
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// Requests of `ioctl`: what a terminal is and whose turn it is there, its settings, which have to be put
/// back at the end of a view, how much is there to read, and those of perf events
/// (`linux/perf_event.h`: type `$`). Not those that type into a terminal. A watch asks who made a namespace
/// of users.
fn requests(work: Work) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let of_namespaces = [NS_GET_PARENT, NS_GET_OWNER_UID];
    let of_namespaces = of_namespaces.into_iter().filter(|_| work == Work::Watch);
    let single = [
        libc::TCGETS,
        libc::TCSETS,
        libc::TIOCGPGRP,
        libc::TIOCGWINSZ,
        libc::FIONREAD,
        libc::FIOCLEX,
    ];
    let mut rules = (single.into_iter().chain(of_namespaces))
        .map(|request| rule([equals(1, request)?]))
        .collect::<Result<Vec<_>, _>>()?;
    const TYPE: u64 = 0xff00;
    let of_perf = Op::MaskedEq(TYPE);
    let of_perf = Condition::new(1, Length::Dword, of_perf, u64::from(b'$') << 8)?;
    rules.push(rule([of_perf])?);
    Ok(rules)
}

fn rule<const N: usize>(
    conditions: [Condition; N],
) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(conditions.to_vec())
}

fn equals(argument: u8, value: u64) -> Result<Condition, seccompiler::BackendError> {
    Condition::new(argument, Length::Dword, Op::Eq, value)
}

fn none_of(argument: u8, bits: u64) -> Result<Condition, seccompiler::BackendError> {
    Condition::new(argument, Length::Dword, Op::MaskedEq(bits), 0)
}

fn all_of(argument: u8, bits: u64) -> Result<Condition, seccompiler::BackendError> {
    Condition::new(argument, Length::Dword, Op::MaskedEq(bits), bits)
}

/// Whether the kernel has filters of system calls.
pub fn is_possible() -> bool {
    let refuse = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call reads four bytes from `refuse`, and only says whether it is known.
    let known = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0,
            &raw const refuse,
        )
    };
    known == 0
}
