//! All threads of a running program, stopped with `ptrace`, and one of them made to do
//! something for us: a kernel call, or a call of a function. Nothing is executed that is
//! not there already: kernel calls are made by single steps over an instruction of the C
//! library. Whatever a thread waited for, it goes on waiting for. Called by `inject`,
//! always from the same thread.

use crate::protect::trace::{Stop, Stopped, request, sweep, wait};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use sunder_access::ProcessId;
use sunder_observe::proc;

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
    threads: Vec<Stopped>,
}

impl World {
    /// Stops all threads.
    ///
    /// # Errors
    /// See [`StopError`]; those that had been stopped go on.
    pub fn stop(process: ProcessId) -> Result<Self, StopError> {
        sweep(process.0 as i32);
        let mut world = Self {
            threads: Vec::new(),
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
                    Ok(Stop::Ended(_)) => return Err(StopError::Ended),
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

    /// The thread that does things for us: rather one that computes.
    pub fn worker(&self) -> &Stopped {
        let computes = self.threads.iter().find(|t| t.computing_at().is_some());
        computes.unwrap_or(&self.threads[0])
    }
}

/// Whether a thread has ended, or waits only for its end to be collected.
fn is_over(process: ProcessId, thread: u32) -> bool {
    let path = format!("/proc/{process}/task/{thread}/stat");
    let Ok(text) = std::fs::read_to_string(path) else {
        return true;
    };
    let state = text.rsplit(')').next().unwrap_or("").trim_start();
    matches!(state.chars().next(), Some('Z' | 'X') | None)
}

/// The program's memory, whatever the rights of its pages.
pub struct Memory(File);

impl Memory {
    /// That of `process`.
    ///
    /// # Errors
    /// If we may not look into it.
    pub fn of(process: ProcessId) -> io::Result<Self> {
        let path = format!("/proc/{process}/mem");
        let mut options = std::fs::OpenOptions::new();
        Ok(Self(options.read(true).write(true).open(path)?))
    }

    /// So many bytes at `at`.
    ///
    /// # Errors
    /// If they are not there.
    pub fn read(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
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
        self.0.write_all_at(bytes, at)
    }
}

/// A stopped thread while it does something for us; dropped, it is as it was.
pub struct Borrowed<'a> {
    thread: &'a Stopped,
    mask: u64,
    float: Box<libc::user_fpregs_struct>,
}

impl<'a> Borrowed<'a> {
    /// Remembers its state, and blocks its signals.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn new(thread: &'a Stopped) -> io::Result<Self> {
        let mask = thread.mask()?;
        // SAFETY: plain data, for which zeroes are valid.
        let mut float: Box<libc::user_fpregs_struct> = Box::new(unsafe { std::mem::zeroed() });
        let place = &raw mut *float as usize;
        request(libc::PTRACE_GETFPREGS, thread.thread(), 0, place)?;
        // A trap that is blocked takes the program's handler for it away.
        let all = !(1u64 << (libc::SIGTRAP - 1));
        set_mask(thread, all)?;
        Ok(Self {
            thread,
            mask,
            float,
        })
    }

    /// Makes a kernel call by the `syscall` instruction at `entry`; a negative result is
    /// an error number.
    ///
    /// # Errors
    /// If the thread does not come back.
    pub fn call(&self, entry: u64, number: i64, arguments: [u64; 6]) -> io::Result<i64> {
        let mut registers = self.fresh();
        registers.rip = entry;
        registers.rax = number as u64;
        [
            registers.rdi,
            registers.rsi,
            registers.rdx,
            registers.r10,
            registers.r8,
            registers.r9,
        ] = arguments;
        let after = self.go(registers, libc::PTRACE_SINGLESTEP, entry + 2)?;
        Ok(after.rax as i64)
    }

    /// Calls the function at `function` on the stack that ends at `stack`; it returns to
    /// the trap at `trap`.
    ///
    /// # Errors
    /// If the thread does not come back.
    pub fn function(
        &self,
        memory: &Memory,
        function: u64,
        argument: u64,
        stack: u64,
        trap: u64,
    ) -> io::Result<u64> {
        let mut registers = self.fresh();
        // As after a call.
        let top = (stack & !15) - 8;
        memory.write(top, &trap.to_le_bytes())?;
        registers.rip = function;
        registers.rsp = top;
        registers.rdi = argument;
        let after = self.go(registers, libc::PTRACE_CONT, trap + 1)?;
        Ok(after.rax)
    }

    /// Its registers, in no kernel call and with plain flags.
    fn fresh(&self) -> libc::user_regs_struct {
        const DIRECTION_AND_TRAP: u64 = 0x500;
        let mut registers = *self.thread.registers();
        registers.orig_rax = u64::MAX;
        registers.eflags &= !DIRECTION_AND_TRAP;
        registers
    }

    /// Lets it go with these registers until it traps at `end`.
    fn go(
        &self,
        registers: libc::user_regs_struct,
        how: u32,
        end: u64,
    ) -> io::Result<libc::user_regs_struct> {
        /// Stops that are not the one that is waited for: of the whole process, mostly.
        const MOST_STOPS: u32 = 50;
        let thread = self.thread.thread();
        set(thread, &registers)?;
        request(how, thread, 0, 0)?;
        for _ in 0..MOST_STOPS {
            let Some(status) = wait(thread) else {
                request(libc::PTRACE_INTERRUPT, thread, 0, 0)?;
                continue;
            };
            if !libc::WIFSTOPPED(status) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            let now = get(thread)?;
            if libc::WSTOPSIG(status) == libc::SIGTRAP && status >> 16 == 0 && now.rip == end {
                return Ok(now);
            }
            request(how, thread, 0, 0)?;
        }
        Err(io::Error::from_raw_os_error(libc::ETIMEDOUT))
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let thread = self.thread.thread();
        // If these fail the thread has been killed.
        let _ = request(
            libc::PTRACE_SETFPREGS,
            thread,
            0,
            &raw const *self.float as usize,
        );
        let _ = set(thread, self.thread.registers());
        let _ = set_mask(self.thread, self.mask);
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

fn set(thread: i32, registers: &libc::user_regs_struct) -> io::Result<()> {
    let place = &raw const *registers as usize;
    request(libc::PTRACE_SETREGS, thread, 0, place)
}

fn get(thread: i32) -> io::Result<libc::user_regs_struct> {
    // SAFETY: plain data, for which zeroes are valid.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETREGS, thread, 0, &raw mut registers as usize)?;
    Ok(registers)
}
