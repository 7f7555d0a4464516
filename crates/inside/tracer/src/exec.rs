//! The exec functions, by which the process executes another program. The trace ends there, so it
//! is written before the call. A call that can't succeed does not end it (a program that searches
//! `PATH` itself makes many). In a forked child they only call the real functions. Contexts:
//! normal, signal, post-fork.
//!
//! A program that is spawned beside this one (`posix_spawn`, `system`, `popen`) does not end the
//! trace, either: the C library makes these calls in a child process.

use crate::local::RECORDER;
use crate::real;
use crate::start::finish;
use core::ffi::{CStr, c_char, c_int};
use sunder_guest::next::fails;
use sunder_guest::system;
use sunder_trace::meta::Reason;

type Strings = *const *const c_char;

unsafe extern "C" {
    /// The C library's variable for the program's environment.
    static environ: Strings;
}

/// The folders in which `execvp` searches if `PATH` is not set.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";
const LONGEST_PATH: usize = 4096;

/// The program to be executed.
enum Program {
    /// The file of this name, relative to a folder.
    At(c_int, *const c_char),
    /// By a search through `PATH`.
    Search(*const c_char),
    /// An open file, by its descriptor.
    Open(c_int),
}

/// Ends the trace if `program` can be executed; returns whether it did.
///
/// # Safety
/// Names are C strings or null.
unsafe fn leave_for(program: &Program) -> bool {
    if !RECORDER.is_recording() || !RECORDER.is_own_process() {
        return false;
    }
    // SAFETY: by this function's contract.
    let possible = unsafe {
        match *program {
            Program::At(folder, name) => can_execute(folder, name),
            Program::Search(name) => !name.is_null() && found(CStr::from_ptr(name)),
            Program::Open(fd) => system::identity(fd).is_some_and(|i| i.regular),
        }
    };
    if possible {
        finish(Reason::Exec);
    }
    possible
}

/// The call has failed after all: the trace records that it is incomplete.
fn stay() {
    // SAFETY: the C library returns the valid address of this thread's `errno`.
    let errno = unsafe { *libc::__errno_location() };
    RECORDER.continue_unrecorded(errno.unsigned_abs());
}

/// Whether the file `name`, relative to `folder`, may be executable: false if the system says that
/// it is missing or forbidden.
///
/// # Safety
/// `name` is a C string or null.
unsafe fn can_execute(folder: c_int, name: *const c_char) -> bool {
    // SAFETY: by this function's contract; for null the system returns an error.
    let result = unsafe { system::may_execute(folder, name.cast()) };
    let refused = [
        libc::ENOENT,
        libc::EACCES,
        libc::ENOTDIR,
        libc::EFAULT,
        libc::EBADF,
    ];
    !refused.iter().any(|&error| result == -(error as isize))
}

/// Whether an executable file `name` exists in one of the folders of `PATH` or, if `name` has a
/// slash, at that path.
fn found(name: &CStr) -> bool {
    let bytes = name.to_bytes();
    if bytes.contains(&b'/') {
        // SAFETY: a C string.
        return unsafe { can_execute(libc::AT_FDCWD, name.as_ptr()) };
    }
    // SAFETY: the name is a C string, and so is the value.
    let path = unsafe {
        let value = libc::getenv(c"PATH".as_ptr());
        if value.is_null() {
            DEFAULT_PATH
        } else {
            CStr::from_ptr(value).to_bytes()
        }
    };
    !bytes.is_empty()
        && path.split(|&byte| byte == b':').any(|folder| {
            let mut whole = [0; LONGEST_PATH];
            let slash: &[u8] = if folder.is_empty() { b"" } else { b"/" };
            let parts = folder.iter().chain(slash).chain(bytes);
            let length = folder.len() + slash.len() + bytes.len();
            for (to, from) in whole.iter_mut().zip(parts) {
                *to = *from;
            }
            // SAFETY: a zero byte follows the path.
            length < LONGEST_PATH && unsafe { can_execute(libc::AT_FDCWD, whole.as_ptr().cast()) }
        })
}

macro_rules! becomes {
    ($($name:ident($($argument:ident: $type:ty),*) => $program:expr;)*) => {$(
        /// Interposed; see its manual.
        ///
        /// # Safety
        /// As the manual demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the caller's arguments, passed on unchanged under the same contract.
            unsafe {
                let left = leave_for(&$program);
                let result = real::$name().map_or_else(fails, |real| real($($argument),*));
                if left {
                    stay();
                }
                result
            }
        }
    )*};
}

becomes! {
    execve(path: *const c_char, arguments: Strings, environment: Strings)
        => Program::At(libc::AT_FDCWD, path);
    execvpe(file: *const c_char, arguments: Strings, environment: Strings)
        => Program::Search(file);
    fexecve(fd: c_int, arguments: Strings, environment: Strings)
        => Program::Open(fd);
    execveat(folder: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int)
        => if !path.is_null() && *path == 0 { Program::Open(folder) } else { Program::At(folder, path) };
}

/// Interposed; see its manual.
///
/// # Safety
/// As the manual demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: `execv` is `execve` with the current environment.
    unsafe { execve(path, arguments, environ) }
}

/// Interposed; see its manual.
///
/// # Safety
/// As the manual demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: `execvp` is `execvpe` with the current environment.
    unsafe { execvpe(file, arguments, environ) }
}

/// `execle`, with its arguments in an array that the environment follows.
unsafe extern "C-unwind" fn execv_then_environment(path: *const c_char, list: Strings) -> c_int {
    let mut end = list;
    // SAFETY: the list ends with null, and the environment follows it.
    unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, list, *end.add(1).cast::<Strings>())
    }
}

sunder_guest::execute_lists! {
    execl = execv;
    execlp = execvp;
    execle = execv_then_environment;
}
