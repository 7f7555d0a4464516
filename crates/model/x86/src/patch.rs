//! A place where a jump diverts code around a kernel call: the instructions that the jump
//! overwrites, and those that run instead. The rewriter makes these records, a plan in a file
//! carries them, and [`crate::trampoline`] makes code from them. The reader of a file has to
//! check the lengths in a record.

/// The most bytes that a patch copies from before or from after the entry.
pub const COPIED: usize = 20;
/// The most bytes of replacement code in a patch.
pub const RUN: usize = 28;
/// The most 4-byte distances in the replacement code.
pub const DISTANCES: usize = 3;

/// [`Patch::number`] if the code does not tell the call's number.
pub const ANY_NUMBER: i32 = -1;
/// [`Patch::number`] if the call's number is in a general register that a kernel call
/// preserves: this value plus the register's number.
pub const IN_REGISTER: i32 = -32;
/// [`Patch::flags`]: the hook is called in place of the entry, else after it.
pub const CALL: u8 = 1;
/// [`Patch::flags`]: the instructions after the entry end with a return.
pub const RETURNS: u8 = 2;
/// [`Patch::flags`]: the hook is called before the entry, which stays where it is.
pub const BEFORE: u8 = 4;
/// [`Patch::flags`]: a branch from elsewhere leads to the first instruction after the entry. Of what
/// comes there, only what comes from the entry is for the hook.
pub const GUARDED: u8 = 8;

/// One patch. Addresses are relative to the module's file.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The address of the `syscall` instruction, the entry.
    pub entry: u64,
    /// The address of the first byte that is overwritten.
    pub from: u64,
    /// The number of the call, [`ANY_NUMBER`], or a value from [`IN_REGISTER`] on.
    pub number: i32,
    /// Any of [`CALL`], [`RETURNS`], [`BEFORE`] and [`GUARDED`].
    pub flags: u8,
    /// The length of `head` in bytes.
    pub head_len: u8,
    /// The length of `tail` in bytes.
    pub tail_len: u8,
    /// Always zero.
    pub reserved: u8,
    /// The overwritten instructions before the entry.
    pub head: [u8; COPIED],
    /// The overwritten instructions after the entry.
    pub tail: [u8; COPIED],
    /// Replacement code for `head` or `tail`, whichever is not empty, if these instructions
    /// can't run elsewhere unchanged. Distances in it are relative to the entry.
    pub run: [u8; RUN],
    /// The length of `run` in bytes; 0 if the copies can run unchanged.
    pub run_len: u8,
    /// The offsets in `run` at which distances of four bytes are; [`RUN`] for none.
    pub distances: [u8; DISTANCES],
}

impl Patch {
    /// The general register whose lower half has the call's number; `None` if the number is
    /// known or no register has it.
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

    /// The code that runs in place of the copies; `None` if the copies run unchanged.
    #[must_use]
    pub fn run(&self) -> Option<&[u8]> {
        self.run
            .get(..self.run_len.into())
            .filter(|run| !run.is_empty())
    }

    /// The offsets of the distances in [`Self::run`].
    pub fn distances(&self) -> impl Iterator<Item = usize> {
        let places = self.distances.into_iter().map(usize::from);
        places.filter(|place| place + 4 <= self.run_len.into())
    }
}
