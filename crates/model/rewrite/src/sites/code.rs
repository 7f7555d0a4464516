//! The code of a library as functions and bytes, and how they are decoded. Used by all of
//! [`crate::sites`]; it must not know what a hook needs.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};
use sunder_x86::Control;

/// A function of the code, by its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// The first byte.
    pub start: u64,
    /// One beyond the last.
    pub end: u64,
}

/// The bytes of some code.
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// The address of the first.
    pub at: u64,
}

impl Bytes<'_> {
    /// The bytes from `start` up to `end`; `None` if some are missing.
    pub fn slice(&self, start: u64, end: u64) -> Option<&[u8]> {
        let from = usize::try_from(start.checked_sub(self.at)?).ok()?;
        let to = usize::try_from(end.checked_sub(self.at)?).ok()?;
        self.bytes.get(from..to)
    }

    /// The end of the function including the padding up to `next`, with which compilers fill
    /// gaps.
    pub fn with_padding(&self, function: Function, next: Option<u64>) -> u64 {
        /// A jump needs no more padding than this.
        const MOST: u64 = 16;
        let limit = function.end.saturating_add(MOST);
        let limit = next.map_or(limit, |next| next.min(limit));
        let limit = limit.min(self.at.saturating_add(self.bytes.len() as u64));
        let mut end = function.end;
        let gap = Function {
            start: function.end,
            end: limit,
        };
        let mut is_gap = true;
        self.each(gap, |i| {
            is_gap &= is_padding(i);
            if is_gap {
                end = i.next_ip();
            }
        });
        end
    }

    /// Calls `see` with each instruction of `function`, as far as it can be decoded.
    pub fn each(&self, function: Function, mut see: impl FnMut(&Instruction)) {
        let Some(bytes) = self.slice(function.start, function.end) else {
            return;
        };
        let mut decoder = Decoder::with_ip(64, bytes, function.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                return;
            }
            see(&instruction);
        }
    }
}

/// The target of a direct branch.
pub fn target(instruction: &Instruction) -> Option<u64> {
    Control::of(instruction).target()
}

/// Whether the instruction is padding if nothing leads to it.
pub fn is_padding(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}
