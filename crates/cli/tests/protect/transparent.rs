//! `sunder protect`: whatever a program does while its threads are isolated, it does natively too.
//! Judged by output and status, never by time. How often a thread is isolated depends on the
//! machine; one case waits for it.

use crate::support::cases::{self, CASES};
use crate::support::limited::{can_stop_threads, output, status};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use sunder_findings::{Finding, Findings, Line, Object, ObjectKind, Program, ThreadUse, Word};

fn protect(arguments: &[&str], program: &Path, case: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.arg("protect").args(arguments);
    command.args(["--isolate-global", "shared", "--"]);
    output(command.arg(program).arg(case))
}

#[test]
fn programs_do_what_they_do_natively() {
    let _alone = crate::support::targets::alone();
    crate::support::usual_signals();
    let program = cases::program();
    let mut wrong = Vec::new();
    for case in CASES {
        let native = output(Command::new(&program).arg(case));
        for arguments in [&[][..], &["--every", "500"]] {
            let protected = protect(arguments, &program, case);
            if !can_stop_threads(&protected) {
                return;
            }
            if status(&native) != status(&protected) || native.stdout != protected.stdout {
                wrong.push(format!("{case} {arguments:?}: {native:?}\n{protected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The tool itself chooses what to isolate, and most of these programs have nothing to choose.
#[test]
fn programs_that_are_only_watched_do_what_they_do_natively() {
    let _alone = crate::support::targets::alone();
    crate::support::usual_signals();
    let program = cases::program();
    let mut wrong = Vec::new();
    for case in CASES {
        let native = output(Command::new(&program).arg(case));
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["protect", "--quiet", "--"]);
        let watched = output(command.arg(&program).arg(case));
        if status(&native) != status(&watched) || native.stdout != watched.stdout {
            wrong.push(format!("{case}: {native:?}\n{watched:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn threads_are_isolated_and_lose_nothing() {
    let _alone = crate::support::targets::alone();
    let program = cases::program();
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join("protect-report.json");
    let path = report.to_str().expect("our own path");
    let protected = protect(&["--report", path], &program, "until");
    if !can_stop_threads(&protected) {
        return;
    }
    let text = String::from_utf8_lossy(&protected.stdout);
    assert_eq!(text, "1\n1\njoined 0\nright\n", "{protected:?}");
    assert_eq!(protected.status.code(), Some(5));
    let report = std::fs::read_to_string(report).expect("it was written");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert!(
        report["episodes"].as_u64().is_some_and(|n| n > 0),
        "{report}"
    );
    assert!(
        report["committed_bytes"].as_u64().is_some_and(|n| n > 0),
        "{report}"
    );
    let said = String::from_utf8_lossy(&protected.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn what_cannot_be_isolated_runs_natively() {
    let _alone = crate::support::targets::alone();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["protect", "--", "sh", "-c", "echo out; exit 9"]);
    let native = output(&command);
    assert_eq!(native.status.code(), Some(9));
    assert_eq!(native.stdout, b"out\n");
    let said = String::from_utf8_lossy(&native.stderr);
    assert!(said.contains("nobody was isolated: no false"), "{said}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["protect", "--quiet", "--", "no-such-program-here"]);
    assert_eq!(output(&command).status.code(), Some(127));
}

/// The file of the program's memory is as large as all addresses.
#[test]
fn where_files_may_not_be_large_the_program_runs_natively() {
    let _alone = crate::support::targets::alone();
    for (command, told) in [
        ("protect", "the program runs natively"),
        ("cure", "isolated nothing"),
    ] {
        let script =
            format!("ulimit -f 10000000; exec \"$0\" {command} -- sh -c 'echo out; exit 9'");
        let mut shell = Command::new("sh");
        let ran = output(shell.args(["-c", &script, env!("CARGO_BIN_EXE_sunder")]));
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(9), "{said}");
        assert_eq!(ran.stdout, b"out\n");
        let why = format!("{told}: the size of files is limited (`ulimit -f`)");
        assert!(said.contains(&why), "{said}");
    }
}

/// A result with the array that the program's threads count in: each word of it used
/// by the threads that `users` gives.
fn result(name: &str, program: &Path, users: &[&[u32]]) -> PathBuf {
    let words = users.iter().enumerate().map(|(i, threads)| Word {
        offset: i as u32 * 8,
        size: 8,
        threads: threads
            .iter()
            .map(|id| ThreadUse {
                id: *id,
                updates: 100,
                ..ThreadUse::default()
            })
            .collect(),
        ..Word::default()
    });
    let path = program.to_str().expect("our own path").to_owned();
    let findings = Findings {
        program: Program {
            path: Some(path.clone()),
            ..Program::default()
        },
        findings: vec![Finding {
            rank: 1,
            object: Object {
                kind: ObjectKind::Global,
                name: Some("shared".into()),
                module: Some(path),
                ..Object::default()
            },
            lines: vec![Line {
                object_offset: Some(0),
                words: words.collect(),
                ..Line::default()
            }],
            ..Finding::default()
        }],
        ..Findings::default()
    };
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let text = serde_json::to_string(&findings).expect("a result is JSON");
    std::fs::write(&file, text).expect("our own folder");
    file
}

#[test]
fn what_a_result_names_is_isolated_if_each_byte_has_one_thread() {
    let _alone = crate::support::targets::alone();
    let program = std::fs::canonicalize(cases::program()).expect("it was just built");
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join("protect-from.json");
    let run = |users: &[&[u32]], arguments: &[&str], program: &Path| {
        let file = result("protect-result.json", program, users);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command
            .arg("protect")
            .args(arguments)
            .arg("--from")
            .arg(&file);
        command.arg("--report").arg(&report).arg("--");
        output(command.arg(program).arg("until"))
    };
    let own = run(&[&[1], &[1], &[2], &[2]], &[], &program);
    if !can_stop_threads(&own) {
        return;
    }
    assert_eq!(own.stdout, b"1\n1\njoined 0\nright\n", "{own:?}");
    let text = std::fs::read_to_string(&report).expect("it was written");
    let said: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(said["episodes"].as_u64().is_some_and(|n| n > 0), "{said}");
    assert_eq!(said["pages_given_up"], 0, "{said}");

    for (users, arguments) in [
        (&[&[1u32, 2][..], &[2]][..], &[][..]),
        (&[&[1, 2], &[2]], &["--strict"]),
    ] {
        let file = result("protect-refused.json", &program, users);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command
            .arg("protect")
            .args(arguments)
            .arg("--from")
            .arg(&file);
        let native = output(command.arg("--").arg(&program).arg("exit"));
        assert_eq!(native.status.code(), Some(11));
        let said = String::from_utf8_lossy(&native.stderr);
        let why = "some of its bytes are used by several threads";
        assert!(
            said.contains("runs natively") && said.contains(why),
            "{said}"
        );
    }
    // The result is of another program than this.
    let file = result("protect-other.json", &program, &[&[1], &[2]]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.arg("protect").arg("--from").arg(&file);
    let native = output(command.args(["--", "true"]));
    assert!(native.status.success());
    let said = String::from_utf8_lossy(&native.stderr);
    assert!(said.contains("the result is of another program"), "{said}");
}

/// Phoenix's program, whose threads write to one block, without optimisation.
fn regression(name: &str) -> PathBuf {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/programs/linear_regression.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let built = Command::new("gcc")
        .args(["-O0", "-g", "-pthread", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.is_ok_and(|status| status.success()));
    std::fs::canonicalize(program).expect("it was just built")
}

/// From finding to remedy, with an object of the heap.
#[test]
fn what_detect_finds_in_the_heap_is_isolated_and_right() {
    let program = regression("protect-regression");
    let file = program.with_extension("json");
    until_found(40_000_000, |size| {
        let mut detect = crate::support::plain_sunder();
        detect
            .args(["detect", "--quiet", "-o"])
            .arg(&file)
            .arg("--");
        let natural = output(detect.arg(&program).args(["2", size]));
        assert!(natural.status.success(), "{natural:?}");
        let findings = Findings::open(&file).expect("it was written");
        let heap = |f: &Finding| f.object.kind == ObjectKind::Heap && !f.latent;
        if !findings.findings.iter().any(heap) {
            return Err(format!("{findings:?}"));
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["protect", "--from"]).arg(&file).arg("--");
        let protected = output(command.arg(&program).args(["2", size]));
        assert_eq!(protected.stdout, natural.stdout, "{protected:?}");
        assert!(protected.status.success(), "{protected:?}");
        Ok(())
    });
}

/// A program that another one executes in its place gets the library too, unless it is linked
/// statically or `--isolate-global` names an object of the first program. A notice then says so.
#[test]
fn a_program_that_executes_another_is_told_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let [source, alone] = ["alone.c", "alone"].map(|name| folder.path().join(name));
    std::fs::write(&source, "#include <unistd.h>\nint main() { sleep(1); }\n").expect("written");
    let built = Command::new("gcc")
        .args(["-static", "-o"])
        .args([&alone, &source])
        .status();
    assert!(built.is_ok_and(|status| status.success()));
    for (arguments, program, is_told) in [
        (&[][..], Path::new("sleep"), false),
        (&[], &alone, true),
        (&["--isolate-global", "shared"], Path::new("sleep"), true),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.arg("protect").args(arguments);
        let seen = output(command.args(["--", "env", "A=1"]).arg(program).arg("1"));
        assert!(seen.status.success(), "{seen:?}");
        if !can_stop_threads(&seen) {
            return;
        }
        let said = String::from_utf8_lossy(&seen.stderr);
        let told = said.contains("has executed another one");
        assert_eq!(told, is_told, "{program:?}: {said}");
    }
}

/// A program that only starts others must not be taken for one without false sharing.
#[test]
fn other_processes_are_told_of() {
    for command in ["protect", "repair"] {
        let mut sunder = Command::new(env!("CARGO_BIN_EXE_sunder"));
        sunder.args([command, "--", "sh", "-c", "/bin/sleep 0.1; true"]);
        let seen = output(&sunder);
        assert!(seen.status.success(), "{seen:?}");
        let said = String::from_utf8_lossy(&seen.stderr);
        let told = said.contains("processes that the program started were left alone");
        assert!(told, "{command}: {said}");
    }
}

/// Runs the workload at this size and then for longer and longer, in turn with the machine's other
/// work, until something is found; `run` says what there was instead. That takes threads that run side
/// by side: a test whose threads never did prints `SKIP:`; one whose threads did and that found nothing,
/// in the longest run either, fails.
fn until_found(size: u64, mut run: impl FnMut(&str) -> Result<(), String>) {
    let _alone = crate::support::targets::alone();
    let _first = crate::support::targets::before_others();
    crate::support::skips::begun();
    let mut missed = None;
    for times in [1, 1, 2, 2, 4] {
        let size = (times * size).to_string();
        let (found, together) = crate::support::targets::has_two_cpus(|| run(&size));
        let Err(instead) = found else { return };
        let (felt, told) = crate::support::contention::is_felt();
        missed = (together && felt).then(|| format!("{instead}; {told}"));
    }
    if let Some(instead) = missed {
        panic!("threads ran side by side, and nothing was found: {instead}");
    }
    crate::support::skips::too_busy();
    println!("SKIP: the threads never ran side by side, so that nothing was found");
}

/// The same without a saved result: the object is found and isolated in one run.
#[test]
fn what_is_shared_falsely_is_isolated_in_the_middle_of_the_run() {
    found_and_isolated("protect-watched", "auto", &[], 200_000_000);
}

/// The same for a program that another one executes in its place, forked or not.
#[test]
fn what_another_program_executes_is_isolated() {
    let script = "/bin/true; exec nice -n 0 \"$@\"";
    let by = ["env", "A=1", "sh", "-c", script, "sh"];
    found_and_isolated("protect-executed", "auto", &by, 200_000_000);
}

/// Where perf is refused, timers in the program take the samples. They must not count as timers of
/// the program's own.
#[test]
fn samples_of_timers_do() {
    found_and_isolated("protect-timed", "timer", &[], 400_000_000);
}

fn found_if(holds: bool, instead: &Output) -> Result<(), String> {
    holds.then_some(()).ok_or_else(|| format!("{instead:?}"))
}

fn found_and_isolated(name: &str, observer: &str, by: &[&str], size: u64) {
    let program = regression(name);
    let report = program.with_extension("json");
    until_found(size, |size| {
        let natural = output(Command::new(&program).args(["2", size]));
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["protect", "--observer", observer, "--report"]);
        command.arg(&report).arg("--").args(by);
        let protected = output(command.arg(&program).args(["2", size]));
        assert_eq!(protected.stdout, natural.stdout, "{protected:?}");
        assert!(protected.status.success(), "{protected:?}");
        if !can_stop_threads(&protected) {
            return Ok(());
        }
        let text = std::fs::read_to_string(&report).expect("it was written");
        let said: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let isolated = said["episodes"].as_u64().is_some_and(|n| n > 0);
        if isolated {
            // The threads' arguments lie in one block.
            assert_eq!(said["objects"][0]["bytes"], 128, "{said}");
            assert!(said["committed_bytes"].as_u64() > Some(0), "{said}");
            assert_eq!(said["pages_given_up"], 0, "{said}");
        }
        found_if(isolated, &protected)
    });
}

fn blocks() -> PathBuf {
    let program = crate::support::c_program("protect_blocks", &[]).expect("it compiles");
    std::fs::canonicalize(program).expect("it was just built")
}

/// A freed block is no longer isolated, and a new block at its address is judged anew.
#[test]
fn blocks_that_come_and_go_lose_nothing() {
    let program = blocks();
    let report = program.with_extension("json");
    until_found(100_000_000, |size| {
        let natural = output(Command::new(&program).args(["3", size]));
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["protect", "--report"]).arg(&report).arg("--");
        let protected = output(command.arg(&program).args(["3", size]));
        assert_eq!(protected.stdout, natural.stdout, "{protected:?}");
        assert!(protected.status.success(), "{protected:?}");
        let text = std::fs::read_to_string(&report).expect("it was written");
        let said: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        // Isolated twice: the second time after it was freed.
        let twice = said["objects"].as_array().is_some_and(|all| all.len() > 1);
        if twice {
            let own =
                |object: &serde_json::Value| object["bytes"].as_u64().is_some_and(|n| n % 64 == 32);
            let objects = said["objects"].as_array().expect("it is one");
            assert!(objects.iter().all(own), "only the threads' own: {said}");
        }
        found_if(twice || !can_stop_threads(&protected), &protected)
    });
}

/// A block that a wrapper allocates is not known by a call of the program's own. It is found again
/// by watching its address.
#[test]
fn a_result_with_wrapped_allocations_is_not_refused() {
    let program = blocks();
    let saved = program.with_extension("saved.json");
    let path = program.to_str().expect("our own path").to_owned();
    let frame = |function: &str, offset: &str| sunder_findings::Frame {
        function: function.into(),
        module: Some(path.clone()),
        offset: Some(offset.parse().expect("an address")),
        ..sunder_findings::Frame::default()
    };
    let file = result("protect-wrapped.json", &program, &[&[1], &[2]]);
    let mut findings = Findings::open(&file).expect("just written");
    let object = &mut findings.findings[0].object;
    object.kind = ObjectKind::Heap;
    object.allocation = vec![frame("checked_malloc", "0x10"), frame("main", "0x20")];
    let text = serde_json::to_string(&findings).expect("a result is JSON");
    std::fs::write(&saved, text).expect("our own folder");
    let _alone = crate::support::targets::alone();
    let natural = output(Command::new(&program).args(["1", "50000000"]));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["protect", "--from"]).arg(&saved).arg("--");
    let protected = output(command.arg(&program).args(["1", "50000000"]));
    assert_eq!(protected.stdout, natural.stdout, "{protected:?}");
    let said = String::from_utf8_lossy(&protected.stderr);
    assert!(!said.contains("runs natively"), "{said}");
}

/// A process that the program makes by a system call of its own would share the sharable memory.
#[test]
fn a_program_with_kernel_calls_of_its_own_runs_natively() {
    let program = crate::support::c_program("own_calls", &[]).expect("it compiles");
    let protected = protect(&["--every", "500"], &program, "");
    let said = String::from_utf8_lossy(&protected.stderr);
    let output = String::from_utf8_lossy(&protected.stdout);
    assert_eq!(output, "40000000 40000000, child 3\n", "{said}");
    assert!(!said.contains("isolated 1"), "{said}");
    if can_stop_threads(&protected) && !said.contains("computed there for long") {
        assert!(said.contains("makes kernel calls of its own"), "{said}");
    }
}
