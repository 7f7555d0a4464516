//! Disks that are soon full: small file systems in memory, which one process alone sees.

use std::path::Path;
use std::process::Command;

/// A command that runs the program of its further arguments where `folder` is a file system of `size`
/// (`16k`). It goes with the program. `None`, with a notice, where nothing can be mounted.
pub fn on_small_disk(folder: &Path, size: &str) -> Option<Command> {
    let folder = folder.to_str().expect("text");
    let mount = format!("mount -t tmpfs -o size={size} small {folder}");
    let can_mount = Command::new("unshare")
        .args(["--mount", "sh", "-c", &mount])
        .output();
    if !can_mount.as_ref().is_ok_and(|o| o.status.success()) {
        println!("SKIP: a file system can't be mounted here: {can_mount:?}");
        return None;
    }
    let mut command = Command::new("unshare");
    let then = format!("{mount} && exec \"$@\"");
    command.args(["--mount", "sh", "-c", &then, "sh"]);
    Some(command)
}
