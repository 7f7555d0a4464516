//! Takes away from this process what a command does not need, before it reads what others wrote:
//! programs, debug information, code, recordings. A mistake in a parser then gives nothing away.
//!
//! Called by the program `sunder` alone, on its first thread: what is given up can't be had back. Rights
//! are a thread's own, so they are given up before other threads start; the filter of system calls is
//! for all threads. The library must not call it, since it lives in somebody else's process. This crate
//! must not decide what a command does, and must not fail a command: what the kernel refuses is
//! returned, and said by the caller.

mod calls;
mod files;

use calls::Subject;
pub use calls::Work;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::fmt;
use std::path::Path;
use sunder_access::ProcessId;
use sunder_observe::foreign::ForeignFiles;
use sunder_observe::proc::{self, MemoryUse};

/// What observing processes of others takes: their memory and mappings, perf events and the memory
/// of their rings, the kernel's links to mapped files (`capabilities(7)`).
const TO_OBSERVE: CapabilitySet = CapabilitySet::SYS_PTRACE
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::CHECKPOINT_RESTORE);

/// What has been given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Confined {
    /// Whether only the system calls that the command needs are left (seccomp).
    pub calls: bool,
    /// Whether files can only be read (Landlock); `None` where the command needs what Landlock
    /// takes away.
    pub files: Option<bool>,
    /// Whether files are opened with the rights of the observed process, and of the capabilities
    /// only those are left that observing needs; `None` where there was nothing to give up.
    pub rights: Option<bool>,
}

impl Confined {
    /// Whether nothing was refused.
    pub fn is_whole(&self) -> bool {
        self.calls && self.files != Some(false) && self.rights != Some(false)
    }
}

impl fmt::Display for Confined {
    /// What was refused, as the end of a sentence: "… refuses …".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refused = [
            (!self.calls, "a filter of system calls (seccomp)"),
            (self.files == Some(false), "rules for files (Landlock)"),
            (self.rights == Some(false), "the rights of the process"),
        ];
        let refused: Vec<&str> = refused.iter().filter(|r| r.0).map(|r| r.1).collect();
        f.write_str(&refused.join(" and "))
    }
}

/// For a command that reads files and writes its report to what is open already.
pub fn to_files() -> Confined {
    let files = Some(files::only_read(None));
    Confined {
        calls: calls::only_for(Work::Files, None, false),
        files,
        rights: None,
    }
}

/// As [`to_files`], for a command that also makes files below `folder`. That is left to it only if Landlock keeps
/// it from making others: the second answer says so.
pub fn to_files_and_new_ones(folder: &Path) -> (Confined, bool) {
    let kept = files::only_read(Some(folder));
    let work = if kept { Work::NewFiles } else { Work::Files };
    let confined = Confined {
        calls: calls::only_for(work, None, false),
        files: Some(kept),
        rights: None,
    };
    (confined, kept)
}

/// For a command that observes `process` and, if `work` is [`Work::Repair`], changes it. Landlock is not for
/// it: it forbids every look at a process that is not confined as well.
pub fn beside(process: ProcessId, work: Work) -> Confined {
    let used = match work {
        Work::Repair => MemoryUse::Write,
        Work::Observe | Work::Watch | Work::Files | Work::NewFiles => MemoryUse::Read,
    };
    let memory = || proc::memory(process, used);
    let before = memory().ok();
    keep_priority(work);
    let rights = ForeignFiles::of(process).take_rights_for_good(TO_OBSERVE);
    if let Some(before) = before
        && rights == Some(true)
        && memory().is_err()
    {
        // It hides its memory, which is root's then, whatever user it has.
        proc::hold_memory(process, used, before);
    }
    let subject = Subject {
        process,
        is_ours: false,
    };
    Confined {
        calls: calls::only_for(work, Some(subject), rights != Some(true)),
        files: None,
        rights,
    }
}

/// For a command that observes all processes of the machine. It opens what each of them names with the
/// rights of that one, so the rights to take others' are kept; and that to read files of all users, as
/// the kernel shows the memory of a process as a file of its user.
pub fn beside_all() -> Confined {
    let kept = TO_OBSERVE
        .union(CapabilitySet::DAC_READ_SEARCH)
        .union(CapabilitySet::SETUID)
        .union(CapabilitySet::SETGID);
    Confined {
        rights: keep(kept),
        calls: calls::only_for(Work::Watch, None, true),
        files: None,
    }
}

/// For the part of a command that hands results to others, and reads nothing but these results: no
/// capability is left. It goes on to write files and to connect.
pub fn to_send() -> Confined {
    Confined {
        rights: keep(CapabilitySet::empty()),
        calls: true,
        files: None,
    }
}

/// Gives up all capabilities but `kept`, for good. Returns whether that was possible; `None` if there was
/// nothing to give up.
fn keep(kept: CapabilitySet) -> Option<bool> {
    let own = rustix::thread::capabilities(None).ok()?;
    if (own.permitted | own.effective).difference(kept).is_empty() {
        return None;
    }
    let sets = CapabilitySets {
        effective: own.effective & kept,
        permitted: own.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    // Without capabilities of its own, root would get all of them back with a program that it executes.
    let _ = rustix::thread::set_no_new_privs(true);
    Some(rustix::thread::set_capabilities(None, sets).is_ok())
}

/// For a command that has started `process`, which has begun: what the command keeps is not handed down
/// to it any more. It has the rights with which it was started, as we have them, so of these none is given
/// up: [`ForeignFiles`] notices when it has others.
pub fn beside_our_own(process: ProcessId, work: Work) -> Confined {
    keep_priority(work);
    let subject = Subject {
        process,
        is_ours: true,
    };
    Confined {
        calls: calls::only_for(work, Some(subject), true),
        files: None,
        rights: None,
    }
}

/// A repair has a thread that answers the program's threads, and starts it later; it may have the
/// lowest real-time priority then, also without the right to change priorities. The program has
/// been started by now, so it does not inherit this.
fn keep_priority(work: Work) {
    if work == Work::Repair {
        let lowest = Rlimit {
            current: Some(1),
            maximum: Some(1),
        };
        let _ = setrlimit(Resource::Rtprio, lowest);
    }
}

/// Whether this kernel lets a process confine itself: by a filter of system calls, and by rules for
/// files.
pub fn is_possible() -> (bool, bool) {
    (calls::is_possible(), files::is_possible())
}
