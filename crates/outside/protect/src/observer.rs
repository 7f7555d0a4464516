//! `sunder detect --observer isolate`: SHERIFF-DETECT (sections 4 and 4.7). Threads are isolated
//! while they compute, as by `protect`; pages that two of them write become private, and commits
//! find what each thread changed in an interval. What is seen goes into the one pipeline, through
//! [`Tap`]. See `docs/design/observe.md`.

mod tap;

pub use tap::Tap;

use crate::commits::CommitLog;
use crate::keeper::Keeper;
use crate::report::closed_because;
use crate::shared::{Shared, loaded};
use anyhow::{Context, Result};
use std::cell::{Cell, RefCell};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use sunder_access::{PAGE, ProcessId, Span};
use sunder_findings::{Finding, Findings, Limit, PrivatePage};
use sunder_guests::MemoryFile;
use sunder_live::{
    Chosen, Live, LiveRemedy, Loaded, Observation, ObserverChoice, Opened, observe_with,
};
use sunder_observe::launch::Child;
use sunder_observe::{ObserveError, proc};
use sunder_stop::Collector;
use sunder_wire::isolation::why;
use sunder_wire::tracking::{mode, page};

/// Commits a second, unless `--frequency` says otherwise: SHERIFF's sampling interval of
/// 10 ms (section 4.3).
const FREQUENCY: u32 = 100;
/// Intervals in a cycle: SHERIFF looks for shared pages in the first 50 of every 1,000 intervals
/// (section 4.7). `--sampled` changes the 50.
pub const CYCLE: u32 = 1000;
/// Intervals of each [`CYCLE`] in which shared pages are looked for.
pub const SAMPLED: u32 = 50;

/// Runs the program under this observer, whichever one `what` names. It looks for shared pages in
/// `sampled` of [`CYCLE`] intervals.
///
/// # Errors
/// If the program could not be started.
pub fn observe(what: &Observation, sampled: u32) -> Result<(Findings, ExitStatus)> {
    let shared = Rc::new(Shared::new()?);
    shared.tracking.mode.store(mode::DETECT, Relaxed);
    shared.tracking.cycle.store(CYCLE, Relaxed);
    shared.tracking.sampled.store(sampled, Relaxed);
    let log = Rc::new(RefCell::new(CommitLog::new(Rc::clone(&shared))));
    let mut observer = IsolateObserver {
        log: Rc::clone(&log),
        library: MemoryFile::isolate().context("cannot make the library available")?,
        shared,
        process: Rc::default(),
        frequency: what.options.frequency.unwrap_or(FREQUENCY),
        more_than_usual: sampled > SAMPLED || what.options.frequency > Some(FREQUENCY),
        keeper: None,
        collector: None,
    };
    let mut what = Observation {
        observer: ObserverChoice::Isolate,
        ..what.clone()
    };
    // No watchpoints: they would be set on the thread, which is parked during an episode.
    what.options.watch_budget = 0.0;
    let (mut findings, exit) = observe_with(&what, &mut observer)?;
    let ledger = &log.borrow().ledger;
    let pages = ledger.pages(&observer.shared);
    for finding in &mut findings.findings {
        finding.private_pages = private_pages_of(finding, &pages);
    }
    Ok((findings, exit))
}

/// The private pages on which a finding's lines lie, with its names of threads.
fn private_pages_of(finding: &Finding, pages: &[PrivatePage]) -> Vec<PrivatePage> {
    let is_on = |page: &&PrivatePage| {
        let page = Span::new(page.address, PAGE);
        finding.lines.iter().any(|l| page.contains(l.address))
    };
    let threads = finding.threads();
    let named = |mut page: PrivatePage| {
        for writer in &mut page.threads {
            let known = threads.iter().find(|t| t.id == writer.id);
            writer.name = known.and_then(|t| t.name.clone());
        }
        page
    };
    pages.iter().filter(is_on).cloned().map(named).collect()
}

/// Isolates threads in order to observe them.
struct IsolateObserver {
    library: MemoryFile,
    shared: Rc<Shared>,
    log: Rc<RefCell<CommitLog>>,
    /// The program's process, once it is known.
    process: Rc<Cell<Option<ProcessId>>>,
    /// Commits a second.
    frequency: u32,
    /// More commits or periods are asked for than usual, whatever that costs.
    more_than_usual: bool,
    keeper: Option<Keeper>,
    collector: Option<Collector>,
}

impl Drop for IsolateObserver {
    fn drop(&mut self) {
        // The collector first: it reaps threads that the keeper stops.
        self.collector.take();
    }
}

impl LiveRemedy for IsolateObserver {
    fn load(&self) -> Option<Loaded> {
        Some(loaded(&self.library, &self.shared))
    }

    fn observer(&self) -> Option<Opened> {
        let chosen = Chosen {
            name: "isolate",
            frequencies: (self.frequency, self.frequency),
        };
        let log = Rc::clone(&self.log);
        let tap = Tap::new(Rc::clone(&self.shared), log, Rc::clone(&self.process));
        Some((Box::new(tap), chosen))
    }

    fn begins(&mut self, process: ProcessId) -> Result<()> {
        self.process.set(Some(process));
        let process = process.0 as i32;
        let interval = 1_000_000 / self.frequency.max(1);
        let mut keeper = Keeper::with_tick(Rc::clone(&self.shared), interval, process);
        if self.more_than_usual {
            keeper.whatever_it_costs();
        }
        self.keeper = Some(keeper);
        let collector = Collector::start(process).context("cannot start a thread")?;
        self.collector = Some(collector);
        Ok(())
    }

    fn step(&mut self, live: &mut Live) {
        let Some(keeper) = &mut self.keeper else {
            return;
        };
        // Names come from the mappings as they are before memory is made sharable.
        if keeper.shared.conversions.load(Relaxed) == 0 && keeper.is_open() {
            let process = ProcessId(keeper.process().unsigned_abs());
            let several = proc::threads(process).is_ok_and(|threads| threads.len() > 1);
            if several && let Ok(mappings) = proc::mappings(process) {
                live.session.set_mappings(process, mappings);
            }
        }
        keeper.turn();
    }

    fn limits(&self) -> Vec<Limit> {
        let mut limits = vec![Limit::WritesOnly];
        let Some(keeper) = &self.keeper else {
            return limits;
        };
        let control = &keeper.shared;
        let closed = closed_because(control);
        let episodes: u64 = control
            .returns
            .iter()
            .enumerate()
            .filter(|(i, _)| !matches!(*i as u32, 0 | why::NO_WORKER | why::NO_MEMORY))
            .map(|(_, count)| count.load(Relaxed))
            .fold(0, u64::saturating_add);
        match (keeper.refusal().or(closed), episodes) {
            (Some(why), 0) => limits.push(Limit::NothingIsolated {
                why: Some(why.to_string()),
            }),
            (Some(why), _) => limits.push(Limit::IsolationEnded {
                why: why.to_string(),
            }),
            (None, 0) => limits.push(Limit::NothingIsolated { why: None }),
            (None, _) => {}
        }
        if let (None, Some((times, percent))) = (keeper.refusal(), keeper.too_much()) {
            limits.push(Limit::IsolationPaused { times, percent });
        }
        let tracking = &control.tracking;
        let left_out = tracking.left_out.load(Relaxed);
        if left_out > 0 {
            limits.push(Limit::PagesBeyondTable(left_out));
        }
        let handed_over = tracking.in_state(page::HANDED_OVER).count() as u64;
        if handed_over > 0 {
            limits.push(Limit::PagesHandedOver(handed_over));
        }
        let lost = tracking
            .lost
            .load(Relaxed)
            .saturating_add(self.log.borrow().lost());
        if lost > 0 {
            limits.push(Limit::ChangesLost(lost));
        }
        limits
    }

    fn patience(&self) -> Option<Duration> {
        self.keeper.as_ref().map(Keeper::look)
    }

    fn collect(&mut self, child: &mut Child) -> Result<Option<ExitStatus>, ObserveError> {
        match &mut self.keeper {
            Some(keeper) => Ok(keeper.exit().map(ExitStatus::from_raw)),
            None => child.try_wait(),
        }
    }
}
