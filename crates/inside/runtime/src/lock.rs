//! `mlockall`, without our segment: that is sparse, and locking it would make the kernel allocate
//! all of its gigabytes. A call that fails leaves nothing behind, as the kernel's own. Contexts: normal.

#![cfg(not(test))]

use crate::state::CONFINEMENT;
use crate::{real, state};
use core::ffi::c_int;
use core::ops::ControlFlow;
use sunder_guest::maps::{self, Mapping};
use sunder_guest::system;
use sunder_wire::layout::{PAGE, TOTAL};

/// What the names of our shared files begin with.
const OURS: &[u8] = b"/memfd:sunder";

/// Calls `act` with each mapping that is not the segment at `base`, nor another of ours. False if they
/// can't be listed.
fn each_of_the_program(base: usize, mut act: impl FnMut(&Mapping<'_>)) -> bool {
    let Some(fd) = maps::open(maps::OF_PROCESS) else {
        return false;
    };
    let is_whole = maps::stream(fd, &mut [0; 2048], |mapping| {
        let in_segment = mapping.start < base.saturating_add(TOTAL) && base < mapping.end;
        // Above user space lies only a page of the kernel's own.
        if !in_segment && !mapping.name.starts_with(OURS) && mapping.start >> 47 == 0 {
            act(mapping);
        }
        ControlFlow::Continue(())
    });
    system::close(fd);
    is_whole
}

/// Whether the program's memory is within what may be locked, as the kernel compares it.
fn is_within_limit(base: usize) -> bool {
    let mut pages = 0;
    let is_known = each_of_the_program(base, |mapping| {
        pages += (mapping.end - mapping.start) / PAGE;
    });
    is_known && pages as u64 <= system::limit(libc::RLIMIT_MEMLOCK) / PAGE as u64
}

fn errno() -> c_int {
    // SAFETY: the C library returns the valid address of this thread's `errno`.
    unsafe { *libc::__errno_location() }
}

/// As `mlockall` in a process without the segment at `base`.
///
/// # Safety
/// `real` is the C library's function.
unsafe fn lock_all(
    real: unsafe extern "C-unwind" fn(c_int) -> c_int,
    flags: c_int,
    base: usize,
) -> c_int {
    let before = errno();
    let on_fault = flags & libc::MCL_ONFAULT != 0;
    // So no page is made. It fails where a limit holds, which the segment is beyond.
    // SAFETY: by this function's contract.
    let has_locked = unsafe { real(libc::MCL_CURRENT | libc::MCL_ONFAULT) } == 0;
    if has_locked {
        system::unlock(base, TOTAL);
    } else if errno() != libc::ENOMEM || !is_within_limit(base) {
        return -1;
    }
    if !has_locked || !on_fault {
        // What can't be made resident stays so, as under `mlockall`.
        each_of_the_program(base, |mapping| {
            system::lock(mapping.start, mapping.end - mapping.start, on_fault);
        });
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = before };
    if flags & libc::MCL_FUTURE == 0 {
        return 0;
    }
    // SAFETY: by this function's contract.
    unsafe { real(flags & !libc::MCL_CURRENT) }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mlockall(flags: c_int) -> c_int {
    let Some(real) = real::mlockall() else {
        // SAFETY: as in [`errno`].
        unsafe { *libc::__errno_location() = libc::ENOSYS };
        return -1;
    };
    let known = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    let is_current = flags & libc::MCL_CURRENT != 0 && flags & !known == 0;
    let Some(view) = state::segment().filter(|_| is_current) else {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        return unsafe { real(flags) };
    };
    let Some(_calls) = CONFINEMENT.begin() else {
        // Pages of our segment that nobody touches are not made by this.
        // SAFETY: the caller's call, but that pages are locked once they are touched.
        return unsafe { real(flags | libc::MCL_ONFAULT) };
    };
    // SAFETY: it is the real function.
    unsafe { lock_all(real, flags, view.base().as_ptr() as usize) }
}
