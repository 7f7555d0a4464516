//! Ends this program where a read of the observed process does not end. The process can bring that about, and
//! neither Ctrl-C nor SIGTERM reaches a thread that waits in such a read. Where a server of FUSE has taken the
//! request, nothing ends that thread before the server does (`request_wait_answer` in the kernel); then the user
//! is told.

use crate::output::complain;
use crate::status;
use anyhow::anyhow;
use std::thread;
use std::time::Duration;
use sunder_live::leave;
use sunder_observe::launch::Blocked;
use sunder_observe::pending::Pending;

/// A read that takes longer does not end.
const ENDLESS: Duration = Duration::from_secs(10);
/// How often it is looked.
const EVERY: Duration = Duration::from_millis(500);

/// Looks after the reads of this program from now on. Call it when rights have been given up: the thread must
/// not keep any. Without a thread nothing is looked after.
pub fn end_if_a_read_does_not() {
    // The thread takes no signals: Ctrl-Z has to wait while threads of the process are held.
    let _blocked = Blocked::all();
    let thread = thread::Builder::new().name("sunder-endless".into());
    let _ = thread.spawn(|| {
        // Whoever was stopped in the middle of a read (Ctrl-Z) has to have time to end it.
        let mut seen = false;
        loop {
            thread::sleep(EVERY);
            let stuck = Pending::own().longer_than(ENDLESS);
            let again = std::mem::replace(&mut seen, stuck.is_some());
            if let Some(process) = stuck.filter(|_| again) {
                // The terminal is as it was before anything is said.
                leave();
                complain(&anyhow!(
                    "a read of the memory of process {process} does not end, as where a file system does not \
                     answer; it is given up. If Sunder stays all the same, the kernel holds it until that \
                     process ends (kill {process})"
                ));
                // SAFETY: ends the program at once. Handlers of its end would wait for the thread that reads.
                unsafe { libc::_exit(i32::from(status::FAILED)) };
            }
        }
    });
}
