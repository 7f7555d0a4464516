//! Blocks: after its prefix the file is a sequence of them, each complete in itself: a header of
//! [`HEADER_BYTES`] bytes with a checksum of its own, then the payload. So a reader skips a damaged
//! payload by its length, and a damaged header by searching for the next valid one.

use twox_hash::XxHash3_64;

/// Bytes of a block's header.
pub const HEADER_BYTES: usize = 72;

/// The first bytes of every block.
pub const BLOCK_MAGIC: [u8; 4] = *b"SbLk";

/// The largest payload, stored or unpacked. It limits how much a reader allocates for a damaged
/// length.
pub const LARGEST_PAYLOAD: usize = 4 << 20;

/// The content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Kind {
    /// The recorded program, time and machine: [`crate::meta::Header`]. The first block.
    Header = 1,
    /// Slots of one thread.
    Events = 2,
    /// Call stacks.
    Stacks = 3,
    /// Loaded files: [`crate::meta::Module`].
    Modules = 4,
    /// Totals: [`crate::meta::End`]. The last block; without it a trace is
    /// partial.
    End = 5,
}

impl Kind {
    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Header),
            2 => Some(Self::Events),
            3 => Some(Self::Stacks),
            4 => Some(Self::Modules),
            5 => Some(Self::End),
            _ => None,
        }
    }
}

/// A block's header. Ticks are those of the recording machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The content. `None`: a kind of a later version, to be skipped.
    pub kind: Option<Kind>,
    /// Whether the payload is compressed (Zstandard).
    pub compressed: bool,
    /// Bytes of the payload in the file.
    pub stored: u32,
    /// Bytes of the payload unpacked.
    pub unpacked: u32,
    /// The thread, by its index in this trace, from 1; 0 for blocks of no thread.
    pub thread: u32,
    /// The number of this block among the thread's event blocks, from 0.
    pub sequence: u32,
    /// How many slots or entries the payload has.
    pub count: u32,
    /// The thread's kernel id.
    pub tid: u32,
    /// Ticks at the first slot.
    pub first: u64,
    /// Ticks after the last slot.
    pub last: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds at about `last`.
    pub clock: u64,
}

impl BlockHeader {
    /// A header for a small uncompressed block of no thread.
    pub const fn plain(kind: Kind, bytes: u32, count: u32) -> Self {
        Self {
            kind: Some(kind),
            compressed: false,
            stored: bytes,
            unpacked: bytes,
            thread: 0,
            sequence: 0,
            count,
            tid: 0,
            first: 0,
            last: 0,
            clock: 0,
        }
    }

    /// The header's bytes, with the checksums of the payload and of itself.
    pub fn encoded(&self, payload: &[u8]) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            for (to, from) in bytes.iter_mut().skip(at).zip(part) {
                *to = *from;
            }
            at += part.len();
        };
        put(&BLOCK_MAGIC);
        put(&[self.kind.map_or(0, |k| k as u8), u8::from(self.compressed)]);
        put(&[0; 2]);
        for number in [
            self.stored,
            self.unpacked,
            self.thread,
            self.sequence,
            self.count,
            self.tid,
        ] {
            put(&number.to_le_bytes());
        }
        let sum = XxHash3_64::oneshot(payload);
        for number in [self.first, self.last, self.clock, sum] {
            put(&number.to_le_bytes());
        }
        let own = checksum_of_header(&bytes);
        bytes[HEADER_BYTES - 8..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// The header in `bytes`, and the checksum that its payload must have; `None` if it is not
    /// valid.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Option<(Self, u64)> {
        let four = |at: usize| {
            let part = bytes.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_le_bytes(part))
        };
        let eight = |at: usize| {
            let part = bytes.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(part))
        };
        let sound = bytes.starts_with(&BLOCK_MAGIC)
            && eight(HEADER_BYTES - 8)? == checksum_of_header(bytes);
        if !sound || bytes[5] > 1 {
            return None;
        }
        let header = Self {
            kind: Kind::from_code(bytes[4]),
            compressed: bytes[5] == 1,
            stored: four(8)?,
            unpacked: four(12)?,
            thread: four(16)?,
            sequence: four(20)?,
            count: four(24)?,
            tid: four(28)?,
            first: eight(32)?,
            last: eight(40)?,
            clock: eight(48)?,
        };
        let fits = header.stored as usize <= LARGEST_PAYLOAD
            && header.unpacked as usize <= LARGEST_PAYLOAD
            && header.first <= header.last;
        fits.then_some((header, eight(56)?))
    }
}

/// The checksum of a payload.
pub fn checksum(payload: &[u8]) -> u64 {
    XxHash3_64::oneshot(payload)
}

fn checksum_of_header(bytes: &[u8; HEADER_BYTES]) -> u64 {
    XxHash3_64::oneshot(&bytes[..HEADER_BYTES - 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> BlockHeader {
        BlockHeader {
            thread: 3,
            sequence: 7,
            first: 100,
            last: 200,
            clock: 5,
            ..BlockHeader::plain(Kind::Events, 4, 2)
        }
    }

    #[test]
    fn a_block_header_is_read_back_with_its_payloads_checksum() {
        let bytes = header().encoded(b"load");
        assert_eq!(
            BlockHeader::from_bytes(&bytes),
            Some((header(), checksum(b"load")))
        );
    }

    #[test]
    fn no_flipped_bit_of_a_header_goes_unseen() {
        let bytes = header().encoded(b"load");
        for bit in 0..HEADER_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BlockHeader::from_bytes(&damaged), None, "bit {bit}");
        }
    }
}
