//! Widens groups to all bytes that belong to their owners. What was seen of contended lines is
//! only a part of the pattern: elements that were not seen yet, and those on lines that only
//! one thread uses, move by the same distance as their neighbours. Then an instruction that
//! walks over them, or accesses them at random, needs no guard. Called with the groups that
//! `groups.rs` found. Pure.

use super::groups::{Group, Use};
use std::collections::BTreeSet;
use sunder_access::LINE;

/// An object, or the part of it that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset of its first byte from the start of the pages; negative if it begins before them.
    pub start: i64,
    /// The number of bytes.
    pub size: u64,
    /// Bytes of an element, if that is known.
    pub element: Option<u64>,
}

/// The same groups, each widened within its object up to the bytes of other threads: over those
/// of `uses` that only its threads were seen to use, and over bytes that no thread was seen to
/// use. No group goes beyond `len`, or from one of `objects` into another. If the bytes between
/// two groups may belong to either, they are divided as an array would be.
///
/// Bytes of lines that are not contended have the same bytes on their line as before, whichever
/// group they join. But bytes on a group's own line that several threads only read stay outside: beside
/// bytes that are written they would be contended as before.
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
    /// The start and end of its part on the pages.
    fn on_pages(&self, len: u64) -> (u64, u64) {
        let at = |offset: i64| u64::try_from(offset).unwrap_or(0).min(len);
        let end = self.start.saturating_add_unsigned(self.size);
        (at(self.start), at(end))
    }

    /// The distance of `offset` from its start.
    const fn within(&self, offset: u64) -> u64 {
        (offset as i64).wrapping_sub(self.start) as u64
    }
}

/// The bytes between two groups, or between a group and the object's border.
struct Gap<'a> {
    from: u64,
    to: u64,
    left: Option<&'a BTreeSet<u32>>,
    right: Option<&'a BTreeSet<u32>>,
}

impl Gap<'_> {
    /// The end of the left group's part and the start of the right group's. `place` is the
    /// number of groups in the object before the right one, and the number of all its groups.
    fn shares(&self, uses: &[&Use], object: &Extent, place: (u64, u64)) -> (u64, u64) {
        let inside = || {
            let inside = |u: &&&Use| u.offset < self.to && self.from < u.end();
            uses.iter().filter(inside)
        };
        // The end of what the left group can have, and the start of what the right one can
        // have.
        let mut end = self.to;
        let mut start = self.from;
        for one in inside() {
            let users = one.users();
            let (mut left, mut right) = (used_by(self.left, &users), used_by(self.right, &users));
            if one.is_only_read() {
                if one.offset / LINE <= self.from.saturating_sub(1) / LINE {
                    left = UsedBy::Others;
                }
                if one.end().saturating_sub(1) / LINE >= self.to / LINE {
                    right = UsedBy::Others;
                }
            }
            // If both groups may have a use, it goes to the one with exactly the same threads.
            let (left, right) = match (left, right) {
                (UsedBy::SomeOfGroup, UsedBy::AllOfGroup) => (false, true),
                (UsedBy::AllOfGroup, UsedBy::SomeOfGroup) => (true, false),
                (left, right) => (left != UsedBy::Others, right != UsedBy::Others),
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
        // A use is not divided.
        let through = inside().find(|u| u.offset < cut && cut < u.end());
        let cut = through.map_or(cut, |u| u.end().min(end));
        (cut, cut)
    }
}

/// To whom bytes belong, as seen from a group beside them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UsedBy {
    /// Threads outside the group use them.
    Others,
    /// Some of the group's threads use them, and no others.
    SomeOfGroup,
    /// All of the group's threads use them, and no others.
    AllOfGroup,
}

fn used_by(group: Option<&BTreeSet<u32>>, users: &BTreeSet<u32>) -> UsedBy {
    match group {
        Some(threads) if threads == users => UsedBy::AllOfGroup,
        Some(threads) if users.is_subset(threads) => UsedBy::SomeOfGroup,
        _ => UsedBy::Others,
    }
}

impl Extent {
    /// Where to divide an object between `from` and `to`, both of which are possible. It is a
    /// border of equal parts, one for each group, if there is one in between; else a border of
    /// elements; and of several possible borders the one that is a multiple of the largest
    /// power of two.
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
        // The largest step that has a border in between. It has only one: of two adjacent ones,
        // one would be a border of a larger step.
        let steps = (0..32).rev().map(|bits| element.saturating_mul(1 << bits));
        let best = steps.filter_map(between).next();
        let best = best.or_else(|| (0..32).rev().find_map(|bits| between(1 << bits)));
        best.map_or(to, |at| from + (at - low))
    }
}

#[cfg(test)]
mod tests;
