//! The first pass over a trace: every block's header, and the payloads other than events. Skips
//! damaged parts.

use super::bounds::{Bounds, check_threads};
use crate::block::{BLOCK_MAGIC, BlockHeader, HEADER_BYTES, Kind, checksum};
use crate::meta::{End, Header, Module, PREFIX_BYTES, parse_stacks};
use crate::zstandard;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use sunder_access::CodeAddress;

/// A block's position and header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub offset: u64,
    pub header: BlockHeader,
    pub checksum: u64,
    /// The end of the thread's blocks before it, in ticks: its events have no earlier time.
    pub not_before: u64,
}

/// The size of a trace, and what is missing in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Bytes of blocks of events, headers included.
    pub event_bytes: u64,
    /// How many blocks of events have valid headers.
    pub blocks: u64,
    /// How many events these blocks have.
    pub events: u64,
    /// Whether there is a record of totals: the recording ended as it should.
    pub ended: bool,
    /// How many gaps, each of any length, have no readable block.
    pub gaps: u64,
    /// Bytes in these gaps.
    pub gap_bytes: u64,
    /// How many blocks are missing, according to the numbers of those that are there.
    pub missing_blocks: u64,
    /// Blocks of other kinds than events whose payload is damaged.
    pub damaged_blocks: u64,
    /// Blocks of kinds that this version does not know.
    pub unknown_blocks: u64,
    /// Blocks of events that begin before the block before them has ended. Their events are read
    /// with later times, so that a thread's time never goes back.
    pub early_blocks: u64,
}

impl Summary {
    /// Whether the trace is complete, according to the headers.
    pub const fn is_complete(&self) -> bool {
        self.ended
            && self.gaps == 0
            && self.missing_blocks == 0
            && self.damaged_blocks == 0
            && self.early_blocks == 0
    }
}

/// Why a file can't be indexed.
#[derive(Debug)]
pub enum ScanError {
    /// It can't be read.
    Read(io::Error),
    /// A number in it breaks a bound: at which byte the block begins, and what is wrong.
    Absurd(u64, String),
}

impl From<io::Error> for ScanError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

/// The result of [`Index::scan`].
#[derive(Debug, Default)]
pub struct Index {
    pub header: Option<Header>,
    pub threads: Vec<(u32, Vec<Block>)>,
    pub stacks: HashMap<u32, Vec<CodeAddress>>,
    pub modules: Vec<(u64, Vec<Module>)>,
    pub end: Option<End>,
    pub summary: Summary,
    /// Ticks and nanoseconds of the latest known moment.
    pub last: (u64, u64),
}

impl Index {
    /// Reads the headers of a file of `length` bytes.
    ///
    /// # Errors
    /// If reading fails, or a number in the file breaks a bound.
    pub fn scan(file: &File, length: u64) -> Result<Self, ScanError> {
        let mut index = Self::default();
        let mut bounds = Bounds::default();
        let mut threads = BTreeMap::new();
        index.summary.bytes = length;
        let mut at = PREFIX_BYTES as u64;
        while at < length {
            if let Some(block) = block_at(file, at, length)? {
                let bounded = bounds.check(&block.header, length);
                bounded.map_err(|what| ScanError::Absurd(at, what))?;
                at += HEADER_BYTES as u64 + u64::from(block.header.stored);
                index.add(file, block, &mut threads);
            } else {
                let next = next_block(file, at + 1, length)?;
                index.summary.gaps += 1;
                index.summary.gap_bytes += next - at;
                at = next;
            }
        }
        index.finish(threads);
        let threads = index.threads.iter().map(|(thread, blocks)| {
            let blocks = blocks.iter();
            (*thread, blocks.map(|block| (block.offset, &block.header)))
        });
        check_threads(threads, length).map_err(|(at, what)| ScanError::Absurd(at, what))?;
        Ok(index)
    }

    fn add(&mut self, file: &File, block: Block, threads: &mut BTreeMap<u32, Vec<Block>>) {
        let header = &block.header;
        if header.clock > 0 && header.last > self.last.0 {
            self.last = (header.last, header.clock);
        }
        let Some(kind) = header.kind else {
            self.summary.unknown_blocks += 1;
            return;
        };
        if kind == Kind::Events {
            self.summary.blocks += 1;
            self.summary.events += u64::from(header.count);
            self.summary.event_bytes += HEADER_BYTES as u64 + u64::from(header.stored);
            threads.entry(header.thread).or_default().push(block);
            return;
        }
        let read = read_payload(file, &block).and_then(|p| self.keep(kind, &block, &p));
        if read.is_none() {
            self.summary.damaged_blocks += 1;
        }
    }

    fn keep(&mut self, kind: Kind, block: &Block, payload: &[u8]) -> Option<()> {
        let count = block.header.count;
        match kind {
            Kind::Header => {
                let header = Header::parse(payload)?;
                self.header.get_or_insert(header);
            }
            Kind::Stacks => {
                for (id, frames) in parse_stacks(payload, count)? {
                    let frames = frames.into_iter().map(CodeAddress).collect();
                    self.stacks.insert(id, frames);
                }
            }
            Kind::Modules => {
                let modules = Module::parse_all(payload, count)?;
                self.modules.push((block.header.first, modules));
            }
            Kind::End => {
                self.end = Some(End::parse(payload)?);
                self.summary.ended = true;
            }
            Kind::Events => {}
        }
        Some(())
    }

    fn finish(&mut self, threads: BTreeMap<u32, Vec<Block>>) {
        // Threads append at the same time, so the order in the file is not that of time.
        self.modules.sort_by_key(|(since, _)| *since);
        for (thread, mut blocks) in threads {
            blocks.sort_by_key(|b| b.header.sequence);
            blocks.dedup_by_key(|b| b.header.sequence);
            let last = blocks
                .last()
                .map_or(0, |b| u64::from(b.header.sequence) + 1);
            self.summary.missing_blocks += last - blocks.len() as u64;
            let mut end = 0;
            for block in &mut blocks {
                self.summary.early_blocks += u64::from(block.header.first < end);
                block.not_before = end;
                end = end.max(block.header.last);
            }
            self.threads.push((thread, blocks));
        }
        // Only the totals tell how many blocks are missing at the end of a thread.
        if let Some(end) = &self.end {
            let known = self.summary.blocks + self.summary.missing_blocks;
            let missing = &mut self.summary.missing_blocks;
            *missing = missing.saturating_add(end.blocks.saturating_sub(known));
        }
    }
}

/// The block at `at`, if its header is valid and its payload ends within the file.
fn block_at(file: &File, at: u64, length: u64) -> io::Result<Option<Block>> {
    let mut bytes = [0; HEADER_BYTES];
    if length - at < HEADER_BYTES as u64 {
        return Ok(None);
    }
    file.read_exact_at(&mut bytes, at)?;
    let Some((header, checksum)) = BlockHeader::from_bytes(&bytes) else {
        return Ok(None);
    };
    let end = at + HEADER_BYTES as u64 + u64::from(header.stored);
    Ok((end <= length).then_some(Block {
        offset: at,
        header,
        checksum,
        not_before: 0,
    }))
}

/// The position of the next valid block from `from` on; the file's end if there is none.
fn next_block(file: &File, from: u64, length: u64) -> io::Result<u64> {
    const CHUNK: usize = 1 << 20;
    // A gap is mostly short, and a file may have many.
    let mut size = 1 << 12;
    let mut chunk = Vec::new();
    let mut at = from;
    while at < length {
        let have = size.min(usize::try_from(length - at).unwrap_or(size));
        chunk.resize(have, 0);
        let bytes = &mut chunk[..];
        file.read_exact_at(bytes, at)?;
        for place in places_of_magic(bytes) {
            if block_at(file, at + place as u64, length)?.is_some() {
                return Ok(at + place as u64);
            }
        }
        // The magic may lie across the border of two chunks.
        let kept = if have == size {
            BLOCK_MAGIC.len() - 1
        } else {
            0
        };
        at += (have - kept) as u64;
        size = (size * 2).min(CHUNK);
    }
    Ok(length)
}

fn places_of_magic(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let first = BLOCK_MAGIC[0];
    let places = bytes.iter().enumerate().filter(move |(_, b)| **b == first);
    places
        .map(|(place, _)| place)
        .filter(|&place| bytes[place..].starts_with(&BLOCK_MAGIC))
}

/// The unpacked payload of `block`; `None` if it is damaged.
pub fn read_payload(file: &File, block: &Block) -> Option<Vec<u8>> {
    let mut stored = vec![0; block.header.stored as usize];
    file.read_exact_at(&mut stored, block.offset + HEADER_BYTES as u64)
        .ok()?;
    if checksum(&stored) != block.checksum {
        return None;
    }
    let bytes = block.header.unpacked as usize;
    if block.header.compressed {
        zstandard::decompress(&stored, bytes)
    } else {
        (stored.len() == bytes).then_some(stored)
    }
}
