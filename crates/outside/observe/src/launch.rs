//! Starts the target so that observers are in place before its first instruction, and otherwise
//! exactly as a shell would start it.
//!
//! Called by the program. The child keeps standard streams, working directory, process group (so
//! that the terminal's job control works as without Sunder) and limits. It gets the signal mask and
//! the dispositions with which *this* process was started, whatever this process has changed since.
//! The module must not leave a zombie behind, and makes only async-signal-safe calls between fork
//! and exec.

mod blocked;
mod child;
mod inherited;

use crate::ObserveError;
use crate::proc::childrens_percent;
pub use blocked::Blocked;
use child::{Plan, run_child};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, waitid, waitpid,
};
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use sunder_access::ProcessId;

/// Where `execvp` looks if there is no `PATH` (`confstr(_CS_PATH)`).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A variable that has no meaning. Our libraries remove it (`crates/inside/guest/src/environment.rs`).
pub const PADDING_VARIABLE: &str = "SUNDER_PADDING";

/// A program to be started.
#[derive(Clone, Debug)]
pub struct Launch {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, Option<OsString>)>,
}

impl Launch {
    /// Takes `program` as a user names it: it is looked up in `PATH` unless it contains a slash.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn arguments<I>(mut self, arguments: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets a variable, or removes it with `None`; all other variables are inherited.
    #[must_use]
    pub fn environment(mut self, name: impl Into<OsString>, value: Option<OsString>) -> Self {
        self.environment.push((name.into(), value));
        self
    }

    /// Adds a variable without a meaning if the number of variables that the environment gains is
    /// odd. To be called after all others, if a library of ours removes them: programs find the
    /// auxiliary vector, which has pairs of words, behind the environment.
    #[must_use]
    pub fn padded(self) -> Self {
        let gained = self.variables().len().saturating_sub(own_variables().len());
        if gained.is_multiple_of(2) {
            return self;
        }
        self.environment(PADDING_VARIABLE, Some(OsString::new()))
    }

    /// Forks the child, which waits.
    ///
    /// # Errors
    /// If an argument contains a zero byte, or no more processes or descriptors are allowed. A
    /// missing program is an error of [`Prepared::go`].
    pub fn prepare(&self) -> Result<Prepared, ObserveError> {
        let plan = self.plan()?;
        let (gate, go) = pipe()?;
        let (failure, report) = pipe()?;
        // Our handlers must not take a signal that is meant for the program, and none may end the child
        // before it is observed: it lets signals in when it is about to execute.
        let all_blocked = Blocked::all();
        // SAFETY: the child only runs `run_child`, which makes nothing but
        // async-signal-safe calls and never returns.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            let doing = "start another process";
            let source = io::Error::last_os_error();
            return Err(ObserveError::System { doing, source });
        }
        if pid == 0 {
            // SAFETY: this is the forked child, and the descriptors are open.
            unsafe { run_child(&plan, gate.as_raw_fd(), go.as_raw_fd(), report.as_raw_fd()) }
        }
        drop(all_blocked);
        Ok(Prepared {
            pid: ProcessId(pid as u32),
            waiting: Some(Waiting { go, failure }),
            program: self.program.to_string_lossy().into_owned(),
        })
    }

    fn plan(&self) -> Result<Plan, ObserveError> {
        let variables = self.variables();
        let path = variables
            .iter()
            .find(|(name, _)| name == OsStr::new("PATH"))
            .map(|(_, value)| value.clone());
        let environment = variables.into_iter().map(|(name, value)| {
            let mut entry = name.into_vec();
            entry.push(b'=');
            entry.extend(value.into_vec());
            OsString::from_vec(entry)
        });
        let arguments = std::iter::once(self.program.clone()).chain(self.arguments.clone());
        Ok(Plan::new(
            self.candidates(path)?,
            arguments.map(c_string).collect::<Result<_, _>>()?,
            environment.map(c_string).collect::<Result<_, _>>()?,
        ))
    }

    /// The program's environment, in the order of our own: a program may print it.
    fn variables(&self) -> Vec<(OsString, OsString)> {
        let mut variables = own_variables();
        for (name, value) in &self.environment {
            let old = variables.iter_mut().find(|(old, _)| old == name);
            match (old, value) {
                (Some((_, old)), Some(value)) => old.clone_from(value),
                (None, Some(value)) => variables.push((name.clone(), value.clone())),
                (_, None) => variables.retain(|(old, _)| old != name),
            }
        }
        variables
    }

    /// The paths to try in turn, as `execvp` does.
    fn candidates(&self, path: Option<OsString>) -> Result<Vec<CString>, ObserveError> {
        let name = self.program.as_bytes();
        if name.is_empty() || name.contains(&b'/') {
            return Ok(vec![c_string(self.program.clone())?]);
        }
        let path = path.unwrap_or_else(|| DEFAULT_PATH.into());
        path.as_bytes()
            .split(|&byte| byte == b':')
            .map(|directory| {
                let mut full = directory.to_vec();
                if !full.is_empty() {
                    full.push(b'/');
                }
                full.extend(name);
                c_string(OsString::from_vec(full))
            })
            .collect()
    }
}

fn own_variables() -> Vec<(OsString, OsString)> {
    std::env::vars_os().collect()
}

fn c_string(text: OsString) -> Result<CString, ObserveError> {
    let shown = text.to_string_lossy().into_owned();
    CString::new(text.into_vec()).map_err(|_| ObserveError::ZeroByte(shown))
}

/// A pipe that closes on exec: reading end, writing end.
fn pipe() -> Result<(OwnedFd, OwnedFd), ObserveError> {
    match io::pipe() {
        Ok((read, write)) => Ok((read.into(), write.into())),
        Err(source) => Err(ObserveError::System {
            doing: "open a pipe",
            source,
        }),
    }
}

/// A child that waits before `execve`. Dropped without [`Prepared::go`], it
/// ends without executing anything.
#[derive(Debug)]
pub struct Prepared {
    pid: ProcessId,
    program: String,
    /// `None` after the child has been released.
    waiting: Option<Waiting>,
}

/// Our ends of the pipes to a waiting child.
#[derive(Debug)]
struct Waiting {
    go: OwnedFd,
    failure: OwnedFd,
}

impl Prepared {
    /// Its process number, which the program will have too.
    pub const fn pid(&self) -> ProcessId {
        self.pid
    }

    /// Releases the child, which executes the program, and waits until that has begun.
    ///
    /// # Errors
    /// [`ObserveError::Execute`] with the error of `execve`; the child has ended then.
    pub fn go(mut self) -> Result<Child, ObserveError> {
        let mut child = Child {
            pid: self.pid,
            status: None,
            childrens_percent: None,
        };
        let Some(Waiting { go, failure }) = self.waiting.take() else {
            return Ok(child);
        };
        // If the child was killed meanwhile, the write fails, and the child's status tells of it.
        let _ = std::fs::File::from(go).write_all(&[1]);
        let mut errno = Vec::new();
        // A successful exec closes the child's end of the pipe, so the read ends.
        std::fs::File::from(failure)
            .read_to_end(&mut errno)
            .map_err(|source| ObserveError::System {
                doing: "learn whether the program was executed",
                source,
            })?;
        match <[u8; 4]>::try_from(errno.as_slice()) {
            Ok(errno) => {
                child.wait()?;
                Err(ObserveError::Execute {
                    program: std::mem::take(&mut self.program),
                    source: io::Error::from_raw_os_error(i32::from_le_bytes(errno)),
                })
            }
            Err(_) => Ok(child),
        }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if self.waiting.is_some() {
            // The number is ours: the child has not been waited for.
            if let Some(pid) = Pid::from_raw(self.pid.0 as i32) {
                let _ = kill_process(pid, Signal::KILL);
            }
            let mut child = Child {
                pid: self.pid,
                status: None,
                childrens_percent: None,
            };
            let _ = child.wait();
        }
    }
}

/// A running child. When this value is dropped, a child that has ended is reaped, and one that has
/// not runs on.
#[derive(Debug)]
pub struct Child {
    pid: ProcessId,
    status: Option<ExitStatus>,
    childrens_percent: Option<f64>,
}

impl Child {
    /// Its process number.
    pub const fn pid(&self) -> ProcessId {
        self.pid
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// If the child has been reaped elsewhere in this process.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, ObserveError> {
        self.collect(WaitIdOptions::NOHANG)
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// If the child has been reaped elsewhere in this process.
    pub fn wait(&mut self) -> Result<ExitStatus, ObserveError> {
        loop {
            if let Some(status) = self.collect(WaitIdOptions::empty())? {
                return Ok(status);
            }
        }
    }

    /// As [`crate::proc::childrens_percent`]. Only known once it has ended and was reaped here.
    pub const fn childrens_percent(&self) -> Option<f64> {
        self.childrens_percent
    }

    fn collect(&mut self, nohang: WaitIdOptions) -> Result<Option<ExitStatus>, ObserveError> {
        if self.status.is_some() {
            return Ok(self.status);
        }
        let unknown = |error: Errno| ObserveError::System {
            doing: "wait for the program",
            source: error.into(),
        };
        // The number of a forked child is never 0, so this is no wait for any child.
        let Some(pid) = Pid::from_raw(self.pid.0 as i32) else {
            return Err(unknown(Errno::CHILD));
        };
        // First without reaping it: nothing can be read of a process that was reaped.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | nohang;
        let ended = retry_on_intr(|| waitid(WaitId::Pid(pid), ended)).map_err(unknown)?;
        if !ended.is_some_and(|what| what.exited() || what.killed() || what.dumped()) {
            return Ok(None);
        }
        self.childrens_percent = childrens_percent(self.pid);
        let reaped = retry_on_intr(|| waitpid(Some(pid), WaitOptions::NOHANG)).map_err(unknown)?;
        self.status = reaped.map(|(_, status)| ExitStatus::from_raw(status.as_raw()));
        Ok(self.status)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.try_wait();
    }
}
