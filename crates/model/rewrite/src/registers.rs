//! General registers by their numbers in machine code, and their values.

use iced_x86 as iced;
use sunder_access::CodeAddress;

/// The most slots of a frame that are followed like registers ([`crate::slots`]).
pub(crate) const SLOTS: usize = 8;

/// The number of registers and slots that facts are about.
pub(crate) const FOLLOWED: usize = 16 + SLOTS;

/// A general register by its number in machine code: 0 is rax, 1 rcx, 2 rdx, 3
/// rbx, 4 rsp, 5 rbp, 6 rsi, 7 rdi, and 8 to 15 are r8 to r15. Within this crate the
/// numbers above are slots of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Register(pub u8);

impl Register {
    pub(crate) const RSP: Self = Self(4);
    pub(crate) const RBP: Self = Self(5);

    /// The general register that `register` is a part of.
    pub(crate) fn of(register: iced::Register) -> Option<Self> {
        sunder_x86::register::general(register).map(Self)
    }

    /// The same if it is all 64 bits.
    pub(crate) fn whole(register: iced::Register) -> Option<Self> {
        sunder_x86::register::whole(register).map(Self)
    }

    pub(crate) fn iced(self) -> iced::Register {
        iced::Register::RAX + u32::from(self.0 & 15)
    }

    /// The slot of this number.
    pub(crate) const fn slot(number: usize) -> Self {
        Self(16 + (number % SLOTS) as u8)
    }

    /// Which slot it is, if it is none of the machine's registers.
    pub(crate) const fn as_slot(self) -> Option<usize> {
        self.index().checked_sub(16)
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize % FOLLOWED
    }

    pub(crate) const fn bit(self) -> u32 {
        1 << self.index()
    }
}

/// What a thread had in its registers at an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// By number; see [`Register`].
    pub general: [u64; 16],
    /// The instruction that comes next.
    pub ip: CodeAddress,
}

impl Registers {
    /// The value of `register`.
    pub const fn get(&self, register: Register) -> u64 {
        self.general[register.index() & 15]
    }
}
