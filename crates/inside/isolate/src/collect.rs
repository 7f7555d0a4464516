//! Collects workers that have ended, so that their process ids become free. Contexts: a thread in
//! [`crate::enter`], or one that is about to fork.

use crate::upkeep;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use sunder_guest::system;
use sunder_wire::isolation::{Control, Slot};

/// Whether the worker has ended; if so, it is collected.
pub fn has_ended(slot: &Slot) -> bool {
    let pid = slot.worker.load(Acquire);
    if pid == 0 {
        return true;
    }
    if !wait_for(slot, pid, libc::WNOHANG) {
        return false;
    }
    slot.worker.store(0, Release);
    true
}

/// Returns whether the worker has ended and was collected; continues it if it was stopped: the
/// thread runs, so the worker must not stay stopped.
fn wait_for(slot: &Slot, pid: u32, options: i32) -> bool {
    let mut status = 0i32;
    let at = &raw mut status as usize;
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    let used = usage.as_mut_ptr();
    let options = (libc::__WCLONE | libc::WUNTRACED | options) as usize;
    let arguments = [pid as usize, at, options, used as usize, 0, 0];
    // SAFETY: `at` is the address of a local status word, `used` that of a local, which the kernel fills.
    let result = unsafe { system::call(libc::SYS_wait4, arguments) };
    if result <= 0 {
        // A handler of the program's interrupted the call: the caller asks again.
        return result < 0 && result != -(libc::EINTR as isize);
    }
    let stopped = libc::WIFSTOPPED(status);
    if stopped {
        // The process id is still the worker's: it is our child and not yet collected.
        system::kill(pid, libc::SIGCONT);
    } else {
        // SAFETY: the call returned a child, so the kernel has filled this.
        let usage = unsafe { usage.assume_init_ref() };
        let time = |time: &libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        let spent = (time(&usage.ru_utime) + time(&usage.ru_stime)) * 1000;
        upkeep::ended(slot, spent);
    }
    !stopped
}

/// Collects the workers of earlier episodes. No thread is isolated, and none can enter isolation.
pub fn collect_all(control: &Control) {
    for slot in &control.slots {
        collect(slot, false);
    }
}

/// Collects the worker of an earlier episode, which has ended or is about to.
pub fn collect(slot: &Slot, kill: bool) {
    let pid = slot.worker.swap(0, SeqCst);
    if pid == 0 {
        return;
    }
    if kill {
        // The process id is still the worker's: it is our child and not yet collected.
        system::kill(pid, libc::SIGKILL);
    }
    while !wait_for(slot, pid, 0) {}
}
