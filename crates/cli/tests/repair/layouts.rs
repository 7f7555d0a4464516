//! Bytes that went back may be moved into other groups when more is known of them: the threads of
//! `phases.c` later use other bytes of an object than those that were separated first. Judged by
//! what was moved and by the program's output, never by time.

use crate::support::repaired::{MOST_BUSY_RUNS, repaired};
use crate::support::{c_program, contention, skips, targets};
use std::ops::Range;
use sunder_findings::Moved;

/// How many runs side by side may miss the second grouping.
const MOST_MISSED: u32 = 3;

/// The byte range of each group of the first page that moved.
fn groups(moved: &Moved) -> Vec<Range<u64>> {
    let page = moved.address.0;
    let groups = moved.groups.iter();
    groups
        .map(|g| g.from.0 - page..g.from.0 - page + g.bytes)
        .collect()
}

/// Whether the words with these numbers, which lie at the start of the page, are in different
/// groups.
fn takes_apart(moved: &Moved, one: u64, other: u64) -> bool {
    let groups = groups(moved);
    let of = |word: u64| groups.iter().position(|group| group.contains(&(8 * word)));
    of(one) != of(other)
}

/// Runs `phases.c` with these arguments until its first words are taken apart, go back for this
/// reason, and those of its second phase, of which `second` is the first, are taken apart; or until it
/// is clear that its threads do not run side by side.
fn moved_in_two_ways(arguments: &[&str], back: &str, second: u64) {
    let _alone = targets::alone();
    let program = c_program("phases", &[]).expect("it compiles");
    let program = program.to_str().expect("our own path");
    let words: Vec<&str> = [program].iter().chain(arguments).copied().collect();
    let mut missed = 0;
    skips::begun();
    for _ in 0..MOST_BUSY_RUNS {
        let run = repaired("phases", &[], &words);
        assert_eq!(String::from_utf8_lossy(&run.stdout), "wrong 0\n");
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        println!("{}", run.stderr.trim());
        let moved = &run.repair().moved;
        // In the first phase the words of the second were not accessed.
        let first = moved.first().filter(|first| takes_apart(first, 0, 1));
        let went_back = first.and_then(|first| first.rolled_back.as_ref());
        let as_meant = went_back.filter(|it| it.reason.contains(back));
        let last = as_meant.and(moved.get(1..)).and_then(<[Moved]>::last);
        if let Some(last) = last.filter(|last| takes_apart(last, second, second + 1)) {
            assert_ne!(groups(last), groups(&moved[0]));
            return;
        }
        // Threads that ran one after the other do not contend; beside other programs the first
        // grouping may look as if it helped or as if it did harm, and a second one may come before
        // both of the later words were seen.
        missed += u32::from(run.side_by_side() && contention::is_felt().0);
        assert!(missed < MOST_MISSED, "{:#?}", run.repair());
    }
    skips::too_busy();
    println!("SKIP: its threads did not run side by side");
}

#[test]
fn what_other_bytes_are_used_of_is_moved_in_another_way() {
    moved_in_two_ways(&[], "", 4);
}

/// Nothing but the contention itself tells that the second phase's words have stayed together.
#[test]
fn bytes_that_stayed_together_are_taken_apart_when_threads_contend_for_them() {
    moved_in_two_ways(&["stays"], "had stayed together", 4);
}

/// Both threads read a text on both pages. With a move for each page they would leave their copy of
/// code, which knows the bytes of one move, in each round of the loop.
#[test]
fn pages_side_by_side_that_the_same_threads_use_move_together() {
    moved_in_two_ways(&["beside"], "bytes beside them", 768);
}

/// Before, threads left one copy for the other at each round until there was no room for more, and both
/// moves were taken back.
#[test]
fn of_two_moves_that_one_loop_uses_the_later_goes_back_soon() {
    const ROUNDS: u64 = 300_000_000;
    /// Far fewer than there is room for, and enough for every way into the loop.
    const MOST_COPIES: u32 = 300;
    let _alone = targets::alone();
    let program = c_program("two_moves", &[]).expect("it compiles");
    let rounds = ROUNDS.to_string();
    let words = [program.to_str().expect("our own path"), &rounds];
    skips::begun();
    for _ in 0..MOST_BUSY_RUNS {
        let run = repaired("two_moves", &[], &words);
        let sum = ROUNDS / 4 * 6;
        let wanted = format!("{sum} {sum} {ROUNDS} {ROUNDS}\n");
        assert_eq!(String::from_utf8_lossy(&run.stdout), wanted);
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        println!("{}", run.stderr.trim());
        let moved = &run.repair().moved;
        for one in moved {
            let copies: u32 = one.code.iter().map(|code| code.copies).sum();
            assert!(copies < MOST_COPIES, "{copies} copies: {one:#?}");
        }
        let crossed = |one: &Moved| {
            let back = one.rolled_back.as_ref();
            back.is_some_and(|back| back.reason.contains("bytes of another move"))
        };
        if moved.iter().any(crossed) {
            assert!(!moved.iter().all(crossed), "{moved:#?}");
            return;
        }
    }
    skips::too_busy();
    println!("SKIP: its two objects were not away at the same time");
}
