//! The input of this crate, a [`Request`], and its output, a [`Block`] or a [`Refusal`].

use crate::registers::{Register, Registers};
use crate::values::Values;
use alloc::vec::Vec;
use sunder_access::{Address, CodeAddress, Span};

/// The bytes of a function's code, or of a part of it.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// The address of the first byte in the target.
    pub start: CodeAddress,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Code<'_> {
    pub(crate) fn contains(&self, ip: u64) -> bool {
        ip.wrapping_sub(self.start.0) < self.bytes.len() as u64
    }
}

/// Bytes of a page that moved by the same distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The old place of the bytes.
    pub bytes: Span,
    /// The distance from the old to the new addresses.
    pub delta: i64,
}

/// A page from which all bytes have moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedPage {
    /// The page.
    pub page: Span,
    /// The moves, ascending, without gaps and overlaps; together they cover the page.
    pub rules: Vec<Rule>,
}

/// How the bytes of an access have moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relocation {
    /// Not at all: they are not on the page.
    Elsewhere,
    /// All by this rule.
    In(Rule),
    /// By two rules, or only some of them.
    Straddles,
}

/// Up to this many addresses are looked up one by one, to see whether they moved by the same
/// distance.
const MOST_ADDRESSES: u64 = 512;

impl MovedPage {
    /// How an access at any of these addresses has moved. They may lie in several rules (one
    /// thread's elements among another's) if all moved by the same distance.
    pub(crate) fn relocation_of_each(&self, addresses: Values, width: u64) -> Relocation {
        match self.relocation_of_range(addresses.low, addresses.high, width) {
            Relocation::Straddles => self
                .alike(addresses, width)
                .unwrap_or(Relocation::Straddles),
            other => other,
        }
    }

    fn alike(&self, addresses: Values, width: u64) -> Option<Relocation> {
        let mut places = addresses
            .each(MOST_ADDRESSES)?
            .map(|a| self.relocation(a, width));
        let Some(Relocation::In(first)) = places.next() else {
            return None;
        };
        let same = |place| matches!(place, Relocation::In(rule) if rule.delta == first.delta);
        places.all(same).then_some(Relocation::In(first))
    }

    /// How an access at any address from `low` to `high` has moved.
    fn relocation_of_range(&self, low: u64, high: u64, width: u64) -> Relocation {
        let all = high.saturating_sub(low).checked_add(width);
        all.map_or(Relocation::Straddles, |all| self.relocation(low, all))
    }

    /// How an access has moved.
    pub(crate) fn relocation(&self, address: u64, width: u64) -> Relocation {
        let page = self.page;
        let Some(last) = address.checked_add(width.saturating_sub(1)) else {
            return Relocation::Straddles;
        };
        if last < page.start.0
            || address.wrapping_sub(page.start.0) >= page.len && address > page.start.0
        {
            return Relocation::Elsewhere;
        }
        let whole = |rule: &&Rule| {
            let from = address.wrapping_sub(rule.bytes.start.0);
            from < rule.bytes.len && width <= rule.bytes.len - from
        };
        self.rules
            .iter()
            .find(whole)
            .map_or(Relocation::Straddles, |rule| Relocation::In(*rule))
    }
}

/// One function on a thread's call stack.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its code, from its first instruction.
    pub code: Code<'a>,
    /// The instruction that faulted; in a caller, the one at the return address.
    pub ip: CodeAddress,
}

/// The registers of an operand when the instruction at `ip` faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The instruction.
    pub ip: CodeAddress,
    /// The value of its base register; 0 without one.
    pub base: u64,
    /// The value of its index register; 0 without one.
    pub index: u64,
    /// Of a string instruction, whose `base` is rdi and whose `index` is rsi: how many elements it
    /// was to use. 0 of other instructions.
    pub count: u64,
}

/// A call that was found on the stack of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Met {
    /// Its return address.
    pub back: CodeAddress,
    /// The first instruction of the function that it led to.
    pub function: CodeAddress,
}

/// Reads the program's memory while the thread waits. The arguments are an address and a size
/// of 1 to 8 bytes; the result is a number, or `None` if the memory can't be read.
#[derive(Clone, Copy)]
pub struct Memory<'a>(pub &'a dyn Fn(Address, u64) -> Option<u64>);

impl core::fmt::Debug for Memory<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Memory")
    }
}

/// A fault for which a copy is to be made.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The function of the instruction that faulted.
    pub frame: Frame<'a>,
    /// The functions on the call stack, innermost first, as far as they are known (a return
    /// address lies at [`return_slot`](crate::return_slot)).
    pub callers: &'a [Frame<'a>],
    /// Whether the current instruction of each of these functions, `frame` first, is in a loop of its own
    /// function, as [`call_targets`](crate::call_targets) tells; `None` if it is to be found out.
    pub loops: Option<&'a [bool]>,
    /// Functions that these call directly ([`call_targets`](crate::call_targets)), and
    /// functions that those call. The copy calls all others as they are.
    pub callees: &'a [Code<'a>],
    /// The thread's registers at the fault.
    pub registers: Registers,
    /// Whether string instructions of the thread go downwards: its direction flag is set.
    pub downwards: bool,
    /// Whether the copy must have all ways through the functions that a loop calls: threads have left
    /// copies without some of them very often.
    pub whole: bool,
    /// Whether each address that a register tells is compared with all moved ranges, as the papers do it
    /// without specialising (thesis, section 5.5). Slow; to see what specialising gains.
    pub compares_all: bool,
    /// The page and the new places of its bytes.
    pub moved: &'a MovedPage,
    /// Earlier faults of the same thread, for which loops were copied.
    pub seen: &'a [Seen],
    /// Earlier faults of the same thread, for which single instructions were copied.
    pub alone: &'a [Seen],
    /// Functions that calls were seen to lead to, with their return addresses. Only a guess: what
    /// calls through pointers lead to changes.
    pub met: &'a [Met],
    /// Reads pointers in memory: only a guess, which the copy checks.
    pub memory: Memory<'a>,
    /// The block will lie here or less than 16 MiB away; see [`Draft`](crate::Draft).
    pub near: CodeAddress,
}

/// A condition for entering a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The register's unsigned value is at least the first and at most the second number.
    Register(Register, u64, u64),
    /// The same, and a whole number of steps of the third number above the first.
    Steps(Register, u64, u64, u64),
    /// The 8 bytes at this distance from rsp have this value.
    Stack(i64, u64),
}

/// A place where a thread may enter a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The original instruction.
    pub original: CodeAddress,
    /// The offset of its copy in the block.
    pub offset: u32,
    /// The conditions for entering there.
    pub conditions: Vec<Condition>,
}

/// Maps an instruction of a block to the original code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The offset in the block.
    pub offset: u32,
    /// The address in the original code of a thread that is about to execute it, with the same
    /// registers.
    pub original: CodeAddress,
    /// Bytes by which the thread's stack pointer has to go up: the copy has pushed what the original
    /// instruction has not, as a return address.
    pub pushed: u8,
    /// The register whose value lies at the top of the stack, as the copy uses it for something else.
    pub saved: Option<Register>,
    /// What the copy has done to registers of a string instruction.
    pub shift: Shift,
}

/// How registers in a copy differ from the original's, around a string instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shift {
    /// What was added to rdi.
    pub destination: i32,
    /// What was added to rsi.
    pub source: i32,
    /// What was taken off rcx.
    pub count: i32,
}

impl Resume {
    /// Makes the general registers of a thread that is stopped here those of the original. `top` is
    /// the word at the top of its stack.
    pub fn restore(&self, general: &mut [u64; 16], top: u64) {
        if let Some(saved) = self.saved {
            general[saved.index() & 15] = top;
        }
        let [_, rcx, _, _, rsp, _, rsi, rdi, ..] = general;
        let back = |value: &mut u64, by: i32| *value = value.wrapping_sub(by as i64 as u64);
        back(rdi, self.shift.destination);
        back(rsi, self.shift.source);
        *rcx = rcx.wrapping_add(self.shift.count as i64 as u64);
        *rsp = rsp.wrapping_add(self.pushed.into());
    }
}

/// A copy of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Constants and then code, for the address in the request.
    pub bytes: Vec<u8>,
    /// The offset of the copied instruction that faulted.
    pub entry: u32,
    /// One entry for each instruction whose operand the block redirects. Threads must not enter
    /// anywhere else.
    pub entries: Vec<Entry>,
    /// All instructions of the block, ascending.
    pub resume: Vec<Resume>,
    /// The operand's registers at this fault, for later requests.
    pub seen: Seen,
    /// The number of original instructions that were copied.
    pub instructions: u32,
    /// The number of operands with another displacement and no guard.
    pub direct: u32,
    /// The number of operands with a guard.
    pub guarded: u32,
    /// The number of values from memory that the copy compares with expected ones.
    pub checked: u32,
    /// Whether it contains a loop.
    pub is_loop: bool,
    /// The first and the last original instruction of the loop's function.
    pub covers: (CodeAddress, CodeAddress),
}

/// Why there is no copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The bytes are not an instruction, or the code ends within it.
    #[error("the instruction at {0} can't be decoded")]
    NoInstruction(CodeAddress),
    /// The instruction has no operand that a displacement could move.
    #[error("the instruction at {0} reaches memory in a way that can't be redirected")]
    Operand(CodeAddress),
    /// It touches bytes that moved by different distances.
    #[error("the instruction at {0} touches bytes of two groups")]
    Straddles(CodeAddress),
    /// Its registers do not lead to the page.
    #[error("the instruction at {0} does not touch the page")]
    Elsewhere(CodeAddress),
    /// The new place is more than 2 GiB from the old one.
    #[error("the new place is out of reach of the instruction at {0}")]
    OutOfReach(CodeAddress),
    /// The copy can't be encoded where it should lie.
    #[error("the copy of the code at {0} can't be encoded")]
    Encode(CodeAddress),
}
