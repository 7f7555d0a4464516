//! What `/proc` tells of processes: one file below for each file of `/proc` that
//! is read, and nothing outside of this folder parses one. Called by observers, and by
//! whatever changes a program. Reads only; everything that it returns may be out of
//! date by the time it is looked at, since the process runs on.

mod cmdline;
mod comm;
mod exe;
mod fd;
mod limits;
mod maps;
mod meminfo;
mod smaps;
mod stat;
mod status;
mod syscall;
mod task;
mod timers;

pub use cmdline::command_line;
pub use comm::thread_name;
pub use exe::executable;
pub use fd::links;
pub use limits::file_size_is_unlimited;
pub use maps::{mappings, mappings_in, parse_mappings};
pub use meminfo::available_memory;
pub use smaps::{Flagged, flagged, flagged_of};
pub(crate) use stat::busiest_first;
pub use stat::{has_waited_for_children, state};
pub use status::{Fields, Status, is_alive, living_number, status};
pub(crate) use syscall::SyscallFile;
pub use syscall::runs;
pub use task::{listed_threads, threads};
pub use timers::{Timer, timers};

use crate::ObserveError;
use std::fs;
use std::io;
use std::path::PathBuf;
use sunder_access::{ProcessId, ThreadId};

/// A folder of `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folder {
    /// A process.
    Process(ProcessId),
    /// A thread of a process.
    Thread(ProcessId, ThreadId),
    /// This process, whatever its number in the `/proc` that is mounted.
    Own,
    /// The thread that asks.
    OwnThread,
}

impl Folder {
    /// The path of a file in it.
    pub fn path(self, file: &str) -> PathBuf {
        PathBuf::from(match self {
            Self::Process(process) => format!("/proc/{process}/{file}"),
            Self::Thread(process, thread) => format!("/proc/{process}/task/{thread}/{file}"),
            Self::Own => format!("/proc/self/{file}"),
            Self::OwnThread => format!("/proc/thread-self/{file}"),
        })
    }

    /// The text of a file in it; bytes that are no UTF-8 (a thread's name, a path) are
    /// replaced.
    fn text(self, file: &str) -> io::Result<String> {
        let bytes = fs::read(self.path(file))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn path(process: ProcessId, file: &str) -> PathBuf {
    Folder::Process(process).path(file)
}

/// Reads a file of `process`; `NoSuchProcess` if that is the reason why not.
fn read(process: ProcessId, file: &str) -> Result<Vec<u8>, ObserveError> {
    let path = path(process, file);
    fs::read(&path).map_err(|source| explain(process, path, source))
}

fn explain(process: ProcessId, path: PathBuf, source: io::Error) -> ObserveError {
    let gone =
        source.kind() == io::ErrorKind::NotFound || source.raw_os_error() == Some(libc::ESRCH);
    if gone {
        ObserveError::NoSuchProcess(process)
    } else {
        ObserveError::Proc { path, source }
    }
}

/// Whether `/proc` is there and numbers processes as we do; asked before anything is learned or
/// changed by such a number.
///
/// # Errors
/// If not.
pub fn is_ours() -> Result<(), ObserveError> {
    let own = std::process::id().to_string();
    match fs::read_link("/proc/self") {
        Ok(told) if told.as_os_str() == own.as_str() => Ok(()),
        Ok(_) => Err(ObserveError::ForeignProc),
        Err(_) => Err(ObserveError::NoProc),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::Address;

    fn own() -> ProcessId {
        ProcessId(std::process::id())
    }

    #[test]
    fn own_process_is_described() {
        let code = own_process_address();
        let all = mappings(own()).unwrap();
        let mapping = all.at(Address(code)).unwrap();
        assert!(mapping.execute && mapping.is_file());
        assert_eq!(PathBuf::from(&mapping.path), executable(own()).unwrap());

        let status = status(own()).unwrap();
        // SAFETY: no preconditions.
        assert_eq!(status.user, unsafe { libc::getuid() });
        assert_eq!(status.parent.0, std::os::unix::process::parent_id());
        assert!(is_alive(own()));
        assert_eq!(
            command_line(own()).unwrap(),
            std::env::args_os().collect::<Vec<_>>()
        );
        assert!(threads(own()).unwrap().contains(&ThreadId(own().0)));
    }

    fn own_process_address() -> u64 {
        own_process_is_described as *const () as u64
    }

    #[test]
    fn a_thread_has_its_name() {
        let named = std::thread::Builder::new()
            .name("fifteen bytes!!".into())
            .spawn(|| {
                // SAFETY: no preconditions.
                let thread = ThreadId(unsafe { libc::gettid() } as u32);
                thread_name(own(), thread).unwrap()
            });
        assert_eq!(named.unwrap().join().unwrap(), "fifteen bytes!!");
    }

    #[test]
    fn a_process_that_is_not_there_is_named_as_such() {
        // Above the largest possible number of a process, 2^22.
        let nobody = ProcessId(1 << 23);
        assert!(matches!(
            mappings(nobody),
            Err(ObserveError::NoSuchProcess(p)) if p == nobody
        ));
        assert!(matches!(
            threads(nobody),
            Err(ObserveError::NoSuchProcess(_))
        ));
        assert!(!is_alive(nobody));
    }
}
