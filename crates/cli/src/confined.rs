//! Gives up rights before a command reads what others wrote. Whatever is written to has to be open
//! before.

use crate::output::note;
use std::path::Path;
use sunder_access::ProcessId;
use sunder_confine::{Confined, Work};

/// For commands that read files and report. Call it before the first thread and the first file.
pub fn to_files() {
    tell(sunder_confine::to_files());
}

/// As [`to_files`], for commands that also make files below `folder`. Returns whether they may.
pub fn to_files_and_new_ones(folder: &Path) -> bool {
    let (confined, may) = sunder_confine::to_files_and_new_ones(folder);
    tell(confined);
    may
}

/// For `attach`, before other threads start.
pub fn beside(process: ProcessId, work: Work) {
    tell(sunder_confine::beside(process, work));
}

/// For the process of `watch` that observes.
pub fn beside_all() {
    tell(sunder_confine::beside_all());
}

/// For the process of `watch` that hands records on.
pub fn to_send() {
    tell(sunder_confine::to_send());
}

/// For commands that have started `process`, and observe it.
pub fn beside_our_own(process: ProcessId) {
    tell(sunder_confine::beside_our_own(process, Work::Observe));
}

/// For commands that have started `process`, and stop its threads or move its bytes.
pub fn beside_our_own_to_repair(process: ProcessId) {
    tell(sunder_confine::beside_our_own(process, Work::Repair));
}

/// Root is told what the kernel refuses: it reads with all of its rights then. Another user is told if
/// the process is not its own, and can't do more than its own programs otherwise.
fn tell(confined: Confined) {
    // SAFETY: no arguments, cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if root && !confined.is_whole() {
        note(&format!(
            "the kernel refuses {confined}: files and code of others are read with more rights than that takes"
        ));
    } else if confined.rights == Some(false) {
        note(
            "the process has rights over files that this user can't take: of the files that it names, only \
             those that everybody may read are opened; root opens more",
        );
    }
}
