//! One episode, seen from its worker: everything between a thread's entry into isolation and its
//! return, for any tool ([`crate::tool`]). Called by [`crate::worker`]; must not know what the tool
//! is for.
//!
//! Contexts: [`Episode::add`] and [`Episode::begin`] in the worker before it computes; the others
//! in its signal handler, where no code of the C library may be executed.

use crate::from_worker;
use crate::memory::{Fault, Memory, Page, Twinned};
use crate::tool::{Committed, Policy, Position, Private, Tool};
use core::sync::atomic::Ordering::Relaxed;
use sunder_transaction as transaction;
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
        self.tool.thread_start(position, self.memory)
    }

    /// Handles a write to a protected page; returns whether the thread may continue with it.
    pub fn on_write(&self, fault: &Fault) -> bool {
        let at = fault.page();
        if !self.memory.can_be_watched(at) {
            return false;
        }
        if self.memory.is_private(at) {
            return self.memory.open(at);
        }
        let known = self.tool.fault(fault, self.memory);
        // The page is made writable first, because the second mapping of the shared page inherits
        // that.
        if !self.memory.open(at) {
            return false;
        }
        if let Some(page) = known.filter(|page| page.address == at && self.is_private(*page)) {
            // If taking it fails, the page stays shared in this episode.
            self.memory.take(page, Some(*fault));
        }
        true
    }

    /// Commits all pages and, if `refresh`, takes over what others wrote. Without `refresh` it is
    /// the last commit, and the thread must write nothing more here. False if a page must not stay
    /// private.
    pub fn commit(&self, refresh: bool) -> bool {
        let time = from_worker::clock(libc::CLOCK_MONOTONIC);
        let (mut sound, mut bytes) = (true, 0);
        for own in self.memory.private() {
            let of = Private {
                page: own.page(),
                first: own.first(),
                time,
            };
            let outcome = self.commit_one(own, &of, refresh);
            bytes += u64::from(outcome.written.bytes);
            self.tool.commit(&of, &outcome);
            sound &= self.is_private(of.page);
        }
        if bytes > 0 {
            self.slot.written.fetch_add(bytes, Relaxed);
            self.control.committed_bytes.fetch_add(bytes, Relaxed);
            self.control.commits.fetch_add(1, Relaxed);
        }
        sound
    }

    fn commit_one(&self, own: &Twinned, of: &Private, refresh: bool) -> Committed {
        let meant = self.tool.meant(of.page);
        own.with(|page, twin, shared| {
            let mut outcome = Committed::default();
            outcome.written = transaction::commit_each(page, twin, shared, meant, |change| {
                outcome.contended |= change.both != 0;
                self.tool.change(of, &change);
            });
            if refresh {
                outcome.read = transaction::refresh(page, twin, shared, meant);
            }
            outcome
        })
    }

    /// All pages were committed and refreshed; returns whether the thread continues from
    /// `position`.
    pub fn on_tick(&self, position: &Position) -> bool {
        self.tool.tick(position, self.memory)
    }

    /// All pages were committed, and the episode ends.
    pub fn end(&self) {
        self.tool.thread_end();
    }
}

#[cfg(test)]
mod tests;
