//! Whether a process can't stop because it is about to start a program. Called by `signals`. Only reads.
//!
//! A thread that has called `vfork`, as shells do, waits in the kernel until its child executes a program or
//! ends. It does not stop meanwhile. If Ctrl-Z stops the child first, both wait until somebody lets the child
//! go on; the process as a whole is never told to have stopped.

use sunder_access::{ProcessId, ThreadId};
use sunder_observe::proc::{self, Folder};

/// Whether at least one thread of the process waits for a child that has stopped, and all others have stopped.
/// A thread that waits for a disk, and has a child that was stopped before, looks the same for a moment.
pub fn waits_for_a_stopped_child(process: ProcessId) -> bool {
    let Ok(threads) = proc::threads(process) else {
        return false;
    };
    let mut any = false;
    for thread in threads {
        match proc::state(Folder::Thread(process, thread)) {
            Ok(Some('T' | 'Z')) => {}
            Ok(Some('D')) if has_stopped_child(process, thread) => any = true,
            _ => return false,
        }
    }
    any
}

fn has_stopped_child(process: ProcessId, thread: ThreadId) -> bool {
    let children = proc::children(process, thread);
    let state = |&child: &ProcessId| proc::state(Folder::Process(child)).ok().flatten();
    children.iter().any(|child| state(child) == Some('T'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// A process whose child, for which it waits as after `vfork`, stops before it executes anything.
    fn stuck() -> libc::pid_t {
        // SAFETY: the children only make calls that may be made after a fork. With `CLONE_VFORK` alone the
        // child has memory of its own.
        unsafe {
            let process = libc::fork();
            if process == 0 {
                let flags = libc::CLONE_VFORK | libc::SIGCHLD;
                if libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) == 0 {
                    libc::raise(libc::SIGSTOP);
                }
                libc::_exit(0);
            }
            process
        }
    }

    #[test]
    fn a_process_that_waits_for_its_stopped_child_is_known() {
        let own = ProcessId(std::process::id());
        assert!(!waits_for_a_stopped_child(own), "it runs");
        let process = stuck();
        assert!(process > 0);
        let number = ProcessId(process.unsigned_abs());
        let begun = Instant::now();
        while !waits_for_a_stopped_child(number) {
            assert!(begun.elapsed() < Duration::from_secs(30), "never seen");
            std::thread::yield_now();
        }
        let child = proc::children(number, ThreadId(number.0));
        assert_eq!(child.len(), 1);
        // SAFETY: both take numbers and a valid place; the child was not waited for.
        let ended = unsafe {
            libc::kill(child[0].0 as i32, libc::SIGCONT);
            let mut status = 0;
            libc::waitpid(process, &raw mut status, 0) == process && status == 0
        };
        assert!(ended);
        assert!(!waits_for_a_stopped_child(number), "it is gone");
    }
}
