//! The events of a trace that a replay needs, in small pieces of equal size: read
//! by one thread, replayed by others meanwhile, and by any number of replays from
//! one reading.

use super::order::Ordered;
use crate::args::OrderChoice;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use sunder_access::{Address, Kind, ThreadId};
use sunder_trace::read::{Event, Filter, Kinds, Trace, What};

/// Events of a chunk: 2 MiB, which stay in the second cache of a processor.
const CHUNK: usize = 1 << 16;

/// Chunks that wait to be replayed.
const AHEAD: usize = 2;

/// An event of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When it was recorded, which another order of the replay does not change.
    pub ticks: u64,
    /// Where.
    pub address: Address,
    /// The thread, by its index in the trace.
    pub thread: u32,
    /// What happened there.
    pub what: Did,
}

/// What happened at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// So many bytes were read.
    Read(u8),
    /// So many bytes were written, or read and written.
    Write(u8),
    /// A block was allocated: the number of [`Steps::requests`].
    Allocate(u32),
    /// A block was freed.
    Free,
}

impl Did {
    /// The width and kind of an access; none for other events.
    #[inline]
    pub const fn access(self) -> Option<(u32, Kind)> {
        match self {
            Self::Read(width) => Some((width as u32, Kind::Read)),
            Self::Write(width) => Some((width as u32, Kind::Write)),
            Self::Allocate(_) | Self::Free => None,
        }
    }
}

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Bytes.
    pub size: u64,
    /// The call stack's number.
    pub stack: u32,
    /// Who asked.
    pub thread: ThreadId,
    /// At multiples of what; none: the trace does not tell.
    pub align: Option<u64>,
}

/// Some of a trace's events, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// They.
    pub steps: Vec<Step>,
    /// What the allocations among them asked for.
    pub requests: Vec<Asked>,
}

impl Steps {
    fn add(&mut self, event: &Event, id: impl Fn(u32) -> ThreadId) {
        let (address, what) = match event.what {
            What::Access { access, .. } if access.kind.writes() => {
                (access.address, Did::Write(access.width))
            }
            What::Access { access, .. } => (access.address, Did::Read(access.width)),
            What::Allocate {
                address,
                size,
                stack,
                align,
            } => {
                self.requests.push(Asked {
                    size,
                    stack,
                    thread: id(event.thread),
                    align,
                });
                (address, Did::Allocate(self.requests.len() as u32 - 1))
            }
            What::Free { address } => (address, Did::Free),
            _ => return,
        };
        self.steps.push(Step {
            ticks: event.ticks,
            address,
            thread: event.thread,
            what,
        });
    }
}

/// Reads `trace` in `order`, with its allocations if `heap`, and gives all events
/// in turn to `take`; how many blocks of the trace could not be read. Reading goes on
/// beside.
///
/// # Errors
/// The first of `take`, which then is called no more.
pub fn each_of<E>(
    trace: &Trace,
    order: OrderChoice,
    heap: bool,
    mut take: impl FnMut(&Steps) -> Result<(), E>,
) -> Result<u64, E> {
    let kinds = if heap {
        Kinds::ACCESSES.with(Kinds::HEAP)
    } else {
        Kinds::ACCESSES
    };
    let (full, coming) = sync_channel::<Steps>(AHEAD);
    let (empty, used) = sync_channel::<Steps>(AHEAD + 1);
    thread::scope(|scope| {
        let reader = scope.spawn(move || read(trace, order, kinds, &full, &used));
        let mut result = Ok(());
        for mut steps in coming.iter() {
            result = take(&steps);
            if result.is_err() {
                break;
            }
            steps.steps.clear();
            steps.requests.clear();
            // The reader may have ended.
            let _ = empty.send(steps);
        }
        drop(coming);
        let damaged = reader.join().unwrap_or_default();
        result.map(|()| damaged)
    })
}

fn read(
    trace: &Trace,
    order: OrderChoice,
    kinds: Kinds,
    full: &SyncSender<Steps>,
    used: &Receiver<Steps>,
) -> u64 {
    let filter = Filter {
        kinds,
        ..Filter::default()
    };
    let threads = trace.threads();
    let id = |index: u32| {
        let at = threads.binary_search_by_key(&index, |t| t.index);
        at.map(|i| threads[i].id).unwrap_or_default()
    };
    let mut events = Ordered::new(trace, order, filter);
    let mut steps = Steps::default();
    steps.steps.reserve_exact(CHUNK);
    for event in &mut events {
        steps.add(&event, id);
        if steps.steps.len() == CHUNK {
            let next = used.try_recv().unwrap_or_else(|_| Steps::default());
            if full.send(std::mem::replace(&mut steps, next)).is_err() {
                return 0;
            }
        }
    }
    // Nobody may be listening any more.
    let _ = full.send(steps);
    events.damaged_blocks()
}
