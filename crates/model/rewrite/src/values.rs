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

    /// The distance from one value to the next; 0 if there is only one.
    pub(crate) const fn step(self) -> u64 {
        self.stride
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
        let (low, high) = (self.low >> by, self.high >> by);
        // Steps that no bit leaves remain steps.
        let whole = self.stride.trailing_zeros() >= by;
        Self::steps(low, high, if whole { self.stride >> by } else { 1 })
    }

    /// The bitwise and of two sets: no result is above either operand.
    pub(crate) fn and(this: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (one, other) = match (this, other) {
            (Some(one), other) | (other, Some(one)) => (one, other),
            (None, None) => return None,
        };
        if let Some(mask) = one.only() {
            return Some(Self::masked(other, mask));
        }
        Some(match other.map(|other| (other, other.only())) {
            Some((_, Some(mask))) => Self::masked(Some(one), mask),
            Some((other, None)) => Self::between(0, one.high.min(other.high)),
            None => Self::between(0, one.high),
        })
    }

    /// The bits of `known` that `mask` has. The lowest bits, which a step leaves as they are, and those
    /// that the mask has not, are the same in all results: the others follow each other in steps.
    fn masked(known: Option<Self>, mask: u64) -> Self {
        let all_below = mask.wrapping_add(1).is_power_of_two() || mask == u64::MAX;
        if let Some(values) = known.filter(|v| all_below && v.high <= mask) {
            return values;
        }
        let (low, high, same) = match known {
            Some(values) if values.only().is_some() => (values.low, values.high, u64::BITS),
            Some(values) => (values.low, values.high, values.stride.trailing_zeros()),
            None => (0, u64::MAX, 0),
        };
        let above = |bits: u32| u64::MAX.checked_shl(bits).unwrap_or(0);
        let same = (mask & above(same)).trailing_zeros();
        let first = low & mask & !above(same);
        let room = high.min(mask) - first;
        Self::steps(
            first,
            first + (room & above(same)),
            above(same) & above(same).wrapping_neg(),
        )
    }

    /// The low `bits` (8, 16 or 32) of a register whose values may be `known`.
    pub(crate) fn low_bits(known: Option<Self>, bits: u32) -> Self {
        Self::masked(known, u64::MAX >> (64 - bits))
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

    /// `(number * 4 + 1) & 63` as compilers write it for an element of a table, of which each of four
    /// threads uses every fourth.
    #[test]
    fn steps_remain_steps_behind_a_mask_and_a_shift() {
        let number = Values::between(0, (1 << 24) - 1);
        let element = number.times(4).and_then(|n| n.plus(Values::one(1)));
        let element = Values::and(element, Some(Values::one(63)));
        assert_eq!(element, Some(Values::steps(1, 61, 4)));
        let of_sixteen = Values::and(None, Some(Values::one(0xf0)));
        assert_eq!(of_sixteen, Some(Values::steps(0, 0xf0, 16)));
        let shifted = of_sixteen.map(|v| v.shifted_right(4));
        assert_eq!(shifted, Some(Values::between(0, 15)));
        let far = Values::steps(3, 3 + (1 << 40), 1 << 20);
        assert_eq!(Values::low_bits(Some(far), 8), Values::one(3));
        assert_eq!(
            Values::low_bits(Some(far), 32),
            Values::steps(3, 3 + (0xfff << 20), 1 << 20)
        );
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
