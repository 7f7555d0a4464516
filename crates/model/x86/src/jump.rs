//! Near jumps, for code that overwrites instructions with a jump.

/// Bytes of a near jump; the least that a diversion overwrites.
pub const LENGTH: usize = 5;

/// A jump from `from` to `to`; `None` if the distance is too large.
#[must_use]
pub fn jump(from: usize, to: usize) -> Option<[u8; LENGTH]> {
    let distance = to.wrapping_sub(from.wrapping_add(LENGTH)) as isize;
    let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
    Some([0xe9, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_counted_from_its_end() {
        assert_eq!(jump(0x1000, 0x1005), Some([0xe9, 0, 0, 0, 0]));
        assert_eq!(jump(0x1000, 0x1000), Some([0xe9, 0xfb, 0xff, 0xff, 0xff]));
        let farthest = 0x1005 + i32::MAX as usize;
        assert_eq!(jump(0x1000, farthest), Some([0xe9, 0xff, 0xff, 0xff, 0x7f]));
        assert_eq!(jump(0x1000, farthest + 1), None);
    }
}
