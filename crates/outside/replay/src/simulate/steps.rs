//! The events of a trace that a replay needs, in chunks of equal size. One thread reads them
//! while others replay them, and any number of replays share one reading. Accesses are columns,
//! in the order of the replay.

use super::machine::Machine;
use super::order::{Watch, pieces};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use sunder_access::{Address, Kind, ThreadId};
use sunder_trace::read::{Event, Kinds, LanePart, Piece, Touch, Trace, Turns, What};

/// Accesses of a chunk: about 1 MiB, which stays in a processor's second cache.
const CHUNK: usize = 1 << 16;

/// Chunks that are read ahead of the replay.
const AHEAD: usize = 2;

/// Rounds that are laid out at once, so that the written data stays in the first cache.
const ROUNDS: usize = 64;

/// The node, the width and the kind of an access. The node is above the lowest eight bits; of
/// these the uppermost is set for a write, and the others are the width in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedAccess(u32);

const WRITES: u32 = 1 << 7;

impl PackedAccess {
    #[inline]
    const fn new(node: u32, key: u64) -> Self {
        let Touch { width, kind } = Touch::of(key);
        let writes = if kind.writes() { WRITES } else { 0 };
        Self(node << 8 | writes | width as u32)
    }

    /// The accessing node.
    #[inline]
    pub const fn node(self) -> u32 {
        self.0 >> 8
    }

    /// The width in bytes.
    #[inline]
    pub const fn width(self) -> u32 {
        self.0 & (WRITES - 1)
    }

    /// Read or write; an update is a write.
    #[inline]
    pub const fn kind(self) -> Kind {
        if self.0 & WRITES == 0 {
            Kind::Read
        } else {
            Kind::Write
        }
    }
}

/// A kind of change of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapChange {
    /// A block was allocated.
    Allocate(BlockRequest),
    /// A block was freed.
    Free,
}

/// The request for a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRequest {
    /// The size in bytes.
    pub size: u64,
    /// The number of the call stack.
    pub stack: u32,
    /// The allocating thread.
    pub thread: ThreadId,
    /// The requested alignment; `None` if the trace does not record it.
    pub align: Option<u64>,
}

/// A change of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The number of accesses in the chunk that come before it.
    pub before: usize,
    /// The time at which it was recorded.
    pub ticks: u64,
    /// The address of the block.
    pub address: Address,
    /// What is changed.
    pub kind: HeapChange,
}

/// A chunk of consecutive events.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// The address of each access.
    pub addresses: Vec<u64>,
    /// The node, width and kind of each access.
    pub packed: Vec<PackedAccess>,
    /// The recorded time of each access, whatever the order of the replay; empty if not needed.
    pub ticks: Vec<u64>,
    /// The changes of the heap between the accesses, if wanted.
    pub changes: Vec<Change>,
}

impl Steps {
    fn clear(&mut self) {
        self.addresses.clear();
        self.packed.clear();
        self.ticks.clear();
        self.changes.clear();
    }

    fn add_turns(&mut self, turns: &Turns<'_>, machine: &Machine, with_ticks: bool) {
        let (lanes, rounds) = (turns.lanes(), turns.rounds());
        let begin = self.addresses.len();
        let end = begin + lanes * rounds;
        if lanes == 1 {
            let LanePart {
                thread,
                addresses,
                keys,
                ticks,
                ..
            } = turns.lane(0);
            let node = machine.node(thread);
            self.addresses.extend_from_slice(addresses);
            self.packed
                .extend(keys.iter().map(|&k| PackedAccess::new(node, k)));
            if with_ticks {
                self.ticks.extend_from_slice(ticks);
            }
            return;
        }
        self.addresses.resize(end, 0);
        self.packed.resize(end, PackedAccess(0));
        if with_ticks {
            self.ticks.resize(end, 0);
        }
        let parts: Vec<(u32, LanePart<'_>)> = (0..lanes)
            .map(|place| turns.lane(place))
            .map(|lane| (machine.node(lane.thread), lane))
            .collect();
        for first in (0..rounds).step_by(ROUNDS) {
            let last = (first + ROUNDS).min(rounds);
            let here = begin + first * lanes..begin + last * lanes;
            for (place, (node, lane)) in parts.iter().enumerate() {
                let turn = self.addresses[here.clone()].chunks_exact_mut(lanes);
                for (turn, &address) in turn.zip(&lane.addresses[first..last]) {
                    turn[place] = address;
                }
                let turn = self.packed[here.clone()].chunks_exact_mut(lanes);
                for (turn, &key) in turn.zip(&lane.keys[first..last]) {
                    turn[place] = PackedAccess::new(*node, key);
                }
                if with_ticks {
                    let turn = self.ticks[here.clone()].chunks_exact_mut(lanes);
                    for (turn, &ticks) in turn.zip(&lane.ticks[first..last]) {
                        turn[place] = ticks;
                    }
                }
            }
        }
    }

    /// Adds these accesses of `turns`, given by round and lane, with their ticks.
    fn add_some(&mut self, turns: &Turns<'_>, hits: &[(usize, usize)], machine: &Machine) {
        for &(round, place) in hits {
            let lane = turns.lane(place);
            self.addresses.push(lane.addresses[round]);
            let node = machine.node(lane.thread);
            self.packed.push(PackedAccess::new(node, lane.keys[round]));
            self.ticks.push(lane.ticks[round]);
        }
    }

    fn add_event(&mut self, event: &Event, id: impl Fn(u32) -> ThreadId) {
        let (address, kind) = match event.what {
            What::Allocate {
                address,
                size,
                stack,
                align,
            } => {
                let thread = id(event.thread);
                let request = BlockRequest {
                    size,
                    stack,
                    thread,
                    align,
                };
                (address, HeapChange::Allocate(request))
            }
            What::Free { address } => (address, HeapChange::Free),
            _ => return,
        };
        self.changes.push(Change {
            before: self.addresses.len(),
            ticks: event.ticks,
            address,
            kind,
        });
    }
}

/// Reads `trace` in the order of `machine` and calls `take` with chunks of its events: the
/// accesses that `watch` may contain (all if there is none), and the allocations if `heap`.
/// Returns how many blocks of the trace could not be read. A thread of its own reads ahead.
///
/// # Errors
/// The first error of `take`, which ends the reading.
pub fn each_of<E>(
    trace: &Trace,
    machine: &Machine,
    heap: bool,
    watch: Option<&Watch>,
    mut take: impl FnMut(&Steps) -> Result<(), E>,
) -> Result<u64, E> {
    let (full, coming) = sync_channel::<Steps>(AHEAD);
    let (empty, used) = sync_channel::<Steps>(AHEAD + 1);
    thread::scope(|scope| {
        let reader = scope.spawn(move || read(trace, machine, heap, watch, &full, &used));
        let mut result = Ok(());
        for mut steps in coming.iter() {
            result = take(&steps);
            if result.is_err() {
                break;
            }
            steps.clear();
            // The reader may have ended already.
            let _ = empty.send(steps);
        }
        drop(coming);
        let damaged = reader.join().unwrap_or_default();
        result.map(|()| damaged)
    })
}

fn read(
    trace: &Trace,
    machine: &Machine,
    heap: bool,
    watch: Option<&Watch>,
    full: &SyncSender<Steps>,
    used: &Receiver<Steps>,
) -> u64 {
    let kinds = if heap { Kinds::HEAP } else { Kinds::NONE };
    let threads = trace.threads();
    let id = |index: u32| {
        let at = threads.binary_search_by_key(&index, |t| t.index);
        at.map(|i| threads[i].id).unwrap_or_default()
    };
    let mut pieces = pieces(trace, machine.order, kinds);
    let mut steps = Steps::default();
    let reading = machine.progress.reading(trace);
    let mut hits = Vec::new();
    while let Some(piece) = pieces.next() {
        match piece {
            Piece::Accesses(turns) => {
                reading.add(turns.lanes() * turns.rounds());
                match watch {
                    Some(watch) => {
                        watch.find(&turns, &mut hits);
                        steps.add_some(&turns, &hits, machine);
                    }
                    None => steps.add_turns(&turns, machine, heap),
                }
            }
            Piece::Event(event) => steps.add_event(&event, id),
        }
        if steps.addresses.len() + steps.changes.len() >= CHUNK {
            let next = used.try_recv().unwrap_or_else(|_| Steps::default());
            if full.send(std::mem::replace(&mut steps, next)).is_err() {
                return 0;
            }
        }
    }
    // The receiver may have ended already.
    let _ = full.send(steps);
    pieces.damaged_blocks()
}
