//! One place where a jump diverts code around a kernel call: what it overwrites, and what
//! runs instead. The rewriter makes these records, a plan in a file carries them, and
//! [`crate::trampoline`] makes code of them. Whoever reads a record from a file checks the
//! lengths in it.

/// Most bytes that a patch copies from one side of the entry.
pub const COPIED: usize = 20;
/// Most bytes that run elsewhere in place of copies.
pub const RUN: usize = 28;
/// Most distances in these.
pub const DISTANCES: usize = 3;

/// [`Patch::number`] where the code does not tell it.
pub const ANY_NUMBER: i32 = -1;
/// [`Patch::number`] where it is in a general register that a kernel call leaves alone:
/// this and the register's number.
pub const IN_REGISTER: i32 = -32;
/// [`Patch::flags`]: the hook is called in place of the entry; otherwise behind it.
pub const CALL: u8 = 1;
/// [`Patch::flags`]: the instructions behind the entry end by returning.
pub const RETURNS: u8 = 2;
/// [`Patch::flags`]: the hook is called before the entry, which stays in its place.
pub const BEFORE: u8 = 4;

/// One patch. Addresses are those of the module's file.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Of the `syscall` instruction.
    pub entry: u64,
    /// Of the first byte that is overwritten.
    pub from: u64,
    /// The number of the call, [`ANY_NUMBER`], or from [`IN_REGISTER`] on.
    pub number: i32,
    /// [`CALL`], [`RETURNS`], [`BEFORE`].
    pub flags: u8,
    /// Bytes of `head` that count.
    pub head_len: u8,
    /// Bytes of `tail` that count.
    pub tail_len: u8,
    /// Zero.
    pub reserved: u8,
    /// The overwritten instructions before the entry.
    pub head: [u8; COPIED],
    /// Those after it.
    pub tail: [u8; COPIED],
    /// What runs in place of those of the two that are not empty, if they can't run elsewhere
    /// as they are. Distances in it are counted from the entry.
    pub run: [u8; RUN],
    /// Bytes of `run` that count; 0 if the copies run.
    pub run_len: u8,
    /// Where distances of four bytes are in `run`; [`RUN`] for none.
    pub distances: [u8; DISTANCES],
}

impl Patch {
    /// The general register whose lower half has the call's number, if that is not known.
    #[must_use]
    pub fn register(&self) -> Option<u8> {
        let register = u8::try_from(self.number - IN_REGISTER).ok()?;
        (register < 16).then_some(register)
    }

    /// The overwritten instructions before the entry.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        self.head.get(..self.head_len.into()).unwrap_or(&self.head)
    }

    /// The overwritten instructions after the entry.
    #[must_use]
    pub fn tail(&self) -> &[u8] {
        self.tail.get(..self.tail_len.into()).unwrap_or(&self.tail)
    }

    /// What runs in place of copies, if they can't.
    #[must_use]
    pub fn run(&self) -> Option<&[u8]> {
        self.run
            .get(..self.run_len.into())
            .filter(|run| !run.is_empty())
    }

    /// Where distances are in [`Self::run`].
    pub fn distances(&self) -> impl Iterator<Item = usize> {
        let places = self.distances.into_iter().map(usize::from);
        places.filter(|place| place + 4 <= self.run_len.into())
    }
}
