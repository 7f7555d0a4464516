//! Builds the signal frame that brings a borrowed thread back to where it was without our help:
//! `rt_sigreturn` loads all registers and the signal mask from it. The frame is written before the
//! thread is made to do anything, and whatever the thread does ends with that return; so nothing is
//! lost if we are killed meanwhile. Called by `borrowed`. Reads registers and computes; only
//! [`State::restore_extended`] changes a thread.

use crate::thread::request;
use std::arch::x86_64::__cpuid_count;
use std::io;

/// The register set with the vector and floating-point registers, as `xsave` writes them
/// (`NT_X86_XSTATE`).
const EXTENDED: usize = 0x202;
const GET_REGISTERS: u32 = 0x4204;
const SET_REGISTERS: u32 = 0x4205;
/// Bytes of the area that `fxsave` writes, which comes first.
const LEGACY: usize = 512;
/// Bytes of the `xsave` header behind it.
const HEADER: usize = 64;
/// Bytes of the frame before those registers: a return address and a `ucontext`.
const CONTEXT: usize = 8 + 304;
/// Room for the `xsave` area, more than any CPU writes.
const MOST: usize = 64 << 10;

/// All registers of a thread, with which it goes on.
pub struct State {
    registers: libc::user_regs_struct,
    mask: u64,
    extended: Vec<u8>,
}

impl State {
    /// The state of a stopped thread that has these general registers and this signal mask.
    ///
    /// # Errors
    /// The kernel's error, or `EOPNOTSUPP` if the `xsave` area is too short.
    pub fn of(thread: i32, registers: &libc::user_regs_struct, mask: u64) -> io::Result<Self> {
        let mut extended = vec![0u8; MOST];
        let mut place = libc::iovec {
            iov_base: extended.as_mut_ptr().cast(),
            iov_len: extended.len(),
        };
        request(GET_REGISTERS, thread, EXTENDED, &raw mut place as usize)?;
        extended.truncate(place.iov_len);
        if extended.len() < LEGACY + HEADER {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        Ok(Self {
            registers: *registers,
            mask,
            extended,
        })
    }

    /// Sets the thread's vector and floating-point registers to this state.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn restore_extended(&self, thread: i32) -> io::Result<()> {
        let place = libc::iovec {
            iov_base: self.extended.as_ptr().cast_mut().cast(),
            iov_len: self.extended.len(),
        };
        request(SET_REGISTERS, thread, EXTENDED, &raw const place as usize)
    }

    /// Bytes of the frame, with padding for its alignment.
    pub fn bytes(&self) -> usize {
        CONTEXT + 64 + self.saved() + 4
    }

    /// The frame for the address `at`, which is 8 more than a multiple of 16. Its first word is a
    /// return address, `to`; when a function has returned through it, the stack pointer is at `at +
    /// 8`, as `rt_sigreturn` expects.
    pub fn frame(&self, at: u64, to: u64) -> Vec<u8> {
        const MAGIC_1: u32 = 0x4650_5853;
        const MAGIC_2: u32 = 0x4650_5845;
        /// `UC_FP_XSTATE`, `UC_SIGCONTEXT_SS`, `UC_STRICT_RESTORE_SS`.
        const FLAGS: u64 = 7;
        /// An invalid mode for the alternate signal stack: the kernel then leaves the present one
        /// as it is.
        const NO_MODE: u64 = 0x1000;
        let r = going_on(&self.registers);
        let saved = self.saved();
        let extended = (at + CONTEXT as u64).next_multiple_of(64);
        let segments = r.cs & 0xffff | (r.ss & 0xffff) << 48;
        #[rustfmt::skip]
        let words = [
            to,
            FLAGS, 0, 0, NO_MODE, 0,
            r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15,
            r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags,
            segments, 0, 0, 0, 0, extended, 0, 0, 0, 0, 0, 0, 0, 0,
            self.mask,
        ];
        let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        debug_assert_eq!(bytes.len(), CONTEXT);
        bytes.resize((extended - at) as usize, 0);
        bytes.extend(&self.extended[..saved]);
        // The kernel's `_fpx_sw_bytes`, in the last bytes of the `fxsave` area.
        let about = (extended - at) as usize + 464;
        let features = self.features() | 3;
        let said = [
            u64::from(MAGIC_1) | (saved as u64 + 4) << 32,
            features,
            saved as u64,
            0,
            0,
            0,
        ];
        let said: Vec<u8> = said.iter().flat_map(|w| w.to_le_bytes()).collect();
        bytes[about..about + said.len()].copy_from_slice(&said);
        bytes.extend(MAGIC_2.to_le_bytes());
        bytes
    }

    /// The mask of state components that are not in their initial state (`XSTATE_BV`).
    fn features(&self) -> u64 {
        let word = self.extended[LEGACY..LEGACY + 8].try_into();
        word.map_or(0, u64::from_le_bytes)
    }

    /// Bytes up to the end of the last such component: components that the thread has never used
    /// are left out.
    fn saved(&self) -> usize {
        let parts = (2..63).filter(|part| self.features() >> part & 1 != 0);
        let ends = parts.map(|part| {
            let about = __cpuid_count(0xd, part);
            (about.ebx + about.eax) as usize
        });
        let end = ends.max().unwrap_or(0).max(LEGACY + HEADER);
        end.min(self.extended.len())
    }
}

/// The registers with which a thread must go on if the kernel does not restart its interrupted
/// call: with them the thread makes the call again. `rt_sigreturn` discards what the kernel keeps
/// of an interrupted wait, so a wait with a limit begins anew with its whole limit.
fn going_on(registers: &libc::user_regs_struct) -> libc::user_regs_struct {
    /// `ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`, `ERESTART_RESTARTBLOCK`.
    const AGAIN: [i64; 4] = [-512, -513, -514, -516];
    let mut registers = *registers;
    if registers.orig_rax as i64 >= 0 && AGAIN.contains(&(registers.rax as i64)) {
        registers.rax = registers.orig_rax;
        registers.rip -= 2;
    }
    registers
}

#[cfg(test)]
mod tests {
    use super::{CONTEXT, HEADER, LEGACY, State, going_on};

    fn registers() -> libc::user_regs_struct {
        // SAFETY: plain data, for which zeroes are valid.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        registers.rip = 0x1002;
        registers.orig_rax = u64::MAX;
        registers
    }

    #[test]
    fn calls_that_the_kernel_would_begin_anew_are_made_again() {
        for error in [-512i64, -513, -514, -516] {
            let mut waiting = registers();
            waiting.orig_rax = libc::SYS_poll as u64;
            waiting.rax = error as u64;
            let on = going_on(&waiting);
            assert_eq!((on.rip, on.rax), (0x1000, libc::SYS_poll as u64));
        }
        let mut done = registers();
        done.orig_rax = libc::SYS_poll as u64;
        done.rax = -4i64 as u64;
        let on = going_on(&done);
        assert_eq!((on.rip, on.rax), (0x1002, done.rax), "the call has ended");
        let mut computes = registers();
        computes.rax = -512i64 as u64;
        assert_eq!(going_on(&computes).rip, 0x1002, "the thread is in no call");
    }

    /// The offsets are those of `struct rt_sigframe` and of the kernel's
    /// `struct _fpx_sw_bytes`.
    #[test]
    fn frames_are_laid_out_as_the_kernels() {
        let mut before = registers();
        (before.rsp, before.r8, before.cs, before.ss) = (0x7000, 8, 0x33, 0x2b);
        let state = State {
            registers: before,
            mask: 0x55,
            extended: vec![7; LEGACY].into_iter().chain(vec![0; HEADER]).collect(),
        };
        let at = 0x6008;
        let frame = state.frame(at, 0x1234);
        assert!(frame.len() <= state.bytes());
        let word = |i: usize| u64::from_le_bytes(frame[i..i + 8].try_into().expect("8 bytes"));
        assert_eq!(word(0), 0x1234);
        // A `ucontext` follows the return address.
        let context = std::mem::size_of::<libc::ucontext_t>();
        assert!(CONTEXT - 8 < context, "the C library's has more");
        let general = 8 + std::mem::offset_of!(libc::ucontext_t, uc_mcontext);
        let register = |i: i32| word(general + 8 * i as usize);
        assert_eq!(register(libc::REG_R8), 8);
        assert_eq!(register(libc::REG_RSP), 0x7000);
        assert_eq!(register(libc::REG_RIP), 0x1002);
        assert_eq!(register(libc::REG_CSGSFS), 0x33 | 0x2b << 48);
        assert_eq!(word(8 + 296), 0x55);
        let extended = register(23);
        assert_eq!(extended % 64, 0);
        let place = (extended - at) as usize;
        assert_eq!(frame[place], 7);
        assert_eq!(word(place + 464), 0x4650_5853 | (576 + 4) << 32);
        assert_eq!((word(place + 472), word(place + 480)), (3, 576));
        assert_eq!(frame[place + 576..], 0x4650_5845u32.to_le_bytes());
        assert_eq!(at % 16, 8);
    }
}
