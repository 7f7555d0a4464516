//! Reads a recording, one step after the other. What is read was written by somebody else: lengths
//! are bounded before memory is taken, and each step is checked before it is returned.

use crate::check::check;
use crate::error::Error;
use crate::step::Step;
use crate::write::checksum;
use crate::{HEAD, MAGIC, MOST_IN_BLOCK, VERSION, unpacked_for};
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};

/// Reads a recording.
#[derive(Debug)]
pub struct Reader<R> {
    file: R,
    block: Vec<u8>,
    /// Where in the block the next step begins.
    at: usize,
    unpacked: u64,
    most_unpacked: u64,
    begun: bool,
    ended: bool,
}

/// Whether `file` begins as a recording does. The place from which it is read next is its beginning
/// afterwards.
///
/// # Errors
/// If it can't be read.
pub fn is_recording(file: &mut File) -> io::Result<bool> {
    let mut start = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(start == MAGIC)
}

impl Reader<BufReader<File>> {
    /// Reads `file` from its beginning on.
    ///
    /// # Errors
    /// If it is no recording of this version.
    pub fn open(mut file: File) -> Result<Self, Error> {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(0))?;
        Self::new(BufReader::new(file), length)
    }
}

impl<R: Read> Reader<R> {
    /// Reads a recording of `length` bytes.
    ///
    /// # Errors
    /// If it is no recording of this version.
    pub fn new(mut file: R, length: u64) -> Result<Self, Error> {
        let mut start = [0; MAGIC.len()];
        let read = file.read_exact(&mut start);
        if read.is_err() || start != MAGIC {
            return Err(Error::NotARecording);
        }
        let mut version = [0; 4];
        file.read_exact(&mut version).map_err(cut_short)?;
        let found = u32::from_le_bytes(version);
        if found != VERSION {
            return Err(Error::Version { found });
        }
        Ok(Self {
            file,
            block: Vec::new(),
            at: 0,
            unpacked: 0,
            most_unpacked: unpacked_for(length),
            begun: false,
            ended: false,
        })
    }

    /// The next step; `None` after [`Step::End`].
    ///
    /// # Errors
    /// If the file is damaged or cut short.
    pub fn next_step(&mut self) -> Result<Option<Step>, Error> {
        if self.at == self.block.len() && !self.next_block()? {
            return match self.ended {
                true => Ok(None),
                false => Err(Error::CutShort),
            };
        }
        if self.ended {
            return Err(Error::Damaged("something follows its end".into()));
        }
        let rest = &self.block[self.at..];
        let (step, left) = postcard::take_from_bytes::<Step>(rest)
            .map_err(|error| Error::Damaged(format!("a step can't be read: {error}")))?;
        self.at = self.block.len() - left.len();
        let is_first = !std::mem::replace(&mut self.begun, true);
        if is_first != matches!(step, Step::Begin(_)) {
            return Err(Error::Damaged("its steps are in a wrong order".into()));
        }
        check(&step).map_err(|what| Error::Damaged(what.into()))?;
        self.ended = matches!(step, Step::End(_));
        Ok(Some(step))
    }

    /// Unpacks the next block. Returns whether there was one.
    fn next_block(&mut self) -> Result<bool, Error> {
        let mut head = Vec::with_capacity(HEAD);
        self.file
            .by_ref()
            .take(HEAD as u64)
            .read_to_end(&mut head)?;
        if head.is_empty() {
            return Ok(false);
        }
        let Ok(head) = <[u8; HEAD]>::try_from(head) else {
            return Err(Error::CutShort);
        };
        let number = |at: usize| head[at..at + 4].try_into().map_or(0, u32::from_le_bytes) as usize;
        let (length, packed_length) = (number(0), number(4));
        let sum = head[8..].try_into().map_or(0, u64::from_le_bytes);
        let damaged = |what: &str| Err(Error::Damaged(what.into()));
        if length == 0 || length > MOST_IN_BLOCK || packed_length > MOST_IN_BLOCK {
            return damaged("a block has an impossible length");
        }
        self.unpacked = self.unpacked.saturating_add(length as u64);
        if self.unpacked > self.most_unpacked {
            return damaged("it unpacks to far more than recordings of its size do");
        }
        let mut packed = Vec::new();
        let of_block = &mut self.file.by_ref().take(packed_length as u64);
        of_block.read_to_end(&mut packed)?;
        if packed.len() < packed_length {
            return Err(Error::CutShort);
        }
        if checksum(&packed) != sum {
            return damaged("the checksum of a block is wrong");
        }
        match zstd::bulk::decompress(&packed, length) {
            Ok(block) if block.len() == length => self.block = block,
            _ => return damaged("a block can't be unpacked"),
        }
        self.at = 0;
        Ok(true)
    }
}

fn cut_short(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => Error::CutShort,
        _ => Error::Io(error),
    }
}
