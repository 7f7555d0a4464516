//! What an instruction does: which memory it accesses, and which registers it reads and writes.
//! All crates use this answer.

use crate::memory::{Access, accesses};
use crate::register::{CHANGED_BY_KERNEL, general};
use iced_x86::{
    Code, CpuidFeature, FlowControl, Instruction, InstructionInfo, InstructionInfoFactory,
    Mnemonic, OpAccess, OpKind, Register, UsedRegister,
};

/// The most accesses that are returned; only `enter` and instructions for kernels have more.
const MOST: usize = 4;

/// Tells what instructions do. It keeps its working memory, so that a query allocates nothing.
pub struct Manual {
    factory: InstructionInfoFactory,
}

impl Default for Manual {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for Manual {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Manual").finish_non_exhaustive()
    }
}

/// What an instruction does to memory and registers.
#[derive(Clone, Copy, Debug)]
pub struct Does {
    accesses: [Option<Access>; MOST],
    /// Whether it may access memory that is not among its accesses: an `enter` with many
    /// levels, or an instruction that enters the kernel.
    pub elsewhere: bool,
    /// The registers.
    pub registers: Registers,
}

/// Registers that an instruction reads and writes, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// General registers of which it may read any part, also for an address.
    pub read: u16,
    /// General registers of which it may write any part.
    pub written: u16,
    /// Those of the written ones that it overwrites as a whole in any case (if it does not
    /// fault): no part of the old value is kept.
    pub replaced: u16,
    /// Those of the written ones whose upper halves are always zero afterwards.
    pub cleared: u16,
    /// Those of the written ones that keep their upper bits, because 8 or 16 bits are written.
    pub kept: u16,
    /// Those of the kept ones of which only the lowest 8 bits may be written.
    pub bytes: u16,
    /// Vector registers (`xmm`, `ymm`, `zmm`) of which it may read any part.
    pub vectors_read: u32,
    /// Vector registers of which it may write any part.
    pub vectors_written: u32,
    /// Mask registers (`k0` to `k7`) that it may read.
    pub masks_read: u8,
    /// Mask registers that it may write.
    pub masks_written: u8,
    /// Whether it may read or write anything else: registers of the x87 unit and MMX, tiles,
    /// segments, control registers.
    pub others: bool,
}

impl Manual {
    /// A manual with working memory of its own.
    #[must_use]
    pub fn new() -> Self {
        Self {
            factory: InstructionInfoFactory::new(),
        }
    }

    /// What `i` does; nothing if the bytes are not an instruction.
    pub fn does(&mut self, i: &Instruction) -> Does {
        let info = self.factory.info(i);
        let mut does = Does {
            accesses: [None; MOST],
            elsewhere: enters_kernel(i),
            registers: registers(i, info),
        };
        // What the processor stores to enter the kernel is on the kernel's stack.
        if !does.elsewhere && i.flow_control() != FlowControl::Exception {
            let mut places = does.accesses.iter_mut();
            for access in accesses(i, info.used_memory()) {
                match places.next() {
                    Some(place) => *place = Some(access),
                    None => does.elsewhere = true,
                }
            }
        }
        does
    }
}

impl Does {
    /// The memory accesses. That of an explicit operand comes first.
    pub fn accesses(&self) -> impl Iterator<Item = &Access> {
        self.accesses.iter().flatten()
    }

    /// The access, if there is exactly one and no other memory may be accessed.
    #[must_use]
    pub fn only_access(&self) -> Option<&Access> {
        let mut all = self.accesses();
        let first = all.next()?;
        (all.next().is_none() && !self.elsewhere).then_some(first)
    }

    /// Whether it may write memory.
    #[must_use]
    pub fn writes_memory(&self) -> bool {
        self.elsewhere || self.accesses().any(|access| access.action.writes())
    }
}

/// Whether the instruction is a system call or a trap.
fn enters_kernel(i: &Instruction) -> bool {
    matches!(
        i.code(),
        Code::Syscall | Code::Sysenter | Code::Vmcall | Code::Vmmcall
    ) || i.flow_control() == FlowControl::Interrupt
}

fn registers(i: &Instruction, info: &InstructionInfo) -> Registers {
    let mut all = Registers::default();
    for used in info.used_registers() {
        all.add(used);
    }
    for n in 0..i.op_count() {
        let writes = matches!(info.op_access(n), OpAccess::Write | OpAccess::ReadWrite);
        if writes && i.op_kind(n) == OpKind::Register && i.op_register(n).is_gpr32() {
            all.cleared |= bit(i.op_register(n));
        }
    }
    if enters_kernel(i) {
        all.written |= CHANGED_BY_KERNEL;
    }
    all.add_what_iced_leaves_out(i);
    // A part that is written in addition to the whole register does not count.
    all.kept &= !all.replaced;
    all.bytes &= all.kept;
    all
}

fn bit(register: Register) -> u16 {
    general(register).map_or(0, |number| 1 << number)
}

impl Registers {
    fn add(&mut self, used: &UsedRegister) {
        let register = used.register();
        let (reads, writes, always) = match used.access() {
            OpAccess::None => return,
            OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess => (true, false, false),
            OpAccess::Write => (false, true, true),
            OpAccess::CondWrite => (false, true, false),
            OpAccess::ReadWrite => (true, true, true),
            OpAccess::ReadCondWrite => (true, true, false),
        };
        let general = bit(register);
        if general != 0 {
            self.read |= if reads { general } else { 0 };
            if writes {
                self.written |= general;
                match (register.size(), always) {
                    (8, true) => self.replaced |= general,
                    (1, _) if !is_high(register) => {
                        self.bytes |= general & !self.kept;
                        self.kept |= general;
                    }
                    (1 | 2, _) => {
                        self.bytes &= !general;
                        self.kept |= general;
                    }
                    _ => {}
                }
            }
        } else if register.is_vector_register() {
            let vector = 1u32 << (register.number() & 31);
            self.vectors_read |= if reads { vector } else { 0 };
            self.vectors_written |= if writes { vector } else { 0 };
        } else if register.is_k() {
            let mask = 1u8 << (register.number() & 7);
            self.masks_read |= if reads { mask } else { 0 };
            self.masks_written |= if writes { mask } else { 0 };
        } else {
            self.others = true;
        }
    }

    /// Adds registers that iced does not report, for instructions of the x87 unit and those
    /// that load or save the processor's state.
    fn add_what_iced_leaves_out(&mut self, i: &Instruction) {
        use Mnemonic as M;
        self.others |= is_of_x87(i);
        match i.mnemonic() {
            // Without shadow stacks, which programs do not use yet, it does nothing.
            M::Rdsspd | M::Rdsspq => {
                self.replaced = 0;
                self.cleared = 0;
            }
            M::Fxsave | M::Fxsave64 => self.vectors_read |= 0xffff,
            M::Fxrstor | M::Fxrstor64 => self.vectors_written |= 0xffff,
            M::Xsave
            | M::Xsave64
            | M::Xsavec
            | M::Xsavec64
            | M::Xsaveopt
            | M::Xsaveopt64
            | M::Xsaves
            | M::Xsaves64 => {
                self.vectors_read = u32::MAX;
                self.masks_read = u8::MAX;
            }
            M::Xrstor | M::Xrstor64 | M::Xrstors | M::Xrstors64 => {
                self.vectors_written = u32::MAX;
                self.masks_written = u8::MAX;
            }
            _ => return,
        }
        self.others = true;
    }
}

fn is_high(register: Register) -> bool {
    matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    )
}

/// Whether it uses the x87 unit, whose registers iced does not report.
fn is_of_x87(i: &Instruction) -> bool {
    use CpuidFeature as F;
    let of_x87 = |feature: &F| {
        matches!(
            feature,
            F::FPU | F::FPU287 | F::FPU287XL_ONLY | F::FPU387 | F::FPU387SL_ONLY
        )
    };
    i.cpuid_features().iter().any(of_x87)
}
