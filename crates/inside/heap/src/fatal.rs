//! Prints one line to standard error and ends the program, because the heap is damaged beyond
//! repair. Contexts: pre-init, normal, post-fork.

use sunder_guest::system;

/// Prints what was wrong with `block`, and aborts.
#[cold]
#[inline(never)]
pub fn abort(what: &[u8], block: usize) -> ! {
    let mut line = [0u8; 96];
    let mut len = 0;
    let mut put = |bytes: &[u8]| {
        for &byte in bytes {
            if let Some(to) = line.get_mut(len) {
                *to = byte;
                len += 1;
            }
        }
    };
    put(b"sunder: ");
    put(what);
    put(b": 0x");
    let digits = (16 - (block.leading_zeros() / 4) as usize).max(1);
    for i in (0..digits).rev() {
        let digit = (block >> (i * 4)) as u8 & 15;
        put(&[if digit < 10 {
            b'0' + digit
        } else {
            b'a' + digit - 10
        }]);
    }
    put(b"\n");
    system::write_all(2, line.get(..len).unwrap_or_default());
    // SAFETY: `abort` is async-signal-safe and takes no arguments.
    unsafe { libc::abort() }
}

extern "C" fn report_double_free(block: usize) {
    abort(b"double free", block)
}

extern "C" fn report_invalid(block: usize) {
    abort(b"invalid pointer", block)
}

/// Functions that never return, without the compiler knowing: a call of one is a jump, for which
/// the fast paths need no stack frame.
macro_rules! jumps {
    ($($(#[$doc:meta])* $name:ident => $report:ident;)*) => {$(
        $(#[$doc])*
        #[unsafe(naked)]
        pub extern "C" fn $name(block: usize) {
            core::arch::naked_asm!("jmp {}", sym $report)
        }
    )*};
}

jumps! {
    /// Reports that `block` was freed before, and aborts.
    double_free => report_double_free;
    /// Reports that `block` was not allocated here, and aborts.
    invalid => report_invalid;
}
