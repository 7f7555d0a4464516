//! The signal by which a thread of the program is asked to look at what is wanted,
//! and who may be asked.

use super::control::CONTROL_NAME;
use sunder_access::ProcessId;
use sunder_wire::remap::BELL;

/// Whether a thread runs in user space, as far as can be told.
pub fn runs(process: ProcessId, thread: u32) -> bool {
    let path = format!("/proc/{process}/task/{thread}/syscall");
    std::fs::read_to_string(path).is_ok_and(|text| text.starts_with("running"))
}

/// Whether the program has the file that we share with it, and so the handler that
/// the bell calls.
pub fn listens(process: ProcessId) -> bool {
    maps(process)
        .lines()
        .any(|line| line.contains(CONTROL_NAME))
}

/// Whether there is nothing left of the program.
pub fn has_ended(process: ProcessId) -> bool {
    maps(process).is_empty()
}

fn maps(process: ProcessId) -> String {
    let living = sunder_observe::proc::living_number(process);
    std::fs::read_to_string(format!("/proc/{living}/maps")).unwrap_or_default()
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
