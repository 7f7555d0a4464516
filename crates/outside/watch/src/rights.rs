//! What watching needs and this process does not have.

use rustix::thread::CapabilitySet;
use sunder_observe::perf::system_refusal;
use sunder_observe::proc;

/// Something that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What, as a sentence.
    pub what: String,
    /// What can be done about it.
    pub remedy: String,
    /// Whether nothing can be watched without it.
    pub is_needed: bool,
}

/// What is missing here and now; nothing if all processes can be watched.
pub fn missing() -> Vec<Missing> {
    let mut all = Vec::new();
    let add = |all: &mut Vec<Missing>, needed, what: String, remedy: &str| {
        all.push(Missing {
            what,
            remedy: remedy.into(),
            is_needed: needed,
        });
    };
    if let Err(error) = proc::is_ours() {
        let remedy = "mount /proc of this process namespace (Kubernetes: hostPID: true)";
        add(&mut all, true, format!("{error}."), remedy);
    }
    if let Some(refusal) = system_refusal() {
        let remedy =
            "run as root, or with CAP_PERFMON and CAP_SYS_PTRACE (systemd: AmbientCapabilities=)";
        add(
            &mut all,
            true,
            format!("The kernel refuses: {refusal}."),
            remedy,
        );
    }
    let own = rustix::thread::capabilities(None).map(|sets| sets.effective);
    let own = own.unwrap_or(CapabilitySet::empty());
    if !own.contains(CapabilitySet::SYS_PTRACE) {
        let what = "Without CAP_SYS_PTRACE, only programs of this user are looked at closely.";
        let remedy = "run as root, or with CAP_PERFMON and CAP_SYS_PTRACE";
        add(&mut all, true, what.into(), remedy);
    }
    if !own.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
        let what = "Without CAP_SETUID and CAP_SETGID, of the programs and debug information only files \
                    that everybody may read are opened.";
        let remedy = "run as root, or leave it: most programs may be read by everybody";
        add(&mut all, false, what.into(), remedy);
    }
    if std::fs::read_link("/proc/1/ns/pid").ok() != std::fs::read_link("/proc/self/ns/pid").ok() {
        let what = "The namespace of processes may not be the machine's: processes outside of it are not \
                    seen.";
        let remedy = "start it in the machine's (docker run --pid=host, Kubernetes: hostPID: true)";
        add(&mut all, false, what.into(), remedy);
    }
    all
}
