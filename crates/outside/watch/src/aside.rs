//! Work in a process of its own. Names come from debug information, which is large, stays in memory
//! once it is read, and is written by others: the process that reads it ends afterwards, and takes
//! memory, mistakes and endless loops with it. It ignores the signals that ask the watch to end, so that
//! an answer still comes; what is not waited for any more is ended by [`END`].

use rustix::fs::OFlags;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The signal that ends work whose answer nobody will take: sent to the group of processes, by a watch that
/// has one of its own.
pub const END: i32 = libc::SIGUSR1;
/// CPU seconds after which the kernel ends the work.
const MOST_CPU_SECONDS: u64 = 120;
/// Bytes of memory that the work may take.
const MOST_MEMORY: u64 = 3 << 30;
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
    /// nothing of it.
    ///
    /// # Errors
    /// If there can be no further process.
    pub fn begin(work: impl FnOnce() -> Vec<u8>) -> io::Result<Self> {
        let (answers, answer) = io::pipe()?;
        // SAFETY: this process has one thread here, so that the child finds no lock held. The child
        // does not return from the branch below.
        let child = unsafe { libc::fork() };
        match child {
            0 => {
                drop(answers);
                let done = catch_unwind(AssertUnwindSafe(|| act(answer, work)));
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
fn act(mut answer: PipeWriter, work: impl FnOnce() -> Vec<u8>) {
    limit(libc::RLIMIT_CPU, MOST_CPU_SECONDS);
    limit(libc::RLIMIT_DATA, MOST_MEMORY);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: no handler of ours runs in the child; it ends when it is done, or by its limits.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let bytes = work();
    // Nobody reads any more if this fails.
    let _ = answer.write_all(&bytes);
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
        let aside = Aside::begin(|| vec![7; 300_000]).expect("a process");
        assert_eq!(wait(aside), vec![7; 300_000]);
    }

    #[test]
    fn work_that_fails_answers_nothing() {
        let aside = Aside::begin(|| std::process::abort()).expect("a process");
        assert_eq!(wait(aside), Vec::<u8>::new());
    }
}
