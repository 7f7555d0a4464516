//! The target's exit status, signals and streams are those of the target alone, and Sunder's own
//! failures are one clear sentence with a documented status.

use crate::support::{c_program, detect, sunder};
use predicates::prelude::*;

#[test]
fn the_status_of_the_program_is_the_status_of_detect() {
    for status in [0, 1, 7, 123, 255] {
        detect(&["sh", "-c", &format!("exit {status}")])
            .assert()
            .code(status);
    }
}

#[test]
fn a_death_by_signal_is_128_and_its_number() {
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11)] {
        detect(&["sh", "-c", &format!("kill -{name} $$")])
            .assert()
            .code(128 + number);
    }
}

#[test]
fn standard_output_is_untouched_and_the_report_is_on_standard_error() {
    detect(&["sh", "-c", "echo out; echo err >&2"])
        .assert()
        .success()
        .stdout("out\n")
        .stderr(predicate::str::starts_with("err\n"));
}

#[test]
fn the_environment_is_the_same_in_the_same_order() {
    let native = std::process::Command::new("env")
        .env("NO_COLOR", "1")
        .env("LC_ALL", "C.UTF-8")
        .output()
        .expect("env runs");
    detect(&["env"])
        .assert()
        .success()
        .stdout(String::from_utf8_lossy(&native.stdout).into_owned());
}

#[test]
fn standard_input_reaches_the_program() {
    detect(&["cat"])
        .write_stdin("hello\nworld\n")
        .assert()
        .success()
        .stdout("hello\nworld\n");
}

#[test]
fn quiet_says_nothing() {
    sunder()
        .args(["detect", "--quiet", "--", "true"])
        .assert()
        .success()
        .stderr("");
}

#[test]
fn a_program_that_does_not_exist_is_127() {
    detect(&["/no/such/program"])
        .assert()
        .code(127)
        .stderr(predicate::str::contains("/no/such/program"))
        .stderr(predicate::str::contains("not found").or(predicate::str::contains("No such file")));
    detect(&["surely-not-in-the-path-either"])
        .assert()
        .code(127);
}

#[test]
fn what_was_not_found_is_told_by_its_kind() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").expect("written");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("set");
    detect(&[script.to_str().expect("utf-8")])
        .assert()
        .code(127)
        .stderr(predicate::str::contains("interpreter"));
    sunder()
        .args(["detect", "--", "--frequnecy", "99", "true"])
        .assert()
        .code(127)
        .stderr(predicate::str::contains("--frequnecy"));
}

#[test]
fn a_report_that_cannot_be_written_is_told_before_the_program_runs() {
    let nowhere = "/no/such/folder/report";
    for command in [
        ["detect", "-o", nowhere],
        ["repair", "--report", nowhere],
        ["protect", "--report", nowhere],
        ["cure", "--save", nowhere],
    ] {
        sunder()
            .args(command)
            .args(["--", "echo", "ran"])
            .assert()
            .code(125)
            .stdout("")
            .stderr(predicate::str::contains(nowhere));
    }
    sunder()
        .args(["repair", "--quiet", "--report", "-", "--", "true"])
        .assert()
        .success()
        .stdout(predicate::str::contains("sunder-findings"));
}

#[test]
fn what_failed_with_us_is_not_told_in_the_place_of_the_programs_status() {
    for command in ["repair", "protect"] {
        for (status, told) in [(5, 5), (0, 125)] {
            sunder()
                .args([command, "--report", "/dev/full", "--", "sh", "-c"])
                .arg(format!("exit {status}"))
                .assert()
                .code(told)
                .stderr(predicate::str::contains("/dev/full"));
        }
    }
}

#[test]
fn the_processes_of_another_namespace_are_not_taken_for_ours() {
    // `/proc` still shows the outer namespace, where other processes have these numbers.
    for command in ["detect", "repair", "protect", "cure", "run"] {
        let output = std::process::Command::new("unshare")
            .args(["--user", "--map-root-user", "--pid", "--fork", "--"])
            .args([env!("CARGO_BIN_EXE_sunder"), command, "--", "echo", "ran"])
            .output();
        let Ok(output) = output else {
            println!("SKIP: there is no unshare");
            return;
        };
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        if stderr.contains("unshare") && !stderr.contains("sunder") {
            println!("SKIP: no process namespace: {stderr}");
            return;
        }
        assert_eq!(output.status.code(), Some(125), "{command}: {stderr}");
        assert!(stderr.contains("process namespace"), "{command}: {stderr}");
        assert_eq!(output.stdout, b"", "{command}");
    }
}

#[test]
fn a_limit_for_files_is_told() {
    // Files in memory have size limits too. The shell's children inherit its limit.
    let shell = "ulimit -f 0; exec \"$0\" detect -- true";
    std::process::Command::new("sh")
        .args(["-c", shell, env!("CARGO_BIN_EXE_sunder")])
        .output()
        .map(|output| {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(125), "{stderr}");
            assert!(stderr.contains("File too large"), "{stderr}");
        })
        .expect("sh runs");
}

#[test]
fn a_program_that_may_not_be_executed_is_126() {
    let folder = tempfile::tempdir().expect("a folder");
    let plain = folder.path().join("plain.txt");
    std::fs::write(&plain, "hello").expect("written");
    detect(&[plain.to_str().expect("utf-8")]).assert().code(126);
    detect(&[folder.path().to_str().expect("utf-8")])
        .assert()
        .code(126);
}

#[test]
fn a_program_for_another_architecture_is_126() {
    let folder = tempfile::tempdir().expect("a folder");
    let foreign = folder.path().join("foreign");
    let mut bytes = std::fs::read("/bin/true").expect("readable");
    // e_machine: EM_AARCH64.
    bytes[18..20].copy_from_slice(&183u16.to_le_bytes());
    std::fs::write(&foreign, bytes).expect("written");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&foreign, std::fs::Permissions::from_mode(0o755)).expect("set");
    detect(&[foreign.to_str().expect("utf-8")])
        .assert()
        .code(126)
        .stderr(predicate::str::contains("architecture").or(predicate::str::contains("format")));
}

#[test]
fn wrong_usage_is_2() {
    sunder().arg("detect").assert().code(2);
    sunder()
        .args(["detect", "--line-size", "63", "--", "true"])
        .assert()
        .code(2);
    sunder().args(["attach", "--pid", "none"]).assert().code(2);
    for (words, told) in [
        (&["attach"][..], "--name"),
        (&["attach", "--pid", "1", "--name", "a"], "--name"),
        (&["detect", "--frequnecy", "9", "true"], "'--frequency'"),
        (&["repair", "--dry-rnu", "true"], "'--dry-run'"),
        (&["dectect", "true"], "'detect'"),
        (&["true", "x"], "sunder detect -- true"),
        (
            &[
                "detect", "--format", "json", "-o", "a", "-o", "b", "--", "true",
            ],
            "-o b",
        ),
        (
            &[
                "detect", "--format", "json", "--format", "html", "--", "true",
            ],
            "-o FILE",
        ),
        (&["trace", "--", "true"], "-o FILE"),
        (&["simulate", "a.trace", "b.trace"], "b.trace"),
        (&["simulate", "--sort", "a.trace"], "--sort"),
    ] {
        let seen = sunder().args(words).assert().code(2).stdout("");
        let said = String::from_utf8_lossy(&seen.get_output().stderr).into_owned();
        assert!(said.contains(told), "{words:?}: {said}");
    }
}

#[test]
fn a_program_without_a_command_is_detected() {
    for words in [
        ["/bin/sh", "-c", "exit 5"].as_slice(),
        &["--", "sh", "-c", "exit 5"],
    ] {
        sunder()
            .args(words)
            .assert()
            .code(5)
            .stderr(predicate::str::contains("sh -c"));
    }
    sunder()
        .args(["-q", "--", "echo", "--quiet"])
        .assert()
        .success()
        .stdout("--quiet\n")
        .stderr("");
}

#[test]
fn a_process_that_is_gone_is_told_so() {
    // The largest pid that Linux allows is 2^22.
    sunder()
        .args(["attach", "--pid", "4194305", "--duration", "100ms"])
        .assert()
        .code(125)
        .stderr(predicate::str::contains("4194305"));
}

#[test]
fn files_that_are_no_results_are_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    for (name, text) in [
        ("empty.json", ""),
        ("foreign.json", "{\"hello\": 1}"),
        (
            "truncated.json",
            "{\"schema\":\"sunder-findings\",\"version\":1,",
        ),
        (
            "newer.json",
            "{\"schema\":\"sunder-findings\",\"version\":4000000000}",
        ),
        ("binary.json", "\u{7f}ELF\u{0}\u{1}"),
    ] {
        let path = file(name, text);
        let seen = sunder().arg("report").arg(&path).assert().code(125);
        let stderr = String::from_utf8_lossy(&seen.get_output().stderr).into_owned();
        assert!(stderr.contains(name), "{name}: {stderr}");
        assert!(!stderr.contains("panicked"), "{name}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{name}: {stderr}");
        sunder().arg("diff").args([&path, &path]).assert().code(125);
        sunder().arg("import").arg(&path).assert().code(125);
    }
    sunder()
        .args(["report", "/no/such/file.json"])
        .assert()
        .code(125);
}

#[test]
fn a_full_disk_does_not_change_the_programs_status() {
    sunder()
        .args(["detect", "--format", "json", "-o", "/dev/full", "--"])
        .args(["sh", "-c", "echo out; exit 5"])
        .assert()
        .code(5)
        .stdout("out\n")
        .stderr(predicate::str::contains("/dev/full"));
}

#[test]
fn a_static_program_runs_and_the_limit_is_told() {
    let Some(program) = c_program("static", &["-static"]) else {
        return;
    };
    detect(&[program.to_str().expect("utf-8")])
        .assert()
        .success()
        .stdout("checksum 400000000\n")
        .stderr(predicate::str::contains("statically linked"));
}

#[test]
fn what_runs_natively_under_protect_has_a_report_that_says_why() {
    let Some(program) = c_program("static", &["-static"]) else {
        return;
    };
    let seen = sunder()
        .args(["protect", "--quiet", "--report", "-", "--"])
        .arg(&program)
        .assert()
        .success();
    let text = String::from_utf8_lossy(&seen.get_output().stdout).into_owned();
    let report = text.split_once('{').map(|(_, rest)| format!("{{{rest}"));
    let report: serde_json::Value =
        serde_json::from_str(&report.expect("it is JSON")).expect("it is JSON");
    assert_eq!(report["episodes"], 0);
    let why = report["ended"].as_str().expect("a sentence");
    assert!(why.contains("statically linked"), "{why}");
}

/// Clang links the thread sanitizer's runtime into the program, where it has such a function.
const WITHIN: [&str; 2] = ["-rdynamic", "-Wl,--defsym,__tsan_create_fiber=main"];

#[test]
fn a_program_with_the_thread_sanitizer_in_itself_gets_no_library() {
    for (flags, wanted) in [(&[][..], "with it\n"), (&WITHIN, "without it\n")] {
        let Some(program) = c_program("looks_for_us", flags) else {
            return;
        };
        let name = program.to_str().expect("utf-8");
        let run = format!("exec '{name}'");
        for command in [&[name][..], &["sh", "-c", &run]] {
            let mut detect = sunder();
            let seen = detect
                .args(["detect", "--quiet", "-o", "/dev/null", "--"])
                .args(command);
            seen.assert().success().stdout(wanted);
        }
    }
}

#[test]
fn the_doctor_does_not_promise_what_a_sanitizer_forbids() {
    for flags in [&["-fsanitize=address"][..], &WITHIN] {
        let Some(program) = c_program("static", flags) else {
            return;
        };
        sunder()
            .arg("doctor")
            .arg(&program)
            .assert()
            .success()
            .stdout(predicate::str::contains("sanitizer"));
    }
}

#[test]
fn programs_that_do_unusual_things_are_not_disturbed() {
    for (what, output, code) in [
        ("fork", "child 3\nparent 7\n", 0),
        ("double-fork", "grandchild\nparent\n", 0),
        ("exec", "from sh\n", 9),
        ("close-all", "", 4),
        ("clear-environment", "0 variables\n", 0),
        ("own-handlers", "segv 1 prof yes\n", 0),
        ("killed", "half-way\n", 128 + 9),
        ("abort", "", 128 + 6),
        ("no-threads", "done\n", 0),
        ("main-exits-first", "worker done\n", 0),
    ] {
        let Some(program) = c_program("unusual", &[]) else {
            return;
        };
        let program = program.to_str().expect("utf-8").to_owned();
        for observer in ["auto", "timer"] {
            sunder()
                .args(["detect", "--observer", observer, "--", &program, what])
                .assert()
                .code(code)
                .stdout(output.to_owned());
        }
    }
}

/// A million rounds of a shell's loop take some tenths of a second, and `true` a few milliseconds.
#[test]
fn what_others_used_before_is_not_the_programs_time() {
    let file = std::env::temp_dir().join(format!("sunder-cpu-{}", std::process::id()));
    let script = "sh -c 'i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done'; \
                  exec \"$0\" detect --format json -o \"$1\" -- true";
    let sunder = sunder().get_program().to_owned();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script]).arg(sunder).arg(&file);
    assert!(command.status().expect("sh runs").success());
    let result = sunder_findings::Findings::open(&file).expect("a result");
    std::fs::remove_file(&file).expect("our own file");
    let cpu = result.run.program_cpu_seconds.expect("it is known");
    assert!((0.0..0.1).contains(&cpu), "{cpu}");
}

/// What a script's programs share is not known, and neither is what a process does that goes on.
#[test]
fn of_other_processes_that_do_the_work_nothing_is_known() {
    let file = std::env::temp_dir().join(format!("sunder-others-{}", std::process::id()));
    let loops = "sh -c 'i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done'; true";
    for (script, share) in [
        (loops, 90.0..=100.0),
        ("sleep 0.2 >/dev/null 2>&1 &", 0.0..=0.0),
    ] {
        let mut command = sunder();
        command
            .args(["detect", "--format", "json", "-o"])
            .arg(&file);
        command.args(["--", "sh", "-c", script]).assert().success();
        let result = sunder_findings::Findings::open(&file).expect("a result");
        let left_out = result.run.left_out_percent.expect("it had a child");
        assert!(share.contains(&left_out), "{script}: {left_out}");
        let verdict = result.answer(1.0);
        assert_eq!(
            verdict.answer,
            sunder_findings::Answer::Inconclusive,
            "{script}"
        );
    }
    std::fs::remove_file(&file).expect("our own file");
}

/// It is seen, but its code is not decoded: no run of any length would show more.
#[test]
fn a_32_bit_program_is_inconclusive_for_that_reason_alone() {
    let flags = ["-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie"];
    let Some(program) = c_program("narrow_threads", &flags) else {
        return;
    };
    if std::process::Command::new(&program).status().is_err() {
        println!("SKIP: this kernel runs no 32-bit programs");
        return;
    }
    let program = program.to_str().expect("a plain name");
    let output = detect(&[program]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(3), "the program's own");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("its code is 32-bit"), "{said}");
    assert!(!said.contains("run longer"), "{said}");
    // What can't work says so.
    for command in ["repair", "cure", "protect"] {
        let output = sunder()
            .args([command, "--", program])
            .output()
            .expect("it runs");
        assert_eq!(output.status.code(), Some(3), "{command}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("natively: it is a 32-bit program"), "{said}");
    }
}
