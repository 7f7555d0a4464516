//! Makes the program's memory private again: before a fork, or before a call whose changes of the
//! address space can't be followed. All other threads are stopped meanwhile.
//!
//! Contexts: normal; also with all signals blocked and inside `malloc`.

use crate::hold::{CONFINEMENT, Hold};
use crate::{collect, control, convert, real};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use sunder_guest::system;
use sunder_wire::isolation::{Control, closed};

/// Makes memory private again before a fork, because the child needs private copies. No thread is
/// isolated now (the hold), and none can be afterwards, so nothing else would collect the last
/// workers.
pub fn before_fork(hold: &Hold) -> bool {
    const INTERVAL: u32 = 50_000;
    let control = hold.control();
    if control.conversions.load(SeqCst) == 0 {
        return true;
    }
    control.closed.store(closed::FORK, SeqCst);
    collect::collect_all(control);
    // A signal handler would run while memory is being copied, and might never return.
    let signals = system::NoSignals::hold();
    let me = system::thread_id();
    while control
        .stop
        .compare_exchange(0, me, SeqCst, SeqCst)
        .is_err()
    {
        control::wait(&control.stop, control.stop.load(Relaxed), INTERVAL);
    }
    let mut done = control.conversions.load(SeqCst) == 0;
    if !done && wait_until_stopped(control) {
        done = convert::unshare(control);
    }
    control.stopped.store(0, SeqCst);
    control.stop.store(0, SeqCst);
    control::wake(&control.stop);
    drop(signals);
    done
}

/// Waits until the tool has stopped all other threads. False if it can't, or has ended.
fn wait_until_stopped(control: &Control) -> bool {
    const INTERVAL: u32 = 50_000;
    loop {
        match control.stopped.load(Acquire) {
            0 => {}
            answer => return answer == 1,
        }
        control::wait(&control.stopped, 0, INTERVAL);
        if !tool_is_alive(control) {
            return control.stopped.load(Acquire) == 1;
        }
    }
}

/// Whether the tool still runs. It is this process's parent; when it ends, the process gets another
/// parent, even if its process id is used again.
fn tool_is_alive(control: &Control) -> bool {
    system::parent_id() == control.tool.load(Relaxed)
}

/// As [`before_fork`], and it stays in force after the hold is dropped.
pub fn close_for_fork(hold: &Hold) -> bool {
    hold.control().closed.store(closed::FORK, SeqCst);
    before_fork(hold)
}

/// The program is about to confine itself (seccomp), and its filter may end it for a system call of ours:
/// isolation ends, memory becomes private, and from then on nothing here acts. The tool sends no thread
/// that is not known here: it sets the state of one that it sends, and [`before_fork`] waits for the tool.
pub fn before_confinement() {
    // The first look-up of a function makes a system call.
    real::look_up_all();
    if let Some(hold) = Hold::new() {
        close_for_good(&hold, closed::CONFINED);
    }
    CONFINEMENT.close();
}

/// Ends isolation for good and makes memory private again, because the call to come can't be followed:
/// `why` is one of [`closed`]. Returns whether that worked.
pub fn close_for_good(hold: &Hold, why: u32) -> bool {
    let control = hold.control();
    let before = control
        .closed
        .compare_exchange(closed::OPEN, why, SeqCst, Relaxed);
    let done = before_fork(hold);
    if before.is_ok() {
        control.closed.store(why, Release);
    }
    done
}
