//! A thread that is kept off its own stack. Pages of a stack can be moved while its thread waits in a
//! kernel call. But when the call ends, the thread's next instruction may need the stack for a fault's
//! frame. So while all threads are stopped, the tool has it wait for the same call here, on a stack of
//! ours ([`sunder_wire::parked`]). Afterwards it puts the pages back, and only then returns to its own
//! stack. A handler of the program's never runs on ours: the thread leaves first, and gets its signal
//! once more.
//!
//! Contexts: signal; the code of a parked thread is that of the thread's kernel call.

use crate::area;
use crate::registers::{general, ip, set_general, set_ip};
use crate::shared::{self, control};
use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr::from_ref;
use core::sync::atomic::Ordering::Acquire;
use sunder_guest::system;
use sunder_wire::parked::Parked;
use sunder_wire::remap::BY_OWNER;

core::arch::global_asm!(
    ".pushsection .text.sunder_park,\"ax\",@progbits",
    ".hidden sunder_park",
    ".hidden sunder_parked",
    ".hidden sunder_park_probe",
    ".hidden sunder_park_back",
    ".globl sunder_park",
    ".globl sunder_parked",
    ".globl sunder_park_probe",
    ".globl sunder_park_back",
    // The kernel comes here to make the call again, as for any call.
    "sunder_park:",
    "syscall",
    // Here the thread waits. `rcx` is the one register but `rax` and `r11` that a call changes.
    "sunder_parked:",
    "mov rcx, [rbx + {guard}]",
    "sunder_park_probe:",
    "mov cl, [rcx]",
    // The pages are back.
    "sunder_park_back:",
    "mov rcx, [rbx + {after}]",
    "mov rsp, [rbx + {rsp}]",
    "mov rbx, [rbx + {rbx}]",
    "jmp rcx",
    ".popsection",
    guard = const offset_of!(Parked, guard),
    after = const offset_of!(Parked, after),
    rsp = const offset_of!(Parked, rsp),
    rbx = const offset_of!(Parked, rbx),
);

unsafe extern "C" {
    safe fn sunder_park();
    safe fn sunder_parked();
    safe fn sunder_park_probe();
    safe fn sunder_park_back();
}

/// Where a parked thread waits.
pub const WAITS: extern "C" fn() = sunder_parked;

/// The thread's record, if these are the registers of a parked thread.
fn record(general: &[u64; 16]) -> Option<&'static Parked> {
    let [_, _, _, rbx, ..] = *general;
    let mut all = control()?.parked.iter();
    all.find(|one| from_ref(*one) as u64 == rbx)
}

/// Puts back what has moved of the thread's stack.
fn put_back(record: &Parked) {
    let (low, high) = (record.low.load(Acquire), record.high.load(Acquire));
    area::roll_back_in(low, high.saturating_sub(low), BY_OWNER);
}

/// Handles the fault that a parked thread makes after its kernel call; false if it is another fault.
pub fn wakes(state: &mut libc::ucontext_t) -> bool {
    if ip(state) != sunder_park_probe as *const () as u64 {
        return false;
    }
    if let Some(record) = record(&general(state)) {
        put_back(record);
    }
    set_ip(state, sunder_park_back as *const () as u64);
    true
}

/// If a signal has interrupted a parked thread, has it go on where it would be had it not been
/// parked; false if it was not.
pub fn leave(state: &mut libc::ucontext_t) -> bool {
    let at = ip(state);
    let [park, parked, probe] =
        [sunder_park, sunder_parked, sunder_park_probe].map(|f| f as *const () as u64);
    if ![park, parked, probe].contains(&at) {
        return false;
    }
    let mut registers = general(state);
    let Some(record) = record(&registers) else {
        return false;
    };
    put_back(record);
    let after = record.after.load(Acquire);
    let [_, rcx, _, rbx, rsp, ..] = &mut registers;
    (*rcx, *rbx, *rsp) = (after, record.rbx.load(Acquire), record.rsp.load(Acquire));
    set_general(state, &registers);
    // The call is made again, or has its result.
    let call = after.wrapping_sub(parked.wrapping_sub(park));
    set_ip(state, if at == park { call } else { after });
    true
}

/// Has a thread that a signal has interrupted while it was parked leave, and get the signal once more
/// when it has left. False if it was not parked, or can't get the signal once more.
///
/// # Safety
/// The arguments are those that the kernel gives to a handler.
pub unsafe fn leave_and_signal(
    signal: c_int,
    info: *const libc::siginfo_t,
    state: &mut libc::ucontext_t,
    resets: bool,
) -> bool {
    if !leave(state) || resets || shared::is_confined() {
        return false;
    }
    // When the handler returns, the kernel sets the mask that the context says.
    system::set_mask(libc::SIG_BLOCK, 1 << (signal - 1));
    let arguments = [
        system::process_id() as usize,
        system::thread_id() as usize,
        signal as usize,
        info as usize,
        0,
        0,
    ];
    // SAFETY: the caller passes a valid `siginfo_t`, which the kernel reads.
    unsafe { system::call(libc::SYS_rt_tgsigqueueinfo, arguments) == 0 }
}
