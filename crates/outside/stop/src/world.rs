//! A [`World`]: all threads of a process, stopped with `ptrace`; and [`Memory`], the memory of a
//! process. A stopped thread that waits in a kernel call goes on waiting. Called by `repair`,
//! always from the same thread, since the kernel lets only the thread that attached use `ptrace`.
//! Must not decide when a process is stopped.

use crate::awake::stay_awake;
use crate::thread::{Asked, Collector, Stop, Stopped, request, sweep};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::MutexGuard;
use sunder_access::{ProcessId, ThreadId};
use sunder_observe::proc::{self, Folder, MemoryUse};

const SET_MASK: u32 = 0x420b;
/// How often the list of threads is read again, to find those that began meanwhile.
const ROUNDS: u32 = 100;

/// Why not all threads could be stopped, or why a stopped thread did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// A thread can't be stopped at the moment. Trying again later may succeed.
    #[error("a thread of it can't be stopped now")]
    NotNow,
    /// The process has ended or is about to end.
    #[error("it has ended")]
    Ended,
    /// The kernel does not allow it.
    #[error("its threads can't be stopped: {0}")]
    Refused(io::Error),
}

/// All threads of a process, stopped. They go on when this is dropped.
pub struct World {
    /// Field order matters: threads go on before we may be stopped ourselves.
    threads: Vec<Stopped>,
    /// A thread that is still to be stopped may execute another program, which waits until those that
    /// are stopped are reaped, and we wait for it.
    _collector: Collector,
    _awake: MutexGuard<'static, ()>,
}

impl World {
    /// Stops all threads.
    ///
    /// # Errors
    /// See [`StopError`]. Threads that were already stopped go on.
    pub fn stop(process: ProcessId) -> Result<Self, StopError> {
        Self::stop_by(process, Asked::stop)
    }

    /// As [`Self::stop`], also if a signal has stopped the whole process: then its threads stay stopped by that
    /// signal, or go on if SIGCONT came meanwhile, when this is dropped.
    ///
    /// # Errors
    /// See [`StopError`]. Threads that were already stopped go on.
    pub fn stop_suspended(process: ProcessId) -> Result<Self, StopError> {
        Self::stop_by(process, Asked::stop_suspended)
    }

    fn stop_by(process: ProcessId, how: fn(Asked, i32) -> Stop) -> Result<Self, StopError> {
        if exit(process).is_some() {
            return Err(StopError::Ended);
        }
        let mut world = Self {
            threads: Vec::new(),
            _collector: Collector::start(process.0 as i32).map_err(StopError::Refused)?,
            _awake: stay_awake(),
        };
        for _ in 0..ROUNDS {
            let all = proc::threads(process).map_err(|_| without_list(process))?;
            let known = |t: u32| world.threads.iter().any(|s| s.thread() == t as i32);
            let new: Vec<u32> = all.iter().map(|t| t.0).filter(|&t| !known(t)).collect();
            let mut any = false;
            // A thread that waits for a CPU stops when its turn comes, so all are asked first.
            let asked = new
                .into_iter()
                .map(|thread| (thread, Asked::ask(thread as i32)));
            let asked: Vec<_> = asked.collect();
            for (thread, asked) in asked {
                let stop = |asked: Option<Asked>| {
                    asked.map_or(Stop::NotNow, |asked| how(asked, process.0 as i32))
                };
                match asked.map(stop) {
                    Ok(Stop::Stopped(stopped)) => {
                        world.threads.push(*stopped);
                        any = true;
                    }
                    Ok(Stop::Ended(status)) => {
                        has_ended(thread as i32, status);
                        return Err(StopError::Ended);
                    }
                    _ if is_over(process, thread) => {}
                    Ok(Stop::NotNow) => return Err(StopError::NotNow),
                    Err(error) => return Err(StopError::Refused(error)),
                }
            }
            if !any {
                return if world.threads.is_empty() {
                    Err(StopError::Ended)
                } else {
                    Ok(world)
                };
            }
        }
        Err(StopError::NotNow)
    }

    /// Whether a signal had stopped the whole process, so that no thread gets on when this is dropped.
    pub fn is_suspended(&self) -> bool {
        self.threads.iter().all(Stopped::is_suspended)
    }

    /// The stopped threads.
    pub fn threads(&self) -> &[Stopped] {
        &self.threads
    }

    /// The stopped threads, to be moved to other code.
    pub fn threads_mut(&mut self) -> &mut [Stopped] {
        &mut self.threads
    }

    /// The stopped threads, those that compute first: they are better lent than threads that wait
    /// in the kernel.
    pub fn workers(&self) -> impl Iterator<Item = &Stopped> {
        let computes = |t: &&Stopped| t.computing_at().is_some();
        let others = self.threads.iter().filter(move |t| !computes(t));
        self.threads.iter().filter(computes).chain(others)
    }
}

thread_local! {
    /// The last thread whose end this thread of ours learned of, and its wait status.
    static ENDED: Cell<Option<(i32, i32)>> = const { Cell::new(None) };
}

/// Remembers the end of a thread and its wait status.
pub(super) fn has_ended(thread: i32, status: i32) {
    ENDED.set(Some((thread, status)));
}

/// The wait status of `process`, a child of ours, if it has ended. `ptrace` reports the ends of
/// threads too, and the kernel reports each end only once; so an end that was learned of elsewhere
/// is remembered here. To be called repeatedly, as it calls [`sweep`].
pub fn exit(process: ProcessId) -> Option<i32> {
    let process = process.0 as i32;
    if let Some(status) = sweep(process) {
        has_ended(process, status);
    }
    ENDED
        .get()
        .and_then(|(thread, status)| (thread == process).then_some(status))
}

/// Whether the kernel lets us stop a child of ours, as far as that can be tested before there is
/// one: a short-lived child that shares our memory asks to be traced by us.
pub fn may_trace() -> bool {
    extern "C" fn ask(_: *mut libc::c_void) -> i32 {
        // SAFETY: `PTRACE_TRACEME` takes no pointers.
        i32::from(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } < 0)
    }
    const BYTES: usize = 16 << 10;
    let mut stack = vec![0u128; BYTES / 16];
    let top = stack.as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let mut status = 0;
    // SAFETY: the stack is aligned and lives until the child has ended: `CLONE_VFORK` makes this
    // thread wait for that. The child writes only to that stack and to `errno`.
    unsafe {
        let child = libc::clone(ask, top.cast(), flags, std::ptr::null_mut());
        child > 0
            && libc::waitpid(child, &raw mut status, libc::__WALL) == child
            && libc::WIFEXITED(status)
            && libc::WEXITSTATUS(status) == 0
    }
}

/// Why the threads of a process can't be listed.
fn without_list(process: ProcessId) -> StopError {
    if is_gone(process, process.0) {
        StopError::Ended
    } else {
        StopError::NotNow
    }
}

/// Whether a thread has ended or is a zombie. "No" if that can't be told: then it is not stopped.
pub(super) fn is_over(process: ProcessId, thread: u32) -> bool {
    match proc::state(Folder::Thread(process, ThreadId(thread))) {
        Ok(state) => matches!(state, Some('Z' | 'X') | None),
        Err(_) => is_gone(process, thread),
    }
}

/// Whether the kernel says that the process has no such thread.
fn is_gone(process: ProcessId, thread: u32) -> bool {
    // SAFETY: takes integers; signal 0 only checks for existence.
    let found = unsafe { libc::syscall(libc::SYS_tgkill, process.0, thread, 0) };
    found < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// The memory of a process. Reads and writes ignore the access rights of pages.
pub struct Memory(File);

impl Memory {
    /// Opens the memory of `process`.
    ///
    /// # Errors
    /// If we may not read and write it.
    pub fn of(process: ProcessId) -> io::Result<Self> {
        Ok(Self(proc::memory(process, MemoryUse::Write)?))
    }

    /// Reads `len` bytes at `at`.
    ///
    /// # Errors
    /// If they are not mapped.
    pub fn read(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_into(at, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `bytes` from `at`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_into(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, at)
    }

    /// Reads `count` words of 8 bytes at `at`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn words(&self, at: u64, count: usize) -> io::Result<Vec<u64>> {
        let bytes = self.read(at, 8 * count)?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok(words.iter().map(|w| u64::from_le_bytes(*w)).collect())
    }

    /// Writes `bytes` at `at`.
    ///
    /// # Errors
    /// If nothing is mapped there.
    pub fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        crate::thread::mortal::step();
        self.0.write_all_at(bytes, at)
    }
}

/// Sets the signal mask of a stopped thread. If the thread waits in a kernel call that has its own
/// mask for the time of the wait, the call sets that mask again when it goes on.
///
/// # Errors
/// The kernel's error.
pub fn set_mask(thread: &Stopped, mask: u64) -> io::Result<()> {
    request(SET_MASK, thread.thread(), 8, &raw const mask as usize)
}
