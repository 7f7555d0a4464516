//! Trampolines behind entries to whose next instruction other code of the function leads, too. They
//! are executed here: only what comes from a failed kernel call may enter the hook, and whatever else
//! comes must find its registers and flags as they were.

// Runs outside the target.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::arch::asm;
use sunder_x86::jump::jump;
use sunder_x86::patch::{ANY_NUMBER, COPIED, DISTANCES, GUARDED, Patch, RUN};
use sunder_x86::trampoline::{Entries, Trampoline};

/// Where things lie in the page of code.
const ENTRY: usize = 0;
const TAIL: usize = 2;
const HOOK: usize = 64;
const TRAMPOLINE: usize = 512;

/// An instruction that does nothing, as long as a jump.
const NOTHING: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
/// What the hook returns in place of the call's result.
const HOOKED: u64 = 77;

/// A page with `syscall`, the tail, and `ret`; the tail leads through a trampoline.
fn page() -> usize {
    // SAFETY: a new mapping of the test's own, which is then filled.
    unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), 4096, rights, kind, -1, 0) as usize;
        assert_ne!(page, libc::MAP_FAILED as usize);
        let put = |at: usize, bytes: &[u8]| {
            ((page + at) as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        };
        let mut patch = Patch {
            entry: ENTRY as u64,
            from: TAIL as u64,
            number: ANY_NUMBER,
            flags: GUARDED,
            head_len: 0,
            tail_len: NOTHING.len() as u8,
            reserved: 0,
            head: [0; COPIED],
            tail: [0; COPIED],
            run: [0; RUN],
            run_len: 0,
            distances: [RUN as u8; DISTANCES],
        };
        patch.tail[..NOTHING.len()].copy_from_slice(&NOTHING);
        let hooks = Entries {
            instead: 0,
            failed: page + HOOK,
            before: 0,
        };
        let trampoline = Trampoline::new(&patch, page, page + TRAMPOLINE, hooks);
        put(TRAMPOLINE, &trampoline.expect("it fits").bytes);
        put(ENTRY, &[0x0f, 0x05]);
        put(
            TAIL,
            &jump(page + TAIL, page + TRAMPOLINE).expect("it is near"),
        );
        put(TAIL + NOTHING.len(), &[0xc3]);
        // mov eax, HOOKED; ret
        put(HOOK, &[0xb8, HOOKED as u8, 0, 0, 0, 0xc3]);
        page
    }
}

/// Calls the code at `at` with these registers and the carry flag set; returns `rax`, `rcx`, `rdx`,
/// `r11` and the flag.
fn enter(at: usize, [rax, rcx, rdx, r11]: [u64; 4], first: u64) -> [u64; 5] {
    let (mut a, mut c, mut d, mut r) = (rax, rcx, rdx, r11);
    let carry: u64;
    // SAFETY: the code returns, and changes no registers but those of a system call. Words below the
    // stack pointer are left alone by `sub`, as the red zone is no use to a caller.
    unsafe {
        asm!(
            "sub rsp, 256",
            "stc",
            "call r12",
            "mov r13d, 0",
            "adc r13d, 0",
            "add rsp, 256",
            inout("rax") a,
            inout("rcx") c,
            inout("rdx") d,
            inout("r11") r,
            in("r12") at,
            out("r13") carry,
            in("rdi") first,
            in("rsi") 0,
        );
    }
    [a, c, d, r, carry]
}

const EFAULT: u64 = (-libc::EFAULT as i64) as u64;

#[test]
fn a_call_that_fails_enters_the_hook() {
    let page = page();
    // The kernel can't write the two descriptors at address 8.
    let pipe = [libc::SYS_pipe as u64, 1, 2, 3];
    assert_eq!(enter(page + ENTRY, pipe, 8)[0], HOOKED);
    // A call that succeeds does not.
    let own = [libc::SYS_getpid as u64, 1, 2, 3];
    assert_eq!(
        enter(page + ENTRY, own, 0)[0],
        u64::from(std::process::id())
    );
}

#[test]
fn what_comes_from_elsewhere_finds_everything_as_it_was() {
    let page = page();
    for rax in [EFAULT, 0, 5] {
        let registers = [rax, 0x1234, 0x5678_9abc_def0, 0x77];
        let [a, c, d, r] = registers;
        assert_eq!(enter(page + TAIL, registers, 0), [a, c, d, r, 1], "{rax}");
    }
    // Even with the address itself minus or plus one.
    for near in [page + TAIL - 1, page + TAIL + 1] {
        let left = enter(page + TAIL, [EFAULT, near as u64, 1, 2], 0);
        assert_eq!(left, [EFAULT, near as u64, 1, 2, 1]);
    }
}
