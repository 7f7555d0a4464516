//! Observes a command: starts a program, observes it to its end and makes the result. A remedy
//! may act on the program meanwhile. Called for `detect`, `demo`, `protect` and `repair`. It
//! must not print, and must leave the program's streams and exit status alone.

use crate::choice;
use crate::ending::{pidfd, wait_end};
use crate::executed::Executed;
use crate::kind::{Chosen, Kind, Measure, ObserverChoice, OpenOptions};
use crate::limits::{children_limit, going_on, heap_limits, runtime_limits};
use crate::observer::LiveObserver;
use crate::perf;
use crate::program;
use crate::progress::{Show, Stage};
use crate::remedy::{LiveRemedy, NoRemedy};
use crate::signals::Signals;
use crate::timer;
use crate::watching::Live;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_findings as findings;
use sunder_findings::{Findings, Limit};
use sunder_guests::MemoryFile;
use sunder_observe::ObserveError;
use sunder_observe::launch::{Child, Launch, Prepared};
use sunder_observe::machine::{self, Machine};
use sunder_observe::monotonic_now;
use sunder_observe::perf::FirstEvent;
use sunder_pipeline::{
    Follow, Observed, Session, Wanted, childrens_cpu_seconds, judge_config, own_cpu_seconds,
    show_machine,
};
use sunder_recording::Recorder;
use sunder_wire::{Registry, SegmentOptions};

/// How to observe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObserveOptions {
    /// Samples per second and thread; by default high at the start and lower later.
    pub frequency: Option<u32>,
    /// Bytes of a cache line; by default that of the machine.
    pub line_size: Option<u32>,
    /// Share of the program's time that hardware watchpoints may take, in percent.
    pub watch_budget: f64,
}

impl Default for ObserveOptions {
    fn default() -> Self {
        Self {
            frequency: None,
            line_size: None,
            watch_budget: 0.5,
        }
    }
}

/// What to observe, and how.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// Which observer takes the samples.
    pub observer: ObserverChoice,
    /// Frequency, line size and watchpoints.
    pub options: ObserveOptions,
    /// Whether the processes that the program starts are observed too.
    pub follow_children: bool,
    /// Findings that cost less than this many percent are marked as not significant.
    pub threshold: Option<f64>,
    /// Called when the program has begun. Only for a process that exists for this run alone: signals
    /// are not given back to it afterwards.
    pub begun: Option<Begun>,
    /// Shows how far the observation has come.
    pub show: Option<Show>,
    /// Where the raw events of the run are kept.
    pub recorder: Option<Recorder>,
}

/// What a caller does once the program has begun, before anything that the program could change is
/// read. It gets the program's process number. Files, handles and processes that are needed later must
/// be there by then: `sunder` gives up the rights to make them.
pub type Begun = fn(ProcessId);

/// Runs the program under observation to its end. Returns the result and how the program ended.
///
/// # Errors
/// If the program can't be started.
pub fn observe(what: &Observation) -> Result<(Findings, ExitStatus)> {
    observe_with(what, &mut NoRemedy)
}

/// As [`observe`], with a remedy that acts on the program meanwhile.
///
/// # Errors
/// As [`observe`].
pub fn observe_with(
    what: &Observation,
    remedy: &mut dyn LiveRemedy,
) -> Result<(Findings, ExitStatus)> {
    let (program, follow_children) = (&what.program, what.follow_children);
    // A shell that executed us may have waited for children before.
    let others_cpu_seconds = childrens_cpu_seconds();
    let Accompanied {
        mut limits,
        machine,
        line,
        mut transfer,
        chosen,
        recorded,
        mut live,
        pid,
        ended: Ended {
            exit,
            executed,
            children,
        },
    } = run_observed(what, remedy)?;
    let (mut path, mut linkage) = (executed.path, executed.linkage);
    if path.is_none() {
        // We may not read the path of a privileged program, so it is looked for by name.
        path = program.first().and_then(|name| program::find(name));
        linkage = path.as_deref().map(program::linkage);
    }
    let end = monotonic_now();
    let elapsed = live.elapsed();
    live.show(Stage::Naming);
    remedy.ended(&mut live);
    if let Some(measured) = remedy.measured() {
        live.session.keep_measured(measured);
    }
    let wanted = remedy.wanted();
    if transfer.is_none() && wanted == Wanted::All && live.session.is_any_line_contended() {
        transfer = machine::transfer_cost_between(&machine.allowed).map(|t| t.nanoseconds);
        if let Some(nanoseconds) = transfer {
            live.session.set_transfer(nanoseconds);
        }
    }
    limits.extend(live.observer_limits());
    limits.extend(live.watch_limit());
    limits.extend(remedy.limits());
    let status = live.session.runtime_status(pid);
    // A child that the program has not waited for may go on.
    let children = children.or_else(|| (status.forks > 0).then_some(0.0));
    let others = children.filter(|_| !follow_children);
    let children = children.is_some() || live.session.left_children_out();
    let can_follow = remedy.can_follow();
    limits.extend(children_limit(
        children,
        chosen,
        follow_children,
        can_follow,
    ));
    limits.extend(going_on(&live, pid).filter(|_| follow_children));
    if recorded {
        limits.extend(runtime_limits(&status, linkage));
        limits.extend(heap_limits(&live, pid));
        if !live.session.saw_allocations() && status.loaded.is_some() && status.refusal.is_none() {
            limits.push(Limit::NoHeapObject);
        }
    }
    let run = findings::Run {
        seconds: elapsed.as_secs_f64(),
        observer: chosen.name.into(),
        frequency_hz: Some(chosen.frequencies),
        threshold_percent: what
            .threshold
            .unwrap_or(findings::DEFAULT_THRESHOLD_PERCENT),
        first_contention_seconds: live.first_suspect.map(|t| t.as_secs_f64()),
        observer_cpu_seconds: own_cpu_seconds(),
        program_cpu_seconds: Some(childrens_cpu_seconds() - others_cpu_seconds),
        left_out_percent: others,
        lost_samples: live.session.samples_dropped(),
        ..findings::Run::default()
    };
    let observed = Observed {
        program: findings::Program {
            command: program
                .iter()
                .map(|a| a.to_string_lossy().into_owned())
                .collect(),
            path: path.map(|p| p.to_string_lossy().into_owned()),
            exit: Some(match (exit.code(), exit.signal()) {
                (Some(code), _) => findings::Exit::Status(code),
                (None, signal) => findings::Exit::Signal(signal.unwrap_or(0)),
            }),
        },
        machine: show_machine(&machine, line as u32, transfer),
        run,
        limits,
    };
    let start = live.start();
    let mut result = live.session.finish_of(&wanted, start, end, observed);
    remedy.complete(&mut result);
    Ok((result, exit))
}

/// A program that was observed to its end, before its result is made.
pub struct Accompanied {
    limits: Vec<Limit>,
    machine: Machine,
    line: u64,
    transfer: Option<f64>,
    chosen: Chosen,
    recorded: bool,
    live: Live,
    pid: ProcessId,
    ended: Ended,
}

impl Accompanied {
    /// How the program ended.
    pub const fn exit(&self) -> ExitStatus {
        self.ended.exit
    }

    /// Whether the program started other processes that were not observed.
    pub const fn left_children_out(&self) -> bool {
        self.ended.children.is_some() || self.live.session.left_children_out()
    }
}

/// Runs the program under observation to its end, without making a result.
///
/// # Errors
/// As [`observe`].
pub fn run_observed(what: &Observation, remedy: &mut dyn LiveRemedy) -> Result<Accompanied> {
    let (options, follow_children) = (&what.options, what.follow_children);
    // Threads inherit the signal mask, so this comes before those that open the first event and
    // measure: some of them outlive the program.
    let mut signals = Signals::hold_stops();
    let machine = Machine::read();
    let line = options.line_size.map_or(machine.line.bytes(), u64::from);
    let mut limits = Vec::new();
    // Opening the first perf event waits for all CPUs. The program need not wait for it, unless
    // it has to be observed from its first instruction on.
    let first = if remedy.waits_for_samples() || follow_children {
        None
    } else {
        perf::first_event(what.observer)
    };
    let wanted = match first {
        Some(_) => &perf::KIND,
        None => choice::choose(what.observer, &mut limits)?,
    };
    // The cost of counts is computed while they arrive and needs the cost of a transfer now. The
    // time samples carry their cost, so the transfer can be measured after the run.
    let counts = wanted.measure != Measure::Time;
    let transfer = counts.then(machine::transfer_cost).flatten();
    let transfer = transfer.map(|t| t.nanoseconds);
    let mut config = judge_config(line, transfer)?;
    let library = MemoryFile::runtime().context("cannot make the runtime library available")?;
    // The target does not inherit these handlers: it gets the dispositions with which we were
    // started.
    signals.hold_ends();
    let Started {
        prepared,
        observer,
        registry,
        chosen,
    } = start(what, (wanted, first), &library, remedy, &mut limits)?;
    if wanted.measure == Measure::Differences {
        let interval = 1_000_000_000 / u64::from(chosen.frequencies.1.max(1));
        config.diff_interval_ns = Some(interval);
    }
    let pid = prepared.pid();
    remedy.begins(pid)?;
    let follow = if follow_children {
        Follow::All
    } else {
        Follow::Only(pid)
    };
    let recorded = registry.is_some();
    let mut session = Session::new(config, follow);
    if let Some(recorder) = &what.recorder {
        session.keep(recorder.clone());
    }
    session.begin_with(pid);
    let mut live = Live::new(
        session,
        observer,
        registry,
        pid,
        remedy.budget(options.watch_budget / 100.0),
    );
    live.show = what.show;
    signals.forward_to(pid);
    let mut child = prepared.go()?;
    if let Some(begun) = what.begun {
        begun(pid);
    }
    let ended = watch_to_the_end(&mut live, &mut child, remedy)?;
    signals.program_ended(what.begun.is_some());
    Ok(Accompanied {
        limits,
        machine,
        line,
        transfer,
        chosen,
        recorded,
        live,
        pid,
        ended,
    })
}

/// How the program ended.
struct Ended {
    exit: ExitStatus,
    executed: Executed,
    /// Whether it has waited for child processes of its own.
    /// The share of the CPU time that its children used, if it had any.
    children: Option<f64>,
}

fn watch_to_the_end(
    live: &mut Live,
    child: &mut Child,
    remedy: &mut dyn LiveRemedy,
) -> Result<Ended, ObserveError> {
    let pidfd = pidfd(child.pid());
    let mut executed = Executed::by(child.pid());
    loop {
        executed.look();
        let until = remedy.patience().map(|patience| live.elapsed() + patience);
        let over = live.step(until, &mut |pause| wait_end(&pidfd, pause))?;
        if !over {
            remedy.step(live);
        }
        // Perf's rings report the end when the last thread has ended; the process can be waited
        // for a moment later.
        let over = over || wait_end(&pidfd, Duration::ZERO);
        let mut exit = remedy.collect(child)?;
        while over && exit.is_none() {
            thread::sleep(Duration::from_micros(200));
            exit = remedy.collect(child)?;
        }
        if let Some(exit) = exit {
            live.finish();
            let children = child
                .childrens_percent()
                .or_else(|| sunder_stop::childrens_percent(child.pid()));
            return Ok(Ended {
                exit,
                executed,
                // The observer's own processes would be counted as children of the program's.
                children: children.filter(|_| !live.makes_processes()),
            });
        }
    }
}

/// Segments kept ready for new processes: as many as a server forks at once. Each takes a
/// descriptor until it is used.
const SPARE_SEGMENTS: u32 = 64;
/// The same where only the first process is recorded. Each program that it executes takes one, and
/// wrappers (`env`, `nice`, a shell) execute the next program before the tool looks again.
const SPARE_FOR_ONE: u32 = 16;

/// Everything that is ready before the program is let go.
struct Started {
    prepared: Prepared,
    observer: Box<dyn LiveObserver>,
    registry: Option<Registry>,
    chosen: Chosen,
}

fn start(
    what: &Observation,
    (wanted, first): (&Kind, Option<FirstEvent>),
    library: &MemoryFile,
    remedy: &dyn LiveRemedy,
    limits: &mut Vec<Limit>,
) -> Result<Started> {
    let (options, follow_children) = (&what.options, what.follow_children);
    let timer_hz = timer::frequency(options.frequency);
    let (name, arguments) = what.program.split_first().context("no program was given")?;
    let hindrance = program::preload_hindrance(name);
    if let Some(why) = hindrance {
        anyhow::ensure!(
            !wanted.needs_library,
            "the {} observer must load a library into the program, and {why}",
            wanted.name
        );
        limits.push(Limit::NothingPreloaded {
            why: why.to_string(),
        });
    }
    let options_wanted = SegmentOptions {
        timer_hz: wanted.needs_segment.then_some(timer_hz),
        heap: true,
        keep_environment: false,
    };
    let spare = descriptors(if follow_children {
        SPARE_SEGMENTS
    } else {
        SPARE_FOR_ONE
    });
    let registry = match Registry::create(options_wanted, follow_children, spare) {
        Ok(_) if hindrance.is_some() => None,
        Ok(registry) => Some(registry),
        Err(error) if !wanted.needs_segment => {
            limits.push(Limit::NoSegment {
                why: error.to_string(),
            });
            None
        }
        Err(error) => return Err(error.into()),
    };
    let mut launch = Launch::new(name.clone()).arguments(arguments.to_vec());
    // If children are followed, those of such a program are to have the library.
    let in_vain = !wanted.needs_library && !follow_children && program::hands_down_in_vain(name);
    if let Some(registry) = registry.as_ref().filter(|_| !in_vain) {
        let mut existing = std::env::var_os("LD_PRELOAD");
        if let Some(more) = remedy.load() {
            let mut list = more.library.into_os_string();
            if let Some(users) = existing {
                list.push(":");
                list.push(users);
            }
            existing = Some(list);
            launch = launch.environment(more.variable, Some(more.value));
        }
        for (name, value) in registry.environment(&library.path(), existing.as_deref()) {
            launch = launch.environment(name, value);
        }
        launch = launch.padded();
    }
    let prepared = launch.prepare()?;
    if let Some(registry) = &registry {
        registry.set_root(prepared.pid());
    }
    let (child, frequency) = (prepared.pid(), options.frequency);
    let (observer, chosen) = match (remedy.observer(), first) {
        (Some(own), _) => own,
        (None, Some(first)) => perf::open_after(first, child, frequency)?,
        (None, None) => (wanted.open)(&OpenOptions {
            child,
            frequency,
            follow_children,
        })?,
    };
    Ok(Started {
        prepared,
        observer,
        registry,
        chosen,
    })
}

/// The number of descriptors, at most `wanted`, that can be used in addition to the observers'
/// own: an eighth of this process's limit.
fn descriptors(wanted: u32) -> u32 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place for the result.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    let share = u32::try_from(limit.rlim_cur / 8).unwrap_or(u32::MAX);
    if known { wanted.min(share) } else { 2 }
}
