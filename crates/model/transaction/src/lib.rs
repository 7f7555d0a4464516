//! Transactions on pages (SHERIFF, section 3.2): a thread has a page for itself, a
//! *twin* keeps what the page was, and a *commit* writes the bytes that differ from
//! the twin to the memory that all share. Called by the library that isolates
//! threads, also from its signal handlers: nothing here allocates, waits or fails.
//!
//! A commit writes a word of eight aligned bytes at once, with what others have
//! meanwhile written to its other bytes: nobody ever sees half of a number that the
//! thread stored in one piece, and nobody's bytes are lost. (SHERIFF writes bytes.)
#![no_std]

mod compare;

use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Words of a page.
pub const WORDS: usize = PAGE / 8;

/// A page that only one thread uses: its own copy, or the twin of it.
#[derive(Clone, Debug)]
#[repr(C, align(4096))]
pub struct Page(pub [u64; WORDS]);

/// A page that all threads share.
pub type Shared = [AtomicU64; WORDS];

/// Which bytes of a page are meant to be private: a bit for each, those of a word in a
/// `u8`, the first byte's lowest.
pub type Mask = [u8; WORDS];

/// What a commit or a refresh moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes that differed.
    pub bytes: u32,
    /// Of these, bytes that are not in the mask.
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
    /// Its place in the page.
    pub word: usize,
    /// Its bytes that the page had changed, as in a [`Mask`].
    pub bytes: u8,
    /// Of these, the ones that somebody else had changed too since the twin was made: the
    /// two did not synchronise in between.
    pub both: u8,
}

/// Writes to `shared` every byte of `page` that differs from `twin`, and no other, and
/// tells of each word that it writes. Which bytes are meant decides only what is counted.
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

/// As [`commit_each`], where nobody wants to know more.
pub fn commit(page: &Page, twin: &Page, shared: &Shared, mask: &Mask) -> Moved {
    commit_each(page, twin, shared, mask, |_| ())
}

/// Takes over what others wrote: afterwards `page` and `twin` are what `shared` was
/// at some moment, each word for itself. What the page had of its own must have been
/// committed. The value says what had changed since the twin was made.
pub fn refresh(page: &mut Page, twin: &mut Page, shared: &Shared, mask: &Mask) -> Moved {
    let mut moved = Moved::default();
    let all = page.0.iter_mut().zip(twin.0.iter_mut());
    for (((own, old), shared), &mask) in all.zip(shared).zip(mask) {
        let new = shared.load(Ordering::Acquire);
        // What the thread itself has just committed is no news.
        if new != *own {
            moved.add(differing_bytes(new, *own), mask);
        }
        *own = new;
        *old = new;
    }
    moved
}

/// The bytes in which two words differ, as bits.
pub const fn differing_bytes(a: u64, b: u64) -> u8 {
    let mut rest = a ^ b;
    // A byte that is not zero gets its lowest bit set.
    rest |= rest >> 4;
    rest |= rest >> 2;
    rest |= rest >> 1;
    rest &= 0x0101_0101_0101_0101;
    // The product brings bit 8i to bit 56+i.
    (rest.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// All bits of the bytes that `bytes` names.
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

/// Writes some bytes of a word; the others stay what they are at that moment.
fn merge(shared: &AtomicU64, new: u64, bytes: u8) {
    if bytes == u8::MAX {
        shared.store(new, Ordering::Release);
        return;
    }
    let wide = spread(bytes);
    // Others write with plain stores; a failed exchange has seen theirs.
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
