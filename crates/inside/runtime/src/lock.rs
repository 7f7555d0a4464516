//! `mlockall`, without our segment: that is sparse, and locking it would make the kernel allocate
//! all of its gigabytes. Contexts: normal.

#![cfg(not(test))]

use crate::state::CONFINEMENT;
use crate::{real, state};
use core::ffi::c_int;
use core::ops::ControlFlow;
use sunder_guest::{maps, system};
use sunder_wire::layout::TOTAL;

/// Locks all current mappings except `ours`; an error number if that fails.
fn lock_current(ours: (usize, usize), on_fault: bool) -> Result<(), c_int> {
    let fd = maps::open(maps::OF_PROCESS).ok_or(libc::EAGAIN)?;
    let mut result = Ok(());
    maps::stream(fd, &mut [0; 2048], |mapping| {
        let is_ours = mapping.start < ours.1 && ours.0 < mapping.end;
        // Above user space lies only a page of the kernel's own.
        if !is_ours && mapping.start >> 47 == 0 {
            let bytes = mapping.end - mapping.start;
            let failed = system::lock(mapping.start, bytes, on_fault);
            // A mapping without access rights can't be locked; `mlockall` ignores that, too.
            if failed != 0 && mapping.is_accessible() {
                result = Err(-failed as c_int);
            }
        }
        ControlFlow::Continue(())
    });
    system::close(fd);
    result
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mlockall(flags: c_int) -> c_int {
    let fails = |number| {
        // SAFETY: the C library returns the valid address of this thread's `errno`.
        unsafe { *libc::__errno_location() = number };
        -1
    };
    let Some(real) = real::mlockall() else {
        return fails(libc::ENOSYS);
    };
    let Some(view) = state::segment().filter(|_| flags & libc::MCL_CURRENT != 0) else {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        return unsafe { real(flags) };
    };
    let Some(_calls) = CONFINEMENT.begin() else {
        // Pages of our segment that nobody touches are not made by this.
        // SAFETY: the caller's call, but that pages are locked once they are touched.
        return unsafe { real(flags | libc::MCL_ONFAULT) };
    };
    if flags & libc::MCL_FUTURE != 0 {
        // SAFETY: the caller's call, reduced to future mappings.
        let result = unsafe { real(flags & !libc::MCL_CURRENT) };
        if result != 0 {
            return result;
        }
    }
    let base = view.base().as_ptr() as usize;
    let on_fault = flags & libc::MCL_ONFAULT != 0;
    match lock_current((base, base.saturating_add(TOTAL)), on_fault) {
        Ok(()) => 0,
        Err(number) => fails(number),
    }
}
