//! The process between the one that observes and the one that hands its records on. A process of another user can
//! keep a read of its memory from ever ending, and nothing but the end of the reader ends that. So this one ends
//! the process that observes then, and starts another, which leaves that process alone. It has rights over
//! others, so it must read nothing that they wrote.

use super::signals;
use crate::output::{complain, note};
use crate::status;
use anyhow::anyhow;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{ErrorKind, PipeWriter, Write as _};
use std::thread;
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_observe::pending::Pending;
use sunder_observe::proc;
use sunder_watch::{Options, Shunned};

/// Ends what a process has written that was ended before its time: a record that was cut short, or nothing.
pub const CUT: &[u8] = b"\n";
/// Says that no more records come, where a process that does not end holds the pipe.
pub const NO_MORE: &[u8] = b"\"no more\"\n";
/// A read that takes longer does not end.
const ENDLESS: Duration = Duration::from_secs(20);
/// The same once the watch is asked to end.
const ENDLESS_AT_END: Duration = Duration::from_secs(3);
/// How often, and with which pause, a line is written that must not be lost.
const TRIES: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(100);
/// How often it is looked whether a read goes on.
const EVERY: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// What the process does that observes: it writes records to the pipe. Its exit status.
pub type Observe = fn(Options, PipeWriter) -> i32;

/// Observes in a process of its own, and in another one where that can't go on; the exit status. Call it while
/// this process has one thread.
pub fn keep(options: Options, out: &PipeWriter, observe: Observe) -> i32 {
    let (status, all_ended) = keep_on(options, out, observe);
    if !all_ended {
        // The pipe does not end by itself then.
        put(out, NO_MORE);
    }
    status
}

/// The exit status, and whether all processes that observed have ended.
fn keep_on(mut options: Options, out: &PipeWriter, observe: Observe) -> (i32, bool) {
    let failed = i32::from(status::FAILED);
    let mut users = Vec::new();
    let mut all_ended = true;
    loop {
        let Ok(own) = out.try_clone() else {
            return (failed, all_ended);
        };
        let was_asked = signals::end();
        // SAFETY: this process has one thread, so the child may do whatever we may.
        let child = unsafe { libc::fork() };
        match child {
            -1 => {
                let error = std::io::Error::last_os_error();
                complain(&anyhow!("cannot start a process that observes: {error}"));
                return (failed, all_ended);
            }
            0 => {
                signals::pass_on_to(0);
                let status = observe(options, own);
                // SAFETY: nothing of the parent's has to be flushed or removed here.
                unsafe { libc::_exit(status) }
            }
            child => signals::pass_on_to(child),
        }
        drop(own);
        if signals::end() && !was_asked {
            // It came before it could be passed on.
            // SAFETY: takes integers; the child has not been waited for.
            unsafe { libc::kill(child, libc::SIGTERM) };
        }
        let Err(stuck) = ended(child, options.pending) else {
            return (reaped(child), all_ended);
        };
        // SAFETY: takes integers. The child has not been waited for, so the number is still its own. The group
        // is that of the process that observes and of those that name for it.
        unsafe {
            libc::kill(-child, libc::SIGKILL);
            libc::kill(child, libc::SIGKILL);
        }
        // Not waited for: the kernel may keep it in its read until the other process ends.
        signals::pass_on_to(0);
        options.pending.forget();
        all_ended = false;
        put(out, CUT);
        let what = format!("a read of the memory of process {stuck} does not end");
        if signals::end() {
            note(&format!(
                "{what}, and the watch ends without its last findings"
            ));
            return (failed, all_ended);
        }
        note(&format!(
            "{what}: the watch begins anew, and leaves that process alone"
        ));
        shun(stuck, &mut options.shunned, &mut users);
    }
}

/// Writes a line to where records go, unless nobody takes it for a while.
fn put(mut out: &PipeWriter, line: &[u8]) {
    for _ in 0..TRIES {
        match out.write_all(line) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(BETWEEN),
            _ => return,
        }
    }
}

/// Waits until the child has ended, or one of its reads does not end: the process that is read.
fn ended(child: i32, pending: &Pending) -> Result<(), ProcessId> {
    let number = Pid::from_raw(child);
    let Some(Ok(handle)) = number.map(|number| pidfd_open(number, PidfdFlags::empty())) else {
        // An older kernel. Then the child is waited for, whatever it waits for.
        return Ok(());
    };
    // Whoever was stopped in the middle of a read has to have time to end it.
    let mut seen = false;
    loop {
        let mut polled = [PollFd::new(&handle, PollFlags::IN)];
        let is_over = poll(&mut polled, Some(&EVERY)).is_ok_and(|count| count > 0);
        if is_over {
            return Ok(());
        }
        let most = if signals::end() {
            ENDLESS_AT_END
        } else {
            ENDLESS
        };
        let stuck = pending.longer_than(most);
        let again = std::mem::replace(&mut seen, stuck.is_some());
        if let Some(process) = stuck.filter(|_| again) {
            return Err(process);
        }
    }
}

fn reap(child: i32) -> i32 {
    signals::pass_on_to(0);
    let mut status = 0;
    // SAFETY: waits for our child, and writes to `status`.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } == -1
        && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
    {}
    status
}

/// The exit status of a child that has ended, or will.
fn reaped(child: i32) -> i32 {
    let status = reap(child);
    if libc::WIFSIGNALED(status) {
        tell_signal(libc::WTERMSIG(status));
        return i32::from(status::FAILED);
    }
    libc::WEXITSTATUS(status)
}

/// Leaves the process alone, and from the second of a user on all of his; not all of root's.
fn shun(process: ProcessId, shunned: &mut Shunned, users: &mut Vec<u32>) {
    let started = proc::start_ticks(process).unwrap_or(0);
    shunned.processes.push((process, started));
    let Ok(user) = proc::status(process).map(|status| status.user) else {
        return;
    };
    if user != 0 && users.contains(&user) && !shunned.users.contains(&user) {
        shunned.users.push(user);
        note(&format!(
            "processes of user {user} are left alone from now on"
        ));
    }
    users.push(user);
}

/// A signal has ended the process that observes.
pub fn tell_signal(signal: i32) {
    complain(&anyhow::anyhow!(
        "signal {signal} ended the process that observes"
    ));
}
