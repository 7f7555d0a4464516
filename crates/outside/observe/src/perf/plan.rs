//! Sampling frequencies, and when to change them. Pure.

use std::time::Duration;

/// The highest frequency of a cpu-clock event: the kernel raises shorter periods to 10 us
/// (`perf_swevent_hrtimer`).
pub const MAX_FREQUENCY: u32 = 100_000;

/// Sampling frequencies over the time of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrequencyPlan {
    /// Steps while a line is in doubt: time since then, and frequency in samples per second of a
    /// thread's CPU time. Ascending in time; the first is at 0.
    steps: Vec<(Duration, u32)>,
    /// Steps while no line is in doubt, since the program has several threads. If empty,
    /// [`Self::steps`] hold.
    calm: Vec<(Duration, u32)>,
    /// The frequency while the program has one thread, which can't contend. `None`: the same as
    /// with several.
    alone: Option<u32>,
}

impl Default for FrequencyPlan {
    /// For callers that want to see all sharing. With one thread, 99 Hz, which only show how its
    /// time is spent. Once there are several, 4000 Hz for 50 ms, so that a program of 100 ms gives
    /// some 250 samples a thread; 997 Hz up to 0.3 s, when short programs have ended; then 99 Hz.
    /// The cost of a sample is the timer's interrupt: some microseconds on bare metal, 20 to 35
    /// measured in virtual machines, where 250 Hz would take up to 1% of the program's time for as
    /// long as it runs. 997 and 99 Hz are not in step with what a program or the kernel does every
    /// millisecond or every ten.
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            steps: vec![(ms(0), 4000), (ms(50), 997), (ms(300), 99)],
            calm: Vec::new(),
            alone: Some(99),
        }
    }
}

/// The program's state, on which the frequency depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The program has one thread.
    Alone,
    /// It has several threads, and no line is in doubt.
    Calm,
    /// A line is in doubt.
    Alert,
}

impl FrequencyPlan {
    /// One frequency for the whole run.
    pub fn fixed(hz: u32) -> Self {
        Self::of(vec![(Duration::ZERO, hz.clamp(1, MAX_FREQUENCY))])
    }

    /// For callers that only want lines that cost much. The steps of the default plan begin when a
    /// line is in doubt ([`PerfSampler::alert`](super::PerfSampler::alert)). Before that, with
    /// several threads, 997 Hz for 20 ms, in which a line that costs much gets some samples of each
    /// thread, 251 Hz up to 0.3 s, then 99 Hz.
    pub fn watchful() -> Self {
        let ms = Duration::from_millis;
        Self {
            calm: vec![(ms(0), 997), (ms(20), 251), (ms(300), 99)],
            ..Self::default()
        }
    }

    /// A plan of `steps` of a start time and a frequency, whatever state the program is in. They
    /// are sorted; the time before the first has its frequency; frequencies are limited to 1 ..=
    /// [`MAX_FREQUENCY`]. Without steps, the default plan.
    pub fn new(mut steps: Vec<(Duration, u32)>) -> Self {
        steps.sort_by_key(|step| step.0);
        for step in &mut steps {
            step.1 = step.1.clamp(1, MAX_FREQUENCY);
        }
        match steps.first_mut() {
            Some(first) => first.0 = Duration::ZERO,
            None => return Self::default(),
        }
        Self::of(steps)
    }

    const fn of(steps: Vec<(Duration, u32)>) -> Self {
        Self {
            steps,
            calm: Vec::new(),
            alone: None,
        }
    }

    /// The steps while a line is in doubt, ascending in time; never empty.
    pub fn steps(&self) -> &[(Duration, u32)] {
        &self.steps
    }

    /// All frequencies, each once, the highest first.
    pub fn frequencies(&self) -> Vec<u32> {
        let steps = self.steps.iter().chain(&self.calm).map(|step| step.1);
        let mut all: Vec<u32> = steps.chain(self.alone).collect();
        all.sort_unstable_by_key(|&hz| std::cmp::Reverse(hz));
        all.dedup();
        all
    }

    /// The phase at the start of a run.
    pub(crate) const fn first_phase(&self) -> Phase {
        match self.alone {
            Some(_) => Phase::Alone,
            None => self.phase_of_several(),
        }
    }

    /// The phase once there are several threads.
    pub(crate) const fn phase_of_several(&self) -> Phase {
        if self.calm.is_empty() {
            Phase::Alert
        } else {
            Phase::Calm
        }
    }

    /// The frequency `elapsed` after `phase` began.
    pub(crate) fn frequency(&self, phase: Phase, elapsed: Duration) -> u32 {
        let steps = self.steps_of(phase);
        let alone = self.alone.filter(|_| phase == Phase::Alone);
        alone.unwrap_or_else(|| steps[step_at(steps, elapsed)].1)
    }

    /// How many samples end the step that holds `elapsed` after `phase` began. Steps end by samples
    /// as well as by time: while a program mostly sleeps, a high frequency costs nothing, and at a
    /// low one its threads would never use up a whole period.
    pub(crate) fn enough(&self, phase: Phase, elapsed: Duration) -> u64 {
        const ENOUGH: u64 = 200;
        if phase != Phase::Calm {
            return ENOUGH;
        }
        let step = step_at(&self.calm, elapsed);
        let next = self.calm.get(step + 1).map_or(Duration::MAX, |s| s.0);
        let length = next.saturating_sub(self.calm[step].0).as_secs_f64();
        // As many as two threads give; the cast limits larger numbers.
        let of_two = 2.0 * length * f64::from(self.calm[step].1);
        (of_two as u64).min(ENOUGH)
    }

    fn steps_of(&self, phase: Phase) -> &[(Duration, u32)] {
        match phase {
            Phase::Calm if !self.calm.is_empty() => &self.calm,
            _ => &self.steps,
        }
    }

    /// The plan with only its last, cheapest step.
    pub(crate) fn last_only(&self) -> Self {
        let last = self.steps.last().map_or(1, |step| step.1);
        Self::of(vec![(Duration::ZERO, last)])
    }
}

/// Which step holds at `elapsed`.
fn step_at(steps: &[(Duration, u32)], elapsed: Duration) -> usize {
    steps
        .partition_point(|step| step.0 <= elapsed)
        .saturating_sub(1)
}

/// The sampling period of a frequency, in nanoseconds.
pub(crate) const fn period_ns(hz: u32) -> u64 {
    1_000_000_000 / hz as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_holds_until_the_next_begins() {
        let ms = Duration::from_millis;
        let plan = FrequencyPlan::new(vec![(Duration::ZERO, 400), (ms(200), 100), (ms(3000), 25)]);
        let at = |millis| plan.frequency(Phase::Alert, ms(millis));
        assert_eq!(
            [at(0), at(199), at(200), at(2999), at(3000), at(100_000)],
            [400, 400, 100, 100, 25, 25]
        );
        assert_eq!(plan.frequencies(), [400, 100, 25]);
        // Whatever state the program is in.
        assert_eq!(plan.first_phase(), Phase::Alert);
    }

    #[test]
    fn samples_are_dense_only_when_there_is_something_to_learn() {
        let ms = Duration::from_millis;
        let all = FrequencyPlan::default();
        assert_eq!(all.first_phase(), Phase::Alone);
        assert_eq!(all.phase_of_several(), Phase::Alert);
        let plan = FrequencyPlan::watchful();
        assert_eq!(plan.first_phase(), Phase::Alone);
        assert_eq!(plan.phase_of_several(), Phase::Calm);
        for elapsed in [0, 10, 100, 1000] {
            let of = |phase| plan.frequency(phase, ms(elapsed));
            assert!(of(Phase::Alone) <= of(Phase::Calm));
            assert!(of(Phase::Calm) <= of(Phase::Alert));
        }
        // Two threads that compute give the samples of a calm step in its time.
        assert_eq!(plan.enough(Phase::Calm, ms(0)), 39);
        assert_eq!(plan.enough(Phase::Calm, ms(1000)), 200);
        assert_eq!(plan.enough(Phase::Alert, ms(0)), 200);
    }

    #[test]
    fn odd_plans_are_put_right() {
        let second = Duration::from_secs(1);
        let plan = FrequencyPlan::new(vec![(second * 2, 0), (second, u32::MAX)]);
        assert_eq!(
            plan.steps(),
            [(Duration::ZERO, MAX_FREQUENCY), (second * 2, 1)]
        );
        assert_eq!(FrequencyPlan::new(vec![]), FrequencyPlan::default());
    }
}
