//! The processes of a process group, as `/proc` shows them.

use std::fmt::Write as _;
use std::fs;

/// Kills all processes of the group, which must be one that the caller made and that still has a
/// process.
pub fn end(group: i32) {
    // SAFETY: takes integers; the caller vouches for the group.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}

/// The live processes of a group, a line for each of their threads with the system call in which it
/// waits.
pub fn processes(group: i32) -> String {
    let mut all = String::new();
    let Ok(folder) = fs::read_dir("/proc") else {
        return all;
    };
    for process in folder.flatten().map(|entry| entry.path()) {
        // After the name, which may contain any byte: state, parent, group.
        let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split(' ');
        let state = fields.nth(1).unwrap_or_default();
        let own = fields.nth(1).and_then(|field| field.parse().ok());
        if own != Some(group) || matches!(state, "Z" | "X") {
            continue;
        }
        for thread in fs::read_dir(process.join("task")).into_iter().flatten() {
            let Ok(thread) = thread else { continue };
            let read = |name: &str| {
                let text = fs::read_to_string(thread.path().join(name));
                text.unwrap_or_default().trim().to_owned()
            };
            let _ = writeln!(
                all,
                "{} {} state {} waits in {} call {}",
                thread.path().display(),
                read("comm"),
                state,
                read("wchan"),
                read("syscall")
            );
        }
    }
    all
}
