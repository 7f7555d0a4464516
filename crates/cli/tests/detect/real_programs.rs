//! Unmodified programs of the distribution run under `detect` as they run alone: the same output,
//! the same status, and a readable result. The findings in them are judged by people, in
//! `eval/runs/`; `sunder-eval real` runs the programs at length. The test makes the input, which is
//! the same everywhere.

use crate::support::installed::{free_port, installed, python, text};
use crate::support::{c_program, sunder};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use sunder_findings::Findings;

/// Like [`compared`], for a program that runs for long enough to be sampled.
fn same_under_detect(program: &Path, arguments: &[&str], options: &[&str]) {
    let findings = compared(program, arguments, options);
    assert!(
        findings.run.samples > 0 || findings.run.observer == "timer",
        "{} gave no samples",
        program.display()
    );
}

/// Runs `program` alone and under `detect` with `options`, and compares; its result.
fn compared(program: &Path, arguments: &[&str], options: &[&str]) -> Findings {
    let folder = tempfile::tempdir().expect("a folder");
    let native = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("it is installed");
    let result = folder.path().join("result.json");
    let seen = sunder()
        .args(["detect", "--format", "json", "-o"])
        .arg(&result)
        .args(["--format", "text", "-o"])
        .arg(folder.path().join("report.txt"))
        .args(options)
        .arg("--")
        .arg(program)
        .args(arguments)
        .output()
        .expect("sunder runs");
    compare(program, &native, &seen);
    Findings::open(&result).expect("a result that can be read")
}

fn compare(program: &Path, native: &Output, seen: &Output) {
    let shown = program.display();
    let errors = String::from_utf8_lossy(&seen.stderr);
    assert!(!errors.contains("panicked"), "{shown}: {errors}");
    assert_eq!(
        seen.status.code(),
        native.status.code(),
        "{shown}: {errors}"
    );
    assert!(
        seen.stdout == native.stdout,
        "{shown}: {} bytes of output are not the {} of the native run",
        seen.stdout.len(),
        native.stdout.len()
    );
}

fn on_text(name: &str, size: usize, arguments: &[&str]) {
    let Some(program) = installed(name) else {
        return;
    };
    let file = text(size);
    let path = file.path().to_str().expect("utf-8");
    let all: Vec<&str> = arguments.iter().copied().chain([path]).collect();
    same_under_detect(&program, &all, &[]);
}

#[test]
fn pigz_compresses_as_ever() {
    on_text("pigz", 6_000_000, &["-p", "4", "-n", "-c"]);
}

#[test]
fn pbzip2_compresses_as_ever() {
    on_text("pbzip2", 3_000_000, &["-p2", "-c"]);
}

#[test]
fn xz_compresses_as_ever() {
    on_text("xz", 3_000_000, &["-T2", "-1", "--block-size=512KiB", "-c"]);
}

#[test]
fn zstd_compresses_as_ever() {
    on_text("zstd", 6_000_000, &["-T2", "-6", "-q", "-c"]);
}

#[test]
fn pfscan_finds_as_ever() {
    on_text("pfscan", 3_000_000, &["-n", "2", "-c", "1234"]);
}

#[test]
fn sort_sorts_as_ever() {
    on_text("sort", 6_000_000, &["--parallel=2", "-S", "32M"]);
}

#[test]
fn the_shell_of_sqlite_answers_as_ever() {
    let Some(program) = installed("sqlite3") else {
        return;
    };
    let script = "pragma threads=2;
        create table t(a integer, b text);
        with recursive n(i) as (values(1) union all select i+1 from n where i<100000)
          insert into t select (i*2654435761)%1000003, 'row '||i from n;
        create index x on t(b, a);
        select count(*), sum(a), min(b), max(b) from t;
        select a, b from t order by a*7%1009, b limit 20;";
    same_under_detect(&program, &[":memory:", script], &[]);
}

#[test]
fn threads_with_sqlite_answer_as_ever() {
    let Some(program) = c_program("sqlite_threads", &["-lsqlite3"]) else {
        return;
    };
    for mode in ["shared", "separate"] {
        same_under_detect(&program, &[mode, "3", "10000"], &[]);
    }
}

#[test]
fn python_with_threads_prints_as_ever() {
    let Some(program) = installed("python3") else {
        return;
    };
    same_under_detect(&program, &["-c", &python()], &[]);
}

#[test]
fn a_compiler_that_starts_many_processes_writes_the_same_program() {
    let Some(program) = installed("gcc") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("utf-8").to_owned();
    let mut arguments: Vec<String> = ["-O1", "-flto=2", "-o", &path("program")]
        .map(str::to_owned)
        .to_vec();
    let mut calls = String::new();
    for i in 0..4 {
        let source = path(&format!("part{i}.c"));
        std::fs::write(
            &source,
            format!("int part{i}(int n) {{ return n * {i} + 1; }}\n"),
        )
        .expect("written");
        arguments.push(source);
        calls += &format!("int part{i}(int); ");
    }
    std::fs::write(
        path("main.c"),
        format!("{calls}int main(void) {{ return part0(1) + part1(2) + part2(3) + part3(4); }}\n"),
    )
    .expect("written");
    arguments.push(path("main.c"));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    for options in [&[][..], &["--follow-children"]] {
        // Each process has one thread, ends soon, and is seldom sampled.
        compared(&program, &arguments, options);
        let status = Command::new(path("program")).status().expect("it runs");
        // 0 + 1, 2 + 1, 6 + 1, 12 + 1.
        assert_eq!(status.code(), Some(24));
        std::fs::remove_file(path("program")).expect("it was there");
    }
}

/// A server that is stopped when it is dropped, also when a test fails.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    fn start(command: &mut Command, port: u16) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it is installed");
        let server = Self(child);
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "no server");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits for the end; the status and what the server wrote to standard error.
    fn wait(mut self) -> (Option<i32>, String) {
        let mut errors = String::new();
        if let Some(mut stream) = self.0.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut stream, &mut errors);
        }
        (self.0.wait().expect("it was started").code(), errors)
    }
}

/// Four clients that set and get, `rounds` times each. All answers must follow memcached's
/// protocol.
fn use_memcached(port: u16, rounds: u32) {
    std::thread::scope(|scope| {
        for client in 0..4 {
            scope.spawn(move || {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
                stream.set_nodelay(true).expect("set");
                let mut answers = BufReader::new(stream.try_clone().expect("cloned")).lines();
                let mut next = || answers.next().expect("an answer").expect("text");
                for i in 0..rounds {
                    let key = format!("key{client}-{}", i % 500);
                    write!(stream, "set {key} 0 0 6\r\n{i:06}\r\nget {key}\r\n").expect("sent");
                    assert_eq!(next(), "STORED");
                    assert_eq!(next(), format!("VALUE {key} 0 6"));
                    assert_eq!(next(), format!("{i:06}"));
                    assert_eq!(next(), "END");
                }
            });
        }
    });
}

#[test]
fn memcached_serves_as_ever_and_ends_as_told() {
    let Some(program) = installed("memcached") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let result = folder.path().join("result.json");
    let port = free_port();
    let shown = port.to_string();
    // UDP port 0 switches UDP off. The user is named so that it also starts as root.
    let arguments = [
        "-t",
        "4",
        "-l",
        "127.0.0.1",
        "-p",
        &shown,
        "-U",
        "0",
        "-u",
        "nobody",
    ];
    let server = Server::start(
        Command::new(env!("CARGO_BIN_EXE_sunder"))
            .args(["detect", "--quiet", "--format", "json", "-o"])
            .arg(&result)
            .arg("--")
            .arg(&program)
            .args(arguments),
        port,
    );
    use_memcached(port, 1000);
    let pid = i32::try_from(server.pid()).expect("a pid");
    // SAFETY: a signal to our own child, which has not been waited for.
    unsafe { libc::kill(pid, libc::SIGTERM) };
    let (status, errors) = server.wait();
    // It handles SIGTERM and exits with 0, under Sunder as alone.
    assert_eq!(status, Some(0), "{errors}");
    let findings = Findings::open(&result).expect("a result that can be read");
    // The main thread, four workers and some for housekeeping.
    assert!(findings.run.threads >= 5, "{}", findings.run.threads);
}

#[test]
fn redis_under_load_is_attached_to_and_goes_on() {
    let (Some(server), Some(benchmark), Some(client)) = (
        installed("redis-server"),
        installed("redis-benchmark"),
        installed("redis-cli"),
    ) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let result = folder.path().join("result.json");
    let port = free_port().to_string();
    let number = port.parse().expect("a number");
    let running = Server::start(
        Command::new(server)
            .current_dir(folder.path())
            .args(["--port", &port, "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "no", "--io-threads", "2"]),
        number,
    );
    let mut load = Command::new(benchmark)
        .args([
            "-p", &port, "-t", "incr", "-n", "40000", "-c", "8", "-P", "8", "-q",
        ])
        .stdout(Stdio::null())
        .spawn()
        .expect("it is installed");
    let attached = sunder()
        .args(["attach", "--quiet", "--duration", "500ms", "--pid"])
        .arg(running.pid().to_string())
        .args(["--format", "json", "-o"])
        .arg(&result)
        .output()
        .expect("sunder runs");
    assert!(load.wait().expect("it was started").success());
    let errors = String::from_utf8_lossy(&attached.stderr);
    assert_eq!(attached.status.code(), Some(0), "{errors}");
    let findings = Findings::open(&result).expect("a result that can be read");
    assert!(findings.run.threads >= 2, "{}", findings.run.threads);
    let ask = |what: &[&str]| {
        let answer = Command::new(&client)
            .args(["-p", &port])
            .args(what)
            .output()
            .expect("it is installed");
        String::from_utf8_lossy(&answer.stdout).trim().to_owned()
    };
    // No increment was lost: the benchmark increments one key.
    assert_eq!(ask(&["get", "counter:__rand_int__"]), "40000");
    ask(&["shutdown", "nosave"]);
    assert_eq!(running.wait().0, Some(0));
}
