//! The memory operands of an instruction: which bytes, relative to which
//! registers, and what is done to them. What is not said here is not claimed:
//! stack accesses of push, pop, call and ret, gathers, scatters, masked vectors
//! and saved states have no operand.

use super::effect::{Index, Known, RBP, RSP, Register, scaled};
use iced_x86::{Instruction, InstructionInfo, Mnemonic, OpAccess, OpKind};
use sunder_access::{Address, Kind};

/// `rcx`, the count of a repeated string instruction.
const RCX: Register = 1;

/// One memory operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    base: Option<Register>,
    index: Option<Index>,
    /// With `base` and `index` absent, the address.
    displacement: u64,
    pub width: u8,
    pub kind: Kind,
    /// The address is 32 bits wide (prefix 67).
    narrow: bool,
    /// Part of a repeated string instruction, which touches nothing if the
    /// count is zero.
    repeated: bool,
    /// Whether base and index tell the address at all.
    addressable: bool,
}

/// A place relative to `rsp` or `rbp`, or an absolute one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Site {
    pub base: Option<Register>,
    pub displacement: i64,
}

/// Whether and where an operand touches memory.
pub(super) enum Touch {
    /// At this address.
    At(Address),
    /// Nowhere: a string instruction with count zero.
    Nothing,
    /// The registers are not known.
    Unknown,
}

impl Operand {
    /// Evaluates it with the registers before the instruction.
    pub(super) fn touch(&self, before: &Known) -> Touch {
        if self.repeated {
            match before.get(RCX) {
                Some(0) => return Touch::Nothing,
                Some(_) => {}
                None => return Touch::Unknown,
            }
        }
        match self.address(before) {
            Some(address) if self.addressable => Touch::At(address),
            _ => Touch::Unknown,
        }
    }

    /// The sum that its address is; `None` if it is not simply that.
    pub(super) const fn sum(&self) -> Option<(Option<Register>, Option<Index>, u64)> {
        if self.narrow || self.repeated || !self.addressable {
            return None;
        }
        Some((self.base, self.index, self.displacement))
    }

    /// The registers in it, one bit each.
    pub(super) fn registers(&self) -> u16 {
        let index = self.index.map(|index| index.register);
        let both = [self.base, index].into_iter().flatten();
        both.fold(0, |all, register| all | 1 << register)
    }

    /// Which variable of a frame (or, without base, which global) it is, as far
    /// as that can be told without knowing registers.
    pub(super) fn site(&self) -> Option<Site> {
        let is_fixed = self.base.is_none_or(|base| matches!(base, RSP | RBP));
        (is_fixed && self.index.is_none()).then_some(Site {
            base: self.base,
            displacement: self.displacement as i64,
        })
    }

    fn address(&self, before: &Known) -> Option<Address> {
        let base = match self.base {
            Some(base) => before.get(base)?,
            None => 0,
        };
        let sum = base
            .wrapping_add(scaled(self.index, before)?)
            .wrapping_add(self.displacement);
        Some(Address(if self.narrow { sum & 0xffff_ffff } else { sum }))
    }
}

/// The operands of an instruction.
#[derive(Debug, Default)]
pub(super) struct Operands {
    pub known: Vec<Operand>,
    /// How many are relative to `fs` or `gs`.
    pub segment_relative: u8,
}

/// Whether an instruction with a memory operand touches no memory by it, or not
/// in a way that registers alone tell.
fn is_left_out(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    instruction.is_vsib()
        || instruction.has_op_mask()
        || matches!(
            instruction.mnemonic(),
            M::Lea
                | M::Nop
                | M::Reservednop
                | M::Prefetch
                | M::Prefetchw
                | M::Prefetchwt1
                | M::Prefetchnta
                | M::Prefetcht0
                | M::Prefetcht1
                | M::Prefetcht2
                | M::Prefetchit0
                | M::Prefetchit1
                | M::Clflush
                | M::Clflushopt
                | M::Clwb
                | M::Cldemote
                | M::Ud0
                | M::Ud1
                // Bounds checks: no-ops on today's CPUs.
                | M::Bndmk
                | M::Bndmov
                | M::Bndldx
                | M::Bndstx
                | M::Bndcl
                | M::Bndcu
                | M::Bndcn
                // Which bytes is decided by a mask register.
                | M::Maskmovq
                | M::Maskmovdqu
                | M::Vmaskmovdqu
                | M::Vmaskmovps
                | M::Vmaskmovpd
                | M::Vpmaskmovd
                | M::Vpmaskmovq
                // The destination is no operand that iced tells as memory.
                | M::Movdir64b
                | M::Enqcmd
                | M::Enqcmds
                // `pop [rsp+8]` computes its address after the pop.
                | M::Pop
        )
}

/// `bt [m], r` reaches far beyond its operand; `xlatb` adds a byte register.
fn is_addressable(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    match instruction.mnemonic() {
        M::Bt | M::Bts | M::Btr | M::Btc => instruction.op1_kind() != OpKind::Register,
        M::Xlatb => false,
        _ => true,
    }
}

/// Collects the operands of `instruction` into `out`.
pub(super) fn collect(instruction: &Instruction, info: &InstructionInfo, out: &mut Operands) {
    out.known.clear();
    out.segment_relative = 0;
    if is_left_out(instruction) {
        return;
    }
    // Widths beyond 64 bytes are saved states; zero is what iced cannot say.
    let width = match instruction.memory_size().size() {
        width @ 1..=64 => width as u8,
        _ => return,
    };
    for number in 0..instruction.op_count() {
        let Some(place) = place(instruction, number) else {
            continue;
        };
        let Some(kind) = kind(instruction, info.op_access(number)) else {
            continue;
        };
        if place.segment {
            out.segment_relative += 1;
            continue;
        }
        out.known.push(Operand {
            base: place.base,
            index: place.index,
            displacement: place.displacement,
            width,
            kind,
            narrow: place.narrow,
            repeated: is_repeated(instruction),
            addressable: place.addressable && is_addressable(instruction),
        });
    }
}

fn is_repeated(instruction: &Instruction) -> bool {
    instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

fn kind(instruction: &Instruction, access: OpAccess) -> Option<Kind> {
    if instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg {
        return Some(Kind::Atomic);
    }
    match access {
        // Conditional reads are those of cmov, which always loads, and of
        // repeated string instructions, whose count decides.
        OpAccess::Read | OpAccess::CondRead => Some(Kind::Read),
        OpAccess::Write => Some(Kind::Write),
        OpAccess::CondWrite if is_repeated(instruction) => Some(Kind::Write),
        // A failed cmpxchg writes the old value back.
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => Some(Kind::Update),
        _ => None,
    }
}

struct Place {
    base: Option<Register>,
    index: Option<Index>,
    displacement: u64,
    narrow: bool,
    segment: bool,
    addressable: bool,
}

fn place(instruction: &Instruction, number: u32) -> Option<Place> {
    let string = |register| Place {
        base: Some(register),
        index: None,
        displacement: 0,
        narrow: false,
        segment: false,
        addressable: true,
    };
    match instruction.op_kind(number) {
        OpKind::Memory => Some(explicit(instruction)),
        OpKind::MemorySegRSI => Some(Place {
            segment: is_segment(instruction),
            ..string(6)
        }),
        OpKind::MemoryESRDI => Some(string(7)),
        _ => None,
    }
}

fn is_segment(instruction: &Instruction) -> bool {
    use iced_x86::Register as R;
    matches!(instruction.memory_segment(), R::FS | R::GS)
}

fn explicit(instruction: &Instruction) -> Place {
    use iced_x86::Register as R;
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    // iced adds rip itself: the displacement is the address.
    let relative = matches!(base, R::RIP | R::EIP);
    let general = |register| super::instruction::general(register);
    Place {
        base: general(base),
        index: general(index).map(|register| Index {
            register,
            scale: instruction.memory_index_scale() as u8,
        }),
        displacement: instruction.memory_displacement64(),
        narrow: base.is_gpr32() || index.is_gpr32() || base == R::EIP,
        segment: is_segment(instruction),
        addressable: (base == R::None || relative || general(base).is_some())
            && (index == R::None || general(index).is_some()),
    }
}
