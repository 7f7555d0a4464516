//! Classes of block sizes, for heaps that do not separate all sizes: steps of 16 bytes up to
//! 128, then four steps to each doubling, so that at most a fifth of a block is lost. Uses only
//! `core`. The live heap calls it on its slow path; its fast path has a table made from it.

/// The least alignment of every block, as the ABI requires (`max_align_t` on x86-64).
pub const MIN_ALIGN: u64 = 16;

/// Up to this size, classes are [`MIN_ALIGN`] bytes apart.
const FINE: u64 = 128;
/// The number of steps to a doubling, as a power of two.
const STEPS_LOG: u32 = 2;

/// `value` rounded up to a multiple of `to`, a power of two; the largest multiple of 64 bits if
/// `value` is above it.
pub const fn round_up(value: u64, to: u64) -> u64 {
    match value.checked_add(to - 1) {
        Some(sum) => sum & !(to - 1),
        None => !(to - 1),
    }
}

/// The number of the class for objects of `size` bytes. It grows with the size.
#[inline]
pub const fn index(size: u64) -> u32 {
    let size = if size == 0 { 1 } else { size };
    if size <= FINE {
        return ((size - 1) / MIN_ALIGN) as u32;
    }
    // 129 - 1 = 128 = 2^7 begins the first doubling after the fine classes.
    let log = (size - 1).ilog2();
    let step = ((size - 1) >> (log - STEPS_LOG)) as u32 & ((1 << STEPS_LOG) - 1);
    (FINE / MIN_ALIGN) as u32 + ((log - FINE.ilog2()) << STEPS_LOG) + step
}

/// Bytes of the blocks of class `index`, at most the largest multiple of [`MIN_ALIGN`] in 64
/// bits.
#[inline]
pub const fn size(index: u32) -> u64 {
    let fine = (FINE / MIN_ALIGN) as u32;
    if index < fine {
        return (index as u64 + 1) * MIN_ALIGN;
    }
    let doubling = (index - fine) >> STEPS_LOG;
    let step = (index - fine) & ((1 << STEPS_LOG) - 1);
    let log = FINE.ilog2() + doubling;
    let size = (((1u128 << STEPS_LOG) + step as u128 + 1) << log) >> STEPS_LOG;
    if size > !(MIN_ALIGN - 1) as u128 {
        !(MIN_ALIGN - 1)
    } else {
        size as u64
    }
}

/// Bytes of the block that an object of `bytes` bytes gets.
#[inline]
pub const fn block_size(bytes: u64) -> u64 {
    size(index(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_classes_are_these() {
        let found: alloc::vec::Vec<u64> = (0..18).map(size).collect();
        assert_eq!(
            found,
            [
                16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768
            ]
        );
    }

    #[test]
    fn a_class_is_the_smallest_that_holds_the_size() {
        for bytes in (0..5_000).chain([65_535, 65_536, 65_537, 1 << 40, (1 << 40) + 1]) {
            let class = index(bytes);
            assert!(size(class) >= bytes, "{bytes}");
            assert!(class == 0 || size(class - 1) < bytes, "{bytes}");
            assert_eq!(size(class) % MIN_ALIGN, 0);
        }
    }

    #[test]
    fn at_most_a_fifth_of_a_block_is_lost() {
        for bytes in 129u64..100_000 {
            assert!(
                (block_size(bytes) - bytes) * 5 < block_size(bytes),
                "{bytes}"
            );
        }
    }

    #[test]
    fn the_largest_sizes_do_not_overflow() {
        assert!(block_size(u64::MAX) >= u64::MAX - 15);
        assert_eq!(round_up(u64::MAX, 64), u64::MAX - 63);
    }
}
