use super::*;
use sunder_findings::{Line, Object, ThreadUse};

/// A finding whose words are (offset, field, threads that write it).
fn finding(name: &str, words: &[(u32, &str, &[u32])]) -> Finding {
    let word = |&(offset, field, threads): &(u32, &str, &[u32])| Word {
        offset,
        size: 8,
        field: Some(field.into()),
        threads: threads
            .iter()
            .map(|&id| ThreadUse {
                id,
                writes: 100,
                ..ThreadUse::default()
            })
            .collect(),
    };
    Finding {
        object: Object {
            name: Some(name.into()),
            ..Object::default()
        },
        lines: vec![Line {
            object_offset: Some(0),
            words: words.iter().map(word).collect(),
            ..Line::default()
        }],
        ..Finding::default()
    }
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

#[test]
fn an_array_of_which_each_thread_uses_an_element() {
    let found = finding(
        "stats",
        &[
            (0, "stats[0].hits", &[1]),
            (8, "stats[0].misses", &[1]),
            (16, "stats[1].hits", &[2]),
        ],
    );
    assert_eq!(Shape::of(&found, 64), Shape::Elements { path: vec![] });
    assert_eq!(
        members(&found),
        ["hits", "misses"].map(str::to_owned).into()
    );
}

#[test]
fn runs_of_elements_are_slices() {
    let found = finding(
        "v",
        &[
            (0, "v[0]", &[1]),
            (8, "v[1]", &[1]),
            (16, "v[2]", &[2]),
            (24, "v[3]", &[2]),
        ],
    );
    assert_eq!(Shape::of(&found, 64), Shape::Slices);
}

/// `a` and `b` are the first thread's: the line has to begin before `c`, not before `b`.
#[test]
fn a_break_lies_behind_the_last_member_of_a_thread() {
    let found = finding(
        "s",
        &[
            (0, "s.a", &[1]),
            (8, "s.b", &[1]),
            (16, "s.c", &[2]),
            (24, "s.d", &[2]),
        ],
    );
    let wanted = Shape::Members {
        path: vec![],
        breaks: strings(&["c"]),
        ends: [None, None],
    };
    assert_eq!(Shape::of(&found, 64), wanted);
}

#[test]
fn members_of_threads_in_turn_need_a_break_each() {
    let found = finding(
        "s",
        &[(0, "s.a", &[1]), (8, "s.b", &[2]), (16, "s.c", &[1])],
    );
    let wanted = Shape::Members {
        path: vec![],
        breaks: strings(&["b", "c"]),
        ends: [None, None],
    };
    assert_eq!(Shape::of(&found, 64), wanted);
}

#[test]
fn members_in_elements_divide_all_elements_alike() {
    let found = finding(
        "rings",
        &[
            (0, "rings[0].head", &[1]),
            (16, "rings[0].tail", &[2]),
            (64, "rings[1].head", &[3]),
            (80, "rings[1].tail", &[4]),
        ],
    );
    let wanted = Shape::Members {
        path: vec![],
        breaks: strings(&["tail"]),
        ends: [None, None],
    };
    assert_eq!(Shape::of(&found, 64), wanted);
}

#[test]
fn an_array_inside_an_object_has_a_path() {
    let found = finding(
        "pool",
        &[(0, "pool.slots[0].n", &[1]), (8, "pool.slots[1].n", &[2])],
    );
    let wanted = Shape::Elements {
        path: strings(&["slots"]),
    };
    assert_eq!(Shape::of(&found, 64), wanted);
}

#[test]
fn bytes_without_names_have_no_shape() {
    assert!(matches!(Shape::of(&finding("x", &[]), 64), Shape::Other(_)));
    let found = finding("x", &[(0, "x", &[1]), (4, "x", &[2])]);
    assert!(matches!(Shape::of(&found, 64), Shape::Other(_)));
    let found = finding(
        "x",
        &[
            (0, "x.a", &[1]),
            (8, "x.b", &[2]),
            (16, "x.<unknown>", &[2]),
        ],
    );
    let why = "the finding does not name all members that threads use";
    assert_eq!(Shape::of(&found, 64), Shape::Other(why.into()));
}
