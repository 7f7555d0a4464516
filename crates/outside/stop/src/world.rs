//! All threads of a running program, stopped with `ptrace`, and the program's memory.
//! Whatever a thread waited for, it goes on waiting for. Called by `inject`, always from
//! the same thread.

use crate::awake::stay_awake;
use crate::thread::{Stop, Stopped, request, sweep};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::MutexGuard;
use sunder_access::{ProcessId, ThreadId};
use sunder_observe::proc::{self, Folder};

const SET_MASK: u32 = 0x420b;
/// How often threads that have just begun are looked for.
const ROUNDS: u32 = 100;

/// Why not all threads could be stopped, or one did not do what it was to.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// Another moment may be better.
    #[error("a thread of it can't be stopped now")]
    NotNow,
    /// The process has ended, or is about to.
    #[error("it has ended")]
    Ended,
    /// The kernel does not let us.
    #[error("its threads can't be stopped: {0}")]
    Refused(io::Error),
}

/// All threads, stopped; dropped, they go on.
pub struct World {
    /// Dropped first.
    threads: Vec<Stopped>,
    _awake: MutexGuard<'static, ()>,
}

impl World {
    /// Stops all threads.
    ///
    /// # Errors
    /// See [`StopError`]; those that had been stopped go on.
    pub fn stop(process: ProcessId) -> Result<Self, StopError> {
        if exit(process).is_some() {
            return Err(StopError::Ended);
        }
        let mut world = Self {
            threads: Vec::new(),
            _awake: stay_awake(),
        };
        for _ in 0..ROUNDS {
            let all = proc::threads(process).map_err(|_| StopError::Ended)?;
            let known = |t: u32| world.threads.iter().any(|s| s.thread() == t as i32);
            let new: Vec<u32> = all.iter().map(|t| t.0).filter(|&t| !known(t)).collect();
            let mut any = false;
            for thread in new {
                match Stopped::stop(thread as i32, process.0 as i32) {
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

    /// All of them.
    pub fn threads(&self) -> &[Stopped] {
        &self.threads
    }

    /// The same, to be sent elsewhere.
    pub fn threads_mut(&mut self) -> &mut [Stopped] {
        &mut self.threads
    }

    /// All of them, and first those that compute: rather they do things for us than who waits.
    pub fn workers(&self) -> impl Iterator<Item = &Stopped> {
        let computes = |t: &&Stopped| t.computing_at().is_some();
        let others = self.threads.iter().filter(move |t| !computes(t));
        self.threads.iter().filter(computes).chain(others)
    }
}

thread_local! {
    /// The last thread whose end was learned of here, and its status.
    static ENDED: Cell<Option<(i32, i32)>> = const { Cell::new(None) };
}

/// That a thread has ended was learned with this status.
pub(super) fn has_ended(thread: i32, status: i32) {
    ENDED.set(Some((thread, status)));
}

/// The status of `process`, a child of ours, if it has ended. Who stops threads is told of
/// their ends too, and the kernel tells of each once. To be called again and again; see
/// [`sweep`].
pub fn exit(process: ProcessId) -> Option<i32> {
    let process = process.0 as i32;
    if let Some(status) = sweep(process) {
        has_ended(process, status);
    }
    ENDED
        .get()
        .and_then(|(thread, status)| (thread == process).then_some(status))
}

/// Whether the kernel lets us stop a child of ours, as far as can be told before there
/// is one: another, which shares our memory for the moment, asks to be stopped by us.
pub fn may_trace() -> bool {
    extern "C" fn ask(_: *mut libc::c_void) -> i32 {
        // SAFETY: takes no pointers.
        i32::from(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } < 0)
    }
    const BYTES: usize = 16 << 10;
    let mut stack = vec![0u128; BYTES / 16];
    let top = stack.as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let mut status = 0;
    // SAFETY: the stack is aligned and lives until the child has ended, for which this
    // thread waits; the child changes nothing but that stack and `errno`.
    unsafe {
        let child = libc::clone(ask, top.cast(), flags, std::ptr::null_mut());
        child > 0
            && libc::waitpid(child, &raw mut status, libc::__WALL) == child
            && libc::WIFEXITED(status)
            && libc::WEXITSTATUS(status) == 0
    }
}

/// Whether a thread has ended, or waits only for its end to be collected.
fn is_over(process: ProcessId, thread: u32) -> bool {
    let state = proc::state(Folder::Thread(process, ThreadId(thread)));
    matches!(state, Ok(Some('Z' | 'X') | None) | Err(_))
}

/// The program's memory, whatever the rights of its pages.
pub struct Memory(File);

impl Memory {
    /// That of `process`.
    ///
    /// # Errors
    /// If we may not look into it.
    pub fn of(process: ProcessId) -> io::Result<Self> {
        let path = format!("/proc/{}/mem", proc::living_number(process));
        let mut options = std::fs::OpenOptions::new();
        Ok(Self(options.read(true).write(true).open(path)?))
    }

    /// So many bytes at `at`.
    ///
    /// # Errors
    /// If they are not there.
    pub fn read(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_into(at, &mut bytes)?;
        Ok(bytes)
    }

    /// As many bytes at `at` as there is room for.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_into(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, at)
    }

    /// The words at `at`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn words(&self, at: u64, count: usize) -> io::Result<Vec<u64>> {
        let bytes = self.read(at, 8 * count)?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok(words.iter().map(|w| u64::from_le_bytes(*w)).collect())
    }

    /// Writes there.
    ///
    /// # Errors
    /// If nothing can be written there.
    pub fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        crate::thread::mortal::step();
        self.0.write_all_at(bytes, at)
    }
}

/// Sets what a stopped thread blocks; what a call that it waits in has set for its time
/// is set again when the call goes on.
///
/// # Errors
/// As the kernel says.
pub fn set_mask(thread: &Stopped, mask: u64) -> io::Result<()> {
    request(SET_MASK, thread.thread(), 8, &raw const mask as usize)
}
