//! Continues with saved registers: a worker as the thread, or the thread itself. Contexts: the last
//! instructions of [`crate::enter`] and of [`crate::worker`], in which no other code is called.

use crate::hold::CONFINEMENT;
use core::arch::naked_asm;
use core::mem::offset_of;
use sunder_guest::confinement::Confinement;
use sunder_wire::isolation::Registers;

/// The thread, which [`crate::enter`] has counted, makes no more system call of ours.
const _: () = assert!(offset_of!(Confinement, calling) == 0);

/// Pops [`Registers`] from the stack and continues with them.
macro_rules! restore_registers {
    () => {
        "pop r15; pop r14; pop r13; pop r12; pop rbp; pop rbx; pop r11; pop r10; pop r9; pop r8; \
         pop rax; pop rcx; pop rdx; pop rsi; pop rdi; iretq"
    };
}

/// Continues at the registers and the vector state in the thread area. For a worker, whose signals
/// have a stack of their own.
#[unsafe(naked)]
pub unsafe extern "C" fn restore(registers: *const Registers, vectors: usize) -> ! {
    naked_asm!(
        "mov eax, -1",
        "mov edx, -1",
        "xrstor64 [rsi]",
        "mov rsp, rdi",
        restore_registers!(),
    )
}

/// As [`restore`], for the thread itself. Sets this signal mask as soon as the stack pointer is at
/// the registers: handlers of signals that arrive from then on use the stack below, of which
/// nothing is needed any more.
#[unsafe(naked)]
pub unsafe extern "C" fn restore_with(
    registers: *const Registers,
    vectors: usize,
    mask: *const u64,
) -> ! {
    naked_asm!(
        "mov r9, rdx",
        "mov eax, -1",
        "mov edx, -1",
        "xrstor64 [rsi]",
        "mov rsp, rdi",
        "mov eax, {number}",
        "mov edi, {set}",
        "mov rsi, r9",
        "xor edx, edx",
        "mov r10d, 8",
        "syscall",
        "lock dec dword ptr [rip + {calling}]",
        restore_registers!(),
        calling = sym CONFINEMENT,
        number = const libc::SYS_rt_sigprocmask,
        set = const libc::SIG_SETMASK,
    )
}

/// Returns from the signal whose context this is, with the thread's registers.
#[unsafe(naked)]
pub unsafe extern "C" fn return_from_signal(context: usize) -> ! {
    naked_asm!(
        "mov rsp, rdi",
        "mov eax, {number}",
        "lock dec dword ptr [rip + {calling}]",
        "syscall",
        "ud2",
        calling = sym CONFINEMENT,
        number = const libc::SYS_rt_sigreturn,
    )
}
