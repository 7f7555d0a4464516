//! Groups over all that is their owners': what was seen of contended lines is a part of
//! the pattern. Elements that were not seen yet, and those on lines that only one thread
//! uses, move by the distance of their neighbours, so that an instruction that walks over
//! them, or takes one by chance, needs no guard. Called with groups that were found. Pure.

use super::groups::{Group, Use};
use std::collections::BTreeSet;

/// An object, or what is known of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its first byte, from the start of the pages; negative if it begins before them.
    pub start: i64,
    /// How many.
    pub size: u64,
    /// Bytes of an element, if that is known.
    pub element: Option<u64>,
}

/// The same groups, each as far as its object goes and nobody else's bytes begin: over
/// what its threads alone were seen to use of `uses`, and what nobody was. Nothing goes
/// beyond `len`, or from one of `objects` into another. Where it is not known which of two
/// groups has the bytes between, they are cut as an array would be.
///
/// Bytes of lines that are not contended are on a line with the same bytes as before,
/// whichever group takes them along.
pub fn widen(groups: &[Group], uses: &[Use], objects: &[Extent], len: u64) -> Vec<Group> {
    let mut uses: Vec<&Use> = uses.iter().filter(|u| u.size > 0).collect();
    uses.sort_by_key(|u| (u.offset, u.size));
    let mut wide = groups.to_vec();
    for object in objects {
        let (from, to) = object.on_pages(len);
        let inside: Vec<usize> = (0..wide.len())
            .filter(|&n| wide[n].offset < to && from < wide[n].end())
            .collect();
        let gaps = inside.iter().map(|&n| Some(n)).chain([None]);
        let mut left: Option<usize> = None;
        for (rank, right) in gaps.enumerate() {
            let gap = Gap {
                from: left.map_or(from, |n| wide[n].end().max(from)),
                to: right.map_or(to, |n| wide[n].offset.min(to)),
                left: left.map(|n| &wide[n].threads),
                right: right.map(|n| &wide[n].threads),
            };
            if gap.from < gap.to {
                let (end, start) = gap.shares(&uses, object, (rank as u64, inside.len() as u64));
                if let Some(group) = left.and_then(|n| wide.get_mut(n)) {
                    group.size = end.max(group.end()) - group.offset;
                }
                if let Some(group) = right.and_then(|n| wide.get_mut(n)) {
                    let end = group.end();
                    group.offset = start.min(group.offset);
                    group.size = end - group.offset;
                }
            }
            left = right;
        }
    }
    wide
}

impl Extent {
    /// Its part of the pages.
    fn on_pages(&self, len: u64) -> (u64, u64) {
        let at = |offset: i64| u64::try_from(offset).unwrap_or(0).min(len);
        let end = self.start.saturating_add_unsigned(self.size);
        (at(self.start), at(end))
    }

    /// How far into it this is.
    const fn within(&self, offset: u64) -> u64 {
        (offset as i64).wrapping_sub(self.start) as u64
    }
}

/// Bytes between two groups, or beside one.
struct Gap<'a> {
    from: u64,
    to: u64,
    left: Option<&'a BTreeSet<u32>>,
    right: Option<&'a BTreeSet<u32>>,
}

impl Gap<'_> {
    /// Where the left group's part ends and the right one's begins. `place` is how many
    /// groups lie before the right one in the object, and how many there are.
    fn shares(&self, uses: &[&Use], object: &Extent, place: (u64, u64)) -> (u64, u64) {
        let inside = || {
            let inside = |u: &&&Use| u.offset < self.to && self.from < u.end();
            uses.iter().filter(inside)
        };
        // What the left one can't have, and the right one.
        let mut end = self.to;
        let mut start = self.from;
        for one in inside() {
            let users = one.users();
            let (left, right) = (is_own(self.left, &users), is_own(self.right, &users));
            // Of two that both may, the one whose it is alone.
            let (left, right) = match (left, right) {
                (Own::Part, Own::All) => (false, true),
                (Own::All, Own::Part) => (true, false),
                (left, right) => (left != Own::No, right != Own::No),
            };
            if !left {
                end = end.min(one.offset.max(self.from));
            }
            if !right {
                start = start.max(one.end().min(self.to));
            }
        }
        if end < start || self.left.is_none() || self.right.is_none() {
            return (end, start);
        }
        let cut = object.cut(start, end, place);
        // No use is cut through.
        let through = inside().find(|u| u.offset < cut && cut < u.end());
        let cut = through.map_or(cut, |u| u.end().min(end));
        (cut, cut)
    }
}

/// Whose bytes are, seen from a group beside them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Own {
    /// Others use them.
    No,
    /// Some of its threads do.
    Part,
    /// All of them.
    All,
}

fn is_own(group: Option<&BTreeSet<u32>>, users: &BTreeSet<u32>) -> Own {
    match group {
        Some(threads) if threads == users => Own::All,
        Some(threads) if users.is_subset(threads) => Own::Part,
        _ => Own::No,
    }
}

impl Extent {
    /// Where an object would be cut between `from` and `to`, both of which are possible:
    /// at a border of equal parts if all groups in it are such; or between elements; and
    /// among several places at the one that is a multiple of the most.
    fn cut(&self, from: u64, to: u64, (before, groups): (u64, u64)) -> u64 {
        if self.size.is_multiple_of(groups.max(1)) {
            let part = self.size / groups.max(1);
            let border = self.start.saturating_add_unsigned(part * before);
            if let Some(border) = u64::try_from(border).ok()
                && (from..=to).contains(&border)
            {
                return border;
            }
        }
        let (low, high) = (self.within(from), self.within(to));
        let element = self.element.filter(|&e| e > 0).unwrap_or(1);
        let between = |unit: u64| {
            let unit = unit.max(1);
            let at = high / unit * unit;
            (at >= low).then_some(at)
        };
        // The largest step that has a border there: one only, as two would have one of a
        // larger step between them.
        let steps = (0..32).rev().map(|bits| element.saturating_mul(1 << bits));
        let best = steps.filter_map(between).next();
        let best = best.or_else(|| (0..32).rev().find_map(|bits| between(1 << bits)));
        best.map_or(to, |at| from + (at - low))
    }
}

#[cfg(test)]
mod tests;
