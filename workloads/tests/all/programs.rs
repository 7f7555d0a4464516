//! Every workload builds without a warning, has the layout of its variant, and computes the same
//! in both variants; the table and the sources have the same workloads.

use std::collections::BTreeSet;
use std::process::{Command, Output};
use sunder_workloads::{Language, Table, Variant, Workload, default_out_dir};

/// A size at which all workloads in all variants take a few seconds.
const SMALL: u64 = 20;

/// The workloads and the pairs.
fn table() -> Table {
    let all = [Table::load(), Table::load_pairs()];
    let [mut table, pairs] = all.map(|table| table.unwrap_or_else(|error| panic!("{error}")));
    table.workloads.extend(pairs.workloads);
    table
}

fn run(workload: &Workload, variant: Variant, threads: u32, size: u64) -> Output {
    let program = workload
        .build(variant, &default_out_dir())
        .unwrap_or_else(|error| panic!("{error}"));
    Command::new(&program)
        .args([threads.to_string(), size.to_string()])
        .env("WORKLOAD_CHECK", "1")
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}

fn checksum(workload: &Workload, variant: Variant, threads: u32, size: u64) -> String {
    let output = run(workload, variant, threads, size);
    let name = &workload.name;
    assert!(
        output.status.success(),
        "{name} {variant:?} {threads} {size}: {} {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let digits = text.trim_end().strip_prefix("checksum ");
    assert!(
        digits.is_some_and(|d| d.len() == 16 && d.bytes().all(|b| b.is_ascii_hexdigit())),
        "{name} printed {text:?}"
    );
    text
}

#[test]
fn both_variants_compute_the_same_with_every_number_of_threads() {
    for workload in &table().workloads {
        let size = (workload.size / SMALL).max(1);
        let mut all = BTreeSet::new();
        for &threads in &workload.thread_counts {
            let sums = Variant::ALL.map(|v| checksum(workload, v, threads, size));
            if workload.deterministic {
                assert_eq!(sums[0], sums[1], "{} with {threads}", workload.name);
            }
            all.extend(sums);
        }
        if workload.deterministic && workload.checksum_ignores_threads {
            assert_eq!(all.len(), 1, "{}: {all:?}", workload.name);
        }
    }
}

#[test]
fn the_checksum_depends_on_the_work() {
    for workload in &Table::load().unwrap().workloads {
        let sums = [1, 2].map(|half| {
            let size = (workload.size / SMALL / half).max(1);
            checksum(workload, Variant::Fixed, workload.threads, size)
        });
        assert_ne!(sums[0], sums[1], "{}", workload.name);
    }
}

#[test]
fn wrong_arguments_are_refused() {
    for workload in &table().workloads {
        for (threads, size) in [(0, 10), (2, 0), (65, 10)] {
            let output = run(workload, Variant::Shared, threads, size);
            assert_eq!(output.status.code(), Some(2), "{}", workload.name);
            assert!(output.stdout.is_empty());
        }
    }
}

#[test]
fn every_source_is_in_the_table_and_every_entry_has_a_source() {
    for (folder, table) in [("programs", Table::load()), ("pairs", Table::load_pairs())] {
        let sources: BTreeSet<String> =
            std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/").to_owned() + folder)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| !name.ends_with(".h") && !name.ends_with(".toml"))
                .collect();
        let listed = table
            .unwrap()
            .workloads
            .into_iter()
            .map(|w| w.source)
            .collect();
        assert_eq!(sources, listed);
    }
}

#[test]
fn a_second_build_reuses_the_first() {
    let table = table();
    let workload = table
        .workloads
        .iter()
        .find(|w| w.language == Language::C)
        .unwrap();
    let out = default_out_dir().join("again");
    let first = workload.build(Variant::Fixed, &out).unwrap();
    let made = std::fs::metadata(&first).unwrap().modified().unwrap();
    assert_eq!(workload.build(Variant::Fixed, &out).unwrap(), first);
    assert_eq!(std::fs::metadata(&first).unwrap().modified().unwrap(), made);
    assert_ne!(workload.build(Variant::Shared, &out).unwrap(), first);
}

#[test]
fn builds_at_the_same_time_all_succeed() {
    let out = default_out_dir().join(format!("parallel-{}", std::process::id()));
    let table = table();
    let workload = table
        .workloads
        .iter()
        .find(|w| w.language == Language::C)
        .unwrap();
    let paths: BTreeSet<_> = std::thread::scope(|scope| {
        let builders: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| workload.build(Variant::Shared, &out).unwrap()))
            .collect();
        builders.into_iter().map(|b| b.join().unwrap()).collect()
    });
    assert_eq!(paths.len(), 1);
    let left = std::fs::read_dir(&out).unwrap().count();
    std::fs::remove_dir_all(&out).unwrap();
    assert_eq!(left, 1, "scratch folders are cleared away");
}

#[test]
fn an_unknown_workload_is_an_error_that_names_the_table() {
    let error = table().get("no_such_workload").unwrap_err().to_string();
    assert!(error.contains("no_such_workload") && error.contains("expected.toml"));
}

#[test]
fn the_demo_builds_without_a_warning_and_computes_the_same_in_both_variants() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = ["-DSHARED=1", "-DFIXED=1"].map(|flag| {
        let program = folder.path().join(&flag[2..]);
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/demo.c");
        let build = Command::new("gcc")
            .args(["-O2", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", flag])
            .args([source, "-o"])
            .arg(&program)
            .output()
            .unwrap();
        assert!(
            build.status.success(),
            "{}",
            String::from_utf8_lossy(&build.stderr)
        );
        let run = Command::new(&program).args(["3", "1000"]).output().unwrap();
        assert!(run.status.success());
        String::from_utf8(run.stdout).unwrap()
    });
    assert_eq!(outputs[0], outputs[1]);
    assert!(outputs[0].starts_with("3000 requests, "), "{}", outputs[0]);
}
