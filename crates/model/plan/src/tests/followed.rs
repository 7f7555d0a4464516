//! Advice that a person can follow to the letter: it names what has a declaration, it breaks lines
//! wherever bytes of another thread follow, and it speaks the program's language.

use super::*;

#[test]
fn a_break_follows_the_last_member_of_the_other_thread() {
    // Readers on both sides of what one thread writes.
    let mut finding = global(
        "state",
        "struct state",
        24,
        "state.c",
        vec![
            word(0, 8, "state.limit", &[(2, 90, 0, 0, 0), (3, 90, 0, 0, 0)]),
            word(8, 8, "state.ticks", &[(1, 0, 90, 0, 0)]),
            word(16, 8, "state.rate", &[(2, 90, 0, 0, 0), (3, 90, 0, 0, 0)]),
        ],
    );
    assert_says(
        &advise(&finding, 64)[0],
        &["put `_Alignas(64)` before `ticks` and `rate`"],
    );
    // What is written comes first: a break before it would change nothing.
    finding.lines[0].words.remove(0);
    let all = advise(&finding, 64);
    assert_says(&all[0], &["put `_Alignas(64)` before `rate`"]);
    assert!(!all[0].text.contains("before `ticks`"), "{}", all[0].text);
}

/// The object's other lines may be as busy, only not with several threads.
#[test]
fn what_lies_on_other_lines_is_kept_out() {
    let words = vec![
        word(0, 8, "s.a", &[(1, 0, 90, 0, 0)]),
        word(8, 8, "s.b", &[(2, 0, 90, 0, 0)]),
    ];
    let mut finding = global("s", "struct s", 64, "s.c", words);
    let whole = advise(&finding, 64).remove(0);
    assert!(!whole.text.contains("other lines now"), "{}", whole.text);
    finding.object.size = Some(72);
    let more = advise(&finding, 64).remove(0);
    assert_says(&more, &["Begin a line behind the last of these fields"]);
    // `a` has one line, `b` the rest of the first 64 bytes, and what lies behind has one of its own.
    assert_eq!(
        (whole.grows_by, more.grows_by),
        (Some(2 * 64 - 64), Some(3 * 64 - 72))
    );
    finding.lines[0].object_offset = Some(8);
    let both = advise(&finding, 64).remove(0);
    assert_says(&both, &["Let the first of these fields begin a line"]);
}

#[test]
fn fields_of_one_thread_stay_together_though_another_read_one_once() {
    let finding = global(
        "s",
        "struct s",
        24,
        "s.c",
        vec![
            word(0, 8, "s.a", &[(1, 0, 90, 0, 0)]),
            word(8, 8, "s.b", &[(1, 0, 8, 0, 0), (9, 1, 0, 0, 0)]),
            word(16, 8, "s.c", &[(2, 0, 90, 0, 0)]),
        ],
    );
    let all = advise(&finding, 64);
    assert_says(&all[0], &["`s.a` and `s.b` (thread 1", "before `c`"]);
    assert!(!all[0].text.contains("several threads"), "{}", all[0].text);
}

#[test]
fn what_one_thread_writes_and_others_read_is_said_so() {
    let finding = global(
        "s",
        "struct s",
        16,
        "s.c",
        vec![
            word(0, 8, "s.a", &[(1, 0, 90, 0, 0)]),
            word(8, 8, "s.b", &[(2, 0, 90, 0, 0), (1, 50, 0, 0, 0)]),
        ],
    );
    let mut mixed = finding;
    mixed.sharing = Sharing::Mixed;
    let text = &advise(&mixed, 64)[0].text;
    assert!(
        text.contains("`s.b` (written by thread 2 (worker), read by others)"),
        "{text}"
    );
}

#[test]
fn bytes_of_another_object_are_no_fields_of_this_one() {
    let finding = global(
        "s",
        "struct s",
        16,
        "s.c",
        vec![
            word(0, 8, "s.a", &[(1, 0, 440, 0, 0)]),
            word(8, 8, "s.b", &[(2, 0, 438, 0, 0)]),
            word(32, 8, "", &[(3, 0, 2, 0, 0)]),
        ],
    );
    let text = &advise(&finding, 64)[0].text;
    assert!(!text.contains("32"), "{text}");
    assert!(text.contains("before `b`"), "{text}");
}

#[test]
fn a_bit_of_a_vector_is_not_padded() {
    let words = vec![
        word(0, 8, "[0]", &[(1, 0, 0, 90, 0)]),
        word(16, 8, "[2]", &[(2, 0, 0, 90, 0)]),
    ];
    let mut finding = global("seen", "unsigned long[4]", 32, "a.cpp", words);
    finding.object.kind = ObjectKind::Heap;
    finding.object.declared = None;
    finding.object.allocation = vec![
        frame("operator new(unsigned long)", "", 0),
        frame(
            "std::_Bvector_base<std::allocator<bool>>::_M_allocate",
            "/usr/include/c++/12/bits/stl_bvector.h",
            680,
        ),
        frame("main", "a.cpp", 4),
    ];
    let all = advise(&finding, 64);
    assert_eq!(fixes(&all), [Fix::Separate]);
    assert_says(
        &all[0],
        &["`seen`", "std::vector<char>", "each thread a vector"],
    );
    assert!(!all[0].text.contains("Padded"), "{}", all[0].text);
}

#[test]
fn parts_of_a_large_array_are_kept_apart_and_not_each_element() {
    // The line where two slices of 1024 longs meet.
    let words = vec![
        word(0, 8, "sums[511]", &[(1, 0, 0, 90, 0)]),
        word(8, 8, "sums[512]", &[(2, 0, 0, 90, 0)]),
    ];
    let all = advise(&global("sums", "long[1024]", 8192, "a.c", words), 64);
    assert_eq!(fixes(&all), [Fix::Separate]);
    assert_says(&all[0], &["leave 8 elements unused (64 bytes)"]);
    assert_eq!(all[0].grows_by, Some(64));
}

#[test]
fn nobody_is_told_to_align_what_has_no_declaration() {
    let mut finding = examples::no_debug_info();
    finding.object = Object {
        kind: ObjectKind::Stack,
        name: Some("stack of thread 25732".into()),
        thread: Some(Thread {
            id: 25732,
            name: None,
        }),
        ..Object::default()
    };
    let text = advise(&finding, 64)[0].text.clone();
    assert!(
        text.contains("move what the threads share out of the frame"),
        "{text}"
    );
    assert!(text.contains("the stack of thread 25732"), "{text}");
    finding.neighbour = examples::heap_pair().neighbour;
    let text = advise(&finding, 64)[0].text.clone();
    assert!(!text.contains("declare `stack"), "{text}");
    assert!(
        text.contains("move what the threads share out of the frame"),
        "{text}"
    );
}

#[test]
fn members_without_names_are_called_by_what_holds_them() {
    let words = |first: &str, second: &str| {
        vec![
            word(0, 8, first, &[(1, 0, 0, 9, 9)]),
            word(8, 8, second, &[(2, 0, 0, 9, 9)]),
        ]
    };
    let pair = global("PAIR", "Pair", 16, "a.rs", words("PAIR.0", "PAIR.1"));
    assert_says(
        &advise(&pair, 64)[0],
        &["wrap field 1 of `Pair` in `CachePadded`"],
    );
    let inner = words("s.seen", "s.total (poison flag)");
    let shared = global("s", "Shared", 16, "a.rs", inner);
    assert_says(&advise(&shared, 64)[0], &["wrap `total` in `CachePadded`"]);
}

#[test]
fn a_function_without_a_loop_keeps_no_sums() {
    let mut finding = global(
        "sums",
        "long[2]",
        16,
        "a.c",
        vec![
            word(0, 8, "sums[0]", &[(1, 5, 0, 90, 0)]),
            word(8, 8, "sums[1]", &[(2, 5, 0, 90, 0)]),
        ],
    );
    let at = ("a.c", 20);
    let add = site("add", at, AccessKind::Update, &[1, 2], 180, &["sums[]"], "");
    finding.sites = vec![add];
    finding.sites[0].in_loop = Some(false);
    assert_eq!(fixes(&advise(&finding, 64)), [Fix::Align]);
    finding.sites[0].in_loop = Some(true);
    assert_says(&advise(&finding, 64)[1], &["once after the loop"]);
    finding.sites[0].in_loop = None;
    assert!(!advise(&finding, 64)[1].text.contains("loop"));
}

#[test]
fn a_barrier_and_a_count_of_owners_are_not_counted_per_thread() {
    let shared = |name: &str, field: &str| {
        let users = [(1, 0, 0, 90, 90), (2, 0, 0, 90, 90)];
        let mut finding = global(name, "long", 8, "a.cpp", vec![word(0, 8, field, &users)]);
        finding.sharing = Sharing::True;
        advise(&finding, 64)[0].clone()
    };
    assert_says(&shared("barrier", "barrier.arrived"), &["wait less often"]);
    assert_says(
        &shared("p", "p (use count)"),
        &["instead of copying the counted pointer"],
    );
    assert_eq!(shared("hits", "hits").fix, Fix::PerThread);
}

#[test]
fn go_pads_with_its_own_type() {
    let words = vec![
        word(0, 8, "main.counters[0].hits", &[(1, 0, 0, 9, 0)]),
        word(16, 8, "main.counters[1].hits", &[(2, 0, 0, 9, 0)]),
    ];
    let mut finding = global("main.counters", "[4]main.stats", 64, "main.go", words);
    finding.object.language = Some(Language::Go);
    let all = advise(&finding, 64);
    assert_says(
        &all[0],
        &["`_ cpu.CacheLinePad`", "at the end of `main.stats`"],
    );
}

#[test]
fn the_stated_language_counts_more_than_a_file_name() {
    let words = vec![
        word(0, 8, "s.a", &[(1, 0, 90, 0, 0)]),
        word(8, 8, "s.b", &[(2, 0, 90, 0, 0)]),
    ];
    let mut finding = global("s", "s", 16, "s.c", words);
    finding.object.language = Some(Language::Cpp);
    assert_says(&advise(&finding, 64)[0], &["put `alignas(64)` before `b`"]);
}

#[test]
fn code_of_a_runtime_is_named_by_how_it_is_started() {
    for (language, how) in [
        (Language::Java, "-XX:+DumpPerfMapAtExit"),
        (Language::Javascript, "--perf-basic-prof"),
        (Language::Python, "-X perf"),
        (Language::Dotnet, "DOTNET_PerfMapEnabled=1"),
    ] {
        let mut finding = examples::no_debug_info();
        finding.object.language = Some(language);
        for site in &mut finding.sites {
            site.function = "0x7f00a0".into();
        }
        let text = &advise(&finding, 64)[0].text;
        assert!(
            text.contains(how) && !text.contains("Build with -g"),
            "{text}"
        );
        // The runtime was started so already: its code has names, if no files.
        for site in &mut finding.sites {
            site.function = "Builtins_AtomicsAdd+0x64e".into();
        }
        let text = &advise(&finding, 64)[0].text;
        assert!(!text.contains(how), "{text}");
    }
}

/// `struct rec { atomic_long x, y; } recs[2000]`: with `y` on a line of its own an element has 128
/// bytes, 112 more than now.
#[test]
fn the_growth_of_an_array_is_that_of_all_its_elements() {
    let words = vec![
        word(0, 8, "recs[0].x", &[(1, 0, 0, 90, 0)]),
        word(8, 8, "recs[0].y", &[(2, 0, 0, 90, 0)]),
        word(16, 8, "recs[1].x", &[(1, 0, 0, 90, 0)]),
        word(24, 8, "recs[1].y", &[(2, 0, 0, 90, 0)]),
    ];
    let mut finding = global("recs", "struct rec[2000]", 32_000, "a.c", words);
    finding.object.element_size = Some(16);
    let all = advise(&finding, 64);
    assert_says(&all[0], &["before `y`"]);
    assert_eq!(all[0].grows_by, Some(224_000));
}

/// A structure of 64 bytes with counters of eight in it: its size is not theirs.
#[test]
fn an_array_in_a_structure_has_elements_of_its_own_size() {
    let words = vec![
        word(8, 8, "p.done[0]", &[(1, 0, 0, 90, 0)]),
        word(16, 8, "p.done[1]", &[(2, 0, 0, 90, 0)]),
    ];
    let mut finding = global("p", "struct phase", 64, "a.c", words);
    finding.object.element_size = Some(64);
    let all = advise(&finding, 64);
    assert_says(&all[0], &["8 bytes now", "make the element a structure"]);
    assert!(!all[0].text.contains("whole lines"), "{}", all[0].text);
}

#[test]
fn what_two_threads_write_belongs_to_neither_however_seldom_it_was_seen() {
    let words = vec![
        word(0, 8, "s.a", &[(1, 0, 90, 0, 0)]),
        word(8, 8, "s.b", &[(1, 0, 8, 0, 0), (9, 0, 2, 0, 0)]),
        word(16, 8, "s.c", &[(2, 0, 90, 0, 0)]),
    ];
    let mut finding = global("s", "struct s", 24, "s.c", words);
    // Some of it is true sharing, so the threads were there at the same time.
    finding.sharing = Sharing::Mixed;
    finding.false_share = 0.9;
    assert_says(
        &advise(&finding, 64)[0],
        &["`s.b` (written by several threads)"],
    );
}

#[test]
fn a_counter_of_barriers_is_no_barrier() {
    for (name, waits) in [("write_barrier_hits", false), ("start_barrier", true)] {
        let words = vec![word(0, 8, name, &[(1, 0, 0, 90, 90), (2, 0, 0, 90, 90)])];
        let mut finding = global(name, "long", 8, "a.c", words);
        finding.sharing = Sharing::True;
        finding.false_share = 0.0;
        let text = &advise(&finding, 64)[0].text;
        assert_eq!(
            text.contains("threads wait for each other"),
            waits,
            "{text}"
        );
    }
}

#[test]
fn inner_members_of_a_generic_type_are_told_apart_by_what_holds_them() {
    let words = vec![
        word(0, 8, "s.data.data", &[(1, 0, 0, 9, 9)]),
        word(8, 8, "s.other.data", &[(2, 0, 0, 9, 9)]),
    ];
    let finding = global("s", "Shared<std::atomic<long>>", 16, "a.cpp", words);
    assert_says(
        &advise(&finding, 64)[0],
        &["Put them on different lines: put `alignas(64)` before `other`"],
    );
}

/// Both sides of a queue: watchpoints saw one wait for the other, and samples saw it read on.
fn queue_in_doubt() -> Finding {
    let mut finding = global(
        "q",
        "struct queue",
        24,
        "q.c",
        vec![
            word(0, 8, "q.slots", &[(1, 90, 0, 0, 0), (2, 90, 0, 0, 0)]),
            word(8, 8, "q.head", &[(1, 0, 90, 0, 0), (2, 2, 0, 0, 0)]),
            word(16, 8, "q.seen", &[(1, 90, 2, 0, 0)]),
        ],
    );
    finding.sharing = Sharing::True;
    finding.false_share = 0.0;
    finding
}

#[test]
fn true_sharing_that_samples_call_false_gets_both_kinds_of_advice() {
    let mut finding = queue_in_doubt();
    let all = advise(&finding, 64);
    assert_eq!(all.len(), 1);
    finding.sampled_false_share = Some(0.76);
    let all = advise(&finding, 64);
    assert_eq!(all.len(), 2);
    assert_says(
        &all[1],
        &["not certain", "76 %", "`sunder repair`", "before `head`"],
    );
}

#[test]
fn of_true_sharing_only_what_others_use_is_named() {
    let text = &advise(&queue_in_doubt(), 64)[0].text;
    assert!(text.contains("`q.head`"), "{text}");
    assert!(!text.contains("slots") && !text.contains("seen"), "{text}");
}

/// To move `limit` away leaves `pair[0]` and `pair[1]` on one line.
#[test]
fn parts_of_a_neighbour_that_threads_share_are_taken_apart_too() {
    let mut finding = global(
        "pair",
        "long[2]",
        16,
        "p.c",
        vec![
            word(0, 8, "limit", &[(2, 90, 0, 0, 0)]),
            word(16, 8, "pair[0]", &[(1, 0, 90, 0, 0)]),
            word(24, 8, "pair[1]", &[(2, 0, 90, 0, 0)]),
        ],
    );
    finding.lines[0].object_offset = Some(-16);
    finding.object.element_size = Some(8);
    let mut other = finding.object.clone();
    (other.name, other.type_name) = (Some("limit".into()), Some("long".into()));
    (other.size, other.element_size) = (Some(8), None);
    other.address = Address(finding.object.address.0 - 16);
    finding.neighbour = Some(other);
    let all = advise(&finding, 64);
    assert_eq!(all.len(), 2, "{all:#?}");
    assert_says(
        &all[1],
        &[
            "not enough, as different threads use parts of `pair` itself",
            "Align",
        ],
    );
    // Each variable is one thread's.
    finding.lines[0].words.truncate(2);
    assert_eq!(advise(&finding, 64).len(), 1);
}

/// The positions of a queue, and a slot on which its sides met now and then.
#[test]
fn a_line_that_hardly_counts_does_not_shape_the_advice() {
    let mut finding = global(
        "q",
        "struct queue",
        4096,
        "q.c",
        vec![
            word(0, 8, "q.in", &[(1, 0, 900, 0, 0)]),
            word(8, 8, "q.out", &[(2, 0, 900, 0, 0)]),
        ],
    );
    let mut slots = finding.lines[0].clone();
    slots.object_offset = Some(512);
    slots.words = vec![
        word(0, 8, "q.cells[32].state", &[(1, 0, 9, 0, 0)]),
        word(8, 8, "q.cells[32].data", &[(2, 0, 9, 0, 0)]),
    ];
    finding.lines.push(slots);
    (
        finding.lines[0].interleavings_per_second,
        finding.lines[1].interleavings_per_second,
    ) = (20e6, 30e3);
    let all = advise(&finding, 64);
    assert!(
        all.iter().all(|one| !one.text.contains("cells")),
        "{all:#?}"
    );
    assert_says(&all[0], &["`out`"]);
    finding.lines[1].interleavings_per_second = 9e6;
    let all = advise(&finding, 64);
    assert!(all.iter().any(|one| one.text.contains("cells")), "{all:#?}");
}

/// A counter of each side behind what one writes and the other reads. The object is no array.
#[test]
fn elements_of_a_member_are_no_elements_of_the_object() {
    let finding = global(
        "s",
        "struct state",
        40,
        "s.c",
        vec![
            word(0, 8, "s.seq", &[(1, 0, 90, 0, 0), (2, 90, 0, 0, 0)]),
            word(24, 8, "s.stat[0]", &[(1, 0, 90, 0, 0)]),
            word(32, 8, "s.stat[1]", &[(2, 0, 90, 0, 0)]),
        ],
    );
    let first = &advise(&finding, 64)[0];
    let text = &first.text;
    assert!(!text.contains("Each element then fills"), "{text}");
    assert!(text.contains("elements of `s.stat`, too"), "{text}");
    assert_eq!(first.grows_by, None);
}

/// Frames of coroutines in an arena. Bytes can't be padded one by one.
#[test]
fn memory_for_other_objects_is_handed_out_in_whole_lines() {
    let mut finding = global(
        "arena",
        "char[65536]",
        65536,
        "a.cpp",
        vec![
            word(0, 8, "arena[0]", &[(1, 0, 90, 0, 0)]),
            word(32, 8, "arena[32]", &[(2, 0, 90, 0, 0)]),
        ],
    );
    finding.object.element_size = Some(1);
    let all = advise(&finding, 64);
    assert_eq!(fixes(&all), [Fix::Allocate]);
    assert_says(&all[0], &["`arena`", "round its size up"]);
    // Flags of a byte each are elements of the threads' own.
    finding.lines[0]
        .words
        .iter_mut()
        .for_each(|word| word.size = 1);
    assert_says(&advise(&finding, 64)[0], &["slice of `arena`"]);
}
