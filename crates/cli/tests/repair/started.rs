//! `--follow-children`: what a script starts is repaired as the program itself would be. The script keeps its
//! output, its exit status and its children.

use crate::support::repaired::before_others;
use crate::support::{c_program, plain_sunder, targets};
use std::path::Path;
use std::process::Output;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use sunder_workloads::Variant;

/// Runs a shell with `script`, where `$0` is the program.
fn run(command: &str, options: &[&str], script: &str, program: &Path) -> Output {
    let mut sunder = plain_sunder();
    before_others(&mut sunder);
    sunder.arg(command).args(options);
    sunder.args(["--", "sh", "-c", script]).arg(program);
    assert_cmd::Command::from_std(sunder)
        .timeout(Duration::from_secs(120))
        .output()
        .expect("it ran")
}

#[test]
fn what_a_script_starts_is_repaired() {
    let program = targets::build("shard_locks", Variant::Shared);
    for command in ["repair", "cure"] {
        let script = "echo begin; \"$0\" 2 60000000 && exit 7";
        targets::side_by_side(command, || {
            let ran = run(command, &["--follow-children"], script, &program);
            let told = String::from_utf8_lossy(&ran.stderr).into_owned();
            let out = String::from_utf8_lossy(&ran.stdout).into_owned();
            assert!(out.starts_with("begin\nchecksum "), "{out} {told}");
            assert_eq!(ran.status.code(), Some(7), "{told}");
            let of_the_child = |line: &&str| {
                line.contains("(process ") && line.contains("moved 2 groups of `shards`")
            };
            match told.lines().find(of_the_child) {
                Some(_) => Ok(()),
                None => Err(told),
            }
        });
    }
}

#[test]
fn what_lives_on_gets_its_bytes_back() {
    let program = targets::build("shard_locks", Variant::Shared);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("out");
    // The shell is gone before the program, which then goes on as natively.
    let script = format!(
        "\"$0\" 2 100000000 >{} & sleep 0.7; echo $!",
        file.display()
    );
    let native = std::process::Command::new(&program)
        .args(["2", "100000000"])
        .output();
    let native = native.expect("it runs").stdout;
    targets::side_by_side("a program that its script does not wait for", || {
        let ran = run("repair", &["--follow-children"], &script, &program);
        let told = String::from_utf8_lossy(&ran.stderr).into_owned();
        let number = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
        assert_eq!(ran.status.code(), Some(0), "{told}");
        let maps = std::fs::read_to_string(format!("/proc/{number}/maps"));
        assert!(!maps.is_ok_and(|maps| maps.contains("sunder")), "{told}");
        while Path::new(&format!("/proc/{number}/maps")).exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let written = std::fs::read(&file).expect("it wrote");
        assert_eq!(written, native, "{told}");
        let is_left = format!("process {number} goes on as it was: all bytes are back");
        match told.contains("moved 2 groups") && told.contains(&is_left) {
            true => Ok(()),
            false => Err(told),
        }
    });
}

/// It can't let go of its bytes by itself, and nobody has to wait for it.
#[test]
fn what_is_stopped_at_the_end_gets_its_bytes_back_at_once() {
    let program = targets::build("shard_locks", Variant::Shared);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("out");
    // The last words are written when the shell is about to end.
    let script = format!(
        "\"$0\" 2 100000000 >{} 2>&1 & sleep 0.7; kill -STOP $!; sleep 0.1; echo $!; date +%s%N",
        file.display()
    );
    let native = std::process::Command::new(&program)
        .args(["2", "100000000"])
        .output();
    let native = native.expect("it runs").stdout;
    targets::side_by_side("a program that is stopped", || {
        let ran = run("repair", &["--follow-children"], &script, &program);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let told = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(0), "{told}");
        let words = String::from_utf8_lossy(&ran.stdout).into_owned();
        let mut words = words.split_whitespace();
        let number = words.next().expect("its number").to_owned();
        let ended: u64 = words.next().and_then(|at| at.parse().ok()).expect("a time");
        let took = now.expect("a time") - Duration::from_nanos(ended);
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{number}/{name}"));
        let (status, maps) = (read("status"), read("maps"));
        // SAFETY: takes two integers; the process goes on only now.
        unsafe { libc::kill(number.parse().expect("a number"), libc::SIGCONT) };
        assert!(status.expect("it lives").contains("T (stopped)"), "{told}");
        assert!(!maps.expect("it lives").contains("sunder"), "{told}");
        while Path::new(&format!("/proc/{number}/maps")).exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let written = std::fs::read(&file).expect("it wrote");
        assert_eq!(written, native, "{told}");
        let is_left = format!("process {number} goes on as it was: all bytes are back");
        // It was two seconds when threads were waited for that did not go on.
        let is_soon = took < Duration::from_millis(1500);
        match told.contains("moved 2 groups") && told.contains(&is_left) && is_soon {
            true => Ok(()),
            false => Err(format!("after {took:?}: {told}")),
        }
    });
}

/// The process's number stays the same; each program has a repair of its own.
#[test]
fn what_a_process_executes_later_is_repaired_too() {
    let program = c_program("again", &[]).expect("it compiles");
    let said = "600000000\n".repeat(2);
    targets::side_by_side("a program that executes itself", || {
        let ran = run("repair", &["--follow-children"], "\"$0\" 1; true", &program);
        let told = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(String::from_utf8_lossy(&ran.stdout), said, "{told}");
        assert_eq!(ran.status.code(), Some(0), "{told}");
        let moved = |line: &&str| line.contains("(process ") && line.contains("moved 2 groups");
        match told.lines().filter(moved).count() {
            2 => Ok(()),
            _ => Err(told),
        }
    });
}

#[test]
fn processes_with_one_thread_are_left_as_they_are() {
    let script = "dd if=/dev/zero of=/dev/null bs=512 count=400000 2>/dev/null";
    let ran = run("repair", &["--follow-children"], script, Path::new("dd"));
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{told}");
    assert!(
        told.contains("no process that the program started"),
        "{told}"
    );
}

#[test]
fn without_the_option_it_is_named() {
    let ran = run("repair", &[], "sleep 0.2; true", Path::new("sleep"));
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(
        told.contains("(--follow-children repairs them too)"),
        "{told}"
    );
}
