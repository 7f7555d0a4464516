//! The releases that threads still have to make, by what is released, and the threads that wait for
//! them. Used by `waits` alone, which knows the rules; here a question takes about the same time
//! however many threads there are.

use std::collections::{BTreeSet, HashMap, VecDeque};

/// The object that an event releases or acquires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The object with this address.
    Object(u64),
    /// Unknown: any object.
    Unknown,
    /// The start of a created thread.
    Creation,
}

/// Releases of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// Those of the object with this address.
    Object(u64),
    /// Those of an unknown object.
    Unknown,
    /// All releases.
    All,
    /// Creations by this thread.
    Creations(usize),
    /// Ends of threads.
    Ends,
}

impl Source {
    const fn of(scope: Scope, thread: usize) -> Self {
        match scope {
            Scope::Object(object) => Self::Object(object),
            Scope::Unknown => Self::Unknown,
            Scope::Creation => Self::Creations(thread),
        }
    }
}

/// The releases that a thread will make, by recorded ticks, ascending.
#[derive(Debug, Default)]
pub(super) struct Releases {
    /// All releases; filled only if an event of the trace waits for all.
    all: VecDeque<u64>,
    unknown: VecDeque<u64>,
    creations: VecDeque<u64>,
    objects: HashMap<u64, VecDeque<u64>>,
    /// The thread's end, which is no release.
    pub(super) end: Option<u64>,
}

impl Releases {
    fn queue(&mut self, scope: Scope) -> &mut VecDeque<u64> {
        match scope {
            Scope::Object(object) => self.objects.entry(object).or_default(),
            Scope::Unknown => &mut self.unknown,
            Scope::Creation => &mut self.creations,
        }
    }

    pub(super) fn push(&mut self, scope: Scope, ticks: u64) {
        self.all.push_back(ticks);
        self.queue(scope).push_back(ticks);
    }

    /// No event of the trace waits for all releases.
    pub(super) fn forget_all(&mut self) {
        self.all = VecDeque::new();
    }

    /// The first release of each kind that the thread with this number will make.
    fn fronts(&self, thread: usize) -> impl Iterator<Item = (Source, u64)> {
        let objects = self.objects.iter();
        let objects = objects.map(|(object, queue)| (Source::Object(*object), queue.front()));
        let others = [
            (Source::Unknown, self.unknown.front()),
            (Source::All, self.all.front()),
            (Source::Creations(thread), self.creations.front()),
            (Source::Ends, self.end.as_ref()),
        ];
        let all = objects.chain(others);
        all.filter_map(|(source, front)| Some((source, *front?)))
    }
}

/// The next release of each thread that has one to make, and the threads that wait for the first of
/// them; both by recorded ticks. A thread waits until no other's next release is before its tick.
#[derive(Debug, Default)]
struct Queue {
    next: BTreeSet<(u64, usize)>,
    waiting: BTreeSet<(u64, usize)>,
}

impl Queue {
    /// The first release by another thread than `thread`.
    fn first_but(&self, thread: usize) -> Option<u64> {
        let mut others = self.next.iter().filter(|(_, by)| *by != thread);
        others.next().map(|(ticks, _)| *ticks)
    }

    fn must_wait(&self, thread: usize, until: u64) -> bool {
        self.first_but(thread).is_some_and(|ticks| ticks < until)
    }
}

/// The releases of all threads. See the module's head.
#[derive(Debug, Default)]
pub(super) struct Queues {
    of: HashMap<Source, Queue>,
    /// What each thread waits for, and until which tick.
    waits: HashMap<usize, (Source, u64)>,
    /// Kinds of which releases have been given since threads were last freed.
    changed: Vec<Source>,
}

impl Queues {
    /// Adds the releases that the thread with this number will make.
    pub(super) fn add(&mut self, thread: usize, releases: &Releases) {
        for (source, ticks) in releases.fronts(thread) {
            self.of
                .entry(source)
                .or_default()
                .next
                .insert((ticks, thread));
        }
    }

    /// Removes all releases that the thread has not made; they will never come.
    pub(super) fn remove(&mut self, thread: usize, releases: &Releases) {
        for (source, ticks) in releases.fronts(thread) {
            self.replace(source, thread, ticks, None);
        }
    }

    /// The thread has made its first release of this scope.
    pub(super) fn released(&mut self, thread: usize, releases: &mut Releases, scope: Scope) {
        if let Some(ticks) = releases.all.pop_front() {
            let next = releases.all.front().copied();
            self.replace(Source::All, thread, ticks, next);
        }
        let queue = releases.queue(scope);
        if let Some(ticks) = queue.pop_front() {
            let next = queue.front().copied();
            self.replace(Source::of(scope, thread), thread, ticks, next);
        }
    }

    fn replace(&mut self, source: Source, thread: usize, ticks: u64, next: Option<u64>) {
        let queue = self.of.entry(source).or_default();
        queue.next.remove(&(ticks, thread));
        queue.next.extend(next.map(|next| (next, thread)));
        self.changed.push(source);
    }

    /// The first of `sources` of which the thread must wait for releases before this tick.
    pub(super) fn awaited(
        &self,
        sources: [Option<Source>; 2],
        thread: usize,
        until: u64,
    ) -> Option<Source> {
        let mut sources = sources.into_iter().flatten();
        sources.find(|source| {
            let queue = self.of.get(source);
            queue.is_some_and(|queue| queue.must_wait(thread, until))
        })
    }

    /// The thread waits for releases of this kind before this tick.
    pub(super) fn wait(&mut self, source: Source, thread: usize, until: u64) {
        let queue = self.of.entry(source).or_default();
        queue.waiting.insert((until, thread));
        self.waits.insert(thread, (source, until));
    }

    /// The thread waits no more.
    pub(super) fn leave(&mut self, thread: usize) {
        if let Some((source, until)) = self.waits.remove(&thread)
            && let Some(queue) = self.of.get_mut(&source)
        {
            queue.waiting.remove(&(until, thread));
        }
    }

    /// A thread that no longer waits for what it waited for, with its tick; `None` if there is no
    /// more of them. It may have to wait for something else.
    pub(super) fn freed(&mut self) -> Option<(usize, u64)> {
        while let Some(&source) = self.changed.last() {
            let freed = self.of.get(&source).and_then(|queue| {
                // All but one wait for the same release, so if the first must wait, the others must,
                // too. The exception is the thread that makes that release.
                let first = queue.waiting.first().copied();
                let maker = queue.next.first().and_then(|(_, maker)| {
                    let waits = self.waits.get(maker);
                    waits.filter(|w| w.0 == source).map(|w| (w.1, *maker))
                });
                let mut both = first.into_iter().chain(maker);
                both.find(|&(until, thread)| !queue.must_wait(thread, until))
            });
            if let Some((until, thread)) = freed {
                self.leave(thread);
                return Some((thread, until));
            }
            self.changed.pop();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn releases(all: &[(Scope, u64)]) -> Releases {
        let mut releases = Releases::default();
        for &(scope, ticks) in all {
            releases.push(scope, ticks);
        }
        releases
    }

    #[test]
    fn a_thread_waits_for_the_first_release_of_any_other() {
        let object = Scope::Object(64);
        let mut made = [
            releases(&[(object, 10), (object, 50)]),
            releases(&[(object, 20), (object, 30)]),
        ];
        let mut queues = Queues::default();
        for (thread, releases) in made.iter().enumerate() {
            queues.add(thread, releases);
        }
        let sources = [Some(Source::Object(64)), Some(Source::Unknown)];
        let awaited = |queues: &Queues, thread, until| queues.awaited(sources, thread, until);
        assert_eq!(awaited(&queues, 2, 10), None);
        assert_eq!(awaited(&queues, 2, 11), Some(Source::Object(64)));
        assert_eq!(
            awaited(&queues, 0, 20),
            None,
            "its own releases do not count"
        );
        queues.wait(Source::Object(64), 2, 25);
        queues.wait(Source::Object(64), 3, 15);
        queues.wait(Source::Object(64), 0, 40);
        assert_eq!(queues.freed(), None);
        queues.released(0, &mut made[0], object);
        assert_eq!(queues.freed(), Some((3, 15)));
        assert_eq!(queues.freed(), None);
        queues.released(1, &mut made[1], object);
        assert_eq!(queues.freed(), Some((2, 25)));
        queues.released(1, &mut made[1], object);
        assert_eq!(
            queues.freed(),
            Some((0, 40)),
            "it waited for the other alone"
        );
        assert_eq!(queues.freed(), None);
    }

    #[test]
    fn releases_that_never_come_are_not_waited_for() {
        let made = releases(&[(Scope::Object(8), 10), (Scope::Unknown, 20)]);
        let mut queues = Queues::default();
        queues.add(0, &made);
        queues.wait(Source::Object(8), 1, 30);
        queues.wait(Source::Unknown, 2, 30);
        queues.leave(2);
        queues.remove(0, &made);
        assert_eq!(queues.freed(), Some((1, 30)));
        assert_eq!(queues.freed(), None);
    }
}
