//! The signal by which a thread of the program is asked to look at what is wanted,
//! and who may be asked.

use super::control::CONTROL_NAME;
use sunder_access::{Mappings, ProcessId, ThreadId};
use sunder_observe::proc::{self, Folder};
use sunder_wire::remap::BELL;

/// Whether a thread runs in user space, as far as can be told.
pub fn runs(process: ProcessId, thread: u32) -> bool {
    proc::runs(process, ThreadId(thread))
}

/// Whether the program has the file that we share with it, and so the handler that
/// the bell calls.
pub fn listens(process: ProcessId) -> bool {
    maps(process).iter().any(|m| m.path.contains(CONTROL_NAME))
}

/// Whether there is nothing left of the program.
pub fn has_ended(process: ProcessId) -> bool {
    maps(process).iter().next().is_none()
}

fn maps(process: ProcessId) -> Mappings {
    let living = proc::living_number(process);
    proc::mappings_in(Folder::Process(living)).unwrap_or_default()
}

/// Asks a thread to look at what is wanted.
pub fn ring(process: ProcessId, thread: u32) {
    // `siginfo_t`: number, error, code; from byte 16 on process, user, value.
    let mut info = [0u64; 16];
    info[0] = libc::SIGSEGV as u64;
    info[1] = u64::from(-1i32 as u32);
    info[2] = u64::from(std::process::id());
    info[3] = BELL;
    // SAFETY: the kernel reads 128 bytes.
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
