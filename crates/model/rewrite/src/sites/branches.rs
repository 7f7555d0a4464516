//! Finds the direct branches into some functions of a library without decoding all of it: a
//! pass over the bytes finds all places that could be such a branch, and only functions with
//! such a place are decoded. Used by [`crate::sites`]; it must not decide what a branch
//! forbids.

use super::code::{Bytes, Function, target};
use alloc::vec;
use alloc::vec::Vec;
use memchr::{memchr_iter, memchr3_iter};

/// Bytes of code for which one bit tells whether they contain part of a wanted function.
const BLOCK: u64 = 64;
/// The farthest target of a branch with a distance of one byte.
const REACH: u64 = 130;

/// The functions that contain one of the addresses, ascending and not overlapping.
pub fn holding(functions: &[Function], addresses: impl Iterator<Item = u64>) -> Vec<Function> {
    let mut found: Vec<Function> = Vec::new();
    for address in addresses {
        if found.last().is_some_and(|f| contains(f, address)) {
            continue;
        }
        let after = functions.partition_point(|f| f.start <= address);
        if let Some(function) = after.checked_sub(1).map(|i| functions[i])
            && contains(&function, address)
        {
            found.push(function);
        }
    }
    found.sort_unstable_by_key(|f| f.start);
    found.dedup();
    found
}

/// The targets, ascending, of direct branches of any of `functions` that lie within the
/// `wanted` ones. Leaves out the first instructions of functions: a patch never overwrites
/// anything before them. Both lists are ascending and don't overlap.
pub fn into(code: Bytes<'_>, functions: &[Function], wanted: &[Function]) -> Vec<u64> {
    let inside = Inside::new(code, wanted);
    let leads_in = |offset: usize, next: usize, distance: i32| {
        let target = (code.at + next as u64).wrapping_add_signed(distance.into());
        inside.has(target).then_some(code.at + offset as u64)
    };
    let bytes = code.bytes;
    let near = |offset: usize| {
        let from = offset + far_opcode(bytes, offset)?;
        let four = bytes.get(from..from + 4)?.try_into().ok()?;
        leads_in(offset, from + 4, i32::from_le_bytes(four))
    };
    let short = |offset: usize| {
        let distance = matches!(bytes[offset], 0x70..=0x7f | 0xe0..=0xe3 | 0xeb)
            .then(|| bytes.get(offset + 1).map(|&b| b as i8))??;
        leads_in(offset, offset + 2, distance.into())
    };
    let near = memchr3_iter(0xe8, 0xe9, 0x0f, bytes)
        .chain(memchr_iter(0xc7, bytes))
        .filter_map(near);
    let around = wanted.iter().flat_map(|f| {
        let at = |address: u64| address.saturating_sub(code.at) as usize;
        at(f.start.saturating_sub(REACH))..at(f.end + REACH).min(bytes.len())
    });
    let from = holding(functions, near.chain(around.filter_map(short)));
    let mut targets = Vec::new();
    for function in from {
        code.each(function, |instruction| {
            targets.extend(target(instruction).filter(|&t| inside.has(t)));
        });
    }
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// The length of the opcode at the offset, if it could be one of a branch with a distance of 4
/// bytes.
fn far_opcode(bytes: &[u8], offset: usize) -> Option<usize> {
    match (bytes.get(offset)?, bytes.get(offset + 1)?) {
        // call, jmp
        (0xe8 | 0xe9, _) => Some(1),
        // jcc; xbegin
        (0x0f, 0x80..=0x8f) | (0xc7, 0xf8) => Some(2),
        _ => None,
    }
}

fn contains(function: &Function, address: u64) -> bool {
    (function.start..function.end).contains(&address)
}

/// The functions in a form that is quick to look up.
struct Inside<'a> {
    functions: &'a [Function],
    at: u64,
    /// For each block of code, whether any function overlaps it.
    blocks: Vec<bool>,
}

impl<'a> Inside<'a> {
    fn new(code: Bytes<'_>, functions: &'a [Function]) -> Self {
        let mut blocks = vec![false; code.bytes.len() / BLOCK as usize + 1];
        for function in functions {
            let from = function.start.saturating_sub(code.at) / BLOCK;
            let to = function.end.saturating_sub(code.at).div_ceil(BLOCK);
            for block in blocks.iter_mut().take(to as usize).skip(from as usize) {
                *block = true;
            }
        }
        Self {
            functions,
            at: code.at,
            blocks,
        }
    }

    fn has(&self, address: u64) -> bool {
        let block = address.wrapping_sub(self.at) / BLOCK;
        let near = usize::try_from(block).ok().and_then(|b| self.blocks.get(b));
        if near != Some(&true) {
            return false;
        }
        let after = self.functions.partition_point(|f| f.start < address);
        let function = after.checked_sub(1).map(|i| self.functions[i]);
        function.is_some_and(|f| contains(&f, address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Instructions that are not branches, with bytes that look like branches.
    const PLAIN: [&[u8]; 5] = [
        &[0x90],
        &[0xb8, 0xe8, 0x10, 0x00, 0x00],
        &[0x48, 0x8b, 0x45, 0xe9],
        &[0x0f, 0x1f, 0x40, 0xeb],
        &[0xc3],
    ];

    fn instruction() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            (0..PLAIN.len()).prop_map(|n| PLAIN[n].to_vec()),
            (0x70u8..0x80, any::<i8>()).prop_map(|(op, to)| vec![op, to as u8]),
            (0xe0u8..0xe4, any::<i8>()).prop_map(|(op, to)| vec![op, to as u8]),
            any::<i8>().prop_map(|to| vec![0xeb, to as u8]),
            (0xe8u8..0xea, -600i32..600)
                .prop_map(|(op, to)| [&[op][..], &to.to_le_bytes()].concat()),
            (0x80u8..0x90, -600i32..600)
                .prop_map(|(op, to)| [&[0x0f, op][..], &to.to_le_bytes()].concat()),
            (-600i32..600).prop_map(|to| [&[0xc7, 0xf8][..], &to.to_le_bytes()].concat()),
        ]
    }

    proptest! {
        /// Finds the same branches as decoding everything does.
        #[test]
        fn branches_are_found_as_by_decoding_everything(
            all in prop::collection::vec(prop::collection::vec(instruction(), 1..12), 1..16),
            wanted in any::<u16>(),
        ) {
            let mut bytes = Vec::new();
            let mut functions = Vec::new();
            for instructions in &all {
                let start = 0x1000 + bytes.len() as u64;
                bytes.extend(instructions.concat());
                functions.push(Function { start, end: 0x1000 + bytes.len() as u64 });
            }
            let chosen: Vec<Function> = functions
                .iter()
                .enumerate()
                .filter(|(n, _)| wanted >> n & 1 != 0)
                .map(|(_, &f)| f)
                .collect();
            let code = Bytes { bytes: &bytes, at: 0x1000 };
            let mut expected = Vec::new();
            for &function in &functions {
                code.each(function, |i| expected.extend(target(i)));
            }
            expected.retain(|t| chosen.iter().any(|f| f.start < *t && *t < f.end));
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(into(code, &functions, &chosen), expected);
        }
    }
}
