//! Finds the `syscall` instructions of a library (its entries into the kernel), and plans which
//! of them can be led through a hook, each with the whole instructions around it that a jump
//! would overwrite. The tool plans; the runtime inside the target carries the plan out, and its
//! trampolines run copies of the overwritten instructions ([`crate::elsewhere`]).
//!
//! An entry is planned only if it is certain to work; every other becomes a [`Refused`]. This
//! module must not read files, change code or know what the hooks are for.

use crate::branches;
pub use crate::elsewhere::{Distance, Elsewhere};
use crate::numbers;
use alloc::vec::Vec;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use sunder_x86::Control;
pub use sunder_x86::jump::LENGTH as JUMP;

/// Bytes of a `syscall` instruction without prefixes.
const ENTRY: usize = 2;
/// Its encoding.
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

/// The number of the call that an entry makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// This one on all paths.
    Always(u32),
    /// The lower half of the general register with this number (0 is `rax`), which the kernel
    /// does not change; in a loop, the number is loaded before it.
    In(u8),
    /// The code does not tell it.
    Any,
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

/// Plans for `bytes` of code at the address `at`. `functions` may have any order and must not
/// overlap; code outside of them is not considered. `wants` tells how the hook handles a call
/// with this number.
#[must_use]
pub fn plan(bytes: &[u8], at: u64, functions: &[Function], wants: impl Fn(Number) -> Want) -> Plan {
    Entering::of(bytes, at, functions).plan(|_, number| wants(number))
}

/// The functions of some code that enter the kernel, and the branches into them. Finding these
/// takes the most time, and several plans can share them.
pub struct Entering<'a> {
    code: Bytes<'a>,
    functions: Vec<Function>,
    targets: Vec<u64>,
    unexplained: Option<u64>,
    catches: bool,
}

impl<'a> Entering<'a> {
    /// The arguments are those of [`plan`].
    #[must_use]
    pub fn of(bytes: &'a [u8], at: u64, functions: &[Function]) -> Self {
        let code = Bytes { bytes, at };
        let mut functions = functions.to_vec();
        functions.sort_unstable_by_key(|f| f.start);
        let places = memchr::memmem::find_iter(bytes, &ENTRY_BYTES).map(|n| at + n as u64);
        let places: Vec<u64> = places.collect();
        let holding = branches::holding(&functions, places.iter().copied());
        let mut entering = Vec::new();
        let mut open = places.iter().copied().peekable();
        let mut unexplained = None;
        for function in holding {
            let (mut enters, mut end) = (false, function.start);
            code.each(function, |i| {
                enters |= i.code() == Code::Syscall;
                end = i.next_ip();
            });
            if let Some(place) = open.next_if(|&place| place < function.start) {
                unexplained.get_or_insert(place);
            }
            while open.next_if(|&place| place < end).is_some() {}
            if enters {
                entering.push(function);
            }
        }
        let unexplained = unexplained.or_else(|| open.next());
        for function in &mut entering {
            let after = functions.partition_point(|f| f.start <= function.start);
            let next = functions.get(after).map(|f| f.start);
            function.end = code.with_padding(*function, next);
        }
        let targets = if entering.is_empty() {
            Vec::new()
        } else {
            branches::into(code, &functions, &entering)
        };
        Self {
            code,
            functions: entering,
            targets,
            unexplained,
            catches: true,
        }
    }

    /// Declares that the code catches no exceptions.
    pub const fn catches_nothing(&mut self) {
        self.catches = false;
    }

    /// The address of bytes like those of an entry that are in no function, or in one that
    /// can't be decoded up to there, if there are any: they may be data or code.
    #[must_use]
    pub const fn unexplained(&self) -> Option<u64> {
        self.unexplained
    }

    /// The functions that enter the kernel, including the padding after them, ascending.
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Adds addresses to which control may come by other ways.
    pub fn come_also(&mut self, to: impl IntoIterator<Item = u64>) {
        self.targets.extend(to);
        self.targets.sort_unstable();
        self.targets.dedup();
    }

    /// Makes a plan. `wants` tells how the hook handles the entry at an address with this
    /// number.
    #[must_use]
    pub fn plan(&self, wants: impl Fn(u64, Number) -> Want) -> Plan {
        let mut plan = Plan::default();
        let mut instructions = Vec::new();
        for &function in &self.functions {
            instructions.clear();
            self.code.each(function, |i| instructions.push(*i));
            let around = Around {
                code: self.code,
                instructions: &instructions,
                targets: &self.targets,
                catches: self.catches,
            };
            around.add_to(&mut plan, &wants);
        }
        apart(&mut plan);
        plan
    }
}

/// Refuses a patch that overlaps the one before it.
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

/// The target of a direct branch.
pub(crate) fn target(instruction: &Instruction) -> Option<u64> {
    Control::of(instruction).target()
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

    /// The end of the function including the padding up to `next`, with which compilers fill
    /// gaps.
    fn with_padding(&self, function: Function, next: Option<u64>) -> u64 {
        /// A jump needs no more padding than this.
        const MOST: u64 = 16;
        let limit = function.end.saturating_add(MOST);
        let limit = next.map_or(limit, |next| next.min(limit));
        let limit = limit.min(self.at.saturating_add(self.bytes.len() as u64));
        let mut end = function.end;
        let gap = Function {
            start: function.end,
            end: limit,
        };
        let mut is_gap = true;
        self.each(gap, |i| {
            is_gap &= is_padding(i);
            if is_gap {
                end = i.next_ip();
            }
        });
        end
    }

    /// Calls `see` with each instruction of `function`, as far as it can be decoded.
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
    catches: bool,
}

impl Around<'_> {
    /// Adds the plans for all entries among the instructions.
    fn add_to(&self, plan: &mut Plan, wants: &impl Fn(u64, Number) -> Want) {
        let mut constants = None;
        for (i, instruction) in self.instructions.iter().enumerate() {
            if instruction.code() != Code::Syscall {
                continue;
            }
            plan.entries += 1;
            let number = match numbers::before(self.instructions, i, self.targets) {
                Number::Always(number) => Number::Always(number),
                other => constants
                    .get_or_insert_with(|| {
                        numbers::of(self.instructions, self.targets, self.catches)
                    })
                    .get(&i)
                    .map_or(other, |&number| Number::Always(number)),
            };
            let entry = instruction.ip();
            let patch = match wants(entry, number) {
                Want::Nothing => continue,
                _ if instruction.len() != ENTRY => Err(Reason::Prefix),
                Want::Result => self.after(i),
                Want::Call => self.whole(i),
                Want::Before => self.before(i),
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

    /// The patch of the bytes after entry `i`.
    fn after(&self, i: usize) -> Result<Patch, Reason> {
        let (mut tail, mut code) = (Vec::new(), Elsewhere::default());
        for instruction in self.instructions.iter().skip(i + 1) {
            if self.is_target(instruction.ip()) {
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
                    ..self.nothing(i)
                });
            }
        }
        Err(Reason::NoRoom)
    }

    /// The patch of the bytes before entry `i`, if control comes to it only from them.
    fn before(&self, i: usize) -> Result<Patch, Reason> {
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
                    ..self.nothing(i)
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
    fn whole(&self, i: usize) -> Result<Patch, Reason> {
        let mut worst = Reason::NoRoom;
        for others in 1..=2 * MOST {
            // Instructions before the entry are preferred.
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

    /// The patch that overwrites the instructions from `first` to `last`, with entry `i` among
    /// them.
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
            elsewhere: None,
            returns: false,
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

/// Whether the instruction is padding if nothing leads to it.
pub(crate) fn is_padding(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}

#[cfg(test)]
#[path = "sites_tests.rs"]
mod tests;
