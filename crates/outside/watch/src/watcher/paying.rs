//! Who pays for what watching takes: looks and their names are paid by the owners of the processes, the rest by
//! nobody in particular. Called by the loop; must not begin or end anything.

use super::Watcher;
use crate::aside::Aside;
use crate::look::Look;
use crate::owner::Owner;
use crate::spend::own_seconds;
use std::time::Instant;
use sunder_pipeline::own_cpu_seconds;

impl Watcher {
    /// CPU seconds of this process, and of those that name and named what was found.
    pub(super) fn own_seconds(&self) -> f64 {
        let namings = self.namings.iter().chain(&self.ended);
        let at_work = namings.map(|naming| Aside::cpu_seconds(&naming.aside));
        own_seconds() + at_work.sum::<f64>()
    }

    /// Accounts what was spent since the last call.
    pub(super) fn account(&mut self) {
        for naming in self.namings.iter_mut().chain(&mut self.ended) {
            let seconds = naming.took();
            self.accounts.took(&naming.owner, seconds);
        }
        let grown = self.spend.account(self.own_seconds(), self.interrupts());
        self.accounts.pay(grown, Instant::now());
    }

    /// Forgets namings that are over when their processes are gone.
    pub(super) fn forget_ended(&mut self) {
        for naming in &mut self.ended {
            let seconds = naming.took();
            self.accounts.took(&naming.owner, seconds);
        }
        self.ended.retain_mut(|naming| !naming.aside.is_reaped());
    }

    /// What [`Self::looks_took`] needs. Looks at events come in between.
    pub(super) fn looks_begin(&self) -> f64 {
        if self.looks.is_empty() {
            0.0
        } else {
            own_cpu_seconds()
        }
    }

    /// All looks have gone on since then, for an equal part of the time each.
    pub(super) fn looks_took(&mut self, before: f64) {
        if self.looks.is_empty() {
            return;
        }
        let each = (own_cpu_seconds() - before) / self.looks.len() as f64;
        for look in &self.looks {
            self.accounts.took(&look.owner, each);
        }
    }

    /// Whether what the look has found may be named now, at most so many of all looks at a time.
    pub(super) fn may_name(&self, look: &Look, most: usize) -> bool {
        let owners = self.namings.iter().map(|naming| &naming.owner);
        self.has_place(owners, &look.owner, most)
    }

    /// Whether there is a place for one more of `owner`, beside those of `owners`. The last place is not for one
    /// who has all others, if anybody else may want it.
    pub(super) fn has_place<'a>(
        &self,
        owners: impl Iterator<Item = &'a Owner> + Clone,
        owner: &Owner,
        most: usize,
    ) -> bool {
        let own = owners.clone().filter(|&other| other == owner).count();
        let is_free = owners.count() < most;
        is_free && (own + 1 < most || self.accounts.is_alone(owner))
    }
}
