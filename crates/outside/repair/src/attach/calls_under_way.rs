//! Whether the kernel call in which a thread is stopped prevents that pages move: it may use their
//! memory, which `sunder_kernel` knows, or replace the thread's signal mask. Called by `check`.
//!
//! The program's memory is read through a function, nothing is allocated, and no thread is touched.

use sunder_kernel::{KernelCall, Read, Use};

/// The kernel call in which a thread is stopped.
#[derive(Clone, Copy, Debug)]
pub struct CallUnderWay {
    /// The call; after a stop the kernel may continue it as another.
    pub call: KernelCall,
    /// The address behind its instruction.
    pub after: u64,
}

impl CallUnderWay {
    /// Whether the call may use one of the `len` bytes from `page` on, changes mappings or their
    /// sharing, or replaces the thread's signal mask, whose own can't be seen then.
    pub fn is_in_the_way(&self, read: Read<'_>, (page, len): (u64, u64)) -> bool {
        let mut meets = |used| match used {
            Use::Memory { at, len: bytes } => {
                at < page.saturating_add(len) && page < at.saturating_add(bytes)
            }
            Use::Mask(_) | Use::Anything => true,
        };
        match self.number_in_code(read) {
            // Calls by `int 0x80` have other numbers and other argument registers.
            None => true,
            // The registers still hold the arguments of the call that the code makes.
            Some(made) if self.call.continues() => {
                self.call.any_use_of_rest(made, read, &mut meets)
            }
            Some(_) => self.call.any_use(read, &mut meets),
        }
    }

    /// The number that the instruction before the call loads into `eax`, or -1 if another
    /// instruction stands there. `None` if the call was not made by `syscall`.
    fn number_in_code(&self, read: Read<'_>) -> Option<i64> {
        // `mov eax, number`, without a prefix that selects another register, and `syscall`.
        const LOADS: u8 = 0xb8;
        const PREFIXES: core::ops::RangeInclusive<u8> = 0x40..=0x4f;
        let mut code = [0; 2];
        if !read(self.after.wrapping_sub(2), &mut code) || code != [0x0f, 0x05] {
            return None;
        }
        let mut before = [0; 6];
        let is_read = read(self.after.wrapping_sub(8), &mut before);
        let [prefix, opcode, number @ ..] = before;
        let is_load = is_read && opcode == LOADS && !PREFIXES.contains(&prefix);
        Some(if is_load {
            u32::from_le_bytes(number).into()
        } else {
            -1
        })
    }
}

#[cfg(test)]
mod tests;
