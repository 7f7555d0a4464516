//! One finding of each kind.

use super::parts::{frame, global, heap, line, name_of, site, word};
use crate::*;

/// Phoenix's linear_regression: an array of four 64-byte structures that `malloc` put 32 bytes
/// after a line's start, so every line holds halves of two threads' elements (SHERIFF section
/// 6.1).
pub fn linear_regression() -> Finding {
    const FILE: &str = "/home/user/phoenix/linear_regression.c";
    let start = 0x5555_5575_92a0_u64;
    let mut object = heap(
        Some("lreg_args[4]"),
        256,
        start,
        vec![
            frame("malloc", "", 0),
            frame("main", FILE, 133),
            frame("__libc_start_main", "", 0),
        ],
    );
    object.element_size = Some(64);
    let shared = |first: u32, base: u64, rate: f64| {
        let (a, b) = (4701 + first, 4702 + first);
        let field = |element: u32, name: &str| format!("[{element}].{name}");
        line(
            base,
            i64::from(first) * 64 + 32,
            rate,
            vec![
                word(0, 8, &field(first, "SY"), &[(a, 0, 0, 812, 0)]),
                word(8, 8, &field(first, "SXX"), &[(a, 0, 0, 790, 0)]),
                word(16, 8, &field(first, "SYY"), &[(a, 0, 0, 803, 0)]),
                word(24, 8, &field(first, "SXY"), &[(a, 0, 0, 795, 0)]),
                word(40, 8, &field(first + 1, "points"), &[(b, 4010, 0, 0, 0)]),
                word(48, 4, &field(first + 1, "num_elems"), &[(b, 790, 0, 0, 0)]),
                word(56, 8, &field(first + 1, "SX"), &[(b, 0, 0, 808, 0)]),
            ],
        )
    };
    let threads = [4701, 4702, 4703, 4704];
    let at = |line, fields: &[&str], accesses, source: &str| {
        site(
            "linear_regression_pthread",
            (FILE, line),
            AccessKind::Update,
            &threads,
            accesses,
            fields,
            source,
        )
    };
    Finding {
        rank: 1,
        confirmed: true,
        object,
        lines: vec![
            shared(0, start + 32, 412_000.0),
            shared(1, start + 96, 405_500.0),
            shared(2, start + 160, 398_000.0),
        ],
        sites: vec![
            at(84, &["[].SX"], 3232, "args->SX  += args->points[i].x;"),
            at(86, &["[].SY"], 3248, "args->SY  += args->points[i].y;"),
            at(
                85,
                &["[].SXX"],
                3160,
                "args->SXX += args->points[i].x * args->points[i].x;",
            ),
            at(
                87,
                &["[].SYY"],
                3212,
                "args->SYY += args->points[i].y * args->points[i].y;",
            ),
            Site {
                kind: AccessKind::Read,
                ..at(
                    82,
                    &["[].num_elems"],
                    3160,
                    "for (i = 0; i < args->num_elems; i++) {",
                )
            },
        ],
        interleavings_per_second: 1_215_500.0,
        false_share: 1.0,
        cost_percent: 70.6,
        gain_percent: None,
        timeline: vec![
            0.0,
            310_000.0,
            1_190_000.0,
            1_240_000.0,
            1_232_000.0,
            1_251_000.0,
            1_228_000.0,
            1_246_000.0,
            1_239_000.0,
            1_244_000.0,
            1_102_000.0,
            420_000.0,
        ],
        ..Finding::default()
    }
}

/// A global array of eight 16-byte counters in C++, one for each thread, all in two lines.
pub fn global_array() -> Finding {
    const FILE: &str = "/home/user/app/src/stats.cpp";
    let start = 0x5555_5560_4080_u64;
    let mut object = global("counters", "counter[8]", 128, start, (FILE, 12));
    object.element_size = Some(16);
    let element = |i: u32| {
        let thread = 4701 + i;
        let at = (i % 4) * 16;
        [
            word(
                at,
                8,
                &format!("counters[{i}].hits"),
                &[(thread, 0, 0, 300 + u64::from(i), 300 + u64::from(i))],
            ),
            word(
                at + 8,
                8,
                &format!("counters[{i}].misses"),
                &[(thread, 0, 0, 40, 40)],
            ),
        ]
    };
    Finding {
        rank: 2,
        object,
        lines: vec![
            line(start, 0, 210_000.0, (0..4).flat_map(element).collect()),
            line(
                start + 64,
                64,
                205_000.0,
                (4..8).flat_map(element).collect(),
            ),
        ],
        sites: vec![
            site(
                "app::Stats::hit(unsigned int)",
                (FILE, 31),
                AccessKind::Atomic,
                &[4701, 4702, 4703, 4704, 4705, 4706, 4707, 4708],
                2428,
                &["counters[].hits"],
                "counters[id].hits.fetch_add(1, std::memory_order_relaxed);",
            ),
            site(
                "app::Stats::miss(unsigned int)",
                (FILE, 36),
                AccessKind::Atomic,
                &[4701, 4702, 4703, 4704, 4705, 4706, 4707, 4708],
                320,
                &["counters[].misses"],
                "counters[id].misses.fetch_add(1, std::memory_order_relaxed);",
            ),
        ],
        interleavings_per_second: 415_000.0,
        false_share: 1.0,
        cost_percent: 24.2,
        gain_percent: None,
        timeline: vec![400_000.0, 420_000.0, 425_000.0, 415_000.0],
        ..Finding::default()
    }
}

/// Two small blocks of two threads that `malloc` put on one line.
pub fn heap_pair() -> Finding {
    const FILE: &str = "/home/user/app/src/session.c";
    let start = 0x7fff_e800_0b80_u64;
    let block = |address: u64, thread: u32| {
        let mut object = heap(
            Some("struct session"),
            24,
            address,
            vec![
                frame("malloc", "", 0),
                frame("session_new", FILE, 41),
                frame("serve", "/home/user/app/src/main.c", 88),
            ],
        );
        object.thread = Some(Thread {
            id: thread,
            name: name_of(thread),
        });
        object
    };
    Finding {
        rank: 1,
        confirmed: true,
        object: block(start, 4701),
        neighbour: Some(block(start + 32, 4702)),
        lines: vec![line(
            start,
            0,
            88_000.0,
            vec![
                word(0, 8, "requests", &[(4701, 0, 0, 500, 0)]),
                word(40, 8, "bytes", &[(4702, 3, 0, 480, 0)]),
            ],
        )],
        sites: vec![site(
            "session_account",
            (FILE, 57),
            AccessKind::Update,
            &[4701, 4702],
            980,
            &["requests", "bytes"],
            "s->requests++;",
        )],
        interleavings_per_second: 88_000.0,
        false_share: 1.0,
        cost_percent: 12.0,
        gain_percent: None,
        timeline: vec![80_000.0, 92_000.0, 91_000.0, 89_000.0],
        ..Finding::default()
    }
}

/// A queue whose lock all threads take (true sharing) and whose head and tail
/// belong to the consumer and the producer (false sharing).
pub fn mixed() -> Finding {
    const FILE: &str = "/home/user/app/src/queue.h";
    let start = 0x5555_5575_a2c0_u64;
    let mut object = heap(
        Some("queue"),
        48,
        start,
        vec![
            frame("malloc", "", 0),
            frame("queue_create", "/home/user/app/src/queue.c", 19),
            frame("main", "/home/user/app/src/main.c", 120),
        ],
    );
    object.name = Some("q".to_owned());
    Finding {
        rank: 3,
        sharing: Sharing::Mixed,
        confirmed: true,
        on_smaller_lines: Some(OnSmallerLines {
            line_size: 32,
            sharing: Some(Sharing::Mixed),
        }),
        object,
        lines: vec![line(
            start,
            0,
            150_000.0,
            vec![
                word(
                    0,
                    4,
                    "lock",
                    &[(4701, 20, 0, 310, 310), (4702, 22, 0, 305, 305)],
                ),
                word(8, 8, "head", &[(4701, 0, 300, 0, 0)]),
                word(16, 8, "tail", &[(4702, 0, 295, 0, 0)]),
            ],
        )],
        sites: vec![
            site(
                "spin_lock",
                (FILE, 22),
                AccessKind::Atomic,
                &[4701, 4702],
                615,
                &["lock"],
                "while (atomic_exchange(&q->lock, 1)) cpu_relax();",
            ),
            site(
                "queue_pop",
                (FILE, 40),
                AccessKind::Write,
                &[4701],
                300,
                &["head"],
                "q->head = next;",
            ),
            site(
                "queue_push",
                (FILE, 51),
                AccessKind::Write,
                &[4702],
                295,
                &["tail"],
                "q->tail = node;",
            ),
        ],
        interleavings_per_second: 150_000.0,
        false_share: 0.38,
        cost_percent: 15.0,
        gain_percent: None,
        timeline: vec![140_000.0, 152_000.0, 158_000.0],
        ..Finding::default()
    }
}

/// A counter that all threads add to: true sharing, nothing to take apart.
pub fn true_sharing() -> Finding {
    const FILE: &str = "/home/user/app/src/stats.cpp";
    let start = 0x5555_5560_4200_u64;
    Finding {
        rank: 4,
        sharing: Sharing::True,
        confirmed: true,
        object: global("total", "std::atomic<long>", 8, start, (FILE, 9)),
        lines: vec![line(
            start,
            0,
            96_000.0,
            vec![word(
                0,
                8,
                "total",
                &[(4701, 0, 0, 200, 200), (4702, 0, 0, 210, 210)],
            )],
        )],
        sites: vec![site(
            "app::count()",
            (FILE, 44),
            AccessKind::Atomic,
            &[4701, 4702],
            410,
            &["total"],
            "total.fetch_add(1);",
        )],
        interleavings_per_second: 96_000.0,
        false_share: 0.0,
        cost_percent: 9.5,
        gain_percent: None,
        timeline: vec![96_000.0, 96_000.0],
        ..Finding::default()
    }
}

/// One thread counts in a field beside those that all others only read: false sharing that
/// SHERIFF could not see (section 4.8).
pub fn one_writer() -> Finding {
    const FILE: &str = "/home/user/app/src/config.c";
    let start = 0x5555_5560_4300_u64;
    Finding {
        rank: 1,
        object: global("config", "struct config", 32, start, (FILE, 7)),
        lines: vec![line(
            start,
            0,
            52_000.0,
            vec![
                word(
                    0,
                    4,
                    "config.limit",
                    &[(4702, 900, 0, 0, 0), (4703, 880, 0, 0, 0)],
                ),
                word(16, 8, "config.ticks", &[(4701, 0, 0, 450, 0)]),
            ],
        )],
        sites: vec![
            site(
                "work",
                (FILE, 30),
                AccessKind::Read,
                &[4702, 4703],
                1780,
                &["config.limit"],
                "if (used > config.limit)",
            ),
            site(
                "tick",
                (FILE, 61),
                AccessKind::Update,
                &[4701],
                450,
                &["config.ticks"],
                "config.ticks++;",
            ),
        ],
        interleavings_per_second: 52_000.0,
        false_share: 1.0,
        cost_percent: 8.0,
        gain_percent: None,
        timeline: vec![52_000.0, 52_000.0],
        ..Finding::default()
    }
}

/// Two line-sized elements that share no line here, but would on a machine with lines of 128
/// bytes.
pub fn latent() -> Finding {
    const FILE: &str = "/home/user/app/src/pool.rs";
    let start = 0x5555_5560_5000_u64;
    let mut object = global("app::pool::SLOTS", "[Slot; 2]", 128, start, (FILE, 14));
    object.element_size = Some(64);
    Finding {
        rank: 6,
        latent: true,
        latent_on: Some(LatentOn::LineSize(128)),
        object,
        lines: vec![line(
            start,
            0,
            40_000.0,
            vec![
                word(0, 8, "SLOTS[0].used", &[(4701, 0, 0, 120, 120)]),
                word(64, 8, "SLOTS[1].used", &[(4702, 0, 0, 118, 118)]),
            ],
        )],
        sites: vec![site(
            "app::pool::take",
            (FILE, 33),
            AccessKind::Atomic,
            &[4701, 4702],
            238,
            &["SLOTS[].used"],
            "SLOTS[i].used.fetch_add(1, Relaxed);",
        )],
        interleavings_per_second: 40_000.0,
        false_share: 1.0,
        cost_percent: 6.0,
        gain_percent: None,
        ..Finding::default()
    }
}

/// A heap block of a stripped program, whose only names are offsets.
pub fn no_debug_info() -> Finding {
    let start = 0x7fff_f000_0d40_u64;
    let at = |function: &str, address: u64, threads: &[u32]| Site {
        function: function.to_owned(),
        kind: AccessKind::Update,
        threads: threads.to_vec(),
        accesses: 400,
        address: CodeAddress(address),
        module: Some("/usr/bin/mystery".to_owned()),
        ..Site::default()
    };
    Finding {
        rank: 1,
        object: Object {
            kind: ObjectKind::Unknown,
            address: Address(start),
            ..Object::default()
        },
        lines: vec![Line {
            address: Address(start),
            object_offset: None,
            interleavings_per_second: 61_000.0,
            interleaved_writes: None,
            words: vec![
                word(0, 8, "", &[(4701, 0, 0, 400, 0)]),
                word(24, 4, "", &[(4702, 0, 0, 400, 0)]),
            ],
        }],
        sites: vec![
            at("mystery+0x12f4", 0x5555_5555_62f4, &[4701]),
            at("mystery+0x1388", 0x5555_5555_6388, &[4702]),
        ],
        interleavings_per_second: 61_000.0,
        false_share: 1.0,
        cost_percent: 18.0,
        gain_percent: None,
        timeline: vec![60_000.0, 62_000.0],
        ..Finding::default()
    }
}

/// Names that are as long and unusual as C++ and users make them.
pub fn long_names() -> Finding {
    const FILE: &str =
        "/home/user/проекты/app/src/very/deeply/nested/folders/of/templates/Zähler.hpp";
    let start = 0x5555_5560_6000_u64;
    let of = "std::array<std::atomic<unsigned long>, 2ul>";
    let function = "app::Zähler<std::map<std::string, std::vector<std::pair<int, 数え>>, \
                    std::less<std::string>>>::erhöhe(std::size_t, std::chrono::nanoseconds)";
    let mut finding = Finding {
        rank: 1,
        object: global(
            "app::(anonymous namespace)::Zähler::größe数",
            of,
            16,
            start,
            (FILE, 99),
        ),
        lines: vec![line(
            start,
            0,
            70_000.0,
            vec![
                word(0, 8, "größe数._M_elems[0]", &[(4701, 0, 0, 70, 70)]),
                word(8, 8, "größe数._M_elems[1]", &[(4702, 0, 0, 72, 72)]),
            ],
        )],
        sites: vec![site(
            function,
            (FILE, 120),
            AccessKind::Atomic,
            &[4701, 4702],
            142,
            &["größe数._M_elems[]"],
            "größe数[static_cast<std::size_t>(wer)].fetch_add(um_wieviel_auch_immer_es_heute_sein_mag, std::memory_order_relaxed);",
        )],
        interleavings_per_second: 70_000.0,
        false_share: 1.0,
        cost_percent: 20.0,
        gain_percent: None,
        timeline: vec![70_000.0],
        ..Finding::default()
    };
    finding.lines[0].words[0].threads[0].name = Some("Arbeiter-数え-1".to_owned());
    finding
}

/// A finding on a machine whose lines have 128 bytes.
pub fn wide_line() -> Finding {
    let mut finding = latent();
    finding.rank = 1;
    finding.latent = false;
    finding.latent_on = None;
    finding.confirmed = true;
    finding.timeline = vec![40_000.0, 41_000.0];
    finding
}
