//! Prepares instructions to run at another address. Most can run anywhere unchanged; a branch,
//! or an operand relative to rip, needs a distance from its new address. Used by
//! [`crate::sites`]. An instruction that is not known to be movable is refused.

use alloc::vec::Vec;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

/// Bytes of a distance.
const DISTANCE: usize = 4;

/// A distance of four bytes in code that runs elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distance {
    /// The offset of its first byte in the code.
    pub at: usize,
    /// The address that it leads to; the distance counts from its end.
    pub to: u64,
}

/// Code that can run at another address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// Its bytes, with zeroes for the distances.
    pub bytes: Vec<u8>,
    /// The distances to be filled in.
    pub distances: Vec<Distance>,
    /// Whether it ends with a return or a jump, so that nothing may follow.
    pub ends: bool,
}

impl Elsewhere {
    /// Adds an instruction, encoded in these bytes. Returns false if it can't be moved, or if
    /// nothing leads to it.
    pub fn add(&mut self, i: &Instruction, bytes: &[u8]) -> bool {
        if self.ends {
            return false;
        }
        if i.is_jcc_short_or_near() || i.is_jmp_short_or_near() {
            return self.branch(i);
        }
        match i.flow_control() {
            FlowControl::Next => {}
            FlowControl::Return if i.op_count() == 0 => self.ends = true,
            _ => return false,
        }
        if i.is_ip_rel_memory_operand() {
            return self.relative(i, bytes);
        }
        self.bytes.extend(bytes);
        true
    }

    /// Adds a branch in its long form.
    fn branch(&mut self, i: &Instruction) -> bool {
        /// iced numbers conditions as the processor does, but from one on.
        const FIRST: u8 = 1;
        if i.op0_kind() != OpKind::NearBranch64 {
            return false;
        }
        if i.is_jmp_short_or_near() {
            self.bytes.push(0xe9);
            self.ends = true;
        } else {
            let condition = (i.condition_code() as u8).wrapping_sub(FIRST);
            if condition > 15 {
                return false;
            }
            self.bytes.extend([0x0f, 0x80 | condition]);
        }
        self.distance(i.near_branch_target());
        true
    }

    /// An operand that is counted from the instruction's end.
    fn relative(&mut self, i: &Instruction, bytes: &[u8]) -> bool {
        let mut decoder = Decoder::with_ip(64, bytes, i.ip(), DecoderOptions::NONE);
        let again = decoder.decode();
        let offsets = decoder.get_constant_offsets(&again);
        let at = offsets.displacement_offset();
        let known = offsets.has_displacement() && offsets.displacement_size() == DISTANCE;
        if !known || again != *i || i.memory_base() != Register::RIP {
            return false;
        }
        let (Some(before), Some(behind)) = (bytes.get(..at), bytes.get(at + DISTANCE..)) else {
            return false;
        };
        self.bytes.extend(before);
        self.distance(i.ip_rel_memory_address().wrapping_sub(behind.len() as u64));
        self.bytes.extend(behind);
        true
    }

    fn distance(&mut self, to: u64) {
        self.distances.push(Distance {
            at: self.bytes.len(),
            to,
        });
        self.bytes.extend([0; DISTANCE]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const AT: u64 = 0x1000;

    fn elsewhere(parts: &[&[u8]]) -> Option<Elsewhere> {
        let mut code = Elsewhere::default();
        let mut at = AT;
        for bytes in parts {
            let i = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
            if !code.add(&i, bytes) {
                return None;
            }
            at += bytes.len() as u64;
        }
        Some(code)
    }

    #[test]
    fn branches_have_their_long_form() {
        // cmp rax, -38; jne to 7 bytes after it
        let code = elsewhere(&[&[0x48, 0x83, 0xf8, 0xda], &[0x75, 7]]).expect("both can");
        assert_eq!(code.bytes, [0x48, 0x83, 0xf8, 0xda, 0x0f, 0x85, 0, 0, 0, 0]);
        let to = AT + 6 + 7;
        assert_eq!(code.distances, [Distance { at: 6, to }]);
        assert!(!code.ends);
        // jmp back over itself; nothing follows it.
        let code = elsewhere(&[&[0xeb, 0xfe]]).expect("it can");
        assert_eq!((code.bytes, code.ends), (vec![0xe9, 0, 0, 0, 0], true));
        assert_eq!(code.distances, [Distance { at: 1, to: AT }]);
        assert_eq!(elsewhere(&[&[0xeb, 0], &[0x90]]), None);
        // All conditions, short and long: the processor has them in this order.
        for condition in 0..16 {
            for bytes in [
                &[0x70 | condition, 0][..],
                &[0x0f, 0x80 | condition, 0, 0, 0, 0],
            ] {
                let code = elsewhere(&[bytes]).expect("it can");
                assert_eq!(code.bytes, [0x0f, 0x80 | condition, 0, 0, 0, 0]);
                let to = AT + bytes.len() as u64;
                assert_eq!(code.distances, [Distance { at: 2, to }]);
            }
        }
    }

    #[test]
    fn operands_that_are_counted_from_the_instruction_are_found() {
        // mov esi, [rip+0x100]
        let code = elsewhere(&[&[0x8b, 0x35, 0, 1, 0, 0]]).expect("it can");
        assert_eq!(code.bytes, [0x8b, 0x35, 0, 0, 0, 0]);
        let to = AT + 6 + 0x100;
        assert_eq!(code.distances, [Distance { at: 2, to }]);
        // and dword [rip-8], -129: four bytes more follow the distance.
        let and = [0x81, 0x25, 0xf8, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff];
        let code = elsewhere(&[&and]).expect("it can");
        assert_eq!(code.bytes, [0x81, 0x25, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]);
        let to = AT + 10 - 8 - 4;
        assert_eq!(code.distances, [Distance { at: 2, to }]);
    }

    #[test]
    fn instructions_that_cannot_be_relocated_are_refused() {
        for bytes in [
            // call; syscall; loop; jrcxz; ret 8; jmp rax; int3; mov eax, [eip]
            &[0xe8, 0, 0, 0, 0][..],
            &[0x0f, 0x05],
            &[0xe2, 0],
            &[0xe3, 0],
            &[0xc2, 8, 0],
            &[0xff, 0xe0],
            &[0xcc],
            &[0x67, 0x8b, 0x05, 0, 0, 0, 0],
        ] {
            assert_eq!(elsewhere(&[bytes]), None, "{bytes:x?}");
        }
    }
}
