//! What a worker may execute: only code that the tool has allowed, and system calls only at our own
//! two instructions ([`crate::from_worker`]).
//!
//! Contexts: a worker before it computes, when no code of the C library may be executed any more.

use crate::{control, from_worker};
use core::sync::atomic::Ordering;
use sunder_access::PAGE_SIZE as PAGE;
use sunder_guest::system;
use sunder_wire::isolation::{CODES, Control, GUARDED, GuardedPage};

/// Ranges of code.
pub struct Executable {
    /// From, to.
    pub ranges: [[usize; 2]; CODES],
    /// How many of them there are.
    pub count: usize,
}

/// Leaves only code executable that a worker may execute. No code of the C library runs from here
/// on.
///
/// # Safety
/// The calling process is a worker, and `executable` is all code that is mapped in it.
pub unsafe fn restrict_code(control: &Control, executable: &Executable) -> Option<()> {
    let count = (control.code_count.load(Ordering::Relaxed) as usize).min(CODES);
    let mut i = 0;
    while i < executable.count && i < CODES {
        let [start, end] = executable.ranges[i];
        i += 1;
        // SAFETY: executing code that is protected here is a fault, which ends the episode.
        unsafe { protect(start, end, libc::PROT_READ)? };
        for allowed in control.codes.iter().take(count) {
            let from = allowed[0].load(Ordering::Relaxed) as usize;
            let to = allowed[1].load(Ordering::Relaxed) as usize;
            let (from, to) = (from.max(start), to.min(end));
            if from < to {
                // SAFETY: restores the rights that this range had.
                unsafe { protect(from, to, libc::PROT_READ | libc::PROT_EXEC)? };
            }
        }
    }
    let count = (control.guarded_count.load(Ordering::Acquire) as usize).min(GUARDED);
    for page in control.guarded.iter().take(count) {
        let at = page.address.load(Ordering::Relaxed) as usize;
        let ranges = executable.ranges.iter().take(executable.count);
        if ranges
            .into_iter()
            .any(|[from, to]| *from <= at && at + PAGE <= *to)
        {
            // SAFETY: a page of code in this process alone, which is not being executed.
            unsafe { guard(at, page) };
        }
    }
    Some(())
}

/// Makes a page executable, with an `int3` in place of each instruction that its points name. If
/// the kernel refuses, the page stays without the right.
unsafe fn guard(at: usize, page: &GuardedPage) {
    const BREAKPOINT: u8 = 0xcc;
    // SAFETY: writing makes a copy of the page for this process alone; nothing of it is executable
    // meanwhile.
    unsafe {
        if protect(at, at + PAGE, libc::PROT_READ | libc::PROT_WRITE).is_none() {
            return;
        }
        for (i, bits) in page.points.iter().enumerate() {
            let mut rest = bits.load(Ordering::Relaxed);
            while rest != 0 {
                let byte = at + i * 64 + rest.trailing_zeros() as usize;
                (byte as *mut u8).write_volatile(BREAKPOINT);
                rest &= rest - 1;
            }
        }
        protect(at, at + PAGE, libc::PROT_READ | libc::PROT_EXEC);
    }
}

unsafe fn protect(from: usize, to: usize, protection: i32) -> Option<()> {
    // SAFETY: the caller knows what lies in the range.
    control::accepted(unsafe { system::protect(from, to - from, protection) })
}

#[repr(C)]
struct Filter {
    code: u16,
    yes: u8,
    no: u8,
    value: u32,
}

#[repr(C)]
struct Program {
    length: u16,
    filter: *const Filter,
}

/// Installs the filter: from here on, only our own two instructions make system calls; others are
/// trapped. The program never runs in this process, so the filter can't survive an `exec`.
///
/// # Safety
/// The calling process is a worker.
pub unsafe fn filter_calls() -> Option<()> {
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const POINTER: u32 = 8;
    const SET_MODE_FILTER: usize = 1;
    /// Without this flag the kernel may slow down speculative stores for filtered processes.
    const SPEC_ALLOW: usize = 4;
    const TRAP: u32 = 0x0003_0000;
    const ALLOW: u32 = 0x7fff_0000;
    let step = |code, yes, no, value| Filter {
        code,
        yes,
        no,
        value,
    };
    let [one, two] = from_worker::allowed_instructions();
    let high = |address: usize| (address >> 32) as u32;
    if high(one) != high(two) {
        return None;
    }
    let filter = [
        step(LOAD, 0, 0, POINTER + 4),
        step(EQUAL, 0, 3, high(one)),
        step(LOAD, 0, 0, POINTER),
        step(EQUAL, 2, 0, one as u32),
        step(EQUAL, 1, 0, two as u32),
        step(RETURN, 0, 0, TRAP),
        step(RETURN, 0, 0, ALLOW),
    ];
    let program = Program {
        length: filter.len() as u16,
        filter: filter.as_ptr(),
    };
    // SAFETY: valid structures; the filter applies to this process alone.
    unsafe {
        let option = libc::PR_SET_NO_NEW_PRIVS as usize;
        control::accepted(system::call(libc::SYS_prctl, [option, 1, 0, 0, 0, 0]))?;
        let arguments = [
            SET_MODE_FILTER,
            SPEC_ALLOW,
            &raw const program as usize,
            0,
            0,
            0,
        ];
        control::accepted(system::call(libc::SYS_seccomp, arguments))
    }
}
