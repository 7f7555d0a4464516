//! The rules of the parallel order (`parallel`): what threads wait for when each has a CPU of its
//! own, and whose turn is next. Used by readers of single events and of many at once (`pieces`).
//! Reads only the events that order threads, once at the beginning.

use super::barriers::{Passage, rounds};
use super::event::{Event, What};
use super::filter::{Filter, Kinds};
use super::lane::each_event;
use super::releases::{Queues, Releases, Scope, Source};
use super::trace::Trace;
use crate::slot::Sync;
use std::collections::{BTreeSet, HashMap, VecDeque};
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
    /// Threads that wait for releases of others: the recorded ticks of their next events, the number
    /// of the wait, and the thread.
    waiting: BTreeSet<(u64, u64, usize)>,
    /// The number of waits so far.
    waits: u64,
    /// What has still to be released, and which thread waits for what.
    queues: Queues,
    /// The latest clock of the threads that wait or have ended.
    latest: u64,
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
    /// The releases that it will make, and its end.
    releases: Releases,
    /// The number of its present wait.
    wait: u64,
    /// The ends, in recorded ticks, of the barrier rounds that it still has to leave.
    rounds: VecDeque<u64>,
    /// Its number in the trace.
    index: u32,
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
            each_event(trace, place, ORDER, |event| {
                if !filter.is_near(&event.what) {
                    return;
                }
                passages.extend(passage(threads.len(), event));
                match Role::of(&event.what) {
                    Role::Releases(scope) => releases.push(scope, event.ticks),
                    Role::Acquires(Scope::Unknown) => waits_for_all = true,
                    Role::Ends => releases.end = Some(event.ticks),
                    _ => {}
                }
            });
            threads.push(Waiter {
                clock: 0,
                next: None,
                releases,
                wait: 0,
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
                thread.releases.forget_all();
            }
        }
        let mut queues = Queues::default();
        for (number, thread) in threads.iter().enumerate() {
            queues.add(number, &thread.releases);
        }
        Self {
            start: Time::default(),
            ready: (0..threads.len()).collect(),
            threads,
            waiting: BTreeSet::new(),
            waits: 0,
            queues,
            latest: 0,
            unblocked: None,
            released: HashMap::new(),
            released_any: 0,
            released_unknown: 0,
            ended: 0,
        }
    }

    /// The releases that an event with this role waits for.
    fn sources(&self, role: Role) -> [Option<Source>; 2] {
        match role {
            Role::Starts(parent) => [self.place(parent).map(Source::Creations), None],
            Role::Acquires(Scope::Object(object)) => {
                [Some(Source::Object(object)), Some(Source::Unknown)]
            }
            Role::Acquires(_) => [Some(Source::All), Some(Source::Unknown)],
            Role::Joins => [Some(Source::Ends), None],
            Role::Releases(_) | Role::Ends | Role::Neither => [None, None],
        }
    }

    /// The number here of the thread with this number in the trace.
    fn place(&self, index: u32) -> Option<usize> {
        let found = self.threads.binary_search_by_key(&index, |t| t.index);
        found.ok()
    }

    /// The releases that `event`, the next of thread `number`, must wait for, and until which tick.
    fn awaited(&self, number: usize, event: &Event) -> Option<(Source, u64)> {
        let until = match self.threads[number].rounds.front() {
            Some(&end) if is_departure(event) => end,
            _ => event.ticks,
        };
        let sources = self.sources(Role::of(&event.what));
        let awaited = self.queues.awaited(sources, number, until);
        awaited.map(|source| (source, until))
    }

    /// Advances the clock of thread `number` by the time for which its next event, of this role, has
    /// waited.
    fn catch_up(&mut self, number: usize, role: Role) {
        let since = match role {
            Role::Starts(parent) => {
                let creator = self.place(parent);
                creator.map_or(0, |creator| self.threads[creator].clock)
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

    /// Queues the waiting threads whose releases have all been given, in the order of their events.
    fn wake(&mut self) {
        let mut woken = BTreeSet::new();
        while let Some((number, until)) = self.queues.freed() {
            let Some(event) = self.threads[number].next else {
                continue;
            };
            let sources = self.sources(Role::of(&event.what));
            match self.queues.awaited(sources, number, until) {
                Some(source) => self.queues.wait(source, number, until),
                None => {
                    woken.insert((event.ticks, self.threads[number].wait, number));
                }
            }
        }
        for entry in woken {
            self.waiting.remove(&entry);
            let number = entry.2;
            if let Some(event) = self.threads[number].next {
                self.catch_up(number, Role::of(&event.what));
                self.queue(number);
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
        let (_, _, number) = self.waiting.pop_first()?;
        self.queues.leave(number);
        self.threads[number].clock = self.latest;
        self.unblocked = Some(number);
        Some(number)
    }

    /// Gives `event`, the next of thread `number`, which is no access and so takes no time; false if
    /// it has to wait. When the thread's next event is known, the caller must call
    /// [`Waits::delivered`].
    #[inline(never)]
    pub(super) fn deliver(&mut self, number: usize, event: &mut Event) -> bool {
        let unblocked = self.unblocked.take() == Some(number);
        if !unblocked && let Some((source, until)) = self.awaited(number, event) {
            self.queues.wait(source, number, until);
            self.waits += 1;
            let thread = &mut self.threads[number];
            thread.wait = self.waits;
            self.waiting.insert((event.ticks, self.waits, number));
            self.latest = self.latest.max(thread.clock);
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
                self.queues.released(number, &mut thread.releases, scope);
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
        let thread = &mut self.threads[number];
        let missing = std::mem::take(&mut thread.releases);
        self.latest = self.latest.max(thread.clock);
        self.queues.remove(number, &missing);
        self.wake();
    }
}
