//! `sunder simulate`: the counts of a replayed trace are known beforehand, because the program's
//! threads take turns.

use crate::support::replays::{replay, totals};
use crate::support::{plain_sunder, sunder};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use sunder_findings::{Findings, ObjectKind, Sharing};

/// Rounds of `turns`: each thread writes once in each round.
const ROUNDS: u64 = 1000;

/// Each thread misses in all rounds: in the first because it never had the line
/// (cold), in the others because the other thread wrote its own word meanwhile,
/// which it never uses (false sharing by the definition of Dubois and others).
const FALSE: u64 = 2 * (ROUNDS - 1);

struct Recorded {
    _folder: tempfile::TempDir,
    near: PathBuf,
    far: PathBuf,
}

/// Traces of `turns` with its words 8 and 64 bytes apart.
fn recorded() -> &'static Recorded {
    static RECORDED: OnceLock<Recorded> = OnceLock::new();
    RECORDED.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/turns.c");
        let program = folder.path().join("turns");
        sunder()
            .args(["cc", "-O1", "-g", "-pthread", "-o"])
            .arg(&program)
            .arg(source)
            .assert()
            .success();
        let record = |distance: &str| {
            let file = folder.path().join(format!("{distance}.trace"));
            sunder()
                .args(["trace", "-o"])
                .arg(&file)
                .arg("--")
                .arg(&program)
                .args([&ROUNDS.to_string(), distance])
                .assert()
                .success()
                .stdout(format!("{}\n", 2 * (ROUNDS - 1)));
            file
        };
        let (near, far) = (record("8"), record("64"));
        Recorded {
            _folder: folder,
            near,
            far,
        }
    })
}

/// The result of replaying `trace` with `options`.
fn simulate(trace: &Path, options: &[&str]) -> Findings {
    replay("simulate", trace, options)
}

#[test]
fn the_misses_are_those_of_the_turns() {
    for protocol in ["msi", "mesi", "mesif"] {
        let seen = totals(&recorded().near, &["--protocol", protocol]);
        assert_eq!(
            (seen.false_sharing, seen.true_sharing),
            (FALSE, 0),
            "{protocol}"
        );
        let parts = seen.hits
            + seen.cold
            + seen.replacement
            + seen.true_sharing
            + seen.false_sharing
            + seen.upgrades;
        assert_eq!(parts, seen.references, "{protocol}");
    }
}

#[test]
fn turns_are_turns_in_either_order() {
    let seen = totals(&recorded().near, &["--order", "recorded"]);
    assert_eq!((seen.false_sharing, seen.true_sharing), (FALSE, 0));
}

#[test]
fn words_on_lines_of_their_own_share_on_larger_lines_only() {
    let far = &recorded().far;
    assert_eq!(totals(far, &[]).false_sharing, 0);
    assert_eq!(totals(far, &["--granule", "128"]).false_sharing, FALSE);
    assert_eq!(
        totals(&recorded().near, &["--granule", "8"]).false_sharing,
        0
    );
}

#[test]
fn threads_on_one_node_share_its_cache() {
    // Thread 1 is the main thread, which only reads after the others have ended.
    let seen = totals(&recorded().near, &["--map", "2:1,3:1"]);
    assert_eq!((seen.false_sharing, seen.true_sharing), (0, 0));
}

#[test]
fn the_block_is_named_with_its_allocation() {
    let result = simulate(&recorded().near, &[]);
    let [finding] = &result.findings[..] else {
        panic!("{:?}", result.findings);
    };
    assert_eq!(finding.sharing, Sharing::False);
    assert!(finding.confirmed && !finding.latent);
    assert_eq!(finding.object.kind, ObjectKind::Heap);
    assert_eq!(finding.object.size, Some(256));
    let frames = &finding.object.allocation;
    assert!(frames.iter().any(|f| f.function == "main"), "{frames:?}");
    assert_eq!(finding.simulated.map(|s| s.false_sharing), Some(FALSE));
    let offsets: Vec<_> = finding.lines[0].words.iter().map(|w| w.offset).collect();
    assert_eq!(offsets, [0, 8]);
    assert!(result.significant(1.0).next().is_some());
}

#[test]
fn machines_that_cannot_be_are_refused_in_one_sentence() {
    let impossible: [&[&str]; 7] = [
        &["--granule", "48"],
        &["--granule", "0"],
        &["--nodes", "0"],
        &["--nodes", "4"],
        &["--map", "9:0"],
        &["--map", "1:7", "--nodes", "2"],
        &["--caches", "1K/3"],
    ];
    for options in impossible {
        let seen = sunder()
            .arg("simulate")
            .arg(&recorded().near)
            .args(options)
            .output()
            .expect("sunder starts");
        let told = String::from_utf8_lossy(&seen.stderr);
        assert_eq!(seen.status.code(), Some(125), "{options:?}: {told}");
        assert_eq!(told.lines().count(), 1, "{options:?}: {told}");
        assert!(seen.stdout.is_empty(), "{options:?}");
    }
}

#[test]
fn files_that_are_no_traces_are_refused_in_one_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let foreign = folder.path().join("foreign");
    std::fs::write(
        &foreign,
        "no trace at all, but long enough to hold a header".repeat(9),
    )
    .expect("written");
    let missing = folder.path().join("missing");
    for file in [&foreign, &missing] {
        let seen = sunder()
            .arg("simulate")
            .arg(file)
            .output()
            .expect("sunder starts");
        let told = String::from_utf8_lossy(&seen.stderr);
        assert_eq!(seen.status.code(), Some(125), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

#[test]
fn what_is_left_of_a_cut_trace_is_replayed_and_said_to_be_partial() {
    let folder = tempfile::tempdir().expect("a folder");
    let cut = folder.path().join("cut.trace");
    let bytes = std::fs::read(&recorded().near).expect("the trace");
    std::fs::write(&cut, &bytes[..bytes.len() - 1]).expect("written");
    let result = simulate(&cut, &[]);
    assert!(
        result
            .limits
            .iter()
            .any(|l| l.to_string().contains("partial")),
        "{:?}",
        result.limits
    );
}

#[test]
fn the_report_tells_machine_and_misses() {
    let seen = plain_sunder()
        .arg("simulate")
        .arg(&recorded().near)
        .output()
        .expect("sunder starts");
    let told = String::from_utf8_lossy(&seen.stdout);
    for wanted in ["Simulated", "3 nodes", "MESI", "1,998", "main"] {
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
}
