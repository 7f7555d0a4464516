//! `sunder simulate --placement`, `--pad` and `--align`: replays that move objects. What is
//! counted is known beforehand: traces are written by hand, or their program's threads take
//! turns.

mod support;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use sunder_findings::{Findings, Placement, Simulated};
use support::by_hand::{Act, trace};
use support::sunder;

/// How often each thread writes.
const TIMES: u64 = 500;

/// In a recorded program each thread's first write is cold; all others miss for nothing, because
/// the other thread wrote its own word on the line meanwhile.
const FALSE: u64 = 2 * (TIMES - 1);

/// In a trace made by hand the second thread begins when the first has written once, so
/// the first thread's second write and the second one's last find their own copy.
const BY_HAND: u64 = 2 * (TIMES - 2);

fn simulate(trace: &Path, options: &[&str]) -> Findings {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    sunder()
        .args(["simulate", "--quiet", "--format", "json", "-o"])
        .arg(&file)
        .arg(trace)
        .args(options)
        .assert()
        .success();
    Findings::open(&file).expect("a result")
}

fn totals(trace: &Path, options: &[&str]) -> Simulated {
    let result = simulate(trace, options);
    result.simulation.expect("simulated").totals
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
    // As they lay, one heap for all, and one size on a page: side by side.
    assert_eq!(counts("actual"), BY_HAND);
    assert_eq!(counts("glibc"), BY_HAND);
    assert_eq!(counts("general"), BY_HAND);
    assert_eq!(counts("sized"), BY_HAND);
    // Heaps of threads, pages of call sites, lines of one's own.
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
    assert_eq!(counts("hoard"), BY_HAND);
    assert_eq!(counts("sized-call-site"), 0);
}

#[test]
fn an_aligned_block_leaves_its_neighbour_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = neighbours(folder.path(), true);
    let aligned = |object: &str| totals(&file, &["--align", object]).false_sharing;
    assert_eq!(aligned("0xa1=64"), 0);
    // An alignment that all blocks have changes nothing.
    let packed = ["--placement", "glibc", "--align", "0xa1=16"];
    assert_eq!(totals(&file, &packed).false_sharing, BY_HAND);
    // On lines of 128 bytes an alignment to 64 is too little, if all is packed.
    let large = [
        "--placement",
        "glibc",
        "--align",
        "0xa1=64",
        "--granule",
        "128",
    ];
    assert_eq!(totals(&file, &large).false_sharing, BY_HAND);
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
fn a_block_in_memory_that_another_left_is_another() {
    let folder = tempfile::tempdir().expect("a folder");
    // The second thread's block takes the place of the first one's.
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
    assert_eq!(finding.simulated.map(|s| s.false_sharing), Some(BY_HAND));
    let neighbour = finding.neighbour.as_ref().expect("two blocks");
    let mut starts = [&finding.object.address, &neighbour.address];
    starts.sort();
    assert_eq!(starts, ["0x10010", "0x10030"]);
    assert_eq!(finding.object.size, Some(8));
    assert!(!finding.object.allocation.is_empty());
    // One is at the start of the line, the other 16 bytes on.
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
        // Both words of one pair go with it.
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
    // On lines of 256 bytes padding to 128 is too little, so there is a finding.
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
