//! What isolating gains: how fast threads get on before objects are isolated, and how fast while they are
//! isolated. Called by `choose` and `live`. It only reads, and must not decide what follows from a gain.
//!
//! An isolated thread computes in a worker: a process of one thread that has the thread's registers, and its
//! stack at the same addresses. So the values by which the thread's progress is measured natively are read
//! there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;
use sunder_access::{ProcessId, ThreadId, Time};
use sunder_gain::before::{Before, Measured};
use sunder_gain::gained::mean;
use sunder_gain::gauge::{Bytes, Gauge, Windows, gains};
use sunder_observe::proc;
use sunder_plan::progress::{Gain, WORTH_KEEPING};
use sunder_wire::isolation::{Control, state};

/// How long threads of which objects were isolated are measured.
const MOST: Duration = Duration::from_secs(2);

/// Threads that are isolated for less than this part of the time gain less than what isolating costs them.
const LEAST_PART: f64 = 0.05;
/// Threads computed natively for most of the time if each had a CPU for this part of it.
const NATIVELY: f64 = 0.25;

/// The gain of isolating some objects.
#[derive(Debug)]
pub struct Gained {
    /// Which of the chosen objects, by the order in which they were chosen.
    pub objects: Range<usize>,
    /// How much faster each thread got on that was measured.
    pub threads: Vec<(ThreadId, Gain)>,
    /// Whether the threads ran side by side before: threads that take turns on a CPU do not contend, and
    /// nothing is gained by taking them apart then.
    pub fair: bool,
    /// For which part of the time any of the threads was isolated, if they computed natively for most
    /// of it.
    pub isolated_for: Option<f64>,
}

impl Gained {
    /// For which part of the time threads were isolated, if that is too little to gain anything by it.
    pub fn too_seldom(&self) -> Option<f64> {
        self.isolated_for.filter(|part| *part < LEAST_PART)
    }

    /// Whether threads lost more than chance explains.
    pub fn is_loss(&self) -> bool {
        self.fair && mean(&self.threads).is_some_and(|mean| mean * WORTH_KEEPING < 1.0)
    }
}

/// Measures gains, one after the other or several at once.
#[derive(Default)]
pub struct Gains {
    /// The threads of lines that may be isolated next.
    before: Before,
    /// The bytes by which these can be measured.
    bytes: Vec<Bytes>,
    open: Vec<Open>,
}

/// Objects that were isolated, of which the threads are being measured.
struct Open {
    objects: Range<usize>,
    since: Time,
    bytes: Vec<Bytes>,
    before: Windows,
    fair: bool,
    isolated: BTreeMap<ThreadId, InWorker>,
    looks: Looks,
    /// What a first window showed, if that was a loss. A second one must show it, too: at first, threads
    /// copy the pages.
    loss: Option<Gained>,
}

/// How the threads ran, in all windows.
#[derive(Default)]
struct Looks {
    /// When they were first looked at, and their native CPU time until then.
    first: Option<(Time, Duration)>,
    all: u32,
    /// The looks at which any of the threads was isolated.
    isolated: u32,
}

impl Looks {
    /// One more look, at which threads have had so much CPU time natively.
    fn add(&mut self, now: Time, isolated: bool, ran: impl FnOnce() -> Duration) {
        self.first.get_or_insert_with(|| (now, ran()));
        self.all += 1;
        self.isolated += u32::from(isolated);
    }

    /// As [`Gained::isolated_for`], of so many threads.
    fn isolated_for(&self, now: Time, threads: usize, ran: Duration) -> Option<f64> {
        let (since, before) = self.first?;
        let all = now.since(since).mul_f64(threads as f64 * NATIVELY);
        let natively = ran.saturating_sub(before) >= all;
        natively.then(|| f64::from(self.isolated) / f64::from(self.all))
    }
}

enum InWorker {
    /// It is measured in this worker.
    Measuring(ProcessId, Box<Gauge>),
    /// It was measured for long enough.
    Measured(Windows),
}

impl Gains {
    /// Objects on these bytes may be isolated soon: begins to measure the threads that use them.
    pub fn expect(&mut self, process: ProcessId, bytes: impl FnOnce() -> Vec<Bytes>) {
        if matches!(self.before, Before::Nothing) {
            self.bytes = bytes();
            self.before.measure(process, self.bytes.clone(), false);
        }
    }

    /// Nothing is about to be isolated.
    pub fn expect_nothing(&mut self) {
        self.before = Before::Nothing;
    }

    /// Whether the threads were measured for long enough to be compared.
    pub fn is_ready(&self) -> bool {
        self.before.measured() >= Measured::Once
    }

    /// These objects are isolated from `now` on.
    pub fn isolated(&mut self, objects: Range<usize>, now: Time) {
        let fair = self.before.measured() == Measured::Well;
        let before = std::mem::take(&mut self.before).end();
        if !before.is_empty() {
            self.open.push(Open {
                objects,
                since: now,
                bytes: std::mem::take(&mut self.bytes),
                before,
                fair,
                isolated: BTreeMap::new(),
                looks: Looks::default(),
                loss: None,
            });
        }
    }

    /// Whether threads are being measured, so that they must be looked at again soon.
    pub fn is_measuring(&self) -> bool {
        matches!(self.before, Before::Measuring(_)) || !self.open.is_empty()
    }

    /// Reads all values at `now`; gives the gains that have become known.
    pub fn read(&mut self, process: ProcessId, control: &Control, now: Time) -> Vec<Gained> {
        self.before.read();
        if self.open.is_empty() {
            return Vec::new();
        }
        let workers = workers(control);
        let mut known = Vec::new();
        self.open.retain_mut(|open| {
            open.read(process, &workers, now);
            let over = open.is_complete() || now.since(open.since) > MOST;
            let Some(gained) = over.then(|| open.end(process, now)).flatten() else {
                return true;
            };
            known.push(gained);
            false
        });
        known
    }
}

impl Open {
    fn read(&mut self, process: ProcessId, workers: &BTreeMap<ThreadId, ProcessId>, now: Time) {
        let isolated = self.before.keys().any(|one| workers.contains_key(one));
        let threads = &self.before;
        let ran = || ran(process, threads.keys());
        self.looks.add(now, isolated, ran);
        for thread in self.before.keys() {
            let now = workers.get(thread);
            match (self.isolated.get_mut(thread), now) {
                (Some(InWorker::Measured(_)), _) => continue,
                (Some(InWorker::Measuring(worker, _)), Some(now)) if worker == now => {}
                (_, Some(&worker)) => {
                    let Some(gauge) = begin(process, worker) else {
                        continue;
                    };
                    let begun = InWorker::Measuring(worker, Box::new(gauge));
                    self.isolated.insert(*thread, begun);
                }
                // The thread is native: what its worker did was too little.
                (_, None) => {
                    self.isolated.remove(thread);
                }
            }
            let Some(InWorker::Measuring(worker, gauge)) = self.isolated.get_mut(thread) else {
                continue;
            };
            let its = self.bytes.iter().filter(|bytes| bytes.thread == *thread);
            let its = its.map(|bytes| Bytes {
                thread: ThreadId(worker.0),
                ..*bytes
            });
            gauge.read(&its.collect::<Vec<_>>());
            if gauge.is_enough() {
                let seen = gauge.windows().clone();
                self.isolated.insert(*thread, InWorker::Measured(seen));
            }
        }
    }

    fn is_complete(&self) -> bool {
        let is_measured = |thread| matches!(self.isolated.get(thread), Some(InWorker::Measured(_)));
        self.before.keys().all(is_measured)
    }

    /// The gain, as the window is over at `now`; `None` if there must be another window.
    fn end(&mut self, process: ProcessId, now: Time) -> Option<Gained> {
        let threads = self.before.keys();
        let ran = ran(process, threads.clone());
        let isolated_for = self.looks.isolated_for(now, threads.len(), ran);
        let seen = std::mem::take(&mut self.isolated).into_iter();
        let measured = seen.filter_map(|(thread, seen)| match seen {
            // A worker has one thread.
            InWorker::Measured(seen) => Some((thread, seen.into_values().next()?)),
            InWorker::Measuring(..) => None,
        });
        let gained = Gained {
            objects: self.objects.clone(),
            threads: gains(&self.before, &measured.collect()),
            fair: self.fair,
            isolated_for,
        };
        match self.loss.take() {
            None if gained.is_loss() => {
                self.loss = Some(gained);
                self.since = now;
                None
            }
            Some(first) if gained.threads.is_empty() => Some(Gained {
                fair: false,
                ..first
            }),
            _ => Some(gained),
        }
    }
}

/// The CPU time of these threads so far.
fn ran<'a>(process: ProcessId, threads: impl Iterator<Item = &'a ThreadId>) -> Duration {
    threads
        .filter_map(|&thread| proc::ran_for(process, thread))
        .sum()
}

/// The worker of each thread that is isolated now. The program may have written any numbers.
fn workers(control: &Control) -> BTreeMap<ThreadId, ProcessId> {
    let isolated = control
        .slots
        .iter()
        .filter(|slot| slot.state.load(Acquire) == state::ISOLATED);
    let pairs = isolated.map(|slot| {
        let (thread, worker) = (slot.thread.load(Relaxed), slot.worker.load(Relaxed));
        (ThreadId(thread), ProcessId(worker))
    });
    pairs.filter(|(_, worker)| worker.0 != 0).collect()
}

/// Begins to measure a worker; `None` if it is not one of the program's children, or can't be measured.
fn begin(process: ProcessId, worker: ProcessId) -> Option<Gauge> {
    let parent = proc::status(worker).ok()?.parent;
    (parent == process).then(|| Gauge::begin(worker, &[ThreadId(worker.0)]))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Shared;
    use std::hint::black_box;
    use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    #[test]
    fn threads_that_compute_natively_are_isolated_too_seldom_or_not() {
        let at = |ms: u64| Time(ms * 1_000_000);
        let part = |isolated_of_100: u32, ran_ms: u64| {
            let mut looks = Looks::default();
            for n in 0..100 {
                looks.add(at(10), n < isolated_of_100, || Duration::from_millis(500));
            }
            let ran = Duration::from_millis(500 + ran_ms);
            let isolated_for = looks.isolated_for(at(1010), 2, ran);
            let (objects, threads, fair) = (0..1, Vec::new(), true);
            Gained {
                objects,
                threads,
                fair,
                isolated_for,
            }
            .too_seldom()
        };
        // Of a second, two threads computed for a second and a half natively.
        assert_eq!(part(4, 1500), Some(0.04));
        assert_eq!(part(0, 1500), Some(0.0));
        assert_eq!(part(5, 1500), None);
        // They slept, and may compute later.
        assert_eq!(part(0, 400), None);
        let never = Looks::default();
        assert_eq!(never.isolated_for(at(1), 2, Duration::from_secs(1)), None);
    }

    /// What the thread of the test is told, and what it tells.
    #[derive(Default)]
    struct Told {
        id: AtomicU32,
        fork: AtomicBool,
        ends: AtomicBool,
        worker: AtomicI32,
        /// What it counts.
        number: AtomicU64,
    }

    /// Counts, each number with so much work natively and so much in a worker.
    fn count(told: &Told, natively: u64, in_worker: u64) {
        // SAFETY: takes no arguments.
        told.id
            .store(unsafe { libc::gettid() }.unsigned_abs(), Relaxed);
        let mut work = natively;
        while !told.ends.load(Relaxed) {
            for n in 0..500 * work {
                black_box(n);
            }
            told.number.fetch_add(1, Relaxed);
            if told.fork.swap(false, Relaxed) {
                // SAFETY: the child only counts, and ends with us.
                let worker = unsafe { libc::fork() };
                if worker == 0 {
                    work = in_worker;
                    // SAFETY: takes numbers.
                    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                } else {
                    told.worker.store(worker, Relaxed);
                    // As an isolated thread is parked. Two that compute may share a core, and be slower.
                    while !told.ends.load(Relaxed) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            }
        }
    }

    /// Calls `step` until it gives something.
    fn wait_for<T>(mut step: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(done) = step() {
                return done;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "it never comes");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What is measured of a thread of this process and its worker, and whether there was a second window.
    /// `None` if perf is refused.
    fn measured(natively: u64, in_worker: u64) -> Option<(Gained, bool)> {
        let told = Arc::new(Told::default());
        let its = Arc::clone(&told);
        let thread = std::thread::spawn(move || count(&its, natively, in_worker));
        let own = ProcessId(std::process::id());
        let id = wait_for(|| Some(told.id.load(Relaxed)).filter(|id| *id != 0));
        let (mut gains, shared) = (Gains::default(), Shared::new().expect("memory"));
        let bytes = || {
            // Where its frame lies is not the same in each reading.
            let at = told.number.as_ptr() as u64;
            vec![Bytes {
                thread: ThreadId(id),
                original: at,
                at,
                len: 8,
            }]
        };
        gains.expect(own, bytes);
        if matches!(gains.before, Before::Refused) {
            println!("SKIP: perf is refused");
            told.ends.store(true, Relaxed);
            thread.join().expect("it counts");
            return None;
        }
        let now = || sunder_observe::monotonic_now();
        wait_for(|| {
            assert!(gains.read(own, &shared, now()).is_empty());
            gains.is_ready().then_some(())
        });
        gains.isolated(2..4, now());
        // On a busy machine it had to wait, which does not matter here.
        gains.open[0].fair = true;
        told.fork.store(true, Relaxed);
        let worker = wait_for(|| Some(told.worker.load(Relaxed)).filter(|worker| *worker != 0));
        let slot = &shared.slots[1];
        slot.thread.store(id, Relaxed);
        // The first process is no child of ours.
        slot.worker.store(1, Relaxed);
        slot.state.store(state::ISOLATED, Relaxed);
        assert!(gains.read(own, &shared, now()).is_empty());
        assert!(gains.open[0].isolated.is_empty());
        slot.worker.store(worker.unsigned_abs(), Relaxed);
        let mut again = false;
        let mut known = wait_for(|| {
            let known = gains.read(own, &shared, now());
            again |= gains.open.iter().any(|open| open.loss.is_some());
            (!known.is_empty()).then_some(known)
        });
        told.ends.store(true, Relaxed);
        thread.join().expect("it counts");
        // SAFETY: it is a child of ours, and takes no pointers but null.
        unsafe {
            libc::kill(worker, libc::SIGKILL);
            libc::waitpid(worker, std::ptr::null_mut(), 0);
        }
        let gained = known.pop().expect("one");
        assert!(known.is_empty() && !gains.is_measuring());
        assert_eq!(gained.objects, 2..4);
        assert!(gained.threads.iter().all(|one| one.0 == ThreadId(id)));
        Some((gained, again))
    }

    /// The same, until all windows had a value that counts progress: beside other tests, the thread may run
    /// too unevenly. `None` if perf is refused.
    fn measured_well(natively: u64, in_worker: u64) -> Option<(Gained, bool)> {
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock();
        for _ in 0..50 {
            let (gained, again) = measured(natively, in_worker)?;
            if gained.fair && !gained.threads.is_empty() {
                return Some((gained, again));
            }
        }
        panic!("the thread was never measured");
    }

    #[test]
    fn a_threads_progress_is_compared_with_that_of_its_worker() {
        let Some((gained, again)) = measured_well(8, 1) else {
            return;
        };
        let ratio = gained.threads[0].1.ratio;
        // The machine may run one of them at half of its speed.
        assert!((3.0..24.0).contains(&ratio), "{ratio}");
        assert!(!again && !gained.is_loss());
    }

    #[test]
    fn a_loss_is_believed_the_second_time() {
        let Some((gained, again)) = measured_well(1, 8) else {
            return;
        };
        let ratio = gained.threads[0].1.ratio;
        assert!((1.0 / 24.0..1.0 / 3.0).contains(&ratio), "{ratio}");
        assert!(again && gained.is_loss());
    }
}
