//! Finds loops that wait for other threads by plain loads: they store nothing and read the same memory in
//! each round, so only somebody else can end them. Compilers take such a load out of the loop, unless it is
//! atomic or volatile. Called by `ordering`: what a thread stored before it waits, it has handed over.
//! It must not need to know where functions begin.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use sunder_x86::{Manual, Registers};

/// Longer loops, in instructions, are not looked at.
const LONGEST: usize = 32;
/// After so many loops of one file or function, all further ones are taken for loops that wait: hostile code
/// may consist of nothing else.
const MOST: u32 = 1 << 16;

/// The instructions before the present one, in the order of their addresses.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    manual: Manual,
    before: VecDeque<Instruction>,
    /// Loops that were looked at.
    loops: u32,
}

impl Waits {
    /// Takes the next instruction; gives the addresses of the waiting loop that ends with it, if one does.
    pub(crate) fn next(&mut self, i: &Instruction) -> Option<Range<u64>> {
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
        (self.loops > MOST || self.waits(start)).then(|| first..i.next_ip())
    }

    /// Whether the instructions from number `start` on are a loop that waits. Ways through it are not told
    /// apart: a loop that is taken for one that waits is only not executed in isolation.
    fn waits(&mut self, start: usize) -> bool {
        let Self { manual, before, .. } = self;
        let last = before.len().saturating_sub(1);
        let mut body = Vec::new();
        for (n, i) in before.iter().enumerate().skip(start) {
            let does = manual.does(i);
            let flow = i.flow_control();
            let goes_on = matches!(flow, FlowControl::Next | FlowControl::ConditionalBranch);
            if does.writes_memory() || !goes_on && n < last {
                return false;
            }
            body.push((does.registers, polled(i)));
        }
        // What a register holds is the same in each round if nothing in the loop writes it, or if it is
        // computed anew from such registers and from memory.
        let written = |all: u16, (one, _): &(Registers, Option<u16>)| all | one.written;
        let mut steady = !body.iter().fold(0, written);
        let mut polls = false;
        for (one, address) in &body {
            polls |= address.is_some_and(|address| address & !steady == 0);
            let is_same = one.read & !steady == 0;
            steady &= !one.written;
            if is_same {
                steady |= one.replaced;
            }
        }
        polls
    }
}

fn branches(i: &Instruction) -> bool {
    let flow = i.flow_control();
    matches!(
        flow,
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    )
}

/// The general registers of the address from which an instruction loads a number or compares one: not
/// from its stack, where compilers keep what has no register, and not from memory of its own thread.
fn polled(i: &Instruction) -> Option<u16> {
    let loads = matches!(
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
    if !loads || !has_memory || is_own || base == Register::RSP || of_frame {
        return None;
    }
    let bit = |register: Register| match register.is_gpr() {
        true => 1u16 << (register.number() as u16 & 15),
        false => 0,
    };
    Some(bit(base) | bit(i.memory_index()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    /// The waiting loops in this code, by their first and last byte.
    fn loops(code: &[u8]) -> Vec<(u64, u64)> {
        let mut waits = Waits::default();
        let decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
        let all = decoder.into_iter().filter_map(|i| waits.next(&i));
        all.map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn a_loop_that_reads_the_same_place_and_stores_nothing_waits() {
        // mov rax, [rdx]; cmp rax, rsi; jl to the first.
        assert_eq!(
            loops(&[0x48, 0x8b, 0x02, 0x48, 0x39, 0xf0, 0x7c, 0xf8]),
            [(0, 8)]
        );
        // cmp dword ptr [rip], 0; je to the first: a global flag.
        assert_eq!(loops(&[0x83, 0x3d, 0, 0, 0, 0, 0, 0x74, 0xf7]), [(0, 9)]);
        // Without optimisation: mov rax, [rbp-8]; mov rax, [rax]; test rax, rax; je to the first.
        let slot = [
            0x48, 0x8b, 0x45, 0xf8, 0x48, 0x8b, 0x00, 0x48, 0x85, 0xc0, 0x74, 0xf4,
        ];
        assert_eq!(loops(&slot), [(0, 12)]);
        // It counts its rounds: dec ecx; je out; mov rax, [rdx]; test rax, rax; je to the first.
        let counts = [
            0xff, 0xc9, 0x74, 0x08, 0x48, 0x8b, 0x02, 0x48, 0x85, 0xc0, 0x74, 0xf4,
        ];
        assert_eq!(loops(&counts), [(0, 12)]);
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
        // Nothing is read, and yet it is not looked at if it comes after very many.
        let mut waits = Waits {
            loops: MOST,
            ..Waits::default()
        };
        let round = Decoder::with_ip(64, &[0x75, 0xfe], 0, DecoderOptions::NONE).decode();
        assert_eq!(waits.next(&round), Some(0..2));
        // Nothing is read.
        assert_eq!(loops(&[0x48, 0xff, 0xce, 0x75, 0xfb]), []);
    }
}
