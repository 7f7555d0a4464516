//! Handles signals while a program runs. Signals of the terminal reach the program anyway, as
//! it is in our process group; they must not end us before it. Signals that are sent to us
//! alone are passed on.
//!
//! Ctrl-Z stops us only after the program has stopped. If we stopped first, threads of the
//! program that we hold at that moment could not run their handlers, and the terminal would go
//! back to the shell even if the program does not stop. A program that we are attached to is
//! not in the terminal's process group and goes on: there we stop at once, except while we hold
//! its threads.

use crate::late;
use crate::leaving::leave;
use crate::spawning::waits_for_a_stopped_child;
use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_stop::stay_awake;

/// The terminal sends these to the whole process group.
const FROM_TERMINAL: [i32; 3] = [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP];
/// Signals that are sent to us and are meant for the program.
const PASSED_ON: [i32; 3] = [libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

static TARGET: AtomicI32 = AtomicI32::new(0);
/// Signals that came before there was a program, one bit each.
static EARLY: AtomicU64 = AtomicU64::new(0);
/// Whether this process leads its session. When its terminal is closed, the kernel signals the leader
/// alone.
static LEADS: AtomicBool = AtomicBool::new(false);

type Handler = extern "C" fn(i32, *const libc::siginfo_t, *const libc::c_void);

extern "C" fn pass_on(signal: i32, _: *const libc::siginfo_t, _: *const libc::c_void) {
    let target = TARGET.load(Ordering::Relaxed);
    if target > 0 {
        // SAFETY: `kill` is async-signal-safe and takes two integers.
        unsafe { libc::kill(target, signal) };
    } else {
        EARLY.fetch_or(1 << signal, Ordering::Relaxed);
    }
}

/// A signal that the terminal sends has reached the program too, if there was one. One that a process has sent
/// (`kill -INT`) is meant for the program. If it was sent to the whole process group, the program
/// gets it twice, like those of [`PASSED_ON`]: that can't be told, and a lost one is worse.
extern "C" fn pass_on_sent(
    signal: i32,
    info: *const libc::siginfo_t,
    context: *const libc::c_void,
) {
    // SAFETY: the kernel passes valid information to a handler with SA_SIGINFO; signals of processes
    // have a sender.
    let (is_sent, sender) = unsafe { ((*info).si_code <= libc::SI_USER, (*info).si_pid()) };
    let target = TARGET.load(Ordering::Relaxed);
    let to_us_alone = target == 0 || signal == libc::SIGHUP && LEADS.load(Ordering::Relaxed);
    // A program that signals its own group has signalled itself.
    if to_us_alone && !is_sent || is_sent && sender != target {
        pass_on(signal, info, context);
    }
}

extern "C" fn stay(_: i32, _: *const libc::siginfo_t, _: *const libc::c_void) {}

/// Makes a write beyond the file size limit (`ulimit -f`) fail with an error, instead of ending
/// us by a signal. A program that is started gets the disposition with which we were started.
pub fn outlive_limits() {
    set(libc::SIGXFSZ, stay);
}

/// Holds the signal dispositions that were replaced, and restores them when dropped.
pub struct Signals {
    old: Vec<(i32, libc::sigaction)>,
    /// Dropped before `old` is restored.
    stops: Option<Stops>,
}

impl Signals {
    /// From now on signals do not end us. Call it only while the process has one thread.
    pub fn hold() -> Self {
        let mut held = Self::hold_stops();
        held.hold_ends();
        held
    }

    /// From now on Ctrl-Z does not stop us before the program; signals that end us still do.
    /// Call it only while the process has one thread: later threads inherit the mask that
    /// blocks `SIGTSTP`. A thread with another mask would take the signal and stop the whole
    /// process.
    pub fn hold_stops() -> Self {
        Self {
            old: Vec::new(),
            stops: Stops::hold(),
        }
    }

    /// From now on signals do not end us.
    pub fn hold_ends(&mut self) {
        // SAFETY: both take no pointers and can't fail for this process.
        let leads = unsafe { libc::getsid(0) == libc::getpid() };
        LEADS.store(leads, Ordering::Relaxed);
        EARLY.store(0, Ordering::Relaxed);
        for signal in FROM_TERMINAL {
            self.old
                .extend(set(signal, pass_on_sent).map(|o| (signal, o)));
        }
        for signal in PASSED_ON {
            self.old.extend(set(signal, pass_on).map(|o| (signal, o)));
        }
    }

    /// Sets the program to which signals are passed on, a child of ours. Call it before the
    /// program begins; otherwise Ctrl-Z would stop us alone. It gets the signals that came before it was
    /// there, and then never begins, unless it is started with them ignored.
    pub fn forward_to(&self, process: ProcessId) {
        TARGET.store(process.0 as i32, Ordering::SeqCst);
        let early = EARLY.swap(0, Ordering::SeqCst);
        for signal in (1..u64::BITS as i32).filter(|signal| early >> signal & 1 == 1) {
            // SAFETY: takes two integers; the process is a child that was not waited for.
            unsafe { libc::kill(process.0 as i32, signal) };
        }
    }

    /// The program has ended. In a process that exists for this run alone (`for_good`), signals are
    /// held on while the report is made, as [`late`] says; in any other they are released.
    pub fn program_ended(mut self, for_good: bool) {
        if for_good {
            self.stops = None;
            TARGET.store(0, Ordering::Relaxed);
            let held = std::mem::take(&mut self.old);
            late::begin(held.iter().map(|(signal, _)| *signal));
        }
    }

    /// Restores the dispositions: signals are meant for us again.
    pub fn release(self) {}
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Stops are given up while `TARGET` is still known.
        self.stops = None;
        TARGET.store(0, Ordering::Relaxed);
        for (signal, old) in &self.old {
            // SAFETY: `old` is the action that the kernel returned for this signal.
            unsafe { libc::sigaction(*signal, old, std::ptr::null_mut()) };
        }
    }
}

/// Sets a handler and returns the previous action. A signal that was ignored (`nohup`) stays
/// ignored.
fn set(signal: i32, handler: Handler) -> Option<libc::sigaction> {
    // SAFETY: `sigaction` is plain data for which zeroes are valid.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the null pointer only asks for the action, and `old` is a valid place for it.
    if unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut old) } != 0
        || old.sa_sigaction == libc::SIG_IGN
    {
        return None;
    }
    // SAFETY: as above.
    let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
    new.sa_sigaction = handler as *const () as usize;
    new.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
    // SAFETY: both pointers are to valid actions, and the handlers are async-signal-safe.
    (unsafe { libc::sigaction(signal, &raw const new, std::ptr::null_mut()) } == 0).then_some(old)
}

/// The pause between two checks whether the program has stopped; it grows from this to `LATER`.
const SOON: Duration = Duration::from_millis(2);
const LATER: Duration = Duration::from_millis(100);

/// After so many checks in a row that find that it can't stop, we stop without it.
const STUCK: u32 = 4;

/// Makes the thread check whether it has to end. By default the signal does nothing: the thread
/// may just be going on after a stop.
const WAKES: i32 = libc::SIGURG;

/// The only thread of this process that takes the terminal's stop signals.
struct Stops {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// The mask of the thread that called `hold`, from before.
    blocked: libc::sigset_t,
}

impl Stops {
    /// `None` if stop signals are ignored or blocked already: then they do not affect us.
    fn hold() -> Option<Self> {
        // SAFETY: plain data, for which zeroes are valid, as places for answers; queries and a
        // valid set.
        let blocked = unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            let mut blocked: libc::sigset_t = std::mem::zeroed();
            let set = set_of(&[libc::SIGTSTP]);
            let nothing = std::ptr::null_mut();
            let usual = libc::sigaction(libc::SIGTSTP, std::ptr::null(), &raw mut now) == 0
                && now.sa_sigaction == libc::SIG_DFL
                && libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut blocked) == 0
                && libc::sigismember(&raw const blocked, libc::SIGTSTP) == 0
                && libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, nothing) == 0;
            usual.then_some(blocked)?
        };
        let mut held = Self {
            over: Arc::default(),
            thread: None,
            blocked,
        };
        let over = Arc::clone(&held.over);
        let watch = move || {
            let (set, nothing) = (set_of(&[WAKES]), std::ptr::null_mut());
            // SAFETY: `set` is a valid set of signals.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, nothing) };
            while !over.load(Ordering::Acquire) {
                if wait(None) && !over.load(Ordering::Acquire) {
                    stop_with_the_program(&over);
                }
            }
        };
        let thread = std::thread::Builder::new().name("stops".into());
        held.thread = Some(thread.spawn(watch).ok()?);
        Some(held)
    }
}

impl Drop for Stops {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // SAFETY: the thread has not been joined, so its handle is valid.
            unsafe { libc::pthread_kill(thread.as_pthread_t(), WAKES) };
            let _ = thread.join();
        }
        if TARGET.load(Ordering::Relaxed) > 0 {
            // A pending stop was meant for the program, which has ended, so it is taken here.
            wait(Some(Duration::ZERO));
        }
        let none = std::ptr::null_mut();
        // SAFETY: the mask is the one that the kernel returned.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.blocked, none) };
    }
}

/// The set that contains these signals.
fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: plain data, for which zeroes are valid, and numbers of signals.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

/// Waits for a stop signal of the terminal, at most for `limit` (under a second). Returns
/// whether one came.
fn wait(limit: Option<Duration>) -> bool {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: 0,
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let set = set_of(&[libc::SIGTSTP, WAKES]);
    // SAFETY: the set is valid, and the time is valid or absent.
    let came = unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), limit) };
    came == libc::SIGTSTP
}

/// Waits until the program has stopped, and then stops this process. The program need not stop:
/// it may handle Ctrl-Z in another way, or end.
fn stop_with_the_program(over: &AtomicBool) {
    let mut pause = SOON;
    let mut stuck = 0;
    while !over.load(Ordering::Acquire) {
        let target = TARGET.load(Ordering::Relaxed);
        match is_stopped(target) {
            // It stops only after its child goes on. Once we have stopped, the user can have both go on.
            Some(false) if waits_for_a_stopped_child(ProcessId(target.unsigned_abs())) => {
                stuck += 1;
                if stuck == STUCK {
                    return stop();
                }
            }
            Some(false) => stuck = 0,
            Some(true) => return stop(),
            None => return,
        }
        wait(Some(pause));
        pause = (pause * 2).min(LATER);
    }
}

/// Stops all threads of this process until the next `SIGCONT`.
fn stop() {
    let (set, nothing) = (set_of(&[libc::SIGTSTP]), std::ptr::null_mut());
    leave();
    let _nobody = stay_awake();
    // SAFETY: the set and the signal number are valid.
    unsafe {
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, nothing);
        libc::raise(libc::SIGTSTP);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, nothing);
    }
}

/// Whether the program has stopped as a whole. Also true if there is none yet, so that there is
/// nothing to wait for; `None` if it has ended and its status was collected.
fn is_stopped(process: i32) -> Option<bool> {
    if process <= 0 {
        return Some(true);
    }
    // SAFETY: plain data, for which zeroes are valid, as a place for the answer. Nothing is
    // collected: whoever waits for the program does that.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WSTOPPED | libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        if libc::waitid(libc::P_PID, process as u32, &raw mut info, options) != 0 {
            return None;
        }
        // A thread that is stopped by us alone is `CLD_TRAPPED`.
        Some(info.si_pid() == process && info.si_code == libc::CLD_STOPPED)
    }
}
