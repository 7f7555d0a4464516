//! Call stacks by number: a lock-free table of fingerprints. The number of a stack is its index in
//! the table. Contexts: all.

use crate::memory::map;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use sunder_access::PAGE_SIZE as PAGE;
use twox_hash::XxHash3_64;

/// How many frames of a stack are kept, the innermost ones.
pub const MOST_FRAMES: usize = 64;

const ENTRIES: usize = 1 << 19;
/// How far from its hashed index a stack may lie.
const FAR: usize = 64;

/// The table.
#[derive(Debug)]
pub struct Stacks {
    table: AtomicPtr<AtomicU64>,
}

/// The result of looking up a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The stack was in the table, with this number.
    Known(u32),
    /// The stack is new and has this number; no other thread gets it as new.
    New(u32),
    /// The stack is empty, or the table has no room.
    None,
}

impl Stacks {
    pub const fn new() -> Self {
        Self {
            table: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Maps the table before the first stack; false if there is no memory.
    pub fn prepare(&self) -> bool {
        if self.table.load(Ordering::Relaxed).is_null() {
            let memory = map(ENTRIES * size_of::<AtomicU64>(), PAGE);
            let memory = memory.map_or(core::ptr::null_mut(), |m| m.as_ptr().cast());
            self.table.store(memory, Ordering::Release);
        }
        !self.table.load(Ordering::Relaxed).is_null()
    }

    /// The number of the stack with these frames.
    pub fn intern(&self, frames: &[u64]) -> Found {
        let table = self.table.load(Ordering::Acquire);
        if table.is_null() || frames.is_empty() {
            return Found::None;
        }
        // SAFETY: the mapping has so many entries, zeroes are valid, and it is never unmapped.
        let table = unsafe { core::slice::from_raw_parts(table, ENTRIES) };
        let hash = fingerprint(frames);
        for i in 0..FAR {
            let index = (hash as usize).wrapping_add(i) % ENTRIES;
            let Some(entry) = table.get(index) else {
                break;
            };
            let id = index as u32 + 1;
            match entry.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Found::New(id),
                Err(old) if old == hash => return Found::Known(id),
                Err(_) => {}
            }
        }
        Found::None
    }
}

/// A 64-bit fingerprint, never 0; two stacks of a program practically never have the same one.
fn fingerprint(frames: &[u64]) -> u64 {
    // SAFETY: every word can be read as eight bytes.
    let bytes =
        unsafe { core::slice::from_raw_parts(frames.as_ptr().cast::<u8>(), size_of_val(frames)) };
    XxHash3_64::oneshot(bytes).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_new_once_and_keeps_its_number() {
        let stacks = Stacks::new();
        assert_eq!(stacks.intern(&[1]), Found::None);
        assert!(stacks.prepare());
        let Found::New(id) = stacks.intern(&[1, 2]) else {
            panic!("it was never seen");
        };
        assert_eq!(stacks.intern(&[1, 2]), Found::Known(id));
        assert!(matches!(stacks.intern(&[2, 1]), Found::New(other) if other != id));
        assert_eq!(stacks.intern(&[]), Found::None);
    }
}
