//! The rules of the parallel order (`parallel`): what threads wait for when each has a CPU of its
//! own, and whose turn is next. Used by readers of single events and of many at once (`pieces`).
//! Reads only the events that order threads, once at the beginning.

use super::barriers::{Passage, rounds};
use super::event::{Event, What};
use super::filter::{Filter, Kinds};
use super::lane::each_event;
use super::trace::Trace;
use crate::slot::Sync;
use std::collections::{HashMap, VecDeque};
use sunder_access::Time;

/// Kinds of events that order threads.
pub(super) const ORDER: Kinds = Kinds::SYNC.with(Kinds::THREADS);

/// All threads of a trace, those that can go on and those that wait. See the module's head.
#[derive(Debug)]
pub(super) struct Waits {
    pub(super) threads: Vec<Waiter>,
    /// The start of the first thread.
    pub(super) start: Time,
    /// Threads that can go on, in the order of their turns: their clocks ascend, and differ by one
    /// unit at most.
    pub(super) ready: VecDeque<usize>,
    /// Threads that wait for releases of others.
    waiting: Vec<usize>,
    /// A thread that goes on although the release that it waits for is missing.
    unblocked: Option<usize>,
    /// The clock's value at the latest release of each object. The fields below: at the latest
    /// release of any object, at the latest of an unknown one, and at the latest end of a thread.
    released: HashMap<u64, u64>,
    released_any: u64,
    released_unknown: u64,
    ended: u64,
}

/// A thread.
#[derive(Debug)]
pub(super) struct Waiter {
    /// Units of time so far.
    pub(super) clock: u64,
    /// The next event, if it is no access.
    pub(super) next: Option<Event>,
    /// The releases that it will make, without its end.
    releases: Releases,
    /// The recorded ticks of its end, if that is still to come.
    end: Option<u64>,
    /// The ends, in recorded ticks, of the barrier rounds that it still has to leave.
    rounds: VecDeque<u64>,
    /// Its number in the trace.
    index: u32,
}

/// The object that an event releases or acquires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// The object with this address.
    Object(u64),
    /// Unknown: any object.
    Unknown,
    /// The start of a created thread.
    Creation,
}

/// The effect of an event on the order of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Waits for its creation by the thread with this number.
    Starts(u32),
    /// Waits for releases of the same object.
    Acquires(Scope),
    /// Waits for ends of threads.
    Joins,
    Releases(Scope),
    Ends,
    Neither,
}

impl Role {
    pub(super) const fn of(what: &What) -> Self {
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
                // Releases its mutex, or names no object.
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

/// The releases that a thread will make, by recorded ticks, ascending.
#[derive(Debug, Default)]
struct Releases {
    /// All releases; filled only if an event of the trace waits for all.
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

    /// Removes the first release of this scope, which has been given.
    fn pop(&mut self, scope: Scope) {
        self.all.pop_front();
        self.queue(scope).pop_front();
    }

    /// The first release that an acquire of `scope` may wait for.
    fn first(&self, scope: Scope) -> Option<u64> {
        let of = match scope {
            Scope::Object(object) => self.objects.get(&object).and_then(VecDeque::front),
            Scope::Unknown => self.all.front(),
            Scope::Creation => return self.creations.front().copied(),
        };
        of.into_iter().chain(self.unknown.front()).min().copied()
    }
}

/// Whether the event is a thread's leaving of a barrier.
const fn is_departure(event: &Event) -> bool {
    matches!(
        event.what,
        What::Sync {
            kind: Sync::BarrierLeft,
            ..
        }
    )
}

/// The event as a passage of a barrier by the thread with this number; `None` for other events.
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

impl Waits {
    /// The waits of the threads of `trace` that `filter` wants, ordered as in the whole trace.
    pub(super) fn new(trace: &Trace, filter: &Filter) -> Self {
        let mut threads = Vec::new();
        let mut waits_for_all = false;
        let mut passages = Vec::new();
        for (place, thread) in trace.threads().iter().enumerate() {
            if !filter.wants_thread(thread.index) {
                continue;
            }
            let mut releases = Releases::default();
            let mut end = None;
            each_event(trace, place, ORDER, |event| {
                if !filter.is_near(&event.what) {
                    return;
                }
                passages.extend(passage(threads.len(), event));
                match Role::of(&event.what) {
                    Role::Releases(scope) => releases.push(scope, event.ticks),
                    Role::Acquires(Scope::Unknown) => waits_for_all = true,
                    Role::Ends => end = Some(event.ticks),
                    _ => {}
                }
            });
            threads.push(Waiter {
                clock: 0,
                next: None,
                releases,
                end,
                rounds: VecDeque::new(),
                index: thread.index,
            });
        }
        let rounds = rounds(threads.len(), &mut passages);
        for (thread, rounds) in threads.iter_mut().zip(rounds) {
            thread.rounds = rounds.into();
        }
        if !waits_for_all {
            for thread in &mut threads {
                thread.releases.all = VecDeque::new();
            }
        }
        Self {
            start: Time::default(),
            ready: (0..threads.len()).collect(),
            threads,
            waiting: Vec::new(),
            unblocked: None,
            released: HashMap::new(),
            released_any: 0,
            released_unknown: 0,
            ended: 0,
        }
    }

    /// The recorded time of the first release that must come before the next event of thread
    /// `number`, whose role this is, and that has not been given yet; `None` if the event waits for
    /// nothing.
    fn awaited(&self, number: usize, role: Role) -> Option<u64> {
        if matches!(role, Role::Releases(_) | Role::Ends | Role::Neither) {
            return None;
        }
        let of = |thread: &Waiter| match role {
            Role::Starts(parent) if thread.index != parent => None,
            Role::Starts(_) => thread.releases.first(Scope::Creation),
            Role::Acquires(scope) => thread.releases.first(scope),
            Role::Joins => thread.end,
            Role::Releases(_) | Role::Ends | Role::Neither => None,
        };
        let others = self
            .threads
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != number);
        others.filter_map(|(_, thread)| of(thread)).min()
    }

    /// Whether `event`, the next of thread `number`, must wait.
    fn must_wait(&self, number: usize, event: &Event) -> bool {
        let at = match self.threads[number].rounds.front() {
            Some(&end) if is_departure(event) => end,
            _ => event.ticks,
        };
        let awaited = self.awaited(number, Role::of(&event.what));
        awaited.is_some_and(|awaited| awaited < at)
    }

    /// Advances the clock of thread `number` by the time for which its next event, of this role, has
    /// waited.
    fn catch_up(&mut self, number: usize, role: Role) {
        let since = match role {
            Role::Starts(parent) => {
                let creator = self.threads.iter().find(|s| s.index == parent);
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
        self.threads[number].clock = self.threads[number].clock.max(since);
    }

    /// The recorded time of the next event of thread `number`.
    fn recorded(&self, number: usize) -> u64 {
        self.threads[number].next.map_or(0, |event| event.ticks)
    }

    /// Queues the waiting threads whose releases have all been given.
    fn wake(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(|&number| self.recorded(number));
        for number in waiting {
            match self.threads[number].next {
                Some(event) if self.must_wait(number, &event) => self.waiting.push(number),
                Some(event) => {
                    self.catch_up(number, Role::of(&event.what));
                    self.queue(number);
                }
                None => {}
            }
        }
    }

    /// Puts thread `number` after all threads that can go on, with a clock not before theirs.
    fn queue(&mut self, number: usize) {
        let last = self
            .ready
            .back()
            .map_or(0, |&last| self.threads[last].clock);
        let thread = &mut self.threads[number];
        thread.clock = thread.clock.max(last);
        self.ready.push_back(number);
    }

    /// The thread whose turn it is; `None` at the end.
    #[inline]
    pub(super) fn turn(&mut self) -> Option<usize> {
        if let Some(number) = self.ready.pop_front() {
            return Some(number);
        }
        // All threads wait: releases are missing, with damaged blocks. The thread with the earliest
        // event goes on.
        let places = 0..self.waiting.len();
        let first = places.min_by_key(|&place| self.recorded(self.waiting[place]))?;
        let number = self.waiting.swap_remove(first);
        let latest = self.threads.iter().map(|s| s.clock).max();
        self.threads[number].clock = latest.unwrap_or(0);
        self.unblocked = Some(number);
        Some(number)
    }

    /// Gives `event`, the next of thread `number`, which is no access and so takes no time; false if
    /// it has to wait. When the thread's next event is known, the caller must call
    /// [`Waits::delivered`].
    #[inline(never)]
    pub(super) fn deliver(&mut self, number: usize, event: &mut Event) -> bool {
        let unblocked = self.unblocked.take() == Some(number);
        if !unblocked && self.must_wait(number, event) {
            self.waiting.push(number);
            return false;
        }
        let role = Role::of(&event.what);
        self.catch_up(number, role);
        let thread = &mut self.threads[number];
        let clock = thread.clock;
        event.time = Time(self.start.0.saturating_add(clock));
        if is_departure(event) {
            thread.rounds.pop_front();
        }
        match role {
            Role::Releases(scope) => {
                thread.releases.pop(scope);
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
        self.ready.push_front(number);
        true
    }

    /// Wakes threads after `event` was given, if it releases anything.
    pub(super) fn delivered(&mut self, event: &Event) {
        if matches!(Role::of(&event.what), Role::Releases(_) | Role::Ends) {
            self.wake();
        }
    }

    /// Thread `number` has no more events; wakes threads that wait for its releases.
    #[cold]
    pub(super) fn finish(&mut self, number: usize) {
        // Its releases that are missing with damaged blocks will never come.
        self.threads[number].releases = Releases::default();
        self.threads[number].end = None;
        self.wake();
    }
}
