//! The events of all threads as if each had a processor of its own and all ran
//! at one speed: an access takes one unit of every thread's time, and only
//! synchronisation makes a thread wait. So what a replay finds does not depend
//! on how busy the recording machine was. Built on the recorded order; reads
//! each thread through an [`Events`] of its own.
//!
//! What synchronisation orders stays in order: an event that acquires an object
//! waits until every release of that object that was recorded before it has been
//! given. A trace does not tell which mutex belongs to a condition variable, so what
//! wakes from one waits for all releases, and who acquires anything waits for those
//! that went to sleep on one. Who leaves a barrier waits for that round of it, however
//! late it went on (`barriers`). A thread's start waits for its creation, and a join for
//! threads' ends. Atomic operations are accesses and order nothing here.

use super::barriers::{Passage, rounds};
use super::{Event, Events, Filter, Kinds, Trace, What};
use crate::slot::Sync;
use std::collections::{HashMap, VecDeque};
use sunder_access::Time;

/// See the module's head and [`Trace::events_in_parallel`].
#[derive(Debug)]
pub struct Parallel<'t> {
    filter: Filter,
    /// When the first thread began.
    start: Time,
    streams: Vec<Stream<'t>>,
    /// Threads that can go on, in the order of their turns: their clocks ascend, and
    /// differ by one unit at most.
    ready: VecDeque<usize>,
    /// Threads that wait for others to release.
    waiting: Vec<usize>,
    /// Who goes on though what it waits for never came.
    unblocked: Option<usize>,
    /// How far the clocks had come at any release of an object, at any release, at
    /// one of what is not known, and at any end of a thread.
    released: HashMap<u64, u64>,
    released_any: u64,
    released_unknown: u64,
    ended: u64,
}

#[derive(Debug)]
struct Stream<'t> {
    events: Events<'t>,
    next: Option<Event>,
    /// Units of time so far.
    clock: u64,
    /// What it still has to release, but for its end.
    releases: Releases,
    /// The recorded ticks of its end, if that is still to come.
    end: Option<u64>,
    /// When the rounds of barriers ended that it still has to leave.
    rounds: VecDeque<u64>,
    /// Its number in the trace.
    index: u32,
}

/// What is released or acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// The object with this address.
    Object(u64),
    /// Not known: it may be any.
    Unknown,
    /// A thread, into life.
    Creation,
}

/// What an event does to the order of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Waits for its creation by the thread with this number.
    Starts(u32),
    /// Waits for releases of the same.
    Acquires(Scope),
    /// Waits for threads' ends.
    Joins,
    Releases(Scope),
    Ends,
    Neither,
}

impl Role {
    const fn of(what: &What) -> Self {
        match what {
            What::ThreadStart { parent, .. } => Self::Starts(*parent),
            What::ThreadEnd => Self::Ends,
            What::Sync { kind, object } => match kind {
                Sync::MutexLock
                | Sync::ReadLock
                | Sync::WriteLock
                | Sync::BarrierLeft
                | Sync::SemaphoreWait
                | Sync::OncePassed
                | Sync::SpinLock
                | Sync::HappensAfter => Self::Acquires(Scope::Object(object.0)),
                Sync::ConditionWoken => Self::Acquires(Scope::Unknown),
                // Releases its mutex, or tells of no object.
                Sync::ConditionWait | Sync::OnceDone => Self::Releases(Scope::Unknown),
                Sync::ThreadCreate => Self::Releases(Scope::Creation),
                Sync::ThreadJoin => Self::Joins,
                Sync::Fence => Self::Neither,
                _ => Self::Releases(Scope::Object(object.0)),
            },
            _ => Self::Neither,
        }
    }
}

/// When a thread will release what, by recorded ticks, ascending.
#[derive(Debug, Default)]
struct Releases {
    /// All of them; kept only if anything in the trace waits for all.
    all: VecDeque<u64>,
    unknown: VecDeque<u64>,
    creations: VecDeque<u64>,
    objects: HashMap<u64, VecDeque<u64>>,
}

impl Releases {
    fn queue(&mut self, scope: Scope) -> &mut VecDeque<u64> {
        match scope {
            Scope::Object(object) => self.objects.entry(object).or_default(),
            Scope::Unknown => &mut self.unknown,
            Scope::Creation => &mut self.creations,
        }
    }

    fn push(&mut self, scope: Scope, ticks: u64) {
        self.all.push_back(ticks);
        self.queue(scope).push_back(ticks);
    }

    /// The first release of this scope was given.
    fn pop(&mut self, scope: Scope) {
        self.all.pop_front();
        self.queue(scope).pop_front();
    }

    /// The first that an acquire of `scope` may wait for.
    fn first(&self, scope: Scope) -> Option<u64> {
        let of = match scope {
            Scope::Object(object) => self.objects.get(&object).and_then(VecDeque::front),
            Scope::Unknown => self.all.front(),
            Scope::Creation => return self.creations.front().copied(),
        };
        of.into_iter().chain(self.unknown.front()).min().copied()
    }
}

/// Whether a thread leaves a barrier.
const fn is_departure(event: &Event) -> bool {
    matches!(
        event.what,
        What::Sync {
            kind: Sync::BarrierLeft,
            ..
        }
    )
}

/// What the event is to a barrier, for the thread with this number.
fn passage(thread: usize, event: &Event) -> Option<Passage> {
    let What::Sync { kind, object } = event.what else {
        return None;
    };
    let left = match kind {
        Sync::BarrierReached => false,
        Sync::BarrierLeft => true,
        _ => return None,
    };
    Some(Passage {
        ticks: event.ticks,
        left,
        thread,
        barrier: object.0,
    })
}

impl<'t> Parallel<'t> {
    pub(super) fn new(trace: &'t Trace, filter: Filter) -> Self {
        let order = Kinds::SYNC.with(Kinds::THREADS);
        let mut streams = Vec::new();
        let mut start = None::<Time>;
        let mut waits_for_all = false;
        let mut passages = Vec::new();
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
            let mut releases = Releases::default();
            let mut end = None;
            for event in of_it(order) {
                passages.extend(passage(streams.len(), &event));
                match Role::of(&event.what) {
                    Role::Releases(scope) => releases.push(scope, event.ticks),
                    Role::Acquires(Scope::Unknown) => waits_for_all = true,
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
                rounds: VecDeque::new(),
                index: thread.index,
            });
        }
        let rounds = rounds(streams.len(), &mut passages);
        for (stream, rounds) in streams.iter_mut().zip(rounds) {
            stream.rounds = rounds.into();
        }
        if !waits_for_all {
            for stream in &mut streams {
                stream.releases.all = VecDeque::new();
            }
        }
        Self {
            filter,
            start: start.unwrap_or_default(),
            ready: (0..streams.len()).collect(),
            streams,
            waiting: Vec::new(),
            unblocked: None,
            released: HashMap::new(),
            released_any: 0,
            released_unknown: 0,
            ended: 0,
        }
    }

    /// Blocks of the trace that could not be read so far.
    pub fn damaged_blocks(&self) -> u64 {
        self.streams.iter().map(|s| s.events.damaged_blocks()).sum()
    }

    /// When what `who` waits for before its next event, which has this role, was
    /// recorded and not given yet, at the earliest; `None` if it waits for nothing.
    fn awaited(&self, who: usize, role: Role) -> Option<u64> {
        if matches!(role, Role::Releases(_) | Role::Ends | Role::Neither) {
            return None;
        }
        let of = |stream: &Stream<'_>| match role {
            Role::Starts(parent) if stream.index != parent => None,
            Role::Starts(_) => stream.releases.first(Scope::Creation),
            Role::Acquires(scope) => stream.releases.first(scope),
            Role::Joins => stream.end,
            Role::Releases(_) | Role::Ends | Role::Neither => None,
        };
        let others = self.streams.iter().enumerate().filter(|(i, _)| *i != who);
        others.filter_map(|(_, stream)| of(stream)).min()
    }

    /// Whether `event`, the next of `who`, must wait.
    fn must_wait(&self, who: usize, event: &Event) -> bool {
        let at = match self.streams[who].rounds.front() {
            Some(&end) if is_departure(event) => end,
            _ => event.ticks,
        };
        let awaited = self.awaited(who, Role::of(&event.what));
        awaited.is_some_and(|awaited| awaited < at)
    }

    /// Time has passed for `who` while its next event, which has this role, waited.
    fn catch_up(&mut self, who: usize, role: Role) {
        let since = match role {
            Role::Starts(parent) => {
                let creator = self.streams.iter().find(|s| s.index == parent);
                creator.map_or(0, |s| s.clock)
            }
            Role::Acquires(Scope::Object(object)) => {
                let of_it = self.released.get(&object).copied().unwrap_or(0);
                of_it.max(self.released_unknown)
            }
            Role::Acquires(_) => self.released_any,
            Role::Joins => self.ended,
            Role::Releases(_) | Role::Ends | Role::Neither => 0,
        };
        self.streams[who].clock = self.streams[who].clock.max(since);
    }

    /// When the next event of `who` was recorded.
    fn recorded(&self, who: usize) -> u64 {
        self.streams[who].next.map_or(0, |event| event.ticks)
    }

    /// Lets those go on who waited for what has been released by now.
    fn wake(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(|&who| self.recorded(who));
        for who in waiting {
            match self.streams[who].next {
                Some(event) if self.must_wait(who, &event) => self.waiting.push(who),
                Some(event) => {
                    self.catch_up(who, Role::of(&event.what));
                    self.queue(who);
                }
                None => {}
            }
        }
    }

    /// Puts `who` behind all that can go on, and its clock not before theirs.
    fn queue(&mut self, who: usize) {
        let last = self
            .ready
            .back()
            .map_or(0, |&last| self.streams[last].clock);
        let stream = &mut self.streams[who];
        stream.clock = stream.clock.max(last);
        self.ready.push_back(who);
    }

    /// Whose turn it is; none if nothing is left.
    fn turn(&mut self) -> Option<usize> {
        if let Some(who) = self.ready.pop_front() {
            return Some(who);
        }
        // Releases are missing, with the blocks that held them: the one who waited
        // first goes on.
        let places = 0..self.waiting.len();
        let first = places.min_by_key(|&place| self.recorded(self.waiting[place]))?;
        let who = self.waiting.swap_remove(first);
        let latest = self.streams.iter().map(|s| s.clock).max();
        self.streams[who].clock = latest.unwrap_or(0);
        self.unblocked = Some(who);
        Some(who)
    }

    /// Gives the next event of `who`, which is no access and so takes no time; false
    /// if it has to wait.
    #[inline(never)]
    fn order(&mut self, who: usize, event: &mut Event) -> bool {
        let unblocked = self.unblocked.take() == Some(who);
        if !unblocked && self.must_wait(who, event) {
            self.waiting.push(who);
            return false;
        }
        let role = Role::of(&event.what);
        self.catch_up(who, role);
        let stream = &mut self.streams[who];
        let clock = stream.clock;
        event.time = Time(self.start.0.saturating_add(clock));
        if is_departure(event) {
            stream.rounds.pop_front();
        }
        match role {
            Role::Releases(scope) => {
                stream.releases.pop(scope);
                self.released_any = self.released_any.max(clock);
                let of_it = match scope {
                    Scope::Object(object) => self.released.entry(object).or_default(),
                    Scope::Unknown => &mut self.released_unknown,
                    Scope::Creation => &mut self.released_any,
                };
                *of_it = clock.max(*of_it);
            }
            Role::Ends => self.ended = self.ended.max(clock),
            _ => {}
        }
        // Its turn is not over.
        self.ready.push_front(who);
        self.advance(who);
        if matches!(role, Role::Releases(_) | Role::Ends) {
            self.wake();
        }
        true
    }

    /// Reads on in the thread `who`; its end lets others go on.
    #[inline]
    fn advance(&mut self, who: usize) {
        let stream = &mut self.streams[who];
        stream.next = stream.events.next();
        if stream.next.is_none() {
            self.finish(who);
        }
    }

    #[cold]
    fn finish(&mut self, who: usize) {
        // What it lost with damaged blocks nobody waits for.
        self.streams[who].releases = Releases::default();
        self.streams[who].end = None;
        self.wake();
    }
}

impl Iterator for Parallel<'_> {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        loop {
            let who = self.turn()?;
            let stream = &mut self.streams[who];
            let Some(mut event) = stream.next else {
                continue;
            };
            if let What::Access { access, .. } = &mut event.what {
                let time = Time(self.start.0.saturating_add(stream.clock));
                access.time = time;
                event.time = time;
                stream.clock += 1;
                self.ready.push_back(who);
                self.advance(who);
            } else if !self.order(who, &mut event) {
                continue;
            }
            if self.filter.wants(&event.what) {
                return Some(event);
            }
        }
    }
}
