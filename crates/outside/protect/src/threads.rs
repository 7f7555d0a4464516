//! The program's threads, as the kernel reports them: which there are, which run, which have ended.
//! Called by `keeper`.
//!
//! A list of threads may lack a living thread: if a thread ends while the list is read, the kernel
//! may skip the next one; and there may be no file descriptor left to read the list with. So a
//! thread that is not listed has not necessarily ended; [`no_longer_exists`] tells.

use sunder_access::{ProcessId, ThreadId};
use sunder_observe::proc::{self, Folder};

/// The threads of a process, zombies included, as listed by one reading: some may be missing. Empty
/// if the list can't be read.
pub fn threads_of(process: i32) -> Vec<i32> {
    let listed = proc::listed_threads(ProcessId(process.unsigned_abs()));
    let listed = listed.unwrap_or_default().into_iter();
    listed.map(|thread| thread.0 as i32).collect()
}

/// Whether the process has no thread of this number any more.
pub fn no_longer_exists(process: i32, thread: i32) -> bool {
    // SAFETY: `tgkill` takes integers; signal 0 sends nothing.
    let done = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) };
    done < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// The letter of the thread's state in `/proc`.
fn state_of(process: i32, thread: i32) -> Option<char> {
    let process = ProcessId(process.unsigned_abs());
    proc::state(Folder::Thread(process, ThreadId(thread.unsigned_abs()))).ok()?
}

/// Whether the thread is running or ready to run.
pub fn is_running(process: i32, thread: i32) -> bool {
    state_of(process, thread) == Some('R')
}

/// Whether the thread has not ended, as far as can be told: a thread whose state can't be read
/// counts as alive.
pub fn is_alive(process: i32, thread: i32) -> bool {
    let is_end_state = |state| matches!(state, 'Z' | 'X' | 'x');
    !no_longer_exists(process, thread) && !state_of(process, thread).is_some_and(is_end_state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn only_threads_that_have_ended_no_longer_exist() {
        let (sender, receiver) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // SAFETY: takes no arguments.
            sender
                .send(unsafe { libc::gettid() })
                .expect("the receiver lives");
            let _ = ends.recv();
        });
        let number = receiver.recv().expect("the thread sends its number");
        let process = std::process::id() as i32;
        assert!(threads_of(process).contains(&number));
        assert!(is_alive(process, number) && !no_longer_exists(process, number));
        let parent = std::os::unix::process::parent_id() as i32;
        assert!(
            no_longer_exists(parent, number),
            "not a thread of the parent process"
        );
        drop(end);
        thread.join().expect("the thread does not panic");
        // The kernel wakes the thread that joins before it has removed the ended one.
        while !no_longer_exists(process, number) {
            std::thread::yield_now();
        }
        assert!(!is_alive(process, number));
        assert_eq!(threads_of(i32::MAX), [0; 0]);
    }
}
