//! System calls without the C library, whose own code may be the patient.

use core::arch::asm;

/// A system call; a negative result is an error number.
///
/// # Safety
/// As the call demands of its arguments.
#[inline]
pub unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the kernel clobbers rcx and r11 only; the caller vouches for the
    // arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Sets the rights of the whole pages from `start` to `end`.
///
/// # Safety
/// Whoever uses them can bear the new rights.
pub unsafe fn protect(start: usize, end: usize, rights: i32) -> bool {
    // SAFETY: by the caller.
    unsafe {
        call(
            libc::SYS_mprotect,
            [start, end - start, rights as usize, 0, 0, 0],
        ) == 0
    }
}
