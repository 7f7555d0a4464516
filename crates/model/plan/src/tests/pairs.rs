//! Advice for two objects on one line, blocks and variables.

use super::{assert_says, fixes, global};
use crate::advise;
use sunder_findings::examples::{self, frame, word};
use sunder_findings::*;

#[test]
fn two_blocks_of_one_call_site_are_allocated_apart() {
    let all = advise(&examples::heap_pair(), 64);
    assert_eq!(fixes(&all), [Fix::Allocate, Fix::PerThread]);
    assert_says(
        &all[0],
        &["session.c:41", "`aligned_alloc(64, 64)`", "struct session"],
    );
    assert_eq!(all[0].grows_by, Some(2 * 40));
    assert_says(&all[1], &["pool per thread"]);
}

/// Each of them is used by two threads: that is said once, since one change of the type is for both.
#[test]
fn what_two_like_blocks_need_inside_is_said_once() {
    let mut finding = examples::heap_pair();
    let used = |offset, name: &str, by| word(offset, 8, name, &[(by, 0, 0, 500, 0)]);
    finding.lines[0].words = vec![
        used(0, "requests", 4701),
        used(8, "bytes", 4702),
        used(32, "requests", 4701),
        used(40, "bytes", 4702),
    ];
    let all = advise(&finding, 64);
    assert_eq!(
        fixes(&all),
        [Fix::Allocate, Fix::Separate, Fix::PerThread],
        "{all:#?}"
    );
    assert_says(&all[1], &["That is not enough"]);
}

#[test]
fn two_blocks_of_different_sites_are_both_named() {
    let mut finding = examples::heap_pair();
    let other = finding.neighbour.as_mut().expect("a pair");
    other.allocation = vec![frame("malloc", "", 0), frame("log_new", "log.c", 9)];
    other.type_name = Some("struct log".into());
    other.thread = finding.object.thread.clone();
    let all = advise(&finding, 64);
    assert_says(
        &all[0],
        &[
            "`struct session`",
            "session.c:41",
            "`struct log`",
            "log.c:9",
        ],
    );
    assert_says(&all[1], &["Thread 4701 allocates both"]);
}

#[test]
fn neighbouring_variables_are_both_aligned() {
    let mut finding = global(
        "produced",
        "long",
        8,
        "a.c",
        vec![
            word(0, 8, "produced", &[(1, 0, 9, 0, 0)]),
            word(8, 8, "consumed", &[(2, 0, 9, 0, 0)]),
        ],
    );
    let mut other = finding.object.clone();
    other.name = Some("consumed".into());
    other.address = Address(0x1008);
    finding.neighbour = Some(other);
    let all = advise(&finding, 64);
    assert_eq!(fixes(&all), [Fix::Align]);
    assert_says(
        &all[0],
        &[
            "declare `produced` with `_Alignas(64)` (a.c:5)",
            "declare `consumed` with `_Alignas(64)`",
        ],
    );
    assert_eq!(all[0].grows_by, Some(2 * 56));
    assert!(!all[0].text.contains("there, too"), "{}", all[0].text);
    // A finding names two objects; the words of the line tell of more.
    let third = word(16, 8, "dropped", &[(3, 0, 9, 0, 0)]);
    finding.lines[0].words.push(third);
    let third = advise(&finding, 64);
    assert_says(
        &third[0],
        &["`dropped` lies there, too, and must leave the line as well."],
    );
}

#[test]
fn a_variable_beside_a_block_gets_both_remedies() {
    let mut finding = examples::heap_pair();
    finding.object.kind = ObjectKind::Stack;
    finding.object.name = Some("result".into());
    let all = advise(&finding, 64);
    assert_says(
        &all[0],
        &[
            "declare `result` with `_Alignas(64)`",
            "aligned_alloc(64, 64)",
        ],
    );
}
