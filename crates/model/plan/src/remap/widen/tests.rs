//! Tables of groups and of the bytes beside them, with the widened groups that are expected.

use super::*;
use crate::remap::Count;

/// First byte, end, and threads of a row.
type Row<'a> = (u64, u64, &'a [u32]);

fn groups(all: &[Row<'_>]) -> Vec<Group> {
    let group = |&(from, to, threads): &Row<'_>| Group {
        offset: from,
        size: to - from,
        threads: threads.iter().copied().collect(),
    };
    all.iter().map(group).collect()
}

fn uses(all: &[Row<'_>]) -> Vec<Use> {
    let seen = Count {
        writes: 9,
        ..Count::default()
    };
    let one = |&(from, to, threads): &Row<'_>| Use {
        offset: from,
        size: to - from,
        threads: threads.iter().map(|&thread| (thread, seen)).collect(),
    };
    all.iter().map(one).collect()
}

const fn object(start: i64, size: u64) -> Extent {
    Extent {
        start,
        size,
        element: None,
    }
}

/// The widened groups in one object.
fn wide(object: Extent, found: &[Row<'_>], beside: &[Row<'_>]) -> Vec<(u64, u64)> {
    let wide = widen(&groups(found), &uses(beside), &[object], 4096);
    wide.iter().map(|g| (g.offset, g.end())).collect()
}

/// Two rows of 24 bytes and 8 bytes of padding, of which only a part was seen (streamcluster).
/// The second row continues on the next line.
#[test]
fn rows_of_an_array_are_whole_however_little_was_seen_of_them() {
    let rows = object(16, 64);
    for (first, second) in [
        ((16, 40), (48, 64)),
        ((16, 24), (56, 64)),
        ((32, 40), (48, 56)),
        ((16, 48), (72, 80)),
    ] {
        let found = [(first.0, first.1, &[1][..]), (second.0, second.1, &[2])];
        assert_eq!(wide(rows, &found, &[]), [(16, 48), (48, 80)]);
    }
}

/// The last counts of one thread and the first of another (histogram).
#[test]
fn a_group_is_widened_over_bytes_of_its_own_thread_to_the_ends_of_the_object() {
    let found = [(3040, 3088, &[1][..]), (3088, 3104, &[2])];
    let beside = [(100, 104, &[1][..]), (3900, 3904, &[2])];
    let tasks = object(0, 2 * 3088);
    assert_eq!(wide(tasks, &found, &beside), [(0, 3088), (3088, 4096)]);
}

#[test]
fn a_group_is_not_widened_over_bytes_of_other_threads() {
    // A third thread's row, which is on a line of its own.
    let found = [(0, 8, &[1][..]), (32, 40, &[2])];
    let beside = [(64, 72, &[3][..]), (96, 104, &[2])];
    let rows = object(0, 4096);
    assert_eq!(wide(rows, &found, &beside), [(0, 32), (32, 64)]);
    // Bytes that both threads read stay where they are, and neither group goes beyond them.
    let found = [(0, 8, &[1][..]), (56, 64, &[2])];
    let beside = [(24, 32, &[1, 2][..])];
    assert_eq!(wide(object(0, 64), &found, &beside), [(0, 24), (32, 64)]);
}

#[test]
fn two_groups_are_separated_between_the_bytes_of_their_threads() {
    let found = [(0, 8, &[1][..]), (192, 200, &[2])];
    let cut = |beside: &[Row<'_>]| wide(object(0, 200), &found, beside)[0].1;
    // Nothing is known about the bytes: equal parts.
    assert_eq!(cut(&[]), 100);
    assert_eq!(cut(&[(104, 112, &[1])]), 128);
    assert_eq!(cut(&[(120, 128, &[1]), (136, 144, &[2])]), 128);
    assert_eq!(cut(&[(64, 72, &[2])]), 64);
    // The uses alternate. Each group gets the bytes before the other's first use, or after its
    // last.
    let found = [(0, 8, &[1][..]), (56, 64, &[2])];
    let beside = [(16, 24, &[2][..]), (40, 48, &[1])];
    assert_eq!(wide(object(0, 64), &found, &beside), [(0, 16), (48, 64)]);
}

#[test]
fn elements_are_not_cut_through_if_their_size_is_known() {
    let records = Extent {
        start: 8,
        size: 24 * 5,
        element: Some(24),
    };
    // One field of the first record was seen, and the last field of the second.
    let found = [(8, 16, &[1][..]), (48, 56, &[2])];
    assert_eq!(wide(records, &found, &[]), [(8, 32), (32, 128)]);
    // Nor is any use divided.
    let found = [(0, 8, &[1][..]), (24, 32, &[1, 2])];
    let beside = [(12, 20, &[1][..])];
    let cut = wide(object(0, 32), &found, &beside)[0].1;
    assert!(cut <= 12 || cut >= 20, "{cut}");
}

/// A lock, then data that both threads use under it. One element of the data was seen used by
/// only one of them.
#[test]
fn part_of_a_groups_threads_are_its_own_unless_a_neighbour_has_them_alone() {
    let found = [(0, 4, &[1, 2][..]), (8, 16, &[1, 2])];
    let lock = wide(object(0, 64), &found, &[(40, 48, &[2])]);
    assert_eq!(lock[1].1, 64);
    let found = [(0, 8, &[1, 2][..]), (56, 64, &[1])];
    let beside = [(16, 24, &[1][..]), (32, 40, &[1, 2])];
    assert_eq!(wide(object(0, 64), &found, &beside), [(0, 16), (40, 64)]);
    let beside = [(16, 24, &[1, 2][..]), (32, 40, &[1])];
    assert_eq!(wide(object(0, 64), &found, &beside), [(0, 32), (32, 64)]);
}

#[test]
fn no_group_leaves_its_object_or_the_pages() {
    // Two objects of 24 bytes, 32 bytes apart. The bytes between them are the allocator's.
    let all = [object(-16, 40), object(32, 24), object(4080, 40)];
    let found = groups(&[(0, 8, &[1]), (32, 40, &[2]), (4088, 4096, &[3])]);
    let wide = widen(&found, &[], &all, 4096);
    let shown: Vec<_> = wide.iter().map(|g| (g.offset, g.end())).collect();
    assert_eq!(shown, [(0, 24), (32, 56), (4080, 4096)]);
    // Without objects, groups stay as they are.
    assert_eq!(widen(&found, &[], &[], 4096), found);
}

/// A queue: where its slots are, read by both sides; the producer's position, at which the consumer looks;
/// what the producer last saw of the consumer's position; and the two of the consumer.
#[test]
fn bytes_that_all_only_read_stay_out_of_a_group_beside_them() {
    let read = Count {
        reads: 90,
        ..Count::default()
    };
    let both = |offset, size| Use {
        offset,
        size,
        threads: [(1, read), (2, read)].into(),
    };
    let found = [(24, 32, &[1, 2][..]), (32, 40, &[1]), (40, 56, &[1, 2])];
    let widened = |beside: &[Use]| -> Vec<(u64, u64)> {
        let wide = widen(&groups(&found), beside, &[object(0, 256)], 4096);
        wide.iter().map(|g| (g.offset, g.end())).collect()
    };
    assert_eq!(widened(&[both(0, 16)])[0], (16, 32));
    // On the next line nothing is beside a group. What follows there keeps its neighbours.
    let ends = |beside: &[Use]| widened(beside)[2].1;
    assert_eq!(ends(&[both(56, 8)]), 56);
    assert_eq!(ends(&[both(64, 8)]), 256);
    assert_eq!(ends(&[]), 256);
}
