//! `sunder protect`: whatever a program does while its threads are isolated, it does as
//! it would natively. Judged by output and status, never by time; how often somebody was
//! isolated is up to the machine, but for one case that waits for it.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use sunder_findings::{Finding, Findings, Line, Object, ObjectKind, Program, ThreadUse, Word};

const CASES: [&str; 22] = [
    "plain",
    "locks",
    "hand",
    "exits",
    "cancel",
    "async",
    "signal",
    "process-signal",
    "jump",
    "sleepers",
    "pause",
    "malloc",
    "fork",
    "exec",
    "crash",
    "abort",
    "exit",
    "spawn",
    "faults",
    "prints",
    "fpu",
    "threads",
];

fn program() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/protect.c");
    let program = folder.join("protect");
    let aside = folder.join(format!("protect.{:?}", std::thread::current().id()));
    let compiled = Command::new("gcc")
        .args(["-O1", "-g", "-w", "-pthread", "-o"])
        .arg(&aside)
        .arg(&source)
        .status()
        .expect("gcc is needed, as the README says");
    assert!(compiled.success(), "it compiles");
    std::fs::rename(&aside, &program).expect("same folder");
    program
}

/// Runs a command with a limit that only a hang reaches.
fn output(command: &mut Command) -> Output {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(ToOwned::to_owned)
        .collect();
    Command::new("timeout")
        .args(["-s", "KILL", "120"])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("timeout runs")
}

fn protect(arguments: &[&str], program: &Path, case: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.arg("protect").args(arguments);
    command.args(["--isolate-global", "shared", "--"]);
    output(command.arg(program).arg(case))
}

/// Whether threads can be stopped here; says so if not.
fn works(output: &Output) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    let refused = said.contains("can't be stopped");
    if refused {
        println!("SKIP: {said}");
    }
    !refused
}

#[test]
fn programs_do_what_they_do_natively() {
    let _alone = support::targets::alone();
    support::usual_signals();
    let program = program();
    let mut wrong = Vec::new();
    for case in CASES {
        let native = output(Command::new(&program).arg(case));
        for arguments in [&[][..], &["--every", "500"]] {
            let protected = protect(arguments, &program, case);
            if !works(&protected) {
                return;
            }
            // A shell's number stands for a death by signal.
            let status = |o: &Output| {
                use std::os::unix::process::ExitStatusExt;
                o.status.code().or(o.status.signal().map(|s| 128 + s))
            };
            if status(&native) != status(&protected) || native.stdout != protected.stdout {
                wrong.push(format!("{case} {arguments:?}: {native:?}\n{protected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Nobody says beforehand what is to be isolated, and most of these have nothing.
#[test]
fn programs_that_are_only_watched_do_what_they_do_natively() {
    let _alone = support::targets::alone();
    support::usual_signals();
    let program = program();
    let mut wrong = Vec::new();
    for case in CASES {
        let native = output(Command::new(&program).arg(case));
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["protect", "--quiet", "--"]);
        let watched = output(command.arg(&program).arg(case));
        use std::os::unix::process::ExitStatusExt;
        let status = |o: &Output| o.status.code().or(o.status.signal().map(|s| 128 + s));
        if status(&native) != status(&watched) || native.stdout != watched.stdout {
            wrong.push(format!("{case}: {native:?}\n{watched:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn threads_are_isolated_and_lose_nothing() {
    let _alone = support::targets::alone();
    let program = program();
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join("protect-report.json");
    let path = report.to_str().expect("our own path");
    let protected = protect(&["--report", path], &program, "until");
    if !works(&protected) {
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
    let _alone = support::targets::alone();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["protect", "--", "sh", "-c", "echo out; exit 9"]);
    let native = output(&mut command);
    assert_eq!(native.status.code(), Some(9));
    assert_eq!(native.stdout, b"out\n");
    let said = String::from_utf8_lossy(&native.stderr);
    assert!(said.contains("nobody was isolated: no false"), "{said}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["protect", "--quiet", "--", "no-such-program-here"]);
    assert_eq!(output(&mut command).status.code(), Some(127));
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
    let _alone = support::targets::alone();
    let program = std::fs::canonicalize(program()).expect("it was just built");
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
    if !works(&own) {
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
    // Another program than the result's.
    let file = result("protect-other.json", &program, &[&[1], &[2]]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.arg("protect").arg("--from").arg(&file);
    let native = output(command.args(["--", "true"]));
    assert!(native.status.success());
    let said = String::from_utf8_lossy(&native.stderr);
    assert!(said.contains("the result is of another program"), "{said}");
}

/// From finding to remedy, with an object of the heap.
#[test]
fn what_detect_finds_in_the_heap_is_isolated_and_right() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/programs/linear_regression.c");
    let program = folder.join("protect-regression");
    let built = Command::new("gcc")
        .args(["-O0", "-g", "-pthread", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.is_ok_and(|status| status.success()));
    let program = std::fs::canonicalize(program).expect("it was just built");
    let file = folder.join("protect-regression.json");
    let _alone = support::targets::alone();
    for _ in 0..5 {
        let mut detect = support::plain_sunder();
        detect
            .args(["detect", "--quiet", "-o"])
            .arg(&file)
            .arg("--");
        let natural = output(detect.arg(&program).args(["2", "40000000"]));
        assert!(natural.status.success(), "{natural:?}");
        let findings = Findings::open(&file).expect("it was written");
        let heap = |f: &Finding| f.object.kind == ObjectKind::Heap && !f.latent;
        if !findings.findings.iter().any(heap) {
            continue;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["protect", "--from"]).arg(&file).arg("--");
        let protected = output(command.arg(&program).args(["2", "40000000"]));
        assert_eq!(protected.stdout, natural.stdout, "{protected:?}");
        assert!(protected.status.success(), "{protected:?}");
        return;
    }
    println!("SKIP: the threads never ran side by side, so that nothing was found");
}

/// The same without a saved result: it is found and isolated in one run.
#[test]
fn what_is_shared_falsely_is_isolated_in_the_middle_of_the_run() {
    found_and_isolated("protect-watched", "auto", "200000000");
}

/// Where perf is refused, timers in the program take the samples; these are no timers of
/// the program's.
#[test]
fn samples_of_timers_do() {
    found_and_isolated("protect-timed", "timer", "400000000");
}

fn found_and_isolated(name: &str, observer: &str, size: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/programs/linear_regression.c");
    let program = folder.join(name);
    let built = Command::new("gcc")
        .args(["-O0", "-g", "-pthread", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.is_ok_and(|status| status.success()));
    let report = program.with_extension("json");
    let _alone = support::targets::alone();
    let natural = output(Command::new(&program).args(["2", size]));
    for _ in 0..5 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["protect", "--observer", observer, "--report"]);
        command.arg(&report).arg("--");
        let protected = output(command.arg(&program).args(["2", size]));
        assert_eq!(protected.stdout, natural.stdout, "{protected:?}");
        assert!(protected.status.success(), "{protected:?}");
        if !works(&protected) {
            return;
        }
        let text = std::fs::read_to_string(&report).expect("it was written");
        let said: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        if said["episodes"].as_u64().is_some_and(|n| n > 0) {
            // The threads' arguments: one block with all of them.
            assert_eq!(said["objects"][0]["bytes"], 128, "{said}");
            assert!(said["committed_bytes"].as_u64() > Some(0), "{said}");
            assert_eq!(said["pages_given_up"], 0, "{said}");
            return;
        }
    }
    println!("SKIP: the threads never ran side by side, so that nothing was found");
}

fn blocks() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/protect_blocks.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("protect-blocks");
    let aside = program.with_extension(format!("{:?}", std::thread::current().id()));
    let compiled = Command::new("gcc")
        .args(["-O1", "-g", "-pthread", "-o"])
        .args([&aside, &source])
        .status()
        .expect("gcc is needed, as the README says");
    assert!(compiled.success(), "it compiles");
    std::fs::rename(&aside, &program).expect("same folder");
    std::fs::canonicalize(program).expect("it was just built")
}

/// A block that is freed is isolated no more, and what comes in its place is judged anew.
#[test]
fn blocks_that_come_and_go_lose_nothing() {
    let program = blocks();
    let report = program.with_extension("json");
    let _alone = support::targets::alone();
    let natural = output(Command::new(&program).args(["3", "100000000"]));
    for _ in 0..5 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["protect", "--report"]).arg(&report).arg("--");
        let protected = output(command.arg(&program).args(["3", "100000000"]));
        assert_eq!(protected.stdout, natural.stdout, "{protected:?}");
        assert!(protected.status.success(), "{protected:?}");
        let text = std::fs::read_to_string(&report).expect("it was written");
        let said: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        // Isolated twice: once more after it was freed.
        if said["objects"].as_array().is_some_and(|all| all.len() > 1) {
            let own =
                |object: &serde_json::Value| object["bytes"].as_u64().is_some_and(|n| n % 64 == 32);
            let objects = said["objects"].as_array().expect("it is one");
            assert!(objects.iter().all(own), "only the threads' own: {said}");
            return;
        }
    }
    println!("SKIP: the threads hardly ran side by side, so that nothing was found twice");
}

/// What a wrapper has allocated is not known by a call of the program's own: it is
/// found again by watching.
#[test]
fn a_result_with_wrapped_allocations_is_not_refused() {
    let program = blocks();
    let saved = program.with_extension("saved.json");
    let path = program.to_str().expect("our own path").to_owned();
    let frame = |function: &str, offset: &str| sunder_findings::Frame {
        function: function.into(),
        module: Some(path.clone()),
        offset: Some(offset.into()),
        ..sunder_findings::Frame::default()
    };
    let file = result("protect-wrapped.json", &program, &[&[1], &[2]]);
    let mut findings = Findings::open(&file).expect("just written");
    let object = &mut findings.findings[0].object;
    object.kind = ObjectKind::Heap;
    object.allocation = vec![frame("checked_malloc", "0x10"), frame("main", "0x20")];
    let text = serde_json::to_string(&findings).expect("a result is JSON");
    std::fs::write(&saved, text).expect("our own folder");
    let _alone = support::targets::alone();
    let natural = output(Command::new(&program).args(["1", "50000000"]));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["protect", "--from"]).arg(&saved).arg("--");
    let protected = output(command.arg(&program).args(["1", "50000000"]));
    assert_eq!(protected.stdout, natural.stdout, "{protected:?}");
    let said = String::from_utf8_lossy(&protected.stderr);
    assert!(!said.contains("runs natively"), "{said}");
}

/// A process that the program makes by a kernel call of its own would share the memory
/// that was made sharable.
#[test]
fn a_program_with_kernel_calls_of_its_own_runs_natively() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/own_calls.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-calls");
    let compiled = Command::new("gcc")
        .args(["-O1", "-g", "-pthread", "-o"])
        .args([&program, &source])
        .status()
        .expect("gcc is needed, as the README says");
    assert!(compiled.success(), "it compiles");
    let protected = protect(&["--every", "500"], &program, "");
    let said = String::from_utf8_lossy(&protected.stderr);
    let output = String::from_utf8_lossy(&protected.stdout);
    assert_eq!(output, "40000000 40000000, child 3\n", "{said}");
    assert!(!said.contains("isolated 1"), "{said}");
    if works(&protected) && !said.contains("computed there for long") {
        assert!(said.contains("makes kernel calls of its own"), "{said}");
    }
}
