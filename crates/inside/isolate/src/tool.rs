//! The interface between the framework that gives threads private pages ([`crate::episode`],
//! [`crate::worker`]), and the tools on it ([`Protect`], [`Detect`]). SHERIFF (OOPSLA 2011) has the
//! same division in its sections 3, 4 and 5.
//!
//! The framework asks [`Tool::policy`] of single pages, and no page is private without it. It tells
//! when a thread's episode starts and ends, when a write meets a page that is watched, what each
//! commit found changed, and when an interval is over. A tool acts by its answers and through
//! [`Memory`], and by nothing else.
//!
//! Contexts: [`Tool::named`] and [`Tool::thread_start`] in a worker before it computes;
//! all others in its signal handler, where no code of the C library may be executed: no
//! allocation, no locks, no panics, system calls by [`crate::from_worker::call`] alone.
//! What a tool keeps must lie in the control file, or in the worker's own memory, which
//! ends with the episode. Tools are chosen by a `match` ([`Chosen`]), not by pointers to
//! functions, which a broken program could have written to.

use crate::memory::Memory;
use crate::{named, tracking};
use core::sync::atomic::Ordering::Relaxed;
use sunder_transaction::{Change, Mask, Moved, PAGE, WORDS};
use sunder_wire::isolation::{Control, Slot};
use sunder_wire::tracking::mode;

pub use crate::named::Named as Protect;
pub use crate::tracking::Tracked as Detect;

/// A mask of all bytes of a page.
pub static ALL: Mask = [u8::MAX; WORDS];

/// How a page is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// All threads share it, as natively.
    Shared,
    /// Each isolated thread has a private copy between commits.
    Private,
}

/// A page that a tool knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its address, a multiple of [`PAGE`].
    pub address: usize,
    /// The tool's own number for it, which the framework passes back.
    pub number: usize,
}

impl Page {
    /// Whether some of its bytes lie in a range.
    pub const fn is_in(&self, start: usize, bytes: usize) -> bool {
        self.address < start.saturating_add(bytes) && start < self.address + PAGE
    }
}

/// A write that met a watched page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address of the write.
    pub address: usize,
    /// The address of the writing instruction.
    pub instruction: usize,
}

impl Fault {
    /// The address of the page.
    pub const fn page(&self) -> usize {
        self.address & !(PAGE - 1)
    }
}

/// A private page at its commit.
#[derive(Clone, Copy, Debug)]
pub struct Private {
    /// The page.
    pub page: Page,
    /// The write that made it private, if one did.
    pub first: Option<Fault>,
    /// When the commit began (monotonic clock, ns).
    pub time: u64,
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
pub struct Place(pub [u64; 17]);

/// A tool on the framework.
pub trait Tool {
    /// Whether first writes to all sharable memory may be watched ([`Memory::watch_all`],
    /// [`Memory::watch`]). Without it only named pages can be private.
    fn watches(&self) -> bool {
        false
    }

    /// The pages that may be private from an episode's start; the policy decides whether they are.
    fn named(&self) -> impl Iterator<Item = Page>;

    /// How a page is to be treated. Called for the named pages at an episode's start, after each
    /// fault, and for each private page after each commit. A private page that is to be shared ends
    /// the episode.
    fn policy(&self, page: Page) -> Policy;

    /// The bytes of a page that are to be isolated. Changes of other bytes are committed, too, but
    /// counted as [`Moved::beside`].
    fn meant(&self, _page: Page) -> &Mask {
        &ALL
    }

    /// A thread's episode begins and will continue from `place`. The named pages are private. False
    /// ends the episode before anything was computed.
    fn thread_start(&self, _place: &Place, _memory: &Memory) -> bool {
        true
    }

    /// The thread's first write to a watched page, which is writable from then on. Returns the page
    /// if it may become private; the policy is asked next.
    fn fault(&self, _fault: &Fault, _memory: &Memory) -> Option<Page> {
        None
    }

    /// A commit writes a word that the thread has changed. Called for each such word of a page,
    /// before [`Tool::commit`].
    fn change(&self, _of: &Private, _change: &Change) {}

    /// A page has been committed.
    fn commit(&self, _of: &Private, _came_to: &Committed) {}

    /// All pages were committed and refreshed, and the thread continues from `place`. False ends
    /// the episode.
    fn tick(&self, _place: &Place, _memory: &Memory) -> bool {
        true
    }

    /// The episode ends; all pages have been committed.
    fn thread_end(&self) {}
}

/// The tool that the control file asks for.
pub enum Chosen<'a> {
    /// `sunder protect`.
    Protect(Protect<'a>),
    /// `sunder detect --observer isolate`, and `sunder protect --eager`, which finds pages
    /// in the same way.
    Detect(Detect<'a>),
}

impl<'a> Chosen<'a> {
    /// The tool for the episode of the thread in this slot.
    pub fn new(control: &'a Control, slot: &'a Slot) -> Self {
        if tracks(control) {
            Self::Detect(Detect::new(control, slot, &tracking::OWN))
        } else {
            Self::Protect(Protect::new(control))
        }
    }
}

fn tracks(control: &Control) -> bool {
    control.tracking.mode.load(Relaxed) != mode::OFF
}

/// Whether a worker may have a private page in this range. Not called in a worker.
pub fn may_be_private(control: &Control, start: usize, bytes: usize) -> bool {
    tracks(control) || named::any_private(&Protect::new(control), start, bytes)
}

macro_rules! of_chosen {
    ($chosen:expr, $tool:ident => $act:expr) => {
        match $chosen {
            Chosen::Protect($tool) => $act,
            Chosen::Detect($tool) => $act,
        }
    };
}

impl Tool for Chosen<'_> {
    fn watches(&self) -> bool {
        of_chosen!(self, tool => tool.watches())
    }

    fn named(&self) -> impl Iterator<Item = Page> {
        let named = match self {
            Self::Protect(named) => named,
            Self::Detect(tracked) => tracked.names(),
        };
        named.named()
    }

    fn policy(&self, page: Page) -> Policy {
        of_chosen!(self, tool => tool.policy(page))
    }

    fn meant(&self, page: Page) -> &Mask {
        of_chosen!(self, tool => tool.meant(page))
    }

    fn thread_start(&self, place: &Place, memory: &Memory) -> bool {
        of_chosen!(self, tool => tool.thread_start(place, memory))
    }

    fn fault(&self, fault: &Fault, memory: &Memory) -> Option<Page> {
        of_chosen!(self, tool => tool.fault(fault, memory))
    }

    fn change(&self, of: &Private, change: &Change) {
        of_chosen!(self, tool => tool.change(of, change));
    }

    fn commit(&self, of: &Private, came_to: &Committed) {
        of_chosen!(self, tool => tool.commit(of, came_to));
    }

    fn tick(&self, place: &Place, memory: &Memory) -> bool {
        of_chosen!(self, tool => tool.tick(place, memory))
    }

    fn thread_end(&self) {
        of_chosen!(self, tool => tool.thread_end());
    }
}
