//! The target's exit status, signals and streams are what they are without us,
//! and Sunder's own failures are one clear sentence with a documented status.

mod support;

use predicates::prelude::*;
use support::{c_program, detect, sunder};

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
