//! Prints one line to standard error and ends the program, because the heap is damaged beyond
//! repair. Contexts: pre-init, normal, signal, post-fork.
//!
//! Must not allocate, or wait for a lock: the heap is not whole.

use sunder_guest::{code, system};

/// A line of bounded length. What does not fit is left out.
struct Line {
    text: [u8; 512],
    len: usize,
}

impl Line {
    const fn new() -> Self {
        Self {
            text: [0; 512],
            len: 0,
        }
    }

    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        for &byte in bytes {
            if let Some(to) = self.text.get_mut(self.len) {
                *to = byte;
                self.len += 1;
            }
        }
        self
    }

    /// A file's name comes from outside: only what can't command a terminal is shown.
    fn put_name(&mut self, name: &[u8]) -> &mut Self {
        for &byte in name {
            self.put(&[if byte.is_ascii_graphic() || byte == b' ' {
                byte
            } else {
                b'?'
            }]);
        }
        self
    }

    fn put_number(&mut self, number: u64, base: u64) -> &mut Self {
        let mut places = 1;
        let mut rest = number / base;
        while rest > 0 {
            (places, rest) = (places + 1, rest / base);
        }
        for place in (0..places).rev() {
            let digit = (number / base.pow(place) % base) as u8;
            self.put(&[digit + if digit < 10 { b'0' } else { b'a' - 10 }]);
        }
        self
    }

    fn put_address(&mut self, address: u64) -> &mut Self {
        self.put(b"0x").put_number(address, 16)
    }
}

fn end(line: &mut Line) -> ! {
    // The end of the line is there also if it was too long.
    line.len = line.len.min(line.text.len() - 1);
    line.put(b"\n");
    system::write_all(2, line.text.get(..line.len).unwrap_or_default());
    // SAFETY: `abort` is async-signal-safe and takes no arguments.
    unsafe { libc::abort() }
}

/// Prints what was wrong with `block`, and aborts.
#[cold]
#[inline(never)]
pub fn abort(what: &[u8], block: usize) -> ! {
    let mut line = Line::new();
    line.put(b"sunder: ").put(what).put(b": ");
    end(line.put_address(block as u64))
}

/// As [`abort`], with the block's size in bytes and the return address of its allocation, which is
/// 0 if it is not known.
pub fn abort_of(what: &[u8], block: usize, size: usize, site: u64) -> ! {
    let mut line = Line::new();
    line.put(b"sunder: ").put(what).put(b": ");
    line.put_address(block as u64).put(b", a block of ");
    line.put_number(size as u64, 10).put(b" bytes");
    if site == 0 {
        line.put(b"; sunder run --placement call-site shows where it is allocated");
        end(&mut line)
    }
    line.put(b", allocated by the call before ");
    let mut name = [0; 256];
    match code::find(site, &mut name) {
        Some((offset, name)) => line.put_address(offset).put(b" in ").put_name(name),
        None => line.put_address(site),
    };
    end(&mut line)
}

extern "C" fn report_invalid(block: usize) {
    abort(b"invalid pointer", block)
}

/// Functions that never return, without the compiler knowing: a call of one is a jump, for which
/// the fast paths need no stack frame.
macro_rules! jumps {
    ($($(#[$doc:meta])* $visible:vis $name:ident($($argument:ident: $type:ty),*) => $report:ident;)*) => {$(
        $(#[$doc])*
        #[unsafe(naked)]
        $visible extern "C" fn $name($($argument: $type),*) {
            core::arch::naked_asm!("jmp {}", sym $report)
        }
    )*};
}

pub(crate) use jumps;

jumps! {
    /// Reports that `block` was not allocated here, and aborts.
    pub invalid(block: usize) => report_invalid;
}
