//! What is asked of this crate, and what it answers.

use crate::registers::{Register, Registers};
use crate::values::Values;
use alloc::vec::Vec;
use sunder_access::{Address, CodeAddress, Span};

/// Code bytes of one function, or of as much of one as is known.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// Where the first byte lies in the target.
    pub start: CodeAddress,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Code<'_> {
    pub(crate) fn contains(&self, ip: u64) -> bool {
        ip.wrapping_sub(self.start.0) < self.bytes.len() as u64
    }
}

/// Bytes of the page that moved by the same distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where they were.
    pub bytes: Span,
    /// What to add to their old addresses.
    pub delta: i64,
}

/// A page whose bytes have all moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedPage {
    /// The page.
    pub page: Span,
    /// Ascending, without gaps and without overlap; together they are the page.
    pub rules: Vec<Rule>,
}

/// Where an access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Not on the page.
    Elsewhere,
    /// All of it in this rule.
    In(Rule),
    /// In two rules, or partly beside the page.
    Straddles,
}

/// So many addresses are looked at one by one, to see whether they moved alike.
const MOST_ADDRESSES: u64 = 512;

impl MovedPage {
    /// The same for all of these. They may lie in several rules (a thread's elements
    /// between another's) if they moved by one distance.
    pub(crate) fn place_each(&self, addresses: Values, width: u64) -> Place {
        match self.place_all(addresses.low, addresses.high, width) {
            Place::Straddles => self.alike(addresses, width).unwrap_or(Place::Straddles),
            other => other,
        }
    }

    fn alike(&self, addresses: Values, width: u64) -> Option<Place> {
        let mut places = addresses
            .each(MOST_ADDRESSES)?
            .map(|a| self.place(a, width));
        let Some(Place::In(first)) = places.next() else {
            return None;
        };
        let same = |place| matches!(place, Place::In(rule) if rule.delta == first.delta);
        places.all(same).then_some(Place::In(first))
    }

    /// The same for all addresses from `low` to `high`.
    fn place_all(&self, low: u64, high: u64, width: u64) -> Place {
        let all = high.saturating_sub(low).checked_add(width);
        all.map_or(Place::Straddles, |all| self.place(low, all))
    }

    pub(crate) fn place(&self, address: u64, width: u64) -> Place {
        let page = self.page;
        let Some(last) = address.checked_add(width.saturating_sub(1)) else {
            return Place::Straddles;
        };
        if last < page.start.0
            || address.wrapping_sub(page.start.0) >= page.len && address > page.start.0
        {
            return Place::Elsewhere;
        }
        let whole = |rule: &&Rule| {
            let from = address.wrapping_sub(rule.bytes.start.0);
            from < rule.bytes.len && width <= rule.bytes.len - from
        };
        self.rules
            .iter()
            .find(whole)
            .map_or(Place::Straddles, |rule| Place::In(*rule))
    }
}

/// One function that a thread is in.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its code, from its first instruction.
    pub code: Code<'a>,
    /// The instruction that faulted; for a caller, the one that the call returns to.
    pub ip: CodeAddress,
}

/// Registers of an operand when the instruction at `ip` faulted before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The instruction.
    pub ip: CodeAddress,
    /// What its base register held; 0 without one.
    pub base: u64,
    /// The same of its index register.
    pub index: u64,
}

/// The program's memory, as it is while the thread waits: the address and the bytes (1
/// to 8) of a number.
#[derive(Clone, Copy)]
pub struct Memory<'a>(pub &'a dyn Fn(Address, u64) -> Option<u64>);

impl core::fmt::Debug for Memory<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Memory")
    }
}

/// A fault that is to be answered.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The function of the instruction.
    pub frame: Frame<'a>,
    /// The function that called it and where that goes on, the one that called that,
    /// and so on, as far as they are known (a return address lies at
    /// [`return_slot`](crate::return_slot)).
    pub callers: &'a [Frame<'a>],
    /// Functions that these call directly ([`call_targets`](crate::call_targets)),
    /// and those that these call. Others are called as they are.
    pub callees: &'a [Code<'a>],
    /// At the fault.
    pub registers: Registers,
    /// Where bytes have gone.
    pub moved: &'a MovedPage,
    /// Earlier faults of the same thread.
    pub seen: &'a [Seen],
    /// What pointers in memory hold: only a guess, which the copy checks.
    pub memory: Memory<'a>,
    /// Where the block will lie.
    pub at: CodeAddress,
}

/// Something that must hold where a copy is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// A register is at least the first and at most the second, unsigned.
    Register(Register, u64, u64),
    /// The 8 bytes so far from rsp are this.
    Stack(i64, u64),
}

/// A way into a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The original instruction.
    pub original: CodeAddress,
    /// Its copy, in bytes from the block's start.
    pub offset: u32,
    /// What must hold for it.
    pub conditions: Vec<Condition>,
}

/// What an instruction of a block stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// In bytes from the block's start.
    pub offset: u32,
    /// Where a thread that has not executed it would be in the original code, with
    /// the same registers.
    pub original: CodeAddress,
}

/// A copy of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Constants, then code, to be put where the request said.
    pub bytes: Vec<u8>,
    /// Where the copy of the instruction that faulted is.
    pub entry: u32,
    /// The ways in: one for each instruction whose operand the block redirects.
    /// Nothing else may enter it.
    pub entries: Vec<Entry>,
    /// All its instructions, ascending.
    pub resume: Vec<Resume>,
    /// What was seen at this fault, for later requests.
    pub seen: Seen,
    /// Instructions of the original that it copies.
    pub instructions: u32,
    /// Operands with another displacement and no guard.
    pub direct: u32,
    /// Operands with a guard.
    pub guarded: u32,
    /// Values from memory that are compared with what is expected of them.
    pub checked: u32,
    /// Whether it holds a loop.
    pub is_loop: bool,
    /// First and last original instruction of the loop's function.
    pub covers: (CodeAddress, CodeAddress),
}

/// Why there is no copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The bytes are no instruction, or the code ends in it.
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
