//! The signal that asks a thread of the program to read the requests in the control file, and which
//! threads may be asked. Called by `repairer`.

use super::control::CONTROL_NAME;
use sunder_access::{ProcessId, ThreadId};
use sunder_observe::proc::{self, Folder};
use sunder_wire::remap::TOOL_SIGNAL;

/// Whether a thread runs in user space, as far as can be told.
pub fn is_running(process: ProcessId, thread: u32) -> bool {
    proc::runs(process, ThreadId(thread))
}

/// What a process executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executes {
    /// The program, which has mapped our control file: then it has the signal's handler too.
    Program,
    /// Another program.
    Another,
    /// Nothing: it has ended.
    Nothing,
    /// That can't be told now.
    Unknown,
}

/// What the process executes.
pub fn executes(process: ProcessId) -> Executes {
    let living = proc::living_number(process);
    match proc::mappings_in(Folder::Process(living)) {
        Ok(maps) if maps.iter().any(|m| m.path.contains(CONTROL_NAME)) => Executes::Program,
        Ok(maps) if maps.iter().next().is_some() => Executes::Another,
        Ok(_) => Executes::Nothing,
        Err(_) if is_gone(process) => Executes::Nothing,
        Err(_) => Executes::Unknown,
    }
}

/// Whether the process has ended.
pub fn has_ended(process: ProcessId) -> bool {
    executes(process) == Executes::Nothing
}

/// Whether the kernel says that there is no such process.
fn is_gone(process: ProcessId) -> bool {
    // SAFETY: takes integers; signal 0 only checks for existence.
    let found = unsafe { libc::kill(process.0 as i32, 0) };
    found < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Asks a thread to read the requests in the control file.
pub fn send(process: ProcessId, thread: u32) {
    // `siginfo_t`: signal number, error, code; from byte 16 on the process, user and value.
    let mut info = [0u64; 16];
    info[0] = libc::SIGSEGV as u64;
    info[1] = u64::from(-1i32 as u32);
    info[2] = u64::from(std::process::id());
    info[3] = TOOL_SIGNAL;
    // SAFETY: the kernel reads 128 bytes, the size of `info`.
    unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            process.0,
            thread,
            libc::SIGSEGV,
            info.as_ptr(),
        )
    };
}
