//! `sunder protect --eager`: SHERIFF-PROTECT's own policy (section 5). From the first thread on,
//! every page that two threads write becomes private if small objects lie on it, whether or not the
//! sharing costs anything. Called by [`crate::run`]. The library inside the program finds the pages
//! (`sunder_wire::tracking`); what is done with them is decided here.

use super::commits::{CommitLog, Stream};
use super::keeper::Keeper;
use super::options::Options;
use super::outcome::{Outcome, outcome};
use super::shared::{Shared, loaded};
use crate::observer::{CYCLE, SAMPLED, Tap};
use anyhow::{Context, Result};
use std::cell::RefCell;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;
use sunder_access::{Address, Mapping, Mappings, PAGE, ProcessId};
use sunder_guests::MemoryFile;
use sunder_live::{
    Chosen, Live, LiveRemedy, Loaded, Observation, ObserverChoice, Opened, run_observed,
};
use sunder_observe::launch::Child;
use sunder_observe::{ObserveError, proc};
use sunder_pipeline::Process;
use sunder_stop::Collector;
use sunder_wire::tracking::{mode, page};

/// Pages with an object smaller than this, in bytes, become private; others stay shared (SHERIFF,
/// section 5).
const SMALL: u64 = 1024;

/// Runs the program to its end.
///
/// # Errors
/// If the program can't be started or a file can't be made.
pub fn run(options: &Options, stream: Option<Stream>) -> Result<Outcome> {
    let shared = Rc::new(Shared::new()?);
    shared.tracking.mode.store(mode::EAGER, Relaxed);
    shared.tracking.cycle.store(CYCLE, Relaxed);
    shared.tracking.sampled.store(SAMPLED, Relaxed);
    let mut protector = Protector {
        library: MemoryFile::isolate().context("cannot make the library available")?,
        shared,
        options,
        stream,
        keeper: None,
        collector: None,
    };
    let mut what = Observation {
        observer: ObserverChoice::Isolate,
        ..options.observation()
    };
    what.options.watch_budget = 0.0;
    let done = run_observed(&what, &mut protector);
    drop(protector.collector.take());
    let exit = done?.exit();
    Ok(match &mut protector.keeper {
        Some(keeper) => outcome(keeper, &[], None, None, exit),
        None => Outcome::nothing(exit),
    })
}

/// Isolates what two threads write; no observer judges it.
struct Protector<'a> {
    options: &'a Options,
    library: MemoryFile,
    shared: Rc<Shared>,
    /// Where commits are written, until the keeper has it.
    stream: Option<Stream>,
    keeper: Option<Keeper>,
    collector: Option<Collector>,
}

impl LiveRemedy for Protector<'_> {
    fn load(&self) -> Option<Loaded> {
        Some(loaded(&self.library, &self.shared))
    }

    fn observer(&self) -> Option<Opened> {
        let chosen = Chosen {
            name: "isolate",
            frequencies: (1, 1),
        };
        // A tap that knows no process takes nothing: the keeper takes the commits.
        let log = Rc::new(RefCell::new(CommitLog::new(Rc::clone(&self.shared))));
        let tap = Tap::new(Rc::clone(&self.shared), log, Rc::default());
        Some((Box::new(tap), chosen))
    }

    fn begins(&mut self, process: ProcessId) -> Result<()> {
        let process = process.0 as i32;
        let mut keeper = Keeper::new(Rc::clone(&self.shared), self.options, process);
        keeper.write_log_to(self.stream.take());
        self.keeper = Some(keeper);
        let collector = Collector::start(process).context("cannot start a thread")?;
        self.collector = Some(collector);
        Ok(())
    }

    fn step(&mut self, live: &mut Live) {
        let Some(keeper) = &mut self.keeper else {
            return;
        };
        let root = ProcessId(keeper.process().unsigned_abs());
        // Objects are looked up in the mappings as they were before memory is made sharable.
        if keeper.shared.conversions.load(Relaxed) == 0
            && keeper.is_open()
            && let Ok(mappings) = proc::mappings(root)
        {
            live.session.set_mappings(root, mappings);
        }
        keeper.turn();
        let tracking = &keeper.shared.tracking;
        for (place, shared) in tracking.shared_pages() {
            if shared.state.load(SeqCst) == page::OPEN {
                let at = shared.address.load(Relaxed);
                let is_worth = has_small(live.session.process(root), at);
                let state = if is_worth { page::TRIAL } else { page::LEFT };
                tracking.decide(place, state);
            }
        }
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

/// Whether small objects lie on the page at `start`: heap blocks, or variables of a file or of a
/// stack.
fn has_small(process: &Process, start: u64) -> bool {
    let mut at = start;
    let mut any = false;
    while at < start + PAGE {
        // Heap blocks begin at multiples of 16.
        let mut next = at + 16;
        if let Some(block) = process.block_at(Address(at), None)
            && !block.freed
        {
            any = true;
            if block.span.len < SMALL {
                return true;
            }
            next = next.max(block.span.end().0);
        }
        at = next;
    }
    !any && is_of_variables(process.mappings(), start)
}

/// Whether global variables, or variables on the first thread's stack, lie at `at`.
fn is_of_variables(mappings: &Mappings, at: u64) -> bool {
    let mut before: Option<&Mapping> = None;
    for mapping in mappings.iter() {
        if mapping.span.contains(Address(at)) {
            let data = |m: &Mapping| m.is_file() && m.write && !m.shared;
            // Zero-initialised variables lie beyond the file's end, in a mapping right behind its
            // data.
            let rest = mapping.path.is_empty()
                && before.is_some_and(|m| data(m) && m.span.end() == mapping.span.start);
            return data(mapping) || rest || mapping.path == "[stack]";
        }
        before = Some(mapping);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::Span;

    #[test]
    fn variables_are_those_of_files_and_of_the_first_stack() {
        let mut mappings = Mappings::new();
        let mut map = |start: u64, path: &str, inode, write| {
            mappings.insert(Mapping {
                span: Span::new(Address(start), 0x1000),
                file_offset: 0,
                path: path.into(),
                inode,
                read: true,
                write,
                execute: false,
                shared: false,
            });
        };
        map(0x1000, "/bin/a", 7, false);
        map(0x2000, "/bin/a", 7, true);
        map(0x3000, "", 0, true);
        map(0x8000, "", 0, true);
        map(0x9000, "[heap]", 0, true);
        map(0xa000, "[stack]", 0, true);
        let found = [0x1000, 0x2000, 0x3000, 0x8000, 0x9000, 0xa000, 0xf000]
            .map(|at| is_of_variables(&mappings, at));
        assert_eq!(found, [false, true, true, false, false, true, false]);
    }
}
