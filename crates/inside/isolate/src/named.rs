//! The tool of `sunder protect`: pages that the control file names are private from each episode's
//! start. The isolation is meant for certain bytes of a page; if others change on it, the page is
//! shared again for good. It does not choose threads: the tool outside does.
//!
//! Contexts: those of [`crate::tool`].

use crate::memory::{ALL, Fault, Memory, Page};
use crate::tool::{Committed, Policy, Position, Tool};
use core::sync::atomic::Ordering::Relaxed;
use sunder_transaction::Mask;
use sunder_wire::commits::shared;
use sunder_wire::isolation::{BESIDE, COSTLY, Control, PAGES, PrivatePage};

/// The named pages. The number of a page is its index in [`Control::pages`].
pub struct Named<'a> {
    pages: &'a [PrivatePage; PAGES],
    count: usize,
}

impl<'a> Named<'a> {
    /// The pages that the control file names now.
    pub fn new(control: &'a Control) -> Self {
        Self {
            pages: &control.pages,
            count: control.page_count.load(Relaxed) as usize,
        }
    }
}

/// Whether a named page of the range is to be private.
pub fn any_private(named: &Named<'_>, start: usize, bytes: usize) -> bool {
    named
        .named()
        .any(|page| page.is_in(start, bytes) && named.policy(page) == Policy::Private)
}

impl Tool for Named<'_> {
    fn watches(&self) -> bool {
        false
    }

    fn named(&self) -> impl Iterator<Item = Page> {
        let pages = self.pages.iter().take(self.count).enumerate();
        pages.map(|(number, page)| Page {
            address: page.address.load(Relaxed) as usize,
            number,
        })
    }

    fn policy(&self, page: Page) -> Policy {
        match self.pages.get(page.number) {
            Some(wanted) if wanted.given_up.load(Relaxed) == 0 => Policy::Private,
            _ => Policy::Shared,
        }
    }

    fn meant(&self, page: Page) -> &Mask {
        match self.pages.get(page.number) {
            // SAFETY: both are 512 bytes, and the mask is not written any more once it is there.
            Some(wanted) => unsafe { &*(&raw const wanted.bytes).cast::<Mask>() },
            None => &ALL,
        }
    }

    fn commit(&self, page: Page, outcome: &Committed) {
        let beside = outcome.written.beside + outcome.read.beside;
        if let Some(wanted) = self.pages.get(page.number) {
            wanted.work.fetch_add(1, Relaxed);
            if beside > 0 {
                // A page whose object is gone keeps that reason.
                let _ = wanted
                    .given_up
                    .compare_exchange(0, BESIDE, Relaxed, Relaxed);
            }
        }
    }

    fn thread_start(&self, _position: &Position, _memory: &Memory) -> bool {
        true
    }

    fn used(&self, _fault: &Fault, _writes: bool) -> bool {
        false
    }

    fn fault(&self, _fault: &Fault, _memory: &Memory) -> Option<Page> {
        None
    }

    fn why_shared(&self, page: Page) -> u32 {
        match self.pages.get(page.number) {
            Some(wanted) if wanted.given_up.load(Relaxed) == COSTLY => shared::COSTLY,
            _ => 0,
        }
    }

    fn sees_others(&self) -> bool {
        true
    }

    fn tick(&self, _position: &Position, _memory: &Memory) -> bool {
        true
    }

    fn thread_end(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use sunder_transaction::Moved;
    use sunder_wire::isolation::GONE;

    fn named(control: &Control) -> Vec<Page> {
        let tool = Named::new(control);
        let private = tool.named().filter(|p| tool.policy(*p) == Policy::Private);
        private.collect()
    }

    #[test]
    fn a_named_page_is_shared_again_when_other_bytes_change() {
        let control = testing::control();
        for (page, address) in control.pages.iter().zip([0x5000, 0x9000]) {
            page.address.store(address, Relaxed);
            page.bytes[0].store(0xff, Relaxed);
        }
        control.page_count.store(2, Relaxed);
        let [first, second] = named(&control)[..] else {
            panic!("two are named");
        };
        assert_eq!((first.address, second.address), (0x5000, 0x9000));
        let tool = Named::new(&control);
        assert_eq!(tool.meant(first)[..2], [0xff, 0]);
        let meant = Moved {
            bytes: 8,
            beside: 0,
        };
        let both = Committed {
            written: meant,
            read: meant,
            contended: true,
        };
        tool.commit(first, &both);
        assert_eq!(
            tool.policy(first),
            Policy::Private,
            "what is meant may change"
        );
        for (page, beside) in [
            (
                first,
                Committed {
                    written: Moved {
                        bytes: 1,
                        beside: 1,
                    },
                    ..Committed::default()
                },
            ),
            (
                second,
                Committed {
                    read: Moved {
                        bytes: 1,
                        beside: 1,
                    },
                    ..Committed::default()
                },
            ),
        ] {
            tool.commit(page, &beside);
            assert_eq!(tool.policy(page), Policy::Shared, "{beside:?}");
        }
        assert_eq!(named(&control), []);
    }

    #[test]
    fn ranges_with_a_private_page_are_exact_to_the_byte() {
        let control = testing::control();
        control.pages[0].address.store(0x5000, Relaxed);
        control.page_count.store(1, Relaxed);
        let any = |start, bytes| any_private(&Named::new(&control), start, bytes);
        assert!(any(0x4000, 0x1001) && any(0x5fff, 1) && any(0, usize::MAX));
        assert!(!any(0x4000, 0x1000) && !any(0x6000, 0x1000));
        // The count is out of range: the file's contents are not trusted.
        control.page_count.store(u32::MAX, Relaxed);
        assert_eq!(Named::new(&control).named().count(), PAGES);
        control.pages[0].given_up.store(GONE, Relaxed);
        assert!(!any(0x5000, 0x1000));
    }
}
