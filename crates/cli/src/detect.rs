//! `sunder detect`: starts a program, observes it to its end, reports, and
//! exits as the program did.

use crate::args::{Detect, ObserveOptions, ObserverChoice};
use crate::embed::MemoryFile;
use crate::isolate_observer;
use crate::live::{Live, Sampler};
use crate::observers;
use crate::output::{Output, complain};
use crate::result::{Observed, show_machine};
use crate::session::{Follow, Session, Told, judge_config};
use crate::signals::Signals;
use crate::status;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_findings as findings;
use sunder_findings::Findings;
use sunder_observe::launch::{Child, Launch, Prepared};
use sunder_observe::machine::{self, Machine};
use sunder_observe::monotonic_now;
use sunder_observe::perf::FirstEvent;
use sunder_observe::{ObserveError, proc};
use sunder_wire::{Registry, RuntimeStatus, SegmentOptions};

/// Runs the command; the value is the status to exit with.
///
/// # Errors
/// If Sunder itself failed before the program could run.
pub fn run(options: &Detect) -> Result<u8> {
    let output = Output::new(&options.tell, false)?;
    let program = if options.observer == ObserverChoice::Isolate {
        isolate_observer::observe(options)
    } else {
        observe(
            &options.program,
            options.observer,
            &options.observe,
            options.follow_children,
            options.tell.threshold,
        )
    };
    let (findings, exit) = match program {
        Ok(done) => done,
        Err(error) => return Ok(start_failure(&error)),
    };
    let written = output.write(&findings);
    let own = exit_code(exit);
    Ok(match output.verdict(&findings) {
        Some(found) if own == 0 => found,
        _ if own == 0 && written.failed => status::FAILED,
        _ => own,
    })
}

/// What a shell would exit with.
pub fn exit_code(exit: ExitStatus) -> u8 {
    let code = exit
        .code()
        .or_else(|| exit.signal().map(|s| 128 + s))
        .unwrap_or(i32::from(status::FAILED));
    u8::try_from(code).unwrap_or(status::FAILED)
}

/// Tells why the program did not start; the status that says so.
pub fn start_failure(error: &anyhow::Error) -> u8 {
    if let Some(ObserveError::Execute { program, source }) = error.downcast_ref() {
        let (why, code) = match source.raw_os_error() {
            Some(libc::ENOENT) => (not_found(program), status::NOT_FOUND),
            Some(libc::EACCES) => (
                "it is not an executable file".to_owned(),
                status::NOT_EXECUTABLE,
            ),
            Some(libc::ENOEXEC) => (
                "it is no program for this machine: wrong architecture or format".to_owned(),
                status::NOT_EXECUTABLE,
            ),
            _ => (source.to_string(), status::NOT_EXECUTABLE),
        };
        crate::output::note(&format!("cannot execute {program}: {why}"));
        return code;
    }
    complain(error);
    status::FAILED
}

/// Why `program` was not found.
fn not_found(program: &str) -> String {
    if std::path::Path::new(program).is_file() {
        return "the interpreter that it asks for was not found".to_owned();
    }
    if program.starts_with('-') {
        return "it was not found, and is no option either (see --help)".to_owned();
    }
    "it was not found".to_owned()
}

/// What goes into the program beside the runtime library.
pub struct Loaded {
    /// The library's path.
    pub library: PathBuf,
    /// A variable that it reads.
    pub variable: OsString,
    /// Its value.
    pub value: OsString,
}

/// Who does something about what is found while the program runs.
pub trait Beside {
    /// What is loaded into the program.
    fn load(&self) -> Option<Loaded>;
    /// Who takes the samples, if that is one of its own.
    fn sampler(&self) -> Option<(Sampler, observers::Chosen)> {
        None
    }
    /// Whether the program must not begin before samples of it are taken: where what is
    /// seen of it is all that there will be.
    fn waits_for_samples(&self) -> bool {
        true
    }
    /// Whether the command has an option to follow the processes that the program starts.
    fn can_follow(&self) -> bool {
        true
    }
    /// Of what anybody is told the findings.
    fn told(&self) -> Told {
        Told::All
    }
    /// The program has a number and has not begun.
    ///
    /// # Errors
    /// If it must not begin.
    fn begins(&mut self, process: ProcessId) -> Result<()>;
    /// Something may have been seen.
    fn step(&mut self, live: &mut Live);
    /// What the result must say of it.
    fn limits(&self) -> Vec<String> {
        Vec::new()
    }
    /// How long the next step may be away, if that matters.
    fn patience(&self) -> Option<Duration> {
        None
    }
    /// Collects the program if it has ended. Who stops threads waits for them too, and may
    /// have collected it already.
    ///
    /// # Errors
    /// If the kernel does not know the program.
    fn collect(&mut self, child: &mut Child) -> Result<Option<ExitStatus>, ObserveError> {
        child.try_wait()
    }
}

/// Nobody.
struct Alone;

impl Beside for Alone {
    fn load(&self) -> Option<Loaded> {
        None
    }

    fn begins(&mut self, _process: ProcessId) -> Result<()> {
        Ok(())
    }

    fn step(&mut self, _live: &mut Live) {}
}

/// Runs `program` under observation. Also used by `demo`.
///
/// # Errors
/// If it could not be started.
pub fn observe(
    program: &[OsString],
    choice: ObserverChoice,
    options: &ObserveOptions,
    follow_children: bool,
    threshold: Option<f64>,
) -> Result<(Findings, ExitStatus)> {
    observe_beside(
        program,
        choice,
        options,
        follow_children,
        threshold,
        &mut Alone,
    )
}

/// The same, with somebody who does something about it. Used by `repair`.
///
/// # Errors
/// As [`observe`].
pub fn observe_beside(
    program: &[OsString],
    choice: ObserverChoice,
    options: &ObserveOptions,
    follow_children: bool,
    threshold: Option<f64>,
    beside: &mut dyn Beside,
) -> Result<(Findings, ExitStatus)> {
    let Accompanied {
        mut limits,
        machine,
        line,
        mut transfer,
        observer,
        recorded,
        mut live,
        pid,
        ended: Ended {
            exit,
            path,
            children,
        },
    } = accompany(program, choice, options, follow_children, beside)?;
    // That of a privileged program is not ours to know.
    let path = path.or_else(|| program.first().and_then(|name| observers::find(name)));
    let end = monotonic_now();
    let elapsed = live.elapsed();
    let told = beside.told();
    if transfer.is_none() && told == Told::All && live.session.is_any_line_contended() {
        transfer = machine::transfer_cost_between(&machine.allowed).map(|t| t.nanoseconds);
        if let Some(nanoseconds) = transfer {
            live.session.set_transfer(nanoseconds);
        }
    }
    limits.extend(live.sampler_limits());
    limits.extend(live.watch_limit());
    limits.extend(beside.limits());
    let children = children || live.session.left_children_out();
    let can_follow = beside.can_follow();
    limits.extend(children_limit(
        children,
        observer,
        follow_children,
        can_follow,
    ));
    let status = live.session.runtime_status(pid);
    if recorded {
        limits.extend(runtime_limits(&status, path.as_deref()));
        limits.extend(heap_limits(&live, pid));
        if !live.session.saw_allocations() && status.loaded.is_some() && status.refusal.is_none() {
            limits.push(
                "No heap object was seen: the program allocates none or brings its own malloc."
                    .into(),
            );
        }
    }
    let run = findings::Run {
        seconds: elapsed.as_secs_f64(),
        observer: observer.name.into(),
        frequency_hz: Some(observer.frequencies),
        threshold_percent: threshold.unwrap_or(findings::DEFAULT_THRESHOLD_PERCENT),
        first_contention_seconds: live.first_suspect.map(|t| t.as_secs_f64()),
        observer_cpu_seconds: own_cpu_seconds(),
        program_cpu_seconds: Some(cpu_seconds(libc::RUSAGE_CHILDREN)),
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
    Ok((live.session.finish_of(&told, start, end, observed), exit))
}

/// A program that was observed to its end.
pub struct Accompanied {
    limits: Vec<String>,
    machine: Machine,
    line: u64,
    transfer: Option<f64>,
    observer: observers::Chosen,
    recorded: bool,
    live: Live,
    pid: ProcessId,
    ended: Ended,
}

impl Accompanied {
    /// How it ended.
    pub const fn exit(&self) -> ExitStatus {
        self.ended.exit
    }

    /// Whether it started other processes, which nobody looked at.
    pub const fn left_children_out(&self) -> bool {
        self.ended.children || self.live.session.left_children_out()
    }
}

/// Runs `program` under observation without putting a result together. Used by
/// `protect`.
///
/// # Errors
/// As [`observe`].
pub fn accompany(
    program: &[OsString],
    choice: ObserverChoice,
    options: &ObserveOptions,
    follow_children: bool,
    beside: &mut dyn Beside,
) -> Result<Accompanied> {
    // Before the threads that open the first event and measure: some live on beside the program.
    let mut signals = Signals::hold_stops();
    let machine = Machine::read();
    let line = options.line_size.map_or(machine.line.bytes(), u64::from);
    let mut limits = Vec::new();
    // The kernel's first perf event waits for all CPUs. A program must not wait with it
    // unless it is to be seen from its first instruction on.
    let first = if beside.waits_for_samples() || follow_children {
        None
    } else {
        observers::first_event(choice)
    };
    let wanted = match first {
        Some(_) => observers::Kind::Perf,
        None => observers::choose(choice, &mut limits)?,
    };
    // Events and changes are counted, and priced as they come; samples in time have their
    // price in them, and what a transfer costs can be measured when all is over.
    let counts = matches!(wanted, observers::Kind::Pmu | observers::Kind::Isolate);
    let transfer = counts.then(machine::transfer_cost).flatten();
    let transfer = transfer.map(|t| t.nanoseconds);
    let mut config = judge_config(line, transfer)?;
    let library = MemoryFile::runtime().context("cannot make the runtime library available")?;
    // The target's own dispositions are those that we were started with.
    signals.hold_ends();
    let Started {
        prepared,
        sampler,
        registry,
        observer,
    } = start(
        program,
        (wanted, first),
        options,
        follow_children,
        &library,
        beside,
        &mut limits,
    )?;
    if wanted == observers::Kind::Isolate {
        let interval = 1_000_000_000 / u64::from(observer.frequencies.1.max(1));
        config.diff_interval_ns = Some(interval);
    }
    let pid = prepared.pid();
    beside.begins(pid)?;
    let follow = if follow_children {
        Follow::All
    } else {
        Follow::Only(pid)
    };
    let recorded = registry.is_some();
    let mut live = Live::new(
        Session::new(config, follow),
        sampler,
        registry,
        pid,
        options.watch_budget / 100.0,
    );
    signals.forward_to(pid);
    let mut child = prepared.go()?;
    let ended = watch_to_the_end(&mut live, &mut child, beside)?;
    signals.release();
    Ok(Accompanied {
        limits,
        machine,
        line,
        transfer,
        observer,
        recorded,
        live,
        pid,
        ended,
    })
}

/// What was learned of the program's end.
struct Ended {
    exit: ExitStatus,
    /// What it executed last: the program behind `env`, `nice` or a shell's exec.
    path: Option<PathBuf>,
    /// Whether it has waited for processes that it had started.
    children: bool,
}

fn watch_to_the_end(
    live: &mut Live,
    child: &mut Child,
    beside: &mut dyn Beside,
) -> Result<Ended, ObserveError> {
    let pidfd = observers::pidfd(child.pid());
    let mut path = None;
    let mut children = false;
    loop {
        path = proc::executable(child.pid()).ok().or(path);
        let until = beside.patience().map(|patience| live.elapsed() + patience);
        let over = live.step(until, &mut |pause| observers::wait_end(&pidfd, pause))?;
        if !over {
            beside.step(live);
        }
        // Perf's rings end with the threads; a process whose last thread is gone
        // is collected a moment later.
        let over = over || observers::wait_end(&pidfd, Duration::ZERO);
        if (over || pidfd.is_none()) && !live.makes_processes() {
            children |= proc::has_waited_for_children(child.pid());
        }
        let mut exit = beside.collect(child)?;
        while over && exit.is_none() {
            thread::sleep(Duration::from_micros(200));
            exit = beside.collect(child)?;
        }
        if let Some(exit) = exit {
            live.finish();
            return Ok(Ended {
                exit,
                path,
                children,
            });
        }
    }
}

/// The program started processes that nobody looked at, and no option would change that.
pub const LEFT_OUT: &str = "The program started other processes, which were not looked at.";

/// What to say of processes that the program started.
fn children_limit(
    any: bool,
    observer: observers::Chosen,
    follow_children: bool,
    can_follow: bool,
) -> Option<String> {
    let text = match (observer.name, follow_children) {
        (_, false) if !can_follow => LEFT_OUT,
        (_, false) => {
            "The program started other processes, which were not looked at; --follow-children \
             follows them."
        }
        ("timer", true) => {
            "Processes that did not load the runtime library, such as statically linked programs, \
             were not seen by the timer observer."
        }
        _ => return None,
    };
    any.then(|| text.to_owned())
}

/// What is not known of the heaps of followed processes.
fn heap_limits(live: &Live, root: ProcessId) -> Vec<String> {
    let mut limits = Vec::new();
    let without = live.session.without_heap(root);
    let shown: Vec<_> = without.iter().take(MOST_NAMED).cloned().collect();
    match (without.len(), without.len() - shown.len()) {
        (0, _) => {}
        (1, _) => limits.push(format!(
            "Heap objects of process {} have no names and call stacks: it ran without the runtime \
             library.",
            shown.join(", ")
        )),
        (_, 0) => limits.push(format!(
            "Heap objects of the processes {} have no names and call stacks: they ran without the \
             runtime library.",
            shown.join(", ")
        )),
        (_, more) => limits.push(format!(
            "Heap objects of the processes {} and {more} more have no names and call stacks: they \
             ran without the runtime library.",
            shown.join(", ")
        )),
    }
    let registry = live.registry();
    let missed = registry.map_or(0, |r| r.missed());
    if missed > 0 {
        limits.push(format!(
            "{missed} processes came faster than segments could be made for them; their heap \
             objects have no names."
        ));
    }
    if registry.is_some_and(|r| r.foreign() > 0) {
        limits.push(
            "Heap objects of processes in another process namespace have no names: their numbers \
             are not known there."
                .into(),
        );
    }
    limits
}

/// Processes that a limit names; a server may have hundreds.
const MOST_NAMED: usize = 4;

/// What is needed to let the program go.
struct Started {
    prepared: Prepared,
    sampler: Sampler,
    registry: Option<Registry>,
    observer: observers::Chosen,
}

fn start(
    program: &[OsString],
    (wanted, first): (observers::Kind, Option<FirstEvent>),
    options: &ObserveOptions,
    follow_children: bool,
    library: &MemoryFile,
    beside: &dyn Beside,
    limits: &mut Vec<String>,
) -> Result<Started> {
    let timer_hz = observers::timer_frequency(options.frequency);
    let (name, arguments) = program.split_first().context("no program was given")?;
    let hindrance = observers::preload_hindrance(name);
    if let Some(why) = hindrance {
        anyhow::ensure!(
            !matches!(wanted, observers::Kind::Timer | observers::Kind::Isolate),
            "the {} observer must load a library into the program, and {why}",
            if wanted == observers::Kind::Timer {
                "timer"
            } else {
                "isolate"
            }
        );
        limits.push(format!(
            "Heap objects have no names and call stacks: nothing was preloaded, because {why}."
        ));
    }
    let options_wanted = SegmentOptions {
        timer_hz: (wanted == observers::Kind::Timer).then_some(timer_hz),
        heap: true,
        keep_environment: false,
    };
    let spare = if follow_children {
        observers::descriptors(SPARE_SEGMENTS)
    } else {
        2
    };
    let registry = match Registry::create(options_wanted, follow_children, spare) {
        Ok(_) if hindrance.is_some() => None,
        Ok(registry) => Some(registry),
        Err(error) if wanted != observers::Kind::Timer => {
            limits.push(format!("Heap objects are not named: {error}."));
            None
        }
        Err(error) => return Err(error.into()),
    };
    let mut launch = Launch::new(name.clone()).arguments(arguments.to_vec());
    if let Some(registry) = &registry {
        let mut existing = std::env::var_os("LD_PRELOAD");
        if let Some(more) = beside.load() {
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
    }
    let prepared = launch.prepare()?;
    if let Some(registry) = &registry {
        registry.set_root(prepared.pid());
    }
    let (child, frequency) = (prepared.pid(), options.frequency);
    let (sampler, observer) = match (beside.sampler(), first) {
        (Some(own), _) => own,
        (None, Some(first)) => observers::open_after(first, child, frequency)?,
        (None, None) => observers::open(wanted, child, frequency, follow_children)?,
    };
    Ok(Started {
        prepared,
        sampler,
        registry,
        observer,
    })
}

/// Segments that wait for processes to come: as many as a server forks at once.
/// Each takes a descriptor until it is used.
const SPARE_SEGMENTS: u32 = 64;

/// What the runtime could not do, for the report.
fn runtime_limits(status: &RuntimeStatus, program: Option<&std::path::Path>) -> Vec<String> {
    let mut limits = Vec::new();
    if status.loaded.is_none() {
        let why = match program.map(observers::linkage) {
            Some(observers::Linkage::Static) => "the program is statically linked",
            Some(observers::Linkage::Privileged) => {
                "the program has set-user-id or other privileges"
            }
            _ => "the runtime library was not loaded",
        };
        limits.push(format!(
            "Heap objects have no names and call stacks: {why}."
        ));
    } else if let Some(refusal) = status.refusal {
        limits.push(format!(
            "Heap objects have no names and call stacks: the runtime library stayed passive ({refusal:?})."
        ));
    }
    let mut count = |number: u64, what: &str| {
        if number > 0 {
            limits.push(format!("{number} {what}"));
        }
    };
    count(
        status.threads_dropped,
        "threads were beyond the table of threads.",
    );
    count(
        status.blocks_dropped,
        "heap blocks were beyond the table of blocks and have no names.",
    );
    count(
        status.stacks_dropped,
        "allocations were beyond the table of call stacks.",
    );
    count(
        status.timers_refused,
        "threads got no timer and gave no samples.",
    );
    if status.signal_taken {
        limits.push(
            "The program took the signal of the timer observer; sampling stopped there.".into(),
        );
    }
    limits
}

/// CPU seconds of this process so far.
pub fn own_cpu_seconds() -> f64 {
    cpu_seconds(libc::RUSAGE_SELF)
}

fn cpu_seconds(whose: libc::c_int) -> f64 {
    // SAFETY: `rusage` is plain data for which zeroes are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the answer.
    unsafe { libc::getrusage(whose, &raw mut usage) };
    let seconds = |t: libc::timeval| {
        Duration::new(
            t.tv_sec.unsigned_abs(),
            t.tv_usec.unsigned_abs() as u32 * 1000,
        )
        .as_secs_f64()
    };
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
