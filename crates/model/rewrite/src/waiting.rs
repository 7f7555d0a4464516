//! Finds loops that wait for other threads by plain loads: they store nothing and read the same memory in
//! each round, so only somebody else can end them. Compilers take such a load out of the loop, unless it is
//! atomic or volatile. Called by `ordering`: what a thread stored before it waits, it has handed over.
//! It must not need to know where functions begin.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use sunder_access::PAGE;
use sunder_x86::{Manual, Registers};

/// Longer loops, in instructions, are not looked at.
const LONGEST: usize = 32;
/// After so many loops of one file or function, all further ones are taken for loops that wait: hostile code
/// may consist of nothing else.
const MOST: u32 = 1 << 20;

/// A loop that seems to wait for another thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The addresses of its bytes, as far as they lie between its first instruction and the branch to it.
    pub bytes: Range<u64>,
    /// Something that it computes differs from round to round: its rounds may be counted, so that it can end by
    /// itself.
    pub counts: bool,
}

impl Loop {
    /// The pages of its first and its last byte.
    #[must_use]
    pub fn pages(&self) -> [u64; 2] {
        pages_of(self.bytes.start, self.bytes.end)
    }
}

/// The pages of the first and the last byte from `start` to `end`.
pub(crate) fn pages_of(start: u64, end: u64) -> [u64; 2] {
    [start, end.wrapping_sub(1)].map(|at| at & !(PAGE - 1))
}

/// The instructions before the present one, in the order of their addresses.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    manual: Manual,
    before: VecDeque<Instruction>,
    /// Loops that were looked at.
    loops: u32,
}

impl Waits {
    /// Takes the next instruction; gives the waiting loop that ends with it, if one does.
    pub(crate) fn next(&mut self, i: &Instruction) -> Option<Loop> {
        if self.before.len() == LONGEST {
            self.before.pop_front();
        }
        self.before.push_back(*i);
        let first = i.near_branch_target();
        if !branches(i) || first > i.ip() {
            return None;
        }
        let start = self.before.iter().position(|one| one.ip() == first)?;
        self.loops = self.loops.saturating_add(1);
        let counts = self.loops <= MOST && self.waits(start)?;
        let bytes = first..i.next_ip();
        Some(Loop { bytes, counts })
    }

    /// Whether the loop from instruction number `start` on counts its rounds; `None` if it does not wait. Ways
    /// through it are not told apart: at worst a loop is taken for one that waits, and is executed natively.
    fn waits(&mut self, start: usize) -> Option<bool> {
        let Self { manual, before, .. } = self;
        let last = before.len().saturating_sub(1);
        let mut body = Vec::new();
        for (n, i) in before.iter().enumerate().skip(start) {
            let does = manual.does(i);
            let flow = i.flow_control();
            let goes_on = matches!(flow, FlowControl::Next | FlowControl::ConditionalBranch);
            if does.writes_memory() || !goes_on && n < last {
                return None;
            }
            body.push((does.registers, read(i)));
        }
        // What a register holds is the same in each round if nothing in the loop writes it, or if it is
        // computed anew from such registers and from memory.
        let written = |all: u16, (one, _): &(Registers, Option<Read>)| all | one.written;
        let mut steady = !body.iter().fold(0, written);
        let mut polls = false;
        for (one, address) in &body {
            match address {
                None => {}
                Some((address, is_polled)) if address & !steady == 0 => polls |= is_polled,
                // It reads other memory in each round, and so gets on by itself.
                Some(_) => return None,
            }
            // A register of which only a part is written keeps the rest.
            match one.read & !steady == 0 {
                true => steady |= one.replaced,
                false => steady &= !one.written,
            }
        }
        // What is not the same at the end of a round was written in it.
        polls.then_some(steady != u16::MAX)
    }
}

fn branches(i: &Instruction) -> bool {
    let flow = i.flow_control();
    matches!(
        flow,
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    )
}

/// What an instruction reads: the general registers of the address (bits), and whether it is an instruction
/// that programs wait with.
type Read = (u16, bool);

/// What the instruction reads of memory: not of its stack, where compilers keep what has no register, and not
/// of memory of its own thread.
fn read(i: &Instruction) -> Option<Read> {
    let waits = matches!(
        i.mnemonic(),
        Mnemonic::Mov
            | Mnemonic::Movzx
            | Mnemonic::Movsx
            | Mnemonic::Movsxd
            | Mnemonic::Cmp
            | Mnemonic::Test
    );
    let mut operands = 0..i.op_count();
    let has_memory = operands.any(|n| i.op_kind(n) == OpKind::Memory);
    let base = i.memory_base();
    let is_own = matches!(i.memory_segment(), Register::FS | Register::GS);
    let of_frame = base == Register::RBP && (i.memory_displacement64() as i64) < 0;
    let is_unread = matches!(i.mnemonic(), Mnemonic::Lea | Mnemonic::Nop);
    if !has_memory || is_unread || is_own || base == Register::RSP || of_frame {
        return None;
    }
    let bit = |register: Register| match register.is_gpr() {
        true => 1u16 << (register.number() as u16 & 15),
        false => 0,
    };
    Some((bit(base) | bit(i.memory_index()), waits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    /// The waiting loops in this code: the first byte, the end, and whether rounds are counted.
    fn loops(code: &[u8]) -> Vec<(u64, u64, bool)> {
        let mut waits = Waits::default();
        let decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
        let all = decoder.into_iter().filter_map(|i| waits.next(&i));
        let all = all.map(|one| (one.bytes.start, one.bytes.end, one.counts));
        all.collect()
    }

    #[test]
    fn a_loop_that_reads_the_same_place_and_stores_nothing_waits() {
        // mov rax, [rdx]; cmp rax, rsi; jl to the first.
        assert_eq!(
            loops(&[0x48, 0x8b, 0x02, 0x48, 0x39, 0xf0, 0x7c, 0xf8]),
            [(0, 8, false)]
        );
        // cmp dword ptr [rip], 0; je to the first: a global flag.
        assert_eq!(
            loops(&[0x83, 0x3d, 0, 0, 0, 0, 0, 0x74, 0xf7]),
            [(0, 9, false)]
        );
        // Without optimisation: mov rax, [rbp-8]; mov rax, [rax]; test rax, rax; je to the first.
        let slot = [
            0x48, 0x8b, 0x45, 0xf8, 0x48, 0x8b, 0x00, 0x48, 0x85, 0xc0, 0x74, 0xf4,
        ];
        assert_eq!(loops(&slot), [(0, 12, false)]);
        // It counts its rounds: dec ecx; je out; mov rax, [rdx]; test rax, rax; je to the first.
        let counts = [
            0xff, 0xc9, 0x74, 0x08, 0x48, 0x8b, 0x02, 0x48, 0x85, 0xc0, 0x74, 0xf4,
        ];
        assert_eq!(loops(&counts), [(0, 12, true)]);
        // It looks at all flags in each round: lea rax, [rip]; mov edx, 1; first: mov rcx, [rax];
        // setge cl; and edx, ecx; add rax, 8; cmp rdi, rax; jne first; test edx, edx; je to the lea.
        let all = [
            0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xba, 1, 0, 0, 0, 0x48, 0x8b, 0x08, 0x0f, 0x9d, 0xc1,
            0x21, 0xca, 0x48, 0x83, 0xc0, 0x08, 0x48, 0x39, 0xc7, 0x75, 0xef, 0x85, 0xd2, 0x74,
            0xdf,
        ];
        assert_eq!(loops(&all), [(0, 33, false)]);
    }

    #[test]
    fn a_loop_that_gets_on_by_itself_does_not() {
        // mov rax, [rax]; test rax, rax; jne to the first: a list.
        assert_eq!(loops(&[0x48, 0x8b, 0x00, 0x48, 0x85, 0xc0, 0x75, 0xf8]), []);
        // add rdx, 8; cmp rax, [rdx]; jne to the first: a search.
        assert_eq!(
            loops(&[0x48, 0x83, 0xc2, 0x08, 0x48, 0x3b, 0x02, 0x75, 0xf7]),
            []
        );
        // mov rax, [rdx]; mov [rdi], rax; dec rsi; jne to the first: it stores.
        let stores = [
            0x48, 0x8b, 0x02, 0x48, 0x89, 0x07, 0x48, 0xff, 0xce, 0x75, 0xf5,
        ];
        assert_eq!(loops(&stores), []);
        // add rax, 8; cmp rax, [rsp+8]; jne to the first: what had no register.
        assert_eq!(
            loops(&[
                0x48, 0x83, 0xc0, 0x08, 0x48, 0x3b, 0x44, 0x24, 0x08, 0x75, 0xf5
            ]),
            []
        );
        // add rsi, [rdi+rcx*8]; inc rcx; cmp rcx, [rdx]; jl to the first: a sum up to a shared limit.
        let sum = [
            0x48, 0x03, 0x34, 0xcf, 0x48, 0xff, 0xc1, 0x48, 0x3b, 0x0a, 0x7c, 0xf4,
        ];
        assert_eq!(loops(&sum), []);
        // Nothing is read, and yet it is not looked at if it comes after very many.
        let mut waits = Waits {
            loops: MOST,
            ..Waits::default()
        };
        let round = Decoder::with_ip(64, &[0x75, 0xfe], 0, DecoderOptions::NONE).decode();
        let bytes = 0..2;
        let counts = false;
        assert_eq!(waits.next(&round), Some(Loop { bytes, counts }));
        // Nothing is read.
        assert_eq!(loops(&[0x48, 0xff, 0xce, 0x75, 0xfb]), []);
    }
}
