//! What this library needs of the C library, for a program that was running already:
//! there the tool puts the library in place, and binds its imports to these functions,
//! so that nothing has to be looked up in the program. Nobody else calls them: a
//! preloaded library uses the C library's. Contexts: all.

#![cfg(not(test))]

use sunder_guest::system::{self, Action};

/// No code of ours panics. If it did the program would end as it does where a function is
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

/// As `abort`: ends the program as that signal does. Also in place of what is not
/// here, which no code calls that is not broken.
#[unsafe(no_mangle)]
pub extern "C" fn sunder_plain_absent() -> ! {
    // SAFETY: the default.
    unsafe { system::set_action(libc::SIGABRT as usize, &Action::default()) };
    system::set_mask(libc::SIG_UNBLOCK, 1 << (libc::SIGABRT - 1));
    system::send(libc::SIGABRT);
    loop {
        // SAFETY: takes a number.
        unsafe { system::call(libc::SYS_exit_group, [127, 0, 0, 0, 0, 0]) };
    }
}
