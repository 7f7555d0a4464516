//! Functions by which the program becomes another one. The trace ends there, so
//! it is written before the call; a call that can't succeed (a search through
//! `PATH` by hand makes many) ends nothing. In a forked child they only hand on.
//! Contexts: normal, signal, post-fork.
//!
//! A program that is spawned beside this one (`posix_spawn`, `system`, `popen`)
//! ends nothing either: the C library makes these calls in a child of its own.

use crate::local::RECORDER;
use crate::real;
use crate::start::finish;
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int};
use sunder_guest::system;
use sunder_trace::meta::Reason;

type Strings = *const *const c_char;

unsafe extern "C" {
    /// The program's environment, as the C library has it.
    static environ: Strings;
}

/// Where `execvp` looks if there is no `PATH`.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";
const LONGEST_PATH: usize = 4096;

/// What is to be executed.
enum Program {
    /// The file of this name, relative to a folder.
    At(c_int, *const c_char),
    /// As a shell finds it.
    Search(*const c_char),
    /// An open file.
    Open(c_int),
}

/// Ends the trace if `program` can be executed; whether it did.
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

/// The call has failed all the same: the trace says that it is not all.
fn stay() {
    // SAFETY: the C library returns the valid address of this thread's `errno`.
    let errno = unsafe { *libc::__errno_location() };
    RECORDER.went_on(errno.unsigned_abs());
}

/// Whether the file `name`, relative to `folder`, may be there to be executed:
/// not if the system says that it is missing or forbidden.
///
/// # Safety
/// `name` is a C string or null.
unsafe fn can_execute(folder: c_int, name: *const c_char) -> bool {
    // SAFETY: by this function's contract; null is an error like any other.
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

/// Whether `name` is there to be executed, in one of the folders of `PATH` or,
/// with a slash, by itself.
fn found(name: &CStr) -> bool {
    let bytes = name.to_bytes();
    if bytes.contains(&b'/') {
        // SAFETY: a C string.
        return unsafe { can_execute(libc::AT_FDCWD, name.as_ptr()) };
    }
    // SAFETY: a name; the value is a C string.
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
            // SAFETY: a zero follows.
            length < LONGEST_PATH && unsafe { can_execute(libc::AT_FDCWD, whole.as_ptr().cast()) }
        })
}

/// What a function returns that the C library does not have.
fn fails() -> c_int {
    // SAFETY: the C library returns the valid address of this thread's `errno`.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
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

/// `execle`, its arguments in an array that the environment follows.
unsafe extern "C-unwind" fn execv_then_environment(path: *const c_char, list: Strings) -> c_int {
    let mut end = list;
    // SAFETY: the list ends with null, and the environment comes after it.
    unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, list, *end.add(1).cast::<Strings>())
    }
}

macro_rules! with_list {
    ($($name:ident => $inner:ident;)*) => {$(
        /// Interposed; see its manual. A list of arguments is an array once the
        /// part that came in registers lies before the part on the stack.
        ///
        /// # Safety
        /// As the manual demands.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name(path: *const c_char) -> c_int {
            naked_asm!(
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                // Aligned for the call.
                "push rax",
                "call {}",
                "pop rcx",
                "add rsp, 40",
                "jmp rcx",
                sym $inner,
            )
        }
    )*};
}

with_list! {
    execl => execv;
    execlp => execvp;
    execle => execv_then_environment;
}
