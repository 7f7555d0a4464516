//! The processes that a program starts, where it is a script or another program that has the work done by
//! others: each that computes with several threads is repaired from outside, as `sunder attach --repair`
//! does it (`attach`), by a thread of ours. Used by [`crate::follow`]. It must not touch the program that was
//! started itself, which has a repairer of its own, and must not end anything.

use crate::attach;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sunder_access::{ProcessId, Span};
use sunder_findings::Shown;
use sunder_live::ObserveOptions;
use sunder_observe::launch::Blocked;
use sunder_observe::proc;

/// Pause between two looks for processes.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Of this much time, looks take one part at most.
const LOOKING_IS_ONE_IN: u32 = 50;
/// The most processes that one look goes through. Further ones are met when others have ended.
const MOST_LISTED: usize = 4096;
/// The most processes that are repaired at a time: each has a thread of ours, samples and a shared file.
const MOST_AT_ONCE: usize = 8;
/// CPU time that a process uses with several threads before it is worth a repair: what ends sooner would be
/// delayed by it. Clock ticks are 10 ms.
const WORTH_IT: Duration = Duration::from_millis(20);
/// The most processes of which is said what was found in them; the others are counted.
const MOST_TOLD: usize = 20;

/// Reasons beyond this number are not kept apart.
const MOST_REASONS: usize = 20;

/// What was found in one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// The process.
    pub process: ProcessId,
    /// The file name of its program.
    pub name: String,
    /// What was found, as lines for people; none if nothing was.
    pub lines: Vec<String>,
}

/// Why a process could not be repaired: it is left alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// The file name of its program.
    pub name: String,
    /// Why, as a sentence about "it".
    pub why: String,
}

/// What became of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllFollowed {
    /// How many were looked at in which nothing was found.
    pub nothing: usize,
    /// In which something was found, as many as a reader wants to see.
    pub told: Vec<Followed>,
    /// Of how many more that is true.
    pub more: usize,
    /// Which were left alone: one of each kind, and how many.
    pub refused: BTreeMap<Refused, (ProcessId, usize)>,
}

impl AllFollowed {
    /// `process` was looked at; with `Err` it was left alone.
    fn add(&mut self, process: ProcessId, became: Result<Followed, Refused>) {
        match became {
            Ok(one) if one.lines.is_empty() => self.nothing += 1,
            Ok(one) if self.told.len() < MOST_TOLD => self.told.push(one),
            Ok(_) => self.more += 1,
            Err(mut refused) => {
                if self.refused.len() >= MOST_REASONS && !self.refused.contains_key(&refused) {
                    refused.why = "it can't be repaired".into();
                    refused.name = "other programs".into();
                }
                self.refused.entry(refused).or_insert((process, 0)).1 += 1;
            }
        }
    }
}

/// How processes are repaired.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Only say what would be moved.
    pub dry_run: bool,
    /// How to observe.
    pub observe: ObserveOptions,
}

/// Looks for processes below a program, and repairs them, until this is ended or dropped.
#[derive(Debug)]
pub struct Descendants {
    end: Arc<AtomicBool>,
    watcher: Option<JoinHandle<AllFollowed>>,
}

impl Descendants {
    /// Begins to look for what `root` starts.
    ///
    /// # Errors
    /// If the thread can't be started.
    pub fn of(root: ProcessId, how: How) -> io::Result<Self> {
        let end = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&end);
        // Signals are for the first thread.
        let _blocked = Blocked::all();
        let watcher = std::thread::Builder::new().spawn(move || {
            let mut search = Search::new(root, how, told);
            search.run();
            search.finish()
        })?;
        Ok(Self {
            end,
            watcher: Some(watcher),
        })
    }

    /// Ends all repairs: what lives on gets its bytes back. Says what became of each process.
    pub fn end(mut self) -> AllFollowed {
        self.join()
    }

    fn join(&mut self) -> AllFollowed {
        self.end.store(true, Ordering::Relaxed);
        let Some(watcher) = self.watcher.take() else {
            return AllFollowed::default();
        };
        watcher.thread().unpark();
        watcher.join().unwrap_or_default()
    }
}

impl Drop for Descendants {
    fn drop(&mut self) {
        self.join();
    }
}

/// A process that was looked at, and what became of it.
type Became = (ProcessId, Result<Followed, Refused>);

/// A program that a process executes. The number of a process may be given to another, and a process may execute
/// another program, or the same one again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    process: ProcessId,
    /// When the process began, in clock ticks since the machine did.
    began: u64,
    /// The file of the program; none if we may not know it.
    file: Option<PathBuf>,
    /// Where its arguments lie, which is elsewhere for each program if addresses are random.
    arguments: Option<Span>,
}

impl Key {
    /// `None` if the process has ended.
    fn of(process: ProcessId) -> Option<Self> {
        Some(Self {
            process,
            began: proc::start_ticks(process)?,
            file: proc::executable(process).ok(),
            arguments: proc::arguments(process),
        })
    }
}

/// A repair that goes on, or whose result has not been taken yet.
struct Running {
    process: ProcessId,
    thread: JoinHandle<Option<Became>>,
}

struct Search {
    root: ProcessId,
    how: How,
    end: Arc<AtomicBool>,
    /// Programs with several threads: the CPU time of their process when they were first seen so; `None` once
    /// they are repaired or were.
    seen: HashMap<Key, Option<Duration>>,
    running: Vec<Running>,
    done: AllFollowed,
}

impl Search {
    fn new(root: ProcessId, how: How, end: Arc<AtomicBool>) -> Self {
        Self {
            root,
            how,
            end,
            seen: HashMap::new(),
            running: Vec::new(),
            done: AllFollowed::default(),
        }
    }

    fn run(&mut self) {
        while !self.end.load(Ordering::Relaxed) {
            let begun = Instant::now();
            self.look();
            std::thread::park_timeout(LOOK_EVERY.max(begun.elapsed() * LOOKING_IS_ONE_IN));
        }
    }

    fn look(&mut self) {
        self.collect();
        let below = below(self.root);
        let mut now = HashMap::new();
        for process in below {
            let Some(key) = Key::of(process) else {
                continue;
            };
            let known = self.seen.remove(&key);
            let Some(known) = known.map_or_else(|| at_first(process), Some) else {
                continue;
            };
            let is_worth_it = || {
                let used = proc::own_cpu_time(process);
                known.is_some_and(|first| used.is_some_and(|used| used >= first + WORTH_IT))
            };
            // The repair of the program that it executed before may not have ended yet.
            let is_free = self.running.iter().all(|one| one.process != process);
            let is_room = is_free && self.running.len() < MOST_AT_ONCE;
            let begins = is_room && is_worth_it() && self.begin(process);
            now.insert(key, known.filter(|_| !begins));
        }
        self.seen = now;
    }

    /// Begins to repair a process. Returns whether it has begun.
    fn begin(&mut self, process: ProcessId) -> bool {
        let (how, end) = (self.how, Arc::clone(&self.end));
        let thread = std::thread::Builder::new().spawn(move || repair(process, how, &end));
        let begun = thread.is_ok();
        self.running
            .extend(thread.map(|thread| Running { process, thread }));
        begun
    }

    /// Takes the results of the repairs that have ended.
    fn collect(&mut self) {
        let ended = self.running.extract_if(.., |one| one.thread.is_finished());
        let ended: Vec<_> = ended.collect();
        self.keep(ended);
    }

    fn keep(&mut self, ended: Vec<Running>) {
        for one in ended {
            if let Some((process, became)) = one.thread.join().ok().flatten() {
                self.done.add(process, became);
            }
        }
    }

    fn finish(mut self) -> AllFollowed {
        let running = std::mem::take(&mut self.running);
        self.keep(running);
        self.done
    }
}

/// The CPU time of a process that has several threads; `None` if it has one.
fn at_first(process: ProcessId) -> Option<Option<Duration>> {
    let threads = proc::listed_threads(process).ok()?;
    (threads.len() > 1).then(|| proc::own_cpu_time(process))
}

/// The processes that `root` has started, and those that these have, as far as their parents live.
fn below(root: ProcessId) -> Vec<ProcessId> {
    let mut found = Vec::new();
    let mut next = 0;
    let mut parent = root;
    loop {
        for thread in proc::listed_threads(parent).unwrap_or_default() {
            found.extend(proc::children(parent, thread));
        }
        let Some(&process) = found.get(next).filter(|_| next < MOST_LISTED) else {
            return found;
        };
        (parent, next) = (process, next + 1);
    }
}

/// Repairs a process until it ends, executes another program or `end` says so; `None` if it had ended before that
/// began.
fn repair(process: ProcessId, how: How, end: &AtomicBool) -> Option<Became> {
    let program = Key::of(process)?;
    let path = program.file.as_ref()?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = Shown(&name).to_string();
    let options = attach::Options {
        process,
        duration: None,
        dry_run: how.dry_run,
        chaos: None,
        observe: how.observe,
        threshold: None,
        show: None,
    };
    let goes_on = || !end.load(Ordering::Relaxed) && Key::of(process).as_ref() == Some(&program);
    let lines = match attach::run_while(&options, &goes_on) {
        Ok(done) if done.any_found() => done.lines,
        Ok(_) => Vec::new(),
        Err(_) if !proc::is_alive(process) => return None,
        Err(error) => {
            let why = about_it(&format!("{error:#}"), process);
            return Some((process, Err(Refused { name, why })));
        }
    };
    let followed = Followed {
        process,
        name,
        lines,
    };
    Some((process, Ok(followed)))
}

/// The sentence without the number of `process`, so that it is the same for others.
fn about_it(why: &str, process: ProcessId) -> String {
    let named = format!("process {process}");
    let mut parts = why.split(&named);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // The number of another one may begin with the same digits.
        let is_longer = part.starts_with(|c: char| c.is_ascii_digit());
        text += if is_longer { &named } else { "it" };
        text += part;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_are_left_alone_for_one_reason_are_counted() {
        let mut all = AllFollowed::default();
        let why = |number| format!("process {number} is traced by process 71");
        for number in [7, 8, 9] {
            let process = ProcessId(number);
            let why = about_it(&why(number), process);
            let name = "cc".to_owned();
            all.add(process, Err(Refused { name, why }));
        }
        let (refused, count) = all.refused.iter().next().expect("there is one");
        // Of another process whose number begins in the same way nothing is left out.
        assert_eq!(refused.why, "it is traced by process 71");
        assert_eq!(*count, (ProcessId(7), 3));
        for number in 0..1000 {
            let name = number.to_string();
            let why = "it is too large".into();
            all.add(ProcessId(number), Err(Refused { name, why }));
        }
        assert_eq!(all.refused.len(), MOST_REASONS + 1);
        let counted: usize = all.refused.values().map(|(_, count)| count).sum();
        assert_eq!(counted, 1003);
    }
}
