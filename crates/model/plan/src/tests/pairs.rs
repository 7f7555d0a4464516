//! Advice for two objects on one line, blocks and variables.

use super::{assert_says, fixes, global};
use crate::advise;
use sunder_findings::examples::{self, frame, line, word};
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

#[test]
fn one_field_of_two_neighbours_is_no_pair_of_fields() {
    let words = vec![
        word(8, 8, ".kept", &[(1, 0, 0, 90, 0)]),
        word(24, 8, ".kept", &[(2, 0, 0, 90, 0)]),
    ];
    let mut finding = global("mine", "volatile struct tally", 64, "a.c", words);
    finding.object.kind = ObjectKind::Heap;
    finding.object.size = None;
    finding.object.element_size = Some(16);
    let all = advise(&finding, 64);
    assert_says(
        &all[0],
        &["neighbouring objects of type `struct tally` (16 bytes each)"],
    );
    assert_says(&all[0], &["on the first member of `struct tally`"]);
    // A type of the language has no members, and nobody can change it.
    let words = vec![
        word(48, 8, "uint64_t", &[(1, 0, 0, 90, 0)]),
        word(56, 8, "uint64_t", &[(2, 0, 0, 90, 0)]),
    ];
    let mut finding = global("counter", "uint64_t", 8, "a.c", words);
    finding.object.kind = ObjectKind::Heap;
    finding.object.size = None;
    finding.object.element_size = Some(8);
    let all = advise(&finding, 64);
    assert_says(
        &all[0],
        &["make the element `struct padded { _Alignas(64) uint64_t value; }`"],
    );
}

/// A member of two objects of 24 bytes, in chunks of 32 bytes of an allocator; and members of objects on two
/// lines, each of which has another place on its line.
#[test]
fn neighbours_need_not_lie_at_multiples_of_their_size() {
    let used = |at, name: &str, thread| word(at, 8, name, &[(thread, 0, 0, 90, 0)]);
    let mut finding = global("w", "Worker", 64, "a.cpp", vec![]);
    finding.object.kind = ObjectKind::Heap;
    finding.object.size = None;
    finding.object.element_size = Some(24);
    finding.lines[0].words = vec![used(24, "done", 1), used(56, "done", 2)];
    let first = |finding: &Finding| advise(finding, 64)[0].clone();
    let neighbours = "neighbouring objects of type `Worker` (24 bytes each)";
    assert_says(
        &first(&finding),
        &[neighbours, "`struct alignas(64) Worker`"],
    );
    finding.lines[0].words = vec![used(0, "done", 1), used(8, "id", 2)];
    let other = vec![used(32, "done", 3), used(40, "id", 4)];
    finding.lines.push(line(0x1040, 0, 10.0, other));
    assert!(!first(&finding).text.contains(neighbours));
}

#[test]
fn memory_that_no_declaration_has_is_not_declared() {
    let words = vec![
        word(0, 8, "taken", &[(1, 0, 0, 9, 0)]),
        word(8, 8, "seq", &[(2, 0, 0, 9, 0)]),
    ];
    let mut finding = global("taken", "long", 8, "a.c", words);
    for kind in [ObjectKind::Unknown, ObjectKind::Mapping] {
        finding.neighbour = Some(Object {
            kind,
            type_name: Some("slot".into()),
            ..Object::default()
        });
        let typed = advise(&finding, 64)[0].text.clone();
        assert!(typed.contains("declare `taken` with `_Alignas(64)`"));
        assert!(
            typed.contains("let `slot` begin at a multiple of 64 bytes"),
            "{typed}"
        );
        finding.neighbour = Some(Object {
            kind,
            ..Object::default()
        });
        let bare = advise(&finding, 64)[0].text.clone();
        assert!(bare.contains("let what lies in the "), "{bare}");
        assert!(!bare.contains("declare the"), "{bare}");
    }
}
