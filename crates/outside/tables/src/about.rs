//! What a replay of a bucket has to know of the whole trace: `trace.json` beside the buckets. Written
//! by the exporter; read by replays, which trust no number in it.

use crate::bucket::Cut;
use crate::error::TableError;
use crate::order::Order;
use serde::{Deserialize, Serialize};
use std::path::Path;
use sunder_access::{Address, CodeAddress, Span, ThreadId, Time};
use sunder_trace::meta::{Module, Segment};
use sunder_trace::read::{Event, Trace, What};

/// The name of the format.
pub(crate) const FORMAT: &str = "sunder-tables";

/// The version that this crate writes, and the only one that it reads.
pub(crate) const VERSION: u32 = 2;

/// The most bytes of a description that is read.
const MOST_BYTES: u64 = 256 << 20;

/// The description of an exported trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    format: String,
    version: u32,
    /// The order in which the events are numbered.
    pub order: Order,
    /// Bytes of a line, by which the trace was cut.
    pub granule: u64,
    /// How many rows each bucket has.
    pub rows: Vec<u64>,
    /// The accesses of the trace.
    pub accesses: u64,
    /// The recorded program's file.
    pub program: String,
    /// Its arguments, the name first.
    pub arguments: Vec<String>,
    /// The recorded process.
    pub process: u32,
    /// Nanoseconds since 1970 at the start of the recording.
    pub realtime: u64,
    /// `CLOCK_MONOTONIC` then, in nanoseconds: times count as this clock does.
    pub monotonic: u64,
    /// The times of the first and the last event, in the order.
    pub span: (u64, u64),
    /// Why the trace is not whole; none if it is.
    pub partial: Option<String>,
    /// The threads, by index.
    pub threads: Vec<TraceThread>,
    /// Stacks, and the frames in which threads were created, in order.
    pub stacks: Vec<StackStep>,
    /// The loaded files, in the order in which the trace lists them.
    pub modules: Vec<TraceModule>,
}

/// A thread of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceThread {
    /// Its index, from 1 in the order of creation.
    pub index: u32,
    /// Its number in results.
    pub id: u32,
}

/// An event about a thread's stack, and its place in the order of the whole trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackStep {
    /// Its place.
    pub ord: i64,
    /// The event.
    pub event: StackEvent,
}

/// An event about a thread's stack. See the events of the same names in [`What`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StackEvent {
    /// The thread started.
    Start {
        /// The thread, by its index.
        thread: u32,
        /// Its creator.
        parent: u32,
        /// The kernel's number.
        tid: u32,
    },
    /// Where the thread's stack lies.
    Stack {
        /// The thread, by its index.
        thread: u32,
        /// The lowest address.
        start: u64,
        /// Bytes.
        len: u64,
    },
    /// A frame in which the thread creates another one.
    Frame {
        /// The thread, by its index.
        thread: u32,
        /// The stack pointer at the frame's call.
        stack_pointer: u64,
        /// The return address of the call.
        returns: u64,
    },
}

/// A loaded file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceModule {
    /// The time of the list that it is in.
    pub since: u64,
    /// Its path.
    pub path: String,
    /// Its build id.
    pub build_id: Vec<u8>,
    /// What is added to the file's own addresses.
    pub base: u64,
    /// Its parts.
    pub segments: Vec<TraceSegment>,
}

/// A part of a loaded file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSegment {
    /// The first address.
    pub start: u64,
    /// Bytes in memory.
    pub bytes: u64,
    /// Offset in the file.
    pub file_offset: u64,
    /// Permissions as in ELF: 1 execute, 2 write, 4 read.
    pub flags: u32,
}

impl StackEvent {
    /// The event, if it concerns stacks.
    pub(crate) const fn of(event: &Event) -> Option<Self> {
        let thread = event.thread;
        Some(match event.what {
            What::ThreadStart { parent, tid } => Self::Start {
                thread,
                parent,
                tid,
            },
            What::Stack { span } => Self::Stack {
                thread,
                start: span.start.0,
                len: span.len,
            },
            What::Frame {
                stack_pointer,
                returns,
            } => Self::Frame {
                thread,
                stack_pointer: stack_pointer.0,
                returns: returns.0,
            },
            _ => return None,
        })
    }

    /// The event, without its time.
    pub const fn event(self) -> Event {
        let (thread, what) = match self {
            Self::Start {
                thread,
                parent,
                tid,
            } => (thread, What::ThreadStart { parent, tid }),
            Self::Stack { thread, start, len } => {
                let span = Span::new(Address(start), len);
                (thread, What::Stack { span })
            }
            Self::Frame {
                thread,
                stack_pointer,
                returns,
            } => {
                let what = What::Frame {
                    stack_pointer: Address(stack_pointer),
                    returns: CodeAddress(returns),
                };
                (thread, what)
            }
        };
        Event {
            ticks: 0,
            time: Time(0),
            thread,
            what,
        }
    }
}

impl TraceModule {
    /// The file, in the form that a trace has it.
    pub fn module(&self) -> Module {
        let segment = |s: &TraceSegment| Segment {
            start: s.start,
            bytes: s.bytes,
            file_offset: s.file_offset,
            flags: s.flags,
        };
        Module {
            base: self.base,
            path: self.path.clone(),
            build_id: self.build_id.clone(),
            segments: self.segments.iter().map(segment).collect(),
        }
    }

    fn of(since: Time, module: &Module) -> Self {
        let segment = |s: &Segment| TraceSegment {
            start: s.start,
            bytes: s.bytes,
            file_offset: s.file_offset,
            flags: s.flags,
        };
        Self {
            since: since.0,
            path: module.path.clone(),
            build_id: module.build_id.clone(),
            base: module.base,
            segments: module.segments.iter().map(segment).collect(),
        }
    }
}

impl About {
    /// What is known of `trace` before its events are read.
    pub(crate) fn of(trace: &Trace, cut: Cut, order: Order) -> Self {
        let header = trace.header();
        let thread = |thread: &sunder_trace::read::Thread| TraceThread {
            index: thread.index,
            id: thread.id.0,
        };
        // A list that says the same as the one before it adds nothing.
        let mut lists: Vec<&(Time, Vec<Module>)> = trace.modules().iter().collect();
        lists.dedup_by(|later, before| later.1 == before.1);
        let of_list = |(since, list): &(Time, Vec<Module>)| {
            let since = *since;
            let modules = list.iter().map(|module| TraceModule::of(since, module));
            modules.collect::<Vec<_>>()
        };
        Self {
            format: FORMAT.into(),
            version: VERSION,
            order,
            granule: cut.granule(),
            rows: vec![0; cut.buckets() as usize],
            accesses: 0,
            program: header.program.clone(),
            arguments: header.arguments.clone(),
            process: header.process,
            realtime: header.realtime,
            monotonic: header.monotonic,
            span: (0, 0),
            partial: None,
            threads: trace.threads().iter().map(thread).collect(),
            stacks: Vec::new(),
            modules: lists.into_iter().flat_map(of_list).collect(),
        }
    }

    /// Reads the description in the file at `path`.
    ///
    /// # Errors
    /// If it can't be read, or is none of this version.
    pub fn read(path: &Path) -> Result<Self, TableError> {
        let failed = |error| TableError::read(path, error);
        let wrong = |what: String| TableError::About {
            path: path.to_owned(),
            what,
        };
        let bytes = std::fs::metadata(path).map_err(failed)?.len();
        if bytes > MOST_BYTES {
            return Err(wrong(format!("it has {bytes} bytes")));
        }
        let text = std::fs::read(path).map_err(failed)?;
        let about: Self = serde_json::from_slice(&text).map_err(|e| wrong(e.to_string()))?;
        about.check().map_err(wrong)?;
        Ok(about)
    }

    /// Checks the numbers on which a replay relies.
    ///
    /// # Errors
    /// What is wrong, as the end of a sentence.
    pub fn check(&self) -> Result<(), String> {
        if self.format != FORMAT || self.version != VERSION {
            return Err(format!(
                "it says {} {}, and this Sunder reads {FORMAT} {VERSION}",
                self.format, self.version
            ));
        }
        let buckets = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        if Cut::new(self.granule, buckets).is_none() {
            return Err(format!(
                "{buckets} buckets of lines of {} bytes are no cut",
                self.granule
            ));
        }
        let is_rising = |pair: &[TraceThread]| pair[0].index < pair[1].index;
        if !self.threads.windows(2).all(is_rising) {
            return Err("its threads are not in order".into());
        }
        if !self.stacks.is_sorted_by_key(|step| step.ord) {
            return Err("its stacks are not in order".into());
        }
        let possible = |s: &TraceSegment| {
            const MOST: u64 = u64::MAX - (1 << 16);
            s.start.checked_add(s.bytes).is_some_and(|end| end <= MOST)
                && s.file_offset <= i64::MAX as u64
        };
        let mut segments = self.modules.iter().flat_map(|module| &module.segments);
        if !segments.all(possible) {
            return Err("a module of it lies outside of memory".into());
        }
        Ok(())
    }

    /// How the trace was cut.
    pub fn cut(&self) -> Option<Cut> {
        Cut::new(self.granule, u32::try_from(self.rows.len()).ok()?)
    }

    /// The number in results of the thread with this index.
    pub fn thread(&self, index: u32) -> ThreadId {
        let at = self.threads.binary_search_by_key(&index, |t| t.index);
        at.map_or_else(|_| ThreadId::default(), |i| ThreadId(self.threads[i].id))
    }
}
