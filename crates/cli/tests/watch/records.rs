//! What the tests share: whether a machine can be watched here, targets, and records.

use crate::support::targets::build;
use crate::support::{Ended, sunder};
use std::process::{Command, Stdio};
use sunder_findings::{Record, WatchStatus, Watched};
use sunder_workloads::Variant;

/// Iterations for minutes of work: the tests end these targets.
pub const LONG: &str = "80000000000";

/// Whether this machine can be watched; says why not.
pub fn can_watch() -> bool {
    let checked = sunder()
        .args(["watch", "--check"])
        .output()
        .expect("it starts");
    let can = checked.status.success();
    if !can {
        println!("SKIP: {}", String::from_utf8_lossy(&checked.stdout));
    }
    can
}

/// The version of the targets, by their environment.
pub const VERSION: &str = "4.2+1";

/// A workload that runs until the value is dropped.
pub fn target(name: &str, variant: Variant) -> Ended {
    let mut command = Command::new(build(name, variant));
    command.args(["2", LONG]).stdout(Stdio::null());
    command.env(
        "OTEL_RESOURCE_ATTRIBUTES",
        format!("service.name=x,service.version={VERSION}"),
    );
    Ended::new(&mut command)
}

/// The records in some lines.
pub fn records(lines: &[u8]) -> Vec<Record> {
    let lines = std::str::from_utf8(lines).expect("JSON is text");
    let record = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    lines.lines().map(record).collect()
}

/// Those about findings.
pub fn findings(records: &[Record]) -> Vec<&Watched> {
    let mut found: Vec<&Watched> = Vec::new();
    for record in records {
        if let Record::Finding(watched) = record {
            found.push(watched);
        }
    }
    found
}

/// The last about the watcher.
pub fn status(records: &[Record]) -> &WatchStatus {
    let last = records.iter().rev().find_map(|record| match record {
        Record::Status(status) => Some(&**status),
        Record::Finding(_) => None,
    });
    last.expect("a status")
}
