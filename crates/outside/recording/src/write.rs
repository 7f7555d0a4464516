//! Writes a recording, a block of steps at a time, on the thread that observes: the program's
//! threads never wait for it. An error of the file ends the recording and not the run.

use crate::step::{End, Step};
use crate::{HEAD, MAGIC, MOST_IN_BLOCK, VERSION, unpacked_for};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use twox_hash::XxHash3_64;

/// A block is written when it has so many bytes. Larger ones hardly compress better.
const BLOCK: usize = 256 << 10;

/// The compressor's level: the fastest that looks for matches. The tool runs beside the program.
const LEVEL: i32 = 1;

/// Writes a recording. Clones write to the same one.
#[derive(Clone)]
pub struct Recorder(Arc<Mutex<State>>);

struct State {
    file: File,
    block: Vec<u8>,
    written: u64,
    unpacked: u64,
    samples: u64,
    ended: bool,
    /// Why nothing is written any more, if so.
    failed: Option<String>,
}

/// What came of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes of the file.
    pub bytes: u64,
    /// Samples in it.
    pub samples: u64,
    /// Why it is not complete, if so.
    pub failed: Option<String>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Recorder").field(&self.outcome()).finish()
    }
}

impl Recorder {
    /// Begins a recording in `file`, which is empty.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn begin(mut file: File) -> io::Result<Self> {
        file.write_all(&MAGIC)?;
        file.write_all(&VERSION.to_le_bytes())?;
        Ok(Self(Arc::new(Mutex::new(State {
            file,
            block: Vec::with_capacity(BLOCK),
            written: (MAGIC.len() + size_of_val(&VERSION)) as u64,
            unpacked: 0,
            samples: 0,
            ended: false,
            failed: None,
        }))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a step.
    pub fn add(&self, step: &Step) {
        let mut state = self.state();
        if state.failed.is_some() || state.ended {
            return;
        }
        state.samples += u64::from(matches!(step, Step::Sample(_)));
        let result = state.add(step);
        if let Err(error) = result {
            state.failed = Some(error.to_string());
        }
    }

    /// Adds the last step, and writes everything.
    pub fn end(&self, end: End) {
        self.add(&Step::End(end));
        let mut state = self.state();
        if state.failed.is_none() && !state.ended {
            state.ended = true;
            if let Err(error) = state.flush() {
                state.failed = Some(error.to_string());
            }
        }
        if state.failed.is_none() && state.unpacked > unpacked_for(state.written) {
            state.failed = Some("its records of the heap are too large".into());
        }
    }

    /// What came of it so far.
    pub fn outcome(&self) -> Outcome {
        let state = self.state();
        let unended = || (!state.ended).then(|| "the run has no end in it".to_owned());
        Outcome {
            bytes: state.written,
            samples: state.samples,
            failed: state.failed.clone().or_else(unended),
        }
    }
}

impl State {
    fn add(&mut self, step: &Step) -> io::Result<()> {
        let before = self.block.len();
        let block = std::mem::take(&mut self.block);
        self.block = postcard::to_extend(step, block).map_err(io::Error::other)?;
        if self.block.len() - before > MOST_IN_BLOCK / 2 {
            return Err(io::Error::other("one of its steps is too large"));
        }
        if self.block.len() >= BLOCK {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let packed = zstd::bulk::compress(&self.block, LEVEL)?;
        let head = head(self.block.len(), &packed);
        self.file.write_all(&head)?;
        self.file.write_all(&packed)?;
        self.written += (head.len() + packed.len()) as u64;
        self.unpacked += self.block.len() as u64;
        self.block.clear();
        Ok(())
    }
}

/// The head of a block that had `length` bytes before it was packed.
pub(crate) fn head(length: usize, packed: &[u8]) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&(length as u32).to_le_bytes());
    head[4..8].copy_from_slice(&(packed.len() as u32).to_le_bytes());
    head[8..].copy_from_slice(&checksum(packed).to_le_bytes());
    head
}

/// The checksum of a block's compressed bytes.
pub(crate) fn checksum(packed: &[u8]) -> u64 {
    XxHash3_64::oneshot(packed)
}
