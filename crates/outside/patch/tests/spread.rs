//! Arrays of numbers whose elements move apart: the changed program computes the same and keeps each
//! element on a line of its own, or there is no patch.

mod given;

use given::{Case, frame, place, word};
use sunder_findings::{Object, ObjectKind};

/// A block of eight `long`s, allocated at this line.
fn block(name: &str, allocator: &str, file: &str, line: u32) -> Object {
    Object {
        kind: ObjectKind::Heap,
        name: Some(name.into()),
        type_name: Some("long".into()),
        size: Some(64),
        element_size: Some(8),
        allocation: vec![frame(allocator, None), frame("main", Some((file, line)))],
        ..Object::default()
    }
}

fn case(file: &str, source: &str, object: Object) -> Case {
    let name = object.name.clone().unwrap_or_default();
    let words = [0, 1].map(|i| word(8 * i, &format!("{name}[{i}]"), i + 1));
    Case::new(file, source, object, &words)
}

const USES: &str = r"
static long *counts;
static void add(long *mine, long n) { *mine += n; }
static long sum(long *all, int n) {
    long total = 0;
    for (int i = 0; i < n; i++) total += all[i] + *(all + i);
    return total;
}
int main(void) {
    long *block = malloc(8 * sizeof *block);
    if (block == NULL) return 1;
    memset(block, 0, 8 * sizeof *block);
    counts = block;
    for (int i = 0; i < 8; i++) add(&counts[i], i);
    for (int i = 1; i < 8; i++)
        if ((unsigned long)&counts[i] / 64 == (unsigned long)&block[i - 1] / 64) return 2;
    int wrong = sum(counts, 8) != 56;
    free(block);
    return wrong ? 3 : 0;
}
";

#[test]
fn a_block_is_followed_through_names_and_functions() {
    let source = format!("#include <stdlib.h>\n#include <string.h>{USES}");
    case("a.c", &source, block("counts", "malloc", "a.c", 11)).runs_with("");
    let aligned = source.replace("malloc(", "aligned_alloc(64, ");
    case("a.c", &aligned, block("counts", "aligned_alloc", "a.c", 11)).runs_with("");
    let source = source.replace("malloc(8 * sizeof *block)", "calloc(8, sizeof *block)");
    case("a.c", &source, block("counts", "calloc", "a.c", 11)).runs_with("");
}

#[test]
fn an_array_in_a_frame_is_spread_if_it_is_used_as_a_whole() {
    let source = "#include <string.h>\nstatic long *slots;\nint main(void) {\n    long results[8];\n    \
                  memset(results, 0, sizeof results);\n    slots = results;\n    for (int i = 0; i < 8; i++) slots[i] += \
                  i;\n    long *one = &results[1];\n    int two = 2;\n    long *other = results + two;\n    return \
                  results[7] != 7 || other - one != 8;\n}\n";
    let object = Object {
        kind: ObjectKind::Stack,
        name: Some("results".into()),
        type_name: Some("long[8]".into()),
        element_size: None,
        declared: Some(place("a.c", 4)),
        allocation: Vec::new(),
        ..block("results", "", "a.c", 4)
    };
    // An element's address with a constant index may lead to the next one.
    let told = case("a.c", source, object.clone()).refusal();
    assert!(told.contains("address of an element"), "{told}");
    let source = source
        .replace("&results[1]", "results + (two - 1)")
        .replace(
            "    long *one = results + (two - 1);\n    int two = 2;",
            "    int two = 2;\n    long *one = results + (two - 1);",
        );
    case("a.c", &source, object).runs_with("");
}

#[test]
fn elements_of_new_and_of_vectors_are_spread() {
    let source = "#include <vector>\nint main() {\n    long *p = new long[8]();\n    for (int i = 0; i < 8; i++) p[i] = \
                  i;\n    int one = 1; long *a = p + one, *b = p + (one + 1); bool wrong = p[7] != 7 || *(p + 3) != 3 || b - a != 8;\n    delete[] p;\n    return \
                  wrong;\n}\n";
    case(
        "a.cpp",
        source,
        block("p", "operator new[](unsigned long)", "a.cpp", 3),
    )
    .runs_with("");
    let source = "#include <vector>\nint main() {\n    std::vector<long> v(8);\n    auto add = [&](int i) { v[i] += i; \
                  };\n    for (std::size_t i = 0; i < v.size(); i++) add(i);\n    long *a = &v[0 + 1], *b = &v[0 + \
                  2];\n    return v[7] != 7 || v.size() != 8 || 20 % v.size() != 4 || b - a != 8;\n}\n";
    case(
        "a.cpp",
        source,
        block("v", "operator new(unsigned long)", "a.cpp", 3),
    )
    .runs_with("");
}

#[test]
fn a_use_that_is_not_understood_leaves_the_array_alone() {
    let whole = |line: &str| {
        let source = format!(
            "#include <stdlib.h>\nstruct s {{ long *at; }};\nvoid other(long *);\nstatic void one(long *x) {{ x[0] = \
             1; }}\nint main(void) {{\n    long spare[8], *p = malloc(64);\n    {line}\n    return p[1];\n}}\n"
        );
        case("a.c", &source, block("p", "malloc", "a.c", 6)).refusal()
    };
    for (line, why) in [
        ("other(p);", "`other`"),
        ("p++;", "used as a whole"),
        ("p += 1;", "moved along"),
        ("struct s s; s.at = p;", "kept in something else"),
        ("long *last = &p[7]; last--;", "address of an element"),
        ("p = spare;", "something else"),
        ("qsort(p, 8, 8, NULL);", "`qsort`"),
        ("one(p); one(spare);", "may also get other arrays"),
        ("char *c = (char *)p; c[3] = 0;", "used as a whole"),
        ("{ long *p = spare; p[0] = 1; }", "another `p`"),
        ("p = realloc(p, 128);", "realloc"),
        ("long n = p - spare; n++;", "used as a whole"),
        (
            "long *q = p + 1 + 1; q[0] = 1;",
            "a sum that is not understood",
        ),
        ("int i = 2; (p + i)[1] = 1;", "a sum that is not understood"),
    ] {
        let told = whole(line);
        assert!(told.contains(why), "{line}: {told}");
    }
}

#[test]
fn a_large_array_is_left_alone() {
    let object = Object {
        size: Some(16 << 10),
        ..block("p", "malloc", "a.c", 3)
    };
    let source = "#include <stdlib.h>\nint main(void) {\n    long *p = malloc(16384);\n    return p[1];\n}\n";
    let told = case("a.c", source, object).refusal();
    assert!(told.contains("more than 65536 bytes"), "{told}");
}
