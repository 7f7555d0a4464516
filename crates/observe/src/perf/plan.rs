//! How often to sample, and when to change it. Pure.

use std::time::Duration;

/// The most that a cpu-clock event delivers: the kernel raises shorter periods
/// to 10 us (`perf_swevent_hrtimer`).
pub const MAX_FREQUENCY: u32 = 100_000;

/// Sampling frequencies over the time of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrequencyPlan {
    /// From which time on (after the program started, ascending, the first 0)
    /// how many samples a second of CPU time a thread gives.
    steps: Vec<(Duration, u32)>,
}

impl Default for FrequencyPlan {
    /// 4000 Hz for the first 50 ms, so that a program of 100 ms gives some 250
    /// samples a thread; 997 Hz up to 0.3 s, which short programs do not outlast;
    /// then 99 Hz. What a sample costs is the timer's interrupt: some microseconds
    /// on bare metal, 35 measured in a virtual machine, where 250 Hz would take 1%
    /// of the program's time for as long as it runs. The lower two are not in step
    /// with what a program or the kernel does every millisecond or every ten.
    fn default() -> Self {
        Self {
            steps: vec![
                (Duration::ZERO, 4000),
                (Duration::from_millis(50), 997),
                (Duration::from_millis(300), 99),
            ],
        }
    }
}

impl FrequencyPlan {
    /// One frequency for the whole run.
    pub fn fixed(hz: u32) -> Self {
        Self {
            steps: vec![(Duration::ZERO, hz.clamp(1, MAX_FREQUENCY))],
        }
    }

    /// A plan of `steps`: from when, how often. They are sorted; what is before
    /// the first has its frequency; frequencies are limited to 1 ..=
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
        Self { steps }
    }

    /// The steps, ascending in time; never empty.
    pub fn steps(&self) -> &[(Duration, u32)] {
        &self.steps
    }

    /// Which step holds at `elapsed`.
    pub fn step_at(&self, elapsed: Duration) -> usize {
        self.steps
            .partition_point(|step| step.0 <= elapsed)
            .saturating_sub(1)
    }

    /// The plan with only its last, cheapest step.
    pub(crate) fn last_only(&self) -> Self {
        Self {
            steps: self
                .steps
                .last()
                .map(|step| (Duration::ZERO, step.1))
                .into_iter()
                .collect(),
        }
    }
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
        let at = |millis| plan.steps()[plan.step_at(ms(millis))].1;
        assert_eq!(
            [at(0), at(199), at(200), at(2999), at(3000), at(100_000)],
            [400, 400, 100, 100, 25, 25]
        );
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
