//! How fast threads make progress, by values that they change as they work: loop counters,
//! pointers that walk over memory, sums. A value that grows by a steady amount of CPU time is a
//! clock of progress. The gain of a change is how much faster the clock runs after it. Pure;
//! `repair` reads the values.
//!
//! Plastic compares the numbers of retired instructions (EuroSys 2013, section 6). That takes a
//! PMU, and counts the instructions of guards as progress. Rounds of the program's own loops
//! are the same work before and after, whichever code executes them.

mod alone;

pub use alone::{Alone, gain_alone};

use std::collections::{BTreeMap, BTreeSet};

/// Where a value is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValuePlace {
    /// A register, by its number.
    Register(u8),
    /// Bytes on the thread's stack, at this address.
    Stack(u64),
    /// Bytes that are moved, by their address in the program.
    Moved(u64),
}

/// A value, and the CPU time of its thread when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// CPU time of the thread until then, in ns.
    pub cpu_ns: u64,
    /// The value; of a narrower one the upper bits are ignored.
    pub value: u64,
}

/// The values that were read of one thread in one window of time.
#[derive(Clone, Debug, Default)]
pub struct Window {
    registers: Vec<(u64, [u64; 16])>,
    /// The pages of code where the thread was, each with the CPU time.
    code: Vec<(u64, u64)>,
    /// The bytes by the place at which they begin, each with the CPU time.
    bytes: BTreeMap<ValuePlace, Vec<(u64, Vec<u8>)>>,
}

/// The number of intervals between readings that a clock needs: with fewer, words that change
/// at random sometimes look as if they grew.
const LEAST_INTERVALS: usize = 8;
/// Of ten intervals, this many must have nearly the middle rate. The others may have been
/// interrupted.
const NEAR_OF_TEN: usize = 8;
/// Nearly: at least this part of the middle rate, and at most its reciprocal. Contention comes
/// and goes within a window, so rates vary even if the work does not.
const NEAR_RATE: f64 = 0.4;
/// Readings that are closer together are ignored, in ns: a value is read a moment before or
/// after its CPU time.
const CLOSEST_NS: u64 = 100_000;
/// Ratios of rates that differ by at most this factor agree.
const SAME_RATIO: f64 = 1.05;
/// Rates of values that follow the time of day instead of the work, in units per ns.
const TIME_RATES: [f64; 3] = [1.0, 1e-3, 1e-6];
/// A rate follows the time of day if it differs by less than this part from such a rate.
const TIME_TOLERANCE: f64 = 0.01;

impl Window {
    /// Adds the thread's registers, by number.
    pub fn registers(&mut self, cpu_ns: u64, values: [u64; 16]) {
        if is_later(self.registers.last().map(|l| l.0), cpu_ns) {
            self.registers.push((cpu_ns, values));
        }
    }

    /// Adds bytes, which begin at `place`.
    pub fn bytes(&mut self, place: ValuePlace, cpu_ns: u64, bytes: Vec<u8>) {
        let all = self.bytes.entry(place).or_default();
        if is_later(all.last().map(|l| l.0), cpu_ns) {
            all.push((cpu_ns, bytes));
        }
    }

    /// Adds a sample in which the thread was at the instruction `at`.
    pub fn at(&mut self, cpu_ns: u64, at: u64) {
        self.code.push((cpu_ns, at >> 12));
    }

    /// The length of the window, in ns of its thread's CPU time.
    pub fn cpu_ns(&self) -> u64 {
        let registers = self.registers.first().zip(self.registers.last());
        let registers = registers.map(|(first, last)| last.0 - first.0);
        let bytes = self.bytes.values();
        let bytes = bytes.filter_map(|all| Some(all.last()?.0 - all.first()?.0));
        bytes.chain(registers).max().unwrap_or(0)
    }

    /// The clocks of progress and their rates in units per ns, by the place and the form of the
    /// value.
    fn clocks(&self, evenness: Evenness) -> BTreeMap<(ValuePlace, Form), f64> {
        let mut clocks = BTreeMap::new();
        for number in 0..16 {
            let values = self.registers.iter().map(|r| (r.0, r.1[number]));
            let place = ValuePlace::Register(number as u8);
            let found = read(&track(values), evenness).into_iter();
            clocks.extend(found.map(|(form, rate)| ((place, form), rate)));
        }
        for (&place, all) in &self.bytes {
            let longest = all.iter().map(|(_, bytes)| bytes.len()).max().unwrap_or(0);
            let mut offset = 0;
            while offset + 4 <= longest {
                let values = all.iter();
                let values = values.filter_map(|(at, bytes)| Some((*at, word(bytes, offset)?)));
                let track = track(values);
                let here = place.plus(offset as u64);
                // The halves of an 8-byte number are no clocks.
                let whole = here.is_aligned() && is_double(&track);
                offset += if whole { 8 } else { 4 };
                let found = read(&track, evenness).into_iter();
                let found = found.filter(|f| whole == (f.0 == Form::Double));
                clocks.extend(found.map(|(form, rate)| ((here, form), rate)));
            }
        }
        clocks
    }

    /// Whether the window has any clock.
    pub fn has_clock(&self) -> bool {
        !self.clocks(Evenness::Steady).is_empty()
    }
}

impl ValuePlace {
    /// Whether an 8-byte number could begin there.
    const fn is_aligned(self) -> bool {
        match self {
            Self::Register(_) => true,
            Self::Stack(at) | Self::Moved(at) => at.is_multiple_of(8),
        }
    }

    const fn plus(self, offset: u64) -> Self {
        match self {
            Self::Register(_) => self,
            Self::Stack(at) => Self::Stack(at + offset),
            Self::Moved(at) => Self::Moved(at + offset),
        }
    }
}

/// Whether a reading is far enough from the one before to be used.
fn is_later(last: Option<u64>, cpu_ns: u64) -> bool {
    last.is_none_or(|last| last + CLOSEST_NS <= cpu_ns)
}

/// The up to eight bytes at `offset`; bytes beyond the end are zero.
fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    let rest = bytes.get(offset..).filter(|rest| rest.len() >= 4)?;
    let mut word = [0; 8];
    let len = rest.len().min(8);
    word[..len].copy_from_slice(&rest[..len]);
    Some(u64::from_le_bytes(word))
}

/// How the bits of a value are read. A sum of floating-point numbers grows as steadily as a
/// counter, but its bits do not: they change by half as much whenever the sum has doubled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    /// As an integer of this many bits.
    Integer(u32),
    /// As a floating-point number of 64 bits.
    Double,
    /// As a floating-point number of 32 bits.
    Single,
    /// 32 bits that may be an integer or a floating-point number with this exponent. Between
    /// two powers of two both grow alike.
    Either(u32),
}

/// The range of the floating-point numbers that programs compute with, besides zero.
const NUMBER_RANGE: std::ops::Range<f64> = 1e-12..1e18;

fn is_number(value: f64) -> bool {
    value == 0.0 || NUMBER_RANGE.contains(&value.abs())
}

/// Whether the value is most likely a floating-point number of 64 bits. In an integer of that
/// size the upper half would not change, unless it is two integers.
fn is_double(track: &[Reading]) -> bool {
    let mut twos = track.windows(2);
    twos.any(|two| two[0].value >> 32 != two[1].value >> 32)
        && track.iter().all(|r| is_number(f64::from_bits(r.value)))
}

fn track(values: impl Iterator<Item = (u64, u64)>) -> Vec<Reading> {
    let readings = values.map(|(cpu_ns, value)| Reading { cpu_ns, value });
    readings.collect()
}

/// The ways to read `track` in which it grows or shrinks steadily, with the rates.
fn read(track: &[Reading], evenness: Evenness) -> Vec<(Form, f64)> {
    let changes = |part: fn(u64) -> u64| {
        let mut twos = track.windows(2);
        twos.any(|two| part(two[0].value) != part(two[1].value))
    };
    let mut found = Vec::new();
    // Most values never change. A value of which only the lower half changes is read as 32
    // bits.
    if changes(|value| value >> 32) {
        let (form, rates) = if is_double(track) {
            let of = |r: &Reading| f64::from_bits(r.value);
            (Form::Double, rates(track, |a, b| of(b) - of(a)))
        } else {
            let of = |a: &Reading, b: &Reading| b.value.wrapping_sub(a.value) as i64 as f64;
            (Form::Integer(64), rates(track, of))
        };
        found.extend(rate(track, &rates, evenness).map(|rate| (form, rate)));
    }
    if changes(|value| value & 0xffff_ffff) {
        let (form, rates) = narrow(track);
        found.extend(rate(track, &rates, evenness).map(|rate| (form, rate)));
    }
    found
}

/// The lower 32 bits, in the form that they most likely have.
fn narrow(track: &[Reading]) -> (Form, Vec<f64>) {
    let of =
        |a: &Reading, b: &Reading| f64::from((b.value as u32).wrapping_sub(a.value as u32) as i32);
    let whole = rates(track, of);
    let single = |r: &Reading| f64::from(f32::from_bits(r.value as u32));
    if !track.iter().all(|r| is_number(single(r))) {
        return (Form::Integer(32), whole);
    }
    let exponents = track.iter().map(|r| (r.value as u32 & 0x7fff_ffff) >> 23);
    let exponents: BTreeSet<u32> = exponents.collect();
    if let (1, Some(&only)) = (exponents.len(), exponents.first()) {
        return (Form::Either(only), whole);
    }
    let fraction = rates(track, |a, b| single(b) - single(a));
    if scatter(&fraction) < scatter(&whole) {
        (Form::Single, fraction)
    } else {
        (Form::Integer(32), whole)
    }
}

/// The rates in all intervals, in units per ns. `change` gives the change between two readings.
fn rates(track: &[Reading], change: impl Fn(&Reading, &Reading) -> f64) -> Vec<f64> {
    let each = track.windows(2);
    let rate = |two: &[Reading]| change(&two[0], &two[1]) / (two[1].cpu_ns - two[0].cpu_ns) as f64;
    each.map(rate).collect()
}

/// The median distance of the rates from their median, relative to that median.
fn scatter(rates: &[f64]) -> f64 {
    let middle_of = |mut all: Vec<f64>| {
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    };
    let middle = middle_of(rates.to_vec());
    middle_of(rates.iter().map(|r| (r / middle - 1.0).abs()).collect())
}

/// How evenly a clock must run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evenness {
    /// At nearly one rate.
    Steady,
    /// In one direction. Beside its rivals a thread may get on in bursts: it works as long as the
    /// line is with its processor. A value that changes at random is no such clock: in eight
    /// intervals it would go in one direction once in 128 times, and it must be steady in the other
    /// window.
    Onward,
}

/// The rate of a value with these rates in its intervals, in units per ns; `None` if it does
/// not grow or shrink that evenly.
fn rate(track: &[Reading], rates: &[f64], evenness: Evenness) -> Option<f64> {
    if rates.len() < LEAST_INTERVALS {
        return None;
    }
    let whole: f64 = {
        let time = (track.last()?.cpu_ns - track.first()?.cpu_ns) as f64;
        let each = track.windows(2).zip(rates);
        each.map(|(two, rate)| rate * (two[1].cpu_ns - two[0].cpu_ns) as f64)
            .sum::<f64>()
            / time
    };
    let mut rates = rates.to_vec();
    rates.sort_unstable_by(f64::total_cmp);
    let middle = rates[rates.len() / 2];
    let near = |rate: &&f64| (NEAR_RATE..=1.0 / NEAR_RATE).contains(&(*rate / middle));
    let as_wanted = match evenness {
        Evenness::Steady => rates.iter().filter(near).count() * 10 >= rates.len() * NEAR_OF_TEN,
        Evenness::Onward => rates.iter().all(|rate| rate * middle > 0.0),
    };
    let is_time = TIME_RATES
        .iter()
        .any(|t| (whole.abs() / t - 1.0).abs() < TIME_TOLERANCE);
    let alike =
        evenness == Evenness::Onward || (NEAR_RATE..=1.0 / NEAR_RATE).contains(&(whole / middle));
    (middle != 0.0 && as_wanted && alike && !is_time).then_some(whole)
}

/// A thread's progress before and after a change, by the ratio on which most clocks agree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// The rate after, divided by the rate before.
    pub ratio: f64,
    /// The clock's rate before, in units per ns of CPU time.
    pub before: f64,
    /// The clock's rate after, in the same units.
    pub after: f64,
    /// The number of clocks that agree.
    pub clocks: usize,
}

/// A thread's gain between two windows; `None` if no clock ran in both. Clocks of work agree.
/// If some do not, the ratio on which most agree counts; of several such, the smallest.
pub fn gain(before: &Window, after: &Window) -> Option<Gain> {
    agreed(
        &before.clocks(Evenness::Steady),
        &after.clocks(Evenness::Steady),
    )
}

fn agreed(
    then: &BTreeMap<(ValuePlace, Form), f64>,
    now: &BTreeMap<(ValuePlace, Form), f64>,
) -> Option<Gain> {
    let mut all: Vec<(f64, f64, f64)> = now
        .iter()
        .filter_map(|(at, &now)| {
            let then = *then.get(at)?;
            Some((now / then, then, now))
        })
        .filter(|one| one.0 > 0.0 && one.0.is_finite())
        .collect();
    all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut best: Option<(usize, usize)> = None;
    for (from, one) in all.iter().enumerate() {
        let agree = all[from..].iter().take_while(|o| o.0 <= one.0 * SAME_RATIO);
        let count = agree.count();
        if best.is_none_or(|b| count > b.1) {
            best = Some((from, count));
        }
    }
    let (from, clocks) = best?;
    // The median of the clocks that agree. A value that is read together with the bytes before
    // it seems to grow by far more.
    let ratio = all.get(from + (clocks - 1) / 2)?.0;
    let agreeing = all.get(from..from + clocks)?.iter();
    let before = agreeing.map(|o| o.1.abs()).min_by(f64::total_cmp)?;
    Some(Gain {
        ratio,
        before,
        after: before * ratio,
        clocks,
    })
}

/// The ratio of progress after and before from which on moved bytes stay. Two windows of an
/// unchanged program differ too: of 40 pairs with two contending threads, 38 were below this at
/// real-time priority, half of them within 3 %. So a smaller gain may be none at all, while
/// faults and copies of code keep their cost.
pub const WORTH_KEEPING: f64 = 1.05;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(super) const EACH: u64 = 1_000_000;

    /// Readings of a value that grows by `step` a millisecond.
    pub(super) fn window(all: &[(ValuePlace, &dyn Fn(u64) -> u64)]) -> Window {
        let mut window = Window::default();
        for n in 0..20 {
            for (place, value) in all {
                window.bytes(*place, n * EACH, value(n).to_le_bytes().to_vec());
            }
        }
        window
    }

    #[test]
    fn a_counter_that_runs_faster_is_a_gain() {
        let before = window(&[(ValuePlace::Stack(64), &|n| 1000 + 70 * n)]);
        let after = window(&[(ValuePlace::Stack(64), &|n| 9000 + 210 * n)]);
        let gained = gain(&before, &after).expect("there is a clock").ratio;
        assert!((gained - 3.0).abs() < 1e-9, "{gained}");
    }

    #[test]
    fn counters_may_count_down_and_wrap_in_32_bits() {
        let down = |n: u64| u64::from(50u32.wrapping_sub(9 * n as u32));
        let faster = |n: u64| u64::from(20u32.wrapping_sub(18 * n as u32));
        let (before, after) = (
            window(&[(ValuePlace::Stack(0x7000), &down)]),
            window(&[(ValuePlace::Stack(0x7000), &faster)]),
        );
        let gained = gain(&before, &after).expect("there is a clock").ratio;
        assert!((gained - 2.0).abs() < 1e-9, "{gained}");
    }

    #[test]
    fn a_counter_that_stops_jumps_or_reverses_is_no_progress_clock() {
        let mut state = 1u64;
        let mut noise = Vec::new();
        for _ in 0..20 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            noise.push(state);
        }
        let random = |n: u64| noise[n as usize];
        let inner = |n: u64| n * 70 % 100;
        assert!(!window(&[(ValuePlace::Stack(0), &|_| 5)]).has_clock());
        assert!(!window(&[(ValuePlace::Stack(0), &random)]).has_clock());
        assert!(!window(&[(ValuePlace::Stack(0), &inner)]).has_clock());
    }

    #[test]
    fn the_time_of_day_is_no_progress() {
        let seconds = |n: u64| 77 + n * EACH;
        let micro = |n: u64| 77 + n * EACH / 1000;
        assert!(!window(&[(ValuePlace::Stack(8), &seconds)]).has_clock());
        assert!(!window(&[(ValuePlace::Stack(8), &micro)]).has_clock());
    }

    #[test]
    fn progress_is_the_majority_of_the_clocks() {
        let steady = |k: u64| move |n: u64| k * 100 * n;
        let sum = |n: u64| 1_000_000 + 90_000 * n;
        let steeper = |n: u64| 3_000_000 + 300_000 * n;
        let before = window(&[
            (ValuePlace::Stack(64), &steady(1)),
            (ValuePlace::Stack(128), &steady(8)),
            (ValuePlace::Stack(192), &sum),
        ]);
        let after = window(&[
            (ValuePlace::Stack(64), &steady(2)),
            (ValuePlace::Stack(128), &steady(16)),
            (ValuePlace::Stack(192), &steeper),
        ]);
        let gained = gain(&before, &after).expect("there are clocks");
        assert!((gained.ratio - 2.0).abs() < 1e-9, "{gained:?}");
        assert!(gained.clocks >= 2);
    }

    /// Two threads add to sums and run 1.2 times as fast after a change. The sums have grown by
    /// half since the first window, so their bits grow more slowly.
    #[test]
    fn a_floating_point_sum_runs_as_its_value_does() {
        let early = |n: u64| (3e6 + 5e4 * n as f64).to_bits();
        let late = |n: u64| (4.1e6 + 6e4 * n as f64).to_bits();
        let (early32, late32) = (
            |n: u64| u64::from(((3e6 + 5e4 * n as f64) as f32).to_bits()),
            |n: u64| u64::from(((4.1e6 + 6e4 * n as f64) as f32).to_bits()),
        );
        for all in [
            [(&early as &dyn Fn(u64) -> u64), &late],
            [&early32, &late32],
        ] {
            let [before, after] = all.map(|value| window(&[(ValuePlace::Moved(64), value)]));
            if let Some(gained) = gain(&before, &after) {
                assert!((gained.ratio - 1.2).abs() < 0.01, "{gained:?}");
            }
        }
        let [before, after] = [&early as &dyn Fn(u64) -> u64, &late]
            .map(|value| window(&[(ValuePlace::Moved(64), value)]));
        assert!(gain(&before, &after).is_some());
    }

    /// A counter of 32 bits may look like a floating-point number.
    #[test]
    fn a_counter_is_one_whatever_its_bits_look_like() {
        let before = |n: u64| 0x3f80_0000 + 9_000_000 * n;
        let after = |n: u64| 0x4f80_0000 + 18_000_000 * n;
        let [before, after] = [&before as &dyn Fn(u64) -> u64, &after]
            .map(|value| window(&[(ValuePlace::Register(3), value)]));
        let gained = gain(&before, &after).expect("a clock");
        assert!((gained.ratio - 2.0).abs() < 0.01, "{gained:?}");
    }

    #[test]
    fn interrupted_intervals_do_not_matter() {
        // In every seventh interval the thread did something else.
        let odd = |n: u64| 1000 + 100 * n - if n % 7 == 3 { 200 } else { 0 };
        let before = window(&[(ValuePlace::Stack(64), &|n| 100 * n)]);
        let after = window(&[(ValuePlace::Stack(64), &odd)]);
        // Of 19 intervals, six are far from the middle rate: no clock.
        assert_eq!(gain(&before, &after), None);
        let seldom = |n: u64| 100 * n - if n == 9 { 70 } else { 0 };
        let after = window(&[(ValuePlace::Stack(64), &seldom)]);
        let gained = gain(&before, &after).expect("a clock").ratio;
        assert!((gained - 1.0).abs() < 1e-9);
    }
}
