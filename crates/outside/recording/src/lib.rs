//! The file that `sunder detect --record` writes: the raw events of one run, in the order in which
//! the tool took them. Another report, threshold or line size then needs no second run.
//!
//! Used by `pipeline`, which writes it while a program is observed, and reads it when the run is judged
//! again. This crate knows the format alone: it must not judge, decode or name anything, and must not look
//! at a process. The format is described in `docs/design/recording.md`.

mod check;
#[cfg(feature = "craft")]
pub mod craft;
mod error;
mod read;
mod step;
mod write;

pub use error::Error;
pub use read::{Reader, is_recording};
pub use step::*;
pub use write::{Outcome, Recorder};

/// The first bytes of every such file.
const MAGIC: [u8; 8] = *b"SUNDRRUN";

/// The version of the format. Any change of [`Step`] raises it.
pub const VERSION: u32 = 1;

/// The most bytes of one block before it is compressed.
const MOST_IN_BLOCK: usize = 64 << 20;

/// Bytes at the head of a block: the length before compression, the length after it, and the
/// checksum of the compressed bytes.
const HEAD: usize = 4 + 4 + 8;

/// The most bytes that a file of `length` bytes may unpack to. Sizes in a file prove nothing: a
/// block of zeroes unpacks to thousands of times its length. The steps of real runs unpack to about
/// four times theirs, and the pages of a heap's records to a hundred times at most.
pub(crate) const fn unpacked_for(length: u64) -> u64 {
    const SMALL: u64 = 256 << 20;
    const MULTIPLE: u64 = 128;
    SMALL.saturating_add(length.saturating_mul(MULTIPLE))
}
