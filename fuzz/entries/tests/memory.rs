//! How much memory the readers of files take: no more than the documents say, whatever is in the
//! files of the corpus and in damaged copies of them. A program of its own, with one test, so that
//! nothing else allocates beside it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use sunder_entries::ALL;

/// The system's allocator, with a count of the bytes that are in use and of the most that were.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = IN_USE.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(now, Relaxed);
        // SAFETY: the caller keeps the rules of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes of memory for a file of `length` bytes: of traces and recordings (docs/design/trace.md,
/// observe.md).
const fn memory_for(length: usize) -> usize {
    (256 << 20) + 64 * length
}

#[test]
fn readers_take_no_more_memory_than_the_documents_say() {
    for name in ["blocks", "recording", "trace"] {
        let (_, entry) = ALL.iter().find(|(known, _)| *known == name).unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../corpus")
            .join(name);
        for file in std::fs::read_dir(folder).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            // Every byte at its largest, one after another: among them are all numbers.
            for at in 0..bytes.len().min(400) {
                let mut damaged = bytes.clone();
                damaged[at] = 0xff;
                let before = IN_USE.load(Relaxed);
                MOST.store(before, Relaxed);
                entry(&damaged);
                let took = MOST.load(Relaxed) - before;
                let most = memory_for(damaged.len());
                assert!(took <= most, "{name}, byte {at}: {took} of {most}");
            }
        }
    }
}
