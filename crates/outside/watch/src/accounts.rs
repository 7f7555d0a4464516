//! What each owner of processes has taken of the budget. Whoever starts ever new programs, or has files that
//! take long to read, pays for them with looks at his own processes. Pure.
//!
//! An owner owes the CPU time that looks at his processes took. An equal part of the budget for each owner pays it
//! off. An owner who owes more than can be saved has to wait. His debt does not keep others waiting.

use crate::owner::Owner;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The most owners that are told apart.
const MOST: usize = 1024;
/// One whose processes were not to be looked at for so long has no part of the budget.
const WANTS_FOR: Duration = Duration::from_secs(600);
/// Up to so many CPU seconds that others owe are not counted as spent when an owner asks. The limit keeps the
/// budget in the long run, however many owners there are.
const MOST_EXCUSED: f64 = 60.0;

/// See the module's head.
#[derive(Debug, Default)]
pub struct Accounts(HashMap<Owner, Account>);

#[derive(Debug)]
struct Account {
    /// CPU seconds.
    owes: f64,
    /// When one of his processes was last to be looked at.
    wanted: Instant,
}

impl Accounts {
    /// A process of this owner is to be looked at. Returns who pays for it.
    pub fn wants(&mut self, owner: Owner, now: Instant) -> Owner {
        let owner = if self.0.contains_key(&owner) || self.0.len() < MOST {
            owner
        } else {
            Owner::Others
        };
        let account = self.0.entry(owner.clone()).or_insert(Account {
            owes: 0.0,
            wanted: now,
        });
        account.wanted = now;
        owner
    }

    /// A look at a process of this owner has taken so many CPU seconds.
    pub fn took(&mut self, owner: &Owner, seconds: f64) {
        if let Some(account) = self.0.get_mut(owner) {
            account.owes += seconds.max(0.0);
        }
    }

    /// The budget has grown by so many CPU seconds.
    pub fn pay(&mut self, seconds: f64, now: Instant) {
        let wants = |account: &Account| now.duration_since(account.wanted) < WANTS_FOR;
        let parts = self.0.values().filter(|a| wants(a) || a.owes > 0.0).count();
        let part = seconds / parts.max(1) as f64;
        for account in self.0.values_mut() {
            account.owes = (account.owes - part).max(0.0);
        }
        self.0
            .retain(|_, account| wants(account) || account.owes > 0.0);
    }

    /// CPU seconds that this owner owes.
    pub fn owes(&self, owner: &Owner) -> f64 {
        self.0.get(owner).map_or(0.0, |account| account.owes)
    }

    /// Whether a process of this owner may be looked at, if so many CPU seconds are left of the budget, less
    /// than none if it is overdrawn, and `saved` can be saved at most.
    pub fn may_look(&self, owner: &Owner, left: f64, saved: f64) -> bool {
        let others = self.0.iter().filter(|&(other, _)| other != owner);
        let owed: f64 = others.map(|(_, account)| account.owes).sum();
        self.owes(owner) < saved && left + owed.min(MOST_EXCUSED) > 0.0
    }

    /// Whether nobody but this owner has processes that are to be looked at.
    pub fn is_alone(&self, owner: &Owner) -> bool {
        self.0.keys().all(|other| other == owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Owner = Owner::User(1);
    const TWO: Owner = Owner::User(2);
    /// What can be saved of a budget of 1 %.
    const SAVED: f64 = 6.0;

    /// A budget of 1 % with nothing saved, from which two owners look as often as they may.
    struct Machine {
        accounts: Accounts,
        left: f64,
        now: Instant,
    }

    impl Machine {
        fn new(owners: &[Owner]) -> Self {
            let mut accounts = Accounts::default();
            let now = Instant::now();
            for owner in owners {
                assert_eq!(accounts.wants(owner.clone(), now), *owner);
            }
            Self {
                accounts,
                left: 0.5,
                now,
            }
        }

        /// How many looks of so many CPU seconds each of the owners had in so many seconds.
        fn looks<const N: usize>(&mut self, seconds: u32, all: [(&Owner, f64); N]) -> [u32; N] {
            let mut looks = [0; N];
            for _ in 0..seconds {
                self.now += Duration::from_secs(1);
                self.left = (self.left + 0.01).min(SAVED);
                self.accounts.pay(0.01, self.now);
                for (number, (owner, cost)) in all.into_iter().enumerate() {
                    self.accounts.wants(owner.clone(), self.now);
                    if self.accounts.may_look(owner, self.left, SAVED) {
                        self.accounts.took(owner, cost);
                        self.left -= cost;
                        looks[number] += 1;
                    }
                }
            }
            looks
        }
    }

    #[test]
    fn one_whose_programs_take_the_whole_budget_leaves_half_of_it_to_another() {
        let mut machine = Machine::new(&[ONE, TWO]);
        let [dear, cheap] = machine.looks(40_000, [(&ONE, 40.0), (&TWO, 0.1)]);
        // 400 s in all: half is 200 s of each, and each may save or owe a little.
        assert!((4..=6).contains(&dear), "{dear}");
        assert!((1_700..=2_700).contains(&cheap), "{cheap}");
        let spent = f64::from(dear) * 40.0 + f64::from(cheap) * 0.1;
        assert!(spent <= 400.0 + MOST_EXCUSED + 40.0 + SAVED, "{spent}");
    }

    #[test]
    fn one_alone_has_the_whole_budget() {
        let mut machine = Machine::new(&[ONE]);
        let [looks] = machine.looks(10_000, [(&ONE, 0.1)]);
        assert!((950..=1_050).contains(&looks), "{looks}");
        assert!(machine.accounts.is_alone(&ONE));
        machine.accounts.wants(TWO, machine.now);
        assert!(!machine.accounts.is_alone(&ONE));
    }

    #[test]
    fn the_budget_is_kept_by_many_owners_whose_looks_are_dear() {
        let owners: [Owner; 20] = std::array::from_fn(|n| Owner::User(n as u32));
        let mut machine = Machine::new(&owners);
        let looks = machine.looks(
            20_000,
            std::array::from_fn::<_, 20, _>(|n| (&owners[n], 40.0)),
        );
        let spent = f64::from(looks.iter().sum::<u32>()) * 40.0;
        assert!(spent <= 200.0 + MOST_EXCUSED + 40.0, "{spent}");
    }

    #[test]
    fn owners_beyond_a_bound_share_an_account_and_old_ones_are_forgotten() {
        let mut accounts = Accounts::default();
        let now = Instant::now();
        for user in 0..2_000 {
            accounts.wants(Owner::User(user), now);
        }
        assert_eq!(accounts.wants(Owner::User(7), now), Owner::User(7));
        assert_eq!(accounts.wants(Owner::User(1_999), now), Owner::Others);
        accounts.took(&ONE, 1.0);
        accounts.pay(0.5, now + WANTS_FOR);
        assert_eq!(accounts.owes(&ONE), 0.5);
        assert_eq!(accounts.wants(Owner::User(1_999), now), Owner::User(1_999));
    }
}
