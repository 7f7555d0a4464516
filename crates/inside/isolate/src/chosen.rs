//! The choice between the tools on the framework: [`Protect`] and [`Detect`]. A `match`, not a
//! pointer to functions, which a broken program could have written to.
//!
//! Contexts: those of [`crate::tool`]; [`may_be_private`] is not called in a worker.

use crate::memory::{Fault, Memory, Page};
use crate::named::{self, Named as Protect};
use crate::tool::{Committed, Policy, Position, Tool};
use crate::tracking::{self, Tracked as Detect};
use core::sync::atomic::Ordering::Relaxed;
use sunder_transaction::Mask;
use sunder_wire::isolation::{Control, Slot};
use sunder_wire::tracking::mode;

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
            Self::Detect(Detect::new(control, slot, &tracking::STATE))
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

    fn thread_start(&self, position: &Position, memory: &Memory) -> bool {
        of_chosen!(self, tool => tool.thread_start(position, memory))
    }

    fn fault(&self, fault: &Fault, memory: &Memory) -> Option<Page> {
        of_chosen!(self, tool => tool.fault(fault, memory))
    }

    fn commit(&self, page: Page, outcome: &Committed) {
        of_chosen!(self, tool => tool.commit(page, outcome));
    }

    fn tick(&self, position: &Position, memory: &Memory) -> bool {
        of_chosen!(self, tool => tool.tick(position, memory))
    }

    fn thread_end(&self) {
        of_chosen!(self, tool => tool.thread_end());
    }
}
