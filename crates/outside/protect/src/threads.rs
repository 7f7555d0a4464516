//! The program's threads as `/proc` and the kernel tell of them: who there is, who runs, who
//! has ended. Called by `keeper`.
//!
//! A list of threads may lack one that lives: the kernel counts on from the place where it
//! stopped if the thread there has ended, and so leaves one out; and there may be no descriptor left to
//! read it with. So nobody has ended for not being listed ([`is_gone`]).

use sunder_access::{ProcessId, ThreadId};
use sunder_observe::proc::{self, Folder};

/// The threads of a process, zombies too, as one reading tells: somebody may be missing. Empty if it can't be read.
pub fn threads_of(process: i32) -> Vec<i32> {
    let listed = proc::listed_threads(ProcessId(process.unsigned_abs()));
    let listed = listed.unwrap_or_default().into_iter();
    listed.map(|thread| thread.0 as i32).collect()
}

/// Whether the kernel knows no such thread of the process.
pub fn is_gone(process: i32, thread: i32) -> bool {
    // SAFETY: integers; no signal is sent.
    let done = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) };
    done < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// The letter of a thread's state.
fn state_of(process: i32, thread: i32) -> Option<char> {
    let process = ProcessId(process.unsigned_abs());
    proc::state(Folder::Thread(process, ThreadId(thread.unsigned_abs()))).ok()?
}

/// Whether it is seen to run.
pub fn is_running(process: i32, thread: i32) -> bool {
    state_of(process, thread) == Some('R')
}

/// Whether it has not ended, as far as can be told: of whom nothing can be read, it is not known.
pub fn is_alive(process: i32, thread: i32) -> bool {
    let has_ended = |state| matches!(state, 'Z' | 'X' | 'x');
    !is_gone(process, thread) && !state_of(process, thread).is_some_and(has_ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn who_lives_is_not_gone_and_who_has_ended_is() {
        let (told, tell) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // SAFETY: takes nothing.
            told.send(unsafe { libc::gettid() })
                .expect("it is waited for");
            let _ = ends.recv();
        });
        let number = tell.recv().expect("it says so");
        let process = std::process::id() as i32;
        assert!(threads_of(process).contains(&number));
        assert!(is_alive(process, number) && !is_gone(process, number));
        let parent = std::os::unix::process::parent_id() as i32;
        assert!(
            is_gone(parent, number),
            "it is no thread of another process"
        );
        drop(end);
        thread.join().expect("it only waits");
        // The kernel wakes who joins before it has forgotten the thread.
        while !is_gone(process, number) {
            std::thread::yield_now();
        }
        assert!(!is_alive(process, number));
        assert_eq!(threads_of(i32::MAX), [0; 0]);
    }
}
