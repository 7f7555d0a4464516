//! The alignment of blocks for which the trace does not record the requested one.

/// What is known of the blocks of one call stack and size whose alignment the trace does not
/// record: their number, and the bits that any of their addresses has set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requested {
    /// The number of blocks.
    pub blocks: u64,
    /// The bits that any of their addresses has set.
    pub addresses: u64,
}

/// The alignment that a program requested, as far as the addresses of its blocks tell. For
/// traces of an earlier recorder, which did not record it. An alignment is believed if the
/// chance of it is less than one in 256, given that all blocks are at multiples of 16.
pub fn requested_alignment(seen: Requested) -> u64 {
    let common = seen.addresses.trailing_zeros().min(12);
    let chance = u64::from(common.saturating_sub(4)).saturating_mul(seen.blocks);
    if seen.blocks > 0 && common > 4 && chance >= 8 {
        1 << common
    } else {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alignment_that_may_be_chance_is_none() {
        let seen = |blocks, addresses| requested_alignment(Requested { blocks, addresses });
        // Four blocks at multiples of 64: by chance one in 4^4.
        assert_eq!(seen(4, 0x1000 | 0x40), 64);
        assert_eq!(seen(3, 0x1040), 1);
        assert_eq!(seen(1, 0x7000), 4096);
        assert_eq!(seen(100, 0x1010), 1);
        assert_eq!(seen(0, 0), 1);
    }
}
