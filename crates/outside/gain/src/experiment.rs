//! Chooses which thread is compared when, and keeps what came of it. Driven by the loop of `live`;
//! `outcome` makes the gains of findings of it. It must not hold a thread between two steps.

use crate::clocks::Clocks;
use crate::gauge::Bytes;
use crate::slice::{Compared, Reading, compare};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use sunder_access::{ProcessId, ThreadId};
use sunder_findings::Findings;
use sunder_live::{Live, LiveRemedy, Loaded, Stage};
use sunder_observe::launch::Child;
use sunder_observe::{ObserveError, monotonic_now};
use sunder_plan::gain::LEAST_COMPARISONS;
use sunder_sharing::{Confidence, Sharing, ThreadTime, Verdict};

/// Pause between two comparisons: the phases of a program get their part, and threads are held for a
/// small share of the time only.
const PAUSE: Duration = Duration::from_millis(30);
/// The same before [`FEWEST`] comparisons are made: a short run has a figure, too.
const SHORT_PAUSE: Duration = Duration::from_millis(10);
/// One part of so many of the time goes into looking at what is contended.
const TO_LOOK: u32 = 50;
/// So many comparisons of two threads give a figure.
const FEWEST: usize = 6;
/// The same once every thread was compared [`MANY`] times.
const LONG_PAUSE: Duration = Duration::from_millis(400);
/// So many comparisons of a thread tell its gain well.
const MANY: usize = 8;
/// The most threads that are stopped at a time.
pub(crate) const MOST_RIVALS: usize = 64;
/// A thread that loses a smaller share of its time is left alone.
const LEAST_COST: f64 = 0.01;
/// After this long, samples alone are enough to know a contended line.
const FOR_CONFIRMATION: Duration = Duration::from_millis(250);
/// A line that was not touched for this long is not contended now.
const RECENT: Duration = Duration::from_millis(200);

/// How much of the program's time may be spent on measuring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// Little: no thread is held for more than a small share of the time ([`Effort::may_hold`]).
    Little,
    /// As much as makes the figures better.
    #[default]
    Much,
}

impl Effort {
    /// For how long a thread may have been held when so much of the run is over.
    ///
    /// A thread whose rivals are held gets on better, so the program loses less than this; nothing at
    /// all where two threads make each other slower by half.
    pub(crate) fn may_hold(self, elapsed: Duration) -> Duration {
        /// Enough for the least number of comparisons, so that short runs have a figure too.
        const AT_ONCE: Duration = Duration::from_millis(30);
        /// One part of so many.
        const SHARE: u32 = 25;
        match self {
            Self::Little => AT_ONCE + elapsed / SHARE,
            Self::Much => Duration::MAX,
        }
    }

    /// How the progress of a thread is read after so many vain readings in this way.
    fn next(self, reading: Reading, vain: usize) -> Reading {
        match self {
            // There is no time for the way between.
            Self::Little => Reading::Memory,
            Self::Much if vain.is_multiple_of(2) => reading.next(),
            Self::Much => reading,
        }
    }

    /// After so many comparisons without an outcome, a thread is left alone. While one side of a queue is
    /// held, the other waits, and the program loses the whole time.
    const fn most_vain(self) -> usize {
        match self {
            Self::Little => 3,
            Self::Much => 6,
        }
    }

    /// The most threads that are compared: of many that do the same, some tell enough.
    const fn most_threads(self) -> usize {
        match self {
            Self::Little => 2,
            Self::Much => 8,
        }
    }
}

/// Comparisons of one thread.
#[derive(Clone, Debug, Default)]
pub struct Comparisons {
    /// How many times as fast it got on without its rivals, each time.
    pub ratios: Vec<f64>,
    /// Comparisons without an outcome.
    pub vain: usize,
    /// How its progress is read.
    reading: Reading,
}

/// Compares the progress of contending threads with and without their rivals.
#[derive(Default)]
pub struct Experiment {
    effort: Effort,
    process: Option<ProcessId>,
    next: Duration,
    /// By thread.
    pub(crate) compared: BTreeMap<ThreadId, Comparisons>,
    pub(crate) clocks: Clocks,
    /// For how long each thread was held.
    held: BTreeMap<ThreadId, Duration>,
    /// Why nothing is compared any more, if so.
    pub(crate) refused: Option<String>,
    /// Comparisons that could not be made at the moment.
    pub(crate) missed: usize,
    /// Comparisons that say nothing because the thread waited for its rivals.
    pub(crate) waits: usize,
    /// Comparisons that were not made because the thread's rivals did not run beside it.
    pub(crate) unopposed: usize,
    /// The threads with which each one was seen to contend.
    rivals: BTreeMap<ThreadId, BTreeSet<ThreadId>>,
    /// The share of each thread's time in which one of these ran beside it.
    pub(crate) opposed: BTreeMap<ThreadId, f64>,
    /// Whether threads were left alone because too many contend with them.
    pub(crate) too_many: bool,
    /// Threads of the program were stopped. `ptrace` reports the program's end too, so it must be
    /// asked of `sunder_stop`.
    stops: bool,
}

impl LiveRemedy for Experiment {
    fn load(&self) -> Option<Loaded> {
        None
    }

    fn begins(&mut self, process: ProcessId) -> Result<()> {
        self.process = Some(process);
        Ok(())
    }

    fn step(&mut self, live: &mut Live) {
        let Some(process) = self.process else { return };
        if self.stops {
            // A thread that did not stop in time is let go on as soon as it has stopped.
            let _ = sunder_stop::exit(process);
        }
        let elapsed = live.elapsed();
        if elapsed < self.next || live.first_suspect.is_none() || self.refused.is_some() {
            return;
        }
        let begun = Instant::now();
        let may_hold = self.longest_held() < self.effort.may_hold(elapsed);
        // Where many threads take turns on few processors, watchpoints seldom meet two of them.
        let in_time = elapsed < live.first_suspect.unwrap_or_default() + FOR_CONFIRMATION;
        let unwatched = live.watch_refused.is_some() || !in_time;
        let judge = &mut live.session.process(process).judge;
        let times = judge.thread_time();
        let now = monotonic_now();
        let mut all = judge.verdicts();
        all.retain(|v| now.since(v.last) < RECENT);
        let mut verdicts = all.clone();
        verdicts.retain(|v| {
            let sure = v.confirmed || unwatched && v.confidence() >= Confidence::Sampled;
            // No layout takes true sharing away: no thread is held for it.
            sure && v.sharing != Sharing::True
        });
        let contending = contending(&verdicts, &times);
        verdicts.retain(|v| v.threads.iter().any(|t| contending.contains(&t.thread)));
        self.clocks.look(&times, &verdicts, now);
        self.note_rivals(&verdicts);
        let pause = match self.comparisons() {
            ..FEWEST => SHORT_PAUSE,
            _ => PAUSE,
        };
        // Of a program with very many contended lines, verdicts take their time.
        self.next = elapsed + pause.max(begun.elapsed() * TO_LOOK);
        if !may_hold {
            return;
        }
        let Some(subject) = self.next_subject(&verdicts) else {
            return;
        };
        if self
            .compared
            .get(&subject)
            .is_some_and(|c| c.ratios.len() >= MANY)
        {
            self.next = self.next.max(elapsed + LONG_PAUSE);
        }
        // Of many lines of one object, few are known for sure, and the thread contends for all.
        let rivals = rivals(&all, subject);
        if rivals.is_empty() || rivals.len() > MOST_RIVALS {
            self.too_many |= !rivals.is_empty();
            return;
        }
        self.stops = true;
        live.note(Stage::Measuring);
        let own = own_bytes(&all, subject);
        // What shows the progress of one thread mostly shows that of others.
        let mut others = self.compared.values();
        let reading = others.find(|c| !c.ratios.is_empty()).map(|c| c.reading);
        let compares = self.compared.entry(subject).or_insert_with(|| Comparisons {
            reading: reading.unwrap_or_default(),
            ..Comparisons::default()
        });
        let (compared, held) = compare(process, subject, &rivals, &own, compares.reading);
        for rival in rivals {
            *self.held.entry(rival).or_default() += held;
        }
        match compared {
            Compared::Ratio(ratio) => compares.ratios.push(ratio),
            Compared::NoClock => {
                compares.vain += 1;
                if compares.ratios.is_empty() {
                    compares.reading = self.effort.next(compares.reading, compares.vain);
                }
            }
            Compared::Waits => {
                compares.vain += 1;
                self.waits += 1;
            }
            Compared::Unopposed => self.unopposed += 1,
            Compared::NotNow => self.missed += 1,
            Compared::Refused(why) => self.refused = Some(why),
        }
    }

    fn ended(&mut self, live: &mut Live) {
        if let Some(process) = self.process {
            let times = live.session.process(process).judge.thread_time();
            self.clocks.end(&times);
            for (&thread, rivals) in &self.rivals {
                let share = live.session.share_beside(thread, rivals.iter().copied());
                self.opposed.extend(share.map(|share| (thread, share)));
            }
            if self.stops {
                sunder_stop::let_go(process);
            }
        }
    }

    fn measured(&self) -> Option<String> {
        serde_json::to_string(&self.outcome()).ok()
    }

    fn complete(&self, result: &mut Findings) {
        self.outcome().fill(result);
    }

    fn collect(&mut self, child: &mut Child) -> Result<Option<ExitStatus>, ObserveError> {
        match self.process.filter(|_| self.stops) {
            Some(process) => Ok(sunder_stop::exit(process).map(ExitStatus::from_raw)),
            None => child.try_wait(),
        }
    }
}

impl Experiment {
    /// An experiment for a process that runs already.
    pub fn of(process: ProcessId, effort: Effort) -> Self {
        Self {
            process: Some(process),
            ..Self::of_command(effort)
        }
    }

    /// An experiment for a command: [`LiveRemedy::begins`] tells the process.
    pub fn of_command(effort: Effort) -> Self {
        Self {
            effort,
            ..Self::default()
        }
    }

    fn note_rivals(&mut self, contended: &[Verdict]) {
        /// Where more contend, there is mostly one of them beside a thread.
        const MOST: usize = 256;
        for verdict in contended {
            let all = || verdict.threads.iter().map(|one| one.thread);
            for thread in all().take(MOST) {
                let known = self.rivals.entry(thread).or_default();
                known.extend(all().filter(|&other| other != thread).take(MOST));
            }
        }
    }

    /// Comparisons with an outcome.
    fn comparisons(&self) -> usize {
        self.compared.values().map(|c| c.ratios.len()).sum()
    }

    /// For how long the thread that was held longest was held.
    pub(crate) fn longest_held(&self) -> Duration {
        self.held.values().copied().max().unwrap_or_default()
    }

    /// The thread that was compared least, of those that lose most.
    fn next_subject(&self, verdicts: &[Verdict]) -> Option<ThreadId> {
        let mut lost: BTreeMap<ThreadId, f64> = BTreeMap::new();
        for one in verdicts.iter().flat_map(|v| &v.threads) {
            *lost.entry(one.thread).or_default() += one.lost_ns;
        }
        let compared = |thread| {
            let known = self.compared.get(&thread);
            known.map_or((0, 0), |c| (c.ratios.len(), c.vain))
        };
        let mut open: Vec<(ThreadId, f64)> = lost.into_iter().collect();
        open.retain(|&(thread, _)| {
            let (found, vain) = compared(thread);
            found > 0 || vain < self.effort.most_vain()
        });
        open.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        // Three comparisons of one thread tell more than one of each of three.
        open.sort_by_key(|(thread, _)| !self.compared.contains_key(thread));
        open.truncate(self.effort.most_threads());
        let so_far = |thread| {
            let (found, vain) = compared(thread);
            found + vain
        };
        let is_begun = |thread| {
            let tries = 1..2 * LEAST_COMPARISONS;
            compared(thread).0 < LEAST_COMPARISONS && tries.contains(&so_far(thread))
        };
        let open = || open.iter().map(|t| t.0);
        let begun = open().filter(|&thread| is_begun(thread));
        begun
            .max_by_key(|&thread| so_far(thread))
            .or_else(|| open().min_by_key(|&thread| so_far(thread)))
    }
}

/// The threads that lose much on these lines together: an object of many lines costs little on each.
fn contending(verdicts: &[Verdict], times: &[ThreadTime]) -> BTreeSet<ThreadId> {
    let mut lost: BTreeMap<ThreadId, f64> = BTreeMap::new();
    for one in verdicts.iter().flat_map(|v| &v.threads) {
        *lost.entry(one.thread).or_default() += one.lost_ns;
    }
    let much = times.iter().filter(|time| {
        let lost = lost.get(&time.thread).copied().unwrap_or(0.0);
        lost > 0.0 && lost >= LEAST_COST * time.cpu_ns as f64
    });
    much.map(|time| time.thread).collect()
}

/// The threads that contend with `subject`.
fn rivals(verdicts: &[Verdict], subject: ThreadId) -> Vec<ThreadId> {
    let with = |v: &&Verdict| v.threads.iter().any(|t| t.thread == subject);
    let all = verdicts.iter().filter(with).flat_map(|v| &v.threads);
    let mut all: Vec<ThreadId> = all.map(|t| t.thread).filter(|&t| t != subject).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Bytes of contended lines that only `subject` was seen to use, and that it writes.
fn own_bytes(verdicts: &[Verdict], subject: ThreadId) -> Vec<Bytes> {
    let words = verdicts
        .iter()
        .flat_map(|v| v.words.iter().map(move |word| (v.line.0, word)));
    let own = words.filter_map(|(line, word)| match &word.threads[..] {
        [only] if only.thread == subject && only.writes + only.updates > 0 => {
            let at = line + u64::from(word.offset);
            Some(Bytes {
                thread: subject,
                original: at,
                at,
                len: word.size.into(),
            })
        }
        _ => None,
    });
    own.collect()
}
