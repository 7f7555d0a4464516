//! An opened trace: what is known of it without reading its events. Used by all readers of events;
//! it must not know in which orders they are read.

use super::bounds::KERNEL_THREADS;
use super::guard::{Guard, Guarded};
use super::index::{Block, Index, ScanError, Summary, read_payload};
use crate::codec::decode::Decoder;
use crate::error::TraceError;
use crate::meta::{Clock, End, Header, Module, PREFIX_BYTES, Progress, State};
use crate::{MAGIC, VERSION};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use sunder_access::{CodeAddress, ThreadId, Time};

/// An opened trace.
#[derive(Debug)]
pub struct Trace {
    file: File,
    path: PathBuf,
    header: Header,
    progress: Option<Progress>,
    pub(super) threads: Vec<Thread>,
    stacks: HashMap<u32, Vec<CodeAddress>>,
    modules: Vec<(Time, Vec<Module>)>,
    end: Option<End>,
    summary: Summary,
    pub(super) scale: Scale,
    guarded: Guarded,
}

/// A thread of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its index, from 1 in the order of creation.
    pub index: u32,
    /// The kernel's number; an earlier thread of the trace may have had it, too.
    pub tid: u32,
    /// The number in the thread's accesses, unique in the trace: the kernel's number, plus n times
    /// 2^22 for the nth later thread with the same one. The kernel gives no number that large. From
    /// the 1024th later thread on, it is the largest number that no other thread has.
    pub id: ThreadId,
    /// How many events it has, without stamps.
    pub events: u64,
    pub(super) blocks: Vec<Block>,
}

/// Converts ticks to nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    ticks: u64,
    nanoseconds: u64,
    each: f64,
}

impl Scale {
    fn new(header: &Header, last: (u64, u64)) -> Self {
        let ticks = last.0.saturating_sub(header.ticks);
        let nanoseconds = last.1.saturating_sub(header.monotonic);
        let known = header.clock == Clock::Tsc && ticks > 0 && nanoseconds > 0;
        Self {
            ticks: header.ticks,
            nanoseconds: header.monotonic,
            each: if known {
                nanoseconds as f64 / ticks as f64
            } else {
                1.0
            },
        }
    }

    /// The time of these ticks.
    #[inline]
    pub(super) fn time(&self, ticks: u64) -> Time {
        // Times never go back. On a clock that is not monotonic, a thread may seem to begin before
        // the header's ticks.
        let since = ticks.saturating_sub(self.ticks) as f64 * self.each;
        Time(self.nanoseconds.saturating_add(since as u64))
    }
}

impl Trace {
    /// Opens the trace at `path` and reads everything but the events.
    ///
    /// # Errors
    /// If the file is no trace, or not of a version that can be read. A damaged trace opens.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        // To open a named pipe would wait for somebody who writes to it.
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path);
        let file = file.map_err(|source| TraceError::File {
            path: path.to_owned(),
            source,
        })?;
        Self::of(file, path)
    }

    /// The same for a file that is open already. Errors call it `path`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn of(file: File, path: &Path) -> Result<Self, TraceError> {
        let here = || path.to_owned();
        let failed = |source| TraceError::File {
            path: path.to_owned(),
            source,
        };
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(TraceError::NotAFile { path: here() });
        }
        let length = metadata.len();
        if length == 0 {
            return Err(TraceError::Empty { path: here() });
        }
        let mut prefix = [0; PREFIX_BYTES];
        let have = PREFIX_BYTES.min(usize::try_from(length).unwrap_or(PREFIX_BYTES));
        file.read_exact_at(&mut prefix[..have], 0).map_err(failed)?;
        let magic = MAGIC.len().min(have);
        if prefix[..magic] != MAGIC[..magic] {
            return Err(TraceError::Foreign { path: here() });
        }
        if have < PREFIX_BYTES {
            return Err(TraceError::NoHeader { path: here() });
        }
        let version = u32::from_le_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]);
        if version > VERSION {
            return Err(TraceError::Newer {
                path: here(),
                version,
                newest: VERSION,
            });
        }
        if version == 0 {
            return Err(TraceError::Foreign { path: here() });
        }
        let progress = Progress::from_prefix(&prefix);
        let index = Index::scan(&file, length).map_err(|error| match error {
            ScanError::Read(source) => failed(source),
            ScanError::Absurd(offset, what) => TraceError::Absurd {
                path: here(),
                offset,
                what,
            },
        })?;
        let header = index
            .header
            .ok_or_else(|| TraceError::NoHeader { path: here() })?;
        let scale = Scale::new(&header, index.last);
        let mut summary = index.summary;
        // The totals were written before the program went on, so they are not those of the whole
        // run.
        summary.ended &= progress.is_none_or(|p| p.state != State::WentOn);
        let modules = index.modules.into_iter();
        Ok(Self {
            threads: name_threads(index.threads),
            modules: modules.map(|(t, list)| (scale.time(t), list)).collect(),
            stacks: index.stacks,
            end: index.end,
            summary,
            path: here(),
            file,
            header,
            progress,
            scale,
            guarded: Guarded::default(),
        })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The recorded program, time and machine.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The latest progress that the recorder wrote; it tells why a recording ended early.
    pub const fn progress(&self) -> Option<&Progress> {
        self.progress.as_ref()
    }

    /// The totals, if the recording ended as it should.
    pub const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The size and the missing parts, according to the blocks' headers. Damaged payloads are found
    /// when events are read, or by [`Trace::verify`].
    pub const fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The threads, by index.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// The loaded files: each list holds from its time on.
    pub fn modules(&self) -> &[(Time, Vec<Module>)] {
        &self.modules
    }

    /// The loaded file that held `address` at `time`. A library is in the first list that was
    /// written after it was opened, so if the list of that time has no file there, the next one
    /// counts.
    pub fn module_at(&self, time: Time, address: u64) -> Option<&Module> {
        let after = self.modules.partition_point(|(since, _)| *since <= time);
        let lists = self.modules.get(after.saturating_sub(1)..)?;
        let holds = |module: &&Module| {
            let mut segments = module.segments.iter();
            segments.any(|s| address.wrapping_sub(s.start) < s.bytes)
        };
        lists.iter().find_map(|(_, list)| list.iter().find(holds))
    }

    /// The return addresses of a call stack, innermost first. `None` if it is unknown: number 0, or
    /// in a missing block.
    pub fn stack(&self, id: u32) -> Option<&[CodeAddress]> {
        self.stacks.get(&id).map(Vec::as_slice)
    }

    /// All call stacks, in no order.
    pub fn stacks(&self) -> impl Iterator<Item = (u32, &[CodeAddress])> {
        self.stacks
            .iter()
            .map(|(&id, frames)| (id, frames.as_slice()))
    }

    /// Checks the payload of every block of events; how many are damaged.
    pub fn verify(&self) -> u64 {
        let blocks = self.threads.iter().flat_map(|t| &t.blocks);
        blocks.filter(|b| self.payload(b).is_none()).count() as u64
    }

    /// A block's unpacked payload; `None` if it is damaged.
    fn payload(&self, block: &Block) -> Option<Vec<u8>> {
        read_payload(&self.file, block)
    }

    /// The slots of a block; `None` if it is damaged.
    pub(super) fn decoder(&self, block: &Block) -> Option<Decoder> {
        let payload = self.payload(block)?;
        Decoder::new(&block.header, block.not_before, payload)
    }

    /// Asks `guard` again and again while events are read, from now on.
    pub fn set_guard(&mut self, guard: Guard) {
        self.guarded = Guarded::by(guard);
    }

    /// Why reading events was ended by the guard; `None` if it was not. Whoever reads events of a
    /// guarded trace must look here afterwards: they may not be all.
    pub fn stopped(&self) -> Option<&str> {
        self.guarded.stopped()
    }

    /// Whether events may be read on.
    pub(super) fn may_go_on(&self) -> bool {
        self.guarded.may_go_on()
    }
}

/// How many threads with the same number of the kernel are told apart in the upper bits of theirs.
const TOLD_APART: u32 = u32::MAX / KERNEL_THREADS + 1;

/// Gives each thread its unique number.
fn name_threads(found: Vec<(u32, Vec<Block>)>) -> Vec<Thread> {
    let mut seen: HashMap<u32, u32> = HashMap::new();
    let mut taken: HashSet<u32> = HashSet::new();
    // A thread has an index of 32 bits, so there is a number for each.
    let mut others = (0..=u32::MAX).rev();
    let mut threads: Vec<Thread> = Vec::new();
    for (index, blocks) in found {
        let tid = blocks.first().map_or(0, |b| b.header.tid);
        let before = seen.entry(tid).or_default();
        let usual = (*before < TOLD_APART).then(|| tid + *before * KERNEL_THREADS);
        let usual = usual.filter(|&id| taken.insert(id));
        let id = usual.or_else(|| others.by_ref().find(|&id| taken.insert(id)));
        threads.push(Thread {
            index,
            tid,
            id: ThreadId(id.unwrap_or(tid)),
            events: blocks.iter().map(|b| u64::from(b.header.count)).sum(),
            blocks,
        });
        *before += 1;
    }
    threads
}
