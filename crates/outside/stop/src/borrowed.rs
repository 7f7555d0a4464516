//! A stopped thread that does something for us: a kernel call, or a call of a function.
//! Nothing is executed that is not there already, and no step of it needs us: whatever the
//! thread is made to do returns into a frame that brings it back to where it was
//! ([`State`]). So if we are killed at any moment, it does what it was about to and goes
//! on. Called by `inject`, always from the same thread.

use super::frame::State;
use super::world::{Memory, has_ended, set_mask};
use crate::thread::{Stopped, request, wait};
use std::cell::Cell;
use std::io;

/// Below a stack pointer lie so many bytes of a function's own.
const RED_ZONE: u64 = 128;
/// Where a function that was called returns to: the kernel call that returns from a
/// signal, with what the function gave in `rdi`. A call that the kernel was told not to
/// make is made after all if nobody is there to say where else to go.
///
/// ```text
///    mov rdi, rax
/// 1: mov eax, 15
///    syscall
///    jmp 1b
/// ```
pub const STUB: [u8; 12] = [0x48, 0x89, 0xc7, 0xb8, 15, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7];
/// From its beginning to behind the kernel call.
const CALLED: u64 = 10;

/// Waits that were too short for a thread, as on a busy machine.
const MOST_WAITS: u32 = 50;

/// Code of the C library by which a thread does what we want.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// A `syscall` instruction with a return behind it.
    pub call: u64,
    /// The return from signals: a call of the kernel, its number loaded before.
    pub restore: u64,
}

/// The thread; dropped, it is as it was.
pub struct Borrowed<'a> {
    thread: &'a Stopped,
    memory: &'a Memory,
    gate: Gate,
    state: State,
    mask: u64,
    /// Where the frame is, and what else was there.
    at: u64,
    kept: Vec<u8>,
    /// Whether it has run since it was stopped.
    ran: Cell<bool>,
    /// Whether it did not stop in time: then nothing is done to it any more, and it comes back
    /// by itself, whenever that is.
    lost: Cell<bool>,
    /// How often it is waited for, each time for a moment.
    waits: u32,
    /// A signal for the process that nobody can block.
    held: Cell<i32>,
}

impl<'a> Borrowed<'a> {
    /// Writes down its state below its stack, and blocks its signals.
    ///
    /// # Errors
    /// As the kernel says, or if there is no room.
    pub fn new(thread: &'a Stopped, memory: &'a Memory, gate: Gate) -> io::Result<Self> {
        let top = thread.registers().rsp.saturating_sub(RED_ZONE);
        Self::below(thread, memory, gate, top)
    }

    /// The same with its frame below `top`, in memory that may be written.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn below(
        thread: &'a Stopped,
        memory: &'a Memory,
        gate: Gate,
        top: u64,
    ) -> io::Result<Self> {
        let mask = thread.mask()?;
        let state = State::of(thread.thread(), thread.registers(), mask)?;
        let at = place(top, &state).ok_or(io::ErrorKind::OutOfMemory)?;
        let frame = state.frame(at, gate.restore);
        let kept = memory.read(at, frame.len())?;
        let borrowed = Self {
            thread,
            memory,
            gate,
            state,
            mask,
            at,
            kept,
            ran: Cell::new(false),
            lost: Cell::new(false),
            waits: MOST_WAITS,
            held: Cell::new(0),
        };
        memory.write(at, &frame)?;
        // From here on it comes back by itself: first its place, then what it blocks.
        set(thread.thread(), &borrowed.parked())?;
        set_mask(thread, u64::MAX)?;
        Ok(borrowed)
    }

    /// Which thread it is.
    pub const fn thread(&self) -> i32 {
        self.thread.thread()
    }

    /// Whether it is away with what it was to do.
    pub const fn is_lost(&self) -> bool {
        self.lost.get()
    }

    /// Makes a kernel call; a negative result is an error number.
    ///
    /// # Errors
    /// If the thread does not come back.
    pub fn call(&self, number: i64, arguments: [u64; 6]) -> io::Result<i64> {
        let mut registers = self.parked();
        registers.rip = self.gate.call;
        registers.rsp = self.at;
        registers.rax = number as u64;
        [
            registers.rdi,
            registers.rsi,
            registers.rdx,
            registers.r10,
            registers.r8,
            registers.r9,
        ] = arguments;
        self.set(&registers)?;
        let end = self.gate.call + 2;
        let is_begun = |r: &libc::user_regs_struct| r.rip == end && r.orig_rax == number as u64;
        self.run_to_call(is_begun)?;
        let after = self.run_to_call(|r| r.rip == end)?;
        Ok(after.rax as i64)
    }

    /// Calls the function at `function` on the stack that ends at `stack`; it returns to
    /// [`STUB`], which is at `stub`.
    ///
    /// # Errors
    /// If the thread does not come back.
    pub fn function(&self, function: u64, argument: u64, stack: u64, stub: u64) -> io::Result<u64> {
        const RETURN_FROM_SIGNAL: u64 = libc::SYS_rt_sigreturn as u64;
        if self.lost.get() {
            return Err(too_late());
        }
        let top = place(stack, &self.state).ok_or(io::ErrorKind::OutOfMemory)?;
        self.memory.write(top, &self.state.frame(top, stub))?;
        let mut registers = self.parked();
        registers.rip = function;
        registers.rsp = top;
        registers.rdi = argument;
        self.set(&registers)?;
        let returned =
            |r: &libc::user_regs_struct| r.rip == stub + CALLED && r.orig_rax == RETURN_FROM_SIGNAL;
        let after = self.run_to_call(returned)?;
        // Not made: it would forget what the kernel knows of a wait.
        self.set(&self.parked())?;
        Ok(after.rdi)
    }

    /// Its registers where nothing is left but to go back: in no kernel call and with plain
    /// flags.
    fn parked(&self) -> libc::user_regs_struct {
        const DIRECTION_AND_TRAP: u64 = 0x500;
        let mut registers = *self.thread.registers();
        registers.orig_rax = u64::MAX;
        registers.eflags &= !DIRECTION_AND_TRAP;
        registers.rip = self.gate.restore;
        registers.rsp = self.at + 8;
        registers
    }

    fn set(&self, registers: &libc::user_regs_struct) -> io::Result<()> {
        if self.lost.get() {
            return Err(too_late());
        }
        set(self.thread.thread(), registers)
    }

    /// Lets it go to the next beginning or end of a kernel call that is the one.
    fn run_to_call(
        &self,
        is_it: impl Fn(&libc::user_regs_struct) -> bool,
    ) -> io::Result<libc::user_regs_struct> {
        const CALL: i32 = libc::SIGTRAP | 0x80;
        self.run(libc::PTRACE_SYSCALL, |status| {
            if libc::WSTOPSIG(status) != CALL {
                return Ok(None);
            }
            let now = get(self.thread.thread())?;
            Ok(is_it(&now).then_some(now))
        })
    }

    /// Lets it go until it stops so that `found` has something.
    fn run<T>(&self, how: u32, found: impl Fn(i32) -> io::Result<Option<T>>) -> io::Result<T> {
        /// Stops that are not the one that is waited for: the library's own kernel calls, and
        /// those of the whole process.
        const MOST_STOPS: u32 = 100_000;
        let thread = self.thread.thread();
        self.ran.set(true);
        request(how, thread, 0, 0)?;
        let mut waits = 0;
        for _ in 0..MOST_STOPS {
            let Some(status) = wait(thread) else {
                waits += 1;
                if waits > self.waits {
                    break;
                }
                continue;
            };
            if !libc::WIFSTOPPED(status) {
                has_ended(thread, status);
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            if let Some(found) = found(status)? {
                return Ok(found);
            }
            if status >> 16 == 0 && libc::WSTOPSIG(status) == libc::SIGSTOP {
                self.held.set(libc::SIGSTOP);
            }
            request(how, thread, 0, 0)?;
        }
        self.lost.set(true);
        Err(too_late())
    }

    /// Has it stop where the kernel begins calls anew, with nothing done; whether it is
    /// there.
    fn stop_again(&self) -> bool {
        let thread = self.thread.thread();
        if self.lost.get() {
            return false;
        }
        if !self.ran.get() {
            return true;
        }
        let stopped = |status: i32| {
            let event = status >> 16 == libc::PTRACE_EVENT_STOP;
            Ok((event && libc::WSTOPSIG(status) == libc::SIGTRAP).then_some(()))
        };
        // If these fail it has been killed.
        self.set(&self.parked()).is_ok()
            && request(libc::PTRACE_INTERRUPT, thread, 0, 0).is_ok()
            && self.run(libc::PTRACE_CONT, stopped).is_ok()
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        // Otherwise it has been killed, or goes back by itself: nothing is to be in its way.
        if self.stop_again() {
            let thread = self.thread.thread();
            // While it would still come back by itself.
            let _ = set_mask(self.thread, self.mask);
            let _ = self.state.restore_extended(thread);
            if set(thread, self.thread.registers()).is_ok() {
                let _ = self.memory.write(self.at, &self.kept);
            }
        }
        if self.held.get() != 0 {
            // SAFETY: takes integers.
            unsafe { libc::syscall(libc::SYS_tkill, self.thread.thread(), self.held.get()) };
        }
    }
}

/// Where a frame lies below `top`: as a function finds its stack.
fn place(top: u64, state: &State) -> Option<u64> {
    let at = top.checked_sub(state.bytes() as u64 + 16)? & !15;
    at.checked_sub(8)
}

fn too_late() -> io::Error {
    io::Error::from_raw_os_error(libc::ETIMEDOUT)
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

#[cfg(test)]
mod tests;
