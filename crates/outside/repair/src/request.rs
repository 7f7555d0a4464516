//! The signal that asks a thread of the program to read the requests in the control file, and which
//! threads may be asked. Called by `repairer`.

use super::control::CONTROL_NAME;
use sunder_access::{Mappings, ProcessId, ThreadId};
use sunder_observe::proc::{self, Folder};
use sunder_wire::remap::TOOL_SIGNAL;

/// Whether a thread runs in user space, as far as can be told.
pub fn is_running(process: ProcessId, thread: u32) -> bool {
    proc::runs(process, ThreadId(thread))
}

/// Whether the program has mapped our control file: then it has the signal's handler too.
pub fn can_be_read(process: ProcessId) -> bool {
    maps(process).iter().any(|m| m.path.contains(CONTROL_NAME))
}

/// Whether the program has ended.
pub fn has_ended(process: ProcessId) -> bool {
    maps(process).iter().next().is_none()
}

fn maps(process: ProcessId) -> Mappings {
    let living = proc::living_number(process);
    proc::mappings_in(Folder::Process(living)).unwrap_or_default()
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
