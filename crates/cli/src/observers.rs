//! Which observer to use, and how to open it.

use crate::args::ObserverChoice;
use crate::live::{Coming, Sampler};
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_observe::machine;
use sunder_observe::perf::{FirstEvent, FrequencyPlan, PerfSampler};
use sunder_observe::pmu::PmuSampler;

/// An observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The kernel's samples.
    Perf,
    /// Timers inside the target.
    Timer,
    /// The PMU's memory events.
    Pmu,
    /// Comparisons of pages, by threads that are isolated.
    Isolate,
}

/// An opened observer, for the report.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// As the result has it.
    pub name: &'static str,
    /// Highest and lowest samples a second and thread.
    pub frequencies: (u32, u32),
}

/// What `choice` means on this machine. `limits` learns why a better one was
/// not taken.
///
/// # Errors
/// If the wanted one is not to be had.
pub fn choose(choice: ObserverChoice, limits: &mut Vec<String>) -> Result<Kind> {
    // Each probe takes part of the program's time: only what is asked.
    match choice {
        ObserverChoice::Timer => Ok(Kind::Timer),
        ObserverChoice::Isolate => Ok(Kind::Isolate),
        ObserverChoice::Perf => {
            let registers = machine::probe_user_registers();
            if registers.available {
                return Ok(Kind::Perf);
            }
            bail!(
                "the perf observer does not work here: {}; --observer timer does without",
                registers.detail
            )
        }
        ObserverChoice::Pmu => {
            let events = machine::probe_memory_events();
            if events.available {
                return Ok(Kind::Pmu);
            }
            bail!(
                "the pmu observer does not work here: {}; --observer auto takes what there is",
                events.detail
            )
        }
        ObserverChoice::Auto => {
            if machine::probe_memory_events().available {
                return Ok(Kind::Pmu);
            }
            let registers = machine::probe_user_registers();
            if registers.available {
                return Ok(Kind::Perf);
            }
            limits.push(format!(
                "Samples were taken by timers inside the program, because perf was refused: {}.",
                registers.detail
            ));
            Ok(Kind::Timer)
        }
    }
}

/// The kernel's first event, begun to be opened, if `choice` comes to the kernel's
/// samples and that can be said without it. For those who do not wait for it.
pub fn first_event(choice: ObserverChoice) -> Option<FirstEvent> {
    let clock = match choice {
        ObserverChoice::Perf => true,
        ObserverChoice::Auto => !machine::probe_memory_events().available,
        _ => false,
    };
    let first = clock.then(FirstEvent::open).flatten();
    // A program that has our real-time priority may leave the kernel no CPU to open it.
    while is_real_time() && first.as_ref().is_some_and(|first| !first.is_open()) {
        std::thread::sleep(Duration::from_micros(200));
    }
    first
}

fn is_real_time() -> bool {
    // SAFETY: asks for the calling thread's policy; no memory is passed.
    let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
    matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR)
}

/// The kernel's samples, few until something is in doubt, of a child that waits to be let
/// go; or those to come, if the kernel takes its time over `first`.
///
/// # Errors
/// If the kernel refuses them.
pub fn open_after(
    first: FirstEvent,
    child: ProcessId,
    frequency: Option<u32>,
) -> Result<(Sampler, Chosen)> {
    let plan = frequency.map_or_else(FrequencyPlan::watchful, FrequencyPlan::fixed);
    let chosen = Chosen {
        name: "perf",
        frequencies: range(&plan),
    };
    let sampler = if first.is_open() {
        Sampler::Perf(PerfSampler::for_child(child, plan, false)?)
    } else {
        Sampler::Coming(Coming { first, plan })
    };
    Ok((sampler, chosen))
}

/// Opens the observer on a child that waits to be let go.
///
/// # Errors
/// If the kernel refuses it.
pub fn open(
    kind: Kind,
    child: ProcessId,
    frequency: Option<u32>,
    follow_children: bool,
) -> Result<(Sampler, Chosen)> {
    Ok(match kind {
        Kind::Perf => {
            let plan = frequency.map_or_else(FrequencyPlan::default, FrequencyPlan::fixed);
            let chosen = Chosen {
                name: "perf",
                frequencies: range(&plan),
            };
            let sampler = PerfSampler::for_child(child, plan, follow_children)?;
            (Sampler::Perf(sampler), chosen)
        }
        Kind::Timer => {
            // The kernel looks at timers of CPU time at its ticks only.
            let hz = timer_frequency(frequency).min(ticks_per_second());
            let chosen = Chosen {
                name: "timer",
                frequencies: (hz, hz),
            };
            (Sampler::Timer, chosen)
        }
        Kind::Isolate => bail!("the isolate observer is for `sunder detect` only"),
        Kind::Pmu => {
            let hz = frequency.unwrap_or(PMU_FREQUENCY);
            let sampler = PmuSampler::for_child(child, hz, follow_children)
                .context("cannot open the PMU's memory events")?;
            let chosen = Chosen {
                name: "pmu",
                frequencies: (hz, hz),
            };
            (Sampler::Pmu(sampler), chosen)
        }
    })
}

/// Memory events a second, thread and event: each costs an interrupt of some
/// microseconds, as a sample of the clock does.
const PMU_FREQUENCY: u32 = 1000;

/// Highest and lowest frequency of a plan.
pub fn range(plan: &FrequencyPlan) -> (u32, u32) {
    let all = plan.frequencies();
    let (highest, lowest) = (all.first(), all.last());
    (
        highest.copied().unwrap_or_default(),
        lowest.copied().unwrap_or_default(),
    )
}

/// The timer observer has no rings of the kernel's between it and us: one
/// frequency serves. A signal costs some 3 us.
pub fn timer_frequency(asked: Option<u32>) -> u32 {
    asked.unwrap_or(1000)
}

/// How often the kernel's clock ticks: its coarse clock moves once a tick.
fn ticks_per_second() -> u32 {
    let mut tick = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `tick` is a valid place for the answer.
    let known = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut tick) } == 0;
    match u32::try_from(tick.tv_nsec) {
        Ok(nanoseconds) if known && nanoseconds > 0 => (1_000_000_000 / nanoseconds).max(1),
        _ => u32::MAX,
    }
}

/// How many descriptors, at most `wanted`, can be spent beside the observers'
/// own: an eighth of what this process may have.
pub fn descriptors(wanted: u32) -> u32 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place for the answer.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    let share = u32::try_from(limit.rlim_cur / 8).unwrap_or(u32::MAX);
    if known { wanted.min(share) } else { 2 }
}

/// Something to wait on for the end of a process; none on kernels before 5.3.
pub fn pidfd(process: ProcessId) -> Option<OwnedFd> {
    // SAFETY: the call takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process.0, 0) };
    // SAFETY: a descriptor that the kernel has just given us.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Waits until the process has ended, at most `timeout`; whether it has.
pub fn wait_end(pidfd: &Option<OwnedFd>, timeout: Duration) -> bool {
    let Some(fd) = pidfd else {
        std::thread::sleep(timeout);
        return false;
    };
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let timeout = libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: one valid entry and a valid time; no signal mask is set.
    unsafe { libc::ppoll(&raw mut poll, 1, &raw const timeout, std::ptr::null()) > 0 }
}

/// Why nothing should be preloaded into `program`, if so: the sanitizers' runtimes
/// insist on being the first library, and the loader of a 32-bit program would
/// complain on its standard error.
pub fn preload_hindrance(program: &OsStr) -> Option<&'static str> {
    let path = interpreter_of(&resolve(program)?);
    let mut class = [0; 5];
    let file = File::open(&path).ok()?;
    file.read_exact_at(&mut class, 0).ok()?;
    if class.starts_with(b"\x7fELF") && class[4] != ELFCLASS64 {
        return Some("it is a 32-bit program");
    }
    let facts = sunder_objects::inspect(&path)?;
    let sanitized = |library: &String| {
        ["libasan", "libtsan", "liblsan", "libhwasan", "libclang_rt"]
            .iter()
            .any(|name| library.starts_with(name))
    };
    facts
        .needed
        .iter()
        .any(sanitized)
        .then_some("a sanitizer watches its memory")
}

/// `e_ident[EI_CLASS]` of 64-bit files.
const ELFCLASS64: u8 = 2;

/// The file that `execvp` would take.
fn resolve(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| std::fs::metadata(file).is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0))
}

/// The interpreter of a script; the file itself if it is none.
fn interpreter_of(path: &Path) -> PathBuf {
    let mut head = [0; 256];
    let read = File::open(path).and_then(|file| file.read_at(&mut head, 0));
    let line = match read {
        Ok(len) if head.starts_with(b"#!") => &head[2..len],
        _ => return path.to_owned(),
    };
    let name = line
        .split(|b| b.is_ascii_whitespace())
        .find(|word| !word.is_empty());
    name.map_or_else(|| path.to_owned(), |n| OsStr::from_bytes(n).into())
}

/// The file that is meant by the name of a program, as a shell finds it.
pub fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return std::fs::canonicalize(program).ok();
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Why a program may not have loaded the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// It loads libraries.
    Dynamic,
    /// It has no dynamic loader.
    Static,
    /// The loader ignores what is preloaded.
    Privileged,
}

/// How the program at `path` is linked, as far as its file tells.
pub fn linkage(path: &Path) -> Linkage {
    let privileged = std::fs::metadata(path).is_ok_and(|m| m.mode() & 0o6000 != 0);
    if privileged {
        return Linkage::Privileged;
    }
    match sunder_objects::inspect(path) {
        Some(facts) if !facts.dynamic => Linkage::Static,
        _ => Linkage::Dynamic,
    }
}
