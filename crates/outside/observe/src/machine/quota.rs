//! How much time control groups grant a process: their quotas for CPUs, as containers get them. Used by
//! the facts of the machine; reads only.
//!
//! Formats: the kernel's documents `cgroup-v2` ("cpu.max") and `scheduler/sched-bwc`
//! ("cpu.cfs_quota_us").

use std::fs;
use std::path::{Component, Path};

/// The least quota of a process's control group and those around it, in CPUs: 0.5 is half of the
/// time of one. `None` without a quota, or if it can't be read. `groups` is the process's file
/// `cgroup` in `/proc`, `mount` where the control groups are mounted.
pub fn quota(groups: &Path, mount: &Path) -> Option<f64> {
    let groups = fs::read_to_string(groups).ok()?;
    let quotas = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let first = match controllers {
            // Version 2 has one tree. Beside version 1 it is mounted elsewhere and has no quotas.
            "" => Some(mount.to_owned()),
            list if list.split(',').any(|name| name == "cpu") => Some(mount.join("cpu")),
            _ => None,
        };
        first.into_iter().flat_map(|first| on_the_way(&first, path))
    });
    quotas.reduce(f64::min)
}

/// The quotas of the group at `path` below `root` and of all around it.
fn on_the_way(root: &Path, path: &str) -> Vec<f64> {
    let mut at = root.to_owned();
    let mut all: Vec<f64> = of(&at).into_iter().collect();
    for part in Path::new(path).components() {
        let Component::Normal(part) = part else {
            continue;
        };
        at.push(part);
        all.extend(of(&at));
    }
    all
}

/// The quota of one group.
fn of(group: &Path) -> Option<f64> {
    let text = |name: &str| fs::read_to_string(group.join(name)).ok();
    let (quota, period) = match text("cpu.max") {
        Some(max) => {
            let (quota, period) = max.trim().split_once(' ')?;
            (quota.to_owned(), period.to_owned())
        }
        None => (text("cpu.cfs_quota_us")?, text("cpu.cfs_period_us")?),
    };
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| *n > 0.0);
    // Without a quota it is `max`, or -1.
    Some(number(&quota)? / number(&period)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        fs::write(path, text).expect("written");
    }

    #[test]
    fn the_least_quota_of_the_groups_around_a_process_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let (groups, mount) = (folder.path().join("cgroup"), folder.path().join("fs"));
        let read = || quota(&groups, &mount);
        assert_eq!(read(), None, "no control groups");
        write(folder.path(), "cgroup", "0::/pods/one\n");
        assert_eq!(read(), None, "nothing is mounted");
        write(&mount, "pods/one/cpu.max", "max 100000\n");
        assert_eq!(read(), None, "no quota");
        write(&mount, "pods/cpu.max", "150000 100000\n");
        assert_eq!(read(), Some(1.5));
        write(&mount, "pods/one/cpu.max", "50000 100000\n");
        assert_eq!(read(), Some(0.5));
        // In a container the path is that of the host, and the container's own group is the root.
        write(folder.path(), "cgroup", "0::/../../elsewhere\n");
        write(&mount, "cpu.max", "200000 100000\n");
        assert_eq!(read(), Some(2.0));
    }

    #[test]
    fn version_1_has_a_tree_for_the_cpu() {
        let folder = tempfile::tempdir().expect("a folder");
        let (groups, mount) = (folder.path().join("cgroup"), folder.path().join("fs"));
        let lines = "4:memory:/x\n1:cpu,cpuacct:/x\n0::/\n";
        write(folder.path(), "cgroup", lines);
        write(&mount, "cpu/cpu.cfs_quota_us", "-1\n");
        write(&mount, "cpu/cpu.cfs_period_us", "100000\n");
        assert_eq!(quota(&groups, &mount), None);
        write(&mount, "cpu/x/cpu.cfs_quota_us", "25000\n");
        write(&mount, "cpu/x/cpu.cfs_period_us", "100000\n");
        assert_eq!(quota(&groups, &mount), Some(0.25));
        write(&mount, "cpu/x/cpu.cfs_period_us", "nonsense\n");
        assert_eq!(quota(&groups, &mount), None);
    }
}
