//! Finds running processes by what a user knows of them: the program's name, the container, the
//! systemd unit. Called for `attach` and `top`. It must not look deeper into a process than
//! `/proc` shows to everybody.

use anyhow::{Context, Result};
use std::fmt::{self, Display, Formatter};
use sunder_access::{ProcessId, ThreadId};
use sunder_observe::proc;

/// What is known of the process; what is `None` may be anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sought {
    /// The name of the program's file, or of the process.
    pub name: Option<String>,
    /// The container's id, or how it begins.
    pub container: Option<String>,
    /// The unit's name, with or without `.service`.
    pub unit: Option<String>,
}

/// A process that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its number.
    pub process: ProcessId,
    /// Its arguments, joined by spaces; not cleaned.
    pub command: String,
}

/// The columns of a command line that are shown.
const SHOWN: usize = 70;

impl Display for Running {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let command: String = self.command.chars().take(SHOWN).collect();
        write!(f, "{:>7}  {command}", self.process.0)
    }
}

/// The processes that fit, by number. This one is left out, and so are threads of the kernel.
///
/// # Errors
/// If the list of processes can't be read.
pub fn processes(sought: &Sought) -> Result<Vec<Running>> {
    let own = std::process::id();
    let all = proc::processes().context("cannot list the processes")?;
    let others = all.into_iter().filter(|process| process.0 != own);
    Ok(others.filter_map(|process| fits(process, sought)).collect())
}

fn fits(process: ProcessId, sought: &Sought) -> Option<Running> {
    // A process that can't be read has just ended, and a thread of the kernel has no arguments.
    let arguments = proc::command_line(process).ok()?;
    let first = arguments.first()?.to_string_lossy().into_owned();
    if let Some(name) = &sought.name {
        let told = proc::thread_name(process, ThreadId(process.0)).unwrap_or_default();
        let file = proc::executable(process).ok();
        let file = file.and_then(|f| Some(f.file_name()?.to_string_lossy().into_owned()));
        let first = first.rsplit('/').next().unwrap_or_default();
        if told != *name && first != name && file.as_deref() != Some(name) {
            return None;
        }
    }
    if sought.container.is_some() || sought.unit.is_some() {
        let groups = proc::control_groups(process).ok()?;
        let is_in = |what: &Option<String>, is: fn(&str, &str) -> bool| {
            let any = |what: &String| {
                groups
                    .iter()
                    .flat_map(|g| g.split('/'))
                    .any(|p| is(p, what))
            };
            what.as_ref().is_none_or(any)
        };
        if !is_in(&sought.container, is_container) || !is_in(&sought.unit, is_unit) {
            return None;
        }
    }
    let shown: Vec<_> = arguments.iter().map(|a| a.to_string_lossy()).collect();
    Some(Running {
        process,
        command: shown.join(" "),
    })
}

/// The digits of a container's id.
const ID_DIGITS: usize = 64;
/// The fewest digits of an id that say anything.
const FEWEST_DIGITS: usize = 4;

/// Whether a part of a control group's path is the container `id`: `ID`, `docker-ID.scope`,
/// `cri-containerd-ID.scope`, `lxc.payload.ID`.
fn is_container(part: &str, id: &str) -> bool {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let is_hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    let is_it = |piece: &str| {
        let begins = piece.len() == ID_DIGITS && id.len() >= FEWEST_DIGITS && is_hex(piece);
        piece == id || begins && piece.starts_with(id)
    };
    !id.is_empty()
        && (part.split(['-', '.', ':']).any(is_it) || part.strip_prefix("lxc.payload.") == Some(id))
}

/// Whether a part of a control group's path is the unit.
fn is_unit(part: &str, unit: &str) -> bool {
    !unit.is_empty() && (part == unit || part.strip_suffix(".service") == Some(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f1c9d2e7a8b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5";

    #[test]
    fn containers_are_known_by_the_forms_that_engines_give_them() {
        for part in [
            ID.to_owned(),
            format!("docker-{ID}.scope"),
            format!("libpod-{ID}.scope"),
            format!("cri-containerd-{ID}.scope"),
            format!("crio-{ID}"),
        ] {
            assert!(is_container(&part, ID), "{part}");
            assert!(is_container(&part, &ID[..12]), "{part}");
            assert!(!is_container(&part, "3f1"), "{part}");
            assert!(!is_container(&part, "1c9d2e7a8b4c"), "{part}");
        }
        assert!(is_container("lxc.payload.web-1", "web-1"));
        assert!(!is_container("user.slice", "slic"));
        assert!(!is_container("", ""));
    }

    #[test]
    fn units_are_known_with_and_without_their_ending() {
        assert!(is_unit("nginx.service", "nginx"));
        assert!(is_unit("nginx.service", "nginx.service"));
        assert!(!is_unit("nginx-2.service", "nginx"));
        assert!(!is_unit("", ""));
    }

    #[test]
    fn a_process_is_found_by_its_name_and_this_one_never() {
        let mut sleep = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("there is sleep");
        let named = |name: &str| Sought {
            name: Some(name.to_owned()),
            ..Sought::default()
        };
        let child = ProcessId(sleep.id());
        // The child may not have executed its program yet.
        let found = (0..500).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let all = processes(&named("sleep")).expect("readable");
            all.into_iter().find(|one| one.process == child)
        });
        let nowhere = Sought {
            container: Some("no-such-container".to_owned()),
            ..named("sleep")
        };
        let none = processes(&nowhere).expect("readable");
        sleep.kill().expect("ours");
        sleep.wait().expect("ours");
        assert_eq!(found.expect("it is there").command, "sleep 60");
        assert!(none.is_empty());
        let own = proc::thread_name(ProcessId(std::process::id()), ThreadId(std::process::id()));
        let all = processes(&named(&own.expect("it lives"))).expect("readable");
        assert!(all.iter().all(|one| one.process.0 != std::process::id()));
    }
}
