//! What `/proc` tells of processes: one file below for each file of `/proc` that
//! is read, and nothing outside of this folder parses one. Called by observers, and by
//! whatever changes a program. Reads only; everything that it returns may be out of
//! date by the time it is looked at, since the process runs on.

mod all;
mod anonymous;
mod cgroup;
mod cmdline;
mod comm;
mod environ;
mod exe;
mod fd;
mod folder;
mod limits;
mod maps;
mod mem;
mod meminfo;
mod ns;
mod own_limits;
mod own_memory;
mod ran;
mod smaps;
mod stat;
mod status;
mod syscall;
mod task;
mod timers;

pub use all::processes;
pub use anonymous::{AnonymousShared, is_anonymous_shared};
pub use cgroup::{control_group, control_groups, is_frozen};
pub use cmdline::command_line;
pub use comm::thread_name;
pub use environ::variable;
pub use exe::executable;
pub use fd::links;
pub use folder::Folder;
pub use limits::{cpu_time_is_unlimited, file_size_is_unlimited};
pub use maps::{mappings, mappings_in, parse_mappings};
pub use mem::{MemoryUse, hold_memory, memory};
pub use meminfo::available_memory;
pub use ns::{NS_GET_OWNER_UID, NS_GET_PARENT, maker_of_users};
pub use own_limits::own_limit;
pub use own_memory::{OwnMemory, memory_left, own_address_space, own_memory};
pub use ran::{Use, busy_ticks, ran_for, use_of, waited_for_cpu};
pub use smaps::{Flagged, flagged, flagged_of};
pub(crate) use stat::busiest_first;
pub use stat::{arguments, childrens_percent, cpu_time, own_cpu_time, start_ticks, started, state};
pub use status::{Fields, Status, is_alive, living_number, status};
pub(crate) use syscall::SyscallFile;
pub use syscall::runs;
pub use task::{children, listed_threads, threads};
pub use timers::{Timer, timers};

use crate::ObserveError;
use std::fs;

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
    use std::path::PathBuf;
    use sunder_access::{Address, ProcessId, ThreadId};

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
        assert_eq!(status.user, rustix::process::getuid().as_raw());
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
            .spawn(|| thread_name(own(), crate::own_thread()).unwrap());
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
