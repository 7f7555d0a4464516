//! A set of pages. Used by `choose` for those that were decided about. Pure.

use std::collections::HashSet;
use sunder_access::{Address, PAGE, Span};

/// Pages, by the address of their first byte.
#[derive(Clone, Debug, Default)]
pub struct Pages(HashSet<u64>);

impl Pages {
    /// Whether the page that holds the address `at` is in the set.
    pub fn hold(&self, at: u64) -> bool {
        self.0.contains(&(at & !(PAGE - 1)))
    }

    /// Adds the pages from `page` on that have `len` bytes together.
    pub fn add(&mut self, page: u64, len: u64) {
        self.0.extend((0..len / PAGE).map(|n| page + n * PAGE));
    }

    /// Takes them out.
    pub fn remove(&mut self, page: u64, len: u64) {
        self.0.retain(|at| at.wrapping_sub(page) >= len);
    }

    /// The page that holds `at`, with those of the set that follow on it and lie before it without a
    /// gap; `None` if it is not in the set.
    pub fn around(&self, at: Address) -> Option<Span> {
        let page = at.0 & !(PAGE - 1);
        self.hold(page).then_some(())?;
        let before = (1..).map_while(|n: u64| page.checked_sub(n * PAGE));
        let before = before.take_while(|&one| self.hold(one)).count() as u64;
        let after = (1..).map_while(|n: u64| page.checked_add(n * PAGE));
        let after = after.take_while(|&one| self.hold(one)).count() as u64;
        let start = Address(page - before * PAGE);
        Some(Span::new(start, (before + 1 + after) * PAGE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_without_a_gap_belong_together() {
        let mut pages = Pages::default();
        pages.add(4 * PAGE, 2 * PAGE);
        pages.add(6 * PAGE, PAGE);
        pages.add(8 * PAGE, PAGE);
        let around = |pages: &Pages, at| pages.around(Address(at));
        let three = Span::new(Address(4 * PAGE), 3 * PAGE);
        for at in [4 * PAGE, 5 * PAGE + 64, 7 * PAGE - 1] {
            assert_eq!(around(&pages, at), Some(three));
        }
        assert_eq!(around(&pages, 7 * PAGE), None);
        assert!(pages.hold(8 * PAGE + 1) && !pages.hold(9 * PAGE));
        pages.remove(5 * PAGE, PAGE);
        assert_eq!(
            around(&pages, 6 * PAGE),
            Some(Span::new(Address(6 * PAGE), PAGE))
        );
        // The first page and the last one have one neighbour each.
        pages.add(0, PAGE);
        pages.add(0u64.wrapping_sub(PAGE), PAGE);
        assert_eq!(around(&pages, 8), Some(Span::new(Address(0), PAGE)));
    }
}
