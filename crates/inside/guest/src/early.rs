//! Memory for the few allocations that happen while the real allocator is looked up. Never freed.
//! Contexts: pre-init, normal.

use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

const BYTES: usize = 64 * 1024;

/// Bytes before each block that hold its size; so many that the block stays aligned.
const HEADER: usize = 16;

#[repr(align(64))]
struct Arena(UnsafeCell<[u8; BYTES]>);

// SAFETY: the atomic cursor gives each byte to one caller only.
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena(UnsafeCell::new([0; BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);

/// Zeroed memory, aligned to `alignment` (a power of two) and at least 16 bytes; null when
/// the arena is used up.
#[must_use]
pub fn allocate(size: usize, alignment: usize) -> *mut u8 {
    let start = ARENA.0.get().cast::<u8>();
    let mut used = USED.load(Ordering::Relaxed);
    loop {
        let Some((at, end)) = room(start.addr(), used, size, alignment) else {
            return null_mut();
        };
        match USED.compare_exchange_weak(used, end, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                let block = start.wrapping_add(at);
                // SAFETY: `used..end` belongs to this call and holds header and block.
                unsafe { block.sub(HEADER).cast::<usize>().write_unaligned(size) };
                return block;
            }
            Err(now) => used = now,
        }
    }
}

/// The start and end of the next block in an arena at `start`, of which `used` bytes are in use.
fn room(start: usize, used: usize, size: usize, alignment: usize) -> Option<(usize, usize)> {
    let mask = alignment.max(HEADER).checked_sub(1)?;
    let block = start.checked_add(used)?.checked_add(HEADER + mask)? & !mask;
    let at = block - start;
    let end = at.checked_add(size)?;
    (end <= BYTES).then_some((at, end))
}

/// Whether `block` was allocated here.
#[inline]
#[must_use]
pub fn owns<T>(block: *const T) -> bool {
    block.addr().wrapping_sub(ARENA.0.get().addr()) < BYTES
}

/// The requested size of a block, in bytes.
///
/// # Safety
/// `block` came from [`allocate`].
#[must_use]
pub unsafe fn size_of(block: *const u8) -> usize {
    // SAFETY: `allocate` has written the size there.
    unsafe { block.sub(HEADER).cast::<usize>().read_unaligned() }
}

/// Copies the contents of a block of the arena to `to`, as many bytes as fit into both.
///
/// # Safety
/// `block` came from [`allocate`]; `to` has `size` bytes and is not in the arena.
pub unsafe fn move_to(to: *mut u8, size: usize, block: *const u8) {
    // SAFETY: both have so many bytes, by this function's contract.
    unsafe { core::ptr::copy_nonoverlapping(block, to, size.min(size_of(block))) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_zeroed_and_apart() {
        let mut blocks: Vec<(usize, usize)> = Vec::new();
        for (size, alignment) in [(1, 1), (40, 16), (0, 1), (100, 256), (7, 64), (16, 16)] {
            let block = allocate(size, alignment);
            assert!(!block.is_null() && owns(block));
            assert_eq!(block.addr() % alignment.max(16), 0);
            // SAFETY: our own block of so many bytes.
            let bytes = unsafe { core::slice::from_raw_parts_mut(block, size) };
            assert!(bytes.iter().all(|&b| b == 0));
            bytes.fill(0xaa);
            blocks.push((block.addr(), size));
            // SAFETY: `allocate` returned the block.
            assert_eq!(unsafe { size_of(block) }, size);
        }
        blocks.sort_unstable();
        let apart = |w: &[(usize, usize)]| w[0].0 + w[0].1 <= w[1].0;
        assert!(blocks.windows(2).all(apart), "{blocks:x?}");
    }

    #[test]
    fn a_block_without_room_is_refused() {
        assert_eq!(allocate(BYTES, 1), null_mut());
        assert_eq!(allocate(usize::MAX, 1), null_mut());
        assert_eq!(allocate(1, 1 << 63), null_mut());
        assert!(!allocate(8, 1).is_null());
        assert!(!owns(core::ptr::null::<u8>()) && !owns(&raw const USED));
    }

    #[test]
    fn the_arena_is_used_to_its_last_byte() {
        let start = 0x10000;
        assert_eq!(room(start, 0, BYTES - HEADER, 1), Some((HEADER, BYTES)));
        assert_eq!(room(start, 0, BYTES - HEADER + 1, 1), None);
        assert_eq!(room(start, 1, 8, 64), Some((64, 72)));
    }

    #[test]
    fn a_moved_block_keeps_its_contents() {
        let block = allocate(4, 1);
        // SAFETY: our own block of four bytes.
        unsafe { block.copy_from(b"four".as_ptr(), 4) };
        let (mut more, mut less) = ([b'.'; 6], [b'.'; 2]);
        // SAFETY: the targets have so many bytes, and the block is the arena's.
        unsafe {
            move_to(more.as_mut_ptr(), more.len(), block);
            move_to(less.as_mut_ptr(), less.len(), block);
        }
        assert_eq!((&more, &less), (b"four..", b"fo"));
    }
}
