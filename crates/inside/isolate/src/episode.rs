//! One episode, seen from its worker: everything between a thread's entry into isolation and its
//! return, for any tool ([`crate::tool`]). Called by [`crate::worker`]; must not know what the tool
//! is for.
//!
//! Contexts: [`Episode::add`] and [`Episode::begin`] in the worker before it computes; the others
//! in its signal handler, where no code of the C library may be executed.

use crate::from_worker;
use crate::log::Log;
use crate::memory::{Fault, Memory, Page, Twinned};
use crate::tool::{Committed, Policy, Position, Tool};
use crate::upkeep;
use core::sync::atomic::Ordering::Relaxed;
use sunder_transaction as transaction;
use sunder_wire::commits::shared;
use sunder_wire::isolation::{Control, Slot};

/// An episode: its control file, slot, memory and tool.
pub struct Episode<'a, T> {
    control: &'a Control,
    slot: &'a Slot,
    memory: &'a Memory,
    tool: T,
}

impl<'a, T: Tool> Episode<'a, T> {
    /// The episode of the thread in this slot.
    pub const fn new(control: &'a Control, slot: &'a Slot, memory: &'a Memory, tool: T) -> Self {
        Self {
            control,
            slot,
            memory,
            tool,
        }
    }

    /// Adds sharable memory that the program may write; pages in it that the tool names become
    /// private. `stack` is the thread's stack pointer. False if the kernel refused.
    pub fn add(&self, start: usize, end: usize, stack: usize) -> bool {
        if self.tool.watches() {
            self.memory.add(start, end, stack);
        }
        self.add_named(start, end)
    }

    /// Adds memory that other processes may have, too. Nothing is watched there, so that only pages
    /// that the tool names become private: others' stores are seen at once. False if the kernel
    /// refused.
    pub fn add_named(&self, start: usize, end: usize) -> bool {
        self.tool
            .named()
            .filter(|page| (start..end).contains(&page.address) && self.is_private(*page))
            .all(|page| self.memory.take(page, None))
    }

    fn is_private(&self, page: Page) -> bool {
        self.tool.policy(page) == Policy::Private
    }

    /// The thread is about to continue from `position` in the memory that was added. False if the
    /// tool or the kernel refuses.
    pub fn begin(&self, position: &Position) -> bool {
        if !self.tool.thread_start(position, self.memory) {
            return false;
        }
        let time = now();
        self.memory.committed_at(time);
        self.log().begin(time);
        for own in self.memory.private() {
            self.log().private(time, own.page());
        }
        true
    }

    fn log(&self) -> Log<'a> {
        Log::new(&self.control.log, self.slot.thread.load(Relaxed))
    }

    /// Handles an access to a page that may not be used in this way; `writes` says in which. A single
    /// instruction can be executed if `can_step`.
    pub fn on_access(&self, fault: &Fault, writes: bool, can_step: bool) -> Next {
        let goes = |sound: bool| if sound { Next::Goes } else { Next::Ends };
        let at = fault.page();
        if !self.memory.can_be_watched(at) {
            return Next::Ends;
        }
        if self.memory.is_private(at) {
            return goes(self.memory.open(at));
        }
        if self.tool.used(fault, writes) && can_step {
            return match self.memory.step(at) {
                true => Next::Steps,
                false => Next::Ends,
            };
        }
        goes(if writes {
            self.first_write(fault, at)
        } else {
            self.memory.open(at)
        })
    }

    /// The thread has executed the instruction for which [`Self::on_access`] answered [`Next::Steps`].
    /// Returns whether it may continue; false if there was none.
    pub fn on_step(&self) -> bool {
        self.memory
            .stepped()
            .is_some_and(|page| self.memory.close(page))
    }

    fn first_write(&self, fault: &Fault, at: usize) -> bool {
        let known = self.tool.fault(fault, self.memory);
        let time = now();
        self.log().write(time, fault);
        // The page is made writable first, because the second mapping of the shared page inherits
        // that.
        if !self.memory.open(at) {
            return false;
        }
        if let Some(page) = known.filter(|page| page.address == at && self.is_private(*page)) {
            let began = upkeep::worker_time();
            // If taking it fails, the page stays shared in this episode.
            if self.memory.take(page, Some(*fault)) {
                self.log().private(time, page);
            }
            upkeep::worked_on_pages(began);
        }
        true
    }

    /// Commits all pages. If the thread `goes_on`, it takes over what others wrote, unless the tool
    /// withholds that. Else it is the last commit, and the thread must write nothing more here. False
    /// if a page must not stay private.
    pub fn commit(&self, goes_on: bool) -> bool {
        let after = match goes_on {
            false => After::End,
            true if self.tool.sees_others() => After::Refresh,
            true => After::Settle,
        };
        let time = now();
        let since = self.memory.committed_at(time);
        let began = upkeep::worker_time();
        let (mut sound, mut bytes) = (true, 0);
        for own in self.memory.private() {
            let page = own.page();
            let outcome = self.commit_one(own, [since, time], after);
            bytes += u64::from(outcome.written.bytes);
            self.tool.commit(page, &outcome);
            if !self.is_private(page) {
                sound = false;
                self.log()
                    .shared(time, page, self.why_shared(page, &outcome));
            }
        }
        if bytes > 0 {
            self.slot.written.fetch_add(bytes, Relaxed);
            self.control.committed_bytes.fetch_add(bytes, Relaxed);
            self.control.commits.fetch_add(1, Relaxed);
        }
        upkeep::worked_on_pages(began);
        sound
    }

    /// Commits a page. The first time is that of the last commit, the second that of this one.
    fn commit_one(&self, own: &Twinned, [since, time]: [u64; 2], after: After) -> Committed {
        let meant = self.tool.meant(own.page());
        let log = self.log();
        let mut changes = log.changes(own.page(), own.first(), time, since);
        own.with(|page, twin, shared| {
            let mut outcome = Committed::default();
            outcome.written = transaction::commit_each(page, twin, shared, meant, |change| {
                outcome.contended |= change.both != 0;
                changes.word(&change);
            });
            changes.flush();
            match after {
                After::Refresh => outcome.read = transaction::refresh(page, twin, shared, meant),
                After::Settle => transaction::settle(page, twin),
                After::End => {}
            }
            outcome
        })
    }

    /// Why a page is shared after this commit, as far as is known.
    fn why_shared(&self, page: Page, outcome: &Committed) -> u32 {
        if outcome.written.beside + outcome.read.beside > 0 {
            shared::OTHER_BYTES
        } else if outcome.contended {
            shared::SAME_BYTES
        } else {
            self.tool.why_shared(page)
        }
    }

    /// A tick has committed all pages; returns whether the thread continues from `position`.
    pub fn on_tick(&self, position: &Position) -> bool {
        self.tool.tick(position, self.memory)
    }

    /// All pages were committed, and the episode ends for this reason
    /// ([`sunder_wire::isolation::why`]).
    pub fn end(&self, why: u32) {
        self.tool.thread_end();
        self.log().end(now(), why);
    }
}

/// How a thread continues after it met a page that it may not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// With the same instruction.
    Goes,
    /// With the same instruction, after which it is interrupted.
    Steps,
    /// Natively: the episode ends.
    Ends,
}

/// What follows the commit of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// The thread goes on with what others wrote.
    Refresh,
    /// The thread goes on with its own copy.
    Settle,
    /// The episode ends.
    End,
}

/// The monotonic clock, ns.
fn now() -> u64 {
    from_worker::clock(libc::CLOCK_MONOTONIC)
}

#[cfg(test)]
mod tests;
