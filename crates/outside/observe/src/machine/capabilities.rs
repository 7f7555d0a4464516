//! What the kernel, the hypervisor and the permissions let an observer do.
//!
//! `doctor` prints these, and the choice of an observer depends on them. Every probe really makes
//! the call, because settings may promise what seccomp filters, hypervisors and sandboxes refuse.

use crate::perf_event::{
    Attr, EventTarget, PerfEvent, PerfRefusal, USER_REGISTERS, kernel, paranoid_level,
};
use crate::pmu;
use crate::proc::{Fields, Folder};
use std::fs;
use std::io;
use std::path::Path;
use sunder_access::ProcessId;

/// One capability that an observer may need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Whether it works here and now.
    pub available: bool,
    /// The result of the probe in words; if it does not work, the reason.
    pub detail: String,
    /// What a person can do to get it, if it does not work and can be got.
    pub remedy: Option<String>,
}

impl Capability {
    fn yes(detail: impl Into<String>) -> Self {
        Self {
            available: true,
            detail: detail.into(),
            remedy: None,
        }
    }

    fn no(detail: impl Into<String>, remedy: Option<&str>) -> Self {
        Self {
            available: false,
            detail: detail.into(),
            remedy: remedy.map(Into::into),
        }
    }
}

/// All capabilities that are probed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// `perf_event_open` for software clocks in user mode.
    pub software_events: Capability,
    /// User registers in such samples: what the default observer needs.
    pub user_registers: Capability,
    /// Data breakpoints that really trap.
    pub watchpoints: Capability,
    /// How many of them a thread can have at once; 0 if they do not work.
    pub watchpoint_slots: u32,
    /// Hardware counters (cycles): whether there is a PMU.
    pub hardware_counters: Capability,
    /// Memory events of the PMU: Intel load latency, AMD IBS.
    pub memory_events: Capability,
    /// Memory protection keys.
    pub protection_keys: Capability,
    /// Whether we may trace a process of our own; `detail` adds what is allowed for others.
    pub ptrace: Capability,
    /// `/proc/sys/kernel/perf_event_paranoid`; `None` if it cannot be read: then the kernel has no
    /// perf events.
    pub perf_event_paranoid: Option<i32>,
    /// `/proc/sys/kernel/perf_event_mlock_kb`: kibibytes of ring that an
    /// unprivileged user may map per CPU.
    pub perf_event_mlock_kb: Option<u64>,
    /// `/proc/sys/kernel/yama/ptrace_scope`; `None` without Yama.
    pub ptrace_scope: Option<i32>,
    /// The `Seccomp:` line of `/proc/self/status`: 0 none, 1 strict, 2 filter.
    pub seccomp: Option<u32>,
}

impl Capabilities {
    /// Makes all probes; takes a few milliseconds. Forks one child that does
    /// nothing but exit, to probe ptrace.
    pub fn probe() -> Self {
        let sys = Path::new("/proc/sys/kernel");
        let ptrace_scope = read_number(&sys.join("yama/ptrace_scope"));
        let (watchpoints, watchpoint_slots) = probe_watchpoints();
        Self {
            software_events: probe_clock(0),
            user_registers: probe_user_registers(),
            watchpoints,
            watchpoint_slots,
            hardware_counters: probe_cycles(),
            memory_events: probe_memory_events(),
            protection_keys: probe_protection_keys(),
            ptrace: probe_ptrace(ptrace_scope),
            perf_event_paranoid: paranoid_level(),
            perf_event_mlock_kb: read_number(&sys.join("perf_event_mlock_kb")),
            ptrace_scope,
            seccomp: seccomp_mode(),
        }
    }
}

fn read_number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn seccomp_mode() -> Option<u32> {
    Fields::read(Folder::Own).ok()?.number("Seccomp")
}

const ALLOW_USER_EVENTS: &str = "sudo sysctl kernel.perf_event_paranoid=2, or run as root";
const ALLOW_IN_CONTAINER: &str =
    "start the container with --cap-add PERFMON or a seccomp profile that allows perf_event_open";

/// A refused event in words, with a remedy.
fn refused(what: &str, error: &io::Error) -> Capability {
    let errno = error.raw_os_error().unwrap_or(0);
    let refusal = PerfRefusal::from_errno(errno, ProcessId(std::process::id()));
    let remedy = match refusal {
        PerfRefusal::Paranoid { .. } => Some(ALLOW_USER_EVENTS),
        PerfRefusal::Filtered => Some(ALLOW_IN_CONTAINER),
        _ => None,
    };
    Capability::no(format!("{what}: {refusal}"), remedy)
}

/// [`Capabilities::user_registers`] alone.
pub fn probe_user_registers() -> Capability {
    probe_clock(kernel::PERF_SAMPLE_REGS_USER)
}

/// The event of [`probe_user_registers`], without any text. The first perf event on a machine
/// takes long to open.
pub(crate) fn open_clock() -> io::Result<PerfEvent> {
    PerfEvent::open(
        &clock(kernel::PERF_SAMPLE_REGS_USER),
        EventTarget::Thread(0),
    )
}

/// Whether the kernel would open such an event, without the delay of opening one. It is asked for a
/// thread that does not exist: `ESRCH` means that all other checks have passed.
pub(crate) fn may_sample() -> bool {
    /// Above the highest number that the kernel gives (`PID_MAX_LIMIT`, 2^22).
    const NO_SUCH_THREAD: u32 = 1 << 30;
    let opened = PerfEvent::open(
        &clock(kernel::PERF_SAMPLE_REGS_USER),
        EventTarget::Thread(NO_SUCH_THREAD),
    );
    opened.is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH))
}

fn clock(more: u32) -> Attr {
    let mut attr = Attr::software(kernel::PERF_COUNT_SW_CPU_CLOCK);
    attr.sample_period = 1_000_000;
    let fields = kernel::PERF_SAMPLE_IP | kernel::PERF_SAMPLE_TID | kernel::PERF_SAMPLE_TIME;
    attr.sample_type = (fields | more).into();
    if more & kernel::PERF_SAMPLE_REGS_USER != 0 {
        attr.sample_regs_user = USER_REGISTERS;
    }
    attr
}

fn probe_clock(more: u32) -> Capability {
    let what = if more & kernel::PERF_SAMPLE_REGS_USER == 0 {
        "cpu-clock samples"
    } else {
        "cpu-clock samples with user registers"
    };
    match PerfEvent::open(&clock(more), EventTarget::Thread(0)) {
        Ok(_) => Capability::yes(what),
        Err(error) => refused(what, &error),
    }
}

fn probe_cycles() -> Capability {
    let attr = Attr::new(
        kernel::PERF_TYPE_HARDWARE,
        kernel::PERF_COUNT_HW_CPU_CYCLES.into(),
    );
    match PerfEvent::open(&attr, EventTarget::Thread(0)) {
        Ok(_) => Capability::yes("hardware cycle counter"),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Capability::no(
            "hardware cycle counter: this machine has no PMU, or its hypervisor hides it",
            None,
        ),
        Err(error) => refused("hardware cycle counter", &error),
    }
}

/// A word to trap on; 8-aligned by its type.
static WATCHED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Opens as many breakpoints as a thread gets, then accesses the word under one of them: some
/// sandboxes accept breakpoints that never trap.
fn probe_watchpoints() -> (Capability, u32) {
    use std::sync::atomic::Ordering;
    /// x86 has four debug address registers (Intel SDM volume 3B, 18.2.1); one
    /// more, to see the limit.
    const TRIES: u32 = 5;
    const TOUCHES: u64 = 3;

    let mut events = Vec::new();
    let mut error = None;
    for _ in 0..TRIES {
        match PerfEvent::open(
            &Attr::breakpoint(WATCHED.as_ptr() as u64),
            EventTarget::Thread(0),
        ) {
            Ok(event) => events.push(event),
            Err(refused) => {
                error = Some(refused);
                break;
            }
        }
    }
    let slots = events.len() as u32;
    let Some(first) = events.first() else {
        let error = error.unwrap_or_else(|| io::ErrorKind::Other.into());
        return (refused("hardware watchpoints", &error), 0);
    };
    let counted = first.enable().and_then(|()| {
        for _ in 0..TOUCHES {
            WATCHED.store(1, Ordering::Relaxed);
        }
        first.disable()?;
        first.count()
    });
    match counted {
        Ok(TOUCHES) => {
            let detail = format!("hardware watchpoints, {slots} a thread");
            (Capability::yes(detail), slots)
        }
        Ok(count) => {
            let detail = format!(
                "hardware watchpoints are accepted, but {TOUCHES} accesses trapped {count} times"
            );
            (Capability::no(detail, None), 0)
        }
        Err(error) => (refused("hardware watchpoints", &error), 0),
    }
}

/// Opens the memory events that the kernel describes:
/// [`Capabilities::memory_events`] alone.
pub fn probe_memory_events() -> Capability {
    let found = pmu::machine_events();
    if found.is_empty() {
        return Capability::no(
            "memory events: the kernel describes neither Intel's mem-loads nor AMD's ibs_op",
            Some(
                "nothing here; on bare metal, or in a virtual machine that is given the PMU with \
                 memory sampling, they are used as well",
            ),
        );
    }
    let names: Vec<_> = found.iter().map(|event| event.name.clone()).collect();
    match pmu::try_open(found) {
        Ok(names) => Capability::yes(format!("memory events: {names}")),
        Err(error) => Capability::no(
            format!(
                "memory events: {} are described, but {error}",
                names.join(", ")
            ),
            None,
        ),
    }
}

fn probe_protection_keys() -> Capability {
    // SAFETY: allocates a key number and touches no memory.
    let key = unsafe { libc::syscall(libc::SYS_pkey_alloc, 0, 0) };
    if key < 0 {
        let error = io::Error::last_os_error();
        let detail = match error.raw_os_error() {
            // pkey_alloc(2): the second argument is refused, or no key is
            // free, also where there are none at all.
            Some(libc::EINVAL | libc::ENOSPC) => {
                "protection keys: the CPU has none, or the hypervisor hides them".into()
            }
            _ => format!("protection keys: {error}"),
        };
        return Capability::no(detail, None);
    }
    // SAFETY: frees the key that was just allocated and that no page has.
    unsafe { libc::syscall(libc::SYS_pkey_free, key) };
    Capability::yes("memory protection keys")
}

fn probe_ptrace(scope: Option<i32>) -> Capability {
    let others = match scope {
        None | Some(0) => "processes of the same user",
        Some(1) => "own children; others need root (ptrace_scope is 1)",
        Some(2) => "with CAP_SYS_PTRACE only (ptrace_scope is 2)",
        Some(_) => "nothing (ptrace_scope is 3)",
    };
    match trace_a_child() {
        Ok(()) => Capability::yes(format!("ptrace of {others}")),
        Err(error) => Capability::no(
            format!("ptrace: {error}; allowed by Yama: {others}"),
            scope
                .is_some_and(|scope| scope > 1)
                .then_some("sudo sysctl kernel.yama.ptrace_scope=1 (3 lasts until the next boot)"),
        ),
    }
}

/// Seizes a child that waits to be killed.
fn trace_a_child() -> io::Result<()> {
    // SAFETY: the child calls nothing but pause and _exit, both
    // async-signal-safe, so the state of other threads' locks is irrelevant.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::pause();
            libc::_exit(0);
        }
    }
    // SAFETY: seizes, kills and reaps our own child; no memory is passed.
    unsafe {
        let seized = libc::ptrace(libc::PTRACE_SEIZE, child, 0, 0);
        let error = io::Error::last_os_error();
        libc::kill(child, libc::SIGKILL);
        while libc::waitpid(child, std::ptr::null_mut(), 0) < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
        if seized == 0 { Ok(()) } else { Err(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_event_has_a_reason_and_no_remedy() {
        let enoent = io::Error::from_raw_os_error(libc::ENODEV);
        let told = refused("hardware cycle counter", &enoent);
        assert!(!told.available && told.remedy.is_none());
        assert!(told.detail.starts_with("hardware cycle counter: "));
        let enosys = io::Error::from_raw_os_error(libc::ENOSYS);
        assert!(
            refused("samples", &enosys)
                .detail
                .contains("no perf events")
        );
    }

    #[test]
    fn missing_capabilities_have_reasons_and_available_ones_no_remedy() {
        let found = Capabilities::probe();
        let all = [
            &found.software_events,
            &found.user_registers,
            &found.watchpoints,
            &found.hardware_counters,
            &found.memory_events,
            &found.protection_keys,
            &found.ptrace,
        ];
        for capability in all {
            println!("{capability:?}");
            assert!(!capability.detail.is_empty());
            assert!(!capability.available || capability.remedy.is_none());
        }
        // Registers come only with samples.
        assert!(found.software_events.available || !found.user_registers.available);
        assert!(found.watchpoint_slots <= 4);
        assert_eq!(found.watchpoints.available, found.watchpoint_slots > 0);
    }
}
