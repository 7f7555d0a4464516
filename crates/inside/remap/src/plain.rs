//! Replacements for the functions of the C library that this library needs, for a program that was
//! already running. The tool binds the library's imports to them, so that no symbol of the program
//! has to be looked up. A preloaded library uses the C library's instead.
//!
//! Contexts: all.

#![cfg(not(test))]

use sunder_guest::system::{self, Action};

/// No code of this library panics. If it did, the program would end as it does where a function is
/// missing.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sunder_plain_absent()
}

/// As `memcpy`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn sunder_plain_memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    core::arch::naked_asm!("mov rax, rdi", "mov rcx, rdx", "rep movsb", "ret")
}

/// As `memmove`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn sunder_plain_memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    core::arch::naked_asm!(
        "mov rax, rdi",
        "mov rcx, rdx",
        "mov r8, rdi",
        "sub r8, rsi",
        "cmp r8, rdx",
        "jb 2f",
        "rep movsb",
        "ret",
        "2:",
        "lea rdi, [rdi + rdx - 1]",
        "lea rsi, [rsi + rdx - 1]",
        "std",
        "rep movsb",
        "cld",
        "ret",
    )
}

/// As `memset`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn sunder_plain_memset(to: *mut u8, byte: i32, len: usize) -> *mut u8 {
    core::arch::naked_asm!(
        "mov r8, rdi",
        "mov eax, esi",
        "mov rcx, rdx",
        "rep stosb",
        "mov rax, r8",
        "ret",
    )
}

/// As `bcmp`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn sunder_plain_bcmp(one: *const u8, other: *const u8, len: usize) -> i32 {
    core::arch::naked_asm!(
        "mov rcx, rdx",
        "xor eax, eax",
        "cmp rcx, rcx",
        "repe cmpsb",
        "setne al",
        "ret",
    )
}

/// As `abort`: ends the program by that signal. Also bound in place of imports that are not here,
/// which only broken code could call.
#[unsafe(no_mangle)]
pub extern "C" fn sunder_plain_absent() -> ! {
    // SAFETY: the default action runs no code.
    unsafe { system::set_action(libc::SIGABRT as usize, &Action::default()) };
    system::set_mask(libc::SIG_UNBLOCK, 1 << (libc::SIGABRT - 1));
    system::send(libc::SIGABRT);
    loop {
        // SAFETY: the call takes a number.
        unsafe { system::call(libc::SYS_exit_group, [127, 0, 0, 0, 0, 0]) };
    }
}
