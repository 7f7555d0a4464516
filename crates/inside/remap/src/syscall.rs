//! `syscall` and `prctl`, interposed: the kernel call's number is known only at run time.
//!
//! Contexts: all.

#![cfg(not(test))]

use crate::before::{if_memory_is_opened, kills};
use crate::{area, interrupted, pages, real, shared, under_way, uses};
use core::ffi::{c_int, c_long, c_ulong, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use sunder_guest::{confinement, system};
use sunder_kernel::KernelCall;
use sunder_wire::remap::{
    BY_CONFINEMENT, BY_DEATH, BY_END, BY_FORK, BY_KERNEL, BY_MAPPING, BY_SIGNALS,
};

/// The real function; null until it has been looked up.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Called by the constructor.
pub fn prepare() {
    let real = real::syscall().map_or(core::ptr::null_mut(), |f| f as *mut c_void);
    REAL.store(real, Ordering::Release);
}

/// The address of the real function if that must make the kernel call, because the call may return
/// twice or not at all; else 0.
extern "C" fn before(number: c_long, a: usize, b: usize, c: usize) -> usize {
    match number {
        libc::SYS_fork | libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3 => {
            shared::withdraw();
            area::roll_back_all(BY_FORK);
            1
        }
        libc::SYS_execve | libc::SYS_execveat => {
            shared::withdraw();
            area::roll_back_all(BY_FORK);
            1
        }
        libc::SYS_exit | libc::SYS_exit_group => {
            area::roll_back_all(BY_END);
            1
        }
        number if !shared::is_confined() && kills(number, [a as u64, b as u64, c as u64]) => {
            area::roll_back_all(BY_DEATH);
            0
        }
        libc::SYS_rt_sigreturn => 1,
        number if confinement::by(number, a) => {
            confine();
            0
        }
        libc::SYS_rt_sigaction | libc::SYS_rt_sigprocmask => {
            shared::withdraw();
            area::roll_back_all(BY_SIGNALS);
            0
        }
        // With these the kernel uses memory later, when no thread is in a call.
        libc::SYS_io_uring_setup | libc::SYS_io_setup | libc::SYS_userfaultfd => {
            shared::withdraw();
            area::roll_back_all(BY_KERNEL);
            0
        }
        libc::SYS_mmap | libc::SYS_mprotect if pages::is_code(c as u64) => {
            area::roll_back_all(BY_MAPPING);
            0
        }
        libc::SYS_mmap | libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_madvise => {
            area::roll_back_in(a as u64, b as u64, BY_MAPPING);
            0
        }
        libc::SYS_mremap | libc::SYS_brk | libc::SYS_shmat | libc::SYS_remap_file_pages => {
            area::roll_back_all(BY_MAPPING);
            0
        }
        // The memory of all others is moved back when they are made.
        _ => {
            if_memory_is_opened(number, &[a as u64, b as u64, c as u64, 0, 0, 0]);
            0
        }
    }
}

/// The program confines itself (seccomp): from here on this library makes no kernel call.
fn confine() {
    if shared::is_confined() {
        return;
    }
    shared::withdraw();
    area::roll_back_all(BY_CONFINEMENT);
    shared::confine();
    shared::await_visits();
}

/// Makes the call.
unsafe extern "C" fn make(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let arguments = [a, b, c, d, e, f];
    let call = KernelCall {
        number,
        arguments: arguments.map(|a| a as u64),
    };
    // Nothing that the call may access is moved while it runs.
    let place = match number {
        // It finds waiting threads by the address, wherever the bytes are; what else it reads it
        // reads at once.
        libc::SYS_futex => {
            uses::move_back(&call);
            None
        }
        libc::SYS_mmap | libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_madvise => {
            Some(uses::begin_bytes(a as u64, b as u64, BY_MAPPING))
        }
        _ => Some(uses::begin(call)),
    };
    let result = loop {
        let (moves, asked) = (shared::moves(), interrupted::asked());
        // SAFETY: the program's own call, with its own arguments.
        let result = unsafe { system::call(number, arguments) };
        if interrupted::is_ended_by_us(number, result, asked) {
            continue;
        }
        let away = result == -(libc::EFAULT as isize) && shared::areas().next().is_some();
        if !away {
            break result;
        }
        area::roll_back_all(BY_KERNEL);
        // SAFETY: the program's own call again.
        let result = unsafe { system::call(number, arguments) };
        if result != -(libc::EFAULT as isize) || shared::moves() == moves {
            break result;
        }
    };
    if let Some(place) = place {
        under_way::end(place);
    }
    if (-4095..0).contains(&result) {
        // SAFETY: the C library returns the valid address of this thread's `errno`.
        unsafe { *libc::__errno_location() = -result as c_int };
        return -1;
    }
    result as c_long
}

/// Interposed; see the C library's manual. A call that may return twice is made with the real
/// function's stack frame only. While nothing was ever moved, every call goes to the real function.
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
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz {make}",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jz {make}",
        "jmp rax",
        before = sym before,
        make = sym make,
        real = sym REAL,
    )
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
    if option == libc::PR_SET_SECCOMP {
        confine();
    }
    match real::prctl() {
        // SAFETY: the caller's arguments, unchanged. A variadic function finds integer arguments
        // where any other function finds them.
        Some(real) => unsafe { real(option, a, b, c, d) },
        None => -1,
    }
}
