//! How much memory a recording may take. Sizes in a file prove nothing: some kilobytes of compressed
//! records unpack to gigabytes, and a record of 24 bytes makes a process. So what the records take is
//! added up before it is taken, and a recording that takes more than [`memory_for`] its size is
//! refused. Called by `checks` and by `import`; it reads nothing.

use crate::Event;
use std::collections::HashMap;
use sunder_access::ProcessId;

/// The most bytes that a recording of `length` bytes takes: its records until they are sorted by
/// time, and its processes with their mappings, also in the session that judges them. What is kept of
/// samples is not counted: each is longer than what is kept of it.
pub const fn memory_for(length: u64) -> u64 {
    const SMALL: u64 = 256 << 20;
    const MULTIPLE: u64 = 64;
    SMALL.saturating_add(length.saturating_mul(MULTIPLE))
}

/// Bytes for a record beside its own, while records are sorted: an entry of a list that may be twice
/// as long, and the allocation of its bytes.
const RECORD: u64 = 192;

/// Bytes for a process: mostly its judge and its names, empty.
const PROCESS: u64 = 6 << 10;

/// Bytes for a mapping, which the decoder and the session keep, beside its path.
const MAPPING: u64 = 512;

/// What takes memory, in the words of an error.
const COMPRESSED: &str = "its compressed records";
const MAPPINGS: &str = "the mappings of its processes";

/// What a recording has taken so far.
#[derive(Debug)]
pub(super) struct Bounds {
    length: u64,
    taken: u64,
    /// The most bytes that one compressed record unpacks to.
    piece: u64,
    processes: HashMap<ProcessId, Image>,
}

/// What is known of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Image {
    /// The bytes of its mappings.
    mappings: u64,
    /// It has samples, so it is kept after another program was executed in it.
    sampled: bool,
}

impl Bounds {
    /// Nothing yet, of a file of `length` bytes.
    pub(super) fn new(length: u64) -> Self {
        Self {
            length,
            taken: 0,
            piece: 0,
            processes: HashMap::new(),
        }
    }

    fn take(&mut self, bytes: u64, what: &str) -> Result<(), String> {
        self.taken = self.taken.saturating_add(bytes);
        if self.taken <= memory_for(self.length) {
            return Ok(());
        }
        Err(format!(
            "{what} take more than {} MiB of memory, and the file has {} bytes",
            memory_for(self.length) >> 20,
            self.length
        ))
    }

    /// Counts unpacked records: how many, and of how many bytes. The error says what is wrong.
    pub(super) fn unpacked(&mut self, records: u64, bytes: u64) -> Result<(), String> {
        let all = records.saturating_mul(RECORD).saturating_add(bytes);
        self.take(all, COMPRESSED)
    }

    /// Counts the list for the bytes of one compressed record, which are unpacked in one piece. It is
    /// used again for the next, and may be twice as long. The error says what is wrong.
    pub(super) fn piece(&mut self, bytes: u64) -> Result<(), String> {
        let more = bytes.saturating_sub(self.piece);
        self.piece += more;
        self.take(2 * more, COMPRESSED)
    }

    /// Counts what is kept because of an event. The error says what is wrong.
    pub(super) fn event(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::Map {
                process, mapping, ..
            } => {
                let bytes = MAPPING.saturating_add(2 * mapping.path.len() as u64);
                self.image(*process)?.mappings += bytes;
                self.take(bytes, MAPPINGS)
            }
            Event::ThreadStart {
                process, parent, ..
            } if process != parent => {
                let Some(from) = self.processes.get(parent).copied() else {
                    return self.image(*process).map(drop);
                };
                self.begin(*process)?;
                self.image(*process)?.mappings = from.mappings;
                self.take(from.mappings, MAPPINGS)
            }
            Event::ThreadName {
                process,
                exec: true,
                ..
            } => self.begin(*process),
            Event::ThreadStart { process, .. } | Event::ThreadName { process, .. } => {
                self.image(*process).map(drop)
            }
            Event::Access { process, .. } => self.sampled(*process),
            Event::Sample(sample) => self.sampled(sample.process),
            _ => Ok(()),
        }
    }

    fn sampled(&mut self, process: ProcessId) -> Result<(), String> {
        self.image(process)?.sampled = true;
        Ok(())
    }

    fn image(&mut self, process: ProcessId) -> Result<&mut Image, String> {
        if !self.processes.contains_key(&process) {
            self.take(PROCESS, "its processes")?;
        }
        Ok(self.processes.entry(process).or_default())
    }

    /// Begins a new program or process with this number.
    fn begin(&mut self, process: ProcessId) -> Result<(), String> {
        match self.processes.remove(&process) {
            Some(old) if !old.sampled => {
                self.taken = self.taken.saturating_sub(old.mappings + PROCESS);
            }
            _ => {}
        }
        self.image(process).map(drop)
    }
}
