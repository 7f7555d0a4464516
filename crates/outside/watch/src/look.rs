//! The second and third stage: a close look at one process for a while. Its samples go through the loop,
//! the judge and the bursts of watchpoints that `attach` uses; only where the samples come from is
//! different: the sampler of the whole machine hands them over.

use crate::aside::Extent;
use crate::owner::Owner;
use anyhow::Result;
use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sunder_access::{Mapping, ProcessId, Time};
use sunder_findings::{self as findings, Findings, Limit, Origin};
use sunder_live::{Live, LiveObserver};
use sunder_objects::Memory;
use sunder_observe::machine::Machine;
use sunder_observe::perf::Wait;
use sunder_observe::watch::Budget;
use sunder_observe::{Event, ObserveError, RawSample, monotonic_now, proc};
use sunder_pipeline::{Follow, Observed, Observer, Session, judge_config, show_machine};

/// How often it is checked whether the program has mapped more code.
const CODE_EVERY: Duration = Duration::from_secs(2);
/// Of this much time, that takes one part at most.
const READING_IS_ONE_IN: u32 = 100;

/// What all looks have in common.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The machine.
    pub machine: Machine,
    /// Bytes of a line.
    pub line: u64,
    /// What a transfer of a line costs, in nanoseconds, if that was measured.
    pub transfer: Option<f64>,
    /// From which cost on a finding counts, in percent.
    pub threshold: f64,
    /// The share of the process's time that watchpoints may take.
    pub watch_share: f64,
}

/// A look at one process.
pub struct Look {
    /// The process.
    pub origin: Origin,
    /// Who pays for it.
    pub owner: Owner,
    process: ProcessId,
    live: Live,
    fed: Fed,
    since: Instant,
    code: Vec<Mapping>,
    next_code: Duration,
    conditions: Conditions,
    frequency: u32,
    /// Whether the process has ended, or executes another program by now.
    pub over: bool,
}

/// The events of one process, which the watcher puts there.
#[derive(Clone, Default)]
struct Fed(Rc<RefCell<Vec<Event>>>);

impl Observer for Fed {
    type Error = Infallible;

    fn drain(&mut self, session: &mut Session) -> Result<(), Infallible> {
        let events = self.0.take();
        events.into_iter().for_each(|event| session.event(event));
        Ok(())
    }
}

impl LiveObserver for Fed {
    fn wait(&mut self, _pause: &mut Duration) -> Result<Wait, ObserveError> {
        Ok(Wait::Ready)
    }
}

impl Look {
    /// Begins to look at the process.
    ///
    /// # Errors
    /// If it is gone, or may not be looked at.
    pub fn begin(
        origin: Origin,
        owner: Owner,
        conditions: &Conditions,
        frequency: u32,
    ) -> Result<Self> {
        let process = ProcessId(origin.pid);
        let config = judge_config(conditions.line, conditions.transfer)?;
        let mut session = Session::new(config, Follow::Only(process));
        session.begin_with(process);
        let threads = &mut session.process(process).threads;
        for thread in proc::threads(process)? {
            threads.started(thread);
            if let Ok(name) = proc::thread_name(process, thread) {
                threads.name(thread, name);
            }
        }
        let mappings = proc::mappings(process)?;
        let code = code_of(mappings.iter());
        session.set_mappings(process, mappings);
        session.code().attach(process)?;
        let fed = Fed::default();
        let observer = Box::new(fed.clone());
        Ok(Self {
            process,
            live: Live::new(
                session,
                observer,
                None,
                process,
                Budget::of(conditions.watch_share),
            ),
            fed,
            since: Instant::now(),
            code,
            next_code: CODE_EVERY,
            conditions: conditions.clone(),
            frequency,
            origin,
            owner,
            over: false,
        })
    }

    /// For how long it has gone on.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Takes a sample of the process.
    pub fn sampled(&mut self, sample: RawSample) {
        self.fed.0.borrow_mut().push(Event::Sample(sample));
    }

    /// Takes what else the kernel reports of it.
    pub fn reported(&mut self, event: Event) {
        self.fed.0.borrow_mut().push(event);
    }

    /// Takes what has come, and watches suspects for some milliseconds if it is time for it.
    pub fn step(&mut self) {
        // It can't fail: waiting is not left to it.
        let _ = self.live.step(Some(Duration::ZERO), &mut |_| false);
        let elapsed = self.elapsed();
        // Its number may be another's by the time that its findings are named.
        if !self.over && elapsed >= self.next_code {
            self.read_code();
            let took = self.elapsed().saturating_sub(elapsed);
            self.next_code = elapsed + CODE_EVERY.max(took * READING_IS_ONE_IN);
        }
    }

    fn read_code(&mut self) {
        let Ok(mappings) = proc::mappings(self.process) else {
            return;
        };
        let code = code_of(mappings.iter());
        if !code.is_empty() && code != self.code {
            self.code = code;
            self.live.session.refresh_code(self.process);
        }
    }

    /// How many samples there were.
    pub fn samples(&mut self) -> u64 {
        self.live.session.process(self.process).figures.samples
    }

    /// Whether there may be a finding that counts. What is not shared falsely, or costs less, need not
    /// be named.
    pub fn may_have_findings(&mut self) -> bool {
        let verdicts = self.live.session.process(self.process).judge.verdicts();
        let is_other = |v: &sunder_sharing::Verdict| v.sharing != sunder_sharing::Sharing::True;
        if !verdicts.iter().any(is_other) {
            return false;
        }
        // An object may have all lines, and only the threads of the least of them: a bound.
        let cost: f64 = verdicts.iter().map(|v| v.cost_ns).sum();
        let spent = verdicts.iter().filter(|v| v.cost_share > 0.0);
        let spent = spent.map(|v| v.cost_ns / v.cost_share);
        let least = spent.fold(f64::INFINITY, f64::min);
        cost * 100.0 >= self.conditions.threshold * least
    }

    /// Whether threads were seen to contend for a line.
    pub fn is_contended(&mut self) -> bool {
        let process = self.live.session.process(self.process);
        process.judge.is_any_line_contended()
    }

    /// Ends the look and names what was found, with what `memory` knows.
    pub fn finish(mut self, memory: Option<Arc<dyn Memory>>, extent: Extent) -> Findings {
        self.live.finish();
        match extent {
            Extent::Least => self.live.session.leave_debug_information(),
            // Where nothing was read, there is nothing to remember.
            Extent::Whole => {
                if let Some(memory) = memory {
                    self.live.session.remember_in(&memory);
                }
            }
        }
        let (start, end): (Time, Time) = (self.live.start(), monotonic_now());
        let mut limits = self.live.observer_limits();
        limits.push(Limit::Attached);
        if self.over {
            limits.push(Limit::EndedEarly);
        }
        limits.extend(self.live.watch_limit());
        let conditions = &self.conditions;
        let observed = Observed {
            program: findings::Program {
                command: vec![self.origin.program.clone()],
                path: self.origin.path.clone(),
                exit: None,
            },
            machine: show_machine(
                &conditions.machine,
                conditions.line as u32,
                conditions.transfer,
            ),
            run: findings::Run {
                seconds: self.since.elapsed().as_secs_f64(),
                observer: "perf".into(),
                frequency_hz: Some((self.frequency, self.frequency)),
                threshold_percent: conditions.threshold,
                ..findings::Run::default()
            },
            limits,
        };
        self.live.session.finish(start, end, observed)
    }
}

/// The mappings with code.
fn code_of<'a>(all: impl Iterator<Item = &'a Mapping>) -> Vec<Mapping> {
    all.filter(|mapping| mapping.execute).cloned().collect()
}
