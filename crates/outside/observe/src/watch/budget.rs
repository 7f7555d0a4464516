//! How much of the target's time watching may take.
//!
//! A trap costs the target thousands of times as much as the access. So the watcher has a budget: a
//! share of the CPU time that the process has used since watching began. Pure arithmetic; the
//! caller reads the clocks.

use std::time::Duration;

/// The cost of a trapped access for the target where it cannot be measured: 5 us in the design's
/// section 4.3. Another virtual machine of the same kind needed 20.
pub const TYPICAL_HIT_COST: Duration = Duration::from_micros(5);

/// The cost of setting and removing one watchpoint of a running thread: two interrupts from another
/// CPU and two writes of debug registers, 2 to 3 us each in a virtual machine.
pub const ARM_COST: Duration = Duration::from_micros(5);

/// The limit on watching.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// The share of the target's CPU time, 0 to 1.
    pub share: f64,
    /// Time that may be spent before the share allows any, so that a program of 100 ms can be
    /// watched at all.
    pub advance: Duration,
}

impl Default for Budget {
    /// Half a percent, and 1 ms in advance (50 to 200 hits).
    fn default() -> Self {
        Self {
            share: 0.005,
            advance: Duration::from_millis(1),
        }
    }
}

impl Budget {
    /// This share of the target's CPU time, 0 to 1, with the usual time in advance.
    #[must_use]
    pub fn of(share: f64) -> Self {
        Self {
            share,
            ..Self::default()
        }
    }
}

/// The time allowed and spent so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    budget: Budget,
    spent: Duration,
}

/// With fewer hits per thread, a burst shows little of the order of accesses, and setting its
/// watchpoints costs more than its hits.
pub(super) const MIN_HITS: u32 = 16;

impl Account {
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            budget: Budget {
                // No positive number, as NaN, means a share of zero.
                share: if budget.share > 0.0 {
                    budget.share.min(1.0)
                } else {
                    0.0
                },
                ..budget
            },
            spent: Duration::ZERO,
        }
    }

    pub(super) fn spend(&mut self, cost: Duration) {
        self.spent += cost;
    }

    /// How many hits all `threads`, with `words` watched in each, may have together when the target
    /// has used `cpu_time` and each hit costs `hit_cost`. With fewer than `least` in each thread there
    /// is no burst.
    ///
    /// The CPU time that the target must still use before a burst is affordable.
    pub(super) fn hits(
        &self,
        cpu_time: Duration,
        threads: u32,
        words: u32,
        least: u32,
        hit_cost: Duration,
    ) -> Result<u32, Duration> {
        let threads = threads.max(1);
        let arming = ARM_COST.saturating_mul(threads.saturating_mul(words));
        let wanted = threads.saturating_mul(least);
        let earned = self.budget.advance + cpu_time.mul_f64(self.budget.share);
        let left = earned.saturating_sub(self.spent);
        let hits = left.saturating_sub(arming).as_nanos() / hit_cost.as_nanos().max(1);
        match u32::try_from(hits).unwrap_or(u32::MAX) {
            enough if enough >= wanted => Ok(enough),
            _ => {
                let needed = arming.saturating_add(hit_cost.saturating_mul(wanted));
                let missing = self.spent.saturating_add(needed).saturating_sub(earned);
                Err(scaled(missing, self.budget.share))
            }
        }
    }
}

/// The CPU time that allows `missing`; a share of zero never allows any.
fn scaled(missing: Duration, share: f64) -> Duration {
    Duration::try_from_secs_f64(missing.as_secs_f64() / share).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIT: Duration = Duration::from_micros(5);

    fn account(share: f64, advance_us: u64) -> Account {
        Account::new(Budget {
            share,
            advance: Duration::from_micros(advance_us),
        })
    }

    #[test]
    fn the_allowance_grows_with_the_targets_time_and_shrinks_with_spending() {
        let mut account = account(0.01, 0);
        // 100 ms allow 1 ms: setting 8 watchpoints costs 40 us, which leaves 960 us for hits of 5
        // us.
        let time = Duration::from_millis(100);
        assert_eq!(account.hits(time, 2, 4, MIN_HITS, HIT), Ok(192));
        account.spend(Duration::from_micros(760));
        // 240 us left, 40 us to arm, 200 us for hits.
        assert_eq!(account.hits(time, 2, 4, MIN_HITS, HIT), Ok(40));
    }

    #[test]
    fn spent_budget_gives_the_time_to_wait() {
        let mut account = account(0.01, 100);
        account.spend(Duration::from_micros(100));
        // One watchpoint: 5 us to set and 16 hits of 5 us are 85 us, which 8.5 ms of the target
        // allow.
        let wait = account
            .hits(Duration::ZERO, 1, 1, MIN_HITS, HIT)
            .unwrap_err();
        assert_eq!(wait.as_micros(), 8500);
        assert!(account.hits(wait, 1, 1, MIN_HITS, HIT).is_ok());
    }

    #[test]
    fn overspent_time_is_earned_back_before_the_next_burst() {
        let mut account = account(0.01, 100);
        account.spend(Duration::from_micros(1100));
        // 1 ms too much and 85 us for the next burst: 108.5 ms.
        let wait = account
            .hits(Duration::ZERO, 1, 1, MIN_HITS, HIT)
            .unwrap_err();
        assert_eq!(wait.as_micros(), 108_500);
    }

    #[test]
    fn a_share_of_nothing_never_allows_anything() {
        let account = account(0.0, 0);
        assert_eq!(
            account.hits(Duration::from_secs(1), 1, 1, MIN_HITS, HIT),
            Err(Duration::MAX)
        );
        // Invalid values from outside must not panic.
        let odd = super::Account::new(Budget {
            share: f64::NAN,
            advance: Duration::ZERO,
        });
        assert!(
            odd.hits(Duration::ZERO, u32::MAX, u32::MAX, MIN_HITS, HIT)
                .is_err()
        );
    }
}
