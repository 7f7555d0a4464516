//! The messages of a library inside an emulated program (`crates/inside/announce`) to the
//! emulator's plugin (`crates/inside/emulator`), which sees instructions and accesses but neither
//! registers nor functions.
//!
//! The library fills a [`Record`] and executes one instruction, the *bell*, whose bytes occur
//! nowhere else: `mov qword ptr [rdi + BELL_DISTANCE], BELL_MARK`, with `rdi` that far below the
//! record. The plugin sees the store and reads the record at its address. Without the plugin the
//! store has no effect: the record is not read.

/// The displacement in the bell; with [`BELL_MARK`], 64 bits that no compiler puts into one
/// instruction.
pub const BELL_DISTANCE: i32 = 0x5ade_b311;
/// The value that the bell stores. Not negative, because the store extends its sign.
pub const BELL_MARK: i32 = 0x3c70_91e5;

/// The bytes of the bell.
pub const BELL: [u8; 11] = {
    let [a, b, c, d] = BELL_DISTANCE.to_le_bytes();
    let [e, f, g, h] = BELL_MARK.to_le_bytes();
    [0x48, 0xc7, 0x87, a, b, c, d, e, f, g, h]
};

/// One message. Aligned so that it lies on one page.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// [`BELL_MARK`], stored by the bell itself.
    pub mark: u64,
    /// One of [`kind`] in the low byte, its code in the next.
    pub kind: u64,
    /// The block, or the synchronisation object.
    pub address: u64,
    /// The block's size, or the code of the [`crate::slot::Sync`].
    pub detail: u64,
}

/// The kinds of messages.
pub mod kind {
    /// A block was allocated. Code: [`crate::slot::alignment_code`].
    pub const ALLOCATE: u64 = 1;
    /// A block is about to be freed.
    pub const FREE: u64 = 2;
    /// A synchronisation object is about to be released.
    pub const BEFORE: u64 = 3;
    /// A synchronisation object was acquired.
    pub const AFTER: u64 = 4;

    /// [`ALLOCATE`] with its code.
    pub const fn allocate(code: u8) -> u64 {
        ALLOCATE | (code as u64) << 8
    }

    /// The kind and the code of a message's [`super::Record::kind`].
    pub const fn parts(packed: u64) -> (u64, u8) {
        (packed & 0xff, (packed >> 8) as u8)
    }
}
