//! Makes traces with right checksums and any numbers, for tests and fuzz targets: what a damaged
//! disk can't do, but somebody who wants to can. Behind the feature of this name; no program has
//! it.

use crate::block::{BlockHeader, Kind};
use crate::codec::COLUMNS;
use crate::meta::{Clock, HeaderParts, PREFIX_BYTES, Progress, Via};
use crate::varint::{Column, LONGEST, zigzag};
use crate::zstandard;

/// A trace in the making.
#[derive(Debug)]
pub struct Crafted {
    bytes: Vec<u8>,
}

impl Default for Crafted {
    fn default() -> Self {
        Self::new()
    }
}

impl Crafted {
    /// The first bytes of a trace, without a header.
    pub fn bare() -> Self {
        Self {
            bytes: Progress::default().prefix().to_vec(),
        }
    }

    /// The first bytes of a trace, and the header of a recording of `/crafted`.
    ///
    /// # Panics
    /// Never: the header fits.
    pub fn new() -> Self {
        let parts = HeaderParts {
            via: Via::Other,
            clock: Clock::Monotonic,
            line_size: 64,
            process: 1,
            ticks: 0,
            monotonic: 0,
            realtime: 0,
            program: b"/crafted",
            arguments: b"crafted\0",
        };
        let mut room = [0; 128];
        let used = parts.write(&mut room).expect("room for a small header");
        let mut new = Self::bare();
        new.block(
            BlockHeader::plain(Kind::Header, used as u32, 1),
            &room[..used],
        );
        new
    }

    /// Adds a block with this header, and with `payload` as it is, whatever the header says.
    pub fn block(&mut self, header: BlockHeader, payload: &[u8]) -> &mut Self {
        self.bytes.extend(header.encoded(payload));
        self.bytes.extend(payload);
        self
    }

    /// Adds a block of `kind` with `count` entries.
    pub fn plain(&mut self, kind: Kind, count: u32, payload: &[u8]) -> &mut Self {
        self.block(
            BlockHeader::plain(kind, payload.len() as u32, count),
            payload,
        )
    }

    /// Adds a block of `kind` with `count` entries, its payload compressed.
    ///
    /// # Panics
    /// If the payload does not fit a block.
    pub fn packed(&mut self, kind: Kind, count: u32, payload: &[u8]) -> &mut Self {
        self.packed_as(BlockHeader::plain(kind, 0, count), payload)
    }

    /// Adds a block with this header, its payload compressed.
    ///
    /// # Panics
    /// If the payload does not fit a block.
    pub fn packed_as(&mut self, header: BlockHeader, payload: &[u8]) -> &mut Self {
        let stored = zstandard::compress(payload).expect("no more than a block holds");
        let header = BlockHeader {
            compressed: true,
            stored: stored.len() as u32,
            unpacked: payload.len() as u32,
            ..header
        };
        self.block(header, &stored)
    }

    /// The file so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where the next block begins.
    pub const fn next(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Where the first block begins.
    pub const FIRST: u64 = PREFIX_BYTES as u64;
}

/// A header of a block of `count` events of `thread`, in the ticks from `first` to `last`; its
/// payload has `bytes` bytes.
pub const fn events(
    thread: u32,
    count: u32,
    bytes: usize,
    (first, last): (u64, u64),
) -> BlockHeader {
    BlockHeader {
        thread,
        tid: 100,
        first,
        last,
        ..BlockHeader::plain(Kind::Events, bytes as u32, count)
    }
}

/// The payload of a block of events: its five columns, as numbers.
pub fn columns(numbers: [&[u64]; COLUMNS]) -> Vec<u8> {
    let columns = numbers.map(|numbers| {
        let mut room = vec![0; (numbers.len() + 1) * LONGEST];
        let mut column = Column::new(&mut room);
        for &number in numbers {
            column.put(number);
        }
        column.written().unwrap_or_default().to_vec()
    });
    let lengths = columns.iter().map(|c| (c.len() as u32).to_le_bytes());
    let mut payload: Vec<u8> = lengths.flatten().collect();
    payload.extend(columns.iter().flatten());
    payload
}

/// The payload of a block of any number of events of one kind: `key` with `first` as the first
/// value, then always `stride` more. All but the first are predicted.
pub fn repeated(key: crate::slot::Key, first: u64, stride: u64) -> Vec<u8> {
    let (low, high) = (key.payload(), key.0 >> 48);
    // The first key is new, and its first value corrects a prediction of 0. The second event follows
    // a key without a follower: it is corrected to the site with the number 0. A stride counts from
    // its second time on.
    columns([
        &[],
        &[zigzag(low as i64), high],
        &[0, 0, 0, 1],
        &[0, 0, 0],
        &[
            zigzag(first as i64),
            zigzag(stride as i64),
            zigzag(stride as i64),
        ],
    ])
}
