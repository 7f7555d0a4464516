//! `cgroup`: the control groups of a process.

use super::folder::read;
use crate::ObserveError;
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

/// The paths in the text of such a file. A path may have colons itself.
fn paths(text: &str) -> Vec<String> {
    let path = |line: &str| Some(line.splitn(3, ':').nth(2)?.to_owned());
    text.lines().filter_map(path).collect()
}

fn parse(text: &str) -> Option<String> {
    // Number, controllers, path; the path may have colons (cgroups(7)).
    let fields = |line: &'_ str| {
        let mut fields = line.splitn(3, ':').map(str::to_owned);
        Some((fields.next()?, fields.next()?, fields.next()?))
    };
    let all: Vec<_> = text.lines().filter_map(fields).collect();
    let unified = all.iter().find(|(number, _, _)| number == "0");
    // With the unified hierarchy beside the old ones, processes may all be in its root.
    let systemd = all.iter().find(|(_, kind, _)| kind == "name=systemd");
    let found = unified.filter(|(_, _, path)| path != "/" || systemd.is_none());
    found.or(systemd).map(|(_, _, path)| path.clone())
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
}
