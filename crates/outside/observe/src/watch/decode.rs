//! From a trap to the access that caused it.
//!
//! A data breakpoint reports *after* the access (Intel SDM volume 3B, 18.3.1.2): the instruction
//! pointer is that of the next instruction, and registers have been written. So the instruction is
//! the one that ends there, and its operand is computed from the registers that it has not
//! overwritten. Called by the watcher for each hit. Must not read the target itself ([`CodeBefore`]
//! does), and must mark bytes that are a guess.

use crate::{CodeSource, Registers};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    Register, UsedMemory,
};
use std::collections::HashMap;
use sunder_access::{Address, CodeAddress, Kind, ProcessId, Span, ThreadId};

/// One hit of a watchpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    /// The thread that trapped.
    pub thread: ThreadId,
    /// Its registers after the access; `registers.ip` is the next instruction.
    pub registers: Registers,
    /// The aligned word of 8 bytes that was watched.
    pub word: Address,
}

/// The access that caused a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrappedAccess {
    /// The instruction.
    pub instruction: CodeAddress,
    /// The first byte that it touched.
    pub address: Address,
    /// How many bytes, 1 to 64.
    pub width: u8,
    /// The kind of the access.
    pub kind: Kind,
    /// Whether `address` was computed from registers that still have their values. If not, the word
    /// is certain, and the position in it is the likeliest one.
    pub exact: bool,
}

/// Finds the access that caused a trap.
pub trait HitDecoder {
    /// The access that `trap` reports; `None` if it is unknown.
    fn access_before(&mut self, trap: &Trap) -> Option<TrappedAccess>;
}

/// A source of instruction bytes for [`CodeDecoder`].
pub trait CodeBefore {
    /// Bytes around `ip`: from the start of its function (or another certain instruction boundary
    /// before it) to 15 bytes after it, or as far as they are known. `None` if there are none.
    fn code_before(&mut self, ip: CodeAddress) -> Option<Code>;
}

/// Instruction bytes of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The address of the first byte.
    pub start: CodeAddress,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether an instruction begins at `start`. If not (a stripped program), the instruction is
    /// guessed from its end, and accepted only if its operand lies in the watched word.
    pub boundary: bool,
}

/// [`CodeBefore`] from the code source of the sample decoder. Make one for each burst: it assumes
/// that code does not change meanwhile.
pub struct ProcessCode<'a> {
    /// The process that executes the code.
    pub process: ProcessId,
    /// The source of its code.
    pub source: &'a mut dyn CodeSource,
}

impl CodeBefore for ProcessCode<'_> {
    fn code_before(&mut self, ip: CodeAddress) -> Option<Code> {
        // The function of the byte before: after the last instruction of a function, the
        // instruction pointer is already in the next one.
        let before = CodeAddress(ip.0.checked_sub(1)?);
        let mut range = self.source.function(self.process, before)?;
        if !range.exact_start
            && let Some(around) = self.source.function(self.process, ip)
            // For code made at run time only loops are known, and `before` lies within an
            // instruction.
            && around.exact_start
            && around.start < ip
        {
            range = around;
        }
        Some(Code {
            start: range.start,
            bytes: range.bytes.clone(),
            boundary: range.exact_start,
        })
    }
}

/// The longest x86 instruction.
const MAX_INSTRUCTION: usize = 15;

/// [`HitDecoder`] from instruction bytes.
pub struct CodeDecoder<C> {
    code: C,
    info: InstructionInfoFactory,
    /// The candidates for a trap, by the instruction pointer after it. Bursts are short, and a loop
    /// traps at the same few addresses.
    known: HashMap<CodeAddress, Candidates>,
}

#[derive(Clone, Debug, Default)]
struct Candidates {
    instructions: Vec<Instruction>,
    /// Whether decoding from a known boundary has found them.
    sure: bool,
}

impl<C: CodeBefore> CodeDecoder<C> {
    /// A decoder that gets its bytes from `code`.
    pub fn new(code: C) -> Self {
        Self {
            code,
            info: InstructionInfoFactory::new(),
            known: HashMap::new(),
        }
    }

    /// Forgets decoded code; call it when the target has mapped or generated code.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// The source of the code.
    pub fn code_mut(&mut self) -> &mut C {
        &mut self.code
    }

    fn candidates(&mut self, ip: CodeAddress) -> &Candidates {
        let code = &mut self.code;
        self.known.entry(ip).or_insert_with(|| {
            code.code_before(ip)
                .map(|code| find_candidates(&code, ip))
                .unwrap_or_default()
        })
    }
}

impl<C: CodeBefore> HitDecoder for CodeDecoder<C> {
    fn access_before(&mut self, trap: &Trap) -> Option<TrappedAccess> {
        let candidates = self.candidates(trap.registers.ip).clone();
        let accesses: Vec<TrappedAccess> = candidates
            .instructions
            .iter()
            .filter_map(|instruction| access_of(&mut self.info, instruction, trap))
            .collect();
        let exact = accesses.iter().find(|access| access.exact);
        let guessed = accesses.first().filter(|_| candidates.sure);
        exact.or(guessed).copied()
    }
}

/// The instructions that may have caused a trap with the instruction pointer `ip`, the likeliest
/// first.
fn find_candidates(code: &Code, ip: CodeAddress) -> Candidates {
    let Some(before) =
        ip.0.checked_sub(code.start.0)
            .and_then(|n| usize::try_from(n).ok())
    else {
        return Candidates::default();
    };
    let Some(bytes) = code.bytes.get(..before) else {
        return Candidates::default();
    };
    let swept = code
        .boundary
        .then(|| last_of_sweep(bytes, code.start))
        .flatten();
    let mut found = match swept {
        Some(last) => Candidates {
            instructions: vec![last],
            sure: true,
        },
        None => Candidates {
            instructions: ending_at(bytes, ip),
            sure: false,
        },
    };
    // After an instruction that transfers control, the instruction pointer is at its target.
    found
        .instructions
        .retain(|i| i.flow_control() == FlowControl::Next);
    // A repeated string instruction traps after each repetition, when the instruction pointer is
    // still its own address.
    if let Some(at) = decode(&code.bytes[before..], ip)
        && (at.has_rep_prefix() || at.has_repne_prefix())
        && at.is_string_instruction()
    {
        found.instructions.push(at);
    }
    found
}

/// The last instruction of `bytes`, found by decoding from their start.
fn last_of_sweep(bytes: &[u8], start: CodeAddress) -> Option<Instruction> {
    let mut decoder = Decoder::with_ip(64, bytes, start.0, DecoderOptions::NONE);
    let mut last = None;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            // Data between instructions, or the last instruction reaches beyond the end.
            return None;
        }
        last = Some(instruction);
    }
    last
}

/// All instructions that consist of exactly the bytes before `ip`, longest first: a shorter one is
/// often the longer one without its prefixes.
fn ending_at(bytes: &[u8], ip: CodeAddress) -> Vec<Instruction> {
    (1..=bytes.len().min(MAX_INSTRUCTION))
        .rev()
        .filter_map(|len| {
            let found = decode(&bytes[bytes.len() - len..], ip.offset(-(len as i64)))?;
            (found.len() == len).then_some(found)
        })
        .collect()
}

fn decode(bytes: &[u8], at: CodeAddress) -> Option<Instruction> {
    let mut decoder = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE);
    let instruction = decoder.decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// The operand of `instruction` that touched the watched word.
fn access_of(
    info: &mut InstructionInfoFactory,
    instruction: &Instruction,
    trap: &Trap,
) -> Option<TrappedAccess> {
    let info = info.info(instruction);
    let before = Before {
        instruction,
        after: &trap.registers,
        written: info
            .used_registers()
            .iter()
            .filter(|used| writes(used.access()))
            .map(|used| used.register().full_register())
            .collect(),
    };
    let mut found: Vec<TrappedAccess> = info
        .used_memory()
        .iter()
        .filter_map(|memory| {
            let kind = kind_of(instruction, memory.access())?;
            let (span, exact) = before.place(memory, trap.word)?;
            Some(TrappedAccess {
                instruction: CodeAddress(instruction.ip()),
                address: span.start,
                width: span.len as u8,
                kind,
                exact,
            })
        })
        .collect();
    // An exactly known operand comes first. Where both a load and a store are on the word (a
    // string move), the store matters more.
    found.sort_by_key(|access| (!access.exact, !access.kind.writes()));
    found.first().copied()
}

fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

pub(crate) fn kind_of(instruction: &Instruction, access: OpAccess) -> Option<Kind> {
    match access {
        OpAccess::Read | OpAccess::CondRead => Some(Kind::Read),
        OpAccess::Write | OpAccess::CondWrite => Some(Kind::Write),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
            // `xchg` with memory is locked without a prefix (Intel SDM volume 2).
            let atomic = instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg;
            Some(if atomic { Kind::Atomic } else { Kind::Update })
        }
        OpAccess::None | OpAccess::NoMemAccess => None,
    }
}

/// The registers before `instruction`, as far as those after it show them.
struct Before<'a> {
    instruction: &'a Instruction,
    after: &'a Registers,
    written: Vec<Register>,
}

impl Before<'_> {
    /// The bytes of `memory`, and whether they are known exactly; `None` if they are not in `word`.
    fn place(&self, memory: &UsedMemory, word: Address) -> Option<(Span, bool)> {
        /// Larger operands (`xsave`) are no program data.
        const MAX_WIDTH: u64 = 64;
        // A repeated string instruction has no size as a whole; it traps after each element.
        let width = match memory.memory_size().size() {
            0 => self.instruction.memory_size().size() as u64,
            size => size as u64,
        };
        let watched = Span::new(word, 8);
        if width == 0 || width > MAX_WIDTH {
            return Some((watched, false));
        }
        let (known, complete) = self.sum(memory, width);
        if complete {
            let span = Span::new(Address(known), width);
            return span.overlaps(watched).then_some((span, true));
        }
        Some((Span::new(likely_place(word, width, known), width), false))
    }

    /// The sum of the known parts of the address, and whether all parts are known.
    fn sum(&self, memory: &UsedMemory, width: u64) -> (u64, bool) {
        let mut complete = !matches!(memory.segment(), Register::FS | Register::GS);
        let mut sum = memory.displacement();
        for (register, scale) in [(memory.base(), 1), (memory.index(), memory.scale())] {
            if register == Register::None {
                continue;
            }
            match self.value(register, width) {
                Some(value) => sum = sum.wrapping_add(value.wrapping_mul(scale.into())),
                None => complete = false,
            }
        }
        (sum, complete)
    }

    fn value(&self, register: Register, width: u64) -> Option<u64> {
        let full = register.full_register();
        if full == Register::RIP {
            return Some(self.instruction.next_ip());
        }
        let after = full.is_gpr64().then(|| self.after.general[full.number()])?;
        let before = if self.written.contains(&full) {
            self.undo(full, after, width)?
        } else {
            after
        };
        Some(if register.is_gpr32() {
            before & 0xffff_ffff
        } else {
            before
        })
    }

    /// The value of a register before the instruction incremented or decremented it.
    fn undo(&self, register: Register, after: u64, width: u64) -> Option<u64> {
        if register == Register::RSP {
            let step = self.instruction.stack_pointer_increment();
            return (step != 0).then(|| after.wrapping_sub(i64::from(step) as u64));
        }
        // String instructions count upwards: the calling convention keeps the direction flag clear
        // (System V AMD64 ABI, 3.2.1).
        let steps = self.instruction.is_string_instruction()
            && matches!(register, Register::RSI | Register::RDI);
        steps.then(|| after.wrapping_sub(width))
    }
}

/// The likeliest address in `word` when a register of the operand was overwritten: the register
/// held a multiple of 8, as pointers to objects are, so the rest of the sum is the offset.
fn likely_place(word: Address, width: u64, known: u64) -> Address {
    if width >= 8 {
        return Address(word.0 & !(width.next_power_of_two() - 1));
    }
    Address(word.0 + (known & 7).min(8 - width))
}

#[cfg(test)]
mod tests;
