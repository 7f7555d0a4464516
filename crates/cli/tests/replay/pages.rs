//! `sunder simulate --granule 4096`: whose data made nodes lose pages. The counts are known
//! beforehand: traces are written by hand, or their program's threads take turns.

use crate::support::by_hand::{Act, trace};
use crate::support::replays::replay;
use crate::support::sunder;
use std::path::Path;
use sunder_findings::{Findings, ObjectKind, PageCause, Sharing};

/// How often each thread writes.
const TIMES: u64 = 500;

fn pages(trace: &Path, more: &[&str]) -> Findings {
    let options = ["--granule", "4096", "--protocol", "msi"];
    replay("simulate", trace, &[&options, more].concat())
}

/// Two threads, each writing to its own blocks of 8 bytes, which lie on one page.
fn by_hand(folder: &Path) -> std::path::PathBuf {
    let first = vec![
        Act::Allocate(0x10010, 8, 0xa1),
        Act::Allocate(0x10100, 8, 0xa1),
        Act::Allocate(0x10800, 24, 0xb2),
        Act::Write(0x10010, TIMES),
    ];
    trace(folder, &[first, vec![Act::Write(0x10808, TIMES)]])
}

#[test]
fn the_papers_machine_is_one_option_whose_parts_can_be_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = by_hand(folder.path());
    let simulation = |options: &[&str]| {
        let result = replay("simulate", &trace, options);
        result.simulation.expect("simulated")
    };
    let by_parts = pages(&trace, &["--nodes", "2"]).simulation;
    let by_name = simulation(&["--machine", "dsm"]);
    assert_eq!(by_name.granule, 4096);
    assert_eq!(by_name.nodes, by_parts.expect("simulated").nodes);
    let lines = simulation(&["--machine", "dsm", "--granule", "64"]);
    assert_eq!((lines.granule, lines.protocol.as_str()), (64, "MSI"));
}

#[test]
fn the_two_that_meet_on_a_page_are_told_with_what_each_cost_the_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let result = pages(&by_hand(folder.path()), &[]);
    let [finding] = &result.findings[..] else {
        panic!("{:?}", result.findings);
    };
    assert_eq!(finding.sharing, Sharing::False);
    // Each write but a thread's first misses, because the other thread has written meanwhile.
    let each = TIMES - 1;
    let counts = finding.simulated.expect("simulated");
    assert_eq!((counts.false_sharing, counts.true_sharing), (2 * each, 0));
    assert_eq!((counts.references, counts.cold), (2 * TIMES, 2));
    let on = finding.on_pages.as_ref().expect("on pages");
    assert_eq!((on.page, on.pages), (4096, 1));
    let cause = |neighbour_missed| PageCause {
        neighbour_missed,
        neighbour_written: !neighbour_missed,
        true_sharing: 0,
        false_sharing: each,
    };
    assert!(on.causes.contains(&cause(true)) && on.causes.contains(&cause(false)));
    assert_eq!(on.causes.len(), 2);
    assert_eq!(
        on.threads
            .iter()
            .map(|t| t.false_sharing)
            .collect::<Vec<_>>(),
        [each, each]
    );
    let neighbour = finding.neighbour.as_ref().expect("two objects");
    let mut objects = [&finding.object, neighbour].map(|o| (o.size, o.blocks));
    objects.sort();
    assert_eq!(objects, [(Some(8), Some(2)), (Some(24), None)]);
    assert!(
        objects
            .iter()
            .all(|_| finding.object.kind == ObjectKind::Heap)
    );
    // One range of bytes for each thread instead of single words.
    let [page] = &finding.lines[..] else {
        panic!("{:?}", finding.lines);
    };
    assert_eq!(page.address.to_string(), "0x10000");
    let runs: Vec<_> = page.words.iter().map(|w| (w.offset, w.size)).collect();
    assert_eq!(runs, [(0x10, 8), (0x808, 8)]);
    let [site] = &finding.sites[..] else {
        panic!("one instruction writes: {:?}", finding.sites);
    };
    let misses = site.misses.expect("counted");
    assert_eq!((misses.false_sharing, site.accesses), (2 * each, 2 * TIMES));
    // Each copy but the last is destroyed.
    assert_eq!(misses.destroyed, 2 * TIMES - 1);
}

#[test]
fn blocks_of_one_call_site_are_one_object_and_a_placement_parts_two() {
    let folder = tempfile::tempdir().expect("a folder");
    let acts = |at| {
        vec![
            Act::Allocate(at, 8, 0xa1),
            Act::Write(at, TIMES),
            Act::Free(at),
        ]
    };
    let file = trace(folder.path(), &[acts(0x10010), acts(0x10810)]);
    let result = pages(&file, &[]);
    let [finding] = &result.findings[..] else {
        panic!("{:?}", result.findings);
    };
    assert!(finding.neighbour.is_none());
    assert_eq!(finding.object.blocks, Some(2));
    assert_eq!(pages(&file, &["--placement", "hoard"]).findings, []);
    let other = tempfile::tempdir().expect("a folder");
    let two = by_hand(other.path());
    assert_eq!(pages(&two, &["--placement", "call-site"]).findings, []);
    let together = pages(&two, &["--placement", "general"]);
    assert_eq!(together.findings.len(), 1);
    assert!(together.findings[0].neighbour.is_some());
}

#[test]
fn what_another_wrote_and_one_needs_is_true_sharing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = trace(
        folder.path(),
        &[
            vec![Act::Allocate(0x10010, 8, 0xa1), Act::Write(0x10010, TIMES)],
            vec![Act::Read(0x10010, TIMES)],
        ],
    );
    let result = pages(&file, &[]);
    let [finding] = &result.findings[..] else {
        panic!("{:?}", result.findings);
    };
    assert_eq!(finding.sharing, Sharing::True);
    assert!(
        finding
            .advice
            .iter()
            .all(|a| !a.text.contains("different pages"))
    );
}

#[test]
fn what_if_on_pages_tries_pages_and_policies() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = ["--granule", "4096", "--protocol", "msi"];
    let result = replay("what-if", &by_hand(folder.path()), &options);
    let tried = &result.what_if.as_ref().expect("tried").changes;
    let saved = |arguments: &str| {
        let change = tried.iter().find(|c| c.arguments.join(" ") == arguments);
        change
            .unwrap_or_else(|| panic!("{arguments}: {tried:?}"))
            .false_saved
    };
    let all = 2 * (TIMES as i64 - 1);
    assert_eq!(saved("--placement call-site"), all);
    assert_eq!(saved("--align 0xb2=4096"), all);
    let words = tried.iter().map(|c| c.change.as_str());
    assert!(words.clone().any(|w| w.contains("pages of")), "{tried:?}");
    assert!(words.clone().all(|w| !w.contains("lines of")), "{tried:?}");
}

#[test]
fn caches_that_are_full_change_nothing_of_who_took_pages_from_whom() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = by_hand(folder.path());
    let limited = pages(&file, &["--caches", "64K/4"]);
    assert_eq!(limited.findings, pages(&file, &[]).findings);
}

#[test]
fn a_recorded_program_s_pages_have_names_code_and_reports() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("turns");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/turns.c");
    let mut compile = sunder();
    compile.args(["cc", "-O1", "-g", "-pthread", "-o"]);
    compile.arg(&program).arg(source).assert().success();
    let file = folder.path().join("trace");
    let mut record = sunder();
    record.args(["trace", "-o"]).arg(&file).arg("--");
    record.arg(&program).args(["200", "64"]).assert().success();
    let result = pages(&file, &[]);
    let block = |f: &&sunder_findings::Finding| f.object.kind == ObjectKind::Heap;
    let finding = result.findings.iter().find(block).expect("the block");
    // Words 64 bytes apart share no line, but they do share the page.
    assert_eq!(finding.simulated.map(|s| s.false_sharing), Some(2 * 199));
    let frames = &finding.object.allocation;
    assert!(frames.iter().any(|f| f.function == "main"), "{frames:?}");
    assert!(
        finding.sites.iter().any(|s| s.file.is_some()),
        "{:?}",
        finding.sites
    );
    let page = folder.path().join("page.html");
    let mut simulate = sunder();
    simulate.arg("simulate").arg(&file);
    simulate.args(["--granule", "4096", "--protocol", "msi", "-o"]);
    let seen = simulate.arg(&page).output().expect("sunder starts");
    let told = String::from_utf8_lossy(&seen.stdout);
    let html = std::fs::read_to_string(&page).expect("a page");
    for text in [&told, &std::borrow::Cow::Borrowed(html.as_str())] {
        for wanted in [
            "on 1 page of 4,096 bytes",
            "missed 199 times for nothing",
            "written by",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }
    assert!(told.lines().count() < 80, "{told}");
}
