//! Tables of uses with the groups that are expected of them.

use super::*;

const fn reads(reads: u64) -> Count {
    Count {
        reads,
        writes: 0,
        atomics: 0,
    }
}

const fn writes(writes: u64) -> Count {
    Count {
        reads: 0,
        writes,
        atomics: 0,
    }
}

const fn locked(atomics: u64) -> Count {
    Count {
        reads: 0,
        writes: atomics,
        atomics,
    }
}

fn used(offset: u64, size: u64, threads: &[(u32, Count)]) -> Use {
    Use {
        offset,
        size,
        threads: threads.iter().copied().collect(),
    }
}

/// Words of eight bytes, one after the other.
fn words(all: &[&[(u32, Count)]]) -> Vec<Use> {
    let all = all.iter().enumerate();
    all.map(|(n, threads)| used(8 * n as u64, 8, threads))
        .collect()
}

fn moved(uses: &[Use]) -> Result<Vec<(u64, u64)>, Unmoved> {
    let found = groups(uses, 8)?;
    Ok(found.groups.iter().map(|g| (g.offset, g.size)).collect())
}

fn apart_of(uses: &[Use]) -> f64 {
    groups(uses, 8).map_or(0.0, |found| found.apart)
}

#[test]
fn neighbouring_words_of_one_thread_are_one_group_with_what_is_between() {
    let uses = [
        used(0, 8, &[(1, writes(9))]),
        used(24, 8, &[(1, writes(9))]),
        used(16, 8, &[(1, reads(9))]),
        used(32, 8, &[(2, writes(9))]),
    ];
    assert_eq!(moved(&uses), Ok(vec![(0, 32), (32, 8)]));
    assert_eq!(apart_of(&uses), 1.0);
}

#[test]
fn bytes_that_are_only_read_are_not_moved() {
    let uses = words(&[
        &[(1, writes(9))],
        &[(1, reads(9)), (2, reads(9))],
        &[(2, writes(9))],
    ]);
    assert_eq!(moved(&uses), Ok(vec![(0, 8), (16, 8)]));
}

/// Plastic's fs_mixed: the range that is read and written moves, the range that is only read
/// stays, and the writers' true sharing remains.
#[test]
fn a_range_that_several_write_leaves_the_range_that_others_read() {
    let settings = &[(2, reads(100)), (4, reads(100))][..];
    let counters = &[(1, locked(100)), (3, locked(100))][..];
    let uses = words(&[settings, settings, counters, counters]);
    assert_eq!(moved(&uses), Ok(vec![(16, 16)]));
    let found = groups(&uses, 8).expect("one group moves");
    assert_eq!(found.groups[0].threads, [1, 3].into());
    // Each of four threads has 200 accesses. Five of the six pairs of threads conflict, all but
    // the readers'. One of the five is the writers' pair.
    assert!((found.apart - 0.8).abs() < 1e-9, "{}", found.apart);
}

/// Listing A.1, variant 5: a writer and a reader of each word.
#[test]
fn words_of_different_pairs_of_threads_get_separate_groups() {
    let uses = words(&[
        &[(0, writes(50)), (1, reads(50))],
        &[(2, writes(50)), (3, reads(50))],
    ]);
    assert_eq!(moved(&uses), Ok(vec![(0, 8), (8, 8)]));
    // Five of the six pairs of threads conflict, all but the readers'. The pairs 0-1 and 2-3
    // remain.
    assert!((apart_of(&uses) - 0.6).abs() < 1e-9);
}

#[test]
fn a_single_writer_is_separated_from_readers_of_other_bytes() {
    let limits = &[(2, reads(80)), (3, reads(80))][..];
    let uses = words(&[limits, limits, &[(1, writes(80))]]);
    assert_eq!(moved(&uses), Ok(vec![(16, 8)]));
    assert_eq!(apart_of(&uses), 1.0);
}

#[test]
fn the_same_bytes_and_nothing_else_are_left_alone() {
    for one in [locked(100), writes(100)] {
        let all = [(1, one), (2, one)];
        assert_eq!(moved(&words(&[&all])), Err(Unmoved::OneGroup));
        // Several words that the same threads use change hands together.
        assert_eq!(moved(&words(&[&all, &all])), Err(Unmoved::OneGroup));
    }
    assert_eq!(moved(&[]), Err(Unmoved::OneGroup));
    let one = words(&[&[(1, writes(9))], &[(1, reads(9))]]);
    assert_eq!(moved(&one), Err(Unmoved::OneGroup));
    let read = words(&[&[(1, reads(9))], &[(2, reads(9))]]);
    assert_eq!(moved(&read), Err(Unmoved::OneGroup));
}

/// The gain is that of the bytes that are separated.
#[test]
fn a_little_false_sharing_beside_much_true_sharing_is_worth_little() {
    let both = [(1, locked(990)), (2, locked(990))];
    let uses = words(&[&both, &[(1, writes(10))]]);
    assert_eq!(moved(&uses), Ok(vec![(0, 8), (8, 8)]));
    // Of 1000 * 990 pairs, 990 * 990 remain.
    assert!((apart_of(&uses) - 0.01).abs() < 1e-9);
}

/// A queue: each side has an index, which the other side reads when the queue seems full or
/// empty, and a copy of the other side's index.
#[test]
fn a_thread_that_uses_bytes_rarely_does_not_own_them() {
    let both = |own: u32, other: u32| [(own, writes(1000)), (other, reads(4))];
    let uses = words(&[
        &both(1, 2),
        &[(1, reads(1000))],
        &both(2, 1),
        &[(2, reads(1000))],
        &[(1, reads(900)), (2, reads(900))],
    ]);
    assert_eq!(moved(&uses), Ok(vec![(0, 16), (16, 16)]));
    // Bytes that are seldom written stay with those that are only read.
    let flag = [(1, reads(500)), (2, reads(500)), (3, writes(1))];
    let uses = words(&[&flag, &[(3, writes(700))]]);
    assert_eq!(moved(&uses), Ok(vec![(8, 8)]));
    // A word that its own thread mostly reads, and that another thread reads once.
    let own = Count {
        reads: 500,
        ..writes(5)
    };
    let uses = words(&[&[(1, own), (2, reads(1))], &[(2, writes(700))]]);
    assert_eq!(moved(&uses), Ok(vec![(0, 8), (8, 8)]));
}

/// The words have the same accessors but are different variables.
#[test]
fn bytes_of_the_same_threads_are_grouped_by_writer_and_kind_of_access() {
    // Each of the two writes as often as the other reads.
    let uses = words(&[
        &[(1, writes(90)), (2, reads(90))],
        &[(2, writes(90)), (1, reads(90))],
    ]);
    assert_eq!(moved(&uses), Ok(vec![(0, 8), (8, 8)]));
    // A lock beside the data that it guards.
    let lock = &[(1, locked(90)), (2, locked(90))][..];
    let data = &[(1, writes(90)), (2, writes(90))][..];
    let uses = words(&[lock, data, data]);
    assert_eq!(moved(&uses), Ok(vec![(0, 8), (8, 16)]));
    // A word that all threads read beside a counter of all threads.
    let read = &[(1, reads(90)), (2, reads(90))][..];
    assert_eq!(moved(&words(&[read, lock])), Ok(vec![(8, 8)]));
}

#[test]
fn few_observations_do_not_tear_shared_bytes_apart() {
    // The first word was seen written by one of the two threads only, which may be chance.
    let uses = words(&[
        &[(1, writes(3)), (2, reads(3))],
        &[(1, writes(40)), (2, writes(40))],
    ]);
    assert_eq!(moved(&uses), Err(Unmoved::OneGroup));
    // The slots of a queue: one side writes and the other reads, each a few times.
    let slot = |n: u64| used(8 * n, 8, &[(1, writes(5 + n)), (2, reads(5 + n))]);
    let slots: Vec<Use> = (0..8).map(slot).collect();
    assert_eq!(moved(&slots), Err(Unmoved::OneGroup));
    // Bytes that were written a few times do not go with what is only read.
    let few = [(1, writes(2)), (2, reads(2))];
    let read = [(1, reads(90)), (2, reads(90))];
    assert_eq!(moved(&words(&[&read, &few])), Ok(vec![(8, 8)]));
    assert_eq!(moved(&words(&[&few, &read])), Ok(vec![(0, 8)]));
    // Bytes of unclear role go with their other neighbours, or alone if the neighbours have other
    // users.
    let uses = words(&[&few, &[(1, writes(90)), (2, reads(90))], &[(3, writes(90))]]);
    assert_eq!(moved(&uses), Ok(vec![(0, 16), (16, 8)]));
    let uses = words(&[&few, &[(3, writes(90))]]);
    assert_eq!(moved(&uses), Ok(vec![(0, 8), (8, 8)]));
}

/// A lock beside five sums that its holder adds to. Of one sum only one access was seen.
#[test]
fn an_element_seen_with_one_of_its_threads_only_stays_with_its_neighbours() {
    let both = |n: u64| [(1, writes(n)), (2, writes(n + 3))];
    let lock = used(0, 4, &[(1, locked(80)), (2, locked(60))]);
    for (nth, few) in [(1, 1), (3, 1), (5, 7), (3, 30)] {
        let mut uses = vec![lock.clone()];
        uses.extend((1..6).map(|n| match n == nth {
            true => used(8 * n, 8, &[(2, writes(few))]),
            false => used(8 * n, 8, &both(20)),
        }));
        assert_eq!(moved(&uses), Ok(vec![(0, 4), (8, 40)]), "{nth}");
    }
    // A thread that does not share the neighbours' bytes has bytes of its own, and so has a
    // thread that was seen there often enough.
    let uses = [used(0, 8, &both(20)), used(8, 8, &[(3, writes(2))])];
    assert_eq!(moved(&uses), Ok(vec![(0, 8), (8, 8)]));
    let uses = [used(0, 8, &both(50)), used(8, 8, &[(1, writes(40))])];
    assert_eq!(moved(&uses), Ok(vec![(0, 8), (8, 8)]));
}

/// The producer's sum, the consumer's position, at which the producer looks, and the consumer's copy of
/// the producer's position.
#[test]
fn what_one_side_of_a_queue_writes_is_no_element_of_the_other_sides() {
    let position = &[(1, reads(40)), (2, writes(60))][..];
    let sum = &[(1, writes(9))][..];
    let copy = &[(2, writes(9))][..];
    let uses = words(&[sum, position, copy]);
    assert_eq!(moved(&uses), Ok(vec![(0, 8), (8, 16)]));
    // The producer was only seen to read them, as it reads the position.
    let uses = words(&[&[(1, reads(9))], position, &[(3, writes(90))]]);
    assert_eq!(moved(&uses), Ok(vec![(0, 16), (16, 8)]));
}

/// Slots of four bytes, of which the third was seen with both sides, the second with the producer, and
/// the others with the consumer.
#[test]
fn slots_of_a_queue_stay_in_one_piece_however_little_was_seen_of_them() {
    let slots = |first: u64, (producer, consumer): (u32, u32)| {
        (0..12).map(move |n| {
            let at = first + 4 * n;
            match n % 3 {
                0 => used(at, 4, &[(consumer, reads(2))]),
                1 => used(at, 4, &[(producer, writes(1 + n))]),
                _ => used(at, 4, &[(producer, writes(1)), (consumer, reads(1))]),
            }
        })
    };
    let position = [(1, writes(90)), (2, reads(50))];
    let mut uses = vec![used(0, 8, &position)];
    uses.extend(slots(8, (1, 2)));
    assert_eq!(moved(&uses), Ok(vec![(0, 8), (8, 48)]));
    // The queue of other threads behind it has slots of its own.
    uses.extend(slots(56, (3, 4)));
    assert_eq!(moved(&uses), Ok(vec![(0, 8), (8, 48), (56, 48)]));
    // Most slots of a large queue were seen once, if at all.
    let mut uses = vec![used(0, 8, &position)];
    uses.extend((0..40u32).map(|n| match n % 10 {
        9 => used(8 + 4 * u64::from(n), 4, &[(1, writes(1)), (2, reads(1))]),
        odd if odd % 2 == 1 => used(8 + 4 * u64::from(n), 4, &[(1, writes(1))]),
        _ => used(8 + 4 * u64::from(n), 4, &[(2, reads(1))]),
    }));
    assert_eq!(moved(&uses), Ok(vec![(0, 8), (8, 160)]));
    // Each thread writes its own element and looks at its neighbour's.
    let own = |n: u32| {
        used(
            8 * u64::from(n),
            8,
            &[(n, writes(3)), ((n + 1) % 4, reads(2))],
        )
    };
    let all: Vec<Use> = (0..4).map(own).collect();
    assert_eq!(moved(&all).map(|groups| groups.len()), Ok(4));
    // Elements that were seen with one thread each are that thread's.
    let own = |n: u64| used(4 * n, 4, &[(n as u32 % 2, writes(3))]);
    let all: Vec<Use> = (0..4).map(own).collect();
    assert_eq!(moved(&all).map(|groups| groups.len()), Ok(4));
}

#[test]
fn overlapping_uses_of_different_threads_are_not_taken_apart() {
    let uses = [used(0, 8, &[(1, writes(9))]), used(4, 8, &[(2, writes(9))])];
    assert_eq!(moved(&uses), Err(Unmoved::TooMany));
}

#[test]
fn no_more_groups_than_there_is_room_for() {
    let uses: Vec<Use> = (0..9)
        .map(|n| used(n * 8, 8, &[(n as u32, writes(9))]))
        .collect();
    assert_eq!(moved(&uses), Err(Unmoved::TooMany));
}

#[test]
fn only_threads_that_the_groups_separate_count_as_separated() {
    let one = words(&[&[(1, writes(9))], &[(2, writes(9))]]);
    let mut moved = groups(&one, 8).expect("two groups").groups;
    assert!((apart_by(&one, &moved) - 1.0).abs() < 1e-9);
    // The second group is widened to its object's end; then threads use other words of it.
    moved[1].size = 56;
    let other = [
        used(32, 8, &[(1, writes(9))]),
        used(40, 8, &[(2, writes(9))]),
    ];
    assert_eq!(apart_by(&other, &moved), 0.0);
    // A thread that uses only bytes outside the second group is separated from those in it.
    let third = [
        used(40, 8, &[(2, writes(9))]),
        used(0, 8, &[(3, writes(9))]),
    ];
    assert!((apart_by(&third, &moved) - 1.0).abs() < 1e-9);
}
