//! `sunder detect --observer isolate`: programs do what they do natively, and what their
//! threads write falsely shared is found by comparing pages.
//!
//! How sure the answers are: a line is judged by commits, one every 10 ms, each with one sample
//! of registers. What must be found runs twice as long as in the table. That gives some 80 commits
//! of each thread, of which ten changes confirm a line, and some 80 samples, of which one of each
//! thread must be on the line. An access that takes a tenth of its thread's time or more is missed
//! once in 2,000 runs if every sample decodes, and once in 8 if one in four does; it counts as
//! missed if three runs miss it. Whether threads run at the same time depends on the machine: such
//! checks are repeated, and print `SKIP:` if the threads never ran side by side.

use crate::support::cases::{self, CASES};
use crate::support::limited::{output, status};
use crate::support::natively::natively;
use crate::support::targets::{as_expected, build, falsely_shared, open, side_by_side};
use std::path::Path;
use std::process::{Command, Output};
use sunder_findings::{Finding, Findings, Limit, ObjectKind};
use sunder_workloads::{Expected, Table, Variant, Workload, default_out_dir};

/// Runs a program under the observer, with its result in `file`.
fn observe(file: &Path, program: &Path, arguments: &[&str]) -> Output {
    let mut command = crate::support::plain_sunder();
    command
        .args(["detect", "--observer", "isolate", "--quiet", "-o"])
        .arg(file)
        .args(["--format", "json", "--"])
        .arg(program)
        .args(arguments);
    command.output().expect("it was just built")
}

/// Whether threads can be stopped here; prints a notice if not.
fn works(limits: &[Limit]) -> bool {
    let refused = limits
        .iter()
        .find(|l| l.to_string().contains("can't be stopped"));
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
    let native = Command::new(&program)
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

/// All pages that two threads write become private here, not only pages that are known to hold
/// nothing else.
#[test]
fn programs_do_what_they_do_natively_whatever_is_private() {
    let _alone = crate::support::targets::alone();
    crate::support::usual_signals();
    let program = cases::program();
    let mut wrong = Vec::new();
    for case in CASES {
        let native = output(Command::new(&program).arg(case));
        for arguments in [
            &["detect", "--observer", "isolate", "--quiet"][..],
            &[
                "detect",
                "--observer",
                "isolate",
                "--quiet",
                "--frequency",
                "2000",
                "--sampled",
                "1000",
            ],
            &["protect", "--eager", "--quiet"],
            &["protect", "--eager", "--quiet", "--every", "500"],
        ] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
            let isolated = output(command.args(arguments).arg("--").arg(&program).arg(case));
            if status(&native) != status(&isolated) || native.stdout != isolated.stdout {
                wrong.push(format!("{case} {arguments:?}: {native:?}\n{isolated:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn eager_protection_isolates_what_two_threads_write() {
    let _alone = crate::support::targets::alone();
    let program = cases::program();
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join("eager-report.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command
        .args(["protect", "--eager", "--report"])
        .arg(&report);
    // The program computes until one of its threads was isolated.
    let protected = output(command.arg("--").arg(&program).arg("until"));
    let said = String::from_utf8_lossy(&protected.stderr);
    if said.contains("can't be stopped") {
        println!("SKIP: {said}");
        return;
    }
    let text = String::from_utf8_lossy(&protected.stdout);
    assert_eq!(text, "1\n1\njoined 0\nright\n", "{protected:?}");
    assert_eq!(protected.status.code(), Some(5));
    let report = std::fs::read_to_string(report).expect("it was written");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert!(report["episodes"].as_u64() > Some(0), "{report}");
    assert!(report["pages"].as_u64() > Some(0), "{report}");
    assert!(report["committed_bytes"].as_u64() > Some(0), "{report}");
}

/// Each thread writes to thousands of pages over and over. To follow that takes most of its time, so the program
/// is left alone, and the report says so.
#[test]
fn a_program_that_is_dear_to_isolate_is_left_alone() {
    let program = crate::support::c_program("wide", &[]).expect("gcc compiles C");
    let right = "sum 163840000, locked 626\n";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (result, report) = (folder.join("wide.json"), folder.join("wide-report.json"));
    side_by_side("wide", || {
        let seen = observe(&result, &program, &["20000"]);
        assert_eq!(String::from_utf8_lossy(&seen.stdout), right, "{seen:?}");
        let limits = open(&result)?.limits;
        if !works(&limits) {
            return Ok(());
        }
        let said: Vec<String> = limits.iter().map(Limit::to_string).collect();
        if !said.iter().any(|limit| limit.contains("isolation took ")) {
            return Err(format!("{said:?}"));
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command
            .args(["protect", "--eager", "--report"])
            .arg(&report);
        let protected = output(command.arg("--").arg(&program).arg("20000"));
        assert_eq!(String::from_utf8_lossy(&protected.stdout), right);
        let report = std::fs::read_to_string(&report).map_err(|error| error.to_string())?;
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        let paused = &report["isolation_paused"];
        match (paused["times"].as_u64(), paused["percent"].as_u64()) {
            (Some(1..), Some(26..)) => Ok(()),
            _ => Err(report.to_string()),
        }
    });
}

/// With private copies of the ring's page, each side would get on by 64 items in 10 to 20 ms: this run
/// would take 20 minutes, ten times the limit of [`output`]. On a quiet machine it takes a fifth of a
/// second, long enough for threads to be isolated. Most of the limit is left for machines on which two
/// threads hardly ever run at once.
#[test]
fn threads_that_wait_for_each_others_stores_get_on() {
    let _alone = crate::support::targets::alone();
    let program = crate::support::c_program("ring", &["-O2"]).expect("gcc compiles C");
    for mode in [
        ["detect", "--observer", "isolate"].as_slice(),
        &["protect", "--eager"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(mode).arg("--").arg(&program);
        let seen = output(command.arg("8000000"));
        assert_eq!(status(&seen), Some(0), "{mode:?}: {seen:?}");
        let text = String::from_utf8_lossy(&seen.stdout);
        assert!(text.contains("sum 31999996000000\n"), "{mode:?}: {seen:?}");
        // Its page never became private, which would have put the sum at risk. On a busy machine a
        // thread may be isolated for moments in which it writes nothing.
        let said = text.into_owned() + &String::from_utf8_lossy(&seen.stderr);
        let was_native = ["nobody was isolated", "no two threads", "isolated 0 pages"];
        assert!(
            said.contains("hand data over") || was_native.iter().any(|one| said.contains(one)),
            "{mode:?}: {said}"
        );
    }
}

/// Every row of the table: the output is as natively, nothing is found that the table does not
/// have, and what threads share falsely in code that can be isolated is found.
#[test]
fn every_row_of_the_table_in_isolation() {
    let table = Table::load().expect("the table is well-formed");
    let only = std::env::var("SUNDER_WORKLOAD").unwrap_or_default();
    for workload in table.workloads.iter().filter(|w| w.name.contains(&only)) {
        for variant in Variant::ALL {
            let program = workload.build(variant, &default_out_dir());
            let program = program.unwrap_or_else(|error| panic!("{error}"));
            let what = format!("{} {}", workload.name, variant.name());
            let expected = workload
                .verdict(variant)
                .must_find()
                .find(|e| is_visible(e));
            let mut arguments = workload.arguments();
            // Where nothing is to be found, the output is as right or wrong after half of the time.
            let size = match expected {
                Some(_) => workload.size * 2,
                None => (workload.size / 2).max(1),
            };
            arguments[1] = size.to_string();
            let native = natively(Command::new(&program).args(&arguments));
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("isolate-row.json");
            let run = || -> Result<Findings, String> {
                let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
                let seen = observe(&file, &program, &words);
                assert_eq!(status(&seen), status(&native), "{what}: {seen:?}");
                if workload.deterministic {
                    assert_eq!(seen.stdout, native.stdout, "{what}: {seen:?}");
                }
                let findings = open(&file)?;
                let wrong = falsely_shared(&findings, |f| !is_allowed(workload, variant, f));
                assert!(wrong.is_err(), "{what}: false positive: {wrong:?}");
                Ok(findings)
            };
            let Some(expected) = expected else {
                let _alone = crate::support::targets::alone();
                run().expect("the result was written");
                continue;
            };
            side_by_side(&what, || {
                let mut why = String::new();
                for _ in 0..3 {
                    let findings = run()?;
                    if !works(&findings.limits) {
                        return Ok(());
                    }
                    match falsely_shared(&findings, |f| is_it(f, expected)) {
                        Ok(_) => return Ok(()),
                        // A miss counts only if the threads ran side by side.
                        Err(missed) => {
                            let run = &findings.run;
                            let cpu = run.program_cpu_seconds;
                            if cpu.is_some_and(|cpu| cpu < 1.5 * run.seconds) {
                                return Err(missed);
                            }
                            why = missed;
                        }
                    }
                }
                Err(why)
            });
        }
    }
}

fn is_visible(expected: &Expected) -> bool {
    let truly = expected.sharing.iter().all(|s| s.name() == "true");
    expected.visible_to_writes_only && expected.visible_to_diffs && !truly
}

/// Whether the table has the finding's object in this variant, whatever threads read it.
fn is_allowed(workload: &Workload, variant: Variant, finding: &Finding) -> bool {
    let all = &workload.verdict(variant).findings;
    all.iter().any(|expected| is_it(finding, expected))
}

/// Whether the finding is of the expected object: by its allocation or its name.
fn is_it(finding: &Finding, expected: &Expected) -> bool {
    let objects = || {
        [Some(&finding.object), finding.neighbour.as_ref()]
            .into_iter()
            .flatten()
    };
    let kind = match finding.object.kind {
        ObjectKind::Heap => "heap",
        ObjectKind::Global => "global",
        ObjectKind::Stack => "stack",
        _ => return false,
    };
    if kind != expected.object.name() {
        return false;
    }
    match (&expected.allocation, &expected.name) {
        (Some(at), _) => objects()
            .flat_map(|o| &o.allocation)
            .any(|f| f.line == Some(at.line) && f.function.contains(&at.function)),
        (None, Some(name)) => objects()
            .filter_map(|o| o.name.as_deref())
            .any(|n| n.ends_with(name.as_str())),
        (None, None) => true,
    }
}

/// The same under eager protection, where only the output can be wrong.
#[test]
fn every_workload_is_right_under_eager_protection() {
    let table = Table::load().expect("the table is well-formed");
    let only = std::env::var("SUNDER_WORKLOAD").unwrap_or_default();
    let _alone = crate::support::targets::alone();
    for workload in table.workloads.iter().filter(|w| w.name.contains(&only)) {
        let program = workload.build(Variant::Shared, &default_out_dir());
        let program = program.unwrap_or_else(|error| panic!("{error}"));
        let mut words = workload.arguments();
        words[1] = (workload.size / 2).max(1).to_string();
        let native = natively(Command::new(&program).args(&words));
        for arguments in [&["--every", "1000"][..], &[]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
            command
                .args(["protect", "--eager", "--quiet"])
                .args(arguments);
            command.arg("--").arg(&program).args(&words);
            let seen = output(&command);
            let what = format!("{} {arguments:?}: {seen:?}", workload.name);
            assert_eq!(status(&seen), status(&native), "{what}");
            if workload.deterministic {
                assert_eq!(seen.stdout, native.stdout, "{what}");
            }
        }
    }
}
