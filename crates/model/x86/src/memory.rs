//! The memory accesses of an instruction: the address, the width, the action, and whether it
//! always happens. Made by [`crate::Manual`].

use crate::register::general;
use iced_x86::{Instruction, Mnemonic, OpAccess, OpKind, Register, UsedMemory};

/// One memory access of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// How its address is computed.
    pub place: AddressForm,
    /// The width in bytes, of one element if there are several; 0 if the instruction does not
    /// tell it (when it saves the state of the processor).
    pub width: u16,
    /// What happens to the bytes.
    pub action: Action,
    /// Whether it is atomic for all threads.
    pub atomic: bool,
    /// Whether it always happens.
    pub certainty: Certainty,
    /// Which part of the instruction causes it.
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
    /// Flushes the cache line that holds them. The processor checks the address as for a read,
    /// but no data is used or changed.
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
    /// `rcx` times, perhaps never; each time for the next element.
    Counted,
    /// A mask tells for each element, or byte, whether it is accessed.
    Masked,
    /// It depends on another condition.
    Perhaps,
}

/// The part of an instruction that causes an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its explicit memory operand.
    Operand,
    /// `rsi` or `rdi` of a string instruction.
    String,
    /// The stack, for a push, a pop, a call or a return.
    Stack,
    /// A register that holds an address and is not an explicit operand.
    Implicit,
}

/// A segment with a base of its own, which is in no general register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// The base of thread-local memory in programs.
    Fs,
    /// The base of thread-local memory in kernels and emulators.
    Gs,
}

/// A general register, or its low bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The register's number.
    pub register: u8,
    /// Number of low bits: 64, 32, or 8.
    pub bits: u8,
}

/// A part of a register, multiplied by a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// The part of the register.
    pub part: Part,
    /// 1, 2, 4 or 8.
    pub scale: u8,
}

/// Whether an access lies at the sum of the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// At the sum.
    There,
    /// At the word that contains the bit whose number this register holds, counted from the sum
    /// (`bt [m], r`).
    Bits(u8),
    /// At an address of its own for each element, from a vector register.
    Elements,
    /// The whole cache line that contains the sum.
    Line,
}

/// How the address of an access is computed, from the registers before the instruction:
/// `segment + base + index * scale + displacement`, truncated to `bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressForm {
    /// The segment whose base is added; no general register holds it.
    pub segment: Option<Segment>,
    /// The base register.
    pub base: Option<Part>,
    /// The index register and its scale.
    pub index: Option<Index>,
    /// The constant; for an operand relative to the instruction's end, the address itself.
    pub displacement: u64,
    /// 64, or 32 with the address-size prefix.
    pub bits: u8,
    /// Whether the access lies at this sum.
    pub reach: Reach,
}

impl AddressForm {
    /// Whether the address is the sum of whole 64-bit registers and the displacement.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let is_whole = |part: Part| part.bits == 64;
        self.segment.is_none()
            && self.bits == 64
            && self.reach == Reach::There
            && self.base.is_none_or(is_whole)
            && self.index.is_none_or(|index| is_whole(index.part))
    }

    /// The general registers in the sum, one bit each.
    #[must_use]
    pub fn registers(&self) -> u16 {
        let bit = |part: Part| 1u16 << (part.register & 15);
        self.base.map_or(0, bit) | self.index.map_or(0, |index| bit(index.part))
    }

    /// The address, from the values that `register` returns for the time before the
    /// instruction. `None` if a value is not known, or if the access does not lie at the sum.
    pub fn address(&self, register: impl Fn(u8) -> Option<u64>) -> Option<u64> {
        if self.segment.is_some() || self.reach != Reach::There {
            return None;
        }
        self.sum(register)
    }

    /// The sum without the segment's base.
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
    /// The part's share of the register's value.
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

/// Instructions for which iced reports an access, but which have none: they fault, or today's
/// processors do nothing for them.
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
            // Bounds of MPX, which kernels no longer support.
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

/// Whether the access is atomic: by a `lock` prefix, or because the instruction always is, as
/// an exchange with memory and the remote operations (`aadd` and its kind) are.
fn is_atomic(i: &Instruction, action: Action) -> bool {
    use Mnemonic as M;
    if !matches!(action, Action::Update) {
        return false;
    }
    i.has_lock_prefix() || matches!(i.mnemonic(), M::Xchg | M::Aadd | M::Aand | M::Aor | M::Axor)
}

/// Whether a prefix repeats the instruction `rcx` times.
pub fn is_repeated(i: &Instruction) -> bool {
    i.is_string_instruction() && (i.has_rep_prefix() || i.has_repne_prefix())
}

/// Whether `i` has an explicit memory operand.
fn has_operand(i: &Instruction) -> bool {
    (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory)
}

/// The accesses of `i`, from iced's information.
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
    // iced lists the explicit operand first.
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
    } else if is_conditional && !is_conditional_move(i.mnemonic()) {
        Certainty::Perhaps
    } else {
        Certainty::Always
    };
    // iced reports no size for a repeated instruction.
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

/// Whether it is a move under a condition. It loads its memory operand whatever the condition is.
pub const fn is_conditional_move(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Cmova
            | M::Cmovae
            | M::Cmovb
            | M::Cmovbe
            | M::Cmove
            | M::Cmovne
            | M::Cmovg
            | M::Cmovge
            | M::Cmovl
            | M::Cmovle
            | M::Cmovs
            | M::Cmovns
            | M::Cmovo
            | M::Cmovno
            | M::Cmovp
            | M::Cmovnp
    )
}

fn place(i: &Instruction, memory: &UsedMemory, role: Role) -> Option<AddressForm> {
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
    Some(AddressForm {
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
