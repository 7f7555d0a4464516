//! Stopping single threads of the program with `ptrace`, for as long as it takes to look
//! or to send them somewhere. A thread that was stopped in a system call goes on with it
//! as if nothing had been: unlike a signal, this interrupts nobody. Called by
//! `protect`, and by `repair` and `attach --repair` for all threads at once, always from the
//! same thread.

mod pending;

use super::waits::{Goes, Waits, Words};
use pending::has_fault;
use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const GET_MASK: u32 = 0x420a;
const SET_MASK: u32 = 0x420b;
/// As long as a thread is given to stop. One that waits for a child of `vfork` does
/// not stop before that has gone.
const PATIENCE: Duration = Duration::from_millis(200);

/// Calls that the kernel ends with `EINTR` whenever their thread is stopped, and that
/// may simply be made again.
const AGAIN: [i64; 9] = [
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

/// A stopped thread; dropped, it goes on.
#[derive(Debug)]
pub struct Stopped {
    thread: i32,
    /// Its registers, as they are to be when it goes on.
    registers: libc::user_regs_struct,
}

/// What became of an attempt to stop a thread.
#[derive(Debug)]
pub enum Stop {
    /// It is stopped.
    Stopped(Box<Stopped>),
    /// It is busy with a signal, ends, or can't be stopped now.
    NotNow,
    /// The thread was the process, which has ended with this status.
    Ended(i32),
}

/// A request about a stopped thread.
///
/// # Errors
/// As the kernel says.
pub fn request(what: u32, thread: i32, address: usize, data: usize) -> io::Result<()> {
    #[cfg(test)]
    mortal::step();
    // SAFETY: the callers pass what the request demands.
    let result = unsafe { libc::ptrace(what, thread, address, data) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

impl Stopped {
    /// Stops a thread of `process`.
    ///
    /// # Errors
    /// If the kernel does not let us, as when a debugger watches the program.
    pub fn stop(thread: i32, process: i32) -> io::Result<Stop> {
        if LEFT.with_borrow(|left| left.contains(&thread)) {
            // Asked before, and ours until it has stopped.
            return Ok(Stop::NotNow);
        }
        let options = libc::PTRACE_O_TRACESYSGOOD as usize;
        match request(libc::PTRACE_SEIZE, thread, 0, options) {
            Ok(()) => traced(|all| all.push(thread)),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(Stop::NotNow),
            Err(error) => return Err(error),
        }
        // If this fails, the thread is about to end, which is waited for.
        let _ = request(libc::PTRACE_INTERRUPT, thread, 0, 0);
        let Some(status) = stops(thread) else {
            keep(thread);
            return Ok(Stop::NotNow);
        };
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            gone(thread);
            return Ok(if thread == process {
                Stop::Ended(status)
            } else {
                Stop::NotNow
            });
        }
        if !is_by_us(status) || has_fault(thread) {
            // About to get a signal, or stopped as a whole.
            detach(thread, signal_of(status));
            return Ok(Stop::NotNow);
        }
        // SAFETY: plain data, for which zeroes are valid.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let stopped = |registers| Self { thread, registers };
        if request(libc::PTRACE_GETREGS, thread, 0, &raw mut registers as usize).is_err() {
            drop(stopped(registers));
            return Ok(Stop::NotNow);
        }
        let mut stopped = stopped(registers);
        stopped.keep_the_call();
        Ok(Stop::Stopped(Box::new(stopped)))
    }

    /// Has a call that the kernel would now end with `EINTR` made again, unless a signal
    /// is there for it: -ERESTARTNOHAND says just that. A wait whose time is over has ended.
    fn keep_the_call(&mut self) {
        const RESTART_WITHOUT_HANDLER: i64 = -514;
        let number = self.registers.orig_rax as i64;
        let interrupted = self.registers.rax as i64 == -i64::from(libc::EINTR);
        if interrupted && AGAIN.contains(&number) {
            let (thread, registers) = (self.thread, &mut self.registers);
            let now = Instant::now();
            let mut memory = Waiting(thread);
            let goes = WAITS.with_borrow_mut(|w| w.stopped(thread, registers, &mut memory, now));
            self.registers.rax = match goes {
                Goes::On => RESTART_WITHOUT_HANDLER as u64,
                Goes::Over(result) => i64::from(result) as u64,
            };
            let _ = self.write();
        }
    }

    fn write(&self) -> io::Result<()> {
        let at = &raw const self.registers as usize;
        request(libc::PTRACE_SETREGS, self.thread, 0, at)
    }

    /// Which thread it is.
    pub const fn thread(&self) -> i32 {
        self.thread
    }

    /// Where it stands, if it is in the program's own code and not in the kernel.
    pub const fn computing_at(&self) -> Option<u64> {
        if (self.registers.orig_rax as i64) < 0 && self.registers.cs == 0x33 {
            Some(self.registers.rip)
        } else {
            None
        }
    }

    /// Its registers.
    pub const fn registers(&self) -> &libc::user_regs_struct {
        &self.registers
    }

    /// Has it go on elsewhere when it goes on.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn move_to(&mut self, ip: u64) -> io::Result<()> {
        self.registers.rip = ip;
        self.write()
    }

    /// Its signal mask.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn mask(&self) -> io::Result<u64> {
        let mut mask = 0u64;
        request(GET_MASK, self.thread, 8, &raw mut mask as usize)?;
        Ok(mask)
    }

    /// Has it go on at `entry`, with all signals blocked, `rdi` and the stack pointer as
    /// given.
    ///
    /// # Errors
    /// If that can't be done; it then goes on where it was.
    pub fn send(mut self, entry: u64, argument: u64, stack: u64) -> io::Result<()> {
        const DIRECTION_AND_TRAP: u64 = 0x500;
        let before = self.registers;
        self.registers.rip = entry;
        self.registers.rdi = argument;
        self.registers.rsp = stack;
        self.registers.orig_rax = u64::MAX;
        self.registers.eflags &= !DIRECTION_AND_TRAP;
        // The mask last: with it alone, if we are killed now, the thread would stay deaf.
        self.write()?;
        let all = u64::MAX;
        request(SET_MASK, self.thread, 8, &raw const all as usize).inspect_err(|_| {
            self.registers = before;
            let _ = self.write();
        })
    }

    /// From now on it ends with us: what is done while it is stopped would go wrong if it
    /// went on. Until it is let go.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn bind(&self) -> io::Result<()> {
        let with_us = libc::PTRACE_O_EXITKILL as usize;
        request(libc::PTRACE_SETOPTIONS, self.thread, 0, with_us)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        detach(self.thread, 0);
    }
}

/// The memory of a stopped thread.
struct Waiting(i32);

impl Waiting {
    /// Both sides of a transfer of two words.
    fn sides(at: u64, words: *mut [i64; 2]) -> [libc::iovec; 2] {
        let side = |at: *mut libc::c_void| libc::iovec {
            iov_base: at,
            iov_len: size_of::<[i64; 2]>(),
        };
        [side(words.cast()), side(at as *mut libc::c_void)]
    }
}

impl Words for Waiting {
    fn read(&self, at: u64) -> Option<[i64; 2]> {
        let mut words = [0; 2];
        let [own, its] = Self::sides(at, &raw mut words);
        // SAFETY: a place of ours; the other is the kernel's to look at.
        let done =
            unsafe { libc::process_vm_readv(self.0, &raw const own, 1, &raw const its, 1, 0) };
        (done == 16).then_some(words)
    }

    fn write(&mut self, at: u64, mut words: [i64; 2]) -> bool {
        let [own, its] = Self::sides(at, &raw mut words);
        // SAFETY: as above.
        16 == unsafe { libc::process_vm_writev(self.0, &raw const own, 1, &raw const its, 1, 0) }
    }
}

/// Waits for a thread that was asked to stop, or for its end; the status.
///
/// The kernel stops a thread also between a fault and its signal. What is done to the thread
/// or its handlers then would meet a signal about an instruction that it no longer stands at;
/// so it gets the signal first, and stops where its handler begins.
fn stops(thread: i32) -> Option<i32> {
    /// Faults in a row.
    const MOST: u32 = 8;
    let mut status = wait(thread)?;
    for _ in 0..MOST {
        if !is_by_us(status) || !has_fault(thread) {
            break;
        }
        // If these fail it has been killed.
        let _ = request(libc::PTRACE_CONT, thread, 0, 0);
        status = wait(thread)?;
        if !libc::WIFSTOPPED(status) || status >> 16 != 0 {
            break;
        }
        let signal = libc::WSTOPSIG(status);
        let _ = request(libc::PTRACE_INTERRUPT, thread, 0, 0);
        let _ = request(libc::PTRACE_CONT, thread, 0, signal as usize);
        status = wait(thread)?;
    }
    Some(status)
}

/// Whether a thread has stopped because we asked it to.
fn is_by_us(status: i32) -> bool {
    libc::WIFSTOPPED(status)
        && status >> 16 == libc::PTRACE_EVENT_STOP
        && libc::WSTOPSIG(status) == libc::SIGTRAP
}

/// The signal that a thread was about to get when it stopped with this status; 0 where it
/// stopped for another reason, as at the beginning or end of a kernel call.
const fn signal_of(status: i32) -> i32 {
    const CALL: i32 = libc::SIGTRAP | 0x80;
    match libc::WSTOPSIG(status) {
        signal if status >> 16 == 0 && signal != CALL => signal,
        _ => 0,
    }
}

/// Waits for the thread to stop or end; the status.
pub fn wait(thread: i32) -> Option<i32> {
    let end = Instant::now() + PATIENCE;
    let mut status = 0;
    for round in 0u32.. {
        // SAFETY: a valid place for the status.
        let done = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL | libc::WNOHANG) };
        if done == thread {
            return Some(status);
        }
        if done < 0 || Instant::now() > end {
            return None;
        }
        if round > 20 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    None
}

thread_local! {
    /// The waits of threads that were stopped here.
    static WAITS: RefCell<Waits> = RefCell::default();
    /// Threads that are ours still: asked to stop and not stopped yet, or killed while
    /// they were stopped and not collected yet.
    static LEFT: RefCell<Vec<i32>> = const { RefCell::new(Vec::new()) };
}

/// Lets go whom we have kept longer than we wanted. To be called again and again: the
/// process can't end while a thread of it is not collected. Its status, if it has ended.
pub fn sweep(process: i32) -> Option<i32> {
    let left = LEFT.take();
    let asked = left.contains(&process);
    let mut ended = None;
    // The process always: a thread that we had asked to stop has its number after an
    // `exec`.
    for thread in left.into_iter().filter(|t| *t != process).chain([process]) {
        let mut status = 0;
        // SAFETY: a valid place for the status.
        let done = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL | libc::WNOHANG) };
        if done == 0 && (thread != process || asked) {
            keep(thread);
        } else if done == thread && libc::WIFSTOPPED(status) {
            detach(thread, signal_of(status));
        } else if done != 0 {
            gone(thread);
            if done == thread && thread == process {
                ended = Some(status);
            }
        }
    }
    ended
}

fn keep(thread: i32) {
    LEFT.with_borrow_mut(|left| left.push(thread));
}

/// Lets a stopped thread go, with a signal that it was about to get.
fn detach(thread: i32, signal: i32) {
    match request(libc::PTRACE_DETACH, thread, 0, signal as usize) {
        Ok(()) => gone(thread),
        // Killed meanwhile: its end is ours to collect.
        Err(_) => keep(thread),
    }
}

/// Threads that the kernel takes for ours.
static TRACED: Mutex<Vec<i32>> = Mutex::new(Vec::new());

fn traced(act: impl FnOnce(&mut Vec<i32>)) {
    act(&mut TRACED.lock().unwrap_or_else(PoisonError::into_inner));
}

fn gone(thread: i32) {
    traced(|all| all.retain(|t| *t != thread));
}

/// Collects the ends of threads while the other thread of ours can't: an `exec` of the
/// program waits for them, and asking for a thread then waits for the `exec`.
#[derive(Debug)]
pub struct Collector {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    /// For threads of `process`, whose own end it leaves alone.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(process: i32) -> io::Result<Self> {
        let end = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&end);
        let thread = std::thread::Builder::new().spawn(move || {
            while !told.load(Ordering::Relaxed) {
                std::thread::park_timeout(Duration::from_millis(20));
                let mut all = Vec::new();
                traced(|threads| all.clone_from(threads));
                for thread in all.into_iter().filter(|t| *t != process) {
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

/// Collects the thread if it has ended. A stop, which the kernel tells of whatever is
/// asked, is the other thread's: so look first.
fn collect_end(thread: i32) {
    let wait = |options: i32| {
        // SAFETY: plain data, for which zeroes are valid, as a place for the answer.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let options = options | libc::WEXITED | libc::WNOHANG | libc::__WALL;
            let number = thread as libc::id_t;
            (libc::waitid(libc::P_PID, number, &raw mut info, options) == 0
                && info.si_pid() == thread)
                .then_some(info.si_code)
        }
    };
    let ends = [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED];
    if wait(libc::WNOWAIT).is_some_and(|code| ends.contains(&code)) && wait(0).is_some() {
        gone(thread);
    }
}

/// Tests in which a process of ours is killed while it has stopped threads.
#[cfg(test)]
pub mod mortal {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicI64, Ordering};

    /// Held by tests that stop threads: a process that they fork has this one's locks.
    pub static ALONE: Mutex<()> = Mutex::new(());
    /// Steps that are left; never used up if there are none at first.
    static LEFT: AtomicI64 = AtomicI64::new(0);

    /// The calling process is killed before the step of this number.
    pub fn dies_at(step: i64) {
        LEFT.store(step, Ordering::SeqCst);
    }

    /// One that another process sees.
    pub fn step() {
        if LEFT.fetch_sub(1, Ordering::SeqCst) == 1 {
            // SAFETY: a signal to ourselves, which does not return.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    }
}

#[cfg(test)]
mod tests;
