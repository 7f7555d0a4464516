//! `syscall` and `prctl`, interposed for the calls by which a process becomes another program, confines
//! itself, or locks its memory. All other calls go unchanged to the real functions. Contexts: all.

#![cfg(not(test))]

use crate::exec::Observed;
use crate::{follow, lock, real};
use core::ffi::{c_char, c_int, c_long, c_ulong, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use sunder_guest::confinement;
use sunder_guest::exec::{Execute, Process, Strings};
use sunder_guest::next::fails;
use sunder_guest::program::Program;

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
        "cmp rdi, {mlockall}",
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
        mlockall = const libc::SYS_mlockall,
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
        return c_long::from(fails());
    };
    // SAFETY: the caller's arguments; an exec call's environment is valid, as the call demands.
    unsafe {
        match number {
            libc::SYS_execve => c_long::from(Observed::with(
                Program::Path(a as *const c_char),
                Process::Own,
                c as Strings,
                |strings| real(number, a, b, strings as usize, d, e, f) as c_int,
            )),
            libc::SYS_execveat => c_long::from(Observed::with(
                Program::At(a as c_int, b as *const c_char),
                Process::Own,
                d as Strings,
                |strings| real(number, a, b, c, strings as usize, e, f) as c_int,
            )),
            libc::SYS_mlockall => c_long::from(lock::mlockall(a as c_int)),
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
        return fails();
    };
    // SAFETY: the caller's arguments, unchanged. A variadic function finds integer arguments where
    // any other function finds them.
    let result = unsafe { real(option, a, b, c, d) };
    if confines && result == 0 {
        follow::confined();
    }
    result
}
