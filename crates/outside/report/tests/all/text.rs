//! The text report: what it shows and leaves out, that it fits the width, and that it is safe
//! to print. Whole reports are in `snapshots/`.

use sunder_findings::{
    Address, Finding, Findings, Limit, PageState, PageWriter, PrivatePage, Sharing, examples,
};
use sunder_report::{TextOptions, comparison_text, text};
use unicode_width::UnicodeWidthStr;

fn advised(findings: Vec<Finding>) -> Findings {
    let mut all = examples::result(findings);
    for finding in &mut all.findings {
        finding.advice = sunder_plan::advise(finding, all.machine.line_size);
    }
    all
}

/// A machine whose lines have 128 bytes.
fn wide() -> Findings {
    let mut all = examples::result(vec![examples::wide_line()]);
    all.machine.line_size = 128;
    all.findings[0].advice = sunder_plan::advise(&all.findings[0], 128);
    all
}

fn everything() -> Findings {
    advised(vec![
        examples::linear_regression(),
        examples::global_array(),
        examples::heap_pair(),
        examples::mixed(),
        examples::true_sharing(),
        examples::one_writer(),
        examples::latent(),
        examples::no_debug_info(),
        examples::long_names(),
        examples::wide_line(),
        compared(),
        hostile(),
    ])
}

/// A finding of the observer that compares pages.
fn compared() -> Finding {
    let mut finding = examples::global_array();
    finding.interleaved_writes = Some(1_234);
    finding.lines[0].interleaved_writes = Some(1_230);
    let writer = |id, name: Option<&str>, commits, bytes| PageWriter {
        id,
        name: name.map(Into::into),
        commits,
        bytes,
    };
    finding.private_pages = vec![PrivatePage {
        address: Address(0x7000),
        state: PageState::SameBytes,
        interleaved_writes: 1_234,
        threads: vec![
            writer(71, Some("worker"), 640, 5_120),
            writer(72, None, 1, 1),
        ],
    }];
    finding
}

#[test]
fn turns_of_threads_in_commits_are_told_with_the_pages_in_words_only() {
    // Without line ends, which depend on the width.
    let told = |finding, words| {
        let options = TextOptions { words, ..with(100) };
        let text = text(&advised(vec![finding]), &options);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let brief = told(compared(), false);
    assert!(
        brief.contains(", 1,234 interleaved writes seen in commits; "),
        "{brief}"
    );
    assert!(
        !brief.contains("page 0x7000") && !brief.contains("1,230"),
        "{brief}"
    );
    let words = told(compared(), true);
    assert!(
        words.contains(" 1,230 interleaved writes seen in commits "),
        "{words}"
    );
    let page = "page 0x7000, private, until two threads changed the same bytes: written by 71 \
                worker (640 commits of 5,120 bytes), 72 (1 commit of 1 byte); 1,234 interleaved \
                writes.";
    assert!(words.contains(page), "{words}");
    let sampled = told(examples::global_array(), true);
    assert!(!sampled.contains("interleaved write"), "{sampled}");
}

/// A finding with names that try to break the layout.
fn hostile() -> Finding {
    let bad = "a\u{1b}[2J\u{7}\r\nb\u{202e}</script><b>`&\"'\u{9b}31m";
    let mut finding = examples::global_array();
    finding.object.name = Some(bad.into());
    finding.object.type_name = Some(bad.into());
    finding.object.module = Some(bad.into());
    for site in &mut finding.sites {
        site.function = bad.into();
        site.source = Some(bad.into());
        site.file = Some(bad.into());
        site.fields = vec![bad.into()];
    }
    for word in &mut finding.lines[0].words {
        word.field = Some(bad.into());
        word.threads[0].name = Some(bad.into());
    }
    finding
}

fn with(width: usize) -> TextOptions {
    TextOptions {
        width,
        ..TextOptions::default()
    }
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let all = everything();
    for width in [40, 60, 72, 80, 90, 100, 120] {
        for words in [false, true] {
            let options = TextOptions {
                all: true,
                words,
                ..with(width)
            };
            for line in text(&all, &options).lines() {
                assert!(line.width() <= width, "{width} columns: {line}");
            }
        }
    }
}

#[test]
fn only_colour_adds_escapes_and_nothing_else() {
    let mut all = everything();
    all.limits.push(Limit::Text("\u{1b}[31mred".into()));
    all.program.command.push("\u{1b}]0;title\u{7}".into());
    let plain = text(
        &all,
        &TextOptions {
            all: true,
            words: true,
            ..with(100)
        },
    );
    assert!(
        !plain.chars().any(|c| c.is_control() && c != '\n'),
        "control characters in a plain report"
    );
    assert!(!plain.contains('\u{202e}'), "text turned around");
    let colored = text(
        &all,
        &TextOptions {
            all: true,
            words: true,
            color: true,
            ..with(100)
        },
    );
    assert_ne!(colored, plain);
    assert_eq!(without_colour(&colored), plain);
}

/// Removes `ESC [ … m`; any other escape stays and fails the comparison.
fn without_colour(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\u{1b}[") {
        out.push_str(&rest[..at]);
        let code = &rest[at + 2..];
        let end = code
            .find(|c: char| !c.is_ascii_digit() && c != ';')
            .expect("an escape ends");
        assert_eq!(&code[end..=end], "m", "only colours");
        rest = &code[end + 1..];
    }
    out + rest
}

#[test]
fn lock_calls_are_listed_apart_from_sampled_code() {
    let mut finding = examples::linear_regression();
    let mut call = finding.sites[0].clone();
    call.function = "take_turn".into();
    call.calls = Some("pthread_mutex_lock".into());
    (call.accesses, call.threads) = (0, Vec::new());
    finding.sites.insert(0, call);
    let all = text(&advised(vec![finding]), &with(100));
    let (sampled, calls) = all.split_once("   lock calls (found").expect("a heading");
    assert!(!sampled.contains("take_turn"), "{all}");
    let calls = calls.split("\n\n").next().unwrap_or_default();
    assert!(calls.contains("take_turn"), "{all}");
    assert!(calls.contains("calls pthread_mutex_lock"), "{all}");
    // It was not sampled, so it has no share and no threads.
    assert!(!calls.contains('%') && !calls.contains("thread "), "{all}");
}

#[test]
fn latent_start_is_given_as_a_byte_of_the_line() {
    let mut finding = examples::latent();
    // The start within its line, not the distance from today's start.
    finding.latent_on = Some(sunder_findings::LatentOn::StartOffset(0));
    let options = TextOptions {
        all: true,
        ..with(100)
    };
    let all = text(&advised(vec![finding]), &options);
    assert!(all.contains("if it starts at byte 0 of a line"), "{all}");
    let words: Vec<&str> = all.split_whitespace().collect();
    assert!(
        words.join(" ").contains("started at byte 0 of a line"),
        "{all}"
    );
    assert!(!all.contains("0 times a second"), "{all}");
}

#[test]
fn the_answer_comes_first() {
    let all = advised(vec![examples::linear_regression()]);
    let first = text(&all, &with(120));
    let first = first.lines().next().unwrap_or_default().to_owned();
    for part in ["False sharing in lreg_args[4]", "71 %", "4 threads"] {
        assert!(first.contains(part), "{part:?} is not in: {first}");
    }
    let two = text(
        &advised(vec![
            examples::linear_regression(),
            examples::global_array(),
        ]),
        &with(120),
    );
    assert!(two.starts_with("2 objects are falsely shared; the first, lreg_args[4]"));
}

#[test]
fn the_first_screen_says_of_the_worst_three_what_where_and_how() {
    let all = advised(vec![
        examples::linear_regression(),
        examples::global_array(),
        examples::heap_pair(),
        examples::one_writer(),
    ]);
    let out = text(&all, &with(80));
    let screen: Vec<&str> = out.lines().take(24).collect();
    let screen = screen.join("\n");
    // What, the cost, the code, the origin, and the change.
    for part in [
        "lreg_args[4] on the heap",
        "costs 71 %",
        // The place with most samples.
        "linear_regression.c:86",
        "linear_regression.c:133",
        "aligned_alloc(64, 256)",
        "counters (counter[8])",
        "stats.cpp:12",
        "alignas(64)",
        "two heap blocks of struct session",
        "session.c:57",
        "aligned_alloc(64, 64)",
    ] {
        assert!(screen.contains(part), "{part:?} is not in:\n{screen}");
    }
    // One finding says all of it at its own beginning.
    let one = text(&advised(vec![examples::global_array()]), &with(80));
    let screen: Vec<&str> = one.lines().take(24).collect();
    assert!(screen.join("\n").contains("alignas(64)"), "{one}");
    assert_eq!(one.matches("#1 ").count(), 1, "{one}");
}

#[test]
fn in_ascii_every_line_has_the_same_width_and_no_other_sign() {
    let mut all = everything();
    all.limits.push(Limit::Text("größer als π".into()));
    for width in [40, 72, 100, 120] {
        let options = TextOptions {
            all: true,
            words: true,
            ascii: true,
            ..with(width)
        };
        let out = text(&all, &options);
        assert!(out.is_ascii(), "{out}");
        for line in out.lines() {
            assert!(line.width() <= width, "{width} columns: {line}");
        }
    }
    let old = advised(vec![examples::global_array()]);
    let new = advised(vec![examples::mixed(), examples::long_names()]);
    let options = TextOptions {
        ascii: true,
        ..with(60)
    };
    let change = comparison_text(&sunder_findings::compare(&old, &new), &options);
    assert!(change.is_ascii(), "{change}");
}

#[test]
fn costly_true_sharing_is_shown_and_said_not_to_be_false() {
    let mut truly = examples::true_sharing();
    truly.cost_percent = 60.0;
    let all = advised(vec![truly.clone()]);
    let shown = text(&all, &with(100));
    let answer = "No false sharing found that costs 1 % or more. But threads share total (std::atomic<long>) \
                  truly: it costs 60 % of the time of 2 threads, as far as samples show.";
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.starts_with(answer), "{shown}");
    assert!(
        shown.contains("\nTruly shared: another layout mostly does not help"),
        "{shown}"
    );
    assert!(shown.contains("true sharing: total"), "{shown}");
    assert!(
        shown.contains("`sunder explain` knows more of: true-sharing, cost."),
        "{shown}"
    );
    // After what is falsely shared, which is the answer then.
    let both = text(
        &advised(vec![truly.clone(), examples::global_array()]),
        &with(100),
    );
    assert!(both.starts_with("False sharing in "), "{both}");
    let (falsely, at) = (both.find("#1 false sharing"), both.find("#2 true sharing"));
    assert!(falsely.is_some() && falsely < at, "{both}");
    // Not all of many.
    let many = text(&advised(vec![truly; 5]), &with(100));
    assert_eq!(many.matches("true sharing: ").count(), 3, "{many}");
    assert!(
        many.contains("… 2 more truly shared objects (--all)"),
        "{many}"
    );
}

#[test]
fn insignificant_findings_are_counted_and_shown_on_demand() {
    let mut small = examples::one_writer();
    small.cost_percent = 0.3;
    let mut truly = examples::true_sharing();
    truly.cost_percent = 0.9;
    let all = advised(vec![truly, small]);
    let usual = text(&all, &with(100));
    assert!(usual.starts_with("No false sharing found that costs 1 % or more."));
    assert!(
        usual.contains("Not shown: 1 truly shared object and 1 falsely shared object below 1 %")
    );
    assert!(!usual.contains("config.ticks"), "{usual}");
    let more = text(
        &all,
        &TextOptions {
            all: true,
            ..with(100)
        },
    );
    assert!(more.contains("true sharing: total"), "{more}");
    assert!(more.contains("false sharing: config"), "{more}");
    assert!(!more.contains("Not shown"));
    // A threshold that differs from the run's.
    let lower = text(
        &all,
        &TextOptions {
            threshold: Some(0.2),
            ..with(100)
        },
    );
    assert!(lower.contains("false sharing: config"));
}

#[test]
fn empty_result_states_the_amount_of_samples() {
    let mut all = advised(vec![]);
    let out = text(&all, &with(100));
    for part in [
        "No false sharing",
        "12,801 samples",
        "9 threads",
        "3.2 s",
        "44,102",
    ] {
        assert!(out.contains(part), "{part:?} is not in: {out}");
    }
    assert!(!out.contains("too little"), "12,801 samples are enough");
    all.run.samples = 12;
    assert!(text(&all, &with(100)).contains("too little to be sure"));
    all.run.threads = 1;
    assert!(text(&all, &with(100)).contains("Only one thread"));
}

#[test]
fn the_picture_has_a_row_a_thread_and_a_column_a_byte() {
    let out = text(&advised(vec![examples::one_writer()]), &with(100));
    let row = |label: &str| {
        let row = out
            .lines()
            .find(|l| l.contains(label) && l.contains('│'))
            .unwrap_or_else(|| panic!("no row for {label}: {out}"));
        row.split('│').nth(1).map(str::to_owned).unwrap_or_default()
    };
    // Word 0-3 is read by 4702; word 16-23 is updated by 4701.
    assert_eq!(
        row("4701"),
        format!("{}WWWWWWWW{}", "·".repeat(16), "·".repeat(40))
    );
    assert_eq!(row("4702"), format!("rrrr{}", "·".repeat(60)));
}

#[test]
fn a_wide_line_wraps_and_keeps_its_numbers() {
    let out = text(&wide(), &with(100));
    let rulers: Vec<&str> = out
        .lines()
        .filter(|l| l.trim_start().starts_with("0       8") || l.contains("64      72"))
        .collect();
    assert_eq!(rulers.len(), 2, "two halves: {out}");
    assert_eq!(out.matches("AAAAAAAA").count(), 2);
}

#[test]
fn many_threads_and_lines_are_cut_and_counted() {
    let mut finding = examples::global_array();
    finding.lines[0].words = (0..64)
        .map(|i| {
            examples::word(
                i,
                1,
                &format!("counters[{i}]"),
                &[(5000 + i, 0, 10 + u64::from(i), 0, 0)],
            )
        })
        .collect();
    let line = finding.lines[0].clone();
    finding.lines = vec![line; 40];
    let all = advised(vec![finding]);
    let out = text(&all, &with(100));
    assert!(out.contains("56 more threads"), "{out}");
    assert!(out.contains("38 more lines"), "{out}");
    assert!(out.contains("5063 worker"), "the busiest is kept");
    assert!(!out.contains("5000 worker"), "the idlest is not");
    assert!(out.lines().count() < 80);
}

#[test]
fn of_many_findings_the_dearest_are_shown_in_full() {
    let many: Vec<Finding> = (0..15)
        .map(|i| {
            let mut finding = examples::global_array();
            finding.object.name = Some(format!("counters{i}"));
            finding.cost_percent = 50.0 - f64::from(i);
            finding
        })
        .collect();
    let all = advised(many);
    let out = text(&all, &with(100));
    assert_eq!(out.matches("what to do").count(), 10);
    assert_eq!(out.matches("false sharing: counters").count(), 15);
    let options = TextOptions {
        all: true,
        ..with(100)
    };
    assert_eq!(text(&all, &options).matches("what to do").count(), 15);
}

#[test]
fn words_lists_every_count() {
    let options = TextOptions {
        words: true,
        ..with(100)
    };
    let out = text(&advised(vec![examples::mixed()]), &options);
    let row = out
        .lines()
        .find(|l| l.trim_start().starts_with("0-3"))
        .unwrap_or_else(|| panic!("no row for the lock: {out}"));
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(
        cells,
        ["0-3", "lock", "4701", "worker", "20", "0", "310", "310"]
    );
}

#[test]
fn nonsense_renders() {
    let mut odd = Finding::default();
    odd.lines.push(Default::default());
    odd.lines[0].words.push(sunder_findings::Word {
        offset: u32::MAX,
        size: u32::MAX,
        ..Default::default()
    });
    odd.lines[0].words[0].threads.push(Default::default());
    odd.lines[0].words[0].threads[0].reads = u64::MAX;
    odd.lines[0].words[0].threads[0].writes = u64::MAX;
    odd.lines[0].object_offset = Some(i64::MIN);
    odd.cost_percent = 200.0;
    odd.sites.push(Default::default());
    odd.sites.push(Default::default());
    odd.sites[0].accesses = u64::MAX;
    odd.sites[1].accesses = u64::MAX;
    let mut all = Findings {
        findings: vec![odd],
        ..Findings::default()
    };
    for width in [0, 40, 100, usize::MAX] {
        for line_size in [0, 8, 64, 256, u32::MAX] {
            all.machine.line_size = line_size;
            let options = TextOptions {
                words: true,
                all: true,
                ..with(width)
            };
            assert!(text(&all, &options).contains("200 %"));
        }
    }
}

#[test]
fn comparison_lists_the_changes() {
    let old = advised(vec![examples::linear_regression(), examples::mixed()]);
    let mut grown = examples::mixed();
    grown.cost_percent = 60.0;
    let new = advised(vec![grown, examples::global_array()]);
    let change = sunder_findings::compare(&old, &new);
    let out = comparison_text(&change, &with(100));
    assert!(
        out.starts_with("More false sharing than before: 1 appeared, 1 grew, 1 gone."),
        "{out}"
    );
    for part in [
        "counters (counter[8])",
        "stats.cpp:12",
        "was 71 %",
        "5.7 % -> 23 %",
    ] {
        assert!(out.contains(part), "{part:?} is not in: {out}");
    }
    for width in [40, 80] {
        for line in comparison_text(&change, &with(width)).lines() {
            assert!(line.width() <= width, "{line}");
        }
    }
    let same = comparison_text(&sunder_findings::compare(&old, &old), &with(100));
    assert!(
        same.starts_with("No change in sharing beyond noise."),
        "{same}"
    );
    let better = comparison_text(
        &sunder_findings::compare(&old, &advised(vec![])),
        &with(100),
    );
    assert!(
        better.starts_with("Less false sharing than before: 2 gone."),
        "{better}"
    );
    let blind = Findings {
        verdict: Some(sunder_findings::Verdict {
            answer: sunder_findings::Answer::Inconclusive,
            reasons: vec![sunder_findings::Reason::NoCpuNumbers],
        }),
        ..advised(vec![])
    };
    let unknown = sunder_findings::compare(&old, &blind);
    let out = comparison_text(&unknown, &with(100));
    assert!(
        out.starts_with("Not known whether there is less false sharing than before"),
        "{out}"
    );
    let out = sunder_report::comparison_markdown(&unknown);
    assert!(
        out.starts_with(
            "### Not known whether there is less false sharing\n\nThe new run could not tell: the "
        ),
        "{out}"
    );
}

/// Snapshots of whole reports.
#[test]
fn pictures_of_whole_reports() {
    for (name, finding) in [
        ("linear_regression", examples::linear_regression()),
        ("global_array", examples::global_array()),
        ("heap_pair", examples::heap_pair()),
        ("mixed", examples::mixed()),
        ("one_writer", examples::one_writer()),
        ("latent", examples::latent()),
        ("no_debug_info", examples::no_debug_info()),
        ("long_names", examples::long_names()),
    ] {
        insta::assert_snapshot!(name, text(&advised(vec![finding]), &with(100)));
    }
    insta::assert_snapshot!("wide_line_at_80", text(&wide(), &with(80)));
    let mut truly = examples::true_sharing();
    truly.sharing = Sharing::True;
    let options = TextOptions {
        all: true,
        words: true,
        ..with(80)
    };
    insta::assert_snapshot!(
        "all_and_words_at_80",
        text(&advised(vec![truly, examples::mixed()]), &options)
    );
    insta::assert_snapshot!("nothing", text(&advised(vec![]), &with(80)));
}

#[test]
fn words_of_one_field_share_its_name() {
    let mut finding = examples::global_array();
    let mut word = finding.lines[0].words[0].clone();
    word.size = 8;
    word.field = Some("locks[0].guard".into());
    finding.lines.truncate(1);
    finding.lines[0].words = (0..5)
        .map(|i| {
            let mut one = word.clone();
            one.offset = i * 8;
            one
        })
        .collect();
    let page = text(&advised(vec![finding]), &TextOptions::default());
    let names = page.lines().filter(|l| l.contains("guard"));
    let counts: Vec<usize> = names.map(|l| l.matches("guard").count()).collect();
    assert!(
        !counts.is_empty() && counts.iter().all(|&n| n == 1),
        "{page}"
    );
}
