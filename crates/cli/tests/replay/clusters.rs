//! `contrib/spark` and `contrib/dask` on clusters of two workers on the loopback address, of which an
//! executor and a whole worker are killed in the middle: the same bytes as the replay of the trace.

use super::parts::{exported, whole};
use crate::support::engines::python_with;
use crate::support::installed::installed;
use crate::support::sunder;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn replays_to_the_same_bytes(engine: &str, modules: &[&str], script: &str) {
    let Some(python) = python_with(modules) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let within = folder.path();
    let tables = exported(within, &["--buckets", "6"]);
    let output = within.join("of_cluster.json");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = Command::new(python)
        .arg(manifest.join("tests/engines/cluster.py"))
        .arg(engine)
        .arg(manifest.join("../..").join(script))
        .arg(sunder().get_program())
        .args([&tables, &output])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    let done: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(done["status"], 0, "{done} {said}");
    assert_eq!(done["killed"]["executor"], 1, "{done}");
    let merged = std::fs::read_to_string(output).expect("a result");
    assert!(merged == whole(within, &[]), "{done}");
}

#[test]
fn dask_that_loses_workers_replays_to_the_same_bytes() {
    replays_to_the_same_bytes(
        "dask",
        &["dask", "distributed"],
        "contrib/dask/sunder_dask.py",
    );
}

#[test]
fn spark_that_loses_workers_replays_to_the_same_bytes() {
    if installed("java").is_some() {
        replays_to_the_same_bytes("spark", &["pyspark"], "contrib/spark/sunder_spark.py");
    }
}
