//! Finds the words in which two pages differ, in steps of 64 bytes, with vector instructions
//! that every x86-64 CPU has. Used by [`crate::commit`]; it knows nothing about shared memory.

use crate::{Page, WORDS};

/// Words compared in one step: those of a line.
const STEP: usize = 8;

/// Calls `each` with the index of every word that differs, in ascending order.
pub fn changed_words(page: &Page, twin: &Page, mut each: impl FnMut(usize)) {
    for first in (0..WORDS).step_by(STEP) {
        let mut rest = differing(page, twin, first);
        while rest != 0 {
            each(first + rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
    }
}

/// Which of the eight words from index `first` on differ, as bits.
#[cfg(target_arch = "x86_64")]
fn differing(page: &Page, twin: &Page, first: usize) -> u32 {
    use core::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cmpeq_epi32, _mm_load_si128, _mm_movemask_epi8,
    };
    let (Some(a), Some(b)) = (
        page.0.get(first..first + STEP),
        twin.0.get(first..first + STEP),
    ) else {
        return 0;
    };
    let (a, b) = (a.as_ptr().cast::<__m128i>(), b.as_ptr().cast::<__m128i>());
    // SAFETY: four aligned vectors lie in each slice, since pages are aligned and
    // `first` is a multiple of eight words; SSE2 is part of x86-64.
    unsafe {
        let same = |i: usize| _mm_cmpeq_epi32(_mm_load_si128(a.add(i)), _mm_load_si128(b.add(i)));
        let equal = [same(0), same(1), same(2), same(3)];
        let all = _mm_and_si128(
            _mm_and_si128(equal[0], equal[1]),
            _mm_and_si128(equal[2], equal[3]),
        );
        if _mm_movemask_epi8(all) == 0xffff {
            return 0;
        }
        let mut words = 0;
        for (i, equal) in equal.into_iter().enumerate() {
            let bytes = _mm_movemask_epi8(equal);
            words |= u32::from(bytes & 0xff != 0xff) << (i * 2);
            words |= u32::from(bytes >> 8 & 0xff != 0xff) << (i * 2 + 1);
        }
        words
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn differing(page: &Page, twin: &Page, first: usize) -> u32 {
    let pairs = page.0.iter().zip(&twin.0).skip(first).take(STEP);
    pairs
        .enumerate()
        .fold(0, |words, (i, (a, b))| words | u32::from(a != b) << i)
}
