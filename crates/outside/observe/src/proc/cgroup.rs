//! `cgroup`: the control groups that a process is in.

use super::folder::read;
use crate::ObserveError;
use sunder_access::ProcessId;

/// The paths of its control groups, one for each hierarchy.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_what_follows_the_second_colon() {
        let text = "12:cpu,cpuacct:/docker/ab\n0::/kubepods/cri-containerd:cd\nnonsense\n";
        assert_eq!(paths(text), ["/docker/ab", "/kubepods/cri-containerd:cd"]);
    }
}
