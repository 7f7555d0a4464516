//! Code that a program made at run time, from its bytes as they are now.
//!
//! No symbols tell where its functions begin, so the instructions executed before a sample are
//! concluded from loops alone: a jump back over the sampled instruction shows where the loop
//! begins, and hot code is in loops. Called by [`super::ProcessCode`]; pure: it reads no memory of
//! a process.

use crate::decode::CodeRange;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use sunder_access::CodeAddress;

/// Bytes wanted before and after a sampled instruction: 40 instructions of at most 15 bytes, and
/// some more.
pub(super) const AROUND: u64 = 640;

/// The code to decode for a sample at `at`: the loop that holds it, or else only what follows it.
/// `bytes` begin at `start` and reach beyond `at`.
pub(super) fn range(bytes: &[u8], start: CodeAddress, at: CodeAddress) -> Option<CodeRange> {
    let code = Bytes {
        bytes,
        start: start.0,
    };
    if let Some(found) = code.loop_around(at.0) {
        let body = code.between(found.top, found.end)?.to_vec();
        let mut range = CodeRange::new(CodeAddress(found.top), body, true);
        range.entries = code.entries(&found);
        return Some(range);
    }
    let mut range = CodeRange::new(at, code.from(at.0)?.to_vec(), false);
    range.stable = false;
    Some(range)
}

/// A loop: its first byte, and the one after its jump back.
struct Loop {
    top: u64,
    end: u64,
}

/// Code bytes and the address of the first.
struct Bytes<'a> {
    bytes: &'a [u8],
    start: u64,
}

impl<'a> Bytes<'a> {
    fn from(&self, at: u64) -> Option<&'a [u8]> {
        self.bytes
            .get(usize::try_from(at.checked_sub(self.start)?).ok()?..)
    }

    fn between(&self, from: u64, to: u64) -> Option<&'a [u8]> {
        self.from(from)?
            .get(..usize::try_from(to.checked_sub(from)?).ok()?)
    }

    /// The innermost loop with `at`, if control gets from `at` to its jump back without leaving
    /// these bytes.
    fn loop_around(&self, at: u64) -> Option<Loop> {
        let mut decoder = Decoder::with_ip(64, self.from(at)?, at, DecoderOptions::NONE);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            match instruction.flow_control() {
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                    let back = target(&instruction).filter(|top| (self.start..=at).contains(top));
                    if let Some(top) = back
                        && self.passes(top, at, instruction.ip())
                    {
                        let end = instruction.next_ip();
                        return Some(Loop { top, end });
                    }
                }
                FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => {}
                _ => return None,
            }
        }
        None
    }

    /// Whether decoding from `top` on finds instructions that begin at `at` and at `last`.
    fn passes(&self, top: u64, at: u64, last: u64) -> bool {
        let Some(bytes) = self.from(top) else {
            return false;
        };
        let mut decoder = Decoder::with_ip(64, bytes, top, DecoderOptions::NONE);
        let mut seen = false;
        while decoder.can_decode() && decoder.ip() <= last {
            if decoder.ip() == last {
                return seen || at == last;
            }
            seen |= decoder.ip() == at;
            if decoder.decode().is_invalid() {
                return false;
            }
        }
        false
    }

    /// Addresses at which control may enter a loop from the code around it. Where instructions
    /// begin there is not known, so every byte may begin a jump: an entry too many only costs
    /// accesses, a missing one would invent some.
    fn entries(&self, inner: &Loop) -> Vec<CodeAddress> {
        let mut entries = Vec::new();
        for (offset, bytes) in (0..).map(|o| (o, self.bytes.get(o..).unwrap_or(&[]))) {
            if bytes.is_empty() {
                break;
            }
            let at = self.start + offset as u64;
            let target = match *bytes {
                [0xeb | 0x70..=0x7f | 0xe0..=0xe3, near, ..] => {
                    (at + 2).wrapping_add_signed(i64::from(near as i8))
                }
                [0xe9, a, b, c, d, ..] => {
                    (at + 5).wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])))
                }
                [0x0f, 0x80..=0x8f, a, b, c, d, ..] => {
                    (at + 6).wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])))
                }
                _ => continue,
            };
            let outside = !(inner.top..inner.end).contains(&at);
            if outside && (inner.top + 1..inner.end).contains(&target) {
                entries.push(CodeAddress(target));
            }
        }
        entries
    }
}

fn target(instruction: &Instruction) -> Option<u64> {
    (instruction.op0_kind() == OpKind::NearBranch64).then(|| instruction.near_branch64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;
    /// A few bytes before: `xor eax, eax; ret`, and `int3` up to the loop.
    const BEFORE: [u8; 8] = [0x31, 0xc0, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc];
    /// `add qword [rdi], 1; mov [rsi], rdx; dec rdx; jnz` to the first; `ret`.
    const LOOP: [u8; 13] = [
        0x48, 0x83, 0x07, 0x01, 0x48, 0x89, 0x16, 0x48, 0xff, 0xca, 0x75, 0xf4, 0xc3,
    ];
    const TOP: u64 = START + 8;

    fn code(before: [u8; 8]) -> Vec<u8> {
        [&before[..], &LOOP].concat()
    }

    fn at(bytes: &[u8], offset: u64) -> CodeRange {
        range(bytes, CodeAddress(START), CodeAddress(TOP + offset)).expect("within")
    }

    #[test]
    fn every_instruction_of_a_loop_leads_to_the_whole_loop() {
        for offset in [0, 4, 7, 10] {
            let range = at(&code(BEFORE), offset);
            assert_eq!(range.start, CodeAddress(TOP), "{offset}");
            assert_eq!(range.bytes, LOOP[..12], "{offset}");
            assert!(range.exact_start && range.stable, "{offset}");
            assert!(range.entries.is_empty(), "{offset}");
        }
    }

    #[test]
    fn after_a_loop_only_the_code_that_follows_is_known() {
        let range = at(&code(BEFORE), 12);
        assert_eq!(
            (range.start, &range.bytes[..]),
            (CodeAddress(TOP + 12), &[0xc3][..])
        );
        assert!(!range.exact_start && !range.stable);
    }

    #[test]
    fn an_address_within_an_instruction_is_in_no_loop() {
        // Decoding 0x83 0x07 … at offset 1 gives an instruction, but none of the loop's.
        assert!(!at(&code(BEFORE), 1).exact_start);
    }

    #[test]
    fn a_jump_into_the_loop_is_an_entry() {
        // A `jmp`, 6 bytes into the code before, to the decrement, at offset 7 of the loop.
        let mut before = BEFORE;
        before[6..].copy_from_slice(&[0xeb, 7]);
        let range = at(&code(before), 10);
        assert_eq!(range.entries, [CodeAddress(TOP + 7)]);
        // A jump to the top enters as the loop's own jump does.
        before[7] = 0;
        assert!(at(&code(before), 10).entries.is_empty());
    }

    #[test]
    fn code_that_is_cut_short_is_in_no_loop() {
        let whole = code(BEFORE);
        assert!(!at(&whole[..whole.len() - 2], 4).exact_start);
        assert!(range(&whole, CodeAddress(START), CodeAddress(START - 1)).is_none());
    }
}
