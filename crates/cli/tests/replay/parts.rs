//! `sunder trace export`, `sunder simulate` of buckets and `sunder merge`: the parts of a trace give the
//! same bytes as the trace, and what would give wrong counts is refused.

use crate::support::sunder;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use sunder_findings::Findings;

/// Rounds of `passed_blocks`: one block each.
pub const ROUNDS: u64 = 30;

/// A program, and a trace of it.
pub struct Recorded {
    _folder: tempfile::TempDir,
    program: PathBuf,
    /// The trace.
    pub trace: PathBuf,
}

/// The trace of `passed_blocks`.
pub fn recorded() -> &'static Path {
    &record().trace
}

/// The recorded program.
pub fn program() -> &'static Path {
    &record().program
}

fn record() -> &'static Recorded {
    static RECORDED: OnceLock<Recorded> = OnceLock::new();
    RECORDED.get_or_init(|| record_of("passed_blocks", ROUNDS))
}

/// Compiles the program called `name` of those in C, and records so many of its rounds.
pub fn record_of(name: &str, rounds: u64) -> Recorded {
    let folder = tempfile::tempdir().expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let program = folder.path().join(name);
    let trace = folder.path().join("program.trace");
    sunder()
        .args(["cc", "-O1", "-g", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .assert()
        .success();
    sunder()
        .args(["trace", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(&program)
        .arg(rounds.to_string())
        .assert()
        .success();
    Recorded {
        _folder: folder,
        program,
        trace,
    }
}

/// Exports the trace of `passed_blocks` into a folder of `within`.
pub fn exported(within: &Path, options: &[&str]) -> PathBuf {
    exported_of(recorded(), within, options)
}

/// Exports a trace into a folder of `within`.
pub fn exported_of(trace: &Path, within: &Path, options: &[&str]) -> PathBuf {
    let tables = within.join("tables");
    sunder()
        .args(["trace", "export", "--quiet", "-o"])
        .arg(&tables)
        .arg(trace)
        .args(options)
        .assert()
        .success();
    tables
}

/// The bytes of the result of the whole trace of `passed_blocks`.
pub fn whole(within: &Path, options: &[&str]) -> String {
    whole_of(recorded(), within, options)
}

/// The bytes of the result of a whole trace.
pub fn whole_of(trace: &Path, within: &Path, options: &[&str]) -> String {
    let file = within.join("whole.json");
    sunder()
        .args(["simulate", "--quiet", "--reproducible", "-o"])
        .arg(&file)
        .arg(trace)
        .args(options)
        .assert()
        .success();
    std::fs::read_to_string(file).expect("a result")
}

/// Replays buckets to a part.
pub fn part(within: &Path, buckets: &[PathBuf], options: &[&str]) -> PathBuf {
    let name = buckets[0].file_name().expect("a name").to_string_lossy();
    let file = within.join(format!("{name}.json"));
    sunder()
        .args(["simulate", "--quiet", "-o"])
        .arg(&file)
        .args(buckets)
        .args(options)
        .assert()
        .success();
    file
}

/// The folders of the first buckets.
pub fn buckets(tables: &Path, count: u32) -> Vec<PathBuf> {
    let all = (0..count).map(|bucket| tables.join(format!("bucket={bucket:02}")));
    all.collect()
}

/// The bytes of the result of parts.
pub fn merged(within: &Path, parts: &[PathBuf]) -> String {
    let file = within.join("merged.json");
    sunder()
        .args(["merge", "--quiet", "--reproducible", "-o"])
        .arg(&file)
        .args(parts)
        .assert()
        .success();
    std::fs::read_to_string(file).expect("a result")
}

/// What a command says that fails.
pub fn refused(arguments: &[&str], files: &[PathBuf]) -> String {
    let out = sunder()
        .args(arguments)
        .args(files)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(125), "{said}");
    said
}

#[test]
fn parts_merge_to_the_bytes_of_the_whole_trace() {
    for (export, replay) in [
        (vec![], vec![]),
        (vec!["--order", "recorded"], vec!["--order", "recorded"]),
        (
            vec!["--granule", "256"],
            vec!["--granule", "128", "--protocol", "msi", "--nodes", "2"],
        ),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let within = folder.path();
        let tables = exported(within, &[&export[..], &["--buckets", "7"]].concat());
        let parts: Vec<PathBuf> = buckets(&tables, 7)
            .chunks(3)
            .map(|some| part(within, some, &replay))
            .collect();
        let merged = merged(within, &parts);
        assert!(merged == whole(within, &replay), "{export:?}");
        let result = Findings::open(&within.join("merged.json")).expect("a result");
        let names: Vec<_> = result
            .findings
            .iter()
            .map(|f| f.object.name.clone())
            .collect();
        assert!(
            names.contains(&Some("pair".to_owned())),
            "names are those of the program: {names:?}"
        );
    }
}

#[test]
fn what_would_give_wrong_counts_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let within = folder.path();
    let tables = exported(within, &["--buckets", "4"]);
    let all = buckets(&tables, 4);
    for (options, wanted) in [
        (&["--caches", "32K/8"][..], "finite cache"),
        (
            &["--placement", "hoard"],
            "--granule, --heap-only, --nodes, --map and --protocol",
        ),
        (&["--pad", "pair.first"], "--pad"),
        (&["--granule", "128"], "export it again with --granule 128"),
        (
            &["--machine", "dsm", "--heap-only"],
            "export it again with --granule 4096",
        ),
        (&["--order", "recorded"], "exported in the canonical order"),
    ] {
        let said = refused(&[&["simulate"], options].concat(), &all[..1]);
        assert!(said.contains(wanted), "{options:?}: {said}");
    }
    let parts: Vec<PathBuf> = all
        .iter()
        .map(|b| part(within, std::slice::from_ref(b), &[]))
        .collect();
    let said = refused(&["merge"], &parts[1..]);
    assert!(
        said.contains("of 4 buckets 1 are missing") && said.contains("00"),
        "{said}"
    );
    let said = refused(&["merge"], &[&parts[..], &parts[2..3]].concat());
    assert!(said.contains("bucket 02 is in two parts"), "{said}");
    let other = within.join("other");
    std::fs::create_dir(&other).expect("a folder");
    let msi = part(&other, &all[3..], &["--protocol", "msi"]);
    let said = refused(&["merge"], &[&parts[..3], &[msi]].concat());
    assert!(said.contains("different options"), "{said}");
    let both = "--granule 64 --protocol mesi and --granule 64 --protocol msi";
    assert!(said.contains(both), "{said}");
    let heap = part(&other, &all[2..3], &["--heap-only"]);
    let said = refused(&["merge"], &[&parts[..2], &[heap], &parts[3..]].concat());
    assert!(said.contains("different options"), "{said}");
    // A bucket whose rows are gone.
    std::fs::remove_file(all[1].join("accesses.parquet")).expect("it is there");
    let said = refused(&["simulate"], &all[1..2]);
    assert!(said.contains("were exported"), "{said}");
    let said = refused(&["simulate"], std::slice::from_ref(&tables));
    assert!(said.contains("is no bucket"), "{said}");
    let said = refused(
        &["trace", "export", "-o", tables.to_str().expect("text")],
        &[recorded().into()],
    );
    assert!(said.contains("is not empty"), "{said}");
}
