//! The part of `sunder doctor` that says which rights each command needs on this machine, and how
//! to give no more than these. What the rules mean is in `SECURITY.md`.

use std::fmt::Write as _;
use sunder_observe::machine::Capabilities;

/// From this level on users without `CAP_PERFMON` get no perf events, on kernels that have it.
const NO_EVENTS: i32 = 3;

/// Which capabilities a user needs to attach to a process of his own, given the machine's rules;
/// `None` if no capability helps.
fn to_attach(paranoid: Option<i32>, ptrace_scope: Option<i32>) -> Option<Vec<&'static str>> {
    if ptrace_scope.is_some_and(|scope| scope > 2) {
        return None;
    }
    let events = paranoid.is_some_and(|level| level >= NO_EVENTS);
    let others = ptrace_scope.is_some_and(|scope| scope > 0);
    let needed = [(events, "perfmon"), (others, "sys_ptrace")];
    Some(needed.iter().filter(|n| n.0).map(|n| n.1).collect())
}

/// Writes the part.
pub fn part(text: &mut String, found: &Capabilities, confines: (bool, bool)) {
    let _ = writeln!(text, "\nRights that commands need here");
    let mut row = |commands: &str, needs: &str| {
        let _ = writeln!(text, "  {commands:<42}{needs}");
    };
    row(
        "report, diff, import, simulate, what-if",
        "to read their files",
    );
    row(
        "detect, trace, run, protect, repair, cure",
        "those of the program, which they start",
    );
    let needed = to_attach(found.perf_event_paranoid, found.ptrace_scope);
    let own = match &needed {
        None => "nothing helps: kernel.yama.ptrace_scope is 3".to_owned(),
        Some(none) if none.is_empty() => "the process's user".to_owned(),
        Some(some) => {
            let some: Vec<_> = some.iter().map(|name| capability(name)).collect();
            format!("the process's user with {}", some.join(" and "))
        }
    };
    row("attach, attach --repair", &own);
    if let Some(needed) = needed {
        let started = match needed.is_empty() {
            true => "sudo -u USER sunder attach --pid PID".to_owned(),
            false => with_capabilities(&needed),
        };
        let _ = writeln!(
            text,
            "    the least for a process of another user:\n      {started}"
        );
    }
    let kept = |kept: bool| if kept { "yes" } else { "no" };
    let _ = writeln!(
        text,
        "  Sunder gives up rights before it reads what others wrote: system calls (seccomp) {}, files\n  \
         (Landlock) {}.",
        kept(confines.0),
        kept(confines.1)
    );
}

fn capability(name: &str) -> String {
    format!("CAP_{}", name.to_uppercase())
}

fn with_capabilities(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("+{name}")).collect();
    let names = names.join(",");
    format!(
        "sudo setpriv --reuid USER --regid GROUP --init-groups \\\n        \
         --inh-caps {names} --ambient-caps {names} sunder attach --pid PID"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_capability_is_asked_for_that_the_machine_does_not_need() {
        assert_eq!(to_attach(Some(2), None), Some(vec![]));
        assert_eq!(to_attach(Some(2), Some(0)), Some(vec![]));
        assert_eq!(to_attach(Some(4), Some(0)), Some(vec!["perfmon"]));
        let both = vec!["perfmon", "sys_ptrace"];
        assert_eq!(to_attach(Some(3), Some(2)), Some(both));
        assert_eq!(to_attach(Some(2), Some(3)), None);
    }
}
