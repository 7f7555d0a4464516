//! Which pages of code have instructions that order memory between threads: a thread
//! that keeps stores back must not execute them. Called by the tool on the code of
//! files. Pure.

use alloc::collections::BTreeSet;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};

const PAGE: u64 = 4096;

/// The pages (addresses) of `code`, which begins at `address`, that have bytes of an
/// instruction that is locked, fences, waits for another thread, or changes what memory
/// may be used. `code` is taken for one run of instructions, as compilers write it.
pub fn ordering_pages(code: &[u8], address: u64) -> BTreeSet<u64> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut pages = BTreeSet::new();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if orders(&instruction) {
            let last = instruction.next_ip().wrapping_sub(1);
            pages.insert(instruction.ip() & !(PAGE - 1));
            pages.insert(last & !(PAGE - 1));
        }
    }
    pages
}

fn orders(instruction: &Instruction) -> bool {
    let memory = || (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory);
    match instruction.mnemonic() {
        // Locked without the prefix.
        Mnemonic::Xchg => memory(),
        Mnemonic::Mfence
        | Mnemonic::Sfence
        | Mnemonic::Lfence
        | Mnemonic::Pause
        | Mnemonic::Xbegin
        | Mnemonic::Wrpkru
        | Mnemonic::Umwait
        | Mnemonic::Mwaitx => true,
        _ => instruction.has_lock_prefix(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn pages(at: u64, code: &[u8]) -> Vec<u64> {
        ordering_pages(code, at).into_iter().collect()
    }

    #[test]
    fn locked_instructions_and_fences_are_found() {
        // lock inc qword ptr [rax]
        assert_eq!(pages(0x1000, &[0xf0, 0x48, 0xff, 0x00]), [0x1000]);
        // xchg [rdi], eax
        assert_eq!(pages(0x1000, &[0x87, 0x07]), [0x1000]);
        // mfence; pause
        assert_eq!(pages(0x1000, &[0x0f, 0xae, 0xf0]), [0x1000]);
        assert_eq!(pages(0x1000, &[0xf3, 0x90]), [0x1000]);
    }

    #[test]
    fn what_only_looks_like_it_is_not() {
        // mov rax, [rbp-0x10] (a byte of 0xf0); add [rax], ecx
        assert_eq!(pages(0x1000, &[0x48, 0x8b, 0x45, 0xf0, 0x01, 0x08]), []);
        // xchg eax, ecx: registers only.
        assert_eq!(pages(0x1000, &[0x91]), []);
    }

    #[test]
    fn an_instruction_across_a_border_counts_for_both_pages() {
        let mut code = vec![0x90; 0x1000];
        code.splice(0xffe.., [0xf0, 0x48, 0xff, 0x00]);
        assert_eq!(pages(0x5000, &code), [0x5000, 0x6000]);
    }
}
