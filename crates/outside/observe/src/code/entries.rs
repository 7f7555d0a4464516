//! Finds addresses at which control may enter a function other than at its start: by jumps from
//! other functions (the cold part of a split function jumps back) and through jump tables. The
//! decoder must not look back beyond such an entry. An entry too many only costs it accesses; a
//! missing one would make it claim instructions that were not executed. So doubt adds entries.

use super::segments::Segments;
use super::tail_calls::TailCalls;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind, Register};

/// A stretch of code.
pub(super) struct Text<'a> {
    pub bytes: &'a [u8],
    pub address: u64,
}

/// The most entries that a jump table is believed to have.
const LONGEST_TABLE: u64 = 4096;

/// Adds the targets of all bytes that look like a jump with a 32-bit displacement (`e9`, `0f 80` to
/// `0f 8f`) from one function into another, but not to its start. Every byte may begin a jump, so
/// the boundaries of instructions need not be known. Short jumps do not leave a function.
pub(super) fn cross_jumps(text: &Text, functions: &[(u64, u64)], out: &mut Vec<u64>) {
    let bytes = text.bytes;
    let mut own = 0;
    for (position, pair) in bytes.windows(2).enumerate() {
        // The offset of the displacement.
        let distance_at = match *pair {
            [0xe9, _] => position + 1,
            [0x0f, 0x80..=0x8f] => position + 2,
            _ => continue,
        };
        let Some(distance) = bytes
            .get(distance_at..)
            .and_then(|rest| rest.first_chunk::<4>())
        else {
            continue;
        };
        let from = text.address + position as u64;
        let target = (text.address + distance_at as u64 + 4)
            .wrapping_add_signed(i32::from_le_bytes(*distance).into());
        if target.wrapping_sub(text.address) >= bytes.len() as u64 {
            continue;
        }
        // Most jumps stay in their function. It is found without a search, because offsets ascend.
        while functions.get(own + 1).is_some_and(|next| next.0 <= from) {
            own += 1;
        }
        let stays = functions.get(own).is_some_and(|&(start, end)| {
            (start..end).contains(&from) && (start..end).contains(&target)
        });
        if !stays && is_inside_a_function(target, functions) {
            out.push(target);
        }
    }
}

/// Whether `target` lies in a function, but not at its start.
fn is_inside_a_function(target: u64, functions: &[(u64, u64)]) -> bool {
    let after = functions.partition_point(|function| function.0 <= target);
    after
        .checked_sub(1)
        .and_then(|index| functions.get(index))
        .is_some_and(|&(start, end)| target > start && target < end)
}

/// Adds the targets of the jump tables that the function at `start` names. False if it has indirect
/// jumps without a table that may lead back into it. `held` has the addresses of code that the file's
/// data hold, ascending; `None` if they are not known.
pub(super) fn jump_tables<'a>(
    bytes: &[u8],
    start: u64,
    segments: &Segments,
    held: impl FnOnce() -> Option<&'a [u64]>,
    out: &mut Vec<u64>,
) -> bool {
    if !may_jump_indirectly(bytes) {
        return true;
    }
    let end = start + bytes.len() as u64;
    let mut jumps = 0;
    let mut tail_calls = TailCalls::new(start..end);
    let mut bases = Vec::new();
    for instruction in &mut Decoder::with_ip(64, bytes, start, DecoderOptions::NONE) {
        if instruction.flow_control() == FlowControl::IndirectBranch
            && !(instruction.op0_kind() == OpKind::Memory && instruction.is_ip_rel_memory_operand())
        {
            jumps += 1;
            tail_calls.count(&instruction);
            if instruction.op0_kind() == OpKind::Memory
                && instruction.memory_base() == Register::None
                && instruction.memory_index_scale() == 8
            {
                bases.push((instruction.memory_displacement64(), Table::Addresses));
            }
        }
        if instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand() {
            bases.push((instruction.ip_rel_memory_address(), Table::Distances));
        }
        tail_calls.follow(&instruction);
    }
    bases.sort_unstable();
    bases.dedup();
    let mut tables = 0;
    for (base, kind) in bases {
        let before = out.len();
        table(base, kind, start..end, segments, out);
        tables += usize::from(out.len() > before);
    }
    tables >= jumps
        || tables + tail_calls.found() >= jumps
            && held().is_some_and(|held| !tail_calls.may_come_back(held))
}

/// What the entries of a jump table are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Table {
    /// 4-byte displacements from the table's start (position-independent code).
    Distances,
    /// 8-byte addresses.
    Addresses,
}

/// Whether any `ff /4` (an indirect jump) is among the bytes.
fn may_jump_indirectly(bytes: &[u8]) -> bool {
    bytes
        .windows(2)
        .any(|pair| pair[0] == 0xff && pair[1] >> 3 & 7 == 4)
}

/// Reads entries of a table as long as they lead to code. Some may lead to other parts of the
/// function that lie elsewhere.
fn table(
    base: u64,
    kind: Table,
    function: std::ops::Range<u64>,
    segments: &Segments,
    out: &mut Vec<u64>,
) {
    let Some(segment) = segments.at(base).filter(|segment| !segment.execute) else {
        return;
    };
    let room = segment.len - (base - segment.address);
    let size = match kind {
        Table::Distances => 4,
        Table::Addresses => 8,
    };
    let Some(bytes) = segments.read(base, room.min(LONGEST_TABLE * size)) else {
        return;
    };
    for entry in bytes.chunks_exact(size as usize) {
        let target = match *entry {
            [a, b, c, d] => base.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into()),
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => return,
        };
        if !segments.at(target).is_some_and(|segment| segment.execute) {
            return;
        }
        if function.contains(&target) {
            out.push(target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `jmp` and `jne` from one function into the middle of another are found,
    /// jumps within a function and to the start of one are not.
    #[test]
    fn jumps_into_other_functions_are_found() {
        let mut bytes = vec![0x90; 64];
        let mut jump = |at: usize, opcode: &[u8], target: i32| {
            let end = at + opcode.len() + 4;
            bytes[at..at + opcode.len()].copy_from_slice(opcode);
            bytes[end - 4..end].copy_from_slice(&(target - end as i32).to_le_bytes());
        };
        jump(0, &[0xe9], 40); // into the middle of the second
        jump(5, &[0x0f, 0x85], 44); // conditionally
        jump(11, &[0xe9], 20); // within the first
        jump(16, &[0xe9], 32); // to the start of the second
        jump(33, &[0xe9], 4); // back into the first
        jump(50, &[0xe9], 1000); // out of the code
        let functions = [(0x1000, 0x1020), (0x1020, 0x1040)];
        let text = Text {
            bytes: &bytes,
            address: 0x1000,
        };
        let mut found = Vec::new();
        cross_jumps(&text, &functions, &mut found);
        found.sort_unstable();
        assert_eq!(found, [0x1004, 0x1028, 0x102c]);
    }

    #[test]
    fn code_that_ends_in_a_jump_is_no_problem() {
        for bytes in [
            &[0xe9][..],
            &[0x0f, 0x85],
            &[0xe9, 0, 0, 0],
            &[0x0f, 0x84, 1],
        ] {
            let text = Text { bytes, address: 0 };
            cross_jumps(&text, &[(0, 100)], &mut Vec::new());
        }
    }
}
