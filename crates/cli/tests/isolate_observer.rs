//! `sunder detect --observer isolate`: programs do what they do natively, and what their
//! threads write falsely shared is found by comparing pages.
//!
//! How sure the answers are: a line is judged by commits, one every 10 ms, so a program
//! must compute for some tenths of a second while both threads are isolated. Whether they
//! run at the same time is up to the machine: such checks are repeated, and say `SKIP:`
//! if the threads never ran side by side.

mod support;

use std::path::Path;
use std::process::Output;
use sunder_findings::ObjectKind;
use sunder_workloads::Variant;
use support::targets::{as_expected, build, falsely_shared, open, side_by_side};

/// Runs a program under the observer, with its result in `file`.
fn observe(file: &Path, program: &Path, arguments: &[&str]) -> Output {
    let mut command = support::plain_sunder();
    command
        .args(["detect", "--observer", "isolate", "--quiet", "-o"])
        .arg(file)
        .args(["--format", "json", "--"])
        .arg(program)
        .args(arguments);
    command.output().expect("it was just built")
}

/// Whether threads can be stopped here; says so if not.
fn works(limits: &[String]) -> bool {
    let refused = limits.iter().find(|l| l.contains("can't be stopped"));
    if let Some(why) = refused {
        println!("SKIP: {why}");
    }
    refused.is_none()
}

#[test]
fn the_object_that_threads_write_falsely_shared_is_named() {
    let program = build("linear_regression", Variant::Shared);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("isolate-regression.json");
    let arguments = ["2", "200000000"];
    let native = std::process::Command::new(&program)
        .args(arguments)
        .output()
        .expect("it was just built");
    side_by_side("linear_regression", || {
        let seen = observe(&file, &program, &arguments);
        assert_eq!(seen.stdout, native.stdout, "{seen:?}");
        assert!(seen.status.success() && seen.stderr.is_empty(), "{seen:?}");
        let findings = open(&file)?;
        assert_eq!(findings.run.observer, "isolate");
        if !works(&findings.limits) {
            return Ok(());
        }
        let heap = |f: &sunder_findings::Finding| f.object.kind == ObjectKind::Heap;
        let found = falsely_shared(&findings, heap)?;
        if !found.confirmed {
            return Err("commits did not confirm it".into());
        }
        as_expected(found, "linear_regression")
    });
}
