//! The interface between the framework that gives threads private pages ([`crate::episode`],
//! [`crate::worker`]), and the tools on it ([`crate::named`], [`crate::tracking`]). SHERIFF (OOPSLA
//! 2011) has the same division in its sections 3, 4 and 5.
//!
//! The framework asks [`Tool::policy`] of single pages, and no page is private without it. It tells
//! when a thread's episode starts and ends, when a write meets a page that is watched, when a page
//! was committed, and when an interval is over. A tool acts by its answers and through [`Memory`],
//! and by nothing else. What each commit changed, the framework itself logs ([`crate::log`]).
//!
//! Contexts: [`Tool::named`] and [`Tool::thread_start`] in a worker before it computes;
//! all others in its signal handler, where no code of the C library may be executed: no
//! allocation, no locks, no panics, system calls by [`crate::from_worker::call`] alone.
//! What a tool keeps must lie in the control file, or in the worker's own memory, which
//! ends with the episode. [`crate::chosen`] chooses the tool.

use crate::memory::{Fault, Memory, Page};
use sunder_transaction::{Mask, Moved};

/// How a page is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// All threads share it, as natively.
    Shared,
    /// Each isolated thread has a private copy between commits.
    Private,
}

/// The outcome of a commit for one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// What the thread had written.
    pub written: Moved,
    /// What others had written, if the commit looked for that.
    pub read: Moved,
    /// Bytes that the thread and others had both written: they synchronised in no way that a worker
    /// sees.
    pub contended: bool,
}

/// A thread's position: the instruction pointer, then the general registers in the order of their
/// numbers (rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(pub [u64; 17]);

/// A tool on the framework. No function has a default: [`crate::chosen`] passes every call on, and one
/// that it forgot would be answered by the default in all programs, while tests of the tool itself pass.
pub trait Tool {
    /// Whether first writes to all sharable memory may be watched ([`Memory::watch_all`],
    /// [`Memory::watch`]). Without it only named pages can be private.
    fn watches(&self) -> bool;

    /// The pages that may be private from an episode's start; the policy decides whether they are.
    fn named(&self) -> impl Iterator<Item = Page>;

    /// How a page is to be treated. Called for the named pages at an episode's start, after each
    /// fault, and for each private page after each commit. A private page that is to be shared ends
    /// the episode.
    fn policy(&self, page: Page) -> Policy;

    /// The bytes of a page that are to be isolated. Changes of other bytes are committed, too, but
    /// counted as [`Moved::beside`].
    fn meant(&self, page: Page) -> &Mask;

    /// A thread's episode begins and will continue from `position`. The named pages are private.
    /// False ends the episode before anything was computed.
    fn thread_start(&self, position: &Position, memory: &Memory) -> bool;

    /// An access to a page that can be watched, but may not be used now in this way; `writes` says in which.
    /// Returns whether the next access to the page is to be told, too. If not, a write is a [`Self::fault`]
    /// as well.
    fn used(&self, fault: &Fault, writes: bool) -> bool;

    /// The thread's first write to a watched page, which is writable from then on. Returns the page
    /// if it may become private; the policy is asked next.
    fn fault(&self, fault: &Fault, memory: &Memory) -> Option<Page>;

    /// Why a page is shared again that was private, if the tool knows it
    /// ([`sunder_wire::commits::shared`]); else 0.
    fn why_shared(&self, page: Page) -> u32;

    /// A page has been committed.
    fn commit(&self, page: Page, outcome: &Committed);

    /// A tick is about to commit all pages. Returns whether the thread may see what others wrote since
    /// the last tick; if not, it sees it at a later one.
    fn sees_others(&self) -> bool;

    /// A tick has committed all pages, and the thread continues from `position`. False ends the episode.
    fn tick(&self, position: &Position, memory: &Memory) -> bool;

    /// The episode ends; all pages have been committed.
    fn thread_end(&self);
}
