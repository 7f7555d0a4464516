//! `cgroup`: the control groups of a process.

use super::folder::read;
use crate::ObserveError;
use std::fs;
use sunder_access::ProcessId;

/// The path of its control group, as the process's own namespace or ours shows it: of the unified
/// hierarchy, or else of systemd's. `None` if the process is gone or no such hierarchy is there.
pub fn control_group(process: ProcessId) -> Option<String> {
    let text = read(process, "cgroup").ok()?;
    parse(&String::from_utf8_lossy(&text))
}

/// The paths of all its control groups, one for each hierarchy.
///
/// # Errors
/// If the process is gone.
pub fn control_groups(process: ProcessId) -> Result<Vec<String>, ObserveError> {
    let text = read(process, "cgroup")?;
    Ok(paths(&String::from_utf8_lossy(&text)))
}

/// Whether a control group holds its threads back (`docker pause`, `cgroup.freeze`, the older `freezer`), as
/// far as the machine's control groups can be read here.
pub fn is_frozen(process: ProcessId) -> bool {
    let Ok(text) = read(process, "cgroup") else {
        return false;
    };
    states(&String::from_utf8_lossy(&text))
        .iter()
        .any(|(file, frozen)| fs::read_to_string(file).is_ok_and(|state| says(&state, frozen)))
}

/// The files that may say that a process with such a `cgroup` file is frozen, and the line that says so.
fn states(text: &str) -> Vec<(String, &'static str)> {
    let mut files = Vec::new();
    for (number, kinds, path) in groups(text) {
        // A path of another namespace leads out of the folders of ours.
        if path.contains("/..") {
            continue;
        }
        if number == "0" {
            for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
                files.push((format!("{root}{path}/cgroup.events"), "frozen 1"));
            }
        } else if kinds.split(',').any(|kind| kind == "freezer") {
            let file = format!("/sys/fs/cgroup/freezer{path}/freezer.state");
            files.push((file, "FROZEN"));
        }
    }
    files
}

fn says(state: &str, frozen: &str) -> bool {
    state.lines().any(|line| line.trim() == frozen)
}

/// Number, controllers and path of each group in the text of such a file (cgroups(7)). A path may have colons
/// itself.
fn groups(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        Some((fields.next()?, fields.next()?, fields.next()?))
    })
}

fn paths(text: &str) -> Vec<String> {
    groups(text).map(|(_, _, path)| path.to_owned()).collect()
}

fn parse(text: &str) -> Option<String> {
    let all: Vec<_> = groups(text).collect();
    let unified = all.iter().find(|(number, _, _)| *number == "0");
    // With the unified hierarchy beside the old ones, processes may all be in its root.
    let systemd = all.iter().find(|(_, kind, _)| *kind == "name=systemd");
    let found = unified.filter(|(_, _, path)| *path != "/" || systemd.is_none());
    found.or(systemd).map(|(_, _, path)| (*path).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_what_follows_the_second_colon() {
        let text = "12:cpu,cpuacct:/docker/ab\n0::/kubepods/cri-containerd:cd\nnonsense\n";
        assert_eq!(paths(text), ["/docker/ab", "/kubepods/cri-containerd:cd"]);
    }

    #[test]
    fn the_unified_hierarchy_counts_where_it_is_used() {
        let of = |text| parse(text);
        assert_eq!(of("0::/a:b/c.service\n").as_deref(), Some("/a:b/c.service"));
        let both = "12:cpu,cpuacct:/x\n1:name=systemd:/system.slice/d.service\n0::/\n";
        assert_eq!(of(both).as_deref(), Some("/system.slice/d.service"));
        assert_eq!(of("0::/\n").as_deref(), Some("/"));
        assert_eq!(of("3:memory:/x\nnonsense\n"), None);
    }

    #[test]
    fn each_hierarchy_says_in_its_own_way_that_a_group_is_frozen() {
        let text = "5:cpu,freezer:/docker/ab\n3:memory:/x\n0::/a:b\nnonsense\n";
        let wanted = [
            ("/sys/fs/cgroup/freezer/docker/ab/freezer.state", "FROZEN"),
            ("/sys/fs/cgroup/a:b/cgroup.events", "frozen 1"),
            ("/sys/fs/cgroup/unified/a:b/cgroup.events", "frozen 1"),
        ];
        assert_eq!(
            states(text),
            wanted.map(|(file, line)| (file.to_owned(), line))
        );
        assert!(states("0::/../../elsewhere\n").is_empty());
        assert!(says("populated 1\nfrozen 1\n", "frozen 1"));
        assert!(!says("populated 1\nfrozen 0\n", "frozen 1"));
        assert!(says("FROZEN\n", "FROZEN") && !says("FREEZING\n", "FROZEN"));
    }
}
