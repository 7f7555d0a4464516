//! The flags of the interpreter's processor. Computed without the decoder under test.

/// The flags, as far as they are computed here.
#[derive(Clone, Copy, Default)]
pub struct Flags {
    zero: Option<bool>,
    sign: Option<bool>,
    carry: Option<bool>,
    overflow: Option<bool>,
}

impl Flags {
    /// After an operation that gave `value`, in so many bits.
    pub fn of_result(value: u64, bits: u32) -> Self {
        Self {
            zero: Some(value << (64 - bits) == 0),
            sign: Some(value >> (bits - 1) & 1 == 1),
            ..Self::default()
        }
    }

    /// After `test`.
    pub fn of_test(a: u64, b: u64, bits: u32) -> Self {
        Self {
            carry: Some(false),
            overflow: Some(false),
            ..Self::of_result(a & b, bits)
        }
    }

    /// After `cmp`.
    pub fn of_comparison(a: u64, b: u64, bits: u32) -> Self {
        let signed = |value: u64| i128::from((value << (64 - bits)) as i64 >> (64 - bits));
        let unsigned = |value: u64| value << (64 - bits) >> (64 - bits);
        let difference = signed(a) - signed(b);
        let limit = 1i128 << (bits - 1);
        Self {
            carry: Some(unsigned(a) < unsigned(b)),
            overflow: Some(difference < -limit || difference >= limit),
            ..Self::of_result(a.wrapping_sub(b), bits)
        }
    }

    /// Whether a jump with this condition is taken; `None` where that is not known.
    pub fn take(self, condition: u8) -> Option<bool> {
        let less = || Some(self.sign? != self.overflow?);
        let holds = match condition >> 1 {
            0 => self.overflow?,
            1 => self.carry?,
            2 => self.zero?,
            3 => self.carry? || self.zero?,
            4 => self.sign?,
            5 => return None,
            6 => less()?,
            _ => self.zero? || less()?,
        };
        Some(holds != (condition & 1 == 1))
    }
}
