//! The errors of placing and freeing objects.

use core::fmt;
use sunder_access::Address;

/// Why an object was not placed or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlacementError {
    /// The page or line size is no power of two, or lines are larger than
    /// pages.
    Sizes {
        /// Bytes of a page.
        page: u64,
        /// Bytes of a line.
        line: u64,
    },
    /// An alignment that is no power of two or is beyond [`crate::placer::MAX_ALIGN`].
    Alignment(u64),
    /// An object that is larger than [`crate::placer::MAX_SIZE`].
    TooLarge(u64),
    /// The arena has no more address space.
    Full,
    /// No live object starts at the address.
    NotLive(Address),
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sizes { page, line } => write!(
                f,
                "pages of {page} bytes with lines of {line}: both must be powers of two, \
                 a line of 16 bytes at least and no larger than a page"
            ),
            Self::Alignment(bytes) => write!(f, "{bytes} bytes is no possible alignment"),
            Self::TooLarge(bytes) => write!(f, "an object of {bytes} bytes is too large"),
            Self::Full => f.write_str("the address space for objects is used up"),
            Self::NotLive(address) => write!(f, "no live object starts at {address}"),
        }
    }
}

impl core::error::Error for PlacementError {}
