//! Stops a child again and again: while it waits in the kernel, while it faults, and while it calls
//! the kernel.

use super::Asked;
use super::{LEFT, Stop, Stopped, mortal};
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use sunder_access::ProcessId;

/// Waits in the kernel; whether the wait ended as it does without stops. `None` if the kernel has
/// no such call.
type Wait = fn() -> Option<bool>;

const LIMIT: Duration = Duration::from_millis(300);
/// Exit status of a child whose kernel has no such call.
const NONE: i32 = 77;

/// Each waits for 300 ms for an event that never comes.
const WAITS: [(&str, Wait); 6] = [
    ("epoll_wait", || {
        let mut event = nothing::<libc::epoll_event>();
        // SAFETY: the event is a valid place.
        let count = unsafe { libc::epoll_wait(libc::epoll_create1(0), &raw mut event, 1, 300) };
        Some(count == 0)
    }),
    ("epoll_pwait2", || {
        let mut event = nothing::<[u64; 2]>();
        // SAFETY: takes no pointers.
        let (queue, none) = (unsafe { libc::epoll_create1(0) }, 0usize);
        let (call, at) = (libc::SYS_epoll_pwait2, &raw mut event);
        // SAFETY: valid places.
        let done = unsafe { libc::syscall(call, queue, at, 1, &raw const TIME, none, 8usize) };
        // Kernels before 5.11 lack the call.
        (done == 0 || error() != libc::ENOSYS).then_some(done == 0)
    }),
    ("rt_sigtimedwait", || {
        let set = 1u64 << (libc::SIGUSR1 - 1);
        let (at, none) = (&raw const set, 0usize);
        let call = libc::SYS_rt_sigtimedwait;
        // SAFETY: valid places.
        let done = unsafe { libc::syscall(call, at, none, &raw const TIME, 8usize) };
        Some(done == -1 && error() == libc::EAGAIN)
    }),
    ("semtimedop", || {
        let mut down = libc::sembuf {
            sem_num: 0,
            sem_op: -1,
            sem_flg: 0,
        };
        // SAFETY: valid places, and a semaphore that is removed again.
        unsafe {
            let all = libc::semget(libc::IPC_PRIVATE, 1, 0o600);
            let call = libc::SYS_semtimedop;
            let at = &raw mut down;
            let done = libc::syscall(call, all, at, 1usize, &raw const TIME);
            let why = error();
            libc::semctl(all, 0, libc::IPC_RMID);
            (all >= 0).then_some(done == -1 && why == libc::EAGAIN)
        }
    }),
    ("recv", receives),
    ("io_getevents", || {
        let mut queue = 0usize;
        let mut event = nothing::<[u64; 4]>();
        let (one, at) = (1usize, &raw mut event);
        // SAFETY: valid places.
        unsafe {
            if libc::syscall(libc::SYS_io_setup, one, &raw mut queue) != 0 {
                return None;
            }
            let call = libc::SYS_io_getevents;
            Some(libc::syscall(call, queue, one, one, at, &raw const TIME) == 0)
        }
    }),
];
/// Lies in read-only memory: a remaining time written there would fault.
static TIME: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 300_000_000,
};

fn nothing<T>() -> T {
    // SAFETY: for plain data only.
    unsafe { std::mem::zeroed() }
}

fn error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Starts a child that waits so. It exits with 0 if the wait ended as it does without stops.
fn waiting(wait: Wait) -> i32 {
    // SAFETY: between `fork` and its end the child takes no lock and reads no memory that another
    // thread writes.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let start = Instant::now();
            libc::_exit(match wait() {
                None => NONE,
                Some(good) => i32::from(!good || start.elapsed() < LIMIT),
            });
        }
        child
    }
}

/// Faults again and again at the same instruction, which the handler skips.
fn faulting() -> ! {
    extern "C" fn past(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        const BYTES: i64 = 2;
        // SAFETY: the kernel passes a valid `ucontext`.
        let state = unsafe { &mut *context.cast::<libc::ucontext_t>() };
        state.uc_mcontext.gregs[libc::REG_RIP as usize] += BYTES;
    }
    let mut action = nothing::<libc::sigaction>();
    action.sa_sigaction = past as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: a valid action; the load of two bytes faults and leaves `eax` as it is.
    unsafe {
        libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
        loop {
            std::arch::asm!("xor eax, eax", ".byte 0x8b, 0x00", out("rax") _);
        }
    }
}

/// Otherwise a thread that we move, or whose handlers we change, would get a signal that names
/// another instruction. Before `stops` delivered the signal first, nearly half of these stops lay
/// between a fault and its signal.
#[test]
fn no_thread_is_stopped_between_a_fault_and_its_signal() {
    const STOPS: u32 = 500;
    const MOST_TRIES: u32 = 100 * STOPS;
    let _alone = super::mortal::ALONE
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the child only computes and handles its faults.
    let child = unsafe { libc::fork() };
    if child == 0 {
        faulting();
    }
    assert!(child > 0, "fork failed");
    let mut stops = 0;
    let mut between = 0;
    let mut refused = None;
    for _ in 0..MOST_TRIES {
        match Stopped::stop(child, child) {
            Ok(Stop::Stopped(_stopped)) => {
                stops += 1;
                between += u32::from(pending(child) >> (libc::SIGSEGV - 1) & 1 != 0);
            }
            Ok(Stop::Ended(status)) => panic!("the child has ended with {status}"),
            Ok(Stop::NotNow) => {
                super::sweep(child);
                // A thread that was slow to stop can't be asked again before it has stopped.
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
        if stops == STOPS {
            break;
        }
    }
    // SAFETY: signals a child of ours.
    unsafe { libc::kill(child, libc::SIGKILL) };
    while super::wait(child).is_some_and(|status| libc::WIFSTOPPED(status)) {}
    if let Some(error) = refused {
        println!("SKIP: a child can't be stopped: {error}");
        return;
    }
    assert_eq!((stops, between), (STOPS, 0));
}

/// A thread that was sent to its next kernel call, and that reaches it when we no longer wait for
/// it.
#[test]
fn a_thread_that_stops_at_a_call_is_let_go() {
    let _alone = super::mortal::ALONE
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the child only calls the kernel.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: takes no arguments.
            unsafe { libc::getppid() };
        }
    }
    assert!(child > 0, "fork failed");
    let stopped = (0..1000).find_map(|_| match Stopped::stop(child, child) {
        Ok(Stop::Stopped(stopped)) => Some(Ok(stopped)),
        Ok(_) => {
            super::sweep(child);
            std::thread::sleep(Duration::from_millis(1));
            None
        }
        Err(error) => Some(Err(error)),
    });
    let let_go = stopped.map(|stopped| {
        stopped.and_then(|stopped| {
            super::request(libc::PTRACE_SYSCALL, child, 0, 0)?;
            std::mem::forget(stopped);
            super::keep(child);
            let begun = Instant::now();
            while super::LEFT.with_borrow(|left| left.contains(&child)) {
                if begun.elapsed() > Duration::from_secs(10) {
                    return Ok(false);
                }
                super::sweep(child);
            }
            Ok(true)
        })
    });
    // SAFETY: signals a child of ours.
    unsafe { libc::kill(child, libc::SIGKILL) };
    while super::wait(child).is_some_and(|status| libc::WIFSTOPPED(status)) {}
    super::LEFT.take();
    match let_go {
        Some(Ok(let_go)) => assert!(let_go, "the thread is still attached"),
        Some(Err(error)) => println!("SKIP: a child can't be stopped: {error}"),
        None => panic!("the child never stops"),
    }
}

/// Whichever request about a thread fails: the thread goes on, sooner or later. It is sent signals
/// meanwhile, which it ignores, but which stop a traced thread.
#[test]
fn a_request_that_fails_leaves_no_thread_stopped() {
    const HANGS: Duration = Duration::from_secs(10);
    let _alone = mortal::ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the child only computes and handles its faults.
    let child = unsafe { libc::fork() };
    if child == 0 {
        faulting();
    }
    assert!(child > 0, "fork failed");
    let wrong = (1..=20).find(|&number| {
        mortal::refuses(number);
        let begun = Instant::now();
        // Many stops until the request is made; then until nothing of the thread is left to do.
        while mortal::will_refuse() && begun.elapsed() < HANGS {
            // SAFETY: signals a child of ours.
            unsafe { libc::kill(child, libc::SIGURG) };
            drop(Stopped::stop(child, child));
            super::sweep(child);
        }
        mortal::refuses(0);
        while is_traced(child) && begun.elapsed() < HANGS {
            super::sweep(child);
            std::thread::sleep(Duration::from_millis(1));
        }
        is_traced(child) || LEFT.with_borrow(|left| !left.is_empty())
    });
    // SAFETY: signals a child of ours.
    unsafe { libc::kill(child, libc::SIGKILL) };
    while super::wait(child).is_some_and(|status| libc::WIFSTOPPED(status)) {}
    LEFT.take();
    assert_eq!(
        wrong, None,
        "the thread stays with us after a failure of this request"
    );
}

/// A thread that was asked to stop goes on when nobody waits for it; and an end that comes first is told
/// later all the same.
#[test]
fn a_thread_that_is_asked_and_not_waited_for_goes_on_and_its_end_is_told() {
    let _alone = mortal::ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the child only computes and handles its faults.
    let child = unsafe { libc::fork() };
    if child == 0 {
        faulting();
    }
    assert!(child > 0, "fork failed");
    let mut wrong = None;
    let mut refused = None;
    let begun = Instant::now();
    for _ in 0..200 {
        match Asked::ask(child) {
            Ok(Some(asked)) => drop(asked),
            Ok(None) => wrong = Some("something is left of the last time"),
            Err(error) => refused = Some(error),
        }
        // It may have been too early to let it go.
        while is_traced(child) && wrong.is_none() {
            super::sweep(child);
            if begun.elapsed() > Duration::from_secs(60) {
                wrong = Some("it stays with us");
            }
        }
        if wrong.is_some() || refused.is_some() {
            break;
        }
    }
    let asked = Asked::ask(child);
    // SAFETY: signals a child of ours.
    unsafe { libc::kill(child, libc::SIGKILL) };
    drop(asked);
    let begun = Instant::now();
    let mut end = None;
    while end.is_none() && begun.elapsed() < Duration::from_secs(10) {
        end = super::sweep(child);
    }
    if let Some(error) = refused {
        println!("SKIP: a child can't be stopped: {error}");
        return;
    }
    assert_eq!(wrong, None);
    assert_eq!(
        end.map(|status| libc::WTERMSIG(status)),
        Some(libc::SIGKILL)
    );
    assert!(LEFT.with_borrow(|left| left.is_empty()));
}

/// The exit status of the program is one of them.
#[test]
fn the_end_of_what_another_thread_of_ours_traces_is_left_to_that_one() {
    let _alone = mortal::ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the child only computes and handles its faults.
    let child = unsafe { libc::fork() };
    if child == 0 {
        faulting();
    }
    assert!(child > 0, "fork failed");
    let asked = Asked::ask(child);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let collector = super::Collector::start(0).expect("a thread");
            // SAFETY: signals a child of ours.
            unsafe { libc::kill(child, libc::SIGKILL) };
            // It looks every 20 ms.
            std::thread::sleep(Duration::from_millis(200));
            drop(collector);
        });
    });
    drop(asked);
    let mut end = None;
    for _ in 0..1000 {
        end = end.or_else(|| super::sweep(child));
        if end.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(
        end.map(|status| libc::WTERMSIG(status)),
        Some(libc::SIGKILL)
    );
}

/// Whether the process has a tracer.
fn is_traced(process: i32) -> bool {
    let told =
        std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process lives");
    !told.contains("TracerPid:\t0\n")
}

/// The mask of signals that are pending for the only thread of a process, not for the process as a
/// whole.
fn pending(process: i32) -> u64 {
    let told =
        std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process lives");
    let line = told.lines().find_map(|l| l.strip_prefix("SigPnd:"));
    u64::from_str_radix(line.expect("the status has a line SigPnd").trim(), 16).expect("a mask")
}

/// If the remaining time were not kept, each stop would begin the wait anew with its whole limit.
#[test]
fn a_wait_that_is_stopped_all_the_time_ends() {
    let _alone = super::mortal::ALONE
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    for (name, wait) in WAITS {
        ends_in_its_time(name, wait);
    }
}

/// Whether a socket to which nobody sends has told that its limit was over.
fn receives() -> Option<bool> {
    let limit = libc::timeval {
        tv_sec: 0,
        tv_usec: 300_000,
    };
    let (mut ends, mut byte) = ([0; 2], 0u8);
    let size = size_of_val(&limit) as u32;
    // SAFETY: valid places.
    unsafe {
        libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr());
        let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVTIMEO);
        libc::setsockopt(ends[0], level, option, (&raw const limit).cast(), size);
        let done = libc::recv(ends[0], (&raw mut byte).cast(), 1, 0);
        Some(done == -1 && error() == libc::EAGAIN)
    }
}

fn ends_in_its_time(name: &str, wait: Wait) {
    const HANGS: Duration = Duration::from_secs(60);
    let start = Instant::now();
    let child = waiting(wait);
    assert!(child > 0, "fork failed");
    let status = loop {
        match Stopped::stop(child, child) {
            Ok(Stop::Stopped(stopped)) => drop(stopped),
            Ok(Stop::Ended(status)) => break Some(status),
            Ok(Stop::NotNow) => {
                if let Some(status) = super::sweep(child) {
                    break Some(status);
                }
            }
            // A process that has ended can't be stopped either.
            Err(error) => {
                let ended = super::wait(child);
                if ended.is_none() {
                    println!("SKIP: a child can't be stopped: {error}");
                }
                break ended;
            }
        }
        if start.elapsed() > HANGS {
            break Some(-1);
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    if status.is_none_or(|status| status == -1) {
        // SAFETY: signals a child of ours that has not ended.
        unsafe { libc::kill(child, libc::SIGKILL) };
        let _ = super::wait(child);
    }
    if let Some(status) = status {
        assert_ne!(status, -1, "{name} did not end");
        if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == NONE {
            println!("SKIP: {name}: the kernel has no such call");
            return;
        }
        assert_eq!(status, 0, "{name}");
    }
}

/// Whether a program started others is read before it is reaped, at whatever moment it ends.
#[test]
fn whether_a_process_had_children_is_known_once_it_was_swept() {
    let _alone = mortal::ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (script, had_children) in [("/bin/true; true", true), ("true", false)] {
        for _ in 0..20 {
            let mut child = std::process::Command::new("sh")
                .args(["-c", script])
                .spawn()
                .expect("a shell");
            let process = child.id() as i32;
            while super::sweep(process).is_none() {}
            assert!(child.wait().is_err(), "it was reaped");
            let had = super::childrens_percent(ProcessId(child.id())).is_some();
            assert_eq!(had, had_children, "{script}");
        }
    }
}
