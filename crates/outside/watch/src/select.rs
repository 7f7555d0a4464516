//! Which processes are watched, and whether there are such. The facts of a process are read by `origin`.

use crate::origin::origin;
use anyhow::{Context, Result};
use glob::Pattern;
use sunder_access::ProcessId;
use sunder_findings::Origin;
use sunder_observe::proc;

/// Which processes are watched: those that any of these names; all if there is none.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// By their numbers.
    pub processes: Vec<ProcessId>,
    /// By the names of their programs.
    names: Vec<Pattern>,
    /// By the path of their control group, or of one above it.
    pub groups: Vec<String>,
    /// By their units of systemd.
    pub units: Vec<String>,
    /// By their containers' numbers, or the first digits of these.
    pub containers: Vec<String>,
}

impl Selection {
    /// The programs whose file names have one of these forms: `*`, `?`, `[…]` as in a shell.
    ///
    /// # Errors
    /// If one is no such pattern.
    pub fn of_names(patterns: &[String]) -> Result<Self> {
        let parse = |pattern: &String| {
            let parsed = Pattern::new(pattern);
            parsed.with_context(|| format!("'{pattern}' is no pattern of names"))
        };
        Ok(Self {
            names: patterns.iter().map(parse).collect::<Result<_>>()?,
            ..Self::default()
        })
    }

    /// Whether all processes are watched.
    pub const fn is_all(&self) -> bool {
        self.processes.is_empty()
            && self.names.is_empty()
            && self.groups.is_empty()
            && self.units.is_empty()
            && self.containers.is_empty()
    }

    /// Whether a process that lives now is watched, as far as can be seen: one that is named by its number
    /// may not let itself be looked at. Takes some microseconds for each process.
    pub fn fits_any(&self) -> bool {
        let lives = |process: &ProcessId| proc::start_ticks(*process).is_some();
        let known = || {
            let all = proc::processes().unwrap_or_default();
            all.into_iter().filter_map(|process| origin(process, ""))
        };
        self.is_all() || self.processes.iter().any(lives) || known().any(|one| self.holds(&one))
    }

    /// Whether this process is watched.
    pub fn holds(&self, origin: &Origin) -> bool {
        let group = origin.cgroup.as_deref().unwrap_or_default();
        let within = |above: &String| {
            let above = above.trim_start_matches("/sys/fs/cgroup");
            // With or without the first slash.
            let above = above.trim_matches('/');
            let whole = group.strip_prefix('/').unwrap_or(group);
            let rest = match above.is_empty() {
                true => Some(""),
                false => whole.strip_prefix(above),
            };
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let unit = origin.unit.as_deref();
        let of_unit = |wanted: &String| {
            unit.is_some_and(|unit| {
                unit == wanted || unit.strip_suffix(".service") == Some(wanted.as_str())
            })
        };
        let container = origin.container.as_deref();
        let of_container =
            |first: &String| container.is_some_and(|id| !first.is_empty() && id.starts_with(first));
        self.is_all()
            || self.processes.contains(&ProcessId(origin.pid))
            || self.names.iter().any(|name| name.matches(&origin.program))
            || self.groups.iter().any(within)
            || self.units.iter().any(of_unit)
            || self.containers.iter().any(of_container)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Origin {
        Origin {
            pid: 42,
            program: "redis-server".into(),
            cgroup: Some("/system.slice/redis.service".into()),
            unit: Some("redis.service".into()),
            container: Some("ab12".into()),
            ..Origin::default()
        }
    }

    #[test]
    fn a_choice_may_fit_no_process_that_lives() {
        assert!(Selection::default().fits_any());
        let this = |number| Selection {
            processes: vec![ProcessId(number)],
            ..Selection::default()
        };
        assert!(this(std::process::id()).fits_any());
        // Beyond what the kernel gives (`PID_MAX_LIMIT`).
        assert!(!this(1 << 23).fits_any());
    }

    #[test]
    fn without_a_choice_all_are_watched() {
        assert!(Selection::default().holds(&server()));
    }

    #[test]
    fn each_way_to_name_a_process_picks_it_and_no_other() {
        let named = Selection::of_names(&["redis-*".into()]).expect("a pattern");
        let by = |change: &dyn Fn(&mut Selection)| {
            let mut selection = Selection::default();
            change(&mut selection);
            selection
        };
        let all = [
            named,
            by(&|s| s.processes.push(ProcessId(42))),
            by(&|s| s.groups.push("/system.slice".into())),
            by(&|s| s.groups.push("system.slice".into())),
            by(&|s| {
                s.groups
                    .push("/sys/fs/cgroup/system.slice/redis.service/".into())
            }),
            by(&|s| s.units.push("redis".into())),
            by(&|s| s.units.push("redis.service".into())),
            by(&|s| s.containers.push("ab".into())),
        ];
        let other = Origin {
            pid: 43,
            program: "sed".into(),
            cgroup: Some("/system.slices/x".into()),
            ..Origin::default()
        };
        for selection in all {
            assert!(selection.holds(&server()), "{selection:?}");
            assert!(!selection.holds(&other), "{selection:?}");
        }
        assert!(Selection::of_names(&["[".into()]).is_err());
    }
}
