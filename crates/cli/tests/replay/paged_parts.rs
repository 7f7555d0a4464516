//! Pages, and heap objects alone, replayed in parts: the same bytes as the replay of the trace. And what
//! an earlier Sunder wrote is refused.

use super::parts::{Recorded, buckets, exported_of, merged, part, record_of, refused, whole_of};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use sunder_findings::{Findings, ObjectKind};

/// Rounds of `shared_pages`: more than the fewest misses that are told.
const ROUNDS: u64 = 40;

const BUCKETS: u32 = 8;

/// The trace of `shared_pages`.
fn recorded() -> &'static Path {
    static RECORDED: OnceLock<Recorded> = OnceLock::new();
    &RECORDED
        .get_or_init(|| record_of("shared_pages", ROUNDS))
        .trace
}

/// Replays an export in parts and holds the result against the replay of the trace.
fn compare(within: &Path, tables: &Path, options: &[&str]) -> Findings {
    let parts: Vec<PathBuf> = buckets(tables, BUCKETS)
        .chunks(3)
        .map(|some| part(within, some, options))
        .collect();
    let merged = merged(within, &parts);
    assert!(
        merged == whole_of(recorded(), within, options),
        "{options:?}"
    );
    Findings::open(&within.join("merged.json")).expect("a result")
}

fn has(result: &Findings, kind: ObjectKind) -> bool {
    let of = |f: &sunder_findings::Finding| {
        let neighbour = f.neighbour.as_ref();
        f.object.kind == kind || neighbour.is_some_and(|n| n.kind == kind)
    };
    result.findings.iter().any(of)
}

#[test]
fn pages_merge_to_the_bytes_of_the_whole_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let within = folder.path();
    let cut = ["--granule", "4096", "--buckets", "8"];
    let tables = exported_of(recorded(), within, &cut);
    let all = compare(within, &tables, &["--granule", "4096"]);
    for kind in [ObjectKind::Global, ObjectKind::Heap, ObjectKind::Stack] {
        assert!(has(&all, kind), "{kind:?}: {:?}", all.findings);
    }
    let heap = compare(within, &tables, &["--machine", "dsm", "--heap-only"]);
    assert!(has(&heap, ObjectKind::Heap) && !has(&heap, ObjectKind::Global));
    assert!(heap.simulation.expect("simulated").heap_only);
    for options in [
        &["--granule", "512", "--nodes", "2"][..],
        &["--granule", "64", "--heap-only"],
        &["--granule", "256"],
    ] {
        compare(within, &tables, options);
    }
}

#[test]
fn smaller_pages_than_those_of_the_cut_merge_to_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let within = folder.path();
    let cut = [
        "--granule",
        "65536",
        "--buckets",
        "8",
        "--order",
        "recorded",
    ];
    let tables = exported_of(recorded(), within, &cut);
    for granule in ["512", "4096", "65536"] {
        for heap_only in [&[][..], &["--heap-only"]] {
            let options = ["--order", "recorded", "--granule", granule];
            compare(within, &tables, &[&options[..], heap_only].concat());
        }
    }
}

#[test]
fn what_an_earlier_version_wrote_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let within = folder.path();
    let tables = exported_of(recorded(), within, &["--granule", "4096", "--buckets", "1"]);
    let bucket = buckets(&tables, 1);
    let part = part(within, &bucket, &["--granule", "4096"]);
    let earlier = |file: &Path| {
        let text = std::fs::read_to_string(file).expect("JSON");
        let changed = text.replacen("\"version\":2", "\"version\":1", 1);
        assert_ne!(changed, text);
        std::fs::write(file, changed).expect("written");
    };
    earlier(&part);
    let said = refused(&["merge"], &[part]);
    assert!(said.contains("another version of Sunder"), "{said}");
    earlier(&tables.join("trace.json"));
    let said = refused(&["simulate"], &bucket);
    assert!(said.contains("sunder-tables 1"), "{said}");
}
