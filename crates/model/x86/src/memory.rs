//! The memory accesses of an instruction: where, how wide, what is done, and how sure it
//! is that it is done. Made by [`crate::Manual`].

use crate::register::general;
use iced_x86::{Instruction, Mnemonic, OpAccess, OpKind, Register, UsedMemory};

/// One access of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Where.
    pub place: Place,
    /// How many bytes, of one element if there are several; 0 if the instruction does not
    /// tell (the saved state of a processor).
    pub width: u16,
    /// What is done to them.
    pub action: Action,
    /// Whether it is one step for all threads.
    pub atomic: bool,
    /// Whether it happens.
    pub certainty: Certainty,
    /// Which part of the instruction asks for it.
    pub role: Role,
}

/// What an access does to its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads them.
    Read,
    /// Writes them.
    Write,
    /// Reads and writes them. A `cmpxchg` that fails writes what it has read.
    Update,
    /// Cleans the cache line that they are in. The processor checks the address as for a
    /// read, but no data is used or changed.
    Flush,
}

impl Action {
    /// Whether data is read.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Update)
    }

    /// Whether data is written.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Update)
    }
}

/// Whether an access happens when its instruction is executed without a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// Always.
    Always,
    /// As often as `rcx` says, perhaps never; each time at the next element.
    Counted,
    /// Of each element, or byte, a mask says whether.
    Masked,
    /// It depends on something else.
    Perhaps,
}

/// Which part of an instruction asks for an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its memory operand, as it is written out.
    Operand,
    /// A string instruction's `rsi` or `rdi`.
    String,
    /// The stack, for a push, a pop, a call or a return.
    Stack,
    /// A register that holds an address without being written as one.
    Implicit,
}

/// A segment that has a base of its own, which no general register tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Thread-local memory of programs.
    Fs,
    /// The same for kernels and emulators.
    Gs,
}

/// A general register, or so many low bits of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number.
    pub register: u8,
    /// 64, 32, or 8.
    pub bits: u8,
}

/// A part, times a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// The part.
    pub part: Part,
    /// 1, 2, 4 or 8.
    pub scale: u8,
}

/// Whether an access lies where the sum of registers says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// There.
    There,
    /// So many words away as this register, whose number counts bits, says (`bt [m], r`).
    Bits(u8),
    /// At each element's own place, which a vector register says.
    Elements,
    /// At the cache line that it is in.
    Line,
}

/// Where an access lies: `segment + base + index * scale + displacement`, cut off to
/// `bits`, from the registers before the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// What is added that no general register tells.
    pub segment: Option<Segment>,
    /// A register.
    pub base: Option<Part>,
    /// A register with a scale.
    pub index: Option<Index>,
    /// A constant. Of an operand that is counted from the instruction's end this is the
    /// address.
    pub displacement: u64,
    /// 64, or 32 with the prefix for short addresses.
    pub bits: u8,
    /// Whether that is all.
    pub reach: Reach,
}

impl Place {
    /// Whether the sum of 64-bit registers and the displacement is the address.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let is_whole = |part: Part| part.bits == 64;
        self.segment.is_none()
            && self.bits == 64
            && self.reach == Reach::There
            && self.base.is_none_or(is_whole)
            && self.index.is_none_or(|index| is_whole(index.part))
    }

    /// The general registers in it, one bit each.
    #[must_use]
    pub fn registers(&self) -> u16 {
        let bit = |part: Part| 1u16 << (part.register & 15);
        self.base.map_or(0, bit) | self.index.map_or(0, |index| bit(index.part))
    }

    /// The sum, with what `register` knows of registers before the instruction; `None` if
    /// one is not known, or if the sum is not the address.
    pub fn address(&self, register: impl Fn(u8) -> Option<u64>) -> Option<u64> {
        if self.segment.is_some() || self.reach != Reach::There {
            return None;
        }
        self.sum(register)
    }

    /// The sum alone.
    pub fn sum(&self, register: impl Fn(u8) -> Option<u64>) -> Option<u64> {
        let part = |part: Part| Some(part.of(register(part.register)?));
        let base = self.base.map_or(Some(0), part)?;
        let index = match self.index {
            Some(index) => part(index.part)?.wrapping_mul(index.scale.into()),
            None => 0,
        };
        let sum = base.wrapping_add(index).wrapping_add(self.displacement);
        Some(if self.bits < 64 {
            sum & u64::MAX >> (64 - self.bits)
        } else {
            sum
        })
    }
}

impl Part {
    /// What it is of the register's value.
    #[must_use]
    pub const fn of(self, value: u64) -> u64 {
        if self.bits < 64 {
            value & u64::MAX >> (64 - self.bits)
        } else {
            value
        }
    }

    fn new(register: Register) -> Option<Self> {
        Some(Self {
            register: general(register)?,
            bits: (register.size() * 8) as u8,
        })
    }
}

/// Instructions that name memory, for which iced tells an access, and that have none: they
/// fault, or processors of today do nothing for them.
const fn is_only_named(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Lea
            | M::Nop
            | M::Reservednop
            | M::Ud0
            | M::Ud1
            | M::Prefetch
            | M::Prefetchw
            | M::Prefetchwt1
            | M::Prefetchnta
            | M::Prefetcht0
            | M::Prefetcht1
            | M::Prefetcht2
            | M::Prefetchit0
            | M::Prefetchit1
            // Bounds of MPX, which no kernel allows any more.
            | M::Bndmk
            | M::Bndmov
            | M::Bndldx
            | M::Bndstx
            | M::Bndcl
            | M::Bndcu
            | M::Bndcn
    )
}

const fn is_flush(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(mnemonic, M::Clflush | M::Clflushopt | M::Clwb | M::Cldemote)
}

const fn has_vector_mask(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Maskmovq
            | M::Maskmovdqu
            | M::Vmaskmovdqu
            | M::Vmaskmovps
            | M::Vmaskmovpd
            | M::Vpmaskmovd
            | M::Vpmaskmovq
    )
}

/// Whether the instruction locks memory for one step: by its prefix, or as an exchange or
/// an addition of its kind always does.
fn is_atomic(i: &Instruction, action: Action) -> bool {
    use Mnemonic as M;
    if !matches!(action, Action::Update) {
        return false;
    }
    i.has_lock_prefix() || matches!(i.mnemonic(), M::Xchg | M::Aadd | M::Aand | M::Aor | M::Axor)
}

/// Whether a prefix repeats the instruction as often as `rcx` says.
pub fn is_repeated(i: &Instruction) -> bool {
    i.is_string_instruction() && (i.has_rep_prefix() || i.has_repne_prefix())
}

/// Whether `i` has an operand that is written as memory.
fn has_operand(i: &Instruction) -> bool {
    (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory)
}

/// The accesses of `i`, from what iced says of it.
pub fn accesses<'a>(
    i: &'a Instruction,
    used: &'a [UsedMemory],
) -> impl Iterator<Item = Access> + 'a {
    let used = if is_only_named(i.mnemonic()) {
        &[]
    } else {
        used
    };
    let is_string = i.is_string_instruction();
    // iced tells the written operand first.
    let operands = usize::from(has_operand(i) && !is_string);
    used.iter().enumerate().filter_map(move |(n, memory)| {
        let role = if is_string {
            Role::String
        } else if n < operands {
            Role::Operand
        } else if matches!(memory.segment(), Register::SS) {
            Role::Stack
        } else {
            Role::Implicit
        };
        access(i, memory, role)
    })
}

fn access(i: &Instruction, memory: &UsedMemory, role: Role) -> Option<Access> {
    let action = match memory.access() {
        OpAccess::None | OpAccess::NoMemAccess => return None,
        _ if is_flush(i.mnemonic()) => Action::Flush,
        OpAccess::Read | OpAccess::CondRead => Action::Read,
        OpAccess::Write | OpAccess::CondWrite => Action::Write,
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => Action::Update,
    };
    let is_conditional = matches!(memory.access(), OpAccess::CondRead | OpAccess::CondWrite);
    let certainty = if is_repeated(i) {
        Certainty::Counted
    } else if role == Role::Operand && (i.has_op_mask() || i.is_vsib())
        || has_vector_mask(i.mnemonic())
    {
        Certainty::Masked
    } else if is_conditional && !is_conditional_load(i.mnemonic()) {
        Certainty::Perhaps
    } else {
        Certainty::Always
    };
    // Of all repetitions together iced tells no size.
    let size = match memory.memory_size().size() {
        0 if role == Role::String => i.memory_size().size(),
        size => size,
    };
    Some(Access {
        place: place(i, memory, role)?,
        width: u16::try_from(size).unwrap_or(0),
        action,
        atomic: is_atomic(i, action),
        certainty,
        role,
    })
}

/// Conditional moves load whatever their condition is.
fn is_conditional_load(mnemonic: Mnemonic) -> bool {
    crate::value::is_conditional_move(mnemonic)
}

fn place(i: &Instruction, memory: &UsedMemory, role: Role) -> Option<Place> {
    let segment = match memory.segment() {
        Register::FS => Some(Segment::Fs),
        Register::GS => Some(Segment::Gs),
        _ => None,
    };
    let (base, index) = (memory.base(), memory.index());
    let is_short = base.is_gpr32() || index.is_gpr32();
    let is_vector = index.is_vector_register();
    let reach = if is_vector {
        Reach::Elements
    } else if let (Some(register), Role::Operand) = (bit_number(i), role) {
        Reach::Bits(register)
    } else if i.mnemonic() == Mnemonic::Clzero {
        Reach::Line
    } else {
        Reach::There
    };
    Some(Place {
        segment,
        base: match base {
            Register::None => None,
            base => Some(Part::new(base)?),
        },
        index: match index {
            Register::None => None,
            _ if is_vector => None,
            index => Some(Index {
                part: Part::new(index)?,
                scale: memory.scale() as u8,
            }),
        },
        displacement: memory.displacement(),
        bits: if is_short { 32 } else { 64 },
        reach,
    })
}

/// The register whose number selects a bit in memory.
fn bit_number(i: &Instruction) -> Option<u8> {
    use Mnemonic as M;
    let selects = matches!(i.mnemonic(), M::Bt | M::Bts | M::Btr | M::Btc)
        && i.op1_kind() == OpKind::Register;
    selects.then(|| general(i.op1_register()))?
}
