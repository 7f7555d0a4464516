//! What the commands that start a program give up once it has begun, and that the program itself
//! keeps everything.

mod support;

use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::plain_sunder;

/// The program: it waits until its parent is confined, 10 s at most, and shows how all threads of its
/// parent and it itself are.
const SHOWS: &str = r#"
tries=0
while [ $tries -lt 100 ]; do
    tries=$((tries + 1))
    grep -q "^Seccomp:.2" /proc/$PPID/status && break
    sleep 0.1
done
for thread in /proc/$PPID/task/*; do
    echo parent $(grep -E "^(Seccomp|NoNewPrivs):" $thread/status)
done
echo own $(grep -E "^(Seccomp|NoNewPrivs):" /proc/self/status)
exit 3
"#;

/// How this process is, in the form of [`SHOWS`].
fn natively() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.expect("every kernel shows it").replace('\t', " ")
    };
    format!("own {} {}", field("NoNewPrivs:"), field("Seccomp:"))
}

/// Each command, and the arguments with which it starts the program.
fn commands(report: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["detect", "-q", "-o", report],
        vec!["detect", "-q", "-o", report, "--observer", "timer"],
        vec!["detect", "-q", "-o", report, "--observer", "isolate"],
        vec!["detect", "-q", "-o", report, "--follow-children"],
        vec!["detect", "-q", "-o", report, "--measure"],
        vec!["detect", "-q", "-o", report, "--no-measure"],
        vec!["repair", "-q", "--report", report],
        vec!["protect", "-q", "--report", report],
        vec!["protect", "-q", "--report", report, "--eager"],
        vec!["protect", "-q", "--isolate-global", "none"],
        vec!["run"],
    ]
}

#[test]
fn every_command_confines_itself_and_not_its_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report.json");
    let report = report.to_str().expect("a plain path");
    for command in commands(report) {
        let told = plain_sunder()
            .args(&command)
            .args(["--", "sh", "-c", SHOWS])
            .output()
            .expect("sunder starts");
        let text = String::from_utf8_lossy(&told.stdout);
        let wrong = format!("{command:?}: {told:?}");
        assert_eq!(told.status.code(), Some(3), "{wrong}");
        let (parent, own): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with("parent"));
        assert!(!parent.is_empty(), "{wrong}");
        for thread in parent {
            assert_eq!(thread, "parent NoNewPrivs: 1 Seccomp: 2", "{wrong}");
        }
        assert_eq!(own, [natively()], "{wrong}");
        // What was given up is not needed for the report, and no word is lost about it.
        assert_eq!(told.stderr, b"", "{wrong}");
        if command.contains(&report) {
            assert!(
                std::fs::metadata(report).is_ok_and(|m| m.len() > 0),
                "{wrong}"
            );
            std::fs::remove_file(report).expect("written");
        }
    }
}

#[test]
fn a_program_that_does_not_start_leaves_no_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report.json");
    let told = plain_sunder()
        .args(["detect", "-q", "-o"])
        .arg(&report)
        .args(["--", "/no/such/program"])
        .output()
        .expect("sunder starts");
    assert_eq!(told.status.code(), Some(127), "{told:?}");
    assert!(!report.exists());
}

/// A pipe that takes nothing more until it is read.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let set = |flags: i32| {
        // SAFETY: takes numbers; the descriptor is open.
        unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, flags) }
    };
    assert_eq!(set(libc::O_NONBLOCK), 0);
    for bytes in [4096, 1] {
        while writer.write_all(&vec![b'x'; bytes]).is_ok() {}
    }
    let set = |flags: i32| {
        // SAFETY: as above.
        unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, flags) }
    };
    assert_eq!(set(0), 0);
    (reader.into(), writer.into())
}

/// A trace is read after the program's end only. What is wrong with it is told on standard error,
/// which takes nothing here, so that `sunder` can be looked at while it waits.
#[test]
fn a_trace_is_read_confined() {
    if support::installed::installed("qemu-x86_64").is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (reader, writer) = full_pipe();
    let mut command = plain_sunder();
    command
        .args(["trace", "-q", "--via", "emulated", "-o"])
        .arg(folder.path().join("trace"))
        .args(["--", "sh", "-c", "kill -9 $$"])
        .stdout(Stdio::null())
        .stderr(writer);
    let mut tool = command.spawn().expect("sunder starts");
    // Our own end of the pipe goes with it.
    drop(command);
    let status = format!("/proc/{}/status", tool.id());
    let begun = Instant::now();
    let mut last = String::new();
    while begun.elapsed() < Duration::from_secs(20) {
        last = std::fs::read_to_string(&status).expect("it waits for us");
        if last.contains("\nSeccomp:\t2\n") {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(last.contains("\nSeccomp:\t2\n"), "{last}");
    assert!(last.contains("\nNoNewPrivs:\t1\n"), "{last}");
    let mut read = std::fs::File::from(reader);
    let mut told = Vec::new();
    std::io::Read::read_to_end(&mut read, &mut told).expect("readable");
    let code = tool.wait().expect("it ends").code();
    assert_eq!(code, Some(128 + libc::SIGKILL));
}

/// The process that writes reports does not outlive `sunder`, however that ends.
#[test]
fn no_writer_is_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report.json");
    let mut tool = plain_sunder();
    let mut tool = tool
        .args(["detect", "-q", "-o"])
        .arg(&report)
        .args(["--", "sh", "-c", "echo ready; sleep 1"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("sunder starts");
    let mut output = tool.stdout.take().expect("piped");
    std::io::Read::read_exact(&mut output, &mut [0; 6]).expect("it begins");
    let children = format!("/proc/{0}/task/{0}/children", tool.id());
    let children = std::fs::read_to_string(children).expect("listed");
    let is_writer = |child: &&str| {
        let name = std::fs::read_to_string(format!("/proc/{child}/comm"));
        name.is_ok_and(|name| name == "sunder-writer\n")
    };
    let writer = children.split_whitespace().find(is_writer);
    let writer = format!("/proc/{}", writer.expect("it has one"));
    tool.kill().expect("it runs");
    tool.wait().expect("it has ended");
    let begun = Instant::now();
    let is_there = || {
        let state = std::fs::read_to_string(format!("{writer}/stat"));
        Path::new(&writer).exists() && !state.is_ok_and(|state| state.contains(") Z "))
    };
    while is_there() && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!is_there(), "{writer} is still there");
}

/// `protect` and `repair` leave a program alone that confines itself, however they are confined by then:
/// it might be killed for a system call of theirs.
#[test]
fn a_program_that_confines_itself_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("filtered");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/filtered.c");
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-O1", "-g", "-pthread", "-o"]).arg(&program);
    let compiled = gcc.arg(source).status();
    assert!(compiled.expect("gcc runs").success());
    for command in [
        &["protect", "--isolate-global", "shared"][..],
        &["protect", "--eager"],
        &["repair"],
    ] {
        let told = plain_sunder()
            .args(command)
            .arg("--")
            .arg(&program)
            .output()
            .expect("sunder starts");
        assert_eq!(told.status.code(), Some(5), "{told:?}");
        let told = String::from_utf8_lossy(&told.stderr);
        // Observing may find nothing worth a repair on a busy machine.
        let why = [
            "confines its system calls",
            "confined by seccomp",
            "nothing to repair",
        ];
        assert!(
            why.iter().any(|why| told.contains(why)),
            "{command:?}: {told}"
        );
    }
}
