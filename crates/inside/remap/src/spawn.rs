//! Interposed functions that make processes or replace this one: all bytes are moved back first,
//! and nothing is moved until they are done. `fork` itself uses `pthread_atfork`
//! ([`crate::start`]).
//!
//! Contexts: normal; after a fork.

#![cfg(not(test))]

use crate::shared::Hold;
use crate::{area, process, real, shared};
use core::ffi::{c_char, c_int, c_long, c_void};
use sunder_wire::remap::{BY_FORK, BY_MAPPING};

type Strings = *const *mut c_char;

/// Nothing is moved while the value lives. `None` in a child of `vfork`: its parent holds already,
/// and a hold of the child's would never end.
fn prepare() -> Option<Hold> {
    // After the program has confined itself, nothing is moved and this library makes no kernel
    // calls.
    if shared::is_confined() || process::is_guest() {
        return None;
    }
    let hold = Hold::new();
    area::roll_back_all(BY_FORK);
    Some(hold)
}

macro_rules! spawns {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $failure:expr;)*) => {$(
        /// Interposed; see the C library's manual.
        ///
        /// # Safety
        /// As the C library demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            let _hold = prepare();
            match real::$name() {
                // SAFETY: the caller's arguments, passed on unchanged under the same contract.
                Some(real) => unsafe { real($($argument),*) },
                None => $failure,
            }
        }
    )*};
}

spawns! {
    posix_spawn(child: *mut libc::pid_t, path: *const c_char, files: *const c_void, attributes: *const c_void, arguments: Strings, strings: Strings) -> c_int = libc::ENOSYS;
    posix_spawnp(child: *mut libc::pid_t, path: *const c_char, files: *const c_void, attributes: *const c_void, arguments: Strings, strings: Strings) -> c_int = libc::ENOSYS;
    system(command: *const c_char) -> c_int = -1;
    popen(command: *const c_char, kind: *const c_char) -> *mut c_void = core::ptr::null_mut();
    execve(path: *const c_char, arguments: Strings, strings: Strings) -> c_int = -1;
    execv(path: *const c_char, arguments: Strings) -> c_int = -1;
    execvp(path: *const c_char, arguments: Strings) -> c_int = -1;
    execvpe(path: *const c_char, arguments: Strings, strings: Strings) -> c_int = -1;
    fexecve(file: c_int, arguments: Strings, strings: Strings) -> c_int = -1;
}

/// Interposed; see the C library's manual. It does not run the handlers of `pthread_atfork`, so its
/// child is marked here: as in a child of `fork`, nothing is ever moved there.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _Fork() -> c_int {
    let hold = prepare();
    let child = match real::_Fork() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        Some(real) => unsafe { real() },
        None => -1,
    };
    if child == 0 {
        // SAFETY: `set_control` accepts null.
        unsafe { shared::set_control(core::ptr::null_mut()) };
    }
    drop(hold);
    child
}

/// For calls that return twice or on another stack, around which no hold can be kept: nothing is
/// ever moved again.
extern "C" fn give_up() {
    shared::withdraw();
    area::roll_back_all(BY_FORK);
}

macro_rules! jumps {
    ($($name:ident $look:ident;)*) => {$(
        extern "C" fn $look() -> usize {
            give_up();
            real::$name().map_or(0, |f| f as usize)
        }

        /// Interposed; see the C library's manual.
        ///
        /// # Safety
        /// As the C library demands.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() -> c_int {
            core::arch::naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "sub rsp, 8",
                "call {look}",
                "add rsp, 8",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "mov r11, rax",
                "xor eax, eax",
                "test r11, r11",
                "jz 2f",
                "jmp r11",
                "2:",
                "dec rax",
                "ret",
                look = sym $look,
            )
        }
    )*};
}

jumps! { clone look_clone; }

extern "C" fn begin_vfork() {
    core::mem::forget(Hold::new());
    area::roll_back_all(BY_FORK);
}

/// Runs in the parent when the child of a `vfork` has left its memory; returns the result for the
/// program.
extern "C" fn end_vfork(result: c_long) -> c_int {
    shared::end_hold();
    if result < 0 {
        // SAFETY: the C library returns the valid address of this thread's `errno`.
        unsafe { *libc::__errno_location() = -result as c_int };
        return -1;
    }
    result as c_int
}

/// Interposed: nothing is moved until the child has gone. The child runs on its parent's stack and
/// overwrites it, so the return address is kept in a register meanwhile.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn vfork() -> c_int {
    core::arch::naked_asm!(
        "sub rsp, 8",
        "call {begin}",
        "add rsp, 8",
        "pop rdi",
        "mov eax, {number}",
        "syscall",
        "push rdi",
        "test rax, rax",
        "jz 2f",
        "mov rdi, rax",
        "sub rsp, 8",
        "call {end}",
        "add rsp, 8",
        "2:",
        "ret",
        begin = sym begin_vfork,
        end = sym end_vfork,
        number = const libc::SYS_vfork,
    )
}

/// Interposed: a stack that the program provides may lie on moved pages, and the C library uses it
/// while all signals are blocked.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    work: *mut c_void,
    argument: *mut c_void,
) -> c_int {
    let _hold = (!attributes.is_null()).then(Hold::new);
    if !attributes.is_null() && shared::anything_moved() {
        let (mut at, mut len) = (core::ptr::null_mut(), 0);
        // SAFETY: the caller passes valid attributes; the results are locals.
        let known =
            unsafe { libc::pthread_attr_getstack(attributes, &raw mut at, &raw mut len) } == 0;
        if known && !at.is_null() {
            area::roll_back_in(at as u64, len as u64, BY_MAPPING);
        }
    }
    match real::pthread_create() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        Some(real) => unsafe { real(thread, attributes, work, argument) },
        None => libc::ENOSYS,
    }
}
