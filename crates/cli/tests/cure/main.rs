//! `sunder cure`: the remedy that fits is found, and output, status and streams are those of the
//! program alone.

#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::process::{Command, Output};
use sunder_findings::Findings;
use sunder_workloads::{Table, Variant, Workload, default_out_dir};
use support::natively::natively;
use support::{limited, plain_sunder, skips, targets};

/// The falsely sharing variant and its arguments, which make it run `times` as long as in the table.
fn longer(workload: &Workload, times: u64) -> (String, Vec<String>) {
    let program = workload
        .build(Variant::Shared, &default_out_dir())
        .expect("it compiles");
    let mut arguments = workload.arguments();
    let size = &mut arguments[1];
    let longer = times * size.parse::<u64>().expect("a number");
    *size = longer.to_string();
    let program = program.to_str().expect("our own path").to_owned();
    (program, arguments.to_vec())
}

/// Runs the program with these options, and looks at output and status.
fn cured(options: &[&str], save: &Path, program: &str, arguments: &[String]) -> (Findings, String) {
    let native = natively(Command::new(program).args(arguments));
    let mut command = plain_sunder();
    command.arg("cure").args(options).arg("--save").arg(save);
    command.arg("--").arg(program).args(arguments);
    let Output {
        status,
        stdout,
        stderr,
    } = limited::output(&command);
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status, native.status, "{said}");
    assert_eq!(stdout, native.stdout, "{said}");
    let findings = targets::open(save).expect("the result was written");
    (findings, said)
}

/// The objects that were isolated.
fn isolated(findings: &Findings) -> Vec<&str> {
    let cure = findings.cure.as_ref().expect("a result of `cure`");
    cure.isolated
        .iter()
        .map(|one| one.object.as_str())
        .collect()
}

/// Atomic numbers can't be isolated, and are moved.
#[test]
fn atomic_data_are_moved() {
    let folder = tempfile::tempdir().expect("a folder");
    let save = folder.path().join("plan.json");
    let (program, arguments) = longer(&targets::workload("atomic_counters"), 4);
    targets::side_by_side("atomic counters", || {
        let (findings, said) = cured(&[], &save, &program, &arguments);
        assert!(isolated(&findings).is_empty(), "{said}");
        let repair = findings.repair.as_ref().expect("a result of `cure`");
        if !repair.moved.iter().any(|moved| moved.object == "counters") {
            return Err(format!("nothing was moved: {said}"));
        }
        assert!(said.contains("moved 2 groups of `counters`"), "{said}");
        Ok(())
    });
}

/// Each execution of an interpreter's instruction goes to another place, so that copies of its code
/// do not help. It is moved first and isolated then. The plan spares it the first.
#[test]
fn what_cannot_stay_moved_is_isolated_and_the_plan_remembers() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = folder.path().join("plan.json");
    let followed = folder.path().join("followed.json");
    let (program, arguments) = longer(&targets::workload("bytecode"), 4);
    let mut is_planned = false;
    targets::side_by_side("an interpreter", || {
        let (findings, said) = cured(&[], &plan, &program, &arguments);
        if isolated(&findings).is_empty() {
            return Err(format!("nothing was isolated: {said}"));
        }
        assert_eq!(isolated(&findings), ["machines"], "{said}");
        assert!(said.contains("isolated `machines`"), "{said}");
        is_planned = true;
        let cure = findings.cure.as_ref().expect("a result of `cure`");
        // Only perf reads the threads' registers.
        if findings.run.observer != "perf" {
            println!("SKIP: what isolating gains is not measured without perf");
            return Ok(());
        }
        let Some(progress) = &cure.isolated[0].progress else {
            return Err(format!("what it gained was not measured: {said}"));
        };
        let told = format!("got on {:.2} times as fast as before", progress.gain);
        assert!(said.contains(&told), "{told}: {said}");
        // Alone on their lines, the threads are several times as fast.
        if progress.gain < 1.2 {
            return Err(format!("nothing was gained: {said}"));
        }
        Ok(())
    });
    if !is_planned {
        return;
    }
    let options = ["--plan", plan.to_str().expect("our own path")];
    targets::side_by_side("an interpreter with a plan", || {
        let (findings, said) = cured(&options, &followed, &program, &arguments);
        let repair = findings.repair.as_ref().expect("a result of `cure`");
        assert!(repair.moved.is_empty(), "{said}");
        if isolated(&findings).is_empty() {
            return Err(format!("nothing was isolated: {said}"));
        }
        assert!(said.contains("the plan says to isolate it"), "{said}");
        Ok(())
    });
}

/// Nodes of two lists lie one beside the other: moved, they would be many pieces, which the code would have
/// to tell apart at each access. Each word is one thread's, so they are isolated at once.
#[test]
fn what_would_fall_into_many_pieces_is_isolated_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let save = folder.path().join("result.json");
    let (program, arguments) = longer(&targets::workload("timer_lists"), 4);
    targets::side_by_side("many pieces", || {
        let (findings, said) = cured(&[], &save, &program, &arguments);
        if isolated(&findings).is_empty() {
            return Err(format!("nothing was isolated: {said}"));
        }
        let repair = findings.repair.as_ref().expect("a result of `cure`");
        if !repair.moved.is_empty() {
            return Err(format!(
                "few of its pieces were seen before it was moved: {said}"
            ));
        }
        let pieces = |why: &str| why.starts_with("it would fall into ") && why.ends_with(" pieces");
        assert!(
            repair.refused.iter().any(|one| pieces(&one.reason)),
            "{said}"
        );
        assert!(said.contains("did not move "), "{said}");
        Ok(())
    });
}

/// Small objects of two threads come and go, and some of both lie on one line. Once that was seen, new
/// ones get lines of their own; with the plan the first ones do.
#[test]
fn what_comes_and_goes_is_placed_and_the_plan_remembers() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/comes_and_goes.cpp");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("comes_and_goes");
    let mut compiler = Command::new("g++");
    compiler.args(["-O2", "-g", "-pthread"]).arg(source);
    support::built::once(&program, &mut compiler).expect("it compiles");
    let folder = tempfile::tempdir().expect("a folder");
    let plan = folder.path().join("plan.json");
    let run = |options: &[&str], save: &Path, rounds: &str| {
        let mut command = plain_sunder();
        command.arg("cure").args(options).arg("--save").arg(save);
        let output = limited::output(command.arg("--").arg(&program).arg(rounds));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        (String::from_utf8_lossy(&output.stdout).into_owned(), said)
    };
    let mut is_planned = false;
    targets::side_by_side("objects that come and go", || {
        let (out, said) = run(&[], &plan, "30");
        let findings = targets::open(&plan).expect("the result was written");
        if out != "apart\n" {
            return Err(format!("nothing was placed: {said}"));
        }
        assert!(
            said.contains("gave each new `Tally` that is allocated at"),
            "{said}"
        );
        let cure = findings.cure.expect("a result of `cure`");
        assert!(!cure.placed.is_empty(), "{said}");
        assert!(
            cure.placed.iter().all(|one| one.from_seconds > 0.0),
            "{said}"
        );
        is_planned = true;
        Ok(())
    });
    if !is_planned {
        return;
    }
    let options = ["--plan", plan.to_str().expect("our own path")];
    let followed = folder.path().join("followed.json");
    let (out, said) = run(&options, &followed, "1");
    assert_eq!(out, "apart\n", "{said}");
    assert!(
        said.contains("cache lines of its own from the start, as the plan says"),
        "{said}"
    );
    // What was followed is a plan again.
    let options = ["--plan", followed.to_str().expect("our own path")];
    let (out, said) = run(&options, &plan, "1");
    assert_eq!(out, "apart\n", "{said}");
    // The plan of another program has nothing that this one allocates.
    let mut other = plain_sunder();
    other
        .args(["cure", "--plan"])
        .arg(&followed)
        .args(["--", "echo", "ran"]);
    let other = limited::output(&other);
    assert_eq!(String::from_utf8_lossy(&other.stdout), "ran\n");
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(said.contains("no such block was allocated since"), "{said}");
}

#[test]
fn every_workload_has_its_output() {
    let _alone = targets::alone();
    let folder = tempfile::tempdir().expect("a folder");
    let save = folder.path().join("result.json");
    let table = Table::load().expect("the table is well-formed");
    let only = std::env::var("SUNDER_WORKLOAD").unwrap_or_default();
    let mut wrong = Vec::new();
    for workload in table.workloads.iter().filter(|w| w.name.contains(&only)) {
        let (program, arguments) = longer(workload, 1);
        let native = natively(Command::new(&program).args(&arguments));
        let mut command = plain_sunder();
        command.args(["cure", "--save"]).arg(&save).arg("--");
        let cured = limited::output(command.arg(&program).args(&arguments));
        let said = String::from_utf8_lossy(&cured.stderr);
        println!("{}: {}", workload.name, said.trim());
        let same = !workload.deterministic || cured.stdout == native.stdout;
        if !same || cured.status != native.status {
            wrong.push(format!("{} ({:?}): {said}", workload.name, cured.status));
        }
    }
    assert!(
        wrong.is_empty(),
        "not as without us: {wrong:#?}; rerun one with SUNDER_WORKLOAD=name cargo test -p \
         sunder-cli --test cure"
    );
}

/// A program may end before anything is decided. It is not said to have no false sharing if its
/// result has much of it.
#[test]
fn what_was_seen_too_late_is_told() {
    /// Percent of its threads' time.
    const MUCH: f64 = 10.0;
    let folder = tempfile::tempdir().expect("a folder");
    let save = folder.path().join("plan.json");
    let (program, whole) = longer(&targets::workload("atomic_counters"), 1);
    let mut any = false;
    skips::begun();
    for part in [24, 12, 6, 4, 3, 2, 1] {
        let mut arguments = whole.clone();
        let size: u64 = arguments[1].parse().expect("a number");
        arguments[1] = (size / part).to_string();
        let (findings, said) = cured(&[], &save, &program, &arguments);
        println!("1/{part}: {}", said.trim());
        let nothing = said.contains("nothing to cure: ");
        // What costs hardly anything is not worth a move.
        let much = findings.significant(MUCH).next().is_some();
        assert!(!(much && nothing), "{said}");
        assert!(nothing || !findings.findings.is_empty(), "{said}");
        any |= much;
    }
    if !any {
        skips::too_busy();
        println!("SKIP: its threads did not run side by side");
    }
}

#[test]
fn streams_and_status_are_the_programs() {
    let mut command = plain_sunder();
    command.args(["cure", "--", "sh", "-c", "echo out; echo err >&2; exit 9"]);
    let output = limited::output(&command);
    assert_eq!(output.status.code(), Some(9));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "out\n");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.starts_with("err\n"), "{said}");
    assert!(said.contains("nothing to cure: "), "{said}");
}

#[test]
fn a_static_program_runs_natively_and_it_is_said() {
    let Some(program) = support::c_program("static", &["-static"]) else {
        return;
    };
    let mut command = plain_sunder();
    command.args(["cure", "--"]).arg(&program);
    let output = limited::output(&command);
    let native = limited::output(&Command::new(&program));
    assert_eq!(output.status, native.status);
    assert_eq!(output.stdout, native.stdout);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("the program ran natively: "), "{said}");
}

#[test]
fn a_plan_that_is_none_is_told_before_the_program_runs() {
    let mut command = plain_sunder();
    command.args(["cure", "--plan", "/dev/null", "--", "echo", "ran"]);
    let output = limited::output(&command);
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("/dev/null"), "{said}");
}
