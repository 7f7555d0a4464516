//! Gives up rights before a command reads what others wrote. Whatever is written to has to be open
//! before.

use crate::output::note;
use sunder_access::ProcessId;
use sunder_confine::{Confined, Work};

/// For commands that read files and report. Call it before the first thread and the first file.
pub fn to_files() {
    tell(sunder_confine::to_files());
}

/// For `attach`.
pub fn beside(process: ProcessId, work: Work) {
    tell(sunder_confine::beside(process, work));
}

/// Root is told what the kernel refuses: it reads with all of its rights then. Others could not do
/// more than their programs before.
fn tell(confined: Confined) {
    // SAFETY: no arguments, cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if root && !confined.is_whole() {
        note(&format!(
            "the kernel refuses {confined}: files and code of others are read with more rights than that takes"
        ));
    }
}
