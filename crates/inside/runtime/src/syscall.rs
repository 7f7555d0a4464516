//! `syscall` and `prctl`, interposed for the calls by which a process becomes another program or
//! confines itself. All other calls go unchanged to the real functions. Contexts: all.

#![cfg(not(test))]

use crate::program::Program;
use crate::{exec, follow, real};
use core::ffi::{c_char, c_int, c_long, c_ulong, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use sunder_guest::{confinement, environment};

/// The real `syscall`; null until it has been looked up.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

extern "C" fn look_up() {
    let real = real::syscall().map_or(core::ptr::null_mut(), |f| f as *mut c_void);
    REAL.store(real, Ordering::Release);
}

/// Interposed; see the C library's manual. All other calls are made with the real function's stack
/// frame only, because some return twice.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    core::arch::naked_asm!(
        "cmp rdi, {execve}",
        "je {ours}",
        "cmp rdi, {execveat}",
        "je {ours}",
        "cmp rdi, {seccomp}",
        "je {ours}",
        "cmp rdi, {prctl}",
        "je {ours}",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "call {look_up}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jz {ours}",
        "jmp rax",
        execve = const libc::SYS_execve,
        execveat = const libc::SYS_execveat,
        seccomp = const libc::SYS_seccomp,
        prctl = const libc::SYS_prctl,
        ours = sym ours,
        real = sym REAL,
        look_up = sym look_up,
    )
}

/// The calls that the runtime handles.
unsafe extern "C-unwind" fn ours(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let Some(real) = real::syscall() else {
        return c_long::from(exec::fails());
    };
    // SAFETY: the caller's arguments; an exec call's environment is valid, as the call demands.
    unsafe {
        match number {
            libc::SYS_execve => c_long::from(exec::with(
                Program::Path(a as *const c_char),
                c as exec::Strings,
                |strings| real(number, a, b, strings as usize, d, e, f) as c_int,
            )),
            libc::SYS_execveat => c_long::from(exec::with(
                Program::At(a as c_int, b as *const c_char),
                d as exec::Strings,
                |strings| real(number, a, b, c, strings as usize, e, f) as c_int,
            )),
            _ => {
                let confines = confinement::by(number, a);
                if confines {
                    follow::confine();
                }
                let result = real(number, a, b, c, d, e, f);
                if confines && result == 0 {
                    follow::confined();
                }
                result
            }
        }
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn prctl(
    option: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    let confines = confinement::by(libc::SYS_prctl, option as usize);
    if confines {
        follow::confine();
    }
    let Some(real) = real::prctl() else {
        return exec::fails();
    };
    // SAFETY: the caller's arguments, unchanged. A variadic function finds integer arguments where
    // any other function finds them.
    let result = unsafe { real(option, a, b, c, d) };
    if confines && result == 0 {
        follow::confined();
    }
    result
}

/// The body of a function with one argument and a list: stores the part of the list that came in
/// registers below the part on the stack, so that the list is one array in memory, and calls
/// `inner` with its address.
macro_rules! collect {
    ($inner:ident) => {
        core::arch::naked_asm!(
            "pop rax",
            "push r9",
            "push r8",
            "push rcx",
            "push rdx",
            "push rsi",
            "mov rsi, rsp",
            "push rax",
            "call {inner}",
            "pop rcx",
            "add rsp, 40",
            "jmp rcx",
            inner = sym $inner,
        )
    };
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn execl(path: *const c_char) -> c_int {
    collect!(execl_list)
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn execlp(file: *const c_char) -> c_int {
    collect!(execlp_list)
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn execle(path: *const c_char) -> c_int {
    collect!(execle_list)
}

unsafe extern "C-unwind" fn execl_list(path: *const c_char, list: exec::Strings) -> c_int {
    // SAFETY: the list ends with null, as an array of arguments must.
    unsafe { exec::execv(path, list) }
}

unsafe extern "C-unwind" fn execlp_list(file: *const c_char, list: exec::Strings) -> c_int {
    // SAFETY: the list ends with null, as an array of arguments must.
    unsafe { exec::execvp(file, list) }
}

unsafe extern "C-unwind" fn execle_list(path: *const c_char, list: exec::Strings) -> c_int {
    // SAFETY: the list ends with null, and the environment follows it.
    unsafe {
        let end = list.wrapping_add(environment::count(list.cast_mut()) + 1);
        exec::execve(path, list, (*end).cast_const().cast())
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fexecve(
    fd: c_int,
    arguments: exec::Strings,
    strings: exec::Strings,
) -> c_int {
    let Some(real) = real::fexecve() else {
        return exec::fails();
    };
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    unsafe {
        exec::with(Program::Descriptor(fd), strings, |strings| {
            real(fd, arguments, strings)
        })
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execveat(
    fd: c_int,
    path: *const c_char,
    arguments: exec::Strings,
    strings: exec::Strings,
    flags: c_int,
) -> c_int {
    let Some(real) = real::execveat() else {
        return exec::fails();
    };
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    unsafe {
        exec::with(Program::At(fd, path), strings, |strings| {
            real(fd, path, arguments, strings, flags)
        })
    }
}

type Spawn = unsafe extern "C-unwind" fn(
    *mut libc::pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    exec::Strings,
    exec::Strings,
) -> c_int;

/// # Safety
/// As `posix_spawn` demands; `real` is that or a variant of it.
unsafe fn spawn(
    real: Option<Spawn>,
    child: *mut libc::pid_t,
    program: Program,
    actions: [*const c_void; 2],
    lists: [exec::Strings; 2],
) -> c_int {
    let [files, attributes] = actions;
    let [arguments, strings] = lists;
    let (Program::Path(name) | Program::Search(name)) = program else {
        return libc::EINVAL;
    };
    let Some(real) = real else {
        return libc::ENOSYS;
    };
    // The child is another process, so passing the runtime on depends on whether children are
    // followed.
    if !follow::passes_to_children() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        return unsafe { real(child, name, files, attributes, arguments, strings) };
    }
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    unsafe {
        exec::for_child(program, strings, |strings| {
            real(child, name, files, attributes, arguments, strings)
        })
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_spawn(
    child: *mut libc::pid_t,
    path: *const c_char,
    files: *const c_void,
    attributes: *const c_void,
    arguments: exec::Strings,
    strings: exec::Strings,
) -> c_int {
    let (actions, lists) = ([files, attributes], [arguments, strings]);
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    unsafe {
        spawn(
            real::posix_spawn(),
            child,
            Program::Path(path),
            actions,
            lists,
        )
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_spawnp(
    child: *mut libc::pid_t,
    file: *const c_char,
    files: *const c_void,
    attributes: *const c_void,
    arguments: exec::Strings,
    strings: exec::Strings,
) -> c_int {
    let (actions, lists) = ([files, attributes], [arguments, strings]);
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    unsafe {
        spawn(
            real::posix_spawnp(),
            child,
            Program::Search(file),
            actions,
            lists,
        )
    }
}
