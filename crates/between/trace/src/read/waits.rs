//! The rules of the parallel and the canonical order (`parallel`): what threads wait for when each
//! has a CPU of its own, and whose turn is next. Used by readers of single events and of many at once (`pieces`).
//! Reads only the events that order threads, once at the beginning.

use super::barriers::{Passage, rounds};
use super::conditions::{self, Act, wakes};
use super::event::{Event, What};
use super::filter::{Filter, Kinds};
use super::lane::each_event;
use super::locks::{Deed, Locks};
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
    /// Who holds which lock, in the canonical order.
    locks: Option<Locks>,
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
    /// The ticks before which it waits for signals at the condition variables that it still has to
    /// leave.
    wakes: VecDeque<u64>,
    /// Whether it has got the lock that its next event takes.
    granted: bool,
    /// Its number in the trace.
    index: u32,
}

/// The effect of an event on the order of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Waits for its creation by the thread with the first number; its own is the second.
    Starts(u32, u32),
    /// Waits for releases of the same object.
    Acquires(Scope),
    /// Waits for ends of threads.
    Joins,
    Releases(Scope),
    Ends,
    Neither,
}

/// The object that stands for the creation of the thread with this number in the trace. No object
/// of a program has such an address.
const fn creation(index: u64) -> u64 {
    index | 1 << 63
}

impl Role {
    pub(super) const fn of(event: &Event) -> Self {
        match &event.what {
            What::ThreadStart { parent, .. } => Self::Starts(*parent, event.thread),
            What::ThreadEnd => Self::Ends,
            What::Sync { kind, object } => match kind {
                Sync::MutexLock
                | Sync::ReadLock
                | Sync::WriteLock
                | Sync::BarrierLeft
                | Sync::SemaphoreWait
                | Sync::OncePassed
                | Sync::SpinLock
                | Sync::ConditionLeave
                | Sync::HappensAfter => Self::Acquires(Scope::Object(object.0)),
                Sync::ConditionWoken => Self::Acquires(Scope::Unknown),
                // Releases its mutex, or names no object.
                Sync::ConditionWait | Sync::OnceDone => Self::Releases(Scope::Unknown),
                Sync::ThreadCreate if object.0 == 0 => Self::Releases(Scope::Creation),
                Sync::ThreadCreate => Self::Releases(Scope::Object(creation(object.0))),
                Sync::ThreadJoin => Self::Joins,
                Sync::Fence | Sync::ConditionEnter => Self::Neither,
                _ => Self::Releases(Scope::Object(object.0)),
            },
            _ => Self::Neither,
        }
    }
}

/// Whether the event is synchronisation of this kind.
fn is(event: &Event, wanted: Sync) -> bool {
    matches!(event.what, What::Sync { kind, .. } if kind == wanted)
}

/// The event as an act of the thread with this number at a condition variable; `None` for other
/// events.
fn act(thread: usize, event: &Event) -> Option<conditions::Passage> {
    let What::Sync { kind, object } = event.what else {
        return None;
    };
    let act = match kind {
        Sync::ConditionEnter => Act::Entered,
        Sync::ConditionLeave => Act::Left,
        Sync::ConditionSignal => Act::Signalled,
        _ => return None,
    };
    Some(conditions::Passage {
        ticks: event.ticks,
        act,
        thread,
        condition: object.0,
    })
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
    /// Locks are taken as recorded, or in the `canonical` order (`locks`).
    pub(super) fn new(trace: &Trace, filter: &Filter, canonical: bool) -> Self {
        let mut threads = Vec::new();
        let mut waits_for_all = false;
        let (mut passages, mut acts, mut deeds) = (Vec::new(), Vec::new(), Vec::new());
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
                acts.extend(act(threads.len(), event));
                if canonical {
                    deeds.extend(Deed::of(event).map(|deed| (event.ticks, deed)));
                }
                match Role::of(event) {
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
                wakes: VecDeque::new(),
                granted: false,
                index: thread.index,
            });
        }
        let rounds = rounds(threads.len(), &mut passages);
        let wakes = wakes(threads.len(), &mut acts);
        for ((thread, rounds), wakes) in threads.iter_mut().zip(rounds).zip(wakes) {
            (thread.rounds, thread.wakes) = (rounds.into(), wakes.into());
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
            locks: canonical.then(|| Locks::new(deeds)),
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
            Role::Starts(parent, own) => [
                Some(Source::Object(creation(own.into()))),
                self.place(parent).map(Source::Creations),
            ],
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
        let role = Role::of(event);
        // A thread's own creation comes before its start, whatever the ticks say.
        if let Role::Starts(_, own) = role {
            let created = Source::Object(creation(own.into()));
            let awaited = self.queues.awaited([Some(created), None], number, u64::MAX);
            if awaited.is_some() {
                return Some((created, u64::MAX));
            }
        }
        let thread = &self.threads[number];
        let until = if is(event, Sync::BarrierLeft) {
            thread.rounds.front()
        } else if is(event, Sync::ConditionLeave) {
            thread.wakes.front()
        } else {
            None
        };
        let until = until.copied().unwrap_or(event.ticks);
        let sources = self.sources(role);
        let awaited = self.queues.awaited(sources, number, until);
        awaited.map(|source| (source, until))
    }

    /// Advances the clock of thread `number` by the time for which its next event, of this role, has
    /// waited.
    fn catch_up(&mut self, number: usize, role: Role) {
        let since = match role {
            Role::Starts(parent, own) => {
                let created = self.released.get(&creation(own.into())).copied();
                let creator = || Some(self.threads[self.place(parent)?].clock);
                created.or_else(creator).unwrap_or(0)
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
            let sources = self.sources(Role::of(&event));
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
                self.catch_up(number, Role::of(&event));
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

    /// Whether thread `number` can go on with `event`, its next. If not, it waits from now on.
    fn may_go_on(&mut self, number: usize, event: &Event, unblocked: bool) -> bool {
        if let Some(locks) = &mut self.locks
            && let Some(Deed::Takes(object, claim)) = Deed::of(event)
        {
            let thread = &mut self.threads[number];
            if std::mem::take(&mut thread.granted) {
                return true;
            }
            if unblocked {
                locks.force(object, claim, number);
                return true;
            }
            return locks.take(object, claim, number, thread.clock);
        }
        let awaited = self.awaited(number, event).filter(|_| !unblocked);
        if let Some((source, until)) = awaited {
            self.queues.wait(source, number, until);
        }
        awaited.is_none()
    }

    /// These threads have got the locks that they waited for, in this order.
    fn grant(&mut self, granted: Vec<usize>) {
        for number in granted {
            let thread = &mut self.threads[number];
            thread.granted = true;
            let Some(event) = thread.next else {
                continue;
            };
            self.waiting.remove(&(event.ticks, thread.wait, number));
            self.catch_up(number, Role::of(&event));
            self.queue(number);
        }
    }

    /// Gives `event`, the next of thread `number`, which is no access and so takes no time; false if
    /// it has to wait. When the thread's next event is known, the caller must call
    /// [`Waits::delivered`].
    #[inline(never)]
    pub(super) fn deliver(&mut self, number: usize, event: &mut Event) -> bool {
        let unblocked = self.unblocked.take() == Some(number);
        if !self.may_go_on(number, event, unblocked) {
            self.waits += 1;
            let thread = &mut self.threads[number];
            thread.wait = self.waits;
            self.waiting.insert((event.ticks, self.waits, number));
            self.latest = self.latest.max(thread.clock);
            return false;
        }
        let role = Role::of(event);
        self.catch_up(number, role);
        let thread = &mut self.threads[number];
        let clock = thread.clock;
        event.time = Time(self.start.0.saturating_add(clock));
        if is(event, Sync::BarrierLeft) {
            thread.rounds.pop_front();
        } else if is(event, Sync::ConditionLeave) {
            thread.wakes.pop_front();
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

    /// Wakes threads after `event` of thread `number` was given, if it releases anything.
    pub(super) fn delivered(&mut self, number: usize, event: &Event) {
        if matches!(Role::of(event), Role::Releases(_) | Role::Ends) {
            self.wake();
        }
        if let Some(locks) = &mut self.locks
            && let Some(deed) = Deed::of(event)
        {
            let granted = locks.release(deed, number);
            self.grant(granted);
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
        if let Some(locks) = &mut self.locks {
            let granted = locks.end(number);
            self.grant(granted);
        }
    }
}
