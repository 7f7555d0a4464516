//! How fast threads get on, from values that they change as they work: loop counters,
//! pointers that walk, sums. A value that grows by a steady amount of CPU time is a
//! clock of progress; how much faster it runs after a change than before is what the
//! change gained. Pure; `repair` reads the values.
//!
//! Plastic compares instructions retired (EuroSys 2013, section 6), which takes a PMU
//! and counts the instructions of guards as progress. Rounds of the program's own loops
//! are the same work before and after, whatever code does it.

use std::collections::BTreeMap;

/// Where a value is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A register, by its number.
    Register(u8),
    /// Bytes on the thread's stack, at this address.
    Stack(u64),
    /// Bytes that are moved, by the address that they have for the program.
    Moved(u64),
}

/// A value as it was when its thread had used so much CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// CPU time of the thread, in ns.
    pub cpu_ns: u64,
    /// The value; of narrower ones the upper bits are ignored.
    pub value: u64,
}

/// What was read of one thread in one window of time.
#[derive(Clone, Debug, Default)]
pub struct Window {
    registers: Vec<(u64, [u64; 16])>,
    /// Bytes by where they begin, with the CPU times.
    bytes: BTreeMap<Place, Vec<(u64, Vec<u8>)>>,
}

/// A clock needs so many readings in a row: with fewer, words that change at random
/// would now and then look as if they grew.
const INTERVALS: usize = 8;
/// Of ten intervals so many must be near the middle one: threads are interrupted.
const NEAR_OF_TEN: usize = 8;
/// Near: at least this part of the middle rate, and at most its reciprocal. Contention
/// comes and goes within a window, so that rates differ where the work does not.
const NEAR: f64 = 0.4;
/// Readings closer together tell nothing, in ns: a value is read a moment before or
/// after its time.
const CLOSEST: u64 = 100_000;
/// Changes of rate that are the same, as a ratio.
const SAME: f64 = 1.05;
/// Values that run with the time of day instead of the work: units in 1 ns.
const TIMES: [f64; 3] = [1.0, 1e-3, 1e-6];
/// How near to such a unit is that unit.
const IS_TIME: f64 = 0.01;

impl Window {
    /// Takes in the thread's registers, by number.
    pub fn registers(&mut self, cpu_ns: u64, values: [u64; 16]) {
        if is_later(self.registers.last().map(|l| l.0), cpu_ns) {
            self.registers.push((cpu_ns, values));
        }
    }

    /// Takes in bytes from `place` on.
    pub fn bytes(&mut self, place: Place, cpu_ns: u64, bytes: Vec<u8>) {
        let all = self.bytes.entry(place).or_default();
        if is_later(all.last().map(|l| l.0), cpu_ns) {
            all.push((cpu_ns, bytes));
        }
    }

    /// How long it is, in ns of its thread's CPU time.
    pub fn cpu_ns(&self) -> u64 {
        let registers = self.registers.first().zip(self.registers.last());
        let registers = registers.map(|(first, last)| last.0 - first.0);
        let bytes = self.bytes.values();
        let bytes = bytes.filter_map(|all| Some(all.last()?.0 - all.first()?.0));
        bytes.chain(registers).max().unwrap_or(0)
    }

    /// The clocks of progress and how fast they run, in units a ns; of each place the
    /// value of 32 bits and that of 64.
    fn clocks(&self) -> BTreeMap<(Place, u32), f64> {
        let mut clocks = BTreeMap::new();
        let mut look = |place, track: &[Reading]| {
            for bits in [64, 32] {
                if let Some(rate) = rate(track, bits) {
                    clocks.insert((place, bits), rate);
                }
            }
        };
        for number in 0..16 {
            let track = self.registers.iter().map(|&(cpu_ns, values)| Reading {
                cpu_ns,
                value: values[number],
            });
            look(
                Place::Register(number as u8),
                &track.collect::<Vec<Reading>>(),
            );
        }
        for (&place, all) in &self.bytes {
            let longest = all.iter().map(|(_, bytes)| bytes.len()).max().unwrap_or(0);
            for offset in (0..longest.saturating_sub(3)).step_by(4) {
                let track: Vec<Reading> = all
                    .iter()
                    .filter_map(|(cpu_ns, bytes)| {
                        Some(Reading {
                            cpu_ns: *cpu_ns,
                            value: word(bytes, offset)?,
                        })
                    })
                    .collect();
                // Most bytes never change.
                if track.windows(2).any(|two| two[0].value != two[1].value) {
                    look(place.plus(offset as u64), &track);
                }
            }
        }
        clocks
    }

    /// Whether there is any.
    pub fn has_clock(&self) -> bool {
        !self.clocks().is_empty()
    }
}

impl Place {
    const fn plus(self, offset: u64) -> Self {
        match self {
            Self::Register(_) => self,
            Self::Stack(at) => Self::Stack(at + offset),
            Self::Moved(at) => Self::Moved(at + offset),
        }
    }
}

/// Readings too close to the one before are left out.
fn is_later(last: Option<u64>, cpu_ns: u64) -> bool {
    last.is_none_or(|last| last + CLOSEST <= cpu_ns)
}

/// Up to eight bytes; what lies behind the last is zero.
fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    let rest = bytes.get(offset..).filter(|rest| rest.len() >= 4)?;
    let mut word = [0; 8];
    let len = rest.len().min(8);
    word[..len].copy_from_slice(&rest[..len]);
    Some(u64::from_le_bytes(word))
}

/// How fast a value of `bits` bits grows or shrinks steadily, in units a ns; none if it
/// does not.
fn rate(track: &[Reading], bits: u32) -> Option<f64> {
    let mut rates: Vec<f64> = track
        .windows(2)
        .map(|two| {
            let change = two[1].value.wrapping_sub(two[0].value);
            let change = match bits {
                32 => f64::from(change as u32 as i32),
                _ => change as i64 as f64,
            };
            change / (two[1].cpu_ns - two[0].cpu_ns) as f64
        })
        .collect();
    if rates.len() < INTERVALS {
        return None;
    }
    let whole: f64 = {
        let time = (track.last()?.cpu_ns - track.first()?.cpu_ns) as f64;
        let each = track.windows(2).zip(&rates);
        each.map(|(two, rate)| rate * (two[1].cpu_ns - two[0].cpu_ns) as f64)
            .sum::<f64>()
            / time
    };
    rates.sort_unstable_by(f64::total_cmp);
    let middle = rates[rates.len() / 2];
    let near = |rate: &&f64| (NEAR..=1.0 / NEAR).contains(&(*rate / middle));
    let steady =
        middle != 0.0 && rates.iter().filter(near).count() * 10 >= rates.len() * NEAR_OF_TEN;
    let is_time = TIMES
        .iter()
        .any(|t| (whole.abs() / t - 1.0).abs() < IS_TIME);
    let alike = (NEAR..=1.0 / NEAR).contains(&(whole / middle));
    (steady && alike && !is_time).then_some(whole)
}

/// How a thread got on before and after, by the clock that speaks for most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// How many times as fast.
    pub ratio: f64,
    /// Units of the clock in a ns of CPU time, before.
    pub before: f64,
    /// The same after.
    pub after: f64,
    /// So many clocks agree.
    pub clocks: usize,
}

/// How a thread got on in two windows; none if no clock ran in both. Clocks of work
/// agree; where they don't, what most say counts, and the least of that.
pub fn gain(before: &Window, after: &Window) -> Option<Gain> {
    let then = before.clocks();
    let mut all: Vec<(f64, f64, f64)> = after
        .clocks()
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
        let agree = all[from..].iter().take_while(|o| o.0 <= one.0 * SAME);
        let count = agree.count();
        if best.is_none_or(|b| count > b.1) {
            best = Some((from, count));
        }
    }
    let (from, clocks) = best?;
    // Of those that agree, the one in the middle; but a value that is read together with
    // what lies before it seems to grow by far more.
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

/// What has to be gained for bytes to stay where they went, as a ratio of progress
/// after and before. Two windows of a program in which nothing was changed differ too:
/// of 40 pairs of two threads that contend, 38 were below this at real-time priority, half
/// of them within 3 %. So what is below may be nothing at all, while faults and copies of
/// code remain.
pub const WORTH_KEEPING: f64 = 1.05;

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: u64 = 1_000_000;

    /// Readings of a value that grows by `step` a millisecond.
    fn window(all: &[(Place, &dyn Fn(u64) -> u64)]) -> Window {
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
        let before = window(&[(Place::Stack(64), &|n| 1000 + 70 * n)]);
        let after = window(&[(Place::Stack(64), &|n| 9000 + 210 * n)]);
        let gained = gain(&before, &after).expect("there is a clock").ratio;
        assert!((gained - 3.0).abs() < 1e-9, "{gained}");
    }

    #[test]
    fn counters_may_count_down_and_wrap_in_32_bits() {
        let down = |n: u64| u64::from(50u32.wrapping_sub(9 * n as u32));
        let faster = |n: u64| u64::from(20u32.wrapping_sub(18 * n as u32));
        let (before, after) = (
            window(&[(Place::Stack(0x7000), &down)]),
            window(&[(Place::Stack(0x7000), &faster)]),
        );
        let gained = gain(&before, &after).expect("there is a clock").ratio;
        assert!((gained - 2.0).abs() < 1e-9, "{gained}");
    }

    #[test]
    fn what_stands_still_jumps_or_turns_is_no_clock() {
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
        assert!(!window(&[(Place::Stack(0), &|_| 5)]).has_clock());
        assert!(!window(&[(Place::Stack(0), &random)]).has_clock());
        assert!(!window(&[(Place::Stack(0), &inner)]).has_clock());
    }

    #[test]
    fn the_time_of_day_is_no_progress() {
        let seconds = |n: u64| 77 + n * EACH;
        let micro = |n: u64| 77 + n * EACH / 1000;
        assert!(!window(&[(Place::Stack(8), &seconds)]).has_clock());
        assert!(!window(&[(Place::Stack(8), &micro)]).has_clock());
    }

    #[test]
    fn what_most_clocks_say_counts() {
        let steady = |k: u64| move |n: u64| k * 100 * n;
        let sum = |n: u64| 1_000_000 + 90_000 * n;
        let steeper = |n: u64| 3_000_000 + 300_000 * n;
        let before = window(&[
            (Place::Stack(64), &steady(1)),
            (Place::Stack(128), &steady(8)),
            (Place::Stack(192), &sum),
        ]);
        let after = window(&[
            (Place::Stack(64), &steady(2)),
            (Place::Stack(128), &steady(16)),
            (Place::Stack(192), &steeper),
        ]);
        let gained = gain(&before, &after).expect("there are clocks");
        assert!((gained.ratio - 2.0).abs() < 1e-9, "{gained:?}");
        assert!(gained.clocks >= 2);
    }

    #[test]
    fn interrupted_intervals_do_not_matter() {
        // Every seventh interval the thread was elsewhere in the program.
        let odd = |n: u64| 1000 + 100 * n - if n % 7 == 3 { 200 } else { 0 };
        let before = window(&[(Place::Stack(64), &|n| 100 * n)]);
        let after = window(&[(Place::Stack(64), &odd)]);
        // 19 intervals, of which six are far from the middle: no clock.
        assert_eq!(gain(&before, &after), None);
        let seldom = |n: u64| 100 * n - if n == 9 { 70 } else { 0 };
        let after = window(&[(Place::Stack(64), &seldom)]);
        let gained = gain(&before, &after).expect("a clock").ratio;
        assert!((gained - 1.0).abs() < 1e-9);
    }
}
