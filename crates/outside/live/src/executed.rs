//! Which program a process executes, and how that is linked. Called by `command` while the process
//! lives. The program decides which file that is and what is in it, so it is opened by the kernel's
//! own link and never by its path, which may lead to something else by now.

use crate::program::{Linkage, linkage_of};
use std::path::PathBuf;
use sunder_access::ProcessId;
use sunder_observe::foreign::ForeignFiles;
use sunder_observe::proc;

/// The last executable of a process: the program behind `env`, `nice` or a shell's exec.
pub struct Executed {
    process: ProcessId,
    files: ForeignFiles,
    /// The path that the kernel gives for it: a text to show, which may end in ` (deleted)`.
    pub path: Option<PathBuf>,
    /// How it is linked; `None` if its file can't be read.
    pub linkage: Option<Linkage>,
}

impl Executed {
    /// That of a process that has just been started, not looked at yet.
    pub fn by(process: ProcessId) -> Self {
        Self {
            process,
            files: ForeignFiles::of(process),
            path: None,
            linkage: None,
        }
    }

    /// Looks again. What was known stays if the process has ended, or is not ours to look into.
    pub fn look(&mut self) {
        let path = proc::executable(self.process).ok();
        if path.is_none() || path == self.path {
            return;
        }
        self.path = path;
        let file = self.files.executable().ok();
        self.linkage = file.map(|file| linkage_of(&file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};

    #[test]
    fn the_text_of_a_deleted_program_is_no_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("cat");
        std::fs::copy("/bin/cat", &program).expect("it is there");
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .spawn()
            .expect("it starts");
        // Reading this device would never end.
        std::fs::remove_file(&program).expect("ours");
        let text = folder.path().join("cat (deleted)");
        symlink("/dev/zero", &text).expect("made");
        let mut executed = Executed::by(ProcessId(child.id()));
        executed.look();
        assert_eq!(executed.path.as_deref(), Some(text.as_path()));
        assert_eq!(executed.linkage, Some(Linkage::Dynamic));
        drop(child.stdin.take());
        child.wait().expect("it is ours");
        executed.look();
        assert_eq!(executed.linkage, Some(Linkage::Dynamic), "it stays known");
    }
}
