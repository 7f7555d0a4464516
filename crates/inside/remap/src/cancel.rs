//! Cancellation: the C library unwinds a thread from where its signal has found it, which
//! must not be a copy of code. Contexts: all.

use crate::area;
use crate::shared::{control, is_confined, withdraw};
use core::sync::atomic::Ordering::Acquire;
use sunder_guest::system;
use sunder_wire::remap::{BELL, BY_SIGNALS, WITHDRAWN};

/// The C library's signal for it.
pub const SIGNAL: u64 = 32;

/// A thread is about to be cancelled. Nothing is moved any more, so that no thread comes
/// to a copy; and this one is asked to leave the one that it may be in, by a signal that it
/// gets before the other: of those that wait, the kernel takes the one of the lower number.
pub fn begins(thread: u32) {
    if control().is_none() {
        return;
    }
    withdraw();
    area::roll_back_all(BY_SIGNALS);
    if is_confined() {
        return;
    }
    // `siginfo_t`: number, error, code; from byte 16 on process, user, value.
    let mut info = [0u64; 16];
    let [signal, code, sender, value, ..] = &mut info;
    *signal = libc::SIGSEGV as u64;
    *code = u64::from(-1i32 as u32);
    *sender = u64::from(system::process_id());
    *value = BELL;
    let arguments = [
        system::process_id() as usize,
        thread as usize,
        libc::SIGSEGV as usize,
        &raw const info as usize,
        0,
        0,
    ];
    // SAFETY: the kernel reads what it takes for a `siginfo_t`, which is as long.
    unsafe { system::call(libc::SYS_rt_tgsigqueueinfo, arguments) };
}

/// Whether a thread that is asked to look at what is wanted is to leave its copy.
pub fn has_begun() -> bool {
    control().is_some_and(|c| c.ready.load(Acquire) == WITHDRAWN)
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[cfg(all(feature = "preloaded", not(test)))]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cancel(thread: libc::pthread_t) -> core::ffi::c_int {
    let mut clock = 0;
    // SAFETY: the caller's thread, and a place for the answer.
    if unsafe { libc::pthread_getcpuclockid(thread, &raw mut clock) } == 0 {
        // The kernel's number of such a clock.
        begins(!(clock >> 3) as u32);
    }
    match crate::real::pthread_cancel() {
        // SAFETY: handed on.
        Some(real) => unsafe { real(thread) },
        None => libc::ENOSYS,
    }
}
