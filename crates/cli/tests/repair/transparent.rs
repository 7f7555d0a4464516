//! `sunder repair`: whatever it moves, refuses or puts back, the program's output and status are
//! those of the program alone. Judged by the result, never by time.

use crate::support::repaired::{
    MOST_BUSY_RUNS, Run, arguments, before_others, repaired, repaired_without_ptrace,
    repaired_without_random_addresses, report, strings, until_moved, workload,
};
use crate::support::{c_program, plain_sunder, targets};
use std::process::Command;
use sunder_findings::{Finding, Findings, ObjectKind, Sharing, examples};
use sunder_workloads::{Table, Variant, default_out_dir};

/// The output of a command line without Sunder.
fn output(arguments: &[String]) -> Vec<u8> {
    let mut native = Command::new(&arguments[0]);
    native
        .args(&arguments[1..])
        .output()
        .expect("it runs")
        .stdout
}

#[test]
fn every_workload_has_its_output() {
    let _alone = targets::alone();
    let table = Table::load().expect("the table is well-formed");
    let only = std::env::var("SUNDER_WORKLOAD").unwrap_or_default();
    let mut wrong = Vec::new();
    for workload in table.workloads.iter().filter(|w| w.name.contains(&only)) {
        let program = workload
            .build(Variant::Shared, &default_out_dir())
            .expect("it compiles");
        let arguments: Vec<String> = arguments(&program, workload, workload.size);
        let native = Command::new(&program)
            .args(&arguments[1..])
            .output()
            .expect("it runs");
        let run = repaired(&workload.name, &[], &strings(&arguments));
        println!("{}: {}", workload.name, run.stderr.trim());
        let same = !workload.deterministic || run.stdout == native.stdout;
        if !same || run.status != native.status.code() {
            wrong.push(format!("{} ({:?})", workload.name, run.status));
        }
    }
    assert!(
        wrong.is_empty(),
        "not as without us: {wrong:?}; rerun one with SUNDER_WORKLOAD=name cargo test -p sunder-cli \
         --test repair transparent::"
    );
}

/// The first example of the Plastic paper: each thread's sums, reached through a pointer that never
/// changes.
#[test]
fn linear_regression_is_taken_apart_without_guards() {
    let _alone = targets::alone();
    let table = Table::load().expect("the table is well-formed");
    let mut all = table.workloads.iter();
    let workload = all.find(|w| w.name == "linear_regression").expect("a row");
    let program = workload
        .build(Variant::Shared, &default_out_dir())
        .expect("it compiles");
    let run = until_moved("linear_regression", true, |times| {
        let arguments = arguments(&program, workload, times * workload.size);
        let run = repaired("taken-apart", &[], &strings(&arguments));
        assert_eq!(run.stdout, output(&arguments));
        assert_eq!(run.status, Some(0));
        run
    });
    let Some(run) = run else { return };
    let repair = run.repair();
    let [moved] = &repair.moved[..] else {
        panic!("one object is moved: {repair:#?}");
    };
    assert_eq!(moved.groups.len(), 2, "{moved:#?}");
    let owners: Vec<_> = moved.groups.iter().map(|g| g.threads.len()).collect();
    assert_eq!(owners, [1, 1]);
    let loops: Vec<_> = moved.code.iter().filter(|c| c.loops > 0).collect();
    assert!(loops.iter().any(|c| c.direct > 0), "{moved:#?}");
    // Each thread enters the loop a few times; the other faults are those of the end, where the
    // sums are read and printed.
    assert!(moved.faults < 200, "{moved:#?}");
    assert!(run.stderr.contains("moved 2 groups"), "{}", run.stderr);
}

#[test]
fn a_dry_run_only_says_what_would_be_moved() {
    let _alone = targets::alone();
    let table = Table::load().expect("the table is well-formed");
    let mut all = table.workloads.iter();
    let workload = all.find(|w| w.name == "linear_regression").expect("a row");
    let program = workload
        .build(Variant::Shared, &default_out_dir())
        .expect("it compiles");
    let run = until_moved("linear_regression", true, |times| {
        let arguments = arguments(&program, workload, times * workload.size);
        let run = repaired("dry", &["--dry-run"], &strings(&arguments));
        assert_eq!(run.status, Some(0));
        run
    });
    let Some(run) = run else { return };
    let repair = run.repair();
    assert!(repair.dry_run);
    let moved = repair.moved.first().expect("the object would be moved");
    assert_eq!(moved.faults, 0);
    assert!(moved.groups.iter().all(|g| g.to.is_none()), "{moved:#?}");
    assert!(run.stderr.contains("would have moved"), "{}", run.stderr);
}

/// A saved result of the same program names what is to be moved.
#[test]
fn objects_of_a_saved_result_are_recognised_in_another_run() {
    let _alone = targets::alone();
    let workload = targets::workload("linear_regression");
    let program = targets::build("linear_regression", Variant::Shared);
    let times = |times: u64| arguments(&program, &workload, times * workload.size);
    let saved = report("saved");
    let found = [2, 4, 4, 8, 16].into_iter().any(|n| {
        let _ = std::fs::remove_file(&saved);
        let mut command = plain_sunder();
        before_others(&mut command);
        let options = ["detect", "--quiet", "--format", "json", "-o"];
        command.args(options).arg(&saved).arg("--").args(times(n));
        assert!(command.output().expect("sunder starts").status.success());
        let is_it = |f: &Finding| {
            f.object.kind == ObjectKind::Heap && !f.latent && f.sharing != Sharing::True
        };
        Findings::open(&saved).is_ok_and(|f| f.findings.iter().any(is_it))
    });
    if !found {
        println!("SKIP: its threads did not run side by side");
        return;
    }
    let from = ["--from", saved.to_str().expect("our own path")];
    let run = until_moved("linear_regression", true, |n| {
        let run = repaired("from", &from, &strings(&times(n)));
        assert_eq!(run.stdout, output(&times(n)));
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        run
    });
    let Some(run) = run else { return };
    let repair = run.repair();
    let [moved] = &repair.moved[..] else {
        panic!("the object is moved: {repair:#?}");
    };
    assert_eq!(moved.groups.len(), 2, "{moved:#?}");
    assert!(repair.refused.is_empty(), "{repair:#?}");
}

/// A saved result of another program does no harm, and a notice says so.
#[test]
fn objects_that_are_not_met_are_told() {
    let saved = report("of-another");
    let other = examples::result(vec![examples::global_array(), examples::no_debug_info()]);
    std::fs::write(&saved, other.to_json().expect("finite")).expect("it can be written");
    let from = ["--from", saved.to_str().expect("our own path")];
    let run = repaired("not-met", &from, &["sh", "-c", "echo out; exit 3"]);
    assert_eq!(run.status, Some(3));
    assert_eq!(run.stdout, b"out\n");
    let said = "the saved result is of another program";
    assert_eq!(run.stderr.matches(said).count(), 1, "{}", run.stderr);
    let refused = &run.repair().refused;
    assert!(refused.is_empty(), "{refused:#?}");
    let none = repaired("no-file", &["--from", "/does/not/exist"], &["true"]);
    assert_eq!(none.findings, None);
    assert!(none.stderr.contains("/does/not/exist"), "{}", none.stderr);
}

#[test]
fn the_programs_status_streams_and_environment_are_its_own() {
    let run = repaired(
        "own",
        &["--quiet"],
        &[
            "sh",
            "-c",
            "echo out; echo err >&2; env | grep -c -e ^SUNDER_REMAP= -e ^SUNDER_SEGMENT= -e ^LD_PRELOAD=; exit 7",
        ],
    );
    assert_eq!(run.status, Some(7));
    assert_eq!(run.stdout, b"out\n0\n");
    assert_eq!(run.stderr, "err\n");
}

/// Libraries then lie right below the first thread's stack, and other memory of ours below them.
#[test]
fn there_is_room_also_without_randomisation() {
    let _alone = targets::alone();
    until_moved("without randomisation", true, |times| {
        let (words, native) = workload("linear_regression", 2, times);
        let run = repaired_without_random_addresses("not-random", &strings(&words));
        assert_eq!(run.stdout, native, "{}", run.stderr);
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        assert_eq!(run.repair().hindrance, None, "{}", run.stderr);
        run
    });
}

#[test]
fn a_program_that_dies_by_a_fault_dies_by_it() {
    let run = repaired("dies", &["--quiet"], &["sh", "-c", "kill -SEGV $$"]);
    assert_eq!(run.status, Some(128 + libc::SIGSEGV));
}

/// A debugger or a core file finds the bytes of a dead program where they were: they go back before
/// a fault, `abort` or another signal of its own ends it.
#[test]
fn what_was_moved_is_back_when_the_program_dies() {
    let _alone = targets::alone();
    let program = c_program("dies", &[]).expect("it compiles");
    let program = program.to_str().expect("our own path");
    for (how, signal) in [
        ("fault", libc::SIGSEGV),
        ("abort", libc::SIGABRT),
        ("kill", libc::SIGQUIT),
        ("syscall", libc::SIGTRAP),
    ] {
        let run = repaired("dies-moved", &[], &[program, how]);
        if run.stdout == b"not moved\n" {
            println!("SKIP: its threads did not contend");
            return;
        }
        assert_eq!(run.status, Some(128 + signal), "{how}: {}", run.stderr);
        let moved = run.repair().moved.last().expect("the program saw the move");
        let back = moved.rolled_back.as_ref().expect("the bytes are back");
        assert_eq!(
            back.reason, "a fault or a signal came that ends a program",
            "{how}: {moved:#?}"
        );
    }
}

/// The signal that asks a program to move bytes would kill a program without our library.
#[test]
fn a_program_that_becomes_another_lives_on() {
    let _alone = targets::alone();
    let workload = targets::workload("linear_regression");
    let program = targets::build("linear_regression", Variant::Shared);
    let arguments = arguments(&program, &workload, workload.size);
    let native = Command::new(&program)
        .args(&arguments[1..])
        .output()
        .expect("it runs");
    let mut all = vec!["sh", "-c", "exec \"$@\"", "sh"];
    all.extend(strings(&arguments));
    let run = repaired("exec", &[], &all);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_eq!(run.stdout, native.stdout);
    let run = repaired_without_ptrace("exec-preloaded", &[], &all);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_eq!(run.stdout, native.stdout);
    assert!(run.repair().moved.is_empty());
}

/// Bytes that went back for a system call are moved again after it, and again the program does not
/// notice. How often depends on how its threads run.
#[test]
fn what_had_to_go_back_is_moved_again() {
    let _alone = targets::alone();
    let program = c_program("needed_back", &[]).expect("it compiles");
    let program = program.to_str().expect("our own path");
    for _ in 0..MOST_BUSY_RUNS / 2 {
        let run = repaired("again", &[], &[program]);
        assert_eq!(
            run.stdout, b"300000000 300000000 wrong 0\n",
            "{}",
            run.stderr
        );
        assert_eq!(run.status, Some(0));
        let again = run.repair().moved.iter().find(|m| m.moves.len() > 1);
        let Some(moved) = again else { continue };
        let before = &moved.moves[..moved.moves.len() - 1];
        assert!(before.iter().all(|m| m.rolled_back.is_some()), "{moved:#?}");
        let times: Vec<f64> = moved.moves.iter().map(|m| m.at_seconds).collect();
        assert!(times.is_sorted(), "{times:?}");
        let faults: u64 = moved.moves.iter().map(|m| m.faults).sum();
        assert!(faults <= moved.faults, "{moved:#?}");
        return;
    }
    println!("SKIP: its threads did not contend after bytes had gone back");
}

/// A thread that is asked to move bytes may already wait in the kernel, and does not see the
/// request. The tool then sends the program a signal, which would kill it without the library.
#[test]
fn no_wait_ends_because_a_thread_was_asked_to_move_bytes() {
    let program = c_program("bells", &[]).expect("it compiles");
    let program = program.to_str().expect("our own path");
    let run = repaired_without_ptrace("bells", &[], &[program]);
    let told = String::from_utf8_lossy(&run.stdout);
    assert_eq!(run.status, Some(0), "{told}{}", run.stderr);
    assert_eq!(told.lines().count(), 8, "{told}");
}

/// The program's own faults, children, and system calls with pointers to moved bytes.
#[test]
fn faults_forks_and_kernel_calls_of_the_program_are_what_they_were() {
    let _alone = targets::alone();
    let program = c_program("own_faults", &[]).expect("it compiles");
    let program = program.to_str().expect("our own path");
    for (by, options) in [
        (repaired as fn(&str, &[&str], &[&str]) -> Run, &[][..]),
        (repaired, &["--chaos", "7"]),
        (repaired_without_ptrace, &["--chaos", "8"]),
    ] {
        let run = by("own-faults", options, &[program]);
        assert_eq!(
            String::from_utf8_lossy(&run.stdout),
            "60000000 60000000 faults 40 wrong 0\n",
            "{options:?}: {}",
            run.stderr
        );
        assert_eq!(run.status, Some(0));
    }
}

#[test]
fn no_program_notices_that_random_pages_are_moved() {
    let _alone = targets::alone();
    let table = Table::load().expect("the table is well-formed");
    for name in [
        "linear_regression",
        "kmeans",
        "reverse_index",
        "string_match",
    ] {
        let workload = table.workloads.iter().find(|w| w.name == name);
        let workload = workload.expect("a row");
        let program = workload
            .build(Variant::Shared, &default_out_dir())
            .expect("it compiles");
        let arguments = arguments(&program, workload, workload.size);
        let native = Command::new(&program)
            .args(&arguments[1..])
            .output()
            .expect("it runs");
        for seed in ["1", "2"] {
            let run = repaired("chaos", &["--chaos", seed], &strings(&arguments));
            assert_eq!(run.stdout, native.stdout, "{name} {seed}: {}", run.stderr);
            assert_eq!(run.status, Some(0), "{name} {seed}: {}", run.stderr);
        }
    }
}
