//! The events of all threads as if each had a processor of its own and all ran
//! at one speed: an access takes one unit of every thread's time, and only
//! synchronisation makes a thread wait. So what a replay finds does not depend
//! on how busy the recording machine was. Built on the recorded order; reads
//! each thread through an [`Events`] of its own.
//!
//! What synchronisation orders stays in order: an event that acquires waits until
//! every event that releases and was recorded before it has been given. That is
//! more than is needed where two locks have nothing to do with each other, and it
//! does not ask which release the program waited for, which a trace does not
//! always tell. A thread's start waits for its creator alone, and only a join waits
//! for a thread's end. Atomic operations are accesses and order nothing here.

use super::{Event, Events, Filter, Kinds, Trace, What};
use crate::slot::Sync;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use sunder_access::Time;

/// See the module's head and [`Trace::events_in_parallel`].
#[derive(Debug)]
pub struct Parallel<'t> {
    filter: Filter,
    /// When the first thread began.
    start: Time,
    streams: Vec<Stream<'t>>,
    /// Threads that can go on, by their clocks.
    ready: BinaryHeap<Reverse<(u64, usize)>>,
    /// Threads that wait for others to release, by when they did.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// How far the clocks had come at any release, and at any end of a thread.
    released: u64,
    ended: u64,
}

#[derive(Debug)]
struct Stream<'t> {
    events: Events<'t>,
    next: Option<Event>,
    /// Units of time so far.
    clock: u64,
    /// The recorded ticks of what it still has to release, but for its end.
    releases: VecDeque<u64>,
    /// The recorded ticks of its end, if that is still to come.
    end: Option<u64>,
    /// Its number in the trace.
    index: u32,
}

/// What an event does to the order of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Waits for the releases of the thread with this number.
    Starts(u32),
    /// Waits for all releases.
    Acquires,
    /// Waits for all releases and ends.
    Joins,
    Releases,
    Ends,
    Neither,
}

impl Role {
    const fn of(what: &What) -> Self {
        match what {
            What::ThreadStart { parent, .. } => Self::Starts(*parent),
            What::ThreadEnd => Self::Ends,
            What::Sync { kind, .. } => match kind {
                Sync::MutexLock
                | Sync::ReadLock
                | Sync::WriteLock
                | Sync::ConditionWoken
                | Sync::BarrierLeft
                | Sync::SemaphoreWait
                | Sync::OncePassed
                | Sync::SpinLock
                | Sync::HappensAfter => Self::Acquires,
                Sync::ThreadJoin => Self::Joins,
                Sync::Fence => Self::Neither,
                _ => Self::Releases,
            },
            _ => Self::Neither,
        }
    }
}

impl<'t> Parallel<'t> {
    pub(super) fn new(trace: &'t Trace, filter: Filter) -> Self {
        let order = Kinds::SYNC.with(Kinds::THREADS);
        let mut streams = Vec::new();
        let mut start = None::<Time>;
        for thread in trace.threads() {
            if !filter.wants_thread(thread.index) {
                continue;
            }
            let of_it = |kinds| {
                trace.events(Filter {
                    threads: Some(vec![thread.index]),
                    range: filter.range,
                    kinds,
                })
            };
            let mut releases = VecDeque::new();
            let mut end = None;
            for event in of_it(order) {
                match Role::of(&event.what) {
                    Role::Releases => releases.push_back(event.ticks),
                    Role::Ends => end = Some(event.ticks),
                    _ => {}
                }
            }
            let mut events = of_it(filter.kinds.with(order));
            let next = events.next();
            if let Some(first) = &next {
                start = Some(start.map_or(first.time, |s| s.min(first.time)));
            }
            streams.push(Stream {
                events,
                next,
                clock: 0,
                releases,
                end,
                index: thread.index,
            });
        }
        let ready = (0..streams.len()).map(|i| Reverse((0, i))).collect();
        Self {
            filter,
            start: start.unwrap_or_default(),
            streams,
            ready,
            waiting: BinaryHeap::new(),
            released: 0,
            ended: 0,
        }
    }

    /// Blocks of the trace that could not be read so far.
    pub fn damaged_blocks(&self) -> u64 {
        self.streams.iter().map(|s| s.events.damaged_blocks()).sum()
    }

    /// When what `who` waits for was recorded and not given yet, at the earliest;
    /// `None` if its next event waits for nothing.
    fn awaited(&self, who: usize) -> Option<u64> {
        let role = Role::of(&self.streams[who].next?.what);
        let of = |stream: &Stream<'_>| {
            let release = stream.releases.front().copied();
            match role {
                Role::Starts(parent) => release.filter(|_| stream.index == parent),
                Role::Acquires => release,
                Role::Joins => release.or(stream.end),
                Role::Releases | Role::Ends | Role::Neither => None,
            }
        };
        let others = self.streams.iter().enumerate().filter(|(i, _)| *i != who);
        others.filter_map(|(_, stream)| of(stream)).min()
    }

    /// Whether the next event of `who` must wait.
    fn must_wait(&self, who: usize) -> bool {
        let at = self.streams[who].next.map_or(0, |event| event.ticks);
        self.awaited(who).is_some_and(|awaited| awaited < at)
    }

    /// Time has passed for `who` while it waited.
    fn catch_up(&mut self, who: usize) {
        let Some(event) = &self.streams[who].next else {
            return;
        };
        let since = match Role::of(&event.what) {
            Role::Starts(parent) => {
                let creator = self.streams.iter().find(|s| s.index == parent);
                creator.map_or(0, |s| s.clock)
            }
            Role::Acquires => self.released,
            Role::Joins => self.released.max(self.ended),
            Role::Releases | Role::Ends | Role::Neither => 0,
        };
        self.streams[who].clock = self.streams[who].clock.max(since);
    }

    /// Lets those go on who waited for what has been released by now.
    fn wake(&mut self) {
        let mut still = BinaryHeap::new();
        while let Some(Reverse((ticks, who))) = self.waiting.pop() {
            if self.must_wait(who) {
                still.push(Reverse((ticks, who)));
            } else {
                self.catch_up(who);
                self.ready.push(Reverse((self.streams[who].clock, who)));
            }
        }
        self.waiting = still;
    }

    /// The thread whose turn it is and its next event.
    fn turn(&mut self) -> Option<(usize, Event)> {
        loop {
            let Some(Reverse((_, who))) = self.ready.pop() else {
                // Releases are missing, with the blocks that held them: the one who
                // waited first goes on.
                let Reverse((_, who)) = self.waiting.pop()?;
                return Some((who, self.streams[who].next?));
            };
            let Some(event) = self.streams[who].next else {
                continue;
            };
            if self.must_wait(who) {
                self.waiting.push(Reverse((event.ticks, who)));
                continue;
            }
            return Some((who, event));
        }
    }
}

impl Iterator for Parallel<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            let (who, mut event) = self.turn()?;
            let role = Role::of(&event.what);
            self.catch_up(who);
            let stream = &mut self.streams[who];
            let time = Time(self.start.0.saturating_add(stream.clock));
            event.time = time;
            if let What::Access { access, .. } = &mut event.what {
                access.time = time;
                stream.clock += 1;
            }
            stream.next = stream.events.next();
            if stream.next.is_none() {
                // What it lost with damaged blocks nobody waits for.
                stream.releases.clear();
                stream.end = None;
            }
            match role {
                Role::Releases => {
                    stream.releases.pop_front();
                    self.released = self.released.max(stream.clock);
                }
                Role::Ends => self.ended = self.ended.max(stream.clock),
                _ => {}
            }
            if stream.next.is_some() {
                let clock = stream.clock;
                self.ready.push(Reverse((clock, who)));
            }
            if matches!(role, Role::Releases | Role::Ends) || self.streams[who].next.is_none() {
                self.wake();
            }
            if self.filter.wants(&event.what) {
                return Some(event);
            }
        }
    }
}
