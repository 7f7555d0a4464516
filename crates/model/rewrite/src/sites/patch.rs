//! The bytes around an entry that a jump to its trampoline overwrites: which whole instructions,
//! and why there may be no such bytes. Used by [`crate::sites`]; it must not look for entries.

use super::code::{Bytes, is_padding};
use super::elsewhere::Elsewhere;
use super::numbers::Number;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use iced_x86::{Code, FlowControl, Instruction};
use sunder_x86::jump::LENGTH as JUMP;

/// Bytes of a `syscall` instruction without prefixes.
pub const ENTRY: usize = 2;

/// The most instructions on one side of the entry that a patch overwrites.
const MOST: usize = 3;

/// How a hook handles an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Not at all: the entry stays as it is.
    Nothing,
    /// The hook sees the result. The entry stays where it is, so that code that looks at the
    /// waiting thread's address (unwinding, cancellation, restarts) still finds it there.
    Result,
    /// The hook is called before and after the call. The entry moves into the trampoline,
    /// through which no unwinder finds its way: not for calls that wait.
    Call,
    /// The hook is called before the call. The entry stays where it is, as with
    /// [`Want::Result`], so the thread may wait in it for any time, and may return from it
    /// twice or on another stack.
    Before,
}

/// An entry, and the bytes that a jump to its trampoline overwrites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The address of the `syscall` instruction.
    pub entry: u64,
    /// The call's number.
    pub number: Number,
    /// How the hook handles it; not [`Want::Nothing`].
    pub want: Want,
    /// The first byte that is overwritten: after the entry for
    /// [`Want::Result`], at or before it for [`Want::Call`], before it for
    /// [`Want::Before`].
    pub from: u64,
    /// The number of bytes that are overwritten, at least [`JUMP`].
    pub length: usize,
    /// The overwritten instructions before the entry.
    pub head: Vec<u8>,
    /// The overwritten instructions after the entry.
    pub tail: Vec<u8>,
    /// Replacement code for `head` or `tail`, whichever is not empty; `None` if they can run
    /// anywhere unchanged.
    pub elsewhere: Option<Elsewhere>,
    /// Whether the tail ends with a return or a jump.
    pub returns: bool,
    /// Whether control comes to the tail from elsewhere, too; with [`Want::Result`] only.
    pub guarded: bool,
}

/// Why an entry can't be led through a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A branch leads into the bytes that would be overwritten.
    #[error("a branch leads between the instructions around it")]
    BranchInside,
    /// An instruction next to it has another meaning at another address.
    #[error("an instruction beside it depends on where it lies")]
    Bound,
    /// It has prefixes, which mean nothing and which compilers do not write.
    #[error("the instruction has prefixes")]
    Prefix,
    /// The function begins or ends too close to it.
    #[error("its function has no room for a jump")]
    NoRoom,
}

/// An entry that a hook wants, but that stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The address of the `syscall` instruction.
    pub entry: u64,
    /// The call's number.
    pub number: Number,
    /// The reason.
    pub reason: Reason,
}

/// The plan for all entries of some code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The number of all entries.
    pub entries: usize,
    /// The entries that can be led through the hook, by ascending address.
    pub patches: Vec<Patch>,
    /// The entries that a hook wants, but that must stay as they are.
    pub refused: Vec<Refused>,
}

/// The instructions of a function around its entries.
pub struct Surroundings<'a> {
    /// The whole code.
    pub code: Bytes<'a>,
    /// The function's instructions.
    pub instructions: &'a [Instruction],
    /// Addresses to which control may come by a branch, ascending.
    pub targets: &'a [u64],
    /// The number of the call at each entry.
    pub numbers: &'a BTreeMap<u64, Number>,
}

impl Surroundings<'_> {
    /// Adds the plans for all entries among the instructions.
    pub fn add_to(&self, plan: &mut Plan, wants: &impl Fn(u64, Number) -> Want) {
        for (i, instruction) in self.instructions.iter().enumerate() {
            if instruction.code() != Code::Syscall {
                continue;
            }
            plan.entries += 1;
            let entry = instruction.ip();
            let number = self.numbers.get(&entry).copied().unwrap_or(Number::Any);
            let patch = match wants(entry, number) {
                Want::Nothing => continue,
                _ if instruction.len() != ENTRY => Err(Reason::Prefix),
                Want::Result => self.patch_after(i),
                Want::Call => self.patch_at(i),
                Want::Before => self.patch_before(i),
            };
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

    fn is_target(&self, address: u64) -> bool {
        self.targets.binary_search(&address).is_ok()
    }

    /// The patch of the bytes after entry `i`. A branch from elsewhere may lead to the first of them:
    /// the function may join the ways of two entries there.
    fn patch_after(&self, i: usize) -> Result<Patch, Reason> {
        let (mut tail, mut code) = (Vec::new(), Elsewhere::default());
        let guarded = self.is_target(self.instructions[i].next_ip());
        for instruction in self.instructions.iter().skip(i + 1) {
            if !tail.is_empty() && self.is_target(instruction.ip()) {
                return Err(Reason::BranchInside);
            }
            let bytes = self.bytes(instruction)?;
            if code.ends {
                if !is_padding(instruction) {
                    return Err(Reason::NoRoom);
                }
            } else if !code.add(instruction, bytes) {
                return Err(Reason::Bound);
            }
            tail.extend(bytes);
            if tail.len() >= JUMP {
                return Ok(Patch {
                    want: Want::Result,
                    from: self.instructions[i].next_ip(),
                    length: tail.len(),
                    returns: code.ends,
                    elsewhere: (code.bytes != tail).then_some(code),
                    tail,
                    guarded,
                    ..self.empty_patch(i)
                });
            }
        }
        Err(Reason::NoRoom)
    }

    /// The patch of the bytes before entry `i`, if control comes to it only from them.
    fn patch_before(&self, i: usize) -> Result<Patch, Reason> {
        if self.is_target(self.instructions[i].ip()) {
            return Err(Reason::BranchInside);
        }
        for first in (i.saturating_sub(JUMP)..i).rev() {
            let (mut head, mut code) = (Vec::new(), Elsewhere::default());
            for (n, instruction) in self.instructions[first..i].iter().enumerate() {
                if n > 0 && self.is_target(instruction.ip()) {
                    return Err(Reason::BranchInside);
                }
                let bytes = self.bytes(instruction)?;
                if !code.add(instruction, bytes) {
                    return Err(Reason::Bound);
                }
                head.extend(bytes);
            }
            if code.ends {
                return Err(Reason::NoRoom);
            }
            if head.len() >= JUMP {
                return Ok(Patch {
                    want: Want::Before,
                    from: self.instructions[first].ip(),
                    length: head.len(),
                    elsewhere: (code.bytes != head).then_some(code),
                    head,
                    ..self.empty_patch(i)
                });
            }
        }
        Err(Reason::NoRoom)
    }

    fn bytes(&self, instruction: &Instruction) -> Result<&[u8], Reason> {
        let bytes = self.code.slice(instruction.ip(), instruction.next_ip());
        bytes.ok_or(Reason::NoRoom)
    }

    /// The patch that overwrites entry `i` itself, with as few other instructions as possible.
    fn patch_at(&self, i: usize) -> Result<Patch, Reason> {
        let mut worst = Reason::NoRoom;
        for others in 1..=2 * MOST {
            // Instructions before the entry are preferred.
            for head in (others.saturating_sub(MOST)..=others.min(MOST).min(i)).rev() {
                match self.patch_of(i, i - head, i + others - head) {
                    Ok(patch) if patch.length >= JUMP => return Ok(patch),
                    Ok(_) => {}
                    Err(reason) => worst = reason,
                }
            }
        }
        Err(worst)
    }

    /// The patch that overwrites the instructions from `first` to `last`, with entry `i` among
    /// them.
    fn patch_of(&self, i: usize, first: usize, last: usize) -> Result<Patch, Reason> {
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
            ..self.empty_patch(i)
        })
    }

    /// A patch of entry `i` that overwrites nothing yet.
    fn empty_patch(&self, i: usize) -> Patch {
        Patch {
            entry: self.instructions[i].ip(),
            number: Number::Any,
            want: Want::Nothing,
            from: 0,
            length: 0,
            head: Vec::new(),
            tail: Vec::new(),
            elsewhere: None,
            returns: false,
            guarded: false,
        }
    }

    fn returns(&self, i: usize) -> bool {
        self.instructions[i].flow_control() == FlowControl::Return
    }

    /// Copies of the instructions from `from` up to `to`. Each must only be reached from the
    /// one before it.
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

    /// The bytes of instruction `i`, if they have the same meaning at every address.
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
        self.bytes(instruction)
    }
}
