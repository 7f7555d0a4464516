//! The process that observes, as the one that hands its records on sees it: a pipe of lines.

use super::keeper::{CUT, NO_MORE, keep, tell_signal};
use super::signals;
use crate::confined;
use crate::output::{complain, note};
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, ErrorKind, PipeReader, PipeWriter, Write};
use std::time::{Duration, Instant};
use sunder_findings::Record;
use sunder_watch::{Asked, END_WORK, Options, watch};

/// Bytes of records that wait to be read by the other process; more are dropped and counted.
const MOST_WAITING: usize = 8 << 20;
/// The longest line that is read.
const LONGEST_LINE: usize = 8 << 20;
/// How long the end waits until the last records are read.
const LAST: Duration = Duration::from_secs(10);

/// The process that observes.
pub struct Observing {
    records: BufReader<PipeReader>,
    child: i32,
    status: Option<i32>,
}

impl Observing {
    /// Starts it. Call it while this process has one thread.
    ///
    /// # Errors
    /// If there can be no further process.
    pub fn begin(options: Options) -> Result<Self> {
        let (records, out) = io::pipe()?;
        signals::note();
        // SAFETY: this process has one thread, so the child may do whatever we may.
        let child = unsafe { libc::fork() };
        match child {
            -1 => Err(io::Error::last_os_error()).context("cannot start a process that observes"),
            0 => {
                drop(records);
                let status = keep(options, &out, observe);
                // SAFETY: nothing of the parent's has to be flushed or removed here.
                unsafe { libc::_exit(status) }
            }
            child => {
                signals::pass_on_to(child);
                Ok(Self {
                    records: BufReader::new(records),
                    child,
                    status: None,
                })
            }
        }
    }

    /// Waits for the next record; `None` at the end.
    ///
    /// # Errors
    /// If what comes is cut short.
    pub fn next(&mut self) -> Result<Option<Record>> {
        loop {
            let mut line = Vec::new();
            let limit = LONGEST_LINE as u64;
            let read = io::Read::take(&mut self.records, limit).read_until(b'\n', &mut line)?;
            if read == 0 || line == NO_MORE {
                self.reap();
                return Ok(None);
            }
            if line.last() != Some(&b'\n') {
                bail!("the process that observes was cut short");
            }
            match serde_json::from_slice(&line) {
                Ok(record) => return Ok(Some(record)),
                Err(_) if line == CUT => {}
                Err(_) => note("the process that observes was ended in the middle of a record"),
            }
        }
    }

    fn reap(&mut self) {
        signals::pass_on_to(0);
        let mut status = 0;
        // SAFETY: waits for our child, and writes to `status`.
        while unsafe { libc::waitpid(self.child, &raw mut status, 0) } == -1
            && io::Error::last_os_error().kind() == ErrorKind::Interrupted
        {}
        self.status = Some(status);
    }

    /// Whether it failed. It has told why, unless a signal ended it.
    pub fn has_failed(&self) -> bool {
        let status = self.status.unwrap_or(0);
        if libc::WIFSIGNALED(status) {
            tell_signal(libc::WTERMSIG(status));
        }
        status != 0
    }

    /// Whether a SIGHUP has come since the last call.
    pub fn is_asked_anew(&self) -> bool {
        signals::begin_anew()
    }
}

/// What the process does that observes; its exit status.
fn observe(options: Options, out: PipeWriter) -> i32 {
    // The processes that name what is found are in it, too. A terminal that stops what writes to it from
    // another group must not stop this one.
    // SAFETY: takes two integers.
    unsafe { libc::signal(libc::SIGTTOU, libc::SIG_IGN) };
    let has_own_group = rustix::process::setpgid(None, None).is_ok();
    confined::beside_all();
    let keeper = rustix::process::getppid();
    let outlet = std::cell::RefCell::new(Outlet::new(out));
    let watched = watch(
        options,
        &mut |record| outlet.borrow_mut().put(record),
        &mut || {
            let is_there = outlet.borrow_mut().flush();
            // Without its keeper nobody passes signals on. The kernel's own signal for that is forgotten when
            // rights are taken (`PR_SET_PDEATHSIG`).
            let is_kept = rustix::process::getppid() == keeper;
            if signals::end_at_once() || !is_there {
                Asked::Now
            } else if signals::end() || !is_kept {
                Asked::End
            } else if signals::begin_anew() {
                Asked::Anew
            } else {
                Asked::Nothing
            }
        },
    );
    outlet.into_inner().finish();
    if has_own_group {
        // SAFETY: takes integers. Group 0 is our own, of which the others only name, and are not waited
        // for any more. They hold the pipe of the records open.
        unsafe {
            libc::signal(END_WORK, libc::SIG_IGN);
            libc::kill(0, END_WORK);
        }
    }
    match watched {
        Ok(()) => 0,
        Err(error) => {
            complain(&error);
            1
        }
    }
}

/// The end of the pipe into which records go. Observing never waits for it.
struct Outlet {
    pipe: PipeWriter,
    waiting: VecDeque<u8>,
    dropped: u64,
}

impl Outlet {
    fn new(pipe: PipeWriter) -> Self {
        // If it can't be set, writing waits for a reader that is always there.
        let _ = fcntl_setfl(&pipe, OFlags::NONBLOCK);
        Self {
            pipe,
            waiting: VecDeque::new(),
            dropped: 0,
        }
    }

    fn put(&mut self, mut record: Record) {
        if let Record::Status(status) = &mut record {
            status.records_dropped = self.dropped;
        }
        let Ok(mut line) = serde_json::to_vec(&record) else {
            self.dropped += 1;
            return;
        };
        line.push(b'\n');
        if self.waiting.len() + line.len() > MOST_WAITING {
            self.dropped += 1;
            return;
        }
        self.waiting.extend(line);
        self.flush();
    }

    /// Writes what the pipe takes. Returns whether anybody reads it.
    fn flush(&mut self) -> bool {
        while !self.waiting.is_empty() {
            match self.pipe.write(self.waiting.as_slices().0) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        let mut polled = [PollFd::new(&self.pipe, PollFlags::empty())];
        let now = Timespec::default();
        let _ = poll(&mut polled, Some(&now));
        !polled[0].revents().contains(PollFlags::ERR)
    }

    fn finish(mut self) {
        let since = Instant::now();
        while self.flush() && !self.waiting.is_empty() && since.elapsed() < LAST {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
