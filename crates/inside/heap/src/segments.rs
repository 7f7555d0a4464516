//! The segments of the heap's address space, and what describes their slices: a header at the start of
//! each, and for all of them what is free and what is dirty. Changes are made under the lock of
//! [`crate::arena`]; [`span_of`] needs none. Contexts: pre-init, normal, signal, post-fork.

use crate::block::{self, End};
use crate::memory;
use crate::span::Span;
use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// Size of a slice, the unit of spans, in bytes.
pub const SLICE: usize = 64 << 10;
/// Size of a segment, in bytes. Its first slice has its header.
pub const SEGMENT: usize = block::SEGMENT;
/// Slices of a segment.
pub const SLICES: usize = SEGMENT / SLICE;
/// Address space to reserve, in bytes; less if the process has a limit.
pub const MOST: usize = 1 << 40;
/// The most segments.
pub const SEGMENTS: usize = MOST / SEGMENT;
/// The most slices of a span within one segment: the first slice holds the header.
pub const MOST_SLICES: usize = SLICES - 1;
/// All slices but the header's are free.
pub const ALL_FREE: u64 = !1;

/// State: a segment of spans.
pub const NORMAL: u8 = 1;
/// State: the first of several segments that hold one block.
pub const FIRST: u8 = 2;
/// State: one of the other segments that hold one block.
pub const FURTHER: u8 = 3;

/// The header at the start of a segment.
#[repr(C, align(64))]
pub struct Header {
    /// Where the lists of the segment's free blocks end.
    pub end: End,
    /// For each slice, the first slice of its span.
    pub head: [u8; SLICES],
    /// For each slice, how many of its first pages may have memory. Only whoever has claimed the
    /// slice uses its entry.
    pub pages: [u8; SLICES],
    /// For each slice, the descriptor of the span that begins there.
    pub spans: [Span; SLICES],
}

const _: () = assert!(size_of::<Header>() <= SLICE);

/// The address of the first segment.
pub static BASE: AtomicUsize = AtomicUsize::new(0);
/// Bytes, from the base, of segments that are or were in use.
pub static REACHED: AtomicUsize = AtomicUsize::new(0);

/// What is known of all segments.
pub struct Segments {
    /// [`NORMAL`], [`FIRST`] or [`FURTHER`]; 0 for a segment that was never used.
    pub state: [AtomicU8; SEGMENTS],
    /// For each segment, the mask of free slices.
    pub free: [AtomicU64; SEGMENTS],
    /// For each segment, the mask of slices that may hold something other than zeroes.
    pub dirty: [AtomicU64; SEGMENTS],
}

/// Of all segments.
pub static ALL: Segments = Segments {
    state: [const { AtomicU8::new(0) }; SEGMENTS],
    free: [const { AtomicU64::new(0) }; SEGMENTS],
    dirty: [const { AtomicU64::new(0) }; SEGMENTS],
};

/// The header of a segment that is in use.
pub fn header(segment: usize) -> *mut Header {
    (BASE.load(Ordering::Relaxed) + segment * SEGMENT) as *mut Header
}

/// A mask of `count` bits from `first`.
pub const fn mask(first: usize, count: usize) -> u64 {
    (u64::MAX >> (64 - count)) << first
}

/// The index of the first run of `count` set bits.
pub fn run(bits: u64, count: usize) -> Option<usize> {
    let (mut found, mut have) = (bits, 1);
    while have < count {
        let step = have.min(count - have);
        found &= found >> step;
        have += step;
    }
    (found != 0).then(|| found.trailing_zeros() as usize)
}

/// Returns the memory of free slices to the system, which are claimed for this; returns whether all went.
pub fn discard(segment: usize, bits: u64) -> bool {
    let base = header(segment) as usize;
    let mut rest = bits;
    let mut all = true;
    while rest != 0 {
        let first = rest.trailing_zeros() as usize;
        let count = (rest >> first).trailing_ones() as usize;
        // SAFETY: free slices, claimed for this.
        unsafe {
            all &= memory::discard(base + first * SLICE, count * SLICE);
            (&mut (*header(segment)).pages)[first..first + count].fill(0);
        }
        rest &= !mask(first, count);
    }
    all
}

/// The span that contains `address`; null if no span of this heap does.
#[inline(always)]
pub fn span_of(address: usize) -> *mut Span {
    let offset = address.wrapping_sub(BASE.load(Ordering::Relaxed));
    if offset >= REACHED.load(Ordering::Relaxed) {
        return core::ptr::null_mut();
    }
    // SAFETY: at most as many segments are in use as the array has entries.
    let state = unsafe { ALL.state.get_unchecked(offset / SEGMENT) };
    if state.load(Ordering::Relaxed) == FURTHER {
        return core::ptr::null_mut();
    }
    let header = (address & !(SEGMENT - 1)) as *mut Header;
    let slice = offset % SEGMENT / SLICE;
    // SAFETY: a segment in use has a header, whose entries are below 64. Slice 0 and slices that
    // were never used lead to a descriptor of zeroes, which is a span without blocks.
    unsafe {
        let first = (*header).head[slice];
        (&raw mut (*header).spans)
            .cast::<Span>()
            .add(usize::from(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_where_they_are() {
        assert_eq!(run(0b0111_0011, 3), Some(4));
        assert_eq!(run(0b0111_0011, 2), Some(0));
        assert_eq!(run(0b0111_0011, 4), None);
        assert_eq!(run(ALL_FREE, 63), Some(1));
        assert_eq!(run(ALL_FREE, 64), None);
        assert_eq!(mask(60, 4), 0xf000_0000_0000_0000);
    }
}
