//! What one instruction does to memory, as the emulator's callbacks see it: the result of
//! [`sunder_x86`], reduced to the few shapes for which there are callbacks. Pure. Called once for
//! each translation of an instruction.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};
use sunder_x86::{Certainty, Control, Manual};

/// One side of an instruction: its loads, or its stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Each callback is one access of this many bytes, at most 8.
    Whole(u8),
    /// Each access has this many bytes, but the emulator makes it in pieces.
    Pieces(u8),
}

impl Side {
    fn new(bytes: usize) -> Self {
        match u8::try_from(bytes) {
            Ok(bytes @ 0..=8) => Self::Whole(bytes),
            Ok(bytes) => Self::Pieces(bytes),
            Err(_) => Self::Pieces(u8::MAX),
        }
    }
}

/// The effect of an instruction on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No access.
    None,
    /// A fence.
    Fence,
    /// A locked read-modify-write of this many bytes.
    Atomic(u8),
    /// A load and a store of the same bytes, not locked.
    Update(Side),
    /// Loads and stores of different bytes.
    Plain {
        /// The loads.
        read: Option<Side>,
        /// The stores.
        write: Option<Side>,
    },
    /// A call: it stores the return address, which is so many bytes after the instruction's start,
    /// and loads its target if it is indirect.
    Call {
        /// Length of the instruction, in bytes.
        length: u8,
        /// Whether the target is loaded.
        loads: bool,
    },
    /// A return.
    Return,
    /// Some accesses; only their callbacks show which.
    Unknown,
}

/// The effect of the instruction with these bytes at `address`.
pub fn effect(bytes: &[u8], address: u64, manual: &mut Manual) -> Effect {
    let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    match instruction.mnemonic() {
        Mnemonic::INVALID => return Effect::Unknown,
        Mnemonic::Mfence => return Effect::Fence,
        _ => {}
    }
    if let Some(effect) = flow(&instruction) {
        return effect;
    }
    let does = manual.does(&instruction);
    let (mut reads, mut writes) = (Widths::default(), Widths::default());
    let (mut updates, mut atomic) = (false, false);
    for access in does.accesses() {
        let (read, write) = (access.action.reads(), access.action.writes());
        updates |= read && write;
        atomic |= access.atomic;
        // The number of accesses to each element is not in the instruction's bytes.
        let width = match access.certainty {
            Certainty::Counted => 0,
            _ => usize::from(access.width),
        };
        if read {
            reads.add(width);
        }
        if write {
            writes.add(width);
        }
    }
    if does.elsewhere || reads.mixed || writes.mixed {
        return Effect::Unknown;
    }
    if updates {
        let Some(bytes) = writes.bytes else {
            return Effect::Unknown;
        };
        return match (atomic, Side::new(bytes)) {
            (true, Side::Whole(bytes) | Side::Pieces(bytes)) => Effect::Atomic(bytes),
            (false, side) => Effect::Update(side),
        };
    }
    if reads.bytes.is_none() && writes.bytes.is_none() {
        return Effect::None;
    }
    Effect::Plain {
        read: reads.bytes.map(Side::new),
        write: writes.bytes.map(Side::new),
    }
}

fn flow(instruction: &Instruction) -> Option<Effect> {
    match Control::of(instruction) {
        Control::Call(_) | Control::CallThrough
            if matches!(instruction.code(), Code::Call_rel32_64 | Code::Call_rm64) =>
        {
            Some(Effect::Call {
                length: instruction.len() as u8,
                loads: instruction.op0_kind() == OpKind::Memory,
            })
        }
        Control::Return if matches!(instruction.code(), Code::Retnq | Code::Retnq_imm16) => {
            Some(Effect::Return)
        }
        // The emulator itself handles system calls and traps, and no program can execute privileged
        // instructions.
        Control::Kernel | Control::Nowhere => Some(Effect::None),
        _ => None,
    }
}

/// The width that all accesses of one direction share.
#[derive(Default)]
struct Widths {
    bytes: Option<usize>,
    mixed: bool,
}

impl Widths {
    fn add(&mut self, bytes: usize) {
        self.mixed |= bytes == 0 || bytes > 64 || self.bytes.is_some_and(|b| b != bytes);
        self.bytes = Some(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Effect {
        effect(bytes, 0x1000, &mut Manual::new())
    }

    const fn plain(read: Option<Side>, write: Option<Side>) -> Effect {
        Effect::Plain { read, write }
    }

    #[test]
    fn instructions_do_what_the_manual_says() {
        use Side::{Pieces, Whole};
        let cases: &[(&str, &[u8], Effect)] = &[
            ("nop", &[0x90], Effect::None),
            ("lea rax,[rbx+8]", &[0x48, 0x8d, 0x43, 0x08], Effect::None),
            ("nop dword ptr [rax]", &[0x0f, 0x1f, 0x00], Effect::None),
            ("syscall", &[0x0f, 0x05], Effect::None),
            ("mov eax,[rbx]", &[0x8b, 0x03], plain(Some(Whole(4)), None)),
            (
                "mov [rbx],ax",
                &[0x66, 0x89, 0x03],
                plain(None, Some(Whole(2))),
            ),
            ("push rax", &[0x50], plain(None, Some(Whole(8)))),
            ("pop rax", &[0x58], plain(Some(Whole(8)), None)),
            (
                "push qword ptr [rbx]",
                &[0xff, 0x33],
                plain(Some(Whole(8)), Some(Whole(8))),
            ),
            (
                "add dword ptr [rbx],eax",
                &[0x01, 0x03],
                Effect::Update(Whole(4)),
            ),
            ("lock add [rbx],eax", &[0xf0, 0x01, 0x03], Effect::Atomic(4)),
            ("xchg [rbx],rax", &[0x48, 0x87, 0x03], Effect::Atomic(8)),
            (
                "cmpxchg [rbx],ecx",
                &[0x0f, 0xb1, 0x0b],
                Effect::Update(Whole(4)),
            ),
            (
                "lock cmpxchg [rbx],ecx",
                &[0xf0, 0x0f, 0xb1, 0x0b],
                Effect::Atomic(4),
            ),
            (
                "lock cmpxchg16b [rbx]",
                &[0xf0, 0x48, 0x0f, 0xc7, 0x0b],
                Effect::Atomic(16),
            ),
            ("cmp [rbx],eax", &[0x39, 0x03], plain(Some(Whole(4)), None)),
            // The decoder leaves the size open, because the repetition count is not in the bytes.
            ("rep movsb", &[0xf3, 0xa4], Effect::Unknown),
            (
                "movups xmm0,[rbx]",
                &[0x0f, 0x10, 0x03],
                plain(Some(Pieces(16)), None),
            ),
            (
                "vmovdqu [rbx],ymm0",
                &[0xc5, 0xfe, 0x7f, 0x03],
                plain(None, Some(Pieces(32))),
            ),
            (
                "fld tbyte ptr [rbx]",
                &[0xdb, 0x2b],
                plain(Some(Pieces(10)), None),
            ),
            ("mfence", &[0x0f, 0xae, 0xf0], Effect::Fence),
            ("ret", &[0xc3], Effect::Return),
            (
                "call rel32",
                &[0xe8, 0, 0, 0, 0],
                Effect::Call {
                    length: 5,
                    loads: false,
                },
            ),
            (
                "call [rbx]",
                &[0xff, 0x13],
                Effect::Call {
                    length: 2,
                    loads: true,
                },
            ),
            ("jmp [rbx]", &[0xff, 0x23], plain(Some(Whole(8)), None)),
            ("fxsave [rbx]", &[0x0f, 0xae, 0x03], Effect::Unknown),
            // MPX instructions do nothing, and this decoder once took them for loads and stores.
            ("bndmov bnd0,[rbx]", &[0x66, 0x0f, 0x1a, 0x03], Effect::None),
            // It cleans a line, and this decoder once took it for a load.
            ("clflush [rbx]", &[0x0f, 0xae, 0x3b], Effect::None),
            // More accesses than the bytes are examined for.
            ("enter 16,3", &[0xc8, 16, 0, 3], Effect::Unknown),
            ("no instruction", &[0x06], Effect::Unknown),
        ];
        for (text, bytes, expected) in cases {
            assert_eq!(of(bytes), *expected, "{text}");
        }
    }
}
