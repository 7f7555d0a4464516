//! How soon threads of ours get a CPU that threads of the program want, too. Called by `serve` for
//! those that answer, and by `repairer` for the one that watches. Where we may not do this, threads
//! stay as they are. It must not touch the program's own threads.

/// How much sooner a thread gets a CPU than it did (`nice(2)`).
const SOONER: i32 = 10;

/// Has this thread, and those that it starts from now on, get a CPU sooner than a program that it has
/// started. What it may use in all is bounded elsewhere; but where the program has more threads than
/// there are CPUs, each step to a move would wait for its turn, while they contend.
pub fn run_sooner() {
    // SAFETY: take integers; 0 is the calling thread. The kernel takes the least number that there is
    // for a lower one.
    unsafe {
        let now = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, now - SOONER);
    }
}

/// Has this thread run as soon as it is woken, before all threads of the usual policies, whatever their
/// priorities and groups. It must never compute for long. Children do not inherit it.
pub fn run_before_others() {
    let lowest = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: takes integers and a pointer to a value on our stack; 0 is the calling thread. Without
    // the right to do this, the thread stays as it is.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const lowest) };
}
