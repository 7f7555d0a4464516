//! Where no change is certain to be right, there is none, and the reason is told.

mod given;

use given::{Case, frame, word};
use sunder_findings::{Object, ObjectKind, Site};

fn case_of(source: &str, line: u32) -> Case {
    let object = Object {
        kind: ObjectKind::Global,
        name: Some("v".into()),
        type_name: Some("struct t[8]".into()),
        size: Some(64),
        element_size: Some(8),
        declared: Some(given::place("a.c", line)),
        ..Object::default()
    };
    Case::new(
        "a.c",
        source,
        object,
        &[word(0, "v[0].n", 1), word(8, "v[1].n", 2)],
    )
}

#[test]
fn layouts_that_others_prescribe_stay() {
    for (source, line, why) in [
        (
            "struct __attribute__((packed)) t { char c; long n; };\nstruct t v[8];\n",
            2,
            "packed",
        ),
        (
            "#pragma pack(push, 1)\nstruct t { long n; };\n#pragma pack(pop)\nstruct t v[8];\n",
            4,
            "#pragma pack",
        ),
        (
            "union t { long n; char c; };\nunion t v[8];\n",
            2,
            "a union",
        ),
        (
            "#include <stdio.h>\nstruct t { long n; };\nstruct t v[8];\nvoid s(FILE *f) { fwrite(v, sizeof(struct t), 8, f); }\n",
            3,
            "`fwrite` at a.c:4",
        ),
        (
            "struct t { long n; };\nstruct t v[8];\n_Static_assert(sizeof(struct t) == 8, \"\");\n",
            2,
            "asserts the layout",
        ),
    ] {
        let told = case_of(source, line).refusal();
        assert!(told.contains(why), "{told}");
    }
}

#[test]
fn a_definition_that_is_not_understood_is_named() {
    let source = "struct PACK_IT t { long n; };\nstruct t v[8];\n";
    let why = case_of(source, 2).refusal();
    assert_eq!(why, "the definition of `t` at a.c:1 can't be read");
}

#[test]
fn names_that_stand_for_each_other_end() {
    let source = "typedef struct u t;\ntypedef struct t u;\nextern t v[8];\n";
    let why = case_of(source, 3).refusal();
    assert!(why.starts_with("no definition of `"), "{why}");
}

#[test]
fn a_bit_field_can_not_begin_a_line() {
    let source = "struct t { long a; unsigned b : 3; };\nstruct t v;\n";
    let object = Object {
        kind: ObjectKind::Global,
        name: Some("v".into()),
        type_name: Some("struct t".into()),
        declared: Some(given::place("a.c", 2)),
        ..Object::default()
    };
    let told = Case::new(
        "a.c",
        source,
        object,
        &[word(0, "v.a", 1), word(8, "v.b", 2)],
    )
    .refusal();
    assert!(told.contains("bit field"), "{told}");
}

#[test]
fn a_source_that_has_changed_is_not_patched() {
    let mut finding = sunder_findings::Finding {
        sites: vec![Site {
            file: Some("/home/somebody/project/a.c".into()),
            line: Some(3),
            source: Some("v[i].n++;".into()),
            ..Site::default()
        }],
        ..Default::default()
    };
    finding.object.name = Some("v".into());
    let source = "struct t { long n; };\nstruct t v[8];\nvoid f(int i) { v[i].n--; }\n";
    assert!(
        Case::of("a.c", source, finding)
            .refusal()
            .contains("changed since")
    );
    // The declaration is a line further down now.
    let told = case_of("\nstruct t { long n; };\nstruct t w[8];\n\n", 3);
    // The type is found by its name; that the variable is not is told where the variable is changed.
    assert_eq!(told.ways().len(), 1);
}

#[test]
fn what_may_be_defined_twice_is_not_chosen() {
    let told = case_of(
        "#ifdef A\nstruct t { long n; };\n#else\nstruct t { long n, m; };\n#endif\nstruct t v[8];\n",
        6,
    );
    assert!(
        told.refusal().contains("is defined at"),
        "{}",
        told.refusal()
    );
}

#[test]
fn numbers_whose_uses_are_not_plain_stay() {
    for use_of in [
        "void g(long *p); void f(void) { g(v); }",
        "long *f(void) { return &v[0]; }",
        "#define FIRST v[1]\nlong f(void) { return FIRST; }",
        "void f(long v) { v++; }",
    ] {
        let object = Object {
            kind: ObjectKind::Global,
            name: Some("v".into()),
            type_name: Some("long[8]".into()),
            element_size: Some(8),
            declared: Some(given::place("a.c", 1)),
            ..Object::default()
        };
        let source = format!("static long v[8];\n{use_of}\n");
        let case = Case::new(
            "a.c",
            &source,
            object,
            &[word(0, "v[0]", 1), word(8, "v[1]", 2)],
        );
        assert!(!case.refusal().is_empty(), "{use_of}");
    }
}

#[test]
fn other_allocations_of_the_type_must_be_aligned_too() {
    let with = |more: &str| {
        let source = format!(
            "#include <stdlib.h>\nstruct t {{ long n; }};\nstruct t v[8];\nvoid *pool(size_t n);\n{more}\n"
        );
        case_of(&source, 3)
    };
    let told = with("struct t *f(void) { return pool(sizeof(struct t)); }").refusal();
    assert!(told.contains("`pool` at a.c:5"), "{told}");
    let told = with("struct t *f(void *p) { return realloc(p, 2 * sizeof(struct t)); }").refusal();
    assert!(told.contains("realloc"), "{told}");
    let also = with(
        "struct o { struct t t; };\nstruct o *f(void) { struct o *p = malloc(sizeof *p); return p; }",
    );
    assert!(
        also.diff().contains("aligned_alloc(64, sizeof *p)"),
        "{}",
        also.diff()
    );
}

#[test]
fn a_block_that_is_resized_stays() {
    let source =
        "#include <stdlib.h>\nlong *v;\nvoid f(void) { v = malloc(128); v = realloc(v, 256); }\n";
    let object = Object {
        kind: ObjectKind::Heap,
        name: Some("v".into()),
        type_name: Some("long".into()),
        element_size: Some(64),
        allocation: vec![frame("malloc", None), frame("f", Some(("a.c", 3)))],
        ..Object::default()
    };
    let case = Case::new(
        "a.c",
        source,
        object,
        &[word(0, "[0]", 1), word(64, "[1]", 2)],
    );
    assert!(!case.refusal().is_empty());
}

#[test]
fn interfaces_to_c_stay_in_rust() {
    let source = "#[repr(C)]\npub struct Slot {\n    n: u64,\n}\npub static S: [Slot; 2] = [Slot { n: 0 }, Slot { n: 0 }];\n";
    let object = Object {
        kind: ObjectKind::Global,
        name: Some("a::S".into()),
        type_name: Some("[a::Slot; 2]".into()),
        declared: Some(given::place("a.rs", 5)),
        ..Object::default()
    };
    let told = Case::new(
        "a.rs",
        source,
        object,
        &[word(0, "S[0].n", 1), word(8, "S[1].n", 2)],
    )
    .refusal();
    assert!(told.contains("interface to C"), "{told}");
}

/// A wrapper has not all that a member has: the diff would not compile.
#[test]
fn members_whose_value_itself_is_needed_are_not_wrapped() {
    let head = "use std::sync::atomic::AtomicU64;\n";
    let ring = "pub struct Ring {\n    head: AtomicU64,\n    tail: AtomicU64,\n}\npub static RING: Option<Ring> = None;\n";
    for (derived, uses, why) in [
        (
            "#[derive(serde::Serialize)]\n",
            "",
            "derives `serde::Serialize`",
        ),
        (
            "",
            "fn f(r: Ring) -> u64 { r.head.into_inner() }\n",
            "a.rs:7 may need the value itself",
        ),
        (
            "",
            "fn f(r: Ring) { println!(\"{}\", r.tail.into_inner()); }\n",
            "a.rs:7 may need the value itself",
        ),
        (
            "",
            "fn f(r: &mut Ring) { r.head = AtomicU64::new(1); }\n",
            "a.rs:7 may need the value itself",
        ),
        (
            "",
            "fn f(r: Ring) { let Ring { head, .. } = r; drop(head); }\n",
            "a.rs:7 may need the value itself",
        ),
        (
            "",
            "fn f(r: &Ring) -> [&AtomicU64; 2] { [&r.head, &r.tail] }\n",
            "a.rs:7 may need the value itself",
        ),
    ] {
        let source = format!("{head}{derived}{ring}{uses}");
        let line = 6 + u32::from(!derived.is_empty());
        let object = Object {
            kind: ObjectKind::Global,
            name: Some("a::RING".into()),
            type_name: Some("a::Ring".into()),
            size: Some(16),
            declared: Some(given::place("a.rs", line)),
            ..Object::default()
        };
        let words = [word(0, "RING.head", 1), word(8, "RING.tail", 2)];
        let told = Case::new("a.rs", &source, object, &words).refusal();
        assert!(told.contains(why), "{told}");
    }
}

/// The wrapper's value is private, and its name is not known in another module.
#[test]
fn members_of_what_another_module_makes_are_not_wrapped() {
    let source = "mod stats {\n    use std::sync::atomic::AtomicU64;\n    pub struct Counters { pub a: AtomicU64, pub b: AtomicU64 }\n}\nuse std::sync::atomic::AtomicU64;\nstatic ALL: stats::Counters =\n    stats::Counters { a: AtomicU64::new(0), b: AtomicU64::new(0) };\n";
    let object = Object {
        kind: ObjectKind::Global,
        name: Some("a::ALL".into()),
        type_name: Some("a::stats::Counters".into()),
        size: Some(16),
        declared: Some(given::place("a.rs", 6)),
        ..Object::default()
    };
    let words = [word(0, "ALL.a", 1), word(8, "ALL.b", 2)];
    let told = Case::new("a.rs", source, object, &words).refusal();
    assert_eq!(
        told,
        "`Counters` is made at a.rs:7, in another module, which does not see a wrapper for `a`"
    );
}
