//! A [`Borrowed`] thread: a stopped thread that makes kernel calls and calls functions for us. It
//! executes only code that is already in its process, and it needs no help from us to come back:
//! whatever it is made to do returns into a signal frame that restores all its registers
//! ([`State`]). So if we are killed at any moment, the thread finishes what it does and goes on
//! where it was. Called by `repair`, always from the same thread of ours.

use super::frame::State;
use super::world::{Memory, has_ended, set_mask};
use crate::thread::{Stopped, elsewhere, request, signal_of, wait};
use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

/// Bytes below the stack pointer that a function may use (the red zone of the System V ABI).
const RED_ZONE: u64 = 128;
/// The code that a called function returns to: it passes the function's result in `rdi` to
/// `rt_sigreturn`. As long as we trace the thread we stop it at that kernel call and skip the call;
/// if we have been killed, the call is made and takes the thread back.
///
/// ```text
///    mov rdi, rax
/// 1: mov eax, 15
///    syscall
///    jmp 1b
/// ```
pub const STUB: [u8; 12] = [0x48, 0x89, 0xc7, 0xb8, 15, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7];
/// Offset of the address behind the `syscall` instruction.
const CALLED: u64 = 10;

/// How often we wait again for a thread that does not stop in time, as on a busy machine.
const MOST_WAITS: u32 = 50;
/// How long a thread is borrowed at most. What it does takes some milliseconds; but a program can have changed
/// what our memory in it does.
const LONGEST: Duration = Duration::from_secs(30);

/// Addresses of C library code through which a thread does what we want.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// A `syscall` instruction that is followed by a return.
    pub call: u64,
    /// The code that returns from signal handlers: it loads the number of `rt_sigreturn` and calls
    /// the kernel.
    pub restore: u64,
}

/// A borrowed thread. When this is dropped the thread is as it was before.
pub struct Borrowed<'a> {
    thread: &'a Stopped,
    memory: &'a Memory,
    gate: Gate,
    state: State,
    mask: u64,
    /// Address of the signal frame, and the bytes that were there before.
    at: u64,
    kept: Vec<u8>,
    /// Address of the word by which we see that the thread still has this memory, and the bytes that were there
    /// before.
    proof: u64,
    before: Vec<u8>,
    /// Whether it has executed anything since it was stopped.
    ran: Cell<bool>,
    /// It did not stop in time. From then on we do nothing to it; it comes back through its signal
    /// frame when it is done.
    lost: Cell<bool>,
    /// How many times in a row it is waited for, each time for a moment.
    waits: u32,
    /// When it must be done.
    until: Instant,
}

impl<'a> Borrowed<'a> {
    /// Writes the thread's state into a signal frame below its stack pointer, and blocks its
    /// signals.
    ///
    /// # Errors
    /// The kernel's error, or if there is no room for the frame.
    pub fn new(thread: &'a Stopped, memory: &'a Memory, gate: Gate) -> io::Result<Self> {
        let top = thread.registers().rsp.saturating_sub(RED_ZONE);
        Self::below(thread, memory, gate, top)
    }

    /// As [`Self::new`], with the signal frame below `top`, which must lie in writable memory.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn below(
        thread: &'a Stopped,
        memory: &'a Memory,
        gate: Gate,
        top: u64,
    ) -> io::Result<Self> {
        let proof = top.checked_sub(PROOF).ok_or(io::ErrorKind::OutOfMemory)?;
        let before = memory.read(proof, 8)?;
        if !memory.is_of(thread.thread(), proof) {
            let _ = memory.write(proof, &before);
            return Err(elsewhere());
        }
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
            proof,
            before,
            ran: Cell::new(false),
            lost: Cell::new(false),
            waits: MOST_WAITS,
            until: Instant::now() + LONGEST,
        };
        memory.write(at, &frame)?;
        // From here on the thread comes back by itself. First its instruction pointer is set to the
        // return from a signal, then its signals are blocked, which that return takes back.
        borrowed.set(&borrowed.parked())?;
        set_mask(thread, u64::MAX)?;
        Ok(borrowed)
    }

    /// The thread's number.
    pub const fn thread(&self) -> i32 {
        self.thread.thread()
    }

    /// Whether the thread did not stop in time and still does what it was told.
    pub const fn is_lost(&self) -> bool {
        self.lost.get()
    }

    /// Makes a kernel call and gives its result; a negative one is an error number.
    ///
    /// # Errors
    /// If the thread does not come back in time.
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

    /// Calls the function at `function` with `argument`, on the stack that ends at `stack`; gives
    /// its result. The function returns to [`STUB`], which lies at `stub`.
    ///
    /// # Errors
    /// If the thread does not come back in time.
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
        // `rt_sigreturn` itself is skipped: it would discard what the kernel keeps for restarting
        // an interrupted wait.
        self.set(&self.parked())?;
        Ok(after.rdi)
    }

    /// Registers from which the thread only goes back to where it was: at the return from a signal,
    /// in no kernel call, and with plain flags.
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
        // It may have executed another program for us.
        if !self.memory.is_of(self.thread.thread(), self.proof) {
            self.lost.set(true);
            return Err(elsewhere());
        }
        set(self.thread.thread(), registers)
    }

    /// Lets the thread run to the next beginning or end of a kernel call for which `is_it` holds.
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

    /// Lets the thread run from stop to stop until `found` gives a value.
    fn run<T>(&self, how: u32, found: impl Fn(i32) -> io::Result<Option<T>>) -> io::Result<T> {
        /// Most stops that are passed over: kernel calls that the called function makes, and stops
        /// of the whole process.
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
            waits = 0;
            if !libc::WIFSTOPPED(status) {
                has_ended(thread, status);
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            if let Some(found) = found(status)? {
                return Ok(found);
            }
            if Instant::now() > self.until {
                break;
            }
            // All its signals are blocked but this one. It stops the process as it would without us:
            // this thread, which we keep going, stops with the others as soon as it is let go, also
            // if we are killed before; a SIGCONT takes that back.
            let passed_on = match signal_of(status) {
                libc::SIGSTOP => libc::SIGSTOP,
                _ => 0,
            };
            request(how, thread, 0, passed_on as usize)?;
        }
        self.lost.set(true);
        Err(too_late())
    }

    /// Has a thread that has run stop where the kernel can restart its interrupted call, with
    /// nothing executed; whether it stands there.
    fn stop_again(&self) -> bool {
        let thread = self.thread.thread();
        if self.lost.get() {
            return false;
        }
        if !self.ran.get() {
            return true;
        }
        // The stop that we ask for, or that of the whole process: both lie before the next
        // instruction.
        let stopped = |status: i32| Ok((status >> 16 == libc::PTRACE_EVENT_STOP).then_some(()));
        // If one of these fails the thread has been killed.
        self.set(&self.parked()).is_ok()
            && request(libc::PTRACE_INTERRUPT, thread, 0, 0).is_ok()
            && self.run(libc::PTRACE_CONT, stopped).is_ok()
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        // Otherwise the thread has been killed or comes back by itself, and must be left alone.
        let thread = self.thread.thread();
        if self.stop_again() && self.memory.is_of(thread, self.proof) {
            // The signal mask first, while the thread would still come back by itself.
            let _ = set_mask(self.thread, self.mask);
            let _ = self.state.restore_extended(thread);
            if set(thread, self.thread.registers()).is_ok() {
                let _ = self.memory.write(self.at, &self.kept);
                let _ = self.memory.write(self.proof, &self.before);
            }
        }
    }
}

/// So many bytes below the top, between it and the frame.
const PROOF: u64 = 16;

/// Address of a frame that ends below [`PROOF`], aligned as a function expects its stack to be on entry.
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
