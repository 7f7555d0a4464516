//! Observes a running process for a while, without stopping it and without loading anything
//! into it. Called for `attach`, and by `repair`, which stops threads itself afterwards.

use crate::command::ObserveOptions;
use crate::late;
use crate::perf::{self, Perf};
use crate::progress::Stage;
use crate::watching::Live;
use anyhow::{Context, Result, bail};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_findings as findings;
use sunder_findings::{Findings, Limit};
use sunder_observe::machine::{self, Machine};
use sunder_observe::monotonic_now;
use sunder_observe::perf::{FrequencyPlan, PerfSampler};
use sunder_observe::watch::Budget;
use sunder_observe::{ObserveError, proc};
use sunder_pipeline::{Follow, Observed, Session, judge_config, own_cpu_seconds, show_machine};
use sunder_recording::Recorder;

/// Signals that end the observation; the report is still made: Ctrl-C, `kill` and `timeout`, a
/// closed terminal.
const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupt(_signal: i32) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// From now on, the `ENDING` signals set a flag; when it is dropped, they are late.
struct Interrupts {
    held: Vec<i32>,
}

impl Interrupts {
    /// Sets the handlers. Signals that were ignored (`nohup`) stay ignored.
    fn note() -> Self {
        let mut held = Vec::new();
        for signal in ENDING {
            // SAFETY: the handler only stores to an atomic.
            let before = unsafe { libc::signal(signal, interrupt as *const () as usize) };
            if before == libc::SIG_IGN {
                // SAFETY: takes two integers.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            } else if before != libc::SIG_ERR {
                held.push(signal);
            }
        }
        Self { held }
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        late::begin(self.held.iter().copied());
    }
}

/// Checks that the process exists and is not a kernel thread.
///
/// # Errors
/// If it does not exist, or is a kernel thread.
pub fn is_program(process: ProcessId) -> Result<()> {
    if !proc::is_alive(process) {
        bail!("there is no process {process}");
    }
    if matches!(
        proc::executable(process),
        Err(ObserveError::NoSuchProcess(_))
    ) {
        bail!("process {process} is a thread of the kernel or is just ending: it has no program");
    }
    Ok(())
}

/// What ends an observation, beside the end of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The caller alone: signals do what they did before.
    InTime,
    /// Also the signals by which a user ends a program, which then end the observation only. A second
    /// after it is over, such a signal ends this process again (`late`). What was ignored stays so.
    /// Only for a process that exists for this observation alone.
    BySignals,
}

/// The observation of a running process. `repair` uses it too, and acts on what is found.
pub struct Look {
    /// The loop around the process, with all that was observed so far.
    pub live: Live,
    process: ProcessId,
    machine: Machine,
    line: u64,
    transfer: Option<f64>,
    frequencies: (u32, u32),
    threshold: Option<f64>,
    program: findings::Program,
    /// Whether the process has ended.
    over: bool,
    /// `None` if signals do not end the observation.
    interrupts: Option<Interrupts>,
}

impl Look {
    /// Begins to observe.
    ///
    /// # Errors
    /// If the process can't be observed.
    pub fn begin(
        process: ProcessId,
        options: &ObserveOptions,
        threshold: Option<f64>,
        ending: Ending,
    ) -> Result<Self> {
        Self::begin_recorded(process, options, threshold, ending, None)
    }

    /// As [`Self::begin`]; the raw events go to `recorder`, too.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn begin_recorded(
        process: ProcessId,
        options: &ObserveOptions,
        threshold: Option<f64>,
        ending: Ending,
        recorder: Option<Recorder>,
    ) -> Result<Self> {
        let machine = Machine::read_beside(process);
        let line = options.line_size.map_or(machine.line.bytes(), u64::from);
        let transfer = machine::transfer_cost().map(|t| t.nanoseconds);
        let config = judge_config(line, transfer)?;
        let interrupts = (ending == Ending::BySignals).then(Interrupts::note);
        let plan = options
            .frequency
            .map_or_else(FrequencyPlan::default, FrequencyPlan::fixed);
        let frequencies = perf::range(&plan);
        let sampler = PerfSampler::attach_cheaply(process, plan)
            .with_context(|| format!("cannot observe process {process}"))?;
        let path = proc::executable(process).ok();
        let command = proc::command_line(process).unwrap_or_default();
        let mut session = Session::new(config, Follow::Only(process));
        if let Some(recorder) = recorder {
            session.keep(recorder);
        }
        session.begin_with(process);
        for thread in proc::threads(process).unwrap_or_default() {
            let name = proc::thread_name(process, thread);
            session.exists(process, thread, name.ok());
        }
        if let Ok(mappings) = proc::mappings(process) {
            session.set_mappings(process, mappings);
        }
        let budget = Budget::of(options.watch_budget / 100.0);
        Ok(Self {
            live: Live::new(
                session,
                Box::new(Perf::Sampling(Box::new(sampler))),
                None,
                process,
                budget,
            ),
            process,
            machine,
            line,
            transfer,
            frequencies,
            threshold,
            program: findings::Program {
                command: command
                    .iter()
                    .map(|a| a.to_string_lossy().trim_end().to_owned())
                    .collect(),
                path: path.map(|p| p.to_string_lossy().into_owned()),
                exit: None,
            },
            over: false,
            interrupts,
        })
    }

    /// Looks until the time is over, the process ends, or a signal says so. `step` is called
    /// whenever something may have been seen; it ends the look by returning `false`.
    ///
    /// # Errors
    /// If waiting itself fails.
    pub fn go_on(
        &mut self,
        duration: Option<Duration>,
        step: &mut dyn FnMut(&mut Live) -> bool,
    ) -> Result<()> {
        let process = self.process;
        let in_time = |live: &Live| duration.is_none_or(|d| live.elapsed() < d);
        while !self.over && in_time(&self.live) && !INTERRUPTED.load(Ordering::Relaxed) {
            let ended = &mut |_| !proc::is_alive(process);
            self.over = self.live.step(duration, ended)?;
            if !self.over && !step(&mut self.live) {
                break;
            }
        }
        Ok(())
    }

    /// Whether the process has ended, or a signal has ended the observation.
    pub fn is_over(&self) -> bool {
        self.over || INTERRUPTED.load(Ordering::Relaxed)
    }

    /// Ends the observation and makes its result. Call it when nothing in the process has to be
    /// put back any more: from here on, a signal may end this process.
    pub fn finish(mut self) -> Findings {
        self.live.finish();
        self.live.show(Stage::Naming);
        self.interrupts = None;
        let (start, end) = (self.live.start(), monotonic_now());
        let mut limits = self.live.observer_limits();
        limits.push(Limit::Attached);
        if self.over {
            limits.push(Limit::EndedEarly);
        }
        limits.extend(self.live.watch_limit());
        let observed = Observed {
            program: self.program,
            machine: show_machine(&self.machine, self.line as u32, self.transfer),
            run: findings::Run {
                seconds: self.live.elapsed().as_secs_f64(),
                observer: "perf".into(),
                frequency_hz: Some(self.frequencies),
                threshold_percent: self
                    .threshold
                    .unwrap_or(findings::DEFAULT_THRESHOLD_PERCENT),
                first_contention_seconds: self.live.first_suspect.map(|t| t.as_secs_f64()),
                observer_cpu_seconds: own_cpu_seconds(),
                ..findings::Run::default()
            },
            limits,
        };
        self.live.session.finish(start, end, observed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a signal does now.
    fn action(signal: i32) -> libc::sighandler_t {
        // SAFETY: plain data, for which zeroes are valid, as a place for the answer to a query.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            assert_eq!(libc::sigaction(signal, std::ptr::null(), &raw mut now), 0);
            now.sa_sigaction
        }
    }

    #[test]
    fn what_comes_right_after_the_observation_ends_nothing() {
        let before = ENDING.map(action);
        let interrupts = Interrupts::note();
        for (signal, before) in ENDING.into_iter().zip(before) {
            let ours = interrupt as *const () as usize;
            let wanted = if before == libc::SIG_IGN {
                before
            } else {
                ours
            };
            assert_eq!(action(signal), wanted, "{signal}");
        }
        drop(interrupts);
        for (signal, before) in ENDING.into_iter().zip(before) {
            // SAFETY: take numbers; the actions are those that this process had.
            unsafe {
                libc::raise(signal);
                libc::signal(signal, before);
            }
        }
    }
}
