//! Memory for the few allocations that are asked for while the real allocator
//! is being looked up. Contexts: pre-init, normal. Never given back.

use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

const BYTES: usize = 64 * 1024;

#[repr(align(64))]
struct Arena(UnsafeCell<[u8; BYTES]>);

// SAFETY: bytes are handed out once each, by the atomic cursor.
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena(UnsafeCell::new([0; BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);

/// Zeroed memory, aligned to at least 16 bytes; null when the arena is used up.
pub fn allocate(size: usize, alignment: usize) -> *mut u8 {
    let alignment = alignment.max(16);
    let start = ARENA.0.get().cast::<u8>();
    let mut used = USED.load(Ordering::Relaxed);
    loop {
        let base = (start as usize).wrapping_add(used);
        let at = base
            .checked_add(16 + alignment - 1)
            .map(|a| (a & !(alignment - 1)).wrapping_sub(start as usize));
        let Some(end) = at.and_then(|a| a.checked_add(size)) else {
            return null_mut();
        };
        if end > BYTES {
            return null_mut();
        }
        match USED.compare_exchange_weak(used, end, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                let block = start.wrapping_add(at.unwrap_or(0));
                // The size lies in the 16 bytes before the block, for `size_of`.
                // SAFETY: `used..end` belongs to this call and holds both.
                unsafe { block.sub(8).cast::<usize>().write_unaligned(size) };
                return block;
            }
            Err(now) => used = now,
        }
    }
}

/// Whether `block` came from here.
#[inline]
pub fn owns<T>(block: *const T) -> bool {
    (block as usize).wrapping_sub(ARENA.0.get() as usize) < BYTES
}

/// Bytes that were asked for.
///
/// # Safety
/// `block` came from [`allocate`].
pub unsafe fn size_of(block: *const u8) -> usize {
    // SAFETY: written by `allocate`.
    unsafe { block.sub(8).cast::<usize>().read_unaligned() }
}
