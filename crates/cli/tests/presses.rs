//! Ctrl-C, Ctrl-\ and a closed terminal, in a real terminal: the program gets what it gets natively,
//! once for each press, `sunder` never ends before it, and a second press does not cost the report.

mod support;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use support::plain_sunder;

const CTRL_C: &[u8] = b"\x03";
const CTRL_BACKSLASH: &[u8] = b"\x1c";

/// Far longer than any of these tests takes.
const LIMIT: Duration = Duration::from_secs(60);

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("presses");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/presses.c");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-g", "-pthread", "-o"]).arg(&program);
        let compiled = gcc.arg(source).status().expect("gcc runs");
        assert!(compiled.success(), "it compiles");
        program
    })
}

/// A terminal: the side of a user, and that of programs.
fn terminal() -> (File, OwnedFd) {
    let (mut user, mut programs) = (0, 0);
    let null = std::ptr::null_mut();
    // SAFETY: the pointers to both descriptors are valid; no other value owns the descriptors.
    unsafe {
        let (user, programs) = (&raw mut user, &raw mut programs);
        let made = libc::openpty(user, programs, null, null.cast(), null.cast());
        assert_eq!(made, 0, "there are terminals");
        let flags = libc::fcntl(*user, libc::F_SETFD, libc::FD_CLOEXEC);
        assert_eq!(flags, 0);
        (File::from_raw_fd(*user), OwnedFd::from_raw_fd(*programs))
    }
}

/// A command in the foreground of a terminal of its own, whose session it leads.
struct Job {
    child: Child,
    /// The user's side; `None` when the terminal is closed.
    user: Option<File>,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    said: File,
}

impl Job {
    fn start(command: &mut Command) -> Self {
        let (user, programs) = terminal();
        let number = programs.as_raw_fd();
        // SAFETY: both calls are async-signal-safe; the descriptor is open.
        unsafe {
            command.pre_exec(move || {
                let leads = libc::setsid() >= 0 && libc::ioctl(number, libc::TIOCSCTTY, 0) == 0;
                leads
                    .then_some(())
                    .ok_or_else(std::io::Error::last_os_error)
            })
        };
        let said = tempfile::tempfile().expect("a file");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said.try_clone().expect("a descriptor"))
            .spawn()
            .expect("it starts");
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().expect("piped")),
            user: Some(user),
            said,
            child,
        }
    }

    /// What it has said on standard error.
    fn said(&mut self) -> String {
        let mut text = String::new();
        self.said.rewind().expect("a file");
        self.said.read_to_string(&mut text).expect("readable");
        text
    }

    /// The next line of the program; nothing at its end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("readable");
        line
    }

    fn press(&mut self, keys: &[u8]) {
        let user = self.user.as_mut().expect("it is not closed");
        user.write_all(keys).expect("it takes keys");
    }

    /// The rest of what the program says, and how the command ends.
    fn end(&mut self) -> (String, ExitStatus) {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("readable");
        (rest, self.status())
    }

    fn status(&mut self) -> ExitStatus {
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end");
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Each command that starts a program, before the program's own arguments. Those with `REPORT` write
/// it.
fn commands() -> Vec<Vec<&'static str>> {
    let mut all = vec![
        vec!["detect", "-q", "-o", "REPORT", "--"],
        vec!["detect", "-q", "-o", "REPORT", "--observer", "timer", "--"],
        vec![
            "detect",
            "-q",
            "-o",
            "REPORT",
            "--observer",
            "isolate",
            "--",
        ],
        vec!["detect", "-q", "-o", "REPORT", "--measure", "--"],
        vec!["repair", "-q", "--report", "REPORT", "--"],
        vec!["protect", "-q", "--report", "REPORT", "--"],
        vec!["protect", "-q", "--report", "REPORT", "--eager", "--"],
        vec!["run", "--"],
    ];
    if support::installed::installed("qemu-x86_64").is_some() {
        all.push(vec![
            "trace", "-q", "--via", "emulated", "-o", "REPORT", "--",
        ]);
    }
    all
}

/// A command with its report at `report`, and the program in the mode `how`; without a command, the
/// program alone.
fn tool(command: &[&str], report: &Path, how: &str) -> Command {
    let own = |word: &&str| match *word {
        "REPORT" => report.as_os_str().to_owned(),
        word => word.into(),
    };
    support::usual_signals();
    let mut started = match command {
        [] => return with(Command::new(program()), how),
        _ => plain_sunder(),
    };
    started.args(command.iter().map(own)).arg(program());
    with(started, how)
}

fn with(mut command: Command, how: &str) -> Command {
    command.arg(how);
    command
}

/// What a program says that is pressed twice, and quit once, and how the command exits.
fn pressed(command: &[&str], report: &Path, how: &str) -> (String, Option<i32>) {
    let mut job = Job::start(&mut tool(command, report, how));
    let mut said = job.line();
    for keys in [CTRL_C, CTRL_C, CTRL_BACKSLASH] {
        job.press(keys);
        if how == "handles" {
            said += &job.line();
        }
    }
    if how == "ignores" {
        std::thread::sleep(Duration::from_millis(100));
    }
    let (rest, status) = job.end();
    (said + &rest, status.code())
}

/// The report is there, whole.
fn is_written(command: &[&str], report: &Path) -> bool {
    let length = std::fs::metadata(report).map_or(0, |m| m.len());
    length > 0 || !command.contains(&"REPORT")
}

#[test]
fn every_press_reaches_the_program_once() {
    let folder = tempfile::tempdir().expect("a folder");
    for how in ["handles", "ignores"] {
        let native = pressed(&[], folder.path(), how);
        let presses = native.0.lines().count() - 1;
        assert_eq!(
            (presses, native.1),
            (if how == "handles" { 3 } else { 0 }, Some(5))
        );
        for command in commands() {
            let report = folder.path().join("report");
            let seen = pressed(&command, &report, how);
            assert_eq!(seen, native, "{command:?} {how}");
            assert!(is_written(&command, &report), "{command:?} {how}");
            let _ = std::fs::remove_file(report);
        }
    }
}

/// The first press ends the program. The second one comes at any moment until the report is written.
#[test]
fn a_second_press_does_not_cost_the_report() {
    let folder = tempfile::tempdir().expect("a folder");
    for command in commands() {
        for pause in [0, 1, 2, 4, 8, 16, 32, 64] {
            let report = folder.path().join("report");
            let mut job = Job::start(&mut tool(&command, &report, "dies"));
            assert_eq!(job.line(), "ready\n");
            job.press(CTRL_C);
            for _ in 0..4 {
                std::thread::sleep(Duration::from_millis(pause));
                job.press(CTRL_C);
            }
            let status = job.status();
            assert_eq!(
                status.code(),
                Some(128 + libc::SIGINT),
                "{command:?} {pause}"
            );
            let told = job.said();
            assert!(is_written(&command, &report), "{command:?} {pause}: {told}");
            let _ = std::fs::remove_file(report);
        }
    }
}

/// Making the report can take long, and the user need not wait for it.
#[test]
fn a_press_a_second_after_the_end_ends_sunder() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report.json");
    let path = std::ffi::CString::new(report.to_str().expect("plain")).expect("no zero");
    // SAFETY: a path that ends with zero.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    // The report can't be written while the pipe is full.
    let mut pipe = File::options()
        .read(true)
        .write(true)
        .open(&report)
        .expect("made");
    // SAFETY: takes numbers; the descriptor is open.
    unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    for bytes in [4096, 1] {
        while pipe.write_all(&vec![b'x'; bytes]).is_ok() {}
    }
    let command = ["detect", "-q", "-o", "REPORT", "--"];
    let mut job = Job::start(&mut tool(&command, &report, "dies"));
    assert_eq!(job.line(), "ready\n");
    let begun = Instant::now();
    job.press(CTRL_C);
    await_signals(job.child.id(), "SigIgn:", libc::SIGHUP);
    std::thread::sleep(Duration::from_millis(50));
    job.press(CTRL_C);
    std::thread::sleep(Duration::from_millis(100));
    let status = job.child.try_wait().expect("a child of ours");
    // On a machine that took a second until here, the second press may end it.
    assert!(
        status.is_none() || begun.elapsed() > Duration::from_secs(1),
        "{status:?}"
    );
    std::thread::sleep(Duration::from_millis(1500));
    job.press(CTRL_C);
    assert_eq!(job.status().signal(), Some(libc::SIGINT));
}

/// What a program says of a terminal that is closed.
fn closed(command: &[&str], report: &Path, below_a_shell: bool) -> (String, Option<i32>) {
    let mut started = tool(command, report, "handles");
    if below_a_shell {
        let mut shell = Command::new("sh");
        shell.args(["-c", "\"$@\"; exit $?", "sh"]);
        shell.arg(started.get_program()).args(started.get_args());
        started = shell;
    }
    let mut job = Job::start(&mut started);
    let mut said = job.line();
    drop(job.user.take());
    said += &job.line();
    let (rest, status) = job.end();
    (said + &rest, status.code())
}

#[test]
fn a_closed_terminal_is_told_once() {
    let folder = tempfile::tempdir().expect("a folder");
    for below_a_shell in [false, true] {
        let native = closed(&[], folder.path(), below_a_shell);
        assert_eq!(native.0, "ready\nHangup 1\n");
        for command in commands() {
            let report = folder.path().join("report");
            let seen = closed(&command, &report, below_a_shell);
            assert_eq!(seen, native, "{command:?} below a shell: {below_a_shell}");
            if !below_a_shell {
                assert!(is_written(&command, &report), "{command:?}");
            }
            let _ = std::fs::remove_file(report);
        }
    }
}

/// A press that comes before there is a program is not lost.
#[test]
fn a_press_before_the_program_begins_ends_it() {
    let folder = tempfile::tempdir().expect("a folder");
    for pause in 0..20 {
        let report = folder.path().join("report");
        let command = ["detect", "-q", "-o", "REPORT", "--"];
        let mut job = Job::start(&mut tool(&command, &report, "dies"));
        std::thread::sleep(Duration::from_millis(pause));
        job.press(CTRL_C);
        let status = job.status();
        let ended = status.code().map(|code| code - 128).or(status.signal());
        assert_eq!(ended, Some(libc::SIGINT), "{pause} {status:?}");
    }
}

#[test]
fn a_second_press_does_not_cost_the_report_of_attach() {
    let folder = tempfile::tempdir().expect("a folder");
    for pause in [0, 1, 2, 4, 8, 16, 32] {
        let mut process = Job::start(&mut tool(&[], folder.path(), "handles"));
        assert_eq!(process.line(), "ready\n");
        let report = folder.path().join("report");
        let mut attach = plain_sunder();
        attach.args(["attach", "-q", "-o"]).arg(&report);
        attach.args(["--pid", &process.child.id().to_string()]);
        let mut job = Job::start(&mut attach);
        await_signals(job.child.id(), "SigCgt:", libc::SIGINT);
        job.press(CTRL_C);
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(pause));
            job.press(CTRL_C);
        }
        assert_eq!(job.status().code(), Some(0), "{pause}");
        assert!(
            std::fs::metadata(&report).is_ok_and(|m| m.len() > 0),
            "{pause}"
        );
        let (rest, status) = process.end();
        assert_eq!(
            (rest.as_str(), status.code()),
            ("", Some(5)),
            "it got nothing"
        );
    }
}

/// Waits until a process has this signal in this set of `/proc/PID/status`.
fn await_signals(process: u32, set: &str, signal: i32) {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"));
        let status = status.expect("it runs");
        let set = status.lines().find_map(|line| line.strip_prefix(set));
        let set = u64::from_str_radix(set.expect("listed").trim(), 16).expect("a number");
        if set >> (signal - 1) & 1 == 1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it does not come");
}
