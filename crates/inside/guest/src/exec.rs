//! The exported functions that execute programs. [`executes!`](crate::executes) exports them for a
//! library that decides about the environment that the new program gets: each calls the real one
//! through the library's [`Execute`]. Contexts: normal, post-fork; also in a vforked child, which
//! has its parent's memory.
//!
//! Not seen: system calls that the program makes itself, and `system` and `popen`, which call the C
//! library's own functions.

use crate::program::Program;
use core::ffi::{c_char, c_int};

/// An array of C strings that ends with null.
pub type Strings = *const *mut c_char;

/// The process in which the new program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// The calling one, which becomes the program.
    Own,
    /// A child that the call makes.
    Child,
}

/// What a library does about the programs that are executed.
pub trait Execute {
    /// Calls `execute` with the environment that the new program gets, and returns its result.
    ///
    /// # Safety
    /// `strings` is null or an environment, a path in `program` null or a C string.
    unsafe fn with(
        program: Program,
        process: Process,
        strings: Strings,
        execute: impl FnOnce(Strings) -> c_int,
    ) -> c_int;
}

/// The real functions.
pub mod real {
    use super::Strings;
    use core::ffi::{c_char, c_int, c_void};

    crate::functions! {
        all look_up_all;
        execve: fn(*const c_char, Strings, Strings) -> c_int;
        execvpe: fn(*const c_char, Strings, Strings) -> c_int;
        fexecve: fn(c_int, Strings, Strings) -> c_int;
        /// Missing before glibc 2.34.
        execveat: fn(c_int, *const c_char, Strings, Strings, c_int) -> c_int;
        posix_spawn: fn(*mut libc::pid_t, *const c_char, *const c_void, *const c_void, Strings, Strings) -> c_int;
        posix_spawnp: fn(*mut libc::pid_t, *const c_char, *const c_void, *const c_void, Strings, Strings) -> c_int;
    }
}

/// The exported functions without their names, for [`executes!`](crate::executes).
///
/// # Safety
/// Of all of them: as the C library's manual demands of the function of that name; a list of
/// arguments is passed as an array.
#[doc(hidden)]
#[allow(
    clippy::missing_safety_doc,
    reason = "the module's documentation has it for all"
)]
pub mod inner {
    use super::{Execute, Process, Strings, real};
    use crate::environment;
    use crate::next::fails;
    use crate::program::Program;
    use core::ffi::{c_char, c_int, c_void};

    unsafe extern "C" {
        /// The C library's variable for the program's environment.
        static environ: Strings;
    }

    type Spawn = unsafe extern "C-unwind" fn(
        *mut libc::pid_t,
        *const c_char,
        *const c_void,
        *const c_void,
        Strings,
        Strings,
    ) -> c_int;

    pub unsafe extern "C-unwind" fn execve<E: Execute>(
        path: *const c_char,
        arguments: Strings,
        strings: Strings,
    ) -> c_int {
        let Some(real) = real::execve() else {
            return fails();
        };
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        unsafe {
            E::with(Program::Path(path), Process::Own, strings, |strings| {
                real(path, arguments, strings)
            })
        }
    }

    pub unsafe extern "C-unwind" fn execv<E: Execute>(
        path: *const c_char,
        arguments: Strings,
    ) -> c_int {
        // SAFETY: `execv` is `execve` with the current environment.
        unsafe { execve::<E>(path, arguments, environ) }
    }

    pub unsafe extern "C-unwind" fn execvpe<E: Execute>(
        file: *const c_char,
        arguments: Strings,
        strings: Strings,
    ) -> c_int {
        let Some(real) = real::execvpe() else {
            return fails();
        };
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        unsafe {
            E::with(Program::Search(file), Process::Own, strings, |strings| {
                real(file, arguments, strings)
            })
        }
    }

    pub unsafe extern "C-unwind" fn execvp<E: Execute>(
        file: *const c_char,
        arguments: Strings,
    ) -> c_int {
        // SAFETY: `execvp` is `execvpe` with the current environment.
        unsafe { execvpe::<E>(file, arguments, environ) }
    }

    pub unsafe extern "C-unwind" fn execle<E: Execute>(
        path: *const c_char,
        list: Strings,
    ) -> c_int {
        // SAFETY: the list ends with null, and the environment follows it.
        unsafe {
            let end = list.wrapping_add(environment::count(list.cast_mut()) + 1);
            execve::<E>(path, list, (*end).cast_const().cast())
        }
    }

    pub unsafe extern "C-unwind" fn fexecve<E: Execute>(
        fd: c_int,
        arguments: Strings,
        strings: Strings,
    ) -> c_int {
        let Some(real) = real::fexecve() else {
            return fails();
        };
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        unsafe {
            E::with(Program::Descriptor(fd), Process::Own, strings, |strings| {
                real(fd, arguments, strings)
            })
        }
    }

    pub unsafe extern "C-unwind" fn execveat<E: Execute>(
        fd: c_int,
        path: *const c_char,
        arguments: Strings,
        strings: Strings,
        flags: c_int,
    ) -> c_int {
        let Some(real) = real::execveat() else {
            return fails();
        };
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        unsafe {
            E::with(Program::At(fd, path), Process::Own, strings, |strings| {
                real(fd, path, arguments, strings, flags)
            })
        }
    }

    pub unsafe extern "C-unwind" fn posix_spawn<E: Execute>(
        child: *mut libc::pid_t,
        path: *const c_char,
        files: *const c_void,
        attributes: *const c_void,
        arguments: Strings,
        strings: Strings,
    ) -> c_int {
        let program = Program::Path(path);
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        unsafe {
            spawn::<E>(program, strings, real::posix_spawn(), |real, strings| {
                real(child, path, files, attributes, arguments, strings)
            })
        }
    }

    pub unsafe extern "C-unwind" fn posix_spawnp<E: Execute>(
        child: *mut libc::pid_t,
        file: *const c_char,
        files: *const c_void,
        attributes: *const c_void,
        arguments: Strings,
        strings: Strings,
    ) -> c_int {
        let program = Program::Search(file);
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        unsafe {
            spawn::<E>(program, strings, real::posix_spawnp(), |real, strings| {
                real(child, file, files, attributes, arguments, strings)
            })
        }
    }

    /// Unlike the other functions, these return the error.
    unsafe fn spawn<E: Execute>(
        program: Program,
        strings: Strings,
        real: Option<Spawn>,
        call: impl FnOnce(Spawn, Strings) -> c_int,
    ) -> c_int {
        let Some(real) = real else {
            return libc::ENOSYS;
        };
        // SAFETY: by the caller's contract.
        unsafe {
            E::with(program, Process::Child, strings, |strings| {
                call(real, strings)
            })
        }
    }
}

/// Exports functions of these names and arguments that pass them on to the [`inner`] ones.
#[doc(hidden)]
#[macro_export]
macro_rules! execute_by {
    ($by:ty; $($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// Interposed; see the C library's manual.
        ///
        /// # Safety
        /// As the C library demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> ::core::ffi::c_int {
            // SAFETY: the caller's arguments, passed on unchanged under the same contract.
            unsafe { $crate::exec::inner::$name::<$by>($($argument),*) }
        }
    )*};
}

/// Exports functions that take a name and a list of arguments, such as `execl`. Each calls the function
/// behind `=` with the list as an array in memory: it stores the arguments that came in registers below
/// those on the stack.
#[macro_export]
macro_rules! execute_lists {
    ($($name:ident = $inner:path;)*) => {$(
        /// Interposed; see the C library's manual.
        ///
        /// # Safety
        /// As the C library demands.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name(
            name: *const ::core::ffi::c_char,
        ) -> ::core::ffi::c_int {
            ::core::arch::naked_asm!(
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                // Aligns the stack for the call.
                "push rax",
                "call {inner}",
                "pop rcx",
                "add rsp, 40",
                "jmp rcx",
                inner = sym $inner,
            )
        }
    )*};
}

/// Exports the functions that execute programs, which interpose the C library's, for a type that is
/// an [`Execute`](crate::exec::Execute). Not in test binaries.
#[macro_export]
macro_rules! executes {
    ($by:ty) => {
        $crate::execute_by! { $by;
            execve(path: *const ::core::ffi::c_char, arguments: $crate::exec::Strings, strings: $crate::exec::Strings);
            execv(path: *const ::core::ffi::c_char, arguments: $crate::exec::Strings);
            execvpe(file: *const ::core::ffi::c_char, arguments: $crate::exec::Strings, strings: $crate::exec::Strings);
            execvp(file: *const ::core::ffi::c_char, arguments: $crate::exec::Strings);
            fexecve(fd: ::core::ffi::c_int, arguments: $crate::exec::Strings, strings: $crate::exec::Strings);
            execveat(fd: ::core::ffi::c_int, path: *const ::core::ffi::c_char, arguments: $crate::exec::Strings, strings: $crate::exec::Strings, flags: ::core::ffi::c_int);
            posix_spawn(child: *mut ::libc::pid_t, path: *const ::core::ffi::c_char, files: *const ::core::ffi::c_void, attributes: *const ::core::ffi::c_void, arguments: $crate::exec::Strings, strings: $crate::exec::Strings);
            posix_spawnp(child: *mut ::libc::pid_t, file: *const ::core::ffi::c_char, files: *const ::core::ffi::c_void, attributes: *const ::core::ffi::c_void, arguments: $crate::exec::Strings, strings: $crate::exec::Strings);
        }
        $crate::execute_lists! {
            execl = $crate::exec::inner::execv::<$by>;
            execlp = $crate::exec::inner::execvp::<$by>;
            execle = $crate::exec::inner::execle::<$by>;
        }
    };
}
