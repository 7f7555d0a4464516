//! From a trap to the access that caused it.
//!
//! A data breakpoint reports *after* the access (Intel SDM volume 3B, 18.3.1.2):
//! the instruction pointer stands behind the instruction and its registers have
//! been written. So the instruction is the one that ends there, and its operand
//! is computed from what has survived. Called by the watcher for each hit; must
//! not read the target itself ([`CodeBefore`] does) and must not claim bytes
//! that it does not know without saying so.

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
    /// Which thread.
    pub thread: ThreadId,
    /// Its registers after the access; `registers.ip` is the next instruction.
    pub registers: Registers,
    /// The 8-aligned word that was watched.
    pub word: Address,
}

/// What caused a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrappedAccess {
    /// The instruction.
    pub instruction: CodeAddress,
    /// The first byte that it touched.
    pub address: Address,
    /// How many bytes, 1 to 64.
    pub width: u8,
    /// What it did to them.
    pub kind: Kind,
    /// Whether `address` was computed from registers that survived; if not, the
    /// word is certain and the position in it is the likeliest one.
    pub exact: bool,
}

/// Finds the access behind a trap.
pub trait HitDecoder {
    /// The access that `trap` reports; `None` if it cannot be told.
    fn access_before(&mut self, trap: &Trap) -> Option<TrappedAccess>;
}

/// Where [`CodeDecoder`] gets instruction bytes.
pub trait CodeBefore {
    /// Bytes around `ip`: from the start of the function that holds it (or
    /// another sure instruction boundary before it) to 15 bytes after it, or as
    /// far as there are any. `None` if nothing is known.
    fn code_before(&mut self, ip: CodeAddress) -> Option<Code>;
}

/// Instruction bytes of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The address of the first byte.
    pub start: CodeAddress,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether an instruction begins at `start`. If not (a stripped program),
    /// the instruction is guessed from its end and accepted only if its operand
    /// lies in the watched word.
    pub boundary: bool,
}

/// [`CodeBefore`] from the code that the decoder of samples uses. Make one for
/// each burst: what it has seen is taken to stay.
pub struct ProcessCode<'a> {
    /// Whose code.
    pub process: ProcessId,
    /// Where it comes from.
    pub source: &'a mut dyn CodeSource,
}

impl CodeBefore for ProcessCode<'_> {
    fn code_before(&mut self, ip: CodeAddress) -> Option<Code> {
        // The function that holds the byte before: at the end of a function, the
        // instruction pointer is already in the next one.
        let before = CodeAddress(ip.0.checked_sub(1)?);
        let mut range = self.source.function(self.process, before)?;
        if !range.exact_start
            && let Some(around) = self.source.function(self.process, ip)
            // Code made at run time is known by its loops, and `before` is within
            // an instruction.
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

/// [`HitDecoder`] over instruction bytes.
pub struct CodeDecoder<C> {
    code: C,
    info: InstructionInfoFactory,
    /// By the address after it, what may have caused a trap there. Bursts are
    /// short, and a loop traps at the same few places.
    known: HashMap<CodeAddress, Candidates>,
}

#[derive(Clone, Debug, Default)]
struct Candidates {
    instructions: Vec<Instruction>,
    /// Whether they are known to be instructions of the program.
    sure: bool,
}

impl<C: CodeBefore> CodeDecoder<C> {
    /// A decoder that asks `code` for bytes.
    pub fn new(code: C) -> Self {
        Self {
            code,
            info: InstructionInfoFactory::new(),
            known: HashMap::new(),
        }
    }

    /// Forgets decoded code; call it when the target has mapped or generated
    /// code anew.
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

/// The instructions that may have trapped with the instruction pointer at `ip`,
/// the likeliest first.
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
    // What transfers control does not leave the instruction pointer behind
    // itself.
    found
        .instructions
        .retain(|i| i.flow_control() == FlowControl::Next);
    // A repeated string instruction traps after each repetition, with the
    // instruction pointer still on it.
    if let Some(at) = decode(&code.bytes[before..], ip)
        && (at.has_rep_prefix() || at.has_repne_prefix())
        && at.is_string_instruction()
    {
        found.instructions.push(at);
    }
    found
}

/// The instruction that ends where `bytes` end, decoding from their start.
fn last_of_sweep(bytes: &[u8], start: CodeAddress) -> Option<Instruction> {
    let mut decoder = Decoder::with_ip(64, bytes, start.0, DecoderOptions::NONE);
    let mut last = None;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            // Data between instructions, or the last one sticks out.
            return None;
        }
        last = Some(instruction);
    }
    last
}

/// Everything that decodes to exactly the bytes before `ip`, longest first,
/// because a shorter one is often the longer one without its prefixes.
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
    // An exactly known operand beats one that only might be it, and where both
    // a load and a store hit the word (a string move), the store matters more.
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
            // `xchg` with memory locks without a prefix (Intel SDM volume 2).
            let atomic = instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg;
            Some(if atomic { Kind::Atomic } else { Kind::Update })
        }
        OpAccess::None | OpAccess::NoMemAccess => None,
    }
}

/// What the registers were before `instruction`, as far as `after` tells.
struct Before<'a> {
    instruction: &'a Instruction,
    after: &'a Registers,
    written: Vec<Register>,
}

impl Before<'_> {
    /// The bytes of `memory` and whether they are exactly known; `None` if they
    /// are not in `word`.
    fn place(&self, memory: &UsedMemory, word: Address) -> Option<(Span, bool)> {
        /// Larger ones (`xsave`) are no data of a program.
        const MAX_WIDTH: u64 = 64;
        // A repeated string instruction has no size as a whole; it traps after
        // each element.
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

    /// The sum of the parts of the address that are known, and whether these are
    /// all.
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

    /// The old value of a register that the instruction has stepped on.
    fn undo(&self, register: Register, after: u64, width: u64) -> Option<u64> {
        if register == Register::RSP {
            let step = self.instruction.stack_pointer_increment();
            return (step != 0).then(|| after.wrapping_sub(i64::from(step) as u64));
        }
        // String instructions step upwards: the direction flag is clear by the
        // calling convention (System V AMD64 ABI, 3.2.1).
        let steps = self.instruction.is_string_instruction()
            && matches!(register, Register::RSI | Register::RDI);
        steps.then(|| after.wrapping_sub(width))
    }
}

/// The likeliest address in `word` when a register of the operand is lost: that
/// register held a multiple of 8, as pointers to objects do, so the rest of the
/// sum tells the offset.
fn likely_place(word: Address, width: u64, known: u64) -> Address {
    if width >= 8 {
        return Address(word.0 & !(width.next_power_of_two() - 1));
    }
    Address(word.0 + (known & 7).min(8 - width))
}

#[cfg(test)]
mod tests;
