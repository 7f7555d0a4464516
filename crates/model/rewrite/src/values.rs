//! The set of values that a register may have: numbers at equal distances. Pure arithmetic; it
//! must not know instructions.
//!
//! The result of an operation contains all results for all values of its operands. `None`
//! stands for all numbers.

use crate::registers::FOLLOWED;

/// `low`, `low + stride`, ... `high`. A stride of 0 means one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Values {
    pub low: u64,
    pub high: u64,
    stride: u64,
}

/// The known values of each register and slot of the frame.
pub(crate) type State = [Option<Values>; FOLLOWED];

/// Nothing is known.
pub(crate) const UNKNOWN: State = [None; FOLLOWED];

impl Values {
    pub(crate) const fn one(value: u64) -> Self {
        Self {
            low: value,
            high: value,
            stride: 0,
        }
    }

    /// All values from `low` to `high`.
    pub(crate) fn between(low: u64, high: u64) -> Self {
        Self::steps(low, high, 1)
    }

    fn steps(low: u64, high: u64, stride: u64) -> Self {
        Self {
            low,
            high,
            stride: if low == high { 0 } else { stride.max(1) },
        }
    }

    pub(crate) const fn only(self) -> Option<u64> {
        if self.low == self.high {
            Some(self.low)
        } else {
            None
        }
    }

    /// All values, if there are at most `most`.
    pub(crate) fn each(self, most: u64) -> Option<impl Iterator<Item = u64>> {
        let (low, stride) = (self.low, self.stride.max(1));
        let steps = (self.high - low) / stride;
        (steps < most).then(|| (0..=steps).map(move |n| low + n * stride))
    }

    /// Whether every number between the ends is in the set.
    pub(crate) const fn is_dense(self) -> bool {
        self.stride <= 1
    }

    /// Whether all values of `other` are in the set.
    pub(crate) fn holds(self, other: Self) -> bool {
        self.low <= other.low
            && other.high <= self.high
            && (self.stride <= 1
                || (other.low - self.low).is_multiple_of(self.stride)
                    && other.stride.is_multiple_of(self.stride))
    }

    /// A set that contains both.
    pub(crate) fn or(self, other: Self) -> Self {
        let apart = self.low.abs_diff(other.low);
        let stride = gcd(gcd(self.stride, other.stride), apart);
        Self::steps(self.low.min(other.low), self.high.max(other.high), stride)
    }

    /// The values that are at least `low` and at most `high`; `None` if there are none.
    pub(crate) fn within(self, low: u64, high: u64) -> Option<Self> {
        let stride = self.stride.max(1);
        let low = if low > self.low {
            let steps = (low - self.low).div_ceil(stride);
            self.low.checked_add(steps.checked_mul(stride)?)?
        } else {
            self.low
        };
        let high = if high < self.high {
            high.checked_sub(self.low)? / stride * stride + self.low
        } else {
            self.high
        };
        (low <= high).then(|| Self::steps(low, high, self.stride))
    }

    /// The values other than `value`.
    pub(crate) fn without(self, value: u64) -> Option<Self> {
        match (self.low == value, self.high == value) {
            (true, true) => None,
            (true, false) => Some(Self::steps(self.low + self.stride, self.high, self.stride)),
            (false, true) => Some(Self::steps(self.low, self.high - self.stride, self.stride)),
            (false, false) => Some(self),
        }
    }

    /// Extends a set that has grown to `now` up to the next of `bounds`, in the direction of
    /// the growth.
    pub(crate) fn widened(
        self,
        now: Self,
        bounds: impl Iterator<Item = u64> + Clone,
    ) -> Option<Self> {
        let stride = gcd(gcd(self.stride, now.stride), self.low.abs_diff(now.low)).max(1);
        let fits = |bound: u64, from: u64| bound.abs_diff(from).is_multiple_of(stride);
        let low = if now.low < self.low {
            let below = bounds.clone().filter(|&b| b <= now.low && fits(b, now.low));
            below.max()?
        } else {
            self.low
        };
        let high = if now.high > self.high {
            let above = bounds.filter(|&b| b >= now.high && fits(b, now.high));
            above.min()?
        } else {
            self.high
        };
        Some(Self::steps(low, high, stride))
    }

    pub(crate) fn plus(self, other: Self) -> Option<Self> {
        let (wide, more) = (self.high - self.low, other.high - other.low);
        let low = self.low.wrapping_add(other.low);
        let high = low.checked_add(wide.checked_add(more)?)?;
        Some(Self::steps(low, high, gcd(self.stride, other.stride)))
    }

    pub(crate) fn minus(self, other: Self) -> Option<Self> {
        let (wide, more) = (self.high - self.low, other.high - other.low);
        let low = self.low.wrapping_sub(other.high);
        let high = low.checked_add(wide.checked_add(more)?)?;
        Some(Self::steps(low, high, gcd(self.stride, other.stride)))
    }

    pub(crate) fn times(self, factor: u64) -> Option<Self> {
        if let Some(one) = self.only() {
            return Some(Self::one(one.wrapping_mul(factor)));
        }
        let (low, high) = (
            self.low.checked_mul(factor)?,
            self.high.checked_mul(factor)?,
        );
        Some(Self::steps(low, high, self.stride.checked_mul(factor)?))
    }

    pub(crate) fn shifted_right(self, by: u32) -> Self {
        Self::between(self.low >> by, self.high >> by)
    }

    /// The bitwise and of two sets, as all numbers up to a limit: no result is above either
    /// operand.
    pub(crate) fn and(this: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (this, other) {
            (Some(a), Some(b)) => match (a.only(), b.only()) {
                (Some(a), Some(b)) => Some(Self::one(a & b)),
                _ => Some(Self::between(0, a.high.min(b.high))),
            },
            (Some(one), None) | (None, Some(one)) => Some(Self::between(0, one.high)),
            (None, None) => None,
        }
    }

    /// The low `bits` (8, 16 or 32) of a register whose values may be `known`.
    pub(crate) fn low_bits(known: Option<Self>, bits: u32) -> Self {
        let most = u64::MAX >> (64 - bits);
        match known {
            Some(values) if values.high <= most => values,
            Some(values) => match values.only() {
                Some(one) => Self::one(one & most),
                None => Self::between(0, most),
            },
            None => Self::between(0, most),
        }
    }

    /// The low `bits` of a register, sign-extended.
    pub(crate) fn signed_bits(known: Option<Self>, bits: u32) -> Option<Self> {
        let values = Self::low_bits(known, bits);
        if values.high <= u64::MAX >> (65 - bits) {
            return Some(values);
        }
        let away = 64 - bits;
        let one = values.only()?;
        Some(Self::one(((one << away) as i64 >> away) as u64))
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The values after either of two ways.
pub(crate) fn either(a: &State, b: &State) -> State {
    let mut both = *a;
    for (number, (values, other)) in both.iter_mut().zip(b).enumerate() {
        *values = match (*values, *other) {
            // An entry into a copy can compare a slot with a single value only.
            (Some(one), Some(other)) if number >= 16 => (one == other).then_some(one),
            (Some(one), Some(other)) => Some(one.or(other)),
            _ => None,
        };
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// All values of a small set.
    fn all(values: Values) -> impl Iterator<Item = u64> {
        let stride = values.stride.max(1);
        (0..=(values.high - values.low) / stride).map(move |n| values.low + n * stride)
    }

    fn has(values: Option<Values>, value: u64) -> bool {
        values.is_none_or(|v| v.holds(Values::one(value)))
    }

    /// Here `None` stands for the empty set.
    fn kept(values: Option<Values>, value: u64) -> bool {
        values.is_some_and(|v| v.holds(Values::one(value)))
    }

    fn samples() -> Vec<Values> {
        let mut samples = Vec::new();
        for low in [0, 1, 5, 96, u64::MAX - 20, (1 << 63) - 3, (1 << 32) - 4] {
            for stride in [1, 3, 8] {
                for steps in [0, 1, 2] {
                    samples.push(Values::steps(low, low + steps * stride, stride));
                }
            }
        }
        samples
    }

    /// The result of every operation contains the results for all values of its operands.
    #[test]
    fn no_possible_result_is_missing() {
        for a in samples() {
            for b in samples() {
                for x in all(a) {
                    assert!(has(Some(a.or(b)), x) && has(Some(b.or(a)), x));
                    assert!(kept(a.within(b.low, b.high), x) || x < b.low || x > b.high);
                    assert!(x == b.low || kept(a.without(b.low), x));
                    assert!(has(a.times(b.low), x.wrapping_mul(b.low)));
                    for y in all(b) {
                        assert!(has(a.plus(b), x.wrapping_add(y)), "{a:?} + {b:?}");
                        assert!(has(a.minus(b), x.wrapping_sub(y)), "{a:?} - {b:?}");
                        assert!(has(Values::and(Some(a), Some(b)), x & y));
                        assert!(has(Values::and(Some(a), None), x & y));
                    }
                }
            }
            for x in all(a) {
                for bits in [8, 16, 32] {
                    let most = u64::MAX >> (64 - bits);
                    assert!(has(Some(Values::low_bits(Some(a), bits)), x & most));
                    let away = 64 - bits;
                    let signed = ((x << away) as i64 >> away) as u64;
                    assert!(has(Values::signed_bits(Some(a), bits), signed));
                }
                assert!(has(Some(a.shifted_right(3)), x >> 3));
            }
        }
    }

    #[test]
    fn impossible_values_are_none() {
        let values = Values::steps(8, 32, 8);
        assert_eq!(values.within(9, 15), None);
        assert_eq!(values.within(9, 100), Some(Values::steps(16, 32, 8)));
        assert_eq!(values.within(0, 31), Some(Values::steps(8, 24, 8)));
        assert_eq!(values.within(0, 7), None);
        assert_eq!(values.without(32), Some(Values::steps(8, 24, 8)));
        assert_eq!(Values::one(4).without(4), None);
    }

    #[test]
    fn a_counter_is_widened_to_the_bound_that_its_steps_reach() {
        let (first, second) = (Values::one(8), Values::steps(8, 16, 8));
        let bounds = [20u64, 40];
        assert_eq!(
            first.widened(second, bounds.iter().copied()),
            Some(Values::steps(8, 40, 8))
        );
        assert_eq!(first.widened(second, [20u64].iter().copied()), None);
    }
}
