//! What was decided about pages: which are not looked at again, which were put back and may be moved in
//! another way, and which move together. Used by `choose`. Pure.

use crate::pages::Pages;
use crate::proposal::Layout;
use std::time::Duration;
use sunder_access::{Address, LINE, Span, Time};
use sunder_wire::remap::MOST_MOVED;

/// How long another layout is looked for after bytes were put back.
pub const RETHINK: Duration = Duration::from_secs(1);
/// Pause between two such looks; see [`RETHINK`].
const RETHINK_EVERY: Duration = Duration::from_millis(40);
/// Most layouts that are tried for the same bytes.
const LAYOUTS: usize = 3;

/// See the head of this file.
#[derive(Default)]
pub struct Decisions {
    /// Pages that are not looked at again.
    done: Pages,
    /// Pages whose refusal was reported, and that are left alone as long as their lines are shared
    /// as they are.
    reported: Pages,
    /// Pages whose bytes were put back.
    put_back: Vec<PutBack>,
    /// Layouts that were used in moves.
    tried: Vec<Layout>,
    /// Pages that are to move together if any of them does.
    joined: Vec<Span>,
}

/// Pages whose bytes were put back, and for which another layout may be found.
struct PutBack {
    page: u64,
    len: u64,
    /// When they are looked at again, and until when.
    next: Time,
    until: Time,
}

impl PutBack {
    const fn holds(&self, address: Address) -> bool {
        address.0.wrapping_sub(self.page) < self.len
    }
}

impl Decisions {
    /// Pages that are not looked at again.
    pub const fn done(&self) -> &Pages {
        &self.done
    }

    /// Whether a line may be looked at.
    pub fn is_open(&self, line: Address, now: Time) -> bool {
        let rests = |back: &PutBack| back.holds(line) && now < back.next;
        !self.done.hold(line.0) && !self.put_back.iter().any(rests)
    }

    /// Whether the refusal of a line's page was reported.
    pub fn is_reported(&self, line: Address) -> bool {
        self.reported.hold(line.0)
    }

    /// These pages are not looked at again.
    pub fn decide(&mut self, page: u64, len: u64) {
        self.done.add(page, len);
    }

    /// The refusal of these pages was reported.
    pub fn report(&mut self, page: u64, len: u64) {
        self.reported.add(page, len);
    }

    /// The pages with `at` and around it that were decided about; its line alone if it is on none of
    /// them.
    pub fn around(&self, at: Address) -> Span {
        self.done.around(at).unwrap_or(Span::new(at, LINE))
    }

    /// Bytes are about to be moved with this layout.
    pub fn tries(&mut self, layout: Layout) {
        self.tried.push(layout);
    }

    /// Whether bytes were moved with this layout.
    pub fn were_tried(&self, layout: &Layout) -> bool {
        self.tried.contains(layout)
    }

    /// Whether another layout may be tried for the bytes of these pages.
    pub fn may_try_another(&self, page: u64, len: u64) -> bool {
        let on = |&&(from, _): &&(u64, u64)| from.wrapping_sub(page) < len;
        let of_these = |layout: &&Layout| layout.iter().any(|group| on(&group));
        self.tried.iter().filter(of_these).count() < LAYOUTS
    }

    /// The bytes of these pages were put back. Another layout may do better, if more is known by
    /// now.
    pub fn put_back(&mut self, page: u64, len: u64, now: Time) {
        if !self.may_try_another(page, len) {
            return;
        }
        self.put_back.retain(|b| b.page != page);
        self.done.remove(page, len);
        self.put_back.push(PutBack {
            page,
            len,
            next: now.after(RETHINK_EVERY),
            until: now.after(RETHINK),
        });
    }

    /// Whether the bytes of a line were put back, and another layout is looked for.
    pub fn went_back(&self, line: Address) -> bool {
        self.put_back.iter().any(|back| back.holds(line))
    }

    /// The pages of a line are looked at a moment later, since no other layout is known yet.
    pub fn look_later(&mut self, line: Address, now: Time) {
        let back = self.put_back.iter_mut().filter(|back| back.holds(line));
        back.for_each(|back| back.next = now.after(RETHINK_EVERY));
    }

    /// The same bytes are moved again with the same layout.
    pub fn moved_again(&mut self, page: u64, len: u64) {
        self.put_back.retain(|b| b.page != page);
        self.done.add(page, len);
    }

    /// From now on these pages are planned as one.
    pub fn join(&mut self, pages: Span) {
        self.joined.push(pages);
    }

    /// Start and length of these pages, with all that are planned as one with them.
    pub fn whole(&self, (page, len): (u64, u64)) -> (u64, u64) {
        let mut all = Span::new(Address(page), len);
        for one in &self.joined {
            let (from, to) = (all.start.min(one.start), all.end().max(one.end()));
            if one.overlaps(all) && to.0 - from.0 <= MOST_MOVED {
                all = Span::new(from, to.0 - from.0);
            }
        }
        (all.start.0, all.len)
    }

    /// Nothing was decided about these pages.
    pub fn forget(&mut self, page: u64, len: u64) {
        self.done.remove(page, len);
        self.reported.remove(page, len);
        self.put_back
            .retain(|back| back.page.wrapping_sub(page) >= len);
        let is_there = |&(from, _): &(u64, u64)| from.wrapping_sub(page) < len;
        self.tried.retain(|layout| !layout.iter().any(&is_there));
    }

    /// Gives up pages for which no other layout was found in time.
    pub fn give_up_old(&mut self, now: Time) {
        let over = self.put_back.extract_if(.., |b| b.until <= now);
        for old in over {
            self.done.add(old.page, old.len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::PAGE;

    const HERE: u64 = 0x5000_0000;

    #[test]
    fn pages_that_were_joined_are_planned_as_one_as_long_as_they_can_move_together() {
        let mut decisions = Decisions::default();
        decisions.join(Span::new(Address(HERE), 2 * PAGE));
        assert_eq!(decisions.whole((HERE, PAGE)), (HERE, 2 * PAGE));
        assert_eq!(decisions.whole((HERE + PAGE, 2 * PAGE)), (HERE, 3 * PAGE));
        assert_eq!(
            decisions.whole((HERE + 2 * PAGE, PAGE)),
            (HERE + 2 * PAGE, PAGE)
        );
        let many = (HERE + PAGE, MOST_MOVED);
        assert_eq!(decisions.whole(many), many);
    }

    /// Another layout is looked for during some time only, and not again and again.
    #[test]
    fn pages_put_back_get_few_other_layouts_in_limited_time() {
        let mut decisions = Decisions::default();
        let is_open = |decisions: &Decisions| !decisions.done.hold(HERE);
        decisions.moved_again(HERE, 2 * PAGE);
        for n in 0..LAYOUTS as u64 {
            assert!(!is_open(&decisions));
            decisions
                .tried
                .push(vec![(HERE + PAGE, HERE + PAGE + 8 * n)]);
            decisions.put_back(HERE, 2 * PAGE, Time(0));
            assert_eq!(is_open(&decisions), n + 1 < LAYOUTS as u64, "{n}");
            // Moved with the same layout, or no other layout found: decided.
            match n % 2 {
                0 => decisions.moved_again(HERE, 2 * PAGE),
                _ => decisions.give_up_old(Time(0).after(RETHINK)),
            }
            assert!(decisions.put_back.is_empty());
        }
        // Layouts of other pages do not count.
        decisions.put_back(HERE + 4 * PAGE, PAGE, Time(0));
        assert_eq!(decisions.put_back.len(), 1);
        decisions.give_up_old(Time(0).after(RETHINK - Duration::from_nanos(1)));
        assert_eq!(decisions.put_back.len(), 1);
    }
}
