//! What Sunder does with signals while a program runs: those of the terminal go
//! to the program anyway (it is in the same process group) and must not end us
//! before it; those sent to us alone are passed on.
//!
//! Ctrl-Z stops us only once the program has stopped. Were we the first, threads of the
//! program that we hold just then could not go on to their handlers, and the terminal would
//! go back to the shell also where the program does not stop. A program that we are attached
//! to is none of the terminal's, and goes on: there we stop at once, but for the moments in
//! which we hold its threads.

use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_stop::stay_awake;

/// Sent by the terminal to the whole group.
const FROM_TERMINAL: [i32; 2] = [libc::SIGINT, libc::SIGQUIT];
/// Sent to us by somebody who means the program.
const PASSED_ON: [i32; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

static TARGET: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: i32) {
    let target = TARGET.load(Ordering::Relaxed);
    if target > 0 {
        // SAFETY: async-signal-safe, and takes two integers.
        unsafe { libc::kill(target, signal) };
    }
}

extern "C" fn stay(_signal: i32) {}

/// Lets a file that may not grow (`ulimit -f`) be an error that is told rather than a silent end.
/// A program that is started gets the disposition with which *we* were started.
pub fn outlive_limits() {
    set(libc::SIGXFSZ, stay);
}

/// Holds the dispositions; gives them back when released.
pub struct Signals {
    old: Vec<(i32, libc::sigaction)>,
    /// Dropped first.
    stops: Option<Stops>,
}

impl Signals {
    /// From now on signals do not end us. Only for a process with one thread.
    pub fn hold() -> Self {
        let mut held = Self::hold_stops();
        held.hold_ends();
        held
    }

    /// From now on Ctrl-Z does not stop us before the program; what ends us still does. Only
    /// for a process with one thread: those that come inherit that stops are not for them, and
    /// any other would take one and stop us all.
    pub fn hold_stops() -> Self {
        Self {
            old: Vec::new(),
            stops: Stops::hold(),
        }
    }

    /// From now on signals do not end us either.
    pub fn hold_ends(&mut self) {
        for signal in FROM_TERMINAL {
            self.old.extend(set(signal, stay).map(|o| (signal, o)));
        }
        for signal in PASSED_ON {
            self.old.extend(set(signal, pass_on).map(|o| (signal, o)));
        }
    }

    /// The program that is meant, a child of ours: before it begins, or Ctrl-Z would find us
    /// alone.
    pub fn forward_to(&self, process: ProcessId) {
        TARGET.store(process.0 as i32, Ordering::Relaxed);
    }

    /// Signals mean us again.
    pub fn release(self) {}
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Before the program is forgotten.
        self.stops = None;
        TARGET.store(0, Ordering::Relaxed);
        for (signal, old) in &self.old {
            // SAFETY: `old` is what the kernel gave us for this signal.
            unsafe { libc::sigaction(*signal, old, std::ptr::null_mut()) };
        }
    }
}

/// Sets a handler; what was there before. A signal that was ignored (`nohup`)
/// stays ignored.
fn set(signal: i32, handler: extern "C" fn(i32)) -> Option<libc::sigaction> {
    // SAFETY: `sigaction` is plain data for which zeroes are valid.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a query into a valid place.
    if unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut old) } != 0
        || old.sa_sigaction == libc::SIG_IGN
    {
        return None;
    }
    // SAFETY: as above.
    let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
    new.sa_sigaction = handler as *const () as usize;
    new.sa_flags = libc::SA_RESTART;
    // SAFETY: both point to valid actions; the handlers are async-signal-safe.
    (unsafe { libc::sigaction(signal, &raw const new, std::ptr::null_mut()) } == 0).then_some(old)
}

/// Between two looks whether the program has stopped, at first; more by and by.
const SOON: Duration = Duration::from_millis(2);
const LATER: Duration = Duration::from_millis(100);

/// Has the thread look whether all is over. By default it does nothing: the thread may just be
/// about to go on after a stop.
const WAKES: i32 = libc::SIGURG;

/// A thread to which the terminal's stops go, and nobody else in this process.
struct Stops {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// The signals that the holder's thread had blocked.
    blocked: libc::sigset_t,
}

impl Stops {
    /// `None` where stops are ignored or blocked already: then they do nothing to us.
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
            // SAFETY: a valid set.
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
            // SAFETY: the thread has not been joined.
            unsafe { libc::pthread_kill(thread.as_pthread_t(), WAKES) };
            let _ = thread.join();
        }
        if TARGET.load(Ordering::Relaxed) > 0 {
            // One that nobody has taken yet was the program's, which has ended.
            wait(Some(Duration::ZERO));
        }
        let none = std::ptr::null_mut();
        // SAFETY: the mask is as the kernel told it.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.blocked, none) };
    }
}

/// A set of signals.
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

/// Waits for a stop of the terminal's, at most for so long; whether one came.
fn wait(limit: Option<Duration>) -> bool {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: 0,
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let set = set_of(&[libc::SIGTSTP, WAKES]);
    // SAFETY: a valid set, and a valid time or none.
    let came = unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), limit) };
    came == libc::SIGTSTP
}

/// Waits until the program has stopped, and stops. It need not come: a program may do
/// something else when Ctrl-Z is pressed, or end.
fn stop_with_the_program(over: &AtomicBool) {
    let mut pause = SOON;
    while !over.load(Ordering::Acquire) {
        match is_stopped(TARGET.load(Ordering::Relaxed)) {
            Some(false) => {}
            Some(true) => return stop(),
            None => return,
        }
        wait(Some(pause));
        pause = (pause * 2).min(LATER);
    }
}

/// All of us stop here, and go on with the next `SIGCONT`.
fn stop() {
    let (set, nothing) = (set_of(&[libc::SIGTSTP]), std::ptr::null_mut());
    let _nobody = stay_awake();
    // SAFETY: a valid set, and a signal's number.
    unsafe {
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, nothing);
        libc::raise(libc::SIGTSTP);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, nothing);
    }
}

/// Whether the program has stopped as a whole or has not begun, so that nobody is to be waited
/// for; `None` if it has ended, as its end was collected.
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
