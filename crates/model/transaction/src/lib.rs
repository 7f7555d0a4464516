//! Transactions on pages (SHERIFF, section 3.2). A thread has a private copy of a page, a
//! *twin* keeps the page as it was before, and a *commit* writes the bytes that differ from the
//! twin to the memory that all threads share. Called by the library that isolates threads, also
//! in its signal handlers: nothing here allocates, waits or fails.
//!
//! A commit writes eight aligned bytes at once, together with what other threads have written
//! to the word's other bytes meanwhile. So no thread sees half of a number that was stored as a
//! whole, and no thread's bytes are lost. (SHERIFF writes single bytes.)
#![no_std]

mod compare;

use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page.
pub const PAGE: usize = sunder_access::PAGE_SIZE;
/// Words of a page.
pub const WORDS: usize = PAGE / 8;

/// A thread's private copy of a page, or the twin of that copy.
#[derive(Clone, Debug)]
#[repr(C, align(4096))]
pub struct Page(pub [u64; WORDS]);

/// A page that all threads share.
pub type Shared = [AtomicU64; WORDS];

/// The bytes of a page that are to be private, with a bit for each byte. A `u8` has the bits of
/// one word, the lowest bit for the first byte.
pub type Mask = [u8; WORDS];

/// The number of bytes that a commit or a refresh copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes that differed.
    pub bytes: u32,
    /// The bytes among these that are not in the mask.
    pub beside: u32,
}

impl Moved {
    const fn add(&mut self, bytes: u8, mask: u8) {
        self.bytes += bytes.count_ones();
        self.beside += (bytes & !mask).count_ones();
    }
}

/// A word that a commit wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The word's index in the page.
    pub word: usize,
    /// The bytes that the private copy had changed, as in a [`Mask`].
    pub bytes: u8,
    /// The bytes among these that another thread has changed too since the twin was made, so
    /// the two threads did not synchronise in between.
    pub both: u8,
}

/// Writes every byte of `page` that differs from `twin` to `shared`, and no other byte. Calls
/// `each` for each word that it writes. The mask only decides how bytes are counted.
pub fn commit_each(
    page: &Page,
    twin: &Page,
    shared: &Shared,
    mask: &Mask,
    mut each: impl FnMut(Change),
) -> Moved {
    let mut moved = Moved::default();
    compare::changed_words(page, twin, |word| {
        let (Some(&new), Some(&old)) = (page.0.get(word), twin.0.get(word)) else {
            return;
        };
        let bytes = differing_bytes(new, old);
        if let (Some(shared), Some(&mask)) = (shared.get(word), mask.get(word)) {
            let others = differing_bytes(shared.load(Ordering::Relaxed), old);
            moved.add(bytes, mask);
            merge(shared, new, bytes);
            let both = bytes & others;
            each(Change { word, bytes, both });
        }
    });
    moved
}

/// As [`commit_each`], without a report of each word.
pub fn commit(page: &Page, twin: &Page, shared: &Shared, mask: &Mask) -> Moved {
    commit_each(page, twin, shared, mask, |_| ())
}

/// Takes over what other threads wrote: afterwards each word of `page` and `twin` is what that
/// word of `shared` was at some moment. The private changes must have been committed before.
/// Returns how many bytes had changed since the twin was made.
pub fn refresh(page: &mut Page, twin: &mut Page, shared: &Shared, mask: &Mask) -> Moved {
    let mut moved = Moved::default();
    let all = page.0.iter_mut().zip(twin.0.iter_mut());
    for (((own, old), shared), &mask) in all.zip(shared).zip(mask) {
        let new = shared.load(Ordering::Acquire);
        // What the thread itself has just committed does not count.
        if new != *own {
            moved.add(differing_bytes(new, *own), mask);
        }
        *own = new;
        *old = new;
    }
    moved
}

/// The private changes were committed, and the thread goes on without what others wrote: only what it
/// writes from here on counts as changed. What others wrote is seen by the next [`refresh`], and a
/// [`commit_each`] before it still tells of bytes that both changed.
///
/// It writes only words that differ: a copy of the whole page would become a call of `memcpy`, and the
/// signal handler of a worker may not execute the C library.
pub fn settle(page: &Page, twin: &mut Page) {
    for (own, old) in page.0.iter().zip(&mut twin.0) {
        if own != old {
            *old = *own;
        }
    }
}

/// The bytes in which two words differ, as bits.
pub const fn differing_bytes(a: u64, b: u64) -> u8 {
    let mut rest = a ^ b;
    // Sets the lowest bit of every byte that is not zero.
    rest |= rest >> 4;
    rest |= rest >> 2;
    rest |= rest >> 1;
    rest &= 0x0101_0101_0101_0101;
    // The multiplication brings bit 8i to bit 56+i.
    (rest.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// A word with all bits set in the bytes that `bytes` names.
const fn spread(bytes: u8) -> u64 {
    let mut wide = 0;
    let mut i = 0;
    while i < 8 {
        if bytes >> i & 1 != 0 {
            wide |= 0xff << (i * 8);
        }
        i += 1;
    }
    wide
}

/// Writes the named bytes of a word; the others keep their present values.
fn merge(shared: &AtomicU64, new: u64, bytes: u8) {
    if bytes == u8::MAX {
        shared.store(new, Ordering::Release);
        return;
    }
    let wide = spread(bytes);
    // Other threads write with plain stores. A failed exchange returns what they wrote.
    let mut now = shared.load(Ordering::Relaxed);
    while let Err(seen) = shared.compare_exchange_weak(
        now,
        now & !wide | new & wide,
        Ordering::AcqRel,
        Ordering::Relaxed,
    ) {
        now = seen;
    }
}
