//! `--record` keeps a run so that `sunder report` judges it again: with the same options as in the
//! run, with others, and from damaged files.

use crate::support::targets::{build, open, side_by_side};
use crate::support::{Ended, c_program, sunder};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use sunder_workloads::Variant;

/// Nothing differs between the result of a run and that of its recording: both are made of the same
/// steps, and what is not in them is kept as the run had it.
const DIFFERS: [&str; 0] = [];

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("it was written");
    let mut value: Value = serde_json::from_str(&text).expect("a result");
    for field in DIFFERS {
        value.as_object_mut().expect("a result").remove(field);
    }
    value
}

/// Runs `program` under `detect --record` with these options, and compares the result with that of
/// the recording.
fn same_again(options: &[&str], program: &Path, arguments: &[&str]) -> Result<Value, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let (live, kept) = (
        folder.path().join("live.json"),
        folder.path().join("kept.json"),
    );
    let run = folder.path().join("run.sunder");
    let native = Command::new(program)
        .args(arguments)
        .output()
        .expect("it runs");
    let output = sunder()
        .args(["detect", "--quiet", "--record"])
        .arg(&run)
        .args(options)
        .arg("-o")
        .arg(&live)
        .arg("--")
        .arg(program)
        .args(arguments)
        .output()
        .expect("sunder runs");
    assert_eq!(output.status.code(), native.status.code(), "{output:?}");
    assert_eq!(output.stderr, native.stderr);
    sunder()
        .arg("report")
        .arg(&run)
        .arg("-o")
        .arg(&kept)
        .args(["--quiet"])
        .assert()
        .success();
    let result = open(&live)?;
    if result.run.samples < 100 {
        return Err(format!("only {} samples", result.run.samples));
    }
    let (live, kept) = (json(&live), json(&kept));
    pretty_assertions(&live, &kept);
    Ok(live)
}

fn pretty_assertions(live: &Value, kept: &Value) {
    if live != kept {
        let (live, kept) = (lines(live), lines(kept));
        let other = live.iter().zip(&kept).find(|(a, b)| a != b);
        panic!("the results differ, first here: {other:#?}");
    }
}

fn lines(value: &Value) -> Vec<String> {
    let text = serde_json::to_string_pretty(value).expect("it was read");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_recording_gives_the_result_of_its_run() {
    let program = build("thread_stats", Variant::Shared);
    side_by_side("thread_stats", || {
        let result = same_again(&[], &program, &["2", "300000000"])?;
        let any = result["findings"]
            .as_array()
            .is_some_and(|all| !all.is_empty());
        any.then_some(()).ok_or("nothing was found".into())
    });
}

#[test]
fn heap_blocks_bursts_and_gains_are_kept() {
    let Some(program) = c_program("contends", &["-O2", "-pthread"]) else {
        println!("SKIP: there is no gcc");
        return;
    };
    side_by_side("contends", || {
        let result = same_again(&["--measure"], &program, &["300"])?;
        let watched = result["run"]["watched_accesses"].as_u64().unwrap_or(0);
        (watched > 0)
            .then_some(())
            .ok_or("no watchpoint trapped anything".into())
    });
}

#[test]
fn processes_and_samples_of_timers_are_kept() {
    let program = build("thread_stats", Variant::Shared);
    let text = program.to_string_lossy().into_owned();
    let script = format!("{text} 2 400000000 & {text} 2 400000000; wait");
    for options in [
        &["--follow-children"][..],
        &["--observer", "timer", "--follow-children"],
    ] {
        side_by_side("followed", || {
            same_again(options, Path::new("/bin/sh"), &["-c", &script]).map(drop)
        });
    }
}

#[test]
fn an_attached_run_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    side_by_side("attached", || {
        let mut command = Command::new(build("thread_stats", Variant::Shared));
        command
            .args(["2", "80000000000"])
            .stdout(std::process::Stdio::piped());
        let target = Ended::new(&mut command);
        let mut attach = sunder();
        attach.args([
            "attach",
            "--quiet",
            "--duration",
            "1s",
            "--pid",
            &target.id(),
            "--record",
        ]);
        attach
            .arg(file("run"))
            .arg("-o")
            .arg(file("live.json"))
            .assert()
            .success();
        drop(target);
        let mut report = sunder();
        report
            .arg("report")
            .arg(file("run"))
            .arg("-q")
            .arg("-o")
            .arg(file("kept.json"));
        report.assert().success();
        pretty_assertions(&json(&file("live.json")), &json(&file("kept.json")));
        Ok(())
    });
}

#[test]
fn a_kept_run_is_judged_with_other_options() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let mut detect = sunder();
    detect
        .args(["detect", "--no-measure", "--quiet", "--record"])
        .arg(file("run"))
        .arg("--");
    detect
        .arg(build("thread_stats", Variant::Shared))
        .args(["2", "30000000"]);
    detect.assert().success();
    let mut report = sunder();
    report
        .arg("report")
        .arg(file("run"))
        .args(["--line-size", "128", "--threshold", "0.5"]);
    report
        .arg("-q")
        .arg("-o")
        .arg(file("large.json"))
        .assert()
        .success();
    let large = json(&file("large.json"));
    assert_eq!(large["machine"]["line_size"], 128);
    assert_eq!(large["run"]["threshold_percent"], 0.5);
    let limits = large["limits"].to_string();
    assert!(
        limits.contains("recorded with lines of 64 bytes"),
        "{limits}"
    );
    // A result has no events that could be judged again.
    let mut report = sunder();
    report
        .arg("report")
        .arg(file("large.json"))
        .args(["--line-size", "64"]);
    report.assert().code(2);
}

#[test]
fn the_end_of_a_recording_is_told_and_damage_is_one_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.sunder");
    let mut detect = sunder();
    detect
        .arg("detect")
        .arg("--record")
        .arg(&path)
        .args(["--", "true"]);
    let told = detect.assert().success().get_output().stderr.clone();
    let told = String::from_utf8_lossy(&told).into_owned();
    assert!(told.contains("judges them again"), "{told}");
    let whole = std::fs::read(&path).expect("it was written");
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("ours");
        let output = sunder().arg("report").arg(&path).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{text}");
        assert!(
            output.stdout.is_empty() && text.lines().count() == 1,
            "{text}"
        );
        text
    };
    assert!(refused(&whole[..whole.len() - 1]).contains("its end is missing"));
    let mut changed = whole.clone();
    let middle = whole.len() / 2;
    changed[middle] ^= 1;
    assert!(refused(&changed).contains("damaged"));
}

#[test]
fn places_that_take_no_recording_are_refused_before_the_program_runs() {
    let refused = |options: &[&str], code: i32| {
        let output = sunder()
            .arg("detect")
            .args(options)
            .args(["--", "echo", "ran"])
            .output();
        let output = output.expect("it runs");
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    };
    refused(&["--record", "/no-such-folder/run"], 125);
    refused(&["--record", "-"], 2);
    refused(&["--record", "/dev/zero"], 125);
    refused(&["--record", "/dev/zero", "--observer", "isolate"], 2);
}
