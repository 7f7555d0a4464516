//! From a trap to the access that caused it.
//!
//! A data breakpoint reports *after* the access (Intel SDM volume 3B, 18.3.1.2): the instruction
//! pointer is that of the next instruction, and registers have been written. So the instruction is
//! the one that ends there, and its operand is computed from the registers that it has not
//! overwritten. Called by the watcher for each hit. Must not read the target itself ([`CodeBefore`]
//! does), and must mark bytes that are a guess.

use crate::{CodeSource, Registers};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use std::collections::HashMap;
use sunder_access::{Address, CodeAddress, Kind, ProcessId, Span, ThreadId};
use sunder_x86::register::{RDI, RSI, RSP};
use sunder_x86::{Access, Action, AddressForm, Certainty, Manual, Part, Reach, step_of_stack};

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
    manual: Manual,
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
            manual: Manual::new(),
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
            .filter_map(|instruction| access_of(&mut self.manual, instruction, trap))
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
fn access_of(manual: &mut Manual, instruction: &Instruction, trap: &Trap) -> Option<TrappedAccess> {
    let does = manual.does(instruction);
    let before = RegistersBefore {
        instruction,
        after: &trap.registers,
        written: does.registers.written,
    };
    let mut found: Vec<TrappedAccess> = does
        .accesses()
        .filter_map(|access| {
            let kind = kind_of(access)?;
            let (span, exact) = before.place(access, trap.word)?;
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

/// What an access does to data; `None` if it only cleans a line.
pub(crate) const fn kind_of(access: &Access) -> Option<Kind> {
    if access.atomic {
        return Some(Kind::Atomic);
    }
    match access.action {
        Action::Read => Some(Kind::Read),
        Action::Write => Some(Kind::Write),
        Action::Update => Some(Kind::Update),
        Action::Flush => None,
    }
}

/// The registers before `instruction`, as far as those after it show them.
struct RegistersBefore<'a> {
    instruction: &'a Instruction,
    after: &'a Registers,
    /// Those that the instruction may have written, one bit each.
    written: u16,
}

impl RegistersBefore<'_> {
    /// The bytes of `access` and whether they are exactly known; `None` if they
    /// are not in `word`.
    fn place(&self, access: &Access, word: Address) -> Option<(Span, bool)> {
        /// Larger ones (`xsave`) are no data of a program.
        const MAX_WIDTH: u64 = 64;
        // A repeated string instruction traps after each element.
        let width = u64::from(access.width);
        let watched = Span::new(word, 8);
        // A bit's number may lead to any word.
        if width == 0 || width > MAX_WIDTH || matches!(access.place.reach, Reach::Bits(_)) {
            return Some((watched, false));
        }
        let (known, complete) = self.sum(&access.place, width);
        if complete {
            let span = Span::new(Address(known), width);
            // Some processors trap at what a mask cuts off, too. It mostly cuts off the end of a block,
            // so the first bytes are the likeliest, and a trap at others says nothing.
            return match access.certainty {
                Certainty::Masked => {
                    let to = span.end().min(watched.end());
                    let first = watched.contains(span.start);
                    first.then(|| (Span::new(span.start, to.0 - span.start.0), false))
                }
                _ => span.overlaps(watched).then_some((span, true)),
            };
        }
        Some((Span::new(likely_place(word, width, known), width), false))
    }

    /// The sum of the parts of the address that are known, and whether these are
    /// all.
    fn sum(&self, place: &AddressForm, width: u64) -> (u64, bool) {
        let mut complete = place.segment.is_none() && place.reach == Reach::There;
        let mut sum = place.displacement;
        let base = place.base.map(|base| (base, 1));
        let index = place.index.map(|index| (index.part, index.scale));
        for (part, scale) in [base, index].into_iter().flatten() {
            match self.value(part, width) {
                Some(value) => sum = sum.wrapping_add(value.wrapping_mul(scale.into())),
                None => complete = false,
            }
        }
        let sum = if place.bits == 32 {
            sum & 0xffff_ffff
        } else {
            sum
        };
        (sum, complete)
    }

    fn value(&self, part: Part, width: u64) -> Option<u64> {
        let register = part.register;
        let after = self.after.general[usize::from(register)];
        let before = if self.written >> register & 1 != 0 {
            self.undo(register, after, width)?
        } else {
            after
        };
        Some(part.of(before))
    }

    /// The old value of a register that the instruction has stepped on.
    fn undo(&self, register: u8, after: u64, width: u64) -> Option<u64> {
        if register == RSP {
            let step = step_of_stack(self.instruction)?;
            return Some(after.wrapping_sub(step as u64));
        }
        // String instructions step upwards: the direction flag is clear by the
        // calling convention (System V AMD64 ABI, 3.2.1).
        let steps = self.instruction.is_string_instruction() && matches!(register, RSI | RDI);
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
