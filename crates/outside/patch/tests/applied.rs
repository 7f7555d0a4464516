//! Each form of a change, carried out in a source and compiled: static assertions and a run say
//! whether the layout is the one that was wanted. Findings are made by hand.

mod given;

use given::{Case, frame, word};
use sunder_findings::{Finding, Object, ObjectKind};

fn global(name: &str, of: &str, size: u64, element: Option<u64>, line: u32) -> Object {
    Object {
        kind: ObjectKind::Global,
        name: Some(name.into()),
        type_name: Some(of.into()),
        size: Some(size),
        element_size: element,
        declared: Some(given::place("a.c", line)),
        ..Object::default()
    }
}

fn heap(name: &str, of: &str, size: u64, element: Option<u64>, line: u32) -> Object {
    Object {
        kind: ObjectKind::Heap,
        declared: None,
        allocation: vec![frame("malloc", None), frame("main", Some(("a.c", line)))],
        ..global(name, of, size, element, 0)
    }
}

#[test]
fn the_type_of_an_array_is_aligned() {
    let source = "struct stats { long hits, misses; };\nstruct stats stats[8];\n";
    let object = global("stats", "struct stats[8]", 128, Some(16), 2);
    let words = [word(0, "stats[0].hits", 1), word(16, "stats[1].hits", 2)];
    let case = Case::new("a.c", source, object, &words);
    case.compiles_with("_Static_assert(sizeof(struct stats) == 64, \"\"); _Static_assert(_Alignof(struct stats) == 64, \"\");");
    assert_eq!(case.ways()[0].grows_by, Some(8 * 48));
}

#[test]
fn a_type_that_a_typedef_names_is_aligned_in_old_c() {
    let source = "typedef struct { int n; } slot;\nslot slots[4];\n";
    let object = global("slots", "slot[4]", 16, Some(4), 2);
    let words = [word(0, "slots[0].n", 1), word(4, "slots[1].n", 2)];
    let case = Case::new("a.c", source, object, &words);
    case.compiles_as(
        "gcc",
        &["-std=c89", "-pedantic-errors", "-c"],
        "char assert_size[sizeof(slot) == 64 ? 1 : -1];",
    );
}

#[test]
fn a_name_for_a_type_of_another_file_is_followed() {
    for (alias, source) in [
        ("using pair = both;", "a.cpp"),
        ("typedef both pair;", "a.cpp"),
        ("typedef struct both pair;", "a.c"),
    ] {
        let text = format!("#include \"q.h\"\n{alias}\npair s;\n");
        let object = global("s", "pair", 16, None, 3);
        let words = [word(0, "s.a", 1), word(8, "s.b", 2)];
        let header = "struct both { long a; long b; };\n";
        let case = Case::beside("q.h", header, source, &text, object, &words);
        assert_eq!(case.ways()[0].what, "a line begins before `b` of `both`");
        assert!(case.diff().contains("q.h"), "{}", case.diff());
    }
}

/// `b` is the first thread's, too: the line begins before `c`.
#[test]
fn members_are_parted_behind_the_last_of_the_first_thread() {
    let source = "#include <stddef.h>\nstruct s { long a, b; long c, d; };\nstruct s s;\n";
    let object = global("s", "struct s", 32, None, 3);
    let words = [word(0, "s.a", 1), word(8, "s.b", 1), word(16, "s.d", 2)];
    let case = Case::new("a.c", source, object, &words);
    case.compiles_with(
        "_Static_assert(offsetof(struct s, b) == 8, \"\"); _Static_assert(offsetof(struct s, d) == 64, \"\");",
    );
}

/// What the finding does not name is on other lines, and stays there: both threads may use it.
#[test]
fn members_on_other_lines_do_not_move_in() {
    let source = "#include <stddef.h>\n\
        struct s { long early[4], a; long b, pad[6], late; long last; };\nstruct s s;\n";
    let object = global("s", "struct s", 112, None, 3);
    // The object begins in the middle of a line, and the second line is shared.
    let words = [word(0, "s.a", 1), word(8, "s.b", 2)];
    let mut finding = given::finding(object, &words);
    finding.lines[0].object_offset = Some(32);
    let case = Case::of("a.c", source, finding);
    case.compiles_with(
        "_Static_assert(offsetof(struct s, a) == 64, \"\"); _Static_assert(offsetof(struct s, b) == 128, \"\"); _Static_assert(offsetof(struct s, pad) == 192, \"\");",
    );
    assert_eq!(case.ways()[0].grows_by, None);
}

#[test]
fn neighbours_begin_lines_of_their_own() {
    let source =
        "static long in, other;\nlong out = 3;\nlong *use(void) { other++; return &in; }\n";
    let mut finding = Finding {
        object: global("in", "long", 8, None, 1),
        neighbour: Some(global("out", "long", 8, None, 2)),
        ..Finding::default()
    };
    finding.object.declared = Some(given::place("a.c", 1));
    let case = Case::of("a.c", source, finding);
    case.runs_with(
        "int main(void) { use(); return ((unsigned long)&in % 64 || (unsigned long)&out % 64 || out != 3); }",
    );
}

#[test]
fn an_array_on_the_heap_is_aligned_with_its_type() {
    let source = "#include <stdlib.h>\nstruct t { int n; };\nstruct t *make(int n) {\n    return malloc(n * sizeof(struct t));\n}\n";
    let object = heap("v", "struct t", 16, Some(4), 4);
    let words = [word(0, "[0].n", 1), word(4, "[1].n", 2)];
    let case = Case::new("a.c", source, object, &words);
    case.runs_with(
        "int main(void) { for (int i = 1; i < 9; i++) if ((unsigned long)make(i) % 64) return 1; return sizeof(struct t) != 64; }",
    );
    assert!(
        case.diff()
            .contains("aligned_alloc(64, n * sizeof(struct t))"),
        "{}",
        case.diff()
    );
}

#[test]
fn calloc_stays_zeroed() {
    let source = "#include <stdlib.h>\nstruct t { int n; };\nstruct t *make(int n) {\n    return calloc(n, sizeof(struct t));\n}\n";
    let object = heap("v", "struct t", 16, Some(4), 4);
    let words = [word(0, "[0].n", 1), word(4, "[1].n", 2)];
    let case = Case::new("a.c", source, object, &words);
    case.runs_with(
        "int main(void) {\n    for (int round = 0; round < 50; round++) {\n        struct t *v = make(7);\n        \
         if ((unsigned long)v % 64) return 1;\n        for (int i = 0; i < 7; i++) { if (v[i].n) return 2; v[i].n = 1; }\n        \
         free(v);\n    }\n    return make(-1) != NULL;\n}",
    );
}

/// The header of C99 does not declare `aligned_alloc`, and pointers would be cut short.
#[test]
fn old_c_gets_a_declaration() {
    let source = "#include <stdlib.h>\nstruct t { int n; };\nstruct t *make(int n) {\n    return calloc(n, sizeof(struct t));\n}\n";
    let object = heap("v", "struct t", 16, Some(4), 4);
    let words = [word(0, "[0].n", 1), word(4, "[1].n", 2)];
    let case = Case::beside(
        "Makefile",
        "CFLAGS = -std=c99\n",
        "a.c",
        source,
        object,
        &words,
    );
    let flags = ["-std=c99", "-pedantic-errors", "-Wall", "-Werror", "-c"];
    case.compiles_as("gcc", &flags, "");
}

/// A block of two lines that `inner` allocates and `outer` gets from it, at these lines.
fn passed_on(inner: (&str, u32), outer: (&str, u32)) -> Object {
    let mut object = heap("v", "long", 128, Some(64), 0);
    object.allocation = vec![
        frame("malloc", None),
        frame(inner.0, Some(("a.c", inner.1))),
        frame(outer.0, Some(("a.c", outer.1))),
    ];
    object
}

/// Not the wrapper is changed but its caller, or everybody's blocks would grow.
#[test]
fn the_caller_of_a_wrapper_is_changed() {
    let source = "#include <stdlib.h>\nvoid *xmalloc(size_t size) {\n    void *p = malloc(size);\n    if (!p) abort();\n    return p;\n}\nlong *make(void) {\n    return xmalloc(2 * 64);\n}\n";
    let object = passed_on(("xmalloc", 3), ("make", 8));
    let words = [word(0, "[0]", 1), word(64, "[1]", 2)];
    let case = Case::new("a.c", source, object, &words);
    assert!(
        case.diff()
            .contains("+    return aligned_alloc(64, (2 * 64 + 63) / 64 * 64);"),
        "{}",
        case.diff()
    );
    case.runs_with("int main(void) { return (unsigned long)make() % 64 != 0; }");
}

/// A function that does more with the block than to hand it on is no wrapper: it is changed itself, and its
/// callers go on calling it.
#[test]
fn what_a_constructor_does_is_still_done() {
    for body in [
        "long *v = malloc(size);\n    v[0] = 7;\n    return v;",
        "long *v = (long *)malloc(size);\n    if (v) v[0] = 7;\n    return v;",
        "long *v = malloc(size);\n    if (!v) abort();\n    fill(v);\n    return v;",
        "long *v = malloc(size);\n    made++;\n    fill(v);\n    return v;",
        "long *v = malloc(size);\n    if (v == NULL)\n        return NULL;\n    memset(v, 0, 8);\n    \
             v[0] = 7;\n    return v;",
    ] {
        let head = "#include <stdlib.h>\n#include <string.h>\nstatic int made;\nvoid fill(long *v) { v[0] = 7; made++; }\n";
        let source = format!(
            "{head}long *make(size_t size) {{\n    {body}\n}}\nlong *begin(void) {{\n    return make(2 * 64);\n}}\n"
        );
        let allocates = source.lines().position(|l| l.contains("malloc(size)"));
        let calls = source.lines().position(|l| l.contains("return make"));
        let line = |at: Option<usize>| at.expect("it is there") as u32 + 1;
        let object = passed_on(("make", line(allocates)), ("begin", line(calls)));
        let words = [word(0, "[0]", 1), word(64, "[1]", 2)];
        let case = Case::new("a.c", &source, object, &words);
        case.runs_with(
            "int main(void) { long *v = begin(); return (unsigned long)v % 64 || v[0] != 7; }",
        );
    }
}

/// As `xmalloc`, with a block that is cleared.
#[test]
fn a_wrapper_that_clears_the_block_is_left_out_with_a_cleared_one() {
    let source = "#include <stdlib.h>\n#include <string.h>\nvoid *zeroed(size_t size) {\n    void *p = malloc(size);\n    if (p == NULL) abort();\n    memset(p, 0, size);\n    return p;\n}\nlong *make(void) {\n    return zeroed(2 * 64);\n}\n";
    let object = passed_on(("zeroed", 4), ("make", 10));
    let words = [word(0, "[0]", 1), word(64, "[1]", 2)];
    let case = Case::new("a.c", source, object, &words);
    assert!(
        !case.diff().contains("+    return zeroed"),
        "{}",
        case.diff()
    );
    case.runs_with("int main(void) { long *v = make(); return (unsigned long)v % 64 || v[15]; }");
}

#[test]
fn a_macro_for_calloc_is_opened_at_its_caller() {
    let source = "#include <stdlib.h>\n#define CALLOC(n, t) ((t *)calloc((n), sizeof(t)))\nstruct t { int n; };\nstruct t *make(void) {\n    return CALLOC(3, struct t);\n}\n";
    let object = heap("v", "struct t", 12, Some(4), 5);
    let words = [word(0, "[0].n", 1), word(4, "[1].n", 2)];
    let case = Case::new("a.c", source, object, &words);
    assert!(!case.diff().contains("-#define"), "{}", case.diff());
    case.runs_with(
        "int main(void) { struct t *v = make(); return (unsigned long)v % 64 || v[2].n; }",
    );
}

#[test]
fn numbers_become_members_of_an_aligned_struct() {
    let source = "static long counts[4];\nvoid add(int i) { counts[i]++; *&counts[i] += 1; }\n";
    let object = global("counts", "long[4]", 32, Some(8), 1);
    let words = [word(0, "counts[0]", 1), word(8, "counts[1]", 2)];
    let case = Case::new("a.c", source, object, &words);
    case.runs_with(
        "int main(void) { add(2); return sizeof counts != 256 || counts[2].value != 2; }",
    );
}

#[test]
fn classes_are_aligned_by_the_keyword_of_cpp() {
    let source = "#include <atomic>\n#include <array>\nnamespace app {\nclass counter { std::atomic<long> n{0}; public: void add() { n++; } };\nstd::array<counter, 4> counters;\n}\n";
    let mut object = global(
        "app::counters",
        "std::array<app::counter, 4ul>",
        32,
        Some(8),
        5,
    );
    object.declared = Some(given::place("a.cpp", 5));
    let words = [
        word(0, "counters._M_elems[0].n", 1),
        word(8, "counters._M_elems[1].n", 2),
    ];
    let case = Case::new("a.cpp", source, object, &words);
    assert!(
        case.diff().contains("class alignas(64) counter"),
        "{}",
        case.diff()
    );
    case.compiles_as(
        "g++",
        &["-c"],
        "static_assert(sizeof(app::counter) == 64, \"\");",
    );
}

#[test]
fn a_struct_of_rust_is_aligned() {
    let source = "use std::sync::Mutex;\n\n#[derive(Default)]\npub struct Slot(Mutex<u64>);\n\npub static SLOTS: [Slot; 2] = [const { Slot(Mutex::new(0)) }; 2];\n";
    let mut object = global("a::SLOTS", "[a::Slot; 2]", 32, Some(16), 6);
    object.declared = Some(given::place("a.rs", 6));
    let words = [word(0, "SLOTS[0].0", 1), word(16, "SLOTS[1].0", 2)];
    let case = Case::new("a.rs", source, object, &words);
    case.compiles_as(
        "rustc",
        &["--crate-type=lib", "--emit=metadata"],
        "const _: () = assert!(size_of::<Slot>() == 64);",
    );
}

#[test]
fn atomics_of_rust_are_wrapped() {
    let source = "use std::sync::atomic::{AtomicU64, Ordering};\n\nstatic COUNTS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];\n\npub fn of(i: usize) -> &'static AtomicU64 {\n    COUNTS[i].fetch_add(1, Ordering::Relaxed);\n    &COUNTS[i]\n}\n";
    let mut object = global(
        "a::COUNTS",
        "[core::sync::atomic::AtomicU64; 2]",
        16,
        Some(8),
        3,
    );
    object.declared = Some(given::place("a.rs", 3));
    let words = [word(0, "COUNTS[0]", 1), word(8, "COUNTS[1]", 2)];
    let case = Case::new("a.rs", source, object, &words);
    case.compiles_as(
        "rustc",
        &["--crate-type=lib", "--emit=metadata"],
        "const _: () = assert!(size_of_val(&COUNTS) == 128);",
    );
}

/// Members whose type is the program's own: that type is aligned, and no use of it changes. A block of
/// several elements is told as `Pair[2]`.
#[test]
fn members_of_own_types_of_rust_are_parted_by_their_type() {
    let source = "use std::sync::atomic::AtomicU64;\n\npub struct Count(AtomicU64);\n\npub struct Stats {\n    pub seen: Count,\n    pub sent: Count,\n}\n\npub static STATS: Stats = Stats { seen: Count(AtomicU64::new(0)), sent: Count(AtomicU64::new(0)) };\n";
    let mut object = global("a::STATS", "a::Stats", 16, None, 10);
    object.declared = Some(given::place("a.rs", 10));
    let words = [word(0, "STATS.seen.__0", 1), word(8, "STATS.sent.__0", 2)];
    let case = Case::new("a.rs", source, object.clone(), &words);
    case.compiles_as(
        "rustc",
        &["--crate-type=lib", "--emit=metadata"],
        "const _: () = assert!(size_of::<Count>() == 64 && size_of::<Stats>() == 128);",
    );
    // One member of a library's type may stay.
    let ring = "use std::sync::atomic::AtomicU64;\n\npub struct Side(AtomicU64);\n\npub struct Ring {\n    pub slots: Box<[u32]>,\n    pub side: Side,\n}\n\npub static RING: Option<Ring> = None;\n";
    let mut of_ring = global("a::RING", "a::Ring", 24, None, 10);
    of_ring.declared = Some(given::place("a.rs", 10));
    let words = [
        word(0, "RING.slots.data_ptr", 1),
        word(16, "RING.side.__0", 2),
    ];
    let case = Case::new("a.rs", ring, of_ring, &words);
    case.compiles_as(
        "rustc",
        &["--crate-type=lib", "--emit=metadata"],
        "const _: () = assert!(core::mem::offset_of!(Ring, slots).abs_diff(core::mem::offset_of!(Ring, side)) >= 64);",
    );
    object.type_name = Some("a::Stats[2]".into());
    let words = [word(0, "STATS[0].seen", 1), word(16, "STATS[1].seen", 2)];
    let case = Case::new("a.rs", source, object, &words);
    case.compiles_as(
        "rustc",
        &["--crate-type=lib", "--emit=metadata"],
        "const _: () = assert!(size_of::<Stats>() == 64);",
    );
}

#[test]
fn atomics_in_a_struct_of_rust_are_parted() {
    let source = "use std::sync::atomic::AtomicU64;\n\npub struct Ring {\n    head: AtomicU64,\n    tail: AtomicU64,\n}\n\nimpl Ring {\n    pub fn new(tail: AtomicU64) -> Self {\n        Self { head: AtomicU64::new(0), tail }\n    }\n}\n\npub static RING: Option<Ring> = None;\n";
    let mut object = global("a::RING", "a::Ring", 16, None, 14);
    object.declared = Some(given::place("a.rs", 14));
    let words = [word(0, "RING.head", 1), word(8, "RING.tail", 2)];
    let case = Case::new("a.rs", source, object, &words);
    case.compiles_as(
        "rustc",
        &["--crate-type=lib", "--emit=metadata"],
        "const _: () = assert!(core::mem::offset_of!(Ring, head).abs_diff(core::mem::offset_of!(Ring, tail)) == 64);",
    );
}

/// What the members could do before, their wrapper can: it prints the same, is made by default, and gives
/// its value to change.
#[test]
fn a_wrapped_member_does_what_it_did() {
    let source = "use std::sync::atomic::{AtomicU64, Ordering};\n\n#[derive(Debug, Default)]\npub struct Ring {\n    head: AtomicU64,\n    tail: AtomicU64,\n}\n\nfn take(from: &AtomicU64) -> u64 {\n    from.load(Ordering::Relaxed)\n}\n\npub fn told() -> String {\n    let mut ring = Ring::default();\n    *ring.head.get_mut() = 5;\n    ring.tail.store(take(&ring.head), Ordering::Relaxed);\n    let tail = &ring.tail;\n    format!(\"{ring:?} {:?} {}\", ring.head, take(tail))\n}\n\npub static RING: Option<Ring> = None;\n";
    let mut object = global("a::RING", "a::Ring", 16, None, 22);
    object.declared = Some(given::place("a.rs", 22));
    let words = [word(0, "RING.head", 1), word(8, "RING.tail", 2)];
    // A private member's name is free in other files.
    let case = Case::beside(
        "b.rs",
        "pub struct Other { pub head: u64 }\npub fn more(other: &mut Other) { other.head += 1; }\n",
        "a.rs",
        source,
        object,
        &words,
    );
    case.runs_with(
        "fn main() { assert_eq!(told(), \"Ring { head: 5, tail: 5 } 5 5\"); \
         assert_eq!(core::mem::align_of::<Ring>(), 64); }",
    );
}

/// The wrapper is in the module of what it wraps: it must be seen wherever that is used, and has its indent.
#[test]
fn what_is_in_a_module_is_wrapped_there() {
    let source = "mod stats {\n    use std::sync::atomic::AtomicU64;\n\n    /// How often.\n    pub struct Counters {\n        pub a: AtomicU64,\n        pub b: AtomicU64,\n    }\n\n    pub mod made {\n        use super::*;\n\n        pub const fn new() -> Counters {\n            Counters { a: AtomicU64::new(0), b: AtomicU64::new(7) }\n        }\n    }\n}\n\nuse std::sync::atomic::Ordering;\n\npub static ALL: stats::Counters = stats::made::new();\n";
    let mut object = global("a::ALL", "a::stats::Counters", 16, None, 21);
    object.declared = Some(given::place("a.rs", 21));
    let words = [word(0, "ALL.a", 1), word(8, "ALL.b", 2)];
    let case = Case::new("a.rs", source, object, &words);
    case.runs_with(
        "fn main() { ALL.a.fetch_add(1, Ordering::Relaxed); assert_eq!(ALL.b.load(Ordering::Relaxed), 7); \
         assert_eq!(size_of::<stats::Counters>(), 128); }",
    );
    let diff = case.diff();
    let wrapper = "+    /// A value with cache lines of its own.\n+    #[repr(align(64))]\n+    pub struct CachePadded<T>(T);\n+\n+    impl<T>";
    assert!(diff.contains(wrapper), "{diff}");
    assert!(diff.contains("+    }\n+\n     /// How often.\n"), "{diff}");

    let source = "mod stats {\n    use std::sync::atomic::AtomicU64;\n\n    pub(super) static COUNTS: [AtomicU64; 2] = [const { AtomicU64::new(3) }; 2];\n}\n";
    let mut object = global(
        "a::stats::COUNTS",
        "[core::sync::atomic::AtomicU64; 2]",
        16,
        Some(8),
        4,
    );
    object.declared = Some(given::place("a.rs", 4));
    let words = [word(0, "COUNTS[0]", 1), word(8, "COUNTS[1]", 2)];
    Case::new("a.rs", source, object, &words).runs_with(
        "fn main() { assert_eq!(stats::COUNTS[1].load(std::sync::atomic::Ordering::Relaxed), 3); }",
    );
}
