//! The gain of a thread from a window beside its rivals to one in which they are stopped. Pure.
//!
//! Without its rivals a thread may come to wait for them, at a barrier for example, and its registers count
//! the rounds of that wait. The code in which it is tells work from waiting.

use super::{Evenness, Gain, Window, agreed};
use std::collections::BTreeMap;

/// The share of its time that a thread may seem to wait for its rivals: two windows of some 25 samples each
/// differ by chance, too.
const ELSEWHERE: f64 = 0.25;
/// Code with a smaller share of the samples beside a thread's rivals is not that of its work.
const SELDOM: f64 = 0.05;
/// So many samples in a row outside of its work mean that the thread waits.
const STAYS: usize = 3;

impl Window {
    /// The share of the samples in each page of code.
    fn shares(&self) -> BTreeMap<u64, f64> {
        let mut shares = BTreeMap::new();
        for (_, page) in &self.code {
            *shares.entry(*page).or_default() += 1.0 / self.code.len() as f64;
        }
        shares
    }

    /// The part of the window before the thread leaves for other code than it was seen in `beside` its
    /// rivals, and stays there for some samples.
    fn before_it_waits(&self, beside: &Self) -> Self {
        let work = beside.shares();
        let is_elsewhere = |page: &u64| work.get(page).copied().unwrap_or(0.0) < SELDOM;
        let mut runs = self.code.windows(STAYS);
        let first = runs.find(|run| run.iter().all(|(_, page)| is_elsewhere(page)));
        let Some(&[(end, _), ..]) = first else {
            return self.clone();
        };
        let mut part = self.clone();
        part.code.retain(|one| one.0 < end);
        part.registers.retain(|one| one.0 < end);
        part.bytes
            .values_mut()
            .for_each(|all| all.retain(|one| one.0 < end));
        part
    }
}

/// As [`super::gain`], from a window beside a thread's rivals to one without them. Beside them its clocks
/// need not run evenly, only in one direction. Of the window without them only what comes before a wait
/// counts.
pub fn gain_alone(beside: &Window, alone: &Window) -> Alone {
    let work = alone.before_it_waits(beside);
    let gain = agreed(
        &beside.clocks(Evenness::Onward),
        &work.clocks(Evenness::Steady),
    );
    match gain {
        Some(gain) if !waits(beside, &work, gain.ratio) => Alone::Gain(gain),
        None if !waits(beside, alone, 1.0) => Alone::NoClock,
        _ => Alone::Waits,
    }
}

/// What a window without a thread's rivals tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Alone {
    /// How much faster the thread got on.
    Gain(Gain),
    /// No value counts its progress.
    NoClock,
    /// It waited for its rivals.
    Waits,
}

/// Whether a thread spends its time `alone` in other code than `beside` its rivals, where its clocks run
/// `ratio` times as fast. What is not contended takes the same time for the same work in both windows,
/// so no part of the code can have more than `ratio` times its former share. Code is told apart by pages:
/// the samples of one window are too few for more.
fn waits(beside: &Window, alone: &Window, ratio: f64) -> bool {
    let then = beside.shares();
    let most = ratio.max(1.0);
    let too_much = |(page, share): (u64, f64)| {
        let before = then.get(&page).copied().unwrap_or(0.0);
        (share - most * before).max(0.0)
    };
    alone.shares().into_iter().map(too_much).sum::<f64>() > ELSEWHERE
}

#[cfg(test)]
mod tests {
    use super::super::tests::{EACH, window};
    use super::super::{ValuePlace, gain};
    use super::*;

    /// A window of samples each millisecond: a register grows by `step` at each, and the thread is at the
    /// given code.
    fn sampled(step: u64, code: &[(u64, u64)]) -> Window {
        let mut window = Window::default();
        let all = code
            .iter()
            .flat_map(|&(at, count)| (0..count).map(move |_| at));
        for (n, at) in (0..).zip(all) {
            let mut values = [0; 16];
            values[3] = 5000 + step * n;
            window.registers(n * EACH, values);
            window.at(n * EACH, at);
        }
        window
    }

    const WORK: u64 = 0x40_1010;
    const LIBRARY: u64 = 0x7f00_2020;
    const WAIT: u64 = 0x7f00_9030;

    #[test]
    fn a_thread_that_waits_for_the_others_is_in_other_code() {
        let beside = sampled(10, &[(WORK, 90), (LIBRARY, 8), (WAIT, 2)]);
        // At four times the speed, what was not contended has four times its share.
        let alone = sampled(40, &[(WORK, 62), (LIBRARY, 30), (WAIT, 8)]);
        assert!(!waits(&beside, &alone, 4.0));
        // The same samples at the same speed: the thread is somewhere else.
        assert!(waits(&beside, &alone, 1.0));
        assert!(!waits(&beside, &beside, 1.0));
        assert!(!waits(&beside, &Window::default(), 1.0));
    }

    /// The register goes on counting while the thread waits.
    #[test]
    fn what_a_thread_counts_while_it_waits_is_no_progress() {
        let beside = sampled(10, &[(WORK, 25)]);
        let gained = |alone: &Window| gain_alone(&beside, alone);
        let Alone::Gain(whole) = gained(&sampled(30, &[(WORK, 25)])) else {
            panic!("it works all the time");
        };
        assert!((whole.ratio - 3.0).abs() < 1e-9);
        // It works for twelve samples at three times the speed, and then counts something else.
        let mut alone = sampled(30, &[(WORK, 12)]);
        for n in 12..30 {
            let mut values = [0; 16];
            values[3] = 9 * n;
            alone.registers(n * EACH, values);
            alone.at(n * EACH, WAIT);
        }
        let Alone::Gain(part) = gained(&alone) else {
            panic!("it works at first");
        };
        assert!((part.ratio - 3.0).abs() < 1e-9, "{part:?}");
        assert_eq!(gained(&sampled(10, &[(WAIT, 25)])), Alone::Waits);
        assert_eq!(gained(&sampled(0, &[(WORK, 25)])), Alone::NoClock);
        let mixed: Vec<_> = [(WORK, 1), (WAIT, 2)].repeat(9);
        assert_eq!(gained(&sampled(10, &mixed)), Alone::Waits);
    }

    /// In each interval the counter grows by 5 or by 300, so its pace is no clock's but beside rivals.
    #[test]
    fn beside_its_rivals_a_thread_may_get_on_in_bursts() {
        let burst = |n: u64| {
            1000 + (0..n)
                .map(|i| if i % 3 == 0 { 300 } else { 5 })
                .sum::<u64>()
        };
        let even = |n: u64| 9000 + 300 * n;
        let beside = window(&[(ValuePlace::Stack(64), &burst)]);
        let alone = window(&[(ValuePlace::Stack(64), &even)]);
        assert_eq!(gain(&beside, &alone), None);
        // Of 19 intervals 7 have 300 and 12 have 5: 2,160 in all, against 5,700.
        let Alone::Gain(Gain { ratio: gained, .. }) = gain_alone(&beside, &alone) else {
            panic!("there is a clock");
        };
        assert!((gained - 5700.0 / 2160.0).abs() < 1e-9, "{gained}");
        // Alone it must run evenly, and nowhere may it turn back.
        assert_eq!(gain_alone(&alone, &beside), Alone::NoClock);
        let turns = |n: u64| 1000 + 100 * n - if n % 5 == 4 { 150 } else { 0 };
        let turning = window(&[(ValuePlace::Stack(64), &turns)]);
        assert_eq!(gain_alone(&turning, &alone), Alone::NoClock);
    }
}
