//! `sunder simulate --placement`, `--pad` and `--align`, and `sunder what-if`: replays that move
//! objects. The counts are known beforehand: traces are written by hand, or their program's
//! threads take turns.

use crate::support::by_hand::{Act, trace};
use crate::support::replays::{replay, totals};
use crate::support::sunder;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use sunder_findings::{Findings, Placement, Tried};

/// How often each thread writes.
const TIMES: u64 = 500;

/// Each thread's first write is a cold miss. All its others are misses by false sharing, because
/// the other thread has written its own word of the line meanwhile.
const FALSE: u64 = 2 * (TIMES - 1);

fn simulate(trace: &Path, options: &[&str]) -> Findings {
    replay("simulate", trace, options)
}

fn placement(trace: &Path, options: &[&str]) -> Placement {
    let simulation = simulate(trace, options).simulation.expect("simulated");
    simulation.placement.expect("placed")
}

/// Two blocks of 8 bytes side by side, each from its own call site, allocated by
/// `allocates` and each written by one thread.
fn neighbours(folder: &Path, allocated_by_one: bool) -> PathBuf {
    let blocks = [
        Act::Allocate(0x10010, 8, 0xa1),
        Act::Allocate(0x10030, 8, 0xb2),
    ];
    let writes = [Act::Write(0x10010, TIMES), Act::Write(0x10030, TIMES)];
    let threads = if allocated_by_one {
        [vec![blocks[0], blocks[1], writes[0]], vec![writes[1]]]
    } else {
        [vec![blocks[0], writes[0]], vec![blocks[1], writes[1]]]
    };
    trace(folder, &threads)
}

#[test]
fn blocks_of_two_threads_share_a_line_unless_a_policy_parts_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = neighbours(folder.path(), false);
    let counts = |placement: &str| {
        let seen = totals(&file, &["--placement", placement]);
        assert_eq!((seen.true_sharing, seen.references), (0, 2 * TIMES));
        seen.false_sharing
    };
    // The recorded layout, one heap for all threads, and pages by size: all side by side.
    assert_eq!(counts("actual"), FALSE);
    assert_eq!(counts("glibc"), FALSE);
    assert_eq!(counts("general"), FALSE);
    assert_eq!(counts("sized"), FALSE);
    // A heap for each thread, pages for each call site, a line for each object.
    assert_eq!(counts("hoard"), 0);
    assert_eq!(counts("call-site"), 0);
    assert_eq!(counts("sized-call-site"), 0);
    assert_eq!(counts("padded:0xb2"), 0);
}

#[test]
fn heaps_of_threads_part_nothing_that_one_thread_allocates() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = neighbours(folder.path(), true);
    let counts = |placement: &str| totals(&file, &["--placement", placement]).false_sharing;
    assert_eq!(counts("hoard"), FALSE);
    assert_eq!(counts("sized-call-site"), 0);
}

#[test]
fn an_aligned_block_leaves_its_neighbour_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = neighbours(folder.path(), true);
    let aligned = |object: &str| totals(&file, &["--align", object]).false_sharing;
    assert_eq!(aligned("0xa1=64"), 0);
    // An alignment that all blocks already have changes nothing.
    let packed = ["--placement", "glibc", "--align", "0xa1=16"];
    assert_eq!(totals(&file, &packed).false_sharing, FALSE);
    // On lines of 128 bytes an alignment to 64 is not enough if objects are packed.
    let large = [
        "--placement",
        "glibc",
        "--align",
        "0xa1=64",
        "--granule",
        "128",
    ];
    assert_eq!(totals(&file, &large).false_sharing, FALSE);
    let large = [
        "--placement",
        "glibc",
        "--align",
        "0xa1=128",
        "--granule",
        "128",
    ];
    assert_eq!(totals(&file, &large).false_sharing, 0);
}

#[test]
fn the_space_of_a_placement_is_that_of_the_paper() {
    let folder = tempfile::tempdir().expect("a folder");
    // Three blocks of 3000 bytes from two call sites, one freed.
    let file = trace(
        folder.path(),
        &[vec![
            Act::Allocate(0x10010, 3000, 0xa1),
            Act::Write(0x10010, 1),
            Act::Free(0x10010),
            Act::Allocate(0x20010, 3000, 0xa1),
            Act::Allocate(0x30010, 3000, 0xb2),
            Act::Write(0x30010, 1),
        ]],
    );
    let sites = placement(&file, &["--placement", "call-site"]);
    assert_eq!(sites.policy, "call-site");
    assert_eq!((sites.allocations, sites.requested_bytes), (3, 9000));
    assert_eq!((sites.buckets, sites.peak_bytes), (2, 6000));
    // 9000 bytes are 3 pages; 6000 and 3000 are 2 and 1.
    assert_eq!((sites.general_pages, sites.pages), (3, 3));
    assert_eq!(sites.additional_pages, 0);
    // The freed block is used again.
    assert_eq!(sites.reached_pages, 2);
    let sizes = placement(&file, &["--placement", "sized"]);
    assert_eq!((sizes.buckets, sizes.pages), (1, 3));
    // On a machine of pages, the granule is the page.
    let pages = placement(&file, &["--placement", "sized", "--granule", "8192"]);
    assert_eq!((pages.page, pages.pages), (8192, 2));
}

#[test]
fn blocks_at_a_regular_distance_are_aligned_only_if_the_program_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    // Blocks of two call sites and one size; those of the second happen to lie at
    // multiples of 64.
    let buckets = |of_second: fn(u64) -> Act| {
        let mut acts: Vec<Act> = (0..20)
            .map(|i| Act::Allocate(0x10010 + i * 32, 24, 0xa1))
            .collect();
        acts.extend((0..20).map(|i| of_second(0x20000 + i * 64)));
        acts.push(Act::Write(0x10010, 1));
        let folder = tempfile::tempdir_in(folder.path()).expect("a folder");
        let file = trace(folder.path(), &[acts]);
        placement(&file, &["--placement", "sized"]).buckets
    };
    assert_eq!(buckets(|at| Act::Allocate(at, 24, 0xb2)), 1);
    assert_eq!(buckets(|at| Act::Align(at, 24, 0xb2, 64)), 2);
    // A trace without the calls of the allocator is replayed as well as it can be.
    assert_eq!(buckets(|at| Act::Silent(at, 24, 0xb2)), 2);
}

#[test]
fn a_block_in_memory_that_another_left_is_another() {
    let folder = tempfile::tempdir().expect("a folder");
    // The second thread's block has the address of the first one's.
    let file = trace(
        folder.path(),
        &[
            vec![
                Act::Allocate(0x10010, 8, 0xa1),
                Act::Write(0x10010, TIMES),
                Act::Free(0x10010),
            ],
            vec![
                Act::Allocate(0x10010, 8, 0xb2),
                Act::Write(0x10010, TIMES),
                Act::Free(0x10010),
            ],
        ],
    );
    let options = ["--placement", "sized-call-site"];
    let seen = totals(&file, &options);
    assert_eq!((seen.true_sharing, seen.false_sharing), (0, 0));
    assert_eq!(seen.cold, 2);
    assert_eq!(placement(&file, &options).buckets, 2);
}

#[test]
fn only_the_heap_is_simulated_if_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = trace(
        folder.path(),
        &[
            vec![
                Act::Allocate(0x10010, 8, 0xa1),
                Act::Write(0x10010, 3),
                Act::Write(0x900000, 5),
            ],
            vec![Act::Read(0x900008, 7)],
        ],
    );
    assert_eq!(totals(&file, &["--heap-only"]).references, 3);
    assert_eq!(totals(&file, &[]).references, 15);
    let result = simulate(&file, &["--heap-only", "--placement", "hoard"]);
    let simulation = result.simulation.expect("simulated");
    assert!(simulation.heap_only);
    assert_eq!((simulation.totals.references, simulation.granules), (3, 1));
}

#[test]
fn a_moved_block_is_named_as_it_was_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = neighbours(folder.path(), false);
    let result = simulate(&file, &["--placement", "sized"]);
    let [finding] = &result.findings[..] else {
        panic!("{:?}", result.findings);
    };
    assert_eq!(finding.simulated.map(|s| s.false_sharing), Some(FALSE));
    let neighbour = finding.neighbour.as_ref().expect("two blocks");
    let mut starts = [finding.object.address, neighbour.address].map(|at| at.to_string());
    starts.sort();
    assert_eq!(starts, ["0x10010", "0x10030"]);
    assert_eq!(finding.object.size, Some(8));
    assert!(!finding.object.allocation.is_empty());
    // One word is at the start of the line, the other 16 bytes further.
    let offsets: Vec<_> = finding.lines[0].words.iter().map(|w| w.offset).collect();
    assert_eq!(offsets, [0, 16]);
}

/// Traces of `layouts` by mode; `None` if it can't be recorded here.
fn recorded(mode: &str) -> &'static Path {
    static FOLDER: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (folder, program) = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/layouts.c");
        let program = folder.path().join("layouts");
        sunder()
            .args(["cc", "-O1", "-g", "-pthread", "-o"])
            .arg(&program)
            .arg(source)
            .assert()
            .success();
        for mode in ["global", "heap", "array"] {
            sunder()
                .args(["trace", "-o"])
                .arg(folder.path().join(mode))
                .arg("--")
                .arg(&program)
                .args([mode, &TIMES.to_string()])
                .assert()
                .success();
        }
        (folder, program)
    });
    assert!(program.exists());
    Box::leak(folder.path().join(mode).into_boxed_path())
}

#[test]
fn a_padded_field_takes_the_sharing_away() {
    for mode in ["global", "heap"] {
        let file = recorded(mode);
        assert_eq!(totals(file, &[]).false_sharing, FALSE, "{mode}");
        for field in ["pair.second", "struct pair.first"] {
            let seen = totals(file, &["--pad", field]);
            assert_eq!(
                (seen.false_sharing, seen.true_sharing),
                (0, 0),
                "{mode} {field}"
            );
        }
        // Both words of one pair move together.
        assert_eq!(totals(file, &["--pad", "pair"]).false_sharing, FALSE);
    }
}

#[test]
fn elements_of_an_array_get_lines_and_globals_move_as_a_whole() {
    let file = recorded("array");
    assert_eq!(totals(file, &[]).false_sharing, FALSE);
    assert_eq!(
        totals(file, &["--align", "counters=128"]).false_sharing,
        FALSE
    );
    assert_eq!(totals(file, &["--pad", "long"]).false_sharing, 0);
}

#[test]
fn bytes_that_a_change_costs_are_told() {
    let seen = placement(recorded("heap"), &["--pad", "pair.second"]);
    // A pair of 16 bytes takes two lines: the global and the block.
    assert_eq!(seen.grown_bytes, 2 * (128 - 16));
    assert_eq!(seen.changes, ["pad pair.second"]);
    assert_eq!((seen.policy.as_str(), seen.allocations), ("actual", 1));
}

#[test]
fn a_field_keeps_its_name_where_it_moved() {
    // On lines of 256 bytes padding to 128 is not enough, so there is a finding.
    let result = simulate(
        recorded("global"),
        &["--align", "table=128", "--granule", "256"],
    );
    let finding = result
        .findings
        .iter()
        .find(|f| f.object.name.as_deref() == Some("table"));
    let finding = finding.unwrap_or_else(|| panic!("{:?}", result.findings));
    let fields: Vec<_> = finding.lines[0]
        .words
        .iter()
        .map(|w| w.field.clone())
        .collect();
    let named = ["table.first", "table.second"].map(|f| Some(f.to_owned()));
    assert_eq!(fields, named);
}

#[test]
fn names_that_are_not_there_are_refused_with_the_nearest() {
    let cases: [(&[&str], &str); 6] = [
        (&["--pad", "pair.secnd"], "second"),
        (&["--pad", "piar.second"], "pair"),
        (&["--align", "tabel=64"], "table"),
        (&["--placement", "padded:maek"], "layouts.c:"),
        (&["--align", "nowhere.c:1=64"], "layouts.c:"),
        (&["--pad", "nothing"], "nearest"),
    ];
    for (options, wanted) in cases {
        let seen = sunder()
            .arg("simulate")
            .arg(recorded("heap"))
            .args(options)
            .output()
            .expect("sunder starts");
        let told = String::from_utf8_lossy(&seen.stderr);
        assert_eq!(seen.status.code(), Some(125), "{options:?}: {told}");
        assert_eq!(told.lines().count(), 1, "{options:?}: {told}");
        assert!(told.contains(wanted), "{options:?}: {told}");
    }
}

#[test]
fn what_is_no_placement_or_alignment_is_wrong_usage() {
    for options in [
        ["--placement", "jemalloc"],
        ["--placement", "padded:"],
        ["--align", "table=48"],
        ["--align", "table"],
    ] {
        let seen = sunder()
            .arg("simulate")
            .arg("no-such-file")
            .args(options)
            .output()
            .expect("sunder starts");
        assert_eq!(seen.status.code(), Some(2), "{options:?}");
    }
}

#[test]
fn call_sites_are_named_by_function_and_line() {
    let file = recorded("heap");
    for site in ["make", "layouts.c:43"] {
        let seen = placement(file, &["--placement", &format!("padded:{site}")]);
        assert_eq!((seen.allocations, seen.grown_bytes), (1, 48), "{site}");
    }
}

fn what_if(trace: &Path, options: &[&str]) -> Findings {
    replay("what-if", trace, options)
}

/// The change that `arguments` ask for.
fn tried<'a>(result: &'a Findings, arguments: &str) -> &'a Tried {
    let all = &result.what_if.as_ref().expect("tried").changes;
    all.iter()
        .find(|c| c.arguments.join(" ") == arguments)
        .unwrap_or_else(|| panic!("{arguments}: {all:?}"))
}

#[test]
fn what_helps_is_ranked_before_what_does_not() {
    let result = what_if(recorded("global"), &[]);
    let rank = result.findings[0].rank;
    for field in ["pair.first", "pair.second"] {
        let change = tried(&result, &format!("--pad {field}"));
        assert_eq!(change.finding, Some(rank));
        assert_eq!(
            (change.false_saved, change.false_left),
            (FALSE as i64, 0),
            "{field}"
        );
        // The main thread, which reads both words in the end, misses on two lines instead of one.
        assert_eq!(change.misses_saved, FALSE as i64 - 1);
        assert_eq!(change.bytes, 2 * (128 - 16));
    }
    let aligned = tried(&result, "--align table=64");
    assert_eq!((aligned.misses_saved, aligned.false_left), (0, FALSE));
    let what_if = result.what_if.as_ref().expect("tried");
    let saved: Vec<i64> = what_if.changes.iter().map(|c| c.misses_saved).collect();
    assert!(saved.is_sorted_by(|a, b| a >= b), "{saved:?}");
    // No heap object is shared, so no allocator can help.
    assert!(what_if.changes.iter().all(|c| c.finding == Some(rank)));
}

#[test]
fn elements_of_an_array_are_tried_by_the_array() {
    let result = what_if(recorded("array"), &[]);
    let padded = tried(&result, "--pad counters[]");
    assert_eq!((padded.false_saved, padded.false_left), (FALSE as i64, 0));
    assert_eq!(padded.bytes, 8 * 64 - 64);
}

#[test]
fn what_is_tried_is_what_simulate_does() {
    let file = recorded("heap");
    let result = what_if(file, &[]);
    let before = totals(file, &[]);
    for change in &result.what_if.as_ref().expect("tried").changes {
        let arguments: Vec<&str> = change.arguments.iter().map(String::as_str).collect();
        let after = totals(file, &arguments);
        let saved = before.false_sharing as i64 - after.false_sharing as i64;
        assert_eq!(saved, change.false_saved, "{arguments:?}");
    }
}

#[test]
fn allocators_are_tried_where_blocks_meet() {
    let folder = tempfile::tempdir().expect("a folder");
    let result = what_if(&neighbours(folder.path(), false), &[]);
    let saved = |policy: &str| tried(&result, &format!("--placement {policy}")).false_saved;
    let all = FALSE as i64;
    assert_eq!((saved("hoard"), saved("call-site")), (all, all));
    assert_eq!((saved("general"), saved("sized")), (0, 0));
    // The pages of two call sites instead of one page.
    assert_eq!(tried(&result, "--placement call-site").bytes, 4096);
    // A block of 8 bytes takes a line.
    let aligned = tried(&result, "--align 0xa1=64");
    assert_eq!((aligned.false_saved, aligned.bytes), (all, 56));
}

#[test]
fn other_lines_and_starts_are_predicted_by_replay() {
    let result = what_if(recorded("global"), &[]);
    let predicted = result.findings[0].predicted.as_ref().expect("predicted");
    let sizes: Vec<_> = predicted
        .line_sizes
        .iter()
        .map(|on| (on.line_size, on.false_sharing))
        .collect();
    // The two words are the first 16 bytes of an object at a multiple of 64.
    assert_eq!(sizes, [32, 64, 128, 256].map(|size| (size, FALSE)));
    let starts: Vec<_> = predicted
        .starts
        .iter()
        .map(|at| (at.offset, at.false_sharing))
        .collect();
    // An object at 56 lies on two lines, one word on each.
    let expected: Vec<_> = (0..8)
        .map(|i| (i * 8, if i == 7 { 0 } else { FALSE }))
        .collect();
    assert_eq!(starts, expected);
    // A heap block starts at multiples of 16.
    let result = what_if(recorded("heap"), &[]);
    let predicted = result.findings[0].predicted.as_ref().expect("predicted");
    let offsets: Vec<_> = predicted.starts.iter().map(|at| at.offset).collect();
    assert_eq!(offsets, [0, 16, 32, 48]);
    // Two blocks do not start together. If they lie 32 bytes apart, only larger lines hold both.
    let folder = tempfile::tempdir().expect("a folder");
    let result = what_if(&neighbours(folder.path(), false), &[]);
    let predicted = result.findings[0].predicted.as_ref().expect("predicted");
    assert!(predicted.starts.is_empty());
    let falsely = predicted.line_sizes.iter().map(|on| on.false_sharing);
    assert_eq!(falsely.collect::<Vec<_>>(), [0, FALSE, FALSE, FALSE]);
}

#[test]
fn the_reports_rank_the_changes_and_tell_the_predictions() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page.html");
    let seen = sunder()
        .arg("what-if")
        .arg(recorded("global"))
        .arg("-o")
        .arg(&page)
        .output()
        .expect("sunder starts");
    let told = String::from_utf8_lossy(&seen.stdout);
    let page = std::fs::read_to_string(page).expect("a page");
    for text in [&told, &std::borrow::Cow::Borrowed(page.as_str())] {
        for wanted in [
            "What if",
            "saves 997 misses",
            "--pad pair.second",
            "Falsely shared on lines of 32, 64, 128 and 256 bytes; at 7 of 8 start offsets",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }
    assert!(told.contains("1 change that saves nothing"), "{told}");
}

#[test]
fn what_cannot_be_tried_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let foreign = folder.path().join("foreign");
    std::fs::write(&foreign, "no trace at all".repeat(40)).expect("written");
    let good = recorded("global");
    let cases: [(&Path, &[&str]); 4] = [
        (&foreign, &[]),
        (good, &["--granule", "48"]),
        (good, &["--nodes", "0"]),
        (good, &["--nodes", "99"]),
    ];
    for (file, options) in cases {
        let seen = sunder()
            .arg("what-if")
            .arg(file)
            .args(options)
            .output()
            .expect("sunder starts");
        let told = String::from_utf8_lossy(&seen.stderr);
        assert_eq!(seen.status.code(), Some(125), "{options:?}: {told}");
        assert_eq!(told.lines().count(), 1, "{options:?}: {told}");
    }
}

#[test]
fn what_is_left_of_a_cut_trace_is_tried_and_said_to_be_partial() {
    let folder = tempfile::tempdir().expect("a folder");
    let cut = folder.path().join("cut.trace");
    let bytes = std::fs::read(recorded("global")).expect("the trace");
    std::fs::write(&cut, &bytes[..bytes.len() - 1]).expect("written");
    let result = what_if(&cut, &[]);
    assert!(
        result
            .limits
            .iter()
            .any(|l| l.to_string().contains("partial")),
        "{:?}",
        result.limits
    );
    assert_eq!(tried(&result, "--pad pair.second").false_left, 0);
}
