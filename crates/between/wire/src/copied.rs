//! A segment's bytes as they go into a recording of the run, and a segment made of such bytes. The
//! bytes of a recording deserve no more trust than those that a program writes: every reader of a
//! segment checks what it reads. Used by the tool's pipeline alone.

use crate::error::{Error, Result};
use crate::layout::{EVENTS, LARGE, PAGE, SAMPLES, TOTAL};
use crate::segment::Segment;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the segment about which the kernel is asked at a time.
const PIECE: usize = 64 << 20;

/// 64-bit words of a page.
const WORDS: usize = PAGE / 8;

impl Segment {
    /// Passes each page that holds anything to `each`, with its offset. The rings are left out: what
    /// was in them has been drained.
    pub fn pages(&self, each: &mut dyn FnMut(u64, &[u8; PAGE])) {
        let mut resident = vec![0_u8; PIECE.div_ceil(PAGE)];
        let base = self.view().base().as_ptr();
        let mut bytes = [0; PAGE];
        for piece in (0..TOTAL).step_by(PIECE) {
            let len = PIECE.min(TOTAL - piece);
            // A page that is only looked at would be made, so the kernel is asked which there are.
            // SAFETY: the range is part of the segment's mapping, and there is a byte for each page.
            let asked =
                unsafe { libc::mincore(base.add(piece).cast(), len, resident.as_mut_ptr()) };
            if asked != 0 {
                continue;
            }
            for (page, is_resident) in resident.iter().take(len.div_ceil(PAGE)).enumerate() {
                let offset = piece + page * PAGE;
                let is_drained = (SAMPLES..LARGE).contains(&offset);
                if is_resident & 1 == 0 || is_drained || offset + PAGE > TOTAL {
                    continue;
                }
                // SAFETY: the page is in the mapping, which lives as long as `self`, and begins at a
                // multiple of eight. Others may write to it, so it is read as atomic words.
                let words = unsafe { &*base.add(offset).cast::<[AtomicU64; WORDS]>() };
                let mut holds = 0;
                for (word, to) in words.iter().zip(bytes.chunks_exact_mut(8)) {
                    let word = word.load(Ordering::Relaxed);
                    holds |= word;
                    to.copy_from_slice(&word.to_ne_bytes());
                }
                if holds != 0 {
                    each(offset as u64, &bytes);
                }
            }
        }
    }

    /// A segment for bytes of a recording, which no process shares. It takes no memory yet.
    ///
    /// # Errors
    /// If the kernel refuses the address space.
    pub fn of_recording() -> Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                TOTAL,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let base = (base != libc::MAP_FAILED).then(|| NonNull::new(base.cast::<u8>()));
        let base = base.flatten();
        let base = base.ok_or_else(|| Error::Create(io::Error::last_os_error()))?;
        Ok(Self::at(base))
    }

    /// Puts recorded bytes at `offset`. Returns whether they are whole words inside the segment.
    pub fn put(&self, offset: u64, bytes: &[u8]) -> bool {
        let Ok(offset) = usize::try_from(offset) else {
            return false;
        };
        let end = offset.checked_add(bytes.len());
        let whole = offset.is_multiple_of(8) && bytes.len().is_multiple_of(8);
        if !whole || end.is_none_or(|end| end > TOTAL) {
            return false;
        }
        let base = self.view().base().as_ptr();
        for (number, word) in bytes.chunks_exact(8).enumerate() {
            let word = word.try_into().map_or(0, u64::from_ne_bytes);
            // SAFETY: the word is inside the mapping, as was just checked, and aligned.
            let to = unsafe { &*base.add(offset + number * 8).cast::<AtomicU64>() };
            to.store(word, Ordering::Relaxed);
        }
        true
    }
}

const _: () = assert!(SAMPLES < EVENTS && EVENTS < LARGE);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::SegmentOptions;

    #[test]
    fn a_copy_has_what_the_segment_had() {
        let original = Segment::create(&SegmentOptions::default()).expect("a segment");
        let copy = Segment::of_recording().expect("address space");
        let mut pages = 0;
        original.pages(&mut |offset, bytes| {
            pages += 1;
            assert!(copy.put(offset, bytes));
        });
        // The header, the control page and the epochs hold something.
        assert!((2..64).contains(&pages), "{pages}");
        let magic = |segment: &Segment| segment.view().header().magic.load(Ordering::Relaxed);
        assert_eq!(magic(&copy), magic(&original));
        assert_eq!(copy.status(), original.status());
    }

    #[test]
    fn bytes_outside_are_refused() {
        let copy = Segment::of_recording().expect("address space");
        assert!(copy.put(TOTAL as u64 - 8, &[1; 8]));
        assert!(!copy.put(TOTAL as u64 - 8, &[1; 16]));
        assert!(!copy.put(u64::MAX - 7, &[1; 8]));
        assert!(!copy.put(4, &[1; 8]));
    }
}
