//! Refuses programs into which the library can't or may not be put, with one sentence for each
//! reason. Called by `attach` and `entry`. Only reads.

use super::super::control::CONTROL_NAME;
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use sunder_access::{Mapping, ProcessId};
use sunder_hooking::{Calls, is_covered};
use sunder_observe::foreign::ForeignFiles;
use sunder_observe::proc::{self, Fields, Folder};
use sunder_stop::Memory;

/// Checks whether the library may be put into `process`, without touching it. `calls` caches what
/// the process's modules do.
///
/// # Errors
/// Says why it may not be put in.
pub fn unless_sound(process: ProcessId, calls: &mut Calls) -> Result<()> {
    let its = status(Folder::Process(process))?;
    let tracer = its.get("TracerPid");
    ensure!(
        matches!(tracer, "0" | ""),
        "process {process} is being traced by process {tracer} (a debugger?), so that nothing can be \
         moved in it; try again when that has let it go"
    );
    ensure!(
        !its.get("State").starts_with(['T', 't']),
        "process {process} is stopped; let it go on (kill -CONT {process}) and try again"
    );
    ensure!(
        !proc::is_frozen(process),
        "process {process} is frozen by its control group (a container that is paused?); let it go on and \
         try again"
    );
    may_attach(process)?;
    is_of_this_machine(process)?;
    ensure!(
        proc::living_number(process) == process,
        "the first thread of process {process} has ended, whose number leads to its memory and files, \
         so that nothing can be moved in it"
    );
    let mappings = proc::mappings(process)?;
    ensure!(
        !mappings
            .iter()
            .any(|m| m.execute && m.path.ends_with("/libc.so.6 (deleted)")),
        "the C library of process {process} has been replaced by another since it started, so that \
         its code can't be read; start it again"
    );
    ensure!(
        mappings.iter().any(is_glibc),
        "process {process} is statically linked, or uses another C library than glibc 2.34 or newer: \
         its kernel calls can't be led through hooks, so that nothing can be moved in it"
    );
    ensure!(
        !mappings.iter().any(|m| m.path.starts_with(CONTROL_NAME)),
        "there is a library of Sunder's in process {process} already, or was left there when Sunder \
         was killed"
    );
    let (its_own, ours) = (Confined::of(&its), own_confinement()?);
    ensure!(
        &its_own == ours || !its_own.is_free(),
        "Sunder itself is confined by seccomp here, and process {process} is not: run Sunder without that \
         (with Docker: `--security-opt seccomp=unconfined`)"
    );
    ensure!(
        &its_own == ours,
        "process {process} is confined by seccomp, which may end it for kernel calls that it does not \
         expect, so that nothing can be moved in it"
    );
    ensure!(
        !its.get("x86_Thread_features").contains("shstk"),
        "process {process} has shadow stacks, which can't be led around moved bytes"
    );
    calls.set_files(Arc::new(ForeignFiles::of(process)));
    calls.begin(&sunder_access::Mappings::new());
    // The calls of its own modules are planned for later, when everything else is known.
    if let Err(why) = calls.own(&mappings) {
        bail!("nothing can be moved in process {process}: {why}");
    }
    Ok(())
}

/// Whether `process` has code of glibc; false too if it has ended.
pub fn has_glibc(process: ProcessId) -> bool {
    proc::mappings(process).is_ok_and(|mappings| mappings.iter().any(is_glibc))
}

fn is_glibc(mapping: &Mapping) -> bool {
    mapping.execute && is_covered(&mapping.path)
}

/// How seccomp confines a thread: its mode and its number of filters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confined([String; 2]);

impl Confined {
    fn of(status: &Fields) -> Self {
        Self(["Seccomp", "Seccomp_filters"].map(|f| status.get(f).to_owned()))
    }

    /// Whether seccomp is off.
    fn is_free(&self) -> bool {
        self.0[0] == "0"
    }
}

/// How seccomp confines a process or thread.
///
/// # Errors
/// If it does not exist.
pub fn confined(thread: Folder) -> Result<Confined> {
    Ok(Confined::of(&status(thread)?))
}

/// How seccomp confined this process when it was first asked: before it confined itself further. A
/// process with the same filters was confined by whoever started both, as in a container.
///
/// # Errors
/// If it can't be read.
pub fn own_confinement() -> Result<&'static Confined> {
    static OWN: OnceLock<Confined> = OnceLock::new();
    if let Some(known) = OWN.get() {
        return Ok(known);
    }
    let now = confined(Folder::Own).context("what confines this process can't be read")?;
    Ok(OWN.get_or_init(|| now))
}

/// Whether a process is stopped by a signal, not by a tracer.
pub fn is_stopped(process: ProcessId) -> bool {
    status(Folder::Process(process)).is_ok_and(|its| its.get("State").starts_with('T'))
}

fn status(folder: Folder) -> Result<Fields> {
    Fields::read(folder).with_context(|| match folder {
        Folder::Process(process) => format!("there is no process {process} (any more)"),
        Folder::Thread(process, thread) => {
            format!("there is no process {process}/task/{thread} (any more)")
        }
        Folder::Own | Folder::OwnThread => "there is no process self (any more)".into(),
    })
}

/// Whether we may use `ptrace` on the process, which the kernel tells without stopping it.
fn may_attach(process: ProcessId) -> Result<()> {
    let Err(error) = Memory::of(process) else {
        return Ok(());
    };
    let refused = matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM));
    ensure!(refused, "process {process} can't be attached to: {error}");
    // SAFETY: takes no arguments.
    let own = unsafe { libc::geteuid() };
    let owner = std::fs::metadata(format!("/proc/{process}")).map_or(own, |m| m.uid());
    if own == 0 {
        const CAP_SYS_PTRACE: u32 = 19;
        let held = Fields::read(Folder::Own)
            .ok()
            .and_then(|its| its.bits("CapEff"));
        let may = held.is_some_and(|bits| bits >> CAP_SYS_PTRACE & 1 != 0);
        ensure!(
            !may,
            "process {process} can't be attached to, even by root: {error}"
        );
        bail!(
            "process {process} may not be attached to, even by root without CAP_SYS_PTRACE (in a \
             container: --cap-add SYS_PTRACE)"
        );
    }
    if owner == own {
        const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";
        let rules = match Path::new(YAMA).exists() {
            true => {
                format!(" or another parent than the kernel's ptrace rules want (see {YAMA})")
            }
            false => String::new(),
        };
        bail!("process {process} may not be attached to: it has privileges{rules}; run as root");
    }
    bail!(
        "process {process} belongs to user {owner} and may not be attached to; run as that user or as root"
    )
}

fn is_of_this_machine(process: ProcessId) -> Result<()> {
    const CLASS_64: u8 = 2;
    const X86_64: [u8; 2] = [62, 0];
    let mut head = [0; 20];
    let living = proc::living_number(process);
    File::open(format!("/proc/{living}/exe"))
        .and_then(|mut file| file.read_exact(&mut head))
        .with_context(|| format!("the program of process {process} can't be read"))?;
    ensure!(
        head[4] == CLASS_64 && head[18..] == X86_64,
        "process {process} runs a 32-bit program, or one of another machine: only x86-64 code can be \
         rewritten"
    );
    let space = |p: &str| std::fs::read_link(format!("/proc/{p}/ns/mnt")).ok();
    ensure!(
        space(&living.to_string()) == space("self"),
        "process {process} lives in a container with files of its own; run sunder in there"
    );
    Ok(())
}
