//! General registers by their numbers in machine code, and which of them calls preserve.

use iced_x86::Register;

/// `rax`.
pub const RAX: u8 = 0;
/// `rcx`, the count of a repeated string instruction.
pub const RCX: u8 = 1;
/// `rdx`.
pub const RDX: u8 = 2;
/// `rsp`.
pub const RSP: u8 = 4;
/// `rbp`.
pub const RBP: u8 = 5;
/// `rsi`.
pub const RSI: u8 = 6;
/// `rdi`.
pub const RDI: u8 = 7;
/// `r11`.
pub const R11: u8 = 11;

/// General registers that a called function preserves (System V ABI): `rbx`, `rsp`, `rbp` and
/// `r12` to `r15`. One bit each, as in all masks of registers.
pub const KEPT_BY_CALLS: u16 = 0b1111_0000_0011_1000;

/// General registers that a kernel call by `syscall` changes: that of the result, and two in
/// which the processor saves the return address and the flags.
pub const CHANGED_BY_KERNEL: u16 = 1 << RAX | 1 << RCX | 1 << R11;

/// The number of the general register that contains `register`.
#[must_use]
pub fn general(register: Register) -> Option<u8> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number() as u8)
}

/// As [`general`], if `register` has 32 or 64 bits: a write to it determines all 64.
#[must_use]
pub fn wide(register: Register) -> Option<u8> {
    (register.is_gpr32() || register.is_gpr64()).then(|| register.number() as u8)
}

/// As [`general`], if `register` has all 64 bits.
#[must_use]
pub fn whole(register: Register) -> Option<u8> {
    register.is_gpr64().then(|| register.number() as u8)
}
