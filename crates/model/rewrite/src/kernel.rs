//! Kernel calls in code that is copied: which of them a copy may make itself, and what they do to
//! flags. Called by the control-flow graph and by the tool; it must not know what a copy is for.

use crate::request::Code;
use alloc::vec::Vec;
use iced_x86::{
    Code as Iced, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};
use sunder_x86::Flags;

/// Kernel calls that take no pointers, change only `rax` (and `rcx` and `r11`) and never wait:
/// queries of a thread about itself, and yielding the CPU. A copy may make such a call: an
/// interruption finds either the result in `rax` or the call not yet made, as in the original.
const HARMLESS: [u32; 9] = [
    24,  // sched_yield
    39,  // getpid
    102, // getuid
    104, // getgid
    107, // geteuid
    108, // getegid
    110, // getppid
    111, // getpgrp
    186, // gettid
];

/// The effects of a kernel call on flags: it restores them all.
pub(crate) const FLAGS_OF_KERNEL_CALL: Flags = Flags {
    read: 0,
    changed: 0,
    replaced: 0,
};

/// Whether copies make the kernel call with this number themselves.
pub const fn is_harmless(number: u32) -> bool {
    let mut n = 0;
    while n < HARMLESS.len() {
        if HARMLESS[n] == number {
            return true;
        }
        n += 1;
    }
    false
}

/// Whether it is a kernel call of 64-bit programs.
pub(crate) fn is_kernel_call(i: &Instruction) -> bool {
    i.code() == Iced::Syscall
}

/// The number of the kernel call that `call` makes if it follows `before`.
pub(crate) fn number(call: &Instruction, before: &Instruction) -> Option<u32> {
    let moves = before.mnemonic() == Mnemonic::Mov
        && before.op0_kind() == OpKind::Register
        && before.op0_register() == Register::EAX
        && before.op1_kind() == OpKind::Immediate32;
    (call.code() == Iced::Syscall && moves && before.next_ip() == call.ip())
        .then(|| before.immediate32())
}

/// `code` without the hook after a harmless kernel call in it: such a hook only handles
/// pointers that the kernel could not follow, and these calls take none. `file` holds the same
/// code without hooks. `None` if any other byte differs, or if the jump to the hook overwrites
/// more than one instruction: a thread that leaves the copy there would continue in the middle
/// of that jump.
pub fn without_hooks(code: Code<'_>, file: &[u8]) -> Option<Vec<u8>> {
    const SHORTEST: usize = 5;
    if code.bytes.len() != file.len() {
        return None;
    }
    let mut decoder = Decoder::with_ip(64, file, code.start.0, DecoderOptions::NONE);
    let mut before = [Instruction::default(); 2];
    while decoder.can_decode() {
        let at = decoder.position();
        let i = decoder.decode();
        let end = decoder.position();
        if code.bytes.get(at..end)? != file.get(at..end)? {
            let [first, call] = &before;
            let harmless = number(call, first).is_some_and(is_harmless);
            let behind = call.next_ip() == i.ip();
            let jumps = code.bytes.get(at) == Some(&0xe9) && i.len() >= SHORTEST;
            if !(harmless && behind && jumps) || i.flow_control() != FlowControl::Next {
                return None;
            }
        }
        before = [before[1], i];
    }
    Some(file.to_vec())
}
