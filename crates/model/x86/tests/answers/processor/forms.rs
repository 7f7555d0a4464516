//! The forms of instructions in the files of this machine, each with an example.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, OpKind, Register};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The properties by which instructions differ enough for a test of each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Form {
    code: Code,
    kinds: [OpKind; 5],
    /// `lock`, `rep`, `repne`, zeroing, the mask, a segment.
    prefixes: u8,
    /// Whether the first two operands are the same register, and whether registers are
    /// high bytes.
    registers: u8,
    /// Whether there are a base and an index, of which width, and how they differ.
    address: u8,
}

impl Form {
    fn of(i: &Instruction) -> Self {
        let bit = |is: bool, n: u8| u8::from(is) << n;
        let high =
            |r: Register| matches!(r, Register::AH | Register::BH | Register::CH | Register::DH);
        let (base, index) = (i.memory_base(), i.memory_index());
        Self {
            code: i.code(),
            kinds: [0, 1, 2, 3, 4].map(|n| i.try_op_kind(n).unwrap_or(OpKind::Register)),
            prefixes: bit(i.has_lock_prefix(), 0)
                | bit(i.has_rep_prefix(), 1)
                | bit(i.has_repne_prefix(), 2)
                | bit(i.zeroing_masking(), 3)
                | bit(i.has_op_mask(), 4)
                | bit(i.has_segment_prefix(), 5),
            registers: bit(i.op0_register() == i.op1_register(), 0)
                | bit(high(i.op0_register()), 1)
                | bit(high(i.op1_register()), 2)
                | bit(i.op0_register().full_register() == Register::RSP, 3),
            address: bit(base != Register::None, 0)
                | bit(index != Register::None, 1)
                | bit(base.is_gpr32(), 2)
                | bit(i.is_ip_rel_memory_operand(), 3)
                | bit(base == Register::RSP, 4)
                | bit(base == i.op0_register() || base == i.op1_register(), 5),
        }
    }
}

/// The bytes of one instruction of each form, sorted by form. `sample` limits the bytes that
/// are read at the beginning and in the middle of each section.
pub fn of_machine(sample: Option<usize>) -> Vec<Vec<u8>> {
    let mut forms = BTreeMap::new();
    for folder in ["/usr/bin", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"] {
        for file in files(Path::new(folder)) {
            let Ok(bytes) = std::fs::read(&file) else {
                continue;
            };
            for code in code(&bytes) {
                match sample {
                    Some(most) => {
                        let middle = code.len() / 2;
                        add(&code[..code.len().min(most)], &mut forms);
                        add(&code[middle..(middle + most).min(code.len())], &mut forms);
                    }
                    None => add(code, &mut forms),
                }
            }
        }
    }
    forms.into_values().collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

/// The sections with code of a 64-bit ELF file for this processor.
fn code(file: &[u8]) -> Vec<&[u8]> {
    const EXECUTED: u64 = 4;
    const HAS_BYTES: u64 = 1;
    let number = |at: usize, len: usize| -> Option<u64> {
        let bytes = file.get(at..at.checked_add(len)?)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |all, &b| all << 8 | u64::from(b)),
        )
    };
    if file.get(..6) != Some(b"\x7fELF\x02\x01") || number(18, 2) != Some(62) {
        return Vec::new();
    }
    let sections = || {
        let (start, size, count) = (number(0x28, 8)?, number(0x3a, 2)?, number(0x3c, 2)?);
        Some((0..count).map(move |n| (start + n * size) as usize))
    };
    let bytes = |at: usize| {
        let is_code = number(at + 8, 8)? & EXECUTED != 0 && number(at + 4, 4)? == HAS_BYTES;
        let (start, len) = (number(at + 24, 8)? as usize, number(at + 32, 8)? as usize);
        file.get(start..start.checked_add(len)?).filter(|_| is_code)
    };
    sections().into_iter().flatten().filter_map(bytes).collect()
}

fn add(code: &[u8], forms: &mut BTreeMap<Form, Vec<u8>>) {
    let mut decoder = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE);
    let mut i = Instruction::default();
    while decoder.can_decode() {
        let at = decoder.position();
        decoder.decode_out(&mut i);
        if !i.is_invalid() {
            forms
                .entry(Form::of(&i))
                .or_insert_with(|| code[at..at + i.len()].to_vec());
        }
    }
}
