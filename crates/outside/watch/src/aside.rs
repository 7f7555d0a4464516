//! Work in a process of its own. Names come from debug information, which is large, stays in memory
//! once it is read, and is written by others: the process that reads it ends afterwards, and takes
//! memory, mistakes and endless loops with it. The least of the work, without debug information, is done by its
//! parent if it fails:
//!
//! ```text
//! watcher ──fork──► least ──fork──► whole      limits of CPU time and memory
//!         ◄─answer─       ◄─answer─            or its end
//! ```
//!
//! They ignore the signals that ask the watch to end, so that an answer still comes; what is not waited for any
//! more is ended by [`END`].

use rustix::fs::OFlags;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use sunder_access::{ProcessId, ThreadId};
use sunder_observe::pending::Pending;
use sunder_observe::proc;

/// The signal that ends work whose answer nobody will take: sent to the group of processes, by a watch that
/// has one of its own.
pub const END: i32 = libc::SIGUSR1;
/// CPU seconds after which the kernel ends the whole work. Debug information of 16 MiB takes about 0.1.
const MOST_CPU_SECONDS: u64 = 30;
/// The same for the least of it.
const MOST_CPU_SECONDS_LEAST: u64 = 10;
/// Bytes of memory that each may take, where so much is there.
const MOST_MEMORY: u64 = 3 << 30;
/// Of the memory that is left to the watch, that takes one part at most: there are several at a time.
const MEMORY_IS_ONE_IN: u64 = 4;
/// So much it may take in any case. Symbols need less.
const LEAST_MEMORY: u64 = 256 << 20;
/// After this time its answer is not waited for any more.
const PATIENCE: Duration = Duration::from_secs(300);
/// Bytes of an answer that are read.
const LONGEST_ANSWER: usize = 64 << 20;

/// Work that has been begun.
#[derive(Debug)]
pub struct Aside {
    answers: PipeReader,
    bytes: Vec<u8>,
    since: Instant,
    child: libc::pid_t,
    reaped: bool,
}

/// How much of the work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it, if that does not fail.
    Whole,
    /// What is possible in a short time.
    Least,
}

/// How work is going.
#[derive(Debug, PartialEq, Eq)]
pub enum Work {
    /// It goes on.
    Goes,
    /// It is done; these bytes are the answer. Empty if it failed.
    Done(Vec<u8>),
}

impl Aside {
    /// Begins `work`, whose answer is bytes. It sees everything that this process has, and changes
    /// nothing of it. If the whole of it fails, it is done to the least extent.
    ///
    /// # Errors
    /// If there can be no further process.
    pub fn begin(extent: Extent, work: impl FnOnce(Extent) -> Vec<u8>) -> io::Result<Self> {
        let (answers, answer) = io::pipe()?;
        // SAFETY: this process has one thread here, so that the child finds no lock held. The child
        // does not return from the branch below.
        let child = unsafe { libc::fork() };
        match child {
            0 => {
                drop(answers);
                let done = catch_unwind(AssertUnwindSafe(|| act(answer, extent, work)));
                // SAFETY: ends the child without the destructors and buffers of its parent.
                unsafe { libc::_exit(i32::from(done.is_err())) }
            }
            error if error < 0 => Err(io::Error::last_os_error()),
            child => {
                drop(answer);
                rustix::fs::fcntl_setfl(&answers, OFlags::NONBLOCK)?;
                Ok(Self {
                    answers,
                    bytes: Vec::new(),
                    since: Instant::now(),
                    child,
                    reaped: false,
                })
            }
        }
    }

    /// What has become of it; does not wait.
    pub fn poll(&mut self) -> Work {
        let mut chunk = [0; 1 << 16];
        loop {
            match self.answers.read(&mut chunk) {
                Ok(0) => return Work::Done(std::mem::take(&mut self.bytes)),
                Ok(count) => self.bytes.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return if self.since.elapsed() < PATIENCE {
                        Work::Goes
                    } else {
                        Work::Done(Vec::new())
                    };
                }
                Err(_) => return Work::Done(Vec::new()),
            }
            if self.bytes.len() > LONGEST_ANSWER {
                return Work::Done(Vec::new());
            }
        }
    }

    /// CPU seconds that it has taken so far; 0 once its process is gone from the kernel's table, since it
    /// counts among the children that have ended then.
    pub fn cpu_seconds(&self) -> f64 {
        if self.reaped {
            return 0.0;
        }
        let number = self.child.unsigned_abs();
        let least = ProcessId(number);
        let whole = proc::children(least, ThreadId(number));
        let all = whole.into_iter().chain([least]).filter_map(proc::cpu_time);
        all.sum::<Duration>().as_secs_f64()
    }

    /// Whether its process is gone from the kernel's table. Ask until it is.
    pub fn is_reaped(&mut self) -> bool {
        if !self.reaped {
            // SAFETY: a child of ours, not waited for yet; no status is wanted.
            let answer = unsafe { libc::waitpid(self.child, std::ptr::null_mut(), libc::WNOHANG) };
            self.reaped = answer != 0;
        }
        self.reaped
    }
}

/// What the child does.
fn act(mut answer: PipeWriter, extent: Extent, work: impl FnOnce(Extent) -> Vec<u8>) {
    // What keeps this process waiting does not keep the watch.
    Pending::own().note_here();
    let left = proc::memory_left().map_or(MOST_MEMORY, |left| left / MEMORY_IS_ONE_IN);
    limit(libc::RLIMIT_DATA, left.clamp(LEAST_MEMORY, MOST_MEMORY));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: no handler of ours runs in the child; it ends when it is done, or by its limits.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let mut whole = None;
    if extent == Extent::Whole
        && let Ok((bytes, writer)) = io::pipe()
    {
        // SAFETY: this process has one thread, so that the child finds no lock held. The child does not
        // return from the branch below.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop((answer, bytes));
            limit(libc::RLIMIT_CPU, MOST_CPU_SECONDS);
            let done = write(writer, &work(Extent::Whole));
            // SAFETY: as in `Aside::begin`.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        drop(writer);
        whole = answer_of(child, bytes);
    }
    limit(libc::RLIMIT_CPU, MOST_CPU_SECONDS_LEAST);
    let bytes = whole.unwrap_or_else(|| work(Extent::Least));
    // Nobody reads any more if this fails.
    let _ = answer.write_all(&bytes);
}

fn write(mut writer: PipeWriter, bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes)
}

/// What a child has answered; `None` if it did not end well.
fn answer_of(child: libc::pid_t, reader: PipeReader) -> Option<Vec<u8>> {
    if child < 0 {
        return None;
    }
    let mut bytes = Vec::new();
    let most = LONGEST_ANSWER as u64;
    let read = reader.take(most).read_to_end(&mut bytes);
    let mut status = 0;
    // SAFETY: a child of ours; writes to `status`.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    let well = waited == child && status == 0;
    (well && read.is_ok()).then_some(bytes)
}

fn limit(resource: libc::__rlimit_resource_t, most: u64) {
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: reads the structure, for the calling process.
    unsafe { libc::setrlimit(resource, &raw const limit) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spend::own_seconds;

    fn wait(mut aside: Aside) -> Vec<u8> {
        loop {
            if let Work::Done(bytes) = aside.poll() {
                while !aside.is_reaped() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                return bytes;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn an_answer_larger_than_a_pipe_comes_whole() {
        for extent in [Extent::Whole, Extent::Least] {
            let aside = Aside::begin(extent, |extent| match extent {
                Extent::Whole => vec![7; 300_000],
                Extent::Least => vec![3; 300_000],
            });
            let wanted = if extent == Extent::Whole { 7 } else { 3 };
            assert_eq!(wait(aside.expect("a process")), vec![wanted; 300_000]);
        }
    }

    #[test]
    fn work_that_fails_is_done_to_the_least_extent() {
        let fails: [fn(); 3] = [
            || std::process::abort(),
            || panic!("as a mistake in it does"),
            // SAFETY: takes an integer.
            || unsafe { libc::_exit(3) },
        ];
        for fail in fails {
            let aside = Aside::begin(Extent::Whole, |extent| {
                if extent == Extent::Whole {
                    fail();
                }
                vec![5]
            });
            assert_eq!(wait(aside.expect("a process")), [5]);
        }
    }

    #[test]
    fn work_that_fails_in_any_case_answers_nothing() {
        let aside = Aside::begin(Extent::Whole, |_| std::process::abort()).expect("a process");
        assert_eq!(wait(aside), Vec::<u8>::new());
    }

    /// Its process may be gone from the kernel's table at any moment, and then counts as a child that has ended.
    #[test]
    fn what_work_takes_is_known_while_it_is_done() {
        let busy = Duration::from_millis(300);
        let mut aside = Aside::begin(Extent::Whole, |_| {
            let since = own_seconds();
            while own_seconds() < since + busy.as_secs_f64() {}
            Vec::new()
        })
        .expect("a process");
        while aside.poll() == Work::Goes {
            std::thread::sleep(Duration::from_millis(1));
        }
        let seconds = aside.cpu_seconds();
        assert!(seconds >= 0.9 * busy.as_secs_f64(), "{seconds}");
        while !aside.is_reaped() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(aside.cpu_seconds(), 0.0);
    }
}
