//! Thread cancellation: the C library unwinds a thread from the instruction at which its signal
//! arrived, which must not be in a copy of code.
//!
//! Contexts: all.

use crate::shared::{control, is_confined, withdraw};
use crate::{area, interrupted};
use core::sync::atomic::Ordering::Acquire;
use sunder_guest::system;
use sunder_wire::remap::{BY_SIGNALS, TOOL_SIGNAL, WITHDRAWN};

/// The signal by which the C library cancels threads.
pub const SIGNAL: u64 = 32;

/// A thread is about to be cancelled. From here on nothing is moved, so that no thread enters a
/// copy. The thread itself is asked to leave a copy that it may be in, by a signal that arrives
/// before the C library's: of the pending signals, the kernel delivers the one with the lower
/// number first.
pub fn begins(thread: u32) {
    if control().is_none() {
        return;
    }
    withdraw();
    area::roll_back_all(BY_SIGNALS);
    if is_confined() {
        return;
    }
    // `siginfo_t`: number, error, code; from byte 16 on process, user and value.
    let mut info = [0u64; 16];
    let [signal, code, sender, value, ..] = &mut info;
    *signal = libc::SIGSEGV as u64;
    *code = u64::from(-1i32 as u32);
    *sender = u64::from(system::process_id());
    *value = TOOL_SIGNAL;
    let arguments = [
        system::process_id() as usize,
        thread as usize,
        libc::SIGSEGV as usize,
        &raw const info as usize,
        0,
        0,
    ];
    // SAFETY: the kernel reads 128 bytes, the size of a `siginfo_t`, and `info` is as long.
    unsafe { system::call(libc::SYS_rt_tgsigqueueinfo, arguments) };
}

/// Whether a cancellation has begun, so that a thread that gets the signal must leave its copy.
pub fn has_begun() -> bool {
    control().is_some_and(|c| c.ready.load(Acquire) == WITHDRAWN)
}

/// Called where a thread gets the signal that [`begins`] sends. If that has ended a kernel call early
/// and the call can't be restarted, waits for the C library's signal, which the other thread is about
/// to send: it would have ended the call, and the thread must not go on from there. After a second
/// the thread goes on all the same.
pub fn wait(state: &libc::ucontext_t) {
    const LONGEST: u32 = 10_000;
    let tenth_of_a_millisecond = [0i64, 100_000];
    for _ in 0..LONGEST {
        if !interrupted::has_ended(state) || system::pending() & 1 << (SIGNAL - 1) != 0 {
            return;
        }
        let arguments = [&raw const tenth_of_a_millisecond as usize, 0, 0, 0, 0, 0];
        // SAFETY: the kernel reads a time, which is as long as two words.
        unsafe { system::call(libc::SYS_nanosleep, arguments) };
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[cfg(all(feature = "preloaded", not(test)))]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cancel(thread: libc::pthread_t) -> core::ffi::c_int {
    let mut clock = 0;
    // SAFETY: the caller passes a valid thread; `clock` is a local.
    if unsafe { libc::pthread_getcpuclockid(thread, &raw mut clock) } == 0 {
        // The kernel encodes the thread id in the number of such a clock.
        begins(!(clock >> 3) as u32);
    }
    match crate::real::pthread_cancel() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        Some(real) => unsafe { real(thread) },
        None => libc::ENOSYS,
    }
}
