//! The result of decoding a sample.

use sunder_access::{Access, Address, CodeAddress, Kind, Span};

/// The most instructions that are followed in each direction.
pub const WINDOW: usize = 40;

/// The result for one sample. [`Decoder::decode`](super::Decoder::decode) clears and refills it, so that its memory is
/// reused.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// Accesses at exactly known addresses: first those before the sampled instruction, the
    /// nearest first, then those from it on.
    pub accesses: Vec<Access>,
    /// The distance of each access from the sampled instruction, in instructions: 0 is the
    /// sampled one, which has not been executed yet, and -1 the one before.
    pub distances: Vec<i32>,
    /// Instructions of the window that access memory at unknown addresses.
    pub near: Vec<NearAccess>,
    /// Memory operands relative to `fs` or `gs` (thread-local variables), whose
    /// base a sample does not hold.
    pub segment_relative: u32,
    /// Whether the access that may have held up the sampled instruction, its own or the last one
    /// before it, has no address here, on any way by which control may have come. The suspects
    /// are among `near`, if they are known.
    pub blind: bool,
    /// The first instruction, going back from the sampled one, to which control may have come in
    /// several ways; whatever is avoidable lies before it.
    pub join: Option<CodeAddress>,
    /// Whether control may also have come from a place that is not known, so that the suspects may
    /// not be all.
    pub ways_unknown: bool,
    /// For a blind sample: where the access may have been that held it up, if the sample's registers
    /// tell that for all ways by which control may have come. One of them is true.
    pub choices: Vec<Span>,
    /// Whether there was code to decode at the sampled instruction.
    pub code_found: bool,
    /// The beginning of the function that contains the sampled instruction, if it is known.
    pub function: Option<CodeAddress>,
}

impl Decoded {
    pub(super) fn clear(&mut self) {
        self.accesses.clear();
        self.distances.clear();
        self.near.clear();
        self.segment_relative = 0;
        self.blind = false;
        self.join = None;
        self.ways_unknown = false;
        self.choices.clear();
        self.code_found = false;
        self.function = None;
    }
}

/// An access near the sampled instruction whose address is not known: its registers change between
/// the two, or control may have come another way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearAccess {
    /// The instruction.
    pub instruction: CodeAddress,
    /// Read, write or update.
    pub kind: Kind,
    /// The width in bytes.
    pub width: u8,
    /// The distance from the sampled instruction, in instructions.
    pub distance: i32,
    /// The pointer in memory through which it goes, if it is known.
    pub through: Option<Slot>,
    /// For an instruction whose mask chooses among its bytes: the address of the first of them, if
    /// that is known. Which bytes it accesses is not.
    pub within: Option<Address>,
    /// Whether it may have held up the sampled instruction.
    pub suspect: bool,
    /// Whether control may have come to the sampled instruction without executing this one.
    pub avoidable: bool,
}

/// A pointer in memory at a known address; unoptimised code keeps all of its pointers so. An
/// instruction of the window loads the 8 bytes at `address` into a register, and the access is
/// at their value plus `add`. No instruction of the block changes the slot for certain, but
/// other code may: the slot has to be read twice, before and after the sample, to know what was
/// loaded (see [`crate::slots`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The address of the pointer.
    pub address: Address,
    /// The number of bytes that is added to its value.
    pub add: i64,
}
