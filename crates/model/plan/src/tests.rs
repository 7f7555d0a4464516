//! Every branch of the advice, on hand-made findings. The growth in bytes is
//! computed by hand in the comments.

mod followed;
mod pairs;
mod wording;

use crate::advise;
use sunder_findings::examples::{self, frame, line, site, word};
use sunder_findings::*;

/// The kinds of advice, in order.
fn fixes(all: &[Advice]) -> Vec<Fix> {
    all.iter().map(|a| a.fix).collect()
}

fn assert_says(advice: &Advice, parts: &[&str]) {
    for part in parts {
        assert!(
            advice.text.contains(part),
            "{part:?} is not in: {}",
            advice.text
        );
    }
}

fn global(name: &str, of: &str, size: u64, file: &str, words: Vec<Word>) -> Finding {
    let mut finding = Finding {
        false_share: 1.0,
        lines: vec![line(0x1000, 0, 10.0, words)],
        ..Finding::default()
    };
    finding.object = Object {
        kind: ObjectKind::Global,
        name: Some(name.into()),
        type_name: Some(of.into()),
        size: Some(size),
        address: Address(0x1000),
        declared: Some(Location {
            file: file.into(),
            line: Some(5),
        }),
        ..Object::default()
    };
    finding
}

#[test]
fn line_sized_elements_in_a_badly_aligned_block_need_an_aligned_allocation() {
    let all = advise(&examples::linear_regression(), 64);
    assert_eq!(fixes(&all), [Fix::Allocate, Fix::Hoist]);
    assert_says(
        &all[0],
        &[
            "lreg_args",
            "64 bytes",
            "32 bytes behind a line's start",
            "linear_regression.c:133",
            "`aligned_alloc(64, 256)`",
        ],
    );
    assert_eq!(all[0].grows_by, Some(48), "64 less malloc's 16");
    assert_says(
        &all[1],
        &[
            "`SX`",
            "`linear_regression_pthread`",
            "linear_regression.c:84",
        ],
    );
}

#[test]
fn small_elements_of_the_users_type_are_aligned_in_cpp() {
    let all = advise(&examples::global_array(), 64);
    assert_eq!(fixes(&all), [Fix::Align], "atomics can't be hoisted");
    assert_says(
        &all[0],
        &[
            "`counters`",
            "16 bytes",
            "struct alignas(64) counter",
            "hardware_destructive_interference_size",
            "stats.cpp:12",
        ],
    );
    assert_eq!(all[0].grows_by, Some(8 * (64 - 16)));
}

#[test]
fn a_c_array_on_the_heap_needs_type_and_allocation() {
    let mut finding = examples::linear_regression();
    finding.object.type_name = Some("struct acc[4]".into());
    finding.object.element_size = Some(40);
    finding.object.size = Some(160);
    let all = advise(&finding, 64);
    assert_eq!(fixes(&all), [Fix::Align, Fix::Hoist]);
    assert_says(
        &all[0],
        &[
            "`_Alignas(64)` on the first member of `struct acc`",
            "Then allocate it with `aligned_alloc(64, 256)`, too",
        ],
    );
    assert_eq!(all[0].grows_by, Some(4 * 24));
}

#[test]
fn one_byte_is_singular() {
    let words = vec![
        word(0, 1, "locks[0]", &[(1, 0, 0, 9, 9)]),
        word(1, 1, "locks[1]", &[(2, 0, 0, 9, 9)]),
    ];
    let all = advise(&global("locks", "spinlock[41]", 41, "pool.hpp", words), 64);
    assert_says(&all[0], &["(1 byte now, used by one thread)"]);
}

#[test]
fn elements_used_by_one_thread_at_a_time_are_aligned() {
    // Two new threads for each of three steps, on the same two elements.
    let users = |first: u32| -> Vec<_> {
        (0..3u64)
            .map(|step| (first + 2 * step as u32, 0, 0, 90 - step, 0))
            .collect()
    };
    let words = vec![
        word(0, 8, "sums[0]", &users(1)),
        word(8, 8, "sums[1]", &users(2)),
    ];
    let mut finding = global("sums", "long[8]", 64, "sums.c", words);
    let all = advise(&finding, 64);
    assert_eq!(fixes(&all), [Fix::Align]);
    assert_says(
        &all[0],
        &[
            "each element of `sums`",
            "(8 bytes now, used by one thread at a time)",
        ],
    );
    // They are not private in the sense of `protect`. Nor are they if two threads used them at
    // once.
    assert!(crate::isolate::cannot_be_isolated_here(&finding, false).is_some());
    finding.sharing = Sharing::Mixed;
    finding.false_share = 0.6;
    let all = advise(&finding, 64);
    assert!(all.iter().all(|a| !a.text.contains("at a time")), "{all:?}");
}

/// Two threads carry goroutines, each of which has a lock and a number of its own. One thread used most of
/// both elements.
#[test]
fn elements_that_threads_pass_on_to_each_other_are_taken_apart() {
    let users = |first, second| [(1, 0, first, 0, first / 2), (2, 0, second, 0, second / 2)];
    let words = vec![
        word(0, 4, "shards[0].mu.state", &users(90, 60)),
        word(8, 8, "shards[0].n", &users(40, 50)),
        word(16, 4, "shards[1].mu.state", &users(80, 70)),
        word(24, 8, "shards[1].n", &users(60, 40)),
    ];
    let mut finding = global("shards", "[8]main.shard", 128, "main.go", words);
    finding.sharing = Sharing::Mixed;
    finding.false_share = 0.99;
    finding.object.element_size = Some(16);
    let all = advise(&finding, 64);
    assert_eq!(all[0].fix, Fix::Align);
    assert_says(
        &all[0],
        &["each element of `shards`", "used by one thread at a time"],
    );
    finding.false_share = 0.5;
    let all = advise(&finding, 64);
    assert!(all.iter().all(|a| !a.text.contains("at a time")), "{all:?}");
}

#[test]
fn bytes_beyond_the_known_type_are_no_field() {
    // An object known by a pointer to its base class only.
    let words = vec![
        word(8, 8, "+8", &[(1, 0, 9, 9, 0)]),
        word(48, 8, "+48", &[(2, 9, 0, 0, 0)]),
    ];
    let all = advise(&global("s", "Step", 8, "a.cpp", words), 64);
    assert!(all.iter().all(|a| !a.text.contains('+')), "{all:?}");
    assert_says(&all[0], &["bytes 8-15", "bytes 48-55"]);
}

#[test]
fn numbers_and_atomics_are_wrapped_in_each_language() {
    let words = || {
        vec![
            word(0, 8, "n[0]", &[(1, 0, 0, 9, 9)]),
            word(8, 8, "n[1]", &[(2, 0, 0, 9, 9)]),
        ]
    };
    for (of, file, wanted) in [
        ("long[2]", "a.c", "_Alignas(64) long value;"),
        (
            "std::atomic<long>[2]",
            "a.cpp",
            "struct alignas(64) Padded { std::atomic<long> value; }",
        ),
        ("[AtomicU64; 2]", "a.rs", "CachePadded<AtomicU64>"),
        (
            "integer[2]",
            "a.f90",
            "a first dimension that fills 64 bytes",
        ),
        ("integer[2]", "a.adb", "a record that fills 64 bytes"),
        ("long[2]", "a.xyz", "pad each `long` to 64 bytes"),
    ] {
        let all = advise(&global("n", of, 16, file, words()), 64);
        assert_eq!(fixes(&all), [Fix::Align], "{of}");
        assert_says(&all[0], &[wanted, "`n`"]);
        assert_eq!(all[0].grows_by, Some(2 * 56), "{of}");
    }
}

#[test]
fn elements_used_by_plain_code_may_be_hoisted() {
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
    finding.sites = vec![site(
        "worker",
        ("a.c", 20),
        AccessKind::Update,
        &[1, 2],
        180,
        &["sums[]"],
        "sums[id] += x;",
    )];
    let all = advise(&finding, 64);
    assert_eq!(fixes(&all), [Fix::Align, Fix::Hoist]);
    assert_says(&all[1], &["local variable", "`worker`", "a.c:20"]);
    // A site with one thread does not prove that all threads run that loop.
    finding.sites[0].threads = vec![1];
    assert_eq!(fixes(&advise(&finding, 64)), [Fix::Align]);
}

#[test]
fn slices_of_an_array_are_rounded_to_lines() {
    let cell = |i: u32, thread| word(i * 8, 8, &format!("cost[{i}]"), &[(thread, 0, 50, 0, 0)]);
    let mut finding = global(
        "cost",
        "double[8]",
        64,
        "a.c",
        (0..8).map(|i| cell(i, if i < 4 { 1 } else { 2 })).collect(),
    );
    let all = advise(&finding, 64);
    assert_eq!(fixes(&all), [Fix::Separate]);
    assert_says(
        &all[0],
        &["2 threads", "slice of `cost`", "multiple of 8 elements"],
    );
    assert_says(&all[0], &["leave 8 elements unused (64 bytes)"]);
    assert_eq!(all[0].grows_by, Some(64), "between the two slices");
    assert!(!all[0].text.contains("To start it"), "it starts on a line");
    finding.object.address = Address(0x1010);
    assert_says(
        &advise(&finding, 64)[0],
        &["To start it on a line, declare `cost` with `_Alignas(64)`"],
    );
}

/// Locks that a hash chooses from (crossbeam's `LOCKS`, boost's `spinlock_pool`): a table for each thread
/// would protect nothing.
#[test]
fn tables_of_locks_keep_their_locks_and_get_room_between_them() {
    let table = |name: &str| {
        let updates = |i: u32| [(1 + i / 4, 0, 9, 9, 0)];
        let cell = |i: u32| word(i * 8, 8, &format!("{name}[{i}]"), &updates(i));
        global(name, "long[97]", 776, "a.c", (0..8).map(cell).collect())
    };
    for name in ["SPINLOCKS", "stripe_mutexes"] {
        let all = advise(&table(name), 64);
        assert_eq!(fixes(&all), [Fix::Align], "{name}");
        assert!(!all[0].text.contains("array of its own"), "{}", all[0].text);
    }
    // Whatever is updated atomically may be another thread's, too.
    let all = advise(&table("counts"), 64);
    assert_eq!(fixes(&all), [Fix::Separate]);
    assert!(
        !all[0].text.contains("an array of its own"),
        "{}",
        all[0].text
    );
}

#[test]
fn interleaved_elements_are_no_slices() {
    let cell = |i: u32| word(i * 8, 8, &format!("cost[{i}]"), &[(1 + i % 2, 0, 50, 0, 0)]);
    let finding = global("cost", "double[8]", 64, "a.c", (0..8).map(cell).collect());
    assert_eq!(fixes(&advise(&finding, 64)), [Fix::Align]);
}

#[test]
fn the_main_threads_initialisation_does_not_make_an_element_shared() {
    let finding = global(
        "n",
        "long[2]",
        16,
        "a.c",
        vec![
            word(0, 8, "n[0]", &[(9, 0, 1, 0, 0), (1, 0, 0, 99, 0)]),
            word(8, 8, "n[1]", &[(9, 0, 1, 0, 0), (2, 0, 0, 99, 0)]),
        ],
    );
    assert_eq!(advise(&finding, 64)[0].fix, Fix::Align);
}

#[test]
fn the_element_size_follows_from_the_words_where_no_type_tells() {
    let mut finding = examples::global_array();
    finding.object.element_size = None;
    finding.object.type_name = None;
    finding.object.size = None;
    let all = advise(&finding, 64);
    assert_says(&all[0], &["16 bytes", "`counters`"]);
    assert_eq!(all[0].grows_by, None, "the count is not known");
}

#[test]
fn fields_of_two_threads_are_separated() {
    let finding = global(
        "ring",
        "struct ring",
        32,
        "ring.c",
        vec![
            word(0, 8, "ring.head", &[(1, 0, 90, 0, 0)]),
            word(8, 8, "ring.tail", &[(2, 0, 90, 0, 0)]),
        ],
    );
    let all = advise(&finding, 64);
    assert_eq!(fixes(&all), [Fix::Separate]);
    assert_says(
        &all[0],
        &[
            "`ring.head` (thread 1 (worker))",
            "`ring.tail` (thread 2 (worker))",
            "put `_Alignas(64)` before `tail`",
            "ring.c:5",
        ],
    );
    // 8 bytes -> 64, 24 bytes -> 64, less 32.
    assert_eq!(all[0].grows_by, Some(96));
    assert!(!all[0].text.contains("first bring"));
}

#[test]
fn scattered_fields_are_brought_together_first() {
    let finding = global(
        "s",
        "struct s",
        24,
        "s.cpp",
        vec![
            word(0, 8, "s.a1", &[(1, 0, 90, 0, 0)]),
            word(8, 8, "s.b", &[(2, 0, 90, 0, 0)]),
            word(16, 8, "s.a2", &[(1, 0, 90, 0, 0)]),
        ],
    );
    let all = advise(&finding, 64);
    assert_says(
        &all[0],
        &[
            "first bring the fields of each thread together",
            "alignas(64)",
        ],
    );
    // 16 bytes of thread 1 and 8 bytes of thread 2 get a line each: 128 - 24.
    assert_eq!(all[0].grows_by, Some(104));
}

#[test]
fn one_writer_moves_away_from_its_readers() {
    let all = advise(&examples::one_writer(), 64);
    assert_eq!(fixes(&all), [Fix::Separate]);
    assert_says(
        &all[0],
        &[
            "Only thread 4701 (worker) writes `config.ticks`",
            "2 threads that read `config.limit`",
            "`_Alignas(64)` before `ticks`",
            "group the fields that are mostly read",
            "config.c:7",
        ],
    );
}

#[test]
fn true_sharing_is_not_padded() {
    let all = advise(&examples::true_sharing(), 64);
    assert_eq!(fixes(&all), [Fix::PerThread]);
    assert_says(
        &all[0],
        &["`total`", "2 threads", "stats.cpp:44", "batches"],
    );
    assert!(!all[0].text.contains("alignas"));
    assert_eq!(all[0].grows_by, Some(128), "a line for each of two threads");
    // What is compared and exchanged is no counter.
    let mut tail = examples::true_sharing();
    tail.sites[0].function = "std::atomic<node>::compare_exchange_weak".into();
    assert_says(&advise(&tail, 64)[0], &["Let fewer threads write it"]);
}

#[test]
fn a_contended_lock_and_a_polled_flag_have_advice_of_their_own() {
    let mut lock = global(
        "table_lock",
        "pthread_mutex_t",
        40,
        "t.c",
        vec![word(0, 4, "", &[(1, 0, 0, 9, 9), (2, 0, 0, 9, 9)])],
    );
    lock.sharing = Sharing::True;
    assert_says(&advise(&lock, 64)[0], &["Take the lock less often"]);
    let mut flag = global(
        "stop",
        "int",
        4,
        "t.c",
        vec![word(0, 4, "stop", &[(1, 0, 20, 0, 0), (2, 80, 0, 0, 0)])],
    );
    flag.sharing = Sharing::True;
    assert_says(&advise(&flag, 64)[0], &["One thread writes", "`stop`"]);
    flag.lines[0].words[0].threads[1].writes = 50;
    assert_says(&advise(&flag, 64)[0], &["copy per thread, batches"]);
}

#[test]
fn a_lock_beside_its_data_is_weighed() {
    let all = advise(&examples::mixed(), 64);
    assert_eq!(
        fixes(&all),
        [Fix::ShareLess, Fix::Separate],
        "62 % are true sharing: that comes first"
    );
    assert_says(
        &all[0],
        &["62 % of the interleavings are true sharing", "`lock`"],
    );
    assert_says(
        &all[1],
        &[
            "38 % of the interleavings",
            "right while threads seldom wait",
            "`head` and `tail`",
            "put `_Alignas(64)` before `head`",
        ],
    );
}

#[test]
fn data_on_another_line_is_not_beside_the_lock() {
    let mut finding = examples::mixed();
    // The lock keeps its line, and everything else moves to the next.
    let (lock, data) = finding.lines[0]
        .words
        .drain(..)
        .partition(|word| word.field.as_deref() == Some("lock"));
    finding.lines[0].words = lock;
    finding.object.size = Some(128);
    finding.lines.push(line(0x2040, 64, 10.0, data));
    assert!(finding.lines.iter().all(|line| !line.words.is_empty()));
    for advice in advise(&finding, 64) {
        assert!(
            !advice.text.contains("lies on the line of"),
            "{}",
            advice.text
        );
    }
}

#[test]
fn mostly_false_mixed_sharing_is_taken_apart_first() {
    let mut finding = examples::mixed();
    finding.false_share = 0.8;
    assert_eq!(
        fixes(&advise(&finding, 64)),
        [Fix::Separate, Fix::ShareLess]
    );
}

#[test]
fn advice_for_latent_findings_names_the_condition() {
    let all = advise(&examples::latent(), 64);
    assert_eq!(fixes(&all), [Fix::Align]);
    assert_says(
        &all[0],
        &[
            "costs nothing here",
            "lines have 128 bytes",
            "#[repr(align(128))]",
            "`Slot`",
        ],
    );
    assert_eq!(all[0].grows_by, Some(2 * 64));

    let mut moved = examples::linear_regression();
    moved.latent = true;
    moved.latent_on = Some(LatentOn::StartOffset(16));
    moved.object.address = Address(0x1000);
    let all = advise(&moved, 64);
    assert_eq!(fixes(&all), [Fix::Allocate], "hoisting would win nothing");
    assert_says(&all[0], &["nothing guarantees", "at byte 16 of a line"]);
    assert!(
        !all[0].text.contains("but the array starts"),
        "it does not start badly: {}",
        all[0].text
    );
}

#[test]
fn threads_that_took_turns_are_told_so() {
    let mut finding = examples::linear_regression();
    finding.latent = true;
    finding.latent_on = Some(LatentOn::MoreCpusThan(2));
    let all = advise(&finding, 64);
    assert_says(&all[0], &["took turns on 2 CPUs", "cost nothing"]);
    finding.latent_on = Some(LatentOn::MoreCpusThan(1));
    assert_says(&advise(&finding, 64)[0], &["took turns on one CPU"]);
}

#[test]
fn unnamed_memory_is_described_by_its_bytes_and_instructions() {
    let all = advise(&examples::no_debug_info(), 64);
    assert_eq!(fixes(&all), [Fix::Separate]);
    assert_says(
        &all[0],
        &[
            "bytes 0-7 of the line (thread 4701 (worker))",
            "bytes 24-27 of the line (thread 4702 (worker))",
            "at least 64 bytes apart",
            "`mystery+0x12f4`",
            "-g",
        ],
    );
}

/// Two words of one thread need not be taken apart.
#[test]
fn unnamed_bytes_of_one_thread_stay_together() {
    let mut finding = examples::no_debug_info();
    let words = &mut finding.lines[0].words;
    let mut beside = words[0].clone();
    beside.offset += words[0].size;
    words.insert(1, beside);
    let all = advise(&finding, 64);
    assert_says(
        &all[0],
        &["Keep bytes 0-15 of the line (thread 4701 (worker)) and bytes 24-27"],
    );
}

#[test]
fn nonsense_gives_advice_and_no_crash() {
    let mut all = vec![
        Finding::default(),
        Finding {
            sharing: Sharing::True,
            ..Finding::default()
        },
        Finding {
            sharing: Sharing::Mixed,
            false_share: f64::NAN,
            ..Finding::default()
        },
        Finding {
            latent: true,
            latent_on: Some(LatentOn::LineSize(0)),
            ..Finding::default()
        },
    ];
    let mut extreme = examples::global_array();
    extreme.object.size = Some(u64::MAX);
    extreme.object.element_size = Some(1);
    extreme.lines[0].object_offset = Some(i64::MAX);
    extreme.lines[1].object_offset = Some(i64::MIN);
    all.push(extreme.clone());
    extreme.object.element_size = None;
    extreme.object.type_name = Some("counter[0]".into());
    all.push(extreme.clone());
    extreme.neighbour = Some(extreme.object.clone());
    all.push(extreme);
    for finding in all {
        for line in [0, 1, 64, u32::MAX] {
            let advice = advise(&finding, line);
            assert!(!advice.is_empty());
            assert!(advice.iter().all(|a| !a.text.is_empty()));
        }
    }
}
