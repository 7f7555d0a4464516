//! Where code enters the kernel, and which of those places can be led through a
//! hook: a library's `syscall` instructions, each with the whole instructions
//! around it that a jump would overwrite. `sunder` plans; the runtime inside the
//! target carries the plan out, and its trampolines run copies of the overwritten
//! instructions.
//!
//! Only what is certain is planned: every other entry becomes a [`Refused`]. This
//! module must not read files, change code or know what the hooks are for.

use crate::branches;
use alloc::vec::Vec;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};

/// Bytes of a near jump, the least that a patch overwrites.
pub const JUMP: usize = 5;

/// Bytes of a `syscall` instruction as everybody writes it.
const ENTRY: usize = 2;
/// These.
const ENTRY_BYTES: [u8; ENTRY] = [0x0f, 0x05];

/// The most instructions on one side of the entry that a patch overwrites.
const MOST: usize = 3;

/// A function of the code, by its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// The first byte.
    pub start: u64,
    /// One beyond the last.
    pub end: u64,
}

/// What a hook wants of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Nothing: it stays as it is.
    Nothing,
    /// To see the result. The entry stays in its place, so that what looks at
    /// where a thread waits (unwinding, cancellation, restarts) sees what it
    /// always saw.
    Result,
    /// To be called before and after it. The entry moves into the trampoline,
    /// where nothing can unwind through it: not for calls that wait.
    Call,
    /// To be called before it. The entry stays in its place, as with
    /// [`Want::Result`], so that a thread may wait in it for as long as it likes,
    /// and may come out of it twice or on another stack.
    Before,
}

/// The number of the call that an entry makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// Always this one.
    Always(u32),
    /// Not known from the code.
    Any,
}

/// An entry, and what a jump to its trampoline overwrites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The address of the `syscall` instruction.
    pub entry: u64,
    /// Which call it makes.
    pub number: Number,
    /// What the hook gets: not [`Want::Nothing`].
    pub want: Want,
    /// The first byte that is overwritten: after the entry for
    /// [`Want::Result`], at or before it for [`Want::Call`], before it for
    /// [`Want::Before`].
    pub from: u64,
    /// How many bytes are overwritten, at least [`JUMP`].
    pub length: usize,
    /// The whole instructions of these before the entry; they run anywhere.
    pub head: Vec<u8>,
    /// Those after it.
    pub tail: Vec<u8>,
    /// Whether the tail ends by returning, so that nothing follows it.
    pub returns: bool,
}

/// Why an entry cannot be led through a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Another instruction leads into the bytes that would be overwritten.
    #[error("a branch leads between the instructions around it")]
    BranchInside,
    /// An instruction beside it means something else in another place.
    #[error("an instruction beside it depends on where it lies")]
    Bound,
    /// It has prefixes, which mean nothing and which nobody writes.
    #[error("the instruction has prefixes")]
    Prefix,
    /// The function begins or ends too close to it.
    #[error("its function has no room for a jump")]
    NoRoom,
}

/// An entry that stays as it is although a hook wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The address of the `syscall` instruction.
    pub entry: u64,
    /// Which call it makes.
    pub number: Number,
    /// Why.
    pub reason: Reason,
}

/// All entries of some code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// How many there are in all.
    pub entries: usize,
    /// Those that can be led through the hook, in the order of their addresses.
    pub patches: Vec<Patch>,
    /// Those that a hook wants and does not get.
    pub refused: Vec<Refused>,
}

/// Plans for `bytes` of code at the address `at`, whose functions are `functions` (in
/// any order, not overlapping; code outside of them is not looked at). `wants` says what the
/// hook wants of a call.
#[must_use]
pub fn plan(bytes: &[u8], at: u64, functions: &[Function], wants: impl Fn(Number) -> Want) -> Plan {
    let code = Bytes { bytes, at };
    let mut functions = functions.to_vec();
    functions.sort_unstable_by_key(|f| f.start);
    let places = memchr::memmem::find_iter(bytes, &ENTRY_BYTES);
    let mut entering = branches::holding(&functions, places.map(|n| at + n as u64));
    entering.retain(|&function| {
        let mut enters = false;
        code.each(function, |i| enters |= i.code() == Code::Syscall);
        enters
    });
    let targets = branches::into(code, &functions, &entering);
    let mut plan = Plan::default();
    for function in entering {
        let mut instructions = Vec::new();
        code.each(function, |instruction| instructions.push(*instruction));
        let around = Around {
            code,
            instructions: &instructions,
            targets: &targets,
        };
        for (i, instruction) in instructions.iter().enumerate() {
            if instruction.code() != Code::Syscall {
                continue;
            }
            plan.entries += 1;
            let number = around.number(i);
            let patch = match wants(number) {
                Want::Nothing => continue,
                _ if instruction.len() != ENTRY => Err(Reason::Prefix),
                Want::Result => around.after(i),
                Want::Call => around.whole(i),
                Want::Before => around.before(i),
            };
            let entry = instruction.ip();
            match patch {
                Ok(patch) => plan.patches.push(Patch { number, ..patch }),
                Err(reason) => plan.refused.push(Refused {
                    entry,
                    number,
                    reason,
                }),
            }
        }
    }
    apart(&mut plan);
    plan
}

/// Of two patches that overwrite the same bytes the second is refused.
fn apart(plan: &mut Plan) {
    let mut end = 0;
    let refused = &mut plan.refused;
    plan.patches.retain(|patch| {
        let free = patch.from >= end;
        if free {
            end = patch.from + patch.length as u64;
        } else {
            refused.push(Refused {
                entry: patch.entry,
                number: patch.number,
                reason: Reason::NoRoom,
            });
        }
        free
    });
}

/// Where a direct branch leads.
pub(crate) fn target(instruction: &Instruction) -> Option<u64> {
    let near = matches!(
        instruction.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    );
    (instruction.op_count() > 0 && near).then(|| instruction.near_branch_target())
}

#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: u64,
}

impl Bytes<'_> {
    fn slice(&self, start: u64, end: u64) -> Option<&[u8]> {
        let from = usize::try_from(start.checked_sub(self.at)?).ok()?;
        let to = usize::try_from(end.checked_sub(self.at)?).ok()?;
        self.bytes.get(from..to)
    }

    /// Every instruction of `function` in turn, as far as it can be decoded.
    pub(crate) fn each(&self, function: Function, mut see: impl FnMut(&Instruction)) {
        let Some(bytes) = self.slice(function.start, function.end) else {
            return;
        };
        let mut decoder = Decoder::with_ip(64, bytes, function.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                return;
            }
            see(&instruction);
        }
    }
}

/// The instructions of a function around its entries.
struct Around<'a> {
    code: Bytes<'a>,
    instructions: &'a [Instruction],
    targets: &'a [u64],
}

impl Around<'_> {
    fn is_target(&self, address: u64) -> bool {
        self.targets.binary_search(&address).is_ok()
    }

    /// The constant that the straight line before entry `i` leaves in `eax`.
    fn number(&self, i: usize) -> Number {
        let mut next = i;
        while next > 0 && !self.is_target(self.instructions[next].ip()) {
            let before = &self.instructions[next - 1];
            if before.next_ip() != self.instructions[next].ip()
                || before.flow_control() != FlowControl::Next
            {
                break;
            }
            if let Some(number) = constant(before) {
                return Number::Always(number);
            }
            if writes_rax(before) {
                break;
            }
            next -= 1;
        }
        Number::Any
    }

    /// The patch behind entry `i`.
    fn after(&self, i: usize) -> Result<Patch, Reason> {
        for last in i + 1..=i + MOST {
            let tail = self.copies(i + 1, last + 1)?;
            if tail.len() >= JUMP {
                return Ok(Patch {
                    want: Want::Result,
                    from: self.instructions[i].next_ip(),
                    length: tail.len(),
                    returns: self.returns(last),
                    tail,
                    ..self.nothing(i)
                });
            }
        }
        Err(Reason::NoRoom)
    }

    /// The patch before entry `i`, which nothing but it leads to.
    fn before(&self, i: usize) -> Result<Patch, Reason> {
        if self.is_target(self.instructions[i].ip()) {
            return Err(Reason::BranchInside);
        }
        for first in (i.saturating_sub(MOST)..i).rev() {
            let mut head = self.copy(first)?.to_vec();
            head.extend(self.copies(first + 1, i)?);
            if (first..i).any(|before| self.returns(before)) {
                return Err(Reason::NoRoom);
            }
            if head.len() >= JUMP {
                return Ok(Patch {
                    want: Want::Before,
                    from: self.instructions[first].ip(),
                    length: head.len(),
                    head,
                    ..self.nothing(i)
                });
            }
        }
        Err(Reason::NoRoom)
    }

    /// The patch over entry `i` itself, with as few other instructions as do.
    fn whole(&self, i: usize) -> Result<Patch, Reason> {
        let mut worst = Reason::NoRoom;
        for others in 1..=2 * MOST {
            // Rather those before it.
            for head in (others.saturating_sub(MOST)..=others.min(MOST).min(i)).rev() {
                match self.over(i, i - head, i + others - head) {
                    Ok(patch) if patch.length >= JUMP => return Ok(patch),
                    Ok(_) => {}
                    Err(reason) => worst = reason,
                }
            }
        }
        Err(worst)
    }

    /// The patch over the instructions from `first` to `last` with entry `i`.
    fn over(&self, i: usize, first: usize, last: usize) -> Result<Patch, Reason> {
        let entry = &self.instructions[i];
        if first < i && self.is_target(entry.ip()) {
            return Err(Reason::BranchInside);
        }
        let mut head = Vec::new();
        if first < i {
            head.extend(self.copy(first)?);
            head.extend(self.copies(first + 1, i)?);
        }
        if (first..i).any(|before| self.returns(before)) {
            return Err(Reason::NoRoom);
        }
        let tail = self.copies(i + 1, last + 1)?;
        Ok(Patch {
            want: Want::Call,
            from: self.instructions[first].ip(),
            length: head.len() + entry.len() + tail.len(),
            returns: last > i && self.returns(last),
            head,
            tail,
            ..self.nothing(i)
        })
    }

    /// A patch of entry `i` that overwrites nothing yet.
    fn nothing(&self, i: usize) -> Patch {
        Patch {
            entry: self.instructions[i].ip(),
            number: Number::Any,
            want: Want::Nothing,
            from: 0,
            length: 0,
            head: Vec::new(),
            tail: Vec::new(),
            returns: false,
        }
    }

    fn returns(&self, i: usize) -> bool {
        self.instructions[i].flow_control() == FlowControl::Return
    }

    /// Copies of the instructions from `from` up to `to`, none of which anything
    /// but the one before it leads to.
    fn copies(&self, from: usize, to: usize) -> Result<Vec<u8>, Reason> {
        let mut bytes = Vec::new();
        for i in from..to {
            let instruction = self.instructions.get(i).ok_or(Reason::NoRoom)?;
            if self.is_target(instruction.ip()) {
                return Err(Reason::BranchInside);
            }
            if i > from && self.returns(i - 1) {
                return Err(Reason::NoRoom);
            }
            bytes.extend(self.copy(i)?);
        }
        Ok(bytes)
    }

    /// The bytes of instruction `i`, if they mean the same everywhere.
    fn copy(&self, i: usize) -> Result<&[u8], Reason> {
        let instruction = self.instructions.get(i).ok_or(Reason::NoRoom)?;
        let goes_on = match instruction.flow_control() {
            FlowControl::Next => instruction.code() != Code::Syscall,
            FlowControl::Return => instruction.op_count() == 0,
            _ => false,
        };
        if !goes_on || instruction.is_ip_rel_memory_operand() {
            return Err(Reason::Bound);
        }
        let bytes = self.code.slice(instruction.ip(), instruction.next_ip());
        bytes.ok_or(Reason::NoRoom)
    }
}

/// The constant that the instruction moves to `eax`.
fn constant(instruction: &Instruction) -> Option<u32> {
    let to = instruction.op0_register().full_register();
    if instruction.op0_kind() != OpKind::Register || to != Register::RAX {
        return None;
    }
    let whole = instruction.op0_register().size() >= 4;
    match (instruction.mnemonic(), instruction.op1_kind()) {
        (Mnemonic::Mov, OpKind::Immediate32 | OpKind::Immediate32to64) if whole => {
            Some(instruction.immediate32())
        }
        (Mnemonic::Xor, OpKind::Register)
            if whole && instruction.op1_register() == instruction.op0_register() =>
        {
            Some(0)
        }
        _ => None,
    }
}

fn writes_rax(instruction: &Instruction) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    info.used_registers().iter().any(|used| {
        used.register().full_register() == Register::RAX
            && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
    })
}

#[cfg(test)]
#[path = "sites_tests.rs"]
mod tests;
