//! The way from a trampoline into a hook and back, with all registers restored. Contexts: all.

use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, Ordering};
use sunder_x86::trampoline::Entries;

/// A kernel call, as a hook sees it and may change it.
#[repr(C)]
#[derive(Debug)]
pub struct Call {
    /// The program's arguments.
    pub arguments: [usize; 6],
    /// The result for the program; an error is a small negative number.
    pub result: isize,
    /// The call's number; -1 in [`Hooks::failed`] if the code does not show it.
    pub number: i64,
}

impl Call {
    /// Makes the call (again).
    ///
    /// # Safety
    /// The program wants this call with these arguments.
    pub unsafe fn make(&mut self) {
        // SAFETY: the caller upholds this function's contract.
        self.result = unsafe { sunder_guest::system::call(self.number, self.arguments) };
    }
}

/// The functions that trampolines call for kernel calls. Both run on the program's stack, in any
/// thread, also with all signals blocked and inside `malloc`. They may use only general and 128-bit
/// registers, and nothing of the C library's.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// Runs in place of a call; must [`Call::make`] it or set a result of its own.
    pub instead: unsafe extern "C" fn(&mut Call),
    /// Runs after a call that failed with `EFAULT`.
    pub failed: unsafe extern "C" fn(&mut Call),
}

/// Until a hook is set, trampolines just make the call; also if the tool dies before it sets one.
static INSTEAD: AtomicPtr<()> = AtomicPtr::new(make as *const () as *mut ());
static FAILED: AtomicPtr<()> = AtomicPtr::new(nothing as *const () as *mut ());
static BEFORE: AtomicPtr<()> = AtomicPtr::new(nothing as *const () as *mut ());

unsafe extern "C" fn make(call: &mut Call) {
    // SAFETY: the program's own call, with its own arguments.
    unsafe { call.make() };
}

const unsafe extern "C" fn nothing(_: &mut Call) {}

/// A function that runs before a call. It may change arguments, but not the number or the result.
/// Otherwise as [`Hooks`].
pub type Before = unsafe extern "C" fn(&mut Call);

/// From here on, trampolines lead to these functions. In a program that was already running, the tool
/// writes them.
pub fn lead_to(hooks: Hooks, before: Before) {
    hooks.set();
    BEFORE.store(before as *mut (), Ordering::Release);
}

/// The addresses to which such trampolines jump, for the tool.
pub const ENTRIES: [unsafe extern "C" fn(); 3] = [enter_instead, enter_failed, enter_before];

impl Hooks {
    /// From here on trampolines lead to these functions.
    pub(crate) fn set(self) {
        INSTEAD.store(self.instead as *mut (), Ordering::Release);
        FAILED.store(self.failed as *mut (), Ordering::Release);
    }
}

/// The addresses to which trampolines jump, with the call's number in `rax`; after a failed call it
/// is in `r11`.
pub fn entries() -> Entries {
    Entries {
        instead: enter_instead as *const () as usize,
        failed: enter_failed as *const () as usize,
        before: enter_before as *const () as usize,
    }
}

/// Saves the registers that our function may change and a kernel call does not, and calls the hook
/// with a [`Call`] on the stack. Our code uses only the lower halves of the wide registers.
macro_rules! enter {
    ($name:ident, $hook:ident, $number:literal) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "pushfq",
                $number,
                "push r11",
                "push rax",
                "push r9",
                "push r8",
                "push r10",
                "push rdx",
                "push rsi",
                "push rdi",
                "mov rdi, rsp",
                "sub rsp, 512",
                "and rsp, -16",
                "fxsave64 [rsp]",
                "cld",
                "call qword ptr [rip + {hook}]",
                "fxrstor64 [rsp]",
                "lea rsp, [rbp - 72]",
                "pop rdi",
                "pop rsi",
                "pop rdx",
                "pop r10",
                "pop r8",
                "pop r9",
                "pop rax",
                "pop r11",
                "popfq",
                "pop rbp",
                "ret",
                hook = sym $hook,
            )
        }
    };
}

enter!(enter_instead, INSTEAD, "mov r11, rax");
enter!(enter_failed, FAILED, "nop");
// The number is passed in place of the result, so that it returns to `rax`.
enter!(enter_before, BEFORE, "mov r11, rax");

const _: () = assert!(offset_of!(Call, result) == 48 && offset_of!(Call, number) == 56);
