//! A program whose allocations get cache lines of their own as long as it says so, as a library of ours
//! may decide. Sizes, contents and errors must be what the C library's functions promise. It has no test
//! harness, which would allocate beside it.

// Runs outside the target.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use core::ffi::c_void;
use core::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use sunder_guest::allocator::{Caller, Watch};

/// Whether blocks are placed at present.
static PLACES: AtomicBool = AtomicBool::new(false);
/// The size of the block that was allocated last.
static SIZE: AtomicUsize = AtomicUsize::new(0);

/// Places blocks, and keeps what was asked for.
struct Blocks;

impl Watch for Blocks {
    fn places(_: Caller) -> bool {
        PLACES.load(Ordering::Relaxed)
    }

    fn allocated(block: *mut c_void, size: usize, _: usize, _: Caller) -> *mut c_void {
        SIZE.store(size, Ordering::Relaxed);
        block
    }

    fn freeing(_: *mut c_void) {}
}

sunder_guest::watched_heap!(Blocks);

/// Whether a block begins at a line and has the whole of its last one.
fn has_its_lines(block: *mut c_void, size: usize) -> bool {
    // SAFETY: a block of this program's allocator.
    let usable = unsafe { libc::malloc_usable_size(block) };
    (block as usize).is_multiple_of(64) && usable >= size.next_multiple_of(64)
}

fn fill(block: *mut c_void, size: usize) {
    for at in 0..size {
        // SAFETY: a block of at least this size.
        unsafe { block.cast::<u8>().add(at).write(at as u8) };
    }
}

fn is_filled(block: *mut c_void, size: usize) -> bool {
    // SAFETY: a block of at least this size, which was written.
    (0..size).all(|at| unsafe { block.cast::<u8>().add(at).read() } == at as u8)
}

fn main() {
    PLACES.store(true, Ordering::Relaxed);
    let told = || SIZE.load(Ordering::Relaxed);
    // SAFETY: blocks of this program's allocator, each freed once.
    unsafe {
        for size in [1, 24, 64, 65, 4096, 20_000] {
            let block = libc::malloc(size);
            assert_eq!(told(), size, "the size that was asked for");
            assert!(has_its_lines(block, size));
            fill(block, size);
            let larger = libc::realloc(block, 3 * size);
            assert!(has_its_lines(larger, 3 * size) && is_filled(larger, size));
            let smaller = libc::realloc(larger, size / 2 + 1);
            assert!(has_its_lines(smaller, size / 2 + 1) && is_filled(smaller, size / 2));
            libc::free(smaller);

            let zero = libc::calloc(size, 3);
            assert_eq!(told(), 3 * size);
            assert!(has_its_lines(zero, 3 * size));
            assert!((0..3 * size).all(|at| zero.cast::<u8>().add(at).read() == 0));
            fill(zero, 3 * size);
            libc::free(zero);

            for alignment in [16, 64, 4096] {
                let block = libc::aligned_alloc(alignment, size);
                assert!(has_its_lines(block, size) && (block as usize).is_multiple_of(alignment));
                libc::free(block);
                let mut block = null_mut();
                assert_eq!(libc::posix_memalign(&raw mut block, alignment, size), 0);
                assert!(has_its_lines(block, size) && (block as usize).is_multiple_of(alignment));
                libc::free(block);
            }
        }
        // Large blocks come from the allocator as they are.
        let large = libc::calloc(100, 1000);
        assert!((0..100_000).all(|at| large.cast::<u8>().add(at).read() == 0));
        fill(large, 100_000);
        let larger = libc::realloc(large, 200_000);
        assert!(is_filled(larger, 100_000));
        libc::free(larger);
        let first = libc::realloc(null_mut(), 24);
        assert!(has_its_lines(first, 24));
        libc::free(first);
        // Placed or not, a block can be grown the other way.
        PLACES.store(false, Ordering::Relaxed);
        let block = libc::malloc(24);
        fill(block, 24);
        PLACES.store(true, Ordering::Relaxed);
        let block = libc::realloc(block, 48);
        assert!(has_its_lines(block, 48) && is_filled(block, 24));
        fill(block, 48);
        PLACES.store(false, Ordering::Relaxed);
        let block = libc::realloc(block, 100_000);
        assert!(is_filled(block, 48));
        libc::free(block);
        PLACES.store(true, Ordering::Relaxed);
        // What fails, fails as ever, and the old block stays.
        let most = std::hint::black_box(usize::MAX);
        assert!(libc::malloc(most).is_null() && libc::malloc(most - 4096).is_null());
        assert!(libc::calloc(most, 2).is_null());
        let block = libc::malloc(24);
        fill(block, 24);
        assert!(libc::realloc(block, most).is_null());
        assert!(is_filled(block, 24));
        libc::free(block);
        let mut block = null_mut();
        for alignment in [0, 4, 24] {
            let wrong = libc::posix_memalign(&raw mut block, alignment, 8);
            assert_eq!((wrong, block), (libc::EINVAL, null_mut()), "{alignment}");
        }
    }
    PLACES.store(false, Ordering::Relaxed);
    println!("blocks that were placed are as good as others");
}
