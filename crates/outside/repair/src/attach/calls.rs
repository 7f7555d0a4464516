//! Which kernel calls of a running program the library inside it must see, and when. There are
//! more than in a program that loads the library at its start, since no function is interposed in
//! a running one. Used by `plan` and `own`.

use sunder_hooking::OPENS;
use sunder_rewrite::sites::{Number, Want};

/// The library makes these calls in place of the program: they change the address space or the
/// handling of signals, and never wait.
const INSTEAD: [i64; 14] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_pkey_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
];

/// Before these calls bytes may have to go back. They may wait, return twice, or not return.
const BEFORE_THEM: [i64; 33] = [
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit_group,
    libc::SYS_seccomp,
    libc::SYS_prctl,
    libc::SYS_ptrace,
    libc::SYS_tgkill,
    libc::SYS_kill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_sigsuspend,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_remap_file_pages,
];

/// Calls that take something from the kernel before they write to the program's memory. If the
/// write failed because the bytes had moved, and the call were made again, it would get the next
/// item or none. Where there is no room for a hook before such a call, it is made again all the
/// same.
const TAKE_FIRST: [i64; 10] = [
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_msgrcv,
    libc::SYS_mq_timedreceive,
    libc::SYS_recvmmsg,
    libc::SYS_setitimer,
    libc::SYS_timer_settime,
];

/// Whether a hook before this call is wanted only if there is room for one.
pub fn only_if_there_is_room(number: Number) -> bool {
    let Number::Always(number) = number else {
        return false;
    };
    let number = number.into();
    TAKE_FIRST.contains(&number) || OPENS.contains(&number)
}

/// What the library inside the program must see of a call.
pub fn needed(number: Number) -> Want {
    match number {
        Number::Always(n) if INSTEAD.contains(&n.into()) => Want::Call,
        Number::Always(n) if BEFORE_THEM.contains(&n.into()) => Want::Before,
        number if only_if_there_is_room(number) => Want::Before,
        Number::Any | Number::In(_) => Want::Before,
        Number::Always(_) => Want::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::{BEFORE_THEM, INSTEAD};
    use sunder_hooking::CHANGES;

    /// A running program's changes of the address space are seen like those of a program that we
    /// start.
    #[test]
    fn all_calls_that_change_mappings_are_seen() {
        let seen = |call: &i64| INSTEAD.contains(call) || BEFORE_THEM.contains(call);
        let unseen: Vec<_> = CHANGES.iter().filter(|call| !seen(call)).collect();
        assert!(unseen.is_empty(), "{unseen:?}");
    }
}
