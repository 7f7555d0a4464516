//! System calls of a worker that computes. Its seccomp filter allows them at two instructions only,
//! and these are here.
//!
//! Contexts: a worker before it computes, and its signal handler, where no code of the C library
//! may be executed.

use core::arch::naked_asm;
use sunder_guest::system;

/// As [`system::call`], from the only instruction besides that of [`restorer`] at which a worker's
/// filter allows one.
///
/// # Safety
/// As the call demands of its arguments.
#[inline]
pub unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: by this function's contract.
    unsafe { make(number as usize, a, b, c, d, e, f) }
}

/// # Safety
/// As the call demands of its arguments.
#[unsafe(naked)]
unsafe extern "C" fn make(
    number: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    naked_asm!(
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        ".globl sunder_isolate_call_end",
        ".hidden sunder_isolate_call_end",
        "syscall",
        "sunder_isolate_call_end:",
        "ret",
    )
}

/// The time of a clock, in ns.
pub fn clock(clock: i32) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let at = &raw mut now as usize;
    // SAFETY: `now` is a valid place for the result.
    unsafe { call(libc::SYS_clock_gettime, [clock as usize, at, 0, 0, 0, 0]) };
    system::nanoseconds(&now)
}

/// Signal handlers of workers return to this.
#[unsafe(naked)]
pub unsafe extern "C" fn restorer() {
    naked_asm!(
        "mov eax, {number}",
        ".globl sunder_isolate_return_end",
        ".hidden sunder_isolate_return_end",
        "syscall",
        "sunder_isolate_return_end:",
        "ud2",
        number = const libc::SYS_rt_sigreturn,
    )
}

unsafe extern "C" {
    #[link_name = "sunder_isolate_call_end"]
    static CALL_END: u8;
    #[link_name = "sunder_isolate_return_end"]
    static RETURN_END: u8;
}

/// The addresses after the two system call instructions of workers.
pub fn allowed_instructions() -> [usize; 2] {
    [&raw const CALL_END as usize, &raw const RETURN_END as usize]
}
