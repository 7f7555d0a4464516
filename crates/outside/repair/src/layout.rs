//! Where in an area each group of bytes goes, and the rules that follow for each byte of the pages.
//! Called by `repairer`, `pattern` and `attempt`. Pure computation.

use super::proposal::Proposal;
use sunder_access::{Address, LINE, PAGE, Span};
use sunder_findings::MovedGroup;
use sunder_plan::remap::Group;
use sunder_rewrite::{MovedPage, Rule};
use sunder_wire::remap::{POOL, POOL_BYTES, UNDERLAY};

/// Distance between groups in bytes. A string instruction that copies from a group reads the lines up to
/// this far from where it begins, however little it copies: of two threads that clear and copy 24 bytes
/// each, lines next to each other made one of them slower than before, and lines so far apart made both
/// 3.1 to 4.7 times as fast (on Xeon processors of 2023).
const APART: u64 = 256;
/// The same where there is no room for that: CPUs fetch lines in pairs.
const PAIR: u64 = 2 * LINE;

/// The groups in the form of the report; `at` is the address of the area's data.
pub fn groups_of(proposal: &Proposal, at: Option<u64>) -> Vec<MovedGroup> {
    let layout = layout(proposal).unwrap_or_default();
    let groups = proposal.groups.iter().enumerate();
    groups
        .map(|(n, group)| MovedGroup {
            from: Address(proposal.page + group.offset),
            to: match (at, layout.get(n)) {
                (Some(at), Some(to)) => Some(Address(at + to)),
                _ => None,
            },
            bytes: group.size,
            threads: group.threads.iter().copied().collect(),
        })
        .collect()
}

/// The offset in the area of each group: on lines of its own, at the same offset within a line as
/// before. All groups of one thread move by one distance if there is room for that, so that an
/// instruction that walks over them needs no case distinction. `None` if there is no room at all.
pub fn layout(proposal: &Proposal) -> Option<Vec<u64>> {
    let groups = &proposal.groups;
    let by_thread = |apart| together(groups, apart, |group| group.threads.len() == 1);
    let each = || together(groups, PAIR, |_| false);
    by_thread(APART).or_else(|| by_thread(PAIR)).or_else(each)
}

/// Whether there is room for these groups.
pub fn have_room(groups: &[Group]) -> bool {
    together(groups, PAIR, |_| false).is_some()
}

/// As [`layout`]. Each group begins on the first line of a block of `apart` bytes. `walks` selects the
/// groups that stay together with other groups of the same threads. Groups of several threads do not:
/// they are different variables.
fn together(groups: &[Group], apart: u64, walks: impl Fn(&Group) -> bool) -> Option<Vec<u64>> {
    let mut next = POOL;
    let mut all: Vec<u64> = Vec::new();
    for (n, group) in groups.iter().enumerate() {
        let same = |other: &&Group| walks(group) && other.threads == group.threads;
        let before = groups[..n].iter().zip(&all).find(|(other, _)| same(other));
        if let Some((first, &to)) = before {
            all.push(to + (group.offset - first.offset));
            continue;
        }
        let to = next + group.offset % LINE;
        all.push(to);
        let last = groups
            .iter()
            .filter(same)
            .chain([group])
            .map(|g| g.offset + g.size);
        let end = last.max().unwrap_or_default();
        next = (to + (end - group.offset)).next_multiple_of(apart);
    }
    (next <= POOL + POOL_BYTES).then_some(all)
}

/// The rules for all bytes of the pages (Plastic, section 4.4).
pub fn rules(proposal: &Proposal, layout: &[u64], at: u64) -> MovedPage {
    let (page, len) = (proposal.page, proposal.len);
    let mut rules = Vec::new();
    let mut rule = |from: u64, end: u64, to: u64| {
        if from < end {
            rules.push(Rule {
                bytes: Span::new(Address(page + from), end - from),
                delta: to.wrapping_sub(page + from) as i64,
            });
        }
    };
    let mut done = 0;
    for (group, to) in proposal.groups.iter().zip(layout) {
        rule(done, group.offset, at + UNDERLAY + done);
        done = group.offset + group.size;
        rule(group.offset, done, at + to);
    }
    rule(done, len, at + UNDERLAY + done);
    MovedPage {
        page: Span::new(Address(page), len),
        rules,
    }
}

/// The place for the program of a byte that lies at `address` in the area whose data begins at `at`;
/// `None` if no byte was moved there.
pub fn original(proposal: &Proposal, layout: &[u64], at: u64, address: Address) -> Option<Address> {
    let moved = rules(proposal, layout, at);
    moved.rules.iter().find_map(|rule| {
        let place = Address(address.0.wrapping_sub(rule.delta as u64));
        rule.bytes.contains(place).then_some(place)
    })
}

const _: () = assert!(POOL.is_multiple_of(PAGE) && POOL.is_multiple_of(APART));

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of one thread each.
    fn proposal(groups: &[(u64, u64)]) -> Proposal {
        let groups = groups.iter().zip(1..);
        let groups: Vec<_> = groups.map(|(&(at, size), n)| (at, size, vec![n])).collect();
        proposal_of(&groups)
    }

    fn proposal_of(groups: &[(u64, u64, Vec<u32>)]) -> Proposal {
        Proposal {
            page: 0x1000_0000,
            len: PAGE,
            groups: groups
                .iter()
                .map(|(offset, size, threads)| Group {
                    offset: *offset,
                    size: *size,
                    threads: threads.iter().copied().collect(),
                })
                .collect(),
            object: "args".into(),
            cost_share: 0.5,
            threads: Vec::new(),
            code: 0,
            near: 0,
        }
    }

    #[test]
    fn groups_get_lines_of_their_own_at_the_same_offsets() {
        let proposal = proposal(&[(0x20, 0x40), (0x60, 0x40)]);
        let layout = layout(&proposal).expect("there is room");
        assert_eq!(layout[0] % LINE, 0x20);
        assert_eq!(layout[1] % LINE, 0x20);
        let lines = |n: usize| layout[n] / LINE..=(layout[n] + 0x3f) / LINE;
        assert!(lines(0).end() < lines(1).start());
    }

    #[test]
    fn each_moved_byte_has_its_place_for_the_program() {
        const AT: u64 = 0x7000_0000;
        let proposal = proposal(&[(0x20, 0x10), (0x30, 0x10)]);
        let layout = layout(&proposal).expect("there is room");
        let back = |address| original(&proposal, &layout, AT, Address(address)).map(|a| a.0);
        assert_eq!(back(AT + layout[1] + 4), Some(0x1000_0034));
        // What stayed together lies as on the page.
        assert_eq!(back(AT + UNDERLAY + 0x44), Some(0x1000_0044));
        assert_eq!(back(AT + UNDERLAY + 0x34), None, "it moved with its group");
        assert_eq!(back(AT + POOL + POOL_BYTES), None);
    }

    /// How far each group has moved from its place.
    fn distances(groups: &[(u64, u64, Vec<u32>)]) -> Vec<u64> {
        let layout = layout(&proposal_of(groups)).expect("there is room");
        let from = groups.iter().map(|g| g.0);
        layout
            .iter()
            .zip(from)
            .map(|(to, from)| to - from)
            .collect()
    }

    #[test]
    fn the_bytes_of_one_thread_move_by_one_distance() {
        // Two columns of a table, each of one thread.
        let columns: Vec<_> = (0..16).map(|n| (8 * n, 8, vec![(n % 2) as u32])).collect();
        let moved = distances(&columns);
        assert!(moved.iter().step_by(2).all(|d| *d == moved[0]), "{moved:?}");
        assert!(moved.iter().skip(1).step_by(2).all(|d| *d == moved[1]));
        // Those of the one from the start of a line, and where copies from them do not reach, those of the
        // other.
        assert_eq!(moved[0] % LINE, 0);
        assert_eq!(moved[1], moved[0] + APART);
    }

    #[test]
    fn variables_that_several_threads_use_do_not_stay_together() {
        let pair = vec![1, 2];
        let moved = distances(&[(0, 8, pair.clone()), (8, 8, vec![1]), (16, 8, pair)]);
        assert_ne!(moved[0], moved[2]);
    }

    #[test]
    fn bytes_far_apart_are_packed_if_there_is_no_other_room() {
        let far = POOL_BYTES - 8;
        let moved = distances(&[(0, 8, vec![1]), (8, 8, vec![2]), (far, 8, vec![1])]);
        assert_ne!(moved[0], moved[2]);
    }

    #[test]
    fn lines_are_closer_together_if_there_is_no_other_room() {
        let many = |count| -> Vec<_> { (0..count).map(|n| (64 * n, 8, vec![n as u32])).collect() };
        let distance = |moved: &[u64]| moved[1] + 64 - moved[0];
        assert_eq!(distance(&distances(&many(POOL_BYTES / APART))), APART);
        assert_eq!(distance(&distances(&many(POOL_BYTES / PAIR))), PAIR);
    }

    #[test]
    fn rules_cover_the_pages_without_gaps() {
        let proposal = proposal(&[(0, 8), (0x20, 0x40), (0xff8, 8)]);
        let places = layout(&proposal).expect("there is room");
        let moved = rules(&proposal, &places, 0x2000_0000);
        let mut next = proposal.page;
        for rule in &moved.rules {
            assert_eq!(rule.bytes.start.0, next);
            next = rule.bytes.end().0;
        }
        assert_eq!(next, proposal.page + proposal.len);
    }

    #[test]
    fn too_many_large_groups_do_not_fit() {
        assert!(layout(&proposal(&[(0, POOL_BYTES), (8, 8)])).is_none());
    }
}
