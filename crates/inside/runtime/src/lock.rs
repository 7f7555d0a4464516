//! `mlockall` without our segment: it is sparse, and locking it would make the
//! kernel fill all of its gigabytes. Contexts: normal.

#![cfg(not(test))]

use crate::{real, state, system};
use core::ffi::c_int;
use sunder_wire::layout::TOTAL;

/// One line of `/proc/self/maps`, as far as it matters.
#[derive(Clone, Copy, Default)]
struct Line {
    start: usize,
    end: usize,
    /// 0 in the start address, 1 in the end address, 2 in the permissions, 3
    /// beyond.
    field: u8,
    accessible: bool,
}

impl Line {
    /// Takes the next byte; the whole line at its end.
    fn push(&mut self, byte: u8) -> Option<Self> {
        let digit = (byte as char).to_digit(16).map_or(0, |d| d as usize);
        match (self.field, byte) {
            (_, b'\n') => return Some(core::mem::take(self)),
            (0, b'-') => self.field = 1,
            (1, b' ') => self.field = 2,
            (0, _) => self.start = self.start << 4 | digit,
            (1, _) => self.end = self.end << 4 | digit,
            (2, b' ') => self.field = 3,
            (2, b'r' | b'w' | b'x') => self.accessible = true,
            _ => {}
        }
        None
    }
}

/// Locks what is mapped now, except `ours`; an error number if that fails.
fn lock_current(ours: (usize, usize), on_fault: bool) -> Result<(), c_int> {
    // SAFETY: the path is a C string.
    let fd = unsafe { system::open_to_read(c"/proc/self/maps".as_ptr().cast()) };
    let fd = fd.ok_or(libc::EAGAIN)?;
    let mut buffer = [0; 2048];
    let mut line = Line::default();
    let mut result = Ok(());
    loop {
        let read = system::read(fd, &mut buffer);
        if read == 0 {
            break;
        }
        for whole in buffer.iter().take(read).filter_map(|&byte| line.push(byte)) {
            let is_ours = whole.start < ours.1 && ours.0 < whole.end;
            // Beyond user space lies only the kernel's own page.
            if is_ours || whole.start >> 47 != 0 {
                continue;
            }
            let failed = system::lock(whole.start, whole.end - whole.start, on_fault);
            // What nobody may touch cannot be filled, which `mlockall` does
            // not mind either.
            if failed != 0 && whole.accessible {
                result = Err(failed);
            }
        }
    }
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
        // SAFETY: the C library's thread-local errno.
        unsafe { *libc::__errno_location() = number };
        -1
    };
    let Some(real) = real::mlockall() else {
        return fails(libc::ENOSYS);
    };
    let Some(view) = state::segment().filter(|_| flags & libc::MCL_CURRENT != 0) else {
        // SAFETY: handed on.
        return unsafe { real(flags) };
    };
    if flags & libc::MCL_FUTURE != 0 {
        // SAFETY: handed on, for what will be mapped later.
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
