//! From a trampoline into a hook and back, with every register as it was. Contexts: all.

use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, Ordering};
use sunder_x86::trampoline::Entries;

/// A kernel call as a hook sees it, and may change it.
#[repr(C)]
#[derive(Debug)]
pub struct Call {
    /// What the program gave it.
    pub arguments: [usize; 6],
    /// What the program gets of it: an error is a small negative number.
    pub result: isize,
    /// Its number; -1 in [`Hooks::failed`] if the code does not tell it.
    pub number: i64,
}

impl Call {
    /// Makes the call (again).
    ///
    /// # Safety
    /// The program wanted it, with these arguments.
    pub unsafe fn make(&mut self) {
        // SAFETY: the caller upholds this function's contract.
        self.result = unsafe { sunder_guest::system::call(self.number, self.arguments) };
    }
}

/// What is called of kernel calls. Both run on the program's stack, in any thread,
/// also with all signals blocked and inside `malloc`; they may use general and
/// 128-bit registers only, and nothing of the C library's.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// In place of a call; must [`Call::make`] it or set a result of its own.
    pub instead: unsafe extern "C" fn(&mut Call),
    /// After a call that failed with `EFAULT`.
    pub failed: unsafe extern "C" fn(&mut Call),
}

/// Until something else is said, and if the one who was to say it has died, trampolines do
/// what was there before.
static INSTEAD: AtomicPtr<()> = AtomicPtr::new(make as *const () as *mut ());
static FAILED: AtomicPtr<()> = AtomicPtr::new(nothing as *const () as *mut ());
static BEFORE: AtomicPtr<()> = AtomicPtr::new(nothing as *const () as *mut ());

unsafe extern "C" fn make(call: &mut Call) {
    // SAFETY: the program's own call, with its own arguments.
    unsafe { call.make() };
}

const unsafe extern "C" fn nothing(_: &mut Call) {}

/// What is called before a call: it may change arguments, not the number or the result.
/// As [`Hooks`] otherwise.
pub type Before = unsafe extern "C" fn(&mut Call);

/// From now on trampolines that somebody else has written lead to these: in a program
/// that is running already, the tool writes them.
pub fn lead_to(hooks: Hooks, before: Before) {
    hooks.set();
    BEFORE.store(before as *mut (), Ordering::Release);
}

/// Where trampolines enter; for that tool.
pub const ENTRIES: [unsafe extern "C" fn(); 3] = [enter_instead, enter_failed, enter_before];

impl Hooks {
    /// From now on trampolines lead to these.
    pub(crate) fn set(self) {
        INSTEAD.store(self.instead as *mut (), Ordering::Release);
        FAILED.store(self.failed as *mut (), Ordering::Release);
    }
}

/// Where trampolines enter: `rax` has the call's number, after a failed call `r11`.
pub fn entries() -> Entries {
    Entries {
        instead: enter_instead as *const () as usize,
        failed: enter_failed as *const () as usize,
        before: enter_before as *const () as usize,
    }
}

/// Saves what a function of ours may change and a kernel call does not, and calls
/// the hook on a [`Call`] that lies on the stack. Of the wide registers only the
/// lower halves are used by our code.
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
// What stands for the result is the number, which goes back to `rax`.
enter!(enter_before, BEFORE, "mov r11, rax");

const _: () = assert!(offset_of!(Call, result) == 48 && offset_of!(Call, number) == 56);
