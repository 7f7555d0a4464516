//! All remedies at one running program. Of moving and isolating, which act on what is there, at most one
//! does so at any time; placing concerns what comes. Driven by the loop of `live`. It must not look at
//! the program itself.

use crate::placer::Placer;
use crate::tell;
use anyhow::Result;
use std::process::ExitStatus;
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_findings::{Cure, Findings, Limit};
use sunder_live::{Live, LiveRemedy, Loaded};
use sunder_observe::ObserveError;
use sunder_observe::launch::Child;
use sunder_observe::watch::Budget;
use sunder_pipeline::Wanted;
use sunder_protect::Protector;
use sunder_repair::Repairer;

/// Moves bytes, isolates what can't be moved, and places what is allocated from then on.
pub struct Both<'a> {
    mover: Repairer,
    isolator: Protector<'a>,
    placer: Placer,
    /// A plan says that something is to be isolated.
    is_planned: bool,
    /// Since when moving has made way for isolating, until it is known whether threads are isolated.
    made_way: Option<Duration>,
}

/// If no thread was seen by then that can be isolated, none is expected any more.
const PATIENCE: Duration = Duration::from_secs(1);

impl<'a> Both<'a> {
    /// For a program that is about to be started. `plan` is the result of an earlier run of it.
    ///
    /// # Errors
    /// If the kernel gives us no memory.
    pub fn new(
        mover: Repairer,
        isolate: &'a sunder_protect::Options,
        plan: Option<&Findings>,
    ) -> Result<Self> {
        let is_planned = mover.leaves_any_to_others();
        let mut both = Self {
            mover,
            isolator: Protector::new(isolate)?,
            placer: Placer::default(),
            is_planned,
            made_way: None,
        };
        if let Some((plan, cure)) = plan.and_then(|plan| Some((plan, plan.cure.as_ref()?))) {
            let program = plan.program.path.as_deref();
            both.placer
                .follow(&cure.placed, program, &mut both.isolator);
        }
        Ok(both)
    }

    /// Adds to the result of the program, which has ended with `exit`, what was done, and says it
    /// in lines for people.
    pub fn tell(mut self, findings: &mut Findings, exit: ExitStatus) -> Vec<String> {
        let mut limits = findings.limits.iter();
        let others = limits.any(|limit| matches!(limit, Limit::ProcessesLeftOut));
        let outcome = self.isolator.outcome(exit, others);
        let isolated: Vec<_> = self.isolator.isolated().collect();
        let moved = self.mover.tell(findings);
        let placed = self.placer.placed().to_vec();
        let mut lines = tell::lines(moved, &isolated, outcome.line, !placed.is_empty());
        lines.extend(tell::placed(&placed, self.isolator.placing().1));
        findings.cure = Some(Cure { isolated, placed });
        lines
    }
}

impl LiveRemedy for Both<'_> {
    fn load(&self) -> Option<Loaded> {
        self.isolator.load()
    }

    fn waits_for_samples(&self) -> bool {
        self.mover.waits_for_samples() || self.isolator.waits_for_samples()
    }

    fn can_follow(&self) -> bool {
        self.mover.can_follow() && self.isolator.can_follow()
    }

    fn budget(&self, share: f64) -> Budget {
        self.mover.budget(share)
    }

    fn wanted(&self) -> Wanted {
        self.mover.wanted()
    }

    fn begins(&mut self, process: ProcessId) -> Result<()> {
        self.mover.begins(process)?;
        self.placer.begins(process);
        self.isolator.begins(process)
    }

    fn step(&mut self, live: &mut Live) {
        let isolates = self.isolator.is_open();
        self.mover
            .set_beside(isolates.then_some(sunder_protect::could_isolate));
        self.mover.step(live);
        if self.is_planned && live.first_suspect.is_some() {
            self.isolator.expect_work();
        }
        // Bytes at another place, and code that was copied for them, can't be isolated.
        let among = if self.mover.is_moving() {
            Vec::new()
        } else {
            self.mover.failed()
        };
        self.isolator.choose_only(among);
        self.isolator.trust_samples_on(self.mover.left_to_others());
        self.isolator.step(live);
        if self.isolator.is_isolating() && !self.mover.retired {
            self.mover.retire();
            self.made_way = Some(live.elapsed());
        }
        let waits = |since| live.elapsed() < since + PATIENCE;
        if self.made_way.is_some_and(|since| !waits(since)) {
            self.made_way = None;
            if self.isolator.has_changed_nothing() && self.mover.come_back() {
                self.isolator.give_up();
            }
        }
        let names = self.mover.has_decided();
        self.placer.step(live, names, &mut self.isolator);
    }

    fn ended(&mut self, live: &mut Live) {
        self.mover.ended(live);
        self.isolator.ended(live);
    }

    fn patience(&self) -> Option<Duration> {
        let both = [self.mover.patience(), self.isolator.patience()];
        both.into_iter().flatten().min()
    }

    fn collect(&mut self, child: &mut Child) -> Result<Option<ExitStatus>, ObserveError> {
        self.isolator.collect(child)
    }
}
