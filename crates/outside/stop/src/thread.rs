//! A [`Stopped`] thread: stops single threads of a process with `ptrace`, to look at their
//! registers or to move them to other code. A thread that was stopped in a kernel call goes on with
//! that call: unlike a signal, the stop interrupts no call. Called by `protect`, and by
//! [`World`](crate::World) for all threads of a process, always from the same thread of ours. Must
//! leave no thread stopped.

mod asked;
mod pending;
mod waiting;

use super::waits::{WaitEnd, Waits};
pub(crate) use asked::Asked;
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sunder_access::{ProcessId, ThreadId};
use sunder_observe::proc::{self, Folder};
use waiting::Waiting;

const GET_MASK: u32 = 0x420a;
const SET_MASK: u32 = 0x420b;
/// What a stop at the beginning or end of a kernel call has in place of a signal.
const CALL: i32 = libc::SIGTRAP | 0x80;
/// How long we wait for a thread to stop. A thread that waits for a child of `vfork` does not stop
/// before that child has ended or executed a program.
const PATIENCE: Duration = Duration::from_millis(200);
/// So long we ask again at once whether a thread has stopped. A sleep of ours takes longer than most
/// kernel calls at which a thread stops, and the whole program waits meanwhile.
const SOON: Duration = Duration::from_micros(500);

/// Kernel calls that end with `EINTR` when their thread was stopped, and that may simply be made
/// again. Those of sockets end so where the socket has a limit of time (`SO_RCVTIMEO`), and only as long as
/// they have transferred nothing.
const AGAIN: [i64; 21] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
];

/// A stopped thread. It goes on when this is dropped.
#[derive(Debug)]
pub struct Stopped {
    thread: i32,
    /// The registers with which it goes on.
    registers: libc::user_regs_struct,
    /// A signal has stopped the whole process.
    is_suspended: bool,
}

/// What became of an attempt to stop a thread.
#[derive(Debug)]
pub enum Stop {
    /// It is stopped.
    Stopped(Box<Stopped>),
    /// It has a signal pending, is about to end, or does not stop in time.
    NotNow,
    /// The whole process has ended, with this wait status.
    Ended(i32),
}

/// Makes a `ptrace` request about a stopped thread.
///
/// # Errors
/// The kernel's error.
pub(crate) fn request(what: u32, thread: i32, address: usize, data: usize) -> io::Result<()> {
    #[cfg(test)]
    {
        mortal::step();
        mortal::refuse()?;
    }
    // SAFETY: the callers pass the address and data that the request needs.
    let result = unsafe { libc::ptrace(what, thread, address, data) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

impl Stopped {
    /// A thread that has just stopped; `None` if its registers can't be read, and then it goes on.
    fn read(thread: i32, is_suspended: bool) -> Option<Self> {
        // SAFETY: plain data, for which zeroes are valid.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let read = request(libc::PTRACE_GETREGS, thread, 0, &raw mut registers as usize);
        let mut stopped = Self {
            thread,
            registers,
            is_suspended,
        };
        read.ok()?;
        // What the program's own stop does to a call is not taken back.
        if !is_suspended {
            stopped.keep_the_call();
        }
        Some(stopped)
    }

    /// Has the kernel make a call again that would now return `EINTR`, unless a signal is pending
    /// for the thread: `-ERESTARTNOHAND` means exactly that. A wait whose time limit is over
    /// returns instead.
    fn keep_the_call(&mut self) {
        const RESTART_WITHOUT_HANDLER: i64 = -514;
        let number = self.registers.orig_rax as i64;
        let interrupted = self.registers.rax as i64 == -i64::from(libc::EINTR);
        if interrupted && AGAIN.contains(&number) {
            let (thread, registers) = (self.thread, &mut self.registers);
            let now = Instant::now();
            let mut memory = Waiting(thread);
            let goes = with_waits(|w| w.stopped(thread, registers, &mut memory, now));
            self.registers.rax = match goes {
                WaitEnd::On => RESTART_WITHOUT_HANDLER as u64,
                WaitEnd::Over(result) => i64::from(result) as u64,
            };
            let _ = self.write();
        }
    }

    fn write(&self) -> io::Result<()> {
        let at = &raw const self.registers as usize;
        request(libc::PTRACE_SETREGS, self.thread, 0, at)
    }

    /// The thread's number.
    pub const fn thread(&self) -> i32 {
        self.thread
    }

    /// Whether a signal has stopped the whole process, for which this thread stays stopped when it is let go.
    pub const fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    /// The instruction pointer, if the thread executes the program's own code and no kernel call.
    pub const fn computing_at(&self) -> Option<u64> {
        if (self.registers.orig_rax as i64) < 0 && self.registers.cs == 0x33 {
            Some(self.registers.rip)
        } else {
            None
        }
    }

    /// The registers with which the thread goes on.
    pub const fn registers(&self) -> &libc::user_regs_struct {
        &self.registers
    }

    /// Sets the instruction pointer with which the thread goes on, and lets `change` its general
    /// registers, which are in the order of their numbers in machine code. `is_same` is asked whether the
    /// thread, by its number, still has the memory that was looked at ([`Memory::is_of`](crate::Memory::is_of)).
    ///
    /// # Errors
    /// The kernel's error, or if the thread executes another program by now.
    pub fn move_to(
        &mut self,
        is_same: impl FnOnce(i32) -> bool,
        ip: u64,
        change: impl FnOnce(&mut [u64; 16]),
    ) -> io::Result<()> {
        if !is_same(self.thread) {
            return Err(elsewhere());
        }
        let before = self.registers;
        let r = &mut self.registers;
        r.rip = ip;
        let mut general = [
            r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15,
        ];
        change(&mut general);
        [
            r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15,
        ] = general;
        self.write()?;
        with_waits(|w| w.moved(self.thread, &before, &self.registers));
        Ok(())
    }

    /// Its signal mask.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn mask(&self) -> io::Result<u64> {
        let mut mask = 0u64;
        request(GET_MASK, self.thread, 8, &raw mut mask as usize)?;
        Ok(mask)
    }

    /// Lets the thread go on at `entry` with all signals blocked, `argument` in `rdi`, and `stack`
    /// as its stack pointer.
    ///
    /// # Errors
    /// If the kernel refuses; the thread then goes on where it was.
    pub fn send(mut self, entry: u64, argument: u64, stack: u64) -> io::Result<()> {
        const DIRECTION_AND_TRAP: u64 = 0x500;
        let before = self.registers;
        self.registers.rip = entry;
        self.registers.rdi = argument;
        self.registers.rsp = stack;
        self.registers.orig_rax = u64::MAX;
        self.registers.eflags &= !DIRECTION_AND_TRAP;
        // The signal mask is set last. If we were killed after setting only the mask, the thread
        // would go on at its old place with its signals blocked for ever.
        self.write()?;
        let all = u64::MAX;
        request(SET_MASK, self.thread, 8, &raw const all as usize).inspect_err(|_| {
            self.registers = before;
            let _ = self.write();
        })
    }

    /// From now on the kernel kills the thread if we die while it is stopped: what is being done to
    /// the process must not be seen half done. Ends when the thread is let go.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn bind(&self) -> io::Result<()> {
        let with_us = libc::PTRACE_O_EXITKILL as usize;
        request(libc::PTRACE_SETOPTIONS, self.thread, 0, with_us)
    }
}

/// The error where a thread executes another program.
pub(crate) fn elsewhere() -> io::Error {
    io::Error::other("it executes another program")
}

impl Drop for Stopped {
    fn drop(&mut self) {
        detach(self.thread, 0);
    }
}

/// The signal that was about to be delivered when a thread stopped with this wait status; 0 if the
/// stop has another reason, such as the beginning or end of a kernel call.
pub(crate) const fn signal_of(status: i32) -> i32 {
    match libc::WSTOPSIG(status) {
        signal if status >> 16 == 0 && signal != CALL => signal,
        _ => 0,
    }
}

/// Waits for the thread to stop or end. Gives the wait status, or `None` if neither happens in
/// time.
pub fn wait(thread: i32) -> Option<i32> {
    let mut status = 0;
    let done = in_time(|| {
        // SAFETY: `status` is a valid place for the status.
        let done = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL | libc::WNOHANG) };
        let failed = done < 0 && error_number() != libc::EINTR;
        (done == thread || failed).then_some(done)
    });
    (done == Some(thread)).then_some(status)
}

/// Asks again and again until there is an answer, which a thread that is asked to stop soon gives;
/// `None` if there is none in time.
fn in_time<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        let waited = begun.elapsed();
        if waited > PATIENCE {
            return None;
        }
        if waited < SOON {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// Time limits of the kernel calls in which threads were stopped, by whichever thread of ours.
static WAITS: LazyLock<Mutex<Waits>> = LazyLock::new(Mutex::default);

fn with_waits<T>(act: impl FnOnce(&mut Waits) -> T) -> T {
    act(&mut WAITS.lock().unwrap_or_else(PoisonError::into_inner))
}

thread_local! {
    /// Threads that are still attached to us: asked to stop and not stopped yet, killed while
    /// stopped and not reaped yet, or stopped because a request to let them go has failed.
    static LEFT: RefCell<Vec<i32>> = const { RefCell::new(Vec::new()) };
    /// The last process that was reaped by this thread of ours, if it had waited for children, and their
    /// share of the CPU time.
    static CHILDREN: Cell<Option<(i32, f64)>> = const { Cell::new(None) };
}

/// As [`proc::childrens_percent`], of a process that has ended and was reaped by [`sweep`] on this thread
/// of ours.
pub fn childrens_percent(process: ProcessId) -> Option<f64> {
    let (reaped, percent) = CHILDREN.get()?;
    (reaped == process.0 as i32).then_some(percent)
}

/// Whether threads are still attached to us that [`sweep`] has to let go.
pub(crate) fn has_left() -> bool {
    LEFT.with_borrow(|left| !left.is_empty())
}

/// Detaches threads that have stopped too late or could not be detached before, and reaps those that
/// have ended. To be called
/// repeatedly: a process does not end while one of its threads is not reaped. Gives the wait status
/// of `process` if it has ended.
pub fn sweep(process: i32) -> Option<i32> {
    let left = LEFT.take();
    let asked = left.contains(&process);
    let mut ended = None;
    // Always asks for the process too: after an `exec`, the thread that executed it has the number
    // of the process.
    for thread in left.into_iter().filter(|t| *t != process).chain([process]) {
        let ours = thread != process || asked;
        // Before the wait: a stop that is seen here and not reported by the wait was reported
        // before.
        let stopped = ours && is_stopped(thread, process);
        if thread == process {
            // Nothing can be read of a process once it was reaped.
            let seen = look(thread, libc::WNOWAIT);
            if seen.is_some_and(is_end) {
                let percent = proc::childrens_percent(ProcessId(process.unsigned_abs()));
                CHILDREN.set(percent.map(|percent| (process, percent)));
            } else if seen.is_none() && !ours {
                // It may end right now. The next sweep reaps it.
                continue;
            }
        }
        let mut status = 0;
        // SAFETY: `status` is a valid place for the status.
        let done = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL | libc::WNOHANG) };
        if done == thread && libc::WIFSTOPPED(status) {
            detach(thread, signal_of(status));
        } else if done == thread {
            gone(thread);
            if thread == process {
                ended = Some(status);
            }
        } else if done < 0 && error_number() == libc::ECHILD {
            gone(thread);
        } else if ours && done == 0 {
            retry(thread, stopped);
        } else if ours {
            keep(thread);
        }
    }
    ended
}

/// Asks again for what was asked of a thread that is still attached: an earlier request about it has
/// failed, or it takes its time. If it is `stopped` it must go on, else it must stop to be detached.
fn retry(thread: i32, stopped: bool) {
    if !stopped {
        let _ = request(libc::PTRACE_INTERRUPT, thread, 0, 0);
        keep(thread);
        return;
    }
    match signal_held(thread) {
        Ok(signal) => detach(thread, signal),
        Err(_) => keep(thread),
    }
}

/// Whether a thread is stopped by its tracer.
fn is_stopped(thread: i32, process: i32) -> bool {
    let folder = Folder::Thread(ProcessId(process as u32), ThreadId(thread as u32));
    matches!(proc::state(folder), Ok(Some('t')))
}

/// The signal that waits for the end of a stop to be delivered; 0 if the thread stopped for another
/// reason.
fn signal_held(thread: i32) -> io::Result<i32> {
    // SAFETY: plain data, for which zeroes are valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    match request(libc::PTRACE_GETSIGINFO, thread, 0, &raw mut info as usize) {
        Ok(()) if info.si_code >> 8 == libc::PTRACE_EVENT_STOP || info.si_code == CALL => Ok(0),
        Ok(()) => Ok(info.si_signo),
        // The process as a whole is stopped: no signal waits.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(0),
        Err(error) => Err(error),
    }
}

fn error_number() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn keep(thread: i32) {
    LEFT.with_borrow_mut(|left| left.push(thread));
}

/// Lets a stopped thread go on, with the signal that was about to be delivered to it.
fn detach(thread: i32, signal: i32) {
    match request(libc::PTRACE_DETACH, thread, 0, signal as usize) {
        Ok(()) => gone(thread),
        // It was killed while it was stopped, and we must reap it; or `sweep` tries again.
        Err(_) => keep(thread),
    }
}

/// Threads that we trace at present, each after the thread of ours that does, for [`Collector`].
static TRACED: Mutex<Vec<(std::thread::ThreadId, i32)>> = Mutex::new(Vec::new());

fn traced(act: impl FnOnce(&mut Vec<(std::thread::ThreadId, i32)>)) {
    act(&mut TRACED.lock().unwrap_or_else(PoisonError::into_inner));
}

fn gone(thread: i32) {
    traced(|all| all.retain(|(_, t)| *t != thread));
}

/// A thread of ours that reaps threads that have ended, while the one that traces them can't: `exec`
/// in the program waits until all other threads are reaped, and a `ptrace` request waits for that
/// `exec`. What others of our threads trace is left to these: they need the status of its end.
#[derive(Debug)]
pub struct Collector {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    /// Starts reaping threads of `process`; the end of the process itself is left to [`sweep`].
    ///
    /// # Errors
    /// If the thread can't be started.
    pub fn start(process: i32) -> io::Result<Self> {
        let end = Arc::new(AtomicBool::new(false));
        let (told, tracer) = (Arc::clone(&end), std::thread::current().id());
        let thread = std::thread::Builder::new().spawn(move || {
            while !told.load(Ordering::Relaxed) {
                std::thread::park_timeout(Duration::from_millis(20));
                let mut all = Vec::new();
                traced(|threads| all.clone_from(threads));
                let its = |&(by, thread): &(std::thread::ThreadId, i32)| {
                    by == tracer && thread != process
                };
                for (_, thread) in all.into_iter().filter(its) {
                    collect_end(thread);
                }
            }
        })?;
        Ok(Self {
            end,
            thread: Some(thread),
        })
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Reaps a thread if it has ended. `waitid` reports stops too, whatever it is asked for, and a stop
/// must be left to our other thread; so this looks first, with `WNOWAIT`.
fn collect_end(thread: i32) {
    if look(thread, libc::WNOWAIT).is_some_and(is_end) && look(thread, 0).is_some() {
        gone(thread);
    }
}

/// Lets a thread go on as soon as it has stopped. An end stays to be told by [`sweep`].
fn detach_when_stopped(thread: i32) {
    let seen = in_time(|| look(thread, libc::WNOWAIT));
    match signal_held(thread) {
        Ok(signal) if seen.is_some_and(|code| !is_end(code)) => detach(thread, signal),
        _ => keep(thread),
    }
}

/// What there is to wait for of a thread, without waiting: a `CLD_` constant.
fn look(thread: i32, options: i32) -> Option<i32> {
    let options = options | libc::WEXITED | libc::WNOHANG | libc::__WALL;
    // SAFETY: `siginfo_t` is plain data, for which zeroes are valid, and is a valid place for the
    // answer.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let number = thread as libc::id_t;
        (libc::waitid(libc::P_PID, number, &raw mut info, options) == 0 && info.si_pid() == thread)
            .then_some(info.si_code)
    }
}

/// Whether a `CLD_` constant tells of an end.
fn is_end(code: i32) -> bool {
    [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED].contains(&code)
}

/// For tests in which a tracing process is killed while it holds stopped threads.
#[cfg(test)]
pub mod mortal {
    use std::cell::Cell;
    use std::io;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicI64, Ordering};

    /// Held by every test that stops threads: a child made by `fork` inherits the state of locks.
    pub static ALONE: Mutex<()> = Mutex::new(());
    /// Steps until the calling process is killed; never, if 0 or less at the start.
    static LEFT: AtomicI64 = AtomicI64::new(0);

    thread_local! {
        /// Requests of this thread until one is refused; none is, if 0.
        static REFUSED: Cell<u32> = const { Cell::new(0) };
    }

    /// Has request number `number` of the calling thread refused, from 1; none if 0.
    pub fn refuses(number: u32) {
        REFUSED.set(number);
    }

    /// Whether the request that was to be refused is still to come.
    pub fn will_refuse() -> bool {
        REFUSED.get() != 0
    }

    /// Counts a request.
    ///
    /// # Errors
    /// If it is the one to be refused.
    pub fn refuse() -> io::Result<()> {
        let number = REFUSED.get();
        REFUSED.set(number.saturating_sub(1));
        if number == 1 {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        Ok(())
    }

    /// Has the calling process killed before its step number `step`.
    pub fn dies_at(step: i64) {
        LEFT.store(step, Ordering::SeqCst);
    }

    /// Counts a step: a change that another process can see.
    pub fn step() {
        if LEFT.fetch_sub(1, Ordering::SeqCst) == 1 {
            // SAFETY: sends a signal to ourselves, and takes no pointers.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    }
}

#[cfg(test)]
mod tests;
