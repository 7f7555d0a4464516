//! Runs a program with less than the machine offers: without perf events, without `ptrace`, or as
//! another user. The restrictions are set between `fork` and `exec` of the one command, never in
//! the test itself.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The user `nobody`, who has no rights on any Linux.
pub const NOBODY: u32 = 65534;

/// For `command` and all that it starts, `perf_event_open` fails with `errno`.
pub fn refuse_perf(command: &mut Command, errno: i32) {
    refuse(command, libc::SYS_perf_event_open, errno);
}

/// For `command` and all that it starts, `ptrace` fails, as under a container's rules or a security
/// module.
pub fn refuse_ptrace(command: &mut Command) {
    refuse(command, libc::SYS_ptrace, libc::EPERM);
}

/// For `command` and all that it starts, addresses are not random, as in a debugger.
pub fn without_random_addresses(command: &mut Command) {
    let set = || {
        // SAFETY: takes an integer, and is async-signal-safe.
        let before = unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
        if before < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: the closure calls only what is async-signal-safe.
    unsafe { command.pre_exec(set) };
}

fn refuse(command: &mut Command, call: i64, errno: i32) {
    let refuse = libc::SECCOMP_RET_ERRNO | errno as u32;
    let number = call as u32;
    // SAFETY: the closure calls only `prctl`, which is async-signal-safe.
    unsafe { command.pre_exec(move || install(number, refuse)) };
}

/// A filter of four instructions: load the call's number, compare, refuse, allow.
fn install(number: u32, refuse: u32) -> io::Result<()> {
    let statement = |code: u32, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let mut instructions = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, number),
        statement(libc::BPF_RET | libc::BPF_K, 0, refuse),
        statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: instructions.len() as u16,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: takes integers only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `program` and the instructions that it points to outlive the call.
    if unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    } != 0
    {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Whether this test may change its user.
pub fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// `command` runs as the user `nobody`, without groups and capabilities. Only root can do this.
pub fn as_nobody(command: &mut Command) {
    // SAFETY: the closure makes three system calls, all async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            let dropped = libc::setgroups(0, std::ptr::null()) == 0
                && libc::setresgid(NOBODY, NOBODY, NOBODY) == 0
                && libc::setresuid(NOBODY, NOBODY, NOBODY) == 0;
            if dropped {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        })
    };
}
