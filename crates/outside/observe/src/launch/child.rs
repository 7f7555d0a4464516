//! The child between fork and exec. All memory is allocated before the fork, in [`Plan`]. After
//! it, only async-signal-safe calls are made: any lock may be held by another thread of the
//! parent, which the child does not have.

use super::inherited::{self, SIGNALS};
use std::ffi::{CStr, CString, c_char};

/// The exit status of a child whose observer died or gave up before the start. No process reads
/// it.
const NOT_STARTED: i32 = 127;

/// The interpreter of a script that does not name one.
const SHELL: &CStr = c"/bin/sh";

/// How many bytes of a file decide whether it is a script or a program of another machine.
const HEAD_BYTES: usize = 128;

/// What to execute, ready for `execve`.
pub(super) struct Plan {
    candidates: Vec<Candidate>,
    /// The strings that the pointers below point to.
    _arguments: Vec<CString>,
    _environment: Vec<CString>,
    /// Ends with null.
    argument_pointers: Vec<*const c_char>,
    environment_pointers: Vec<*const c_char>,
    ignored: u64,
    blocked: libc::sigset_t,
}

/// A path to try.
struct Candidate {
    path: CString,
    /// The shell's arguments, for a script whose first line names no interpreter.
    as_script: Vec<*const c_char>,
}

impl Candidate {
    fn new(path: CString, arguments: &[CString]) -> Self {
        let as_script = [SHELL.as_ptr(), path.as_ptr()]
            .into_iter()
            .chain(arguments.iter().skip(1).map(|text| text.as_ptr()))
            .chain([std::ptr::null()])
            .collect();
        Self { path, as_script }
    }
}

impl Plan {
    pub(super) fn new(
        candidates: Vec<CString>,
        arguments: Vec<CString>,
        environment: Vec<CString>,
    ) -> Self {
        let (ignored, blocked) = inherited::at_start();
        let candidates = candidates
            .into_iter()
            .map(|path| Candidate::new(path, &arguments))
            .collect();
        Self {
            candidates,
            argument_pointers: pointers(&arguments),
            environment_pointers: pointers(&environment),
            _arguments: arguments,
            _environment: environment,
            ignored,
            blocked: signal_set(blocked),
        }
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    let end = std::iter::once(std::ptr::null());
    strings
        .iter()
        .map(|text| text.as_ptr())
        .chain(end)
        .collect()
}

fn signal_set(bits: u64) -> libc::sigset_t {
    // SAFETY: all zero bytes are the empty set, which the calls below fill with
    // valid signal numbers.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in SIGNALS.filter(|signal| bits >> (signal - 1) & 1 == 1) {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// Waits for a byte from `gate`, then executes; an error number goes to
/// `report`.
///
/// # Safety
/// Only in a process that has just been forked, with all signals blocked; `gate`, `go` and `report` are
/// open descriptors that close on exec.
pub(super) unsafe fn run_child(plan: &Plan, gate: i32, go: i32, report: i32) -> ! {
    // SAFETY: async-signal-safe calls on descriptors and memory that the
    // caller vouches for.
    unsafe {
        restore_dispositions(plan);
        // While this copy of the writing end is open, the parent's death would not end the wait.
        libc::close(go);
        let mut byte = 0u8;
        let read = loop {
            let read = libc::read(gate, (&raw mut byte).cast(), 1);
            if read >= 0 || *libc::__errno_location() != libc::EINTR {
                break read;
            }
        };
        if read != 1 {
            libc::_exit(NOT_STARTED);
        }
        // The Rust runtime has opened others in place of the closed streams.
        for stream in inherited::closed_streams() {
            libc::fcntl(stream, libc::F_SETFD, libc::FD_CLOEXEC);
        }
        // What has come meanwhile is for the program, and ends it here as it would a moment later.
        libc::sigprocmask(libc::SIG_SETMASK, &plan.blocked, std::ptr::null_mut());
        let errno = execute(plan).to_le_bytes();
        libc::write(report, errno.as_ptr().cast(), errno.len());
        libc::_exit(NOT_STARTED)
    }
}

/// # Safety
/// As [`run_child`].
unsafe fn restore_dispositions(plan: &Plan) {
    // SAFETY: all zero bytes are a valid action: default, no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    for signal in SIGNALS {
        let ignore = plan.ignored >> (signal - 1) & 1 == 1;
        action.sa_sigaction = if ignore { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: sets no handler. For signals that cannot be changed the call fails and changes
        // nothing.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
}

/// Tries the candidates as `execvp` does: after a missing or forbidden one it tries the next, and
/// an error about a forbidden one is remembered.
///
/// # Safety
/// As [`run_child`].
unsafe fn execute(plan: &Plan) -> i32 {
    let mut worst = libc::ENOENT;
    for candidate in &plan.candidates {
        // SAFETY: null-terminated strings and arrays that `plan` owns.
        let errno = unsafe {
            libc::execve(
                candidate.path.as_ptr(),
                plan.argument_pointers.as_ptr(),
                plan.environment_pointers.as_ptr(),
            );
            *libc::__errno_location()
        };
        // As `execvp` and every shell do. Without a shell, the file's own error is returned.
        // SAFETY: as above.
        if errno == libc::ENOEXEC && unsafe { is_text(&candidate.path) } {
            // SAFETY: as above.
            unsafe {
                libc::execve(
                    SHELL.as_ptr(),
                    candidate.as_script.as_ptr(),
                    plan.environment_pointers.as_ptr(),
                );
            }
        }
        match errno {
            libc::EACCES => worst = libc::EACCES,
            libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
            other => return other,
        }
    }
    // A path that the user wrote is the only candidate: its own error is returned.
    worst
}

/// Whether a file begins like a text. A shell would execute the bytes of another machine's program
/// as commands.
///
/// # Safety
/// As [`run_child`].
unsafe fn is_text(path: &CStr) -> bool {
    let mut start = [0u8; HEAD_BYTES];
    // SAFETY: async-signal-safe calls on a path that ends with zero and a buffer of its length.
    let read = unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return false;
        }
        let read = libc::read(file, start.as_mut_ptr().cast(), start.len());
        libc::close(file);
        read
    };
    usize::try_from(read).is_ok_and(|read| !start.iter().take(read).any(|&byte| byte == 0))
}
