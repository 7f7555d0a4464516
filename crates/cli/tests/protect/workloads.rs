//! `sunder protect` on every workload: whatever is isolated, refused or left alone, output and
//! status are those of the program alone.

use crate::support::limited::output;
use crate::support::natively::natively;
use crate::support::targets;
use std::path::PathBuf;
use std::process::Command;
use std::sync::MutexGuard;
use sunder_workloads::{Table, Variant, default_out_dir};

fn every_workload(_alone: MutexGuard<'_, ()>, name: &str, options: &[&str]) {
    let report = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.json"));
    let report = report.to_str().expect("our own path");
    let table = Table::load().expect("the table is well-formed");
    let only = std::env::var("SUNDER_WORKLOAD").unwrap_or_default();
    let mut wrong = Vec::new();
    for workload in table.workloads.iter().filter(|w| w.name.contains(&only)) {
        let program = workload
            .build(Variant::Shared, &default_out_dir())
            .expect("it compiles");
        let program = program.to_str().expect("our own path");
        let given = workload.arguments();
        let given: Vec<&str> = given.iter().map(String::as_str).collect();
        let native = natively(Command::new(program).args(&given));
        let mut all = vec!["protect", "--report", report];
        all.extend(options);
        all.extend(["--", program]);
        all.extend(&given);
        let protected = output(Command::new(env!("CARGO_BIN_EXE_sunder")).args(&all));
        let said = String::from_utf8_lossy(&protected.stderr);
        println!("{}: {}", workload.name, said.trim());
        let same = !workload.deterministic || protected.stdout == native.stdout;
        if !same || protected.status != native.status {
            wrong.push(format!(
                "{} ({:?}): {said}",
                workload.name, protected.status
            ));
        }
        let text = std::fs::read_to_string(report).expect("the report was written");
        let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(report["schema"], "sunder-protect");
    }
    assert!(
        wrong.is_empty(),
        "not as without us: {wrong:#?}; rerun one with SUNDER_WORKLOAD=name cargo test -p \
         sunder-cli --test protect workloads::"
    );
}

#[test]
fn every_workload_has_its_output() {
    every_workload(targets::alone(), "protected", &[]);
}

/// With episodes as often and as short as possible.
#[test]
fn every_workload_has_its_output_under_many_episodes() {
    every_workload(targets::alone(), "protected-often", &["--every", "700"]);
}
