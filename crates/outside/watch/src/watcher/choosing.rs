//! Which processes are looked at closely, a few at a time: those whose threads run at once, and those with
//! findings.

use super::Watcher;
use crate::look::Look;
use crate::origin::{build, origin};
use crate::owner::Owner;
use crate::turns::Next;
use std::time::{Duration, Instant};
use sunder_access::ProcessId;
use sunder_findings::Origin;
use sunder_observe::proc;
use sunder_pipeline::own_cpu_seconds;

/// The most looks at a time.
const MOST_LOOKS: usize = 4;
/// The same where each process is looked at once.
const MOST_LOOKS_ONCE: usize = 16;
/// Time at once, in nanoseconds, from which on a process is looked at.
const LEAST_AT_ONCE_NS: u64 = 50_000_000;

/// A process that may be looked at.
struct Candidate {
    owes: f64,
    next: Next,
    process: ProcessId,
    owner: Owner,
}

impl Watcher {
    /// Begins to look at processes whose threads run at once: first those of the owner who owes least, and of
    /// these those that were never looked at.
    pub(super) fn choose(&mut self) {
        let once = self.options.once.is_some();
        let most = if once { MOST_LOOKS_ONCE } else { MOST_LOOKS };
        if self.looks.len() >= most {
            return;
        }
        let own = [std::process::id(), std::os::unix::process::parent_id()];
        let looking: Vec<u32> = self.looks.iter().map(|look| look.origin.pid).collect();
        let naming: Vec<u32> = self.namings.iter().map(|n| n.origin.pid).collect();
        let is_free = |pid: &u32| ![&own[..], &looking, &naming].concat().contains(pid);
        let mut found: Vec<Candidate> = Vec::new();
        let known: Vec<ProcessId> = self.known.processes().map(|o| ProcessId(o.pid)).collect();
        let at_once = self.census.at_once(LEAST_AT_ONCE_NS);
        let interval = if once {
            Duration::MAX
        } else {
            self.options.interval
        };
        let now = Instant::now();
        for process in at_once.into_iter().chain(known) {
            let next = self.turns.next(process, interval, now);
            let is_new = !found.iter().any(|other| other.process == process);
            if next == Next::NotNow || !is_new || !is_free(&process.0) {
                continue;
            }
            let owner = self.accounts.wants(self.owners.of(process), now);
            found.push(Candidate {
                owes: if once {
                    0.0
                } else {
                    self.accounts.owes(&owner)
                },
                next,
                process,
                owner,
            });
        }
        // The order in which they run at once stays among equals.
        found.sort_by(|one, other| {
            let owes = one.owes.total_cmp(&other.owes);
            owes.then(one.next.cmp(&other.next))
        });
        for candidate in found {
            let owners = self.looks.iter().map(|look| &look.owner);
            let owner = &candidate.owner;
            let (left, saved) = (self.spend.left(), self.spend.most());
            let may =
                self.accounts.may_look(owner, left, saved) && self.has_place(owners, owner, most);
            if self.looks.len() < most && (once || may) {
                self.look_at(candidate.process, candidate.owner);
            }
        }
    }

    fn look_at(&mut self, process: ProcessId, owner: Owner) {
        let before = own_cpu_seconds();
        let Some(origin) = origin(process, &self.options.host) else {
            return;
        };
        let wanted = !self.options.shunned.holds(process, origin.started_ticks)
            && self.options.selection.holds(&origin);
        let begun = wanted.then(|| {
            let (build_id, version) = build(process);
            // Its number may be another's by now.
            let same = proc::start_ticks(process) == Some(origin.started_ticks);
            let origin = Origin {
                build_id: build_id.filter(|_| same),
                version: version.filter(|_| same),
                ..origin
            };
            Look::begin(
                origin,
                owner.clone(),
                &self.conditions,
                self.sampler.frequency(),
            )
        });
        match begun {
            Some(Ok(look)) => self.looks.push(look),
            // Not wanted, or not allowed: another program under this number is looked at again.
            Some(Err(_)) | None => self.turns.never(process),
        }
        self.accounts.took(&owner, own_cpu_seconds() - before);
    }
}
