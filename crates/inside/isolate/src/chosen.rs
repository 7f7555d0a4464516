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

    fn used(&self, fault: &Fault, writes: bool) -> bool {
        of_chosen!(self, tool => tool.used(fault, writes))
    }

    fn fault(&self, fault: &Fault, memory: &Memory) -> Option<Page> {
        of_chosen!(self, tool => tool.fault(fault, memory))
    }

    fn why_shared(&self, page: Page) -> u32 {
        of_chosen!(self, tool => tool.why_shared(page))
    }

    fn commit(&self, page: Page, outcome: &Committed) {
        of_chosen!(self, tool => tool.commit(page, outcome));
    }

    fn sees_others(&self) -> bool {
        of_chosen!(self, tool => tool.sees_others())
    }

    fn tick(&self, position: &Position, memory: &Memory) -> bool {
        of_chosen!(self, tool => tool.tick(position, memory))
    }

    fn thread_end(&self) {
        of_chosen!(self, tool => tool.thread_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use sunder_wire::commits::shared as why;
    use sunder_wire::isolation::PAGES;
    use sunder_wire::tracking::page;

    /// As workers do: the tool is chosen anew for each event.
    #[test]
    fn a_page_on_which_a_thread_waits_for_others_stays_shared() {
        let control = testing::control();
        control.tracking.mode.store(mode::DETECT, Relaxed);
        let slots = &control.slots[..2];
        let mut pages = slots.iter().zip(7..).map(|(slot, thread)| {
            slot.thread.store(thread, Relaxed);
            let fault = Fault {
                address: 0x7008,
                instruction: 0x1234,
            };
            Chosen::new(&control, slot).fault(&fault, &testing::memory())
        });
        assert_eq!(pages.next(), Some(None));
        let page = pages.next().flatten().expect("two threads write the page");
        assert_eq!(page.number, PAGES);
        control.tracking.decide(0, page::PRIVATE);
        let tool = || Chosen::new(&control, &slots[0]);
        let mut sees = true;
        for _ in 0..40 {
            // It writes in an interval if it has seen what others wrote.
            let mut outcome = Committed::default();
            outcome.written.bytes = u32::from(sees);
            sees = tool().sees_others();
            tool().commit(page, &outcome);
            if tool().policy(page) == Policy::Shared {
                assert_eq!(tool().why_shared(page), why::AWAITED);
                return;
            }
            assert!(tool().tick(&Position([0; 17]), &testing::memory()));
        }
        panic!("the page stayed private");
    }
}
