//! `sunder protect` on programs that are not made for it: unmodified ones of the distribution,
//! C++ with tasks and exceptions across threads, Rust with its own locks. One page of theirs is
//! private, whether or not it is falsely shared; the rules for code are as ever. The programs do
//! what they do natively. Judged by output and status, never by time.

use crate::support::installed::{computing, film, free_port, installed, text};
use crate::support::limited::{can_stop_threads, output};
use crate::support::natively::natively;
use crate::support::{Ended, c_program, plain_sunder};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// `sunder protect OPTIONS -- PROGRAM ARGUMENTS`; `None`, with a notice, if threads can't be
/// stopped here.
fn protect(options: &[&str], program: &Path, arguments: &[&str]) -> Option<Output> {
    crate::support::usual_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.arg("protect").args(options).arg("--").arg(program);
    let done = output(command.args(arguments));
    can_stop_threads(&done).then_some(done)
}

/// Threads unmap memory and map it anew. An isolated thread, which synchronises by plain stores
/// alone, never reads the former content.
#[test]
fn memory_that_the_library_unmaps_from_inside_is_never_seen_again() {
    let _alone = crate::support::targets::alone();
    let program = crate::support::c_program("remapped", &["-w"]).expect("gcc is there");
    for options in [
        &["--isolate-global", "shared"][..],
        &["--isolate-global", "shared", "--every", "300"],
    ] {
        let Some(done) = protect(options, &program, &["1000"]) else {
            return;
        };
        assert_eq!(done.stdout, b"0 stale\n", "{options:?}: {done:?}");
        assert!(done.status.success(), "{done:?}");
    }
}

/// Runs the program natively and protected, with pages of `global` private and isolation at the
/// usual intervals and at shorter ones; output and status must be the same.
fn same(program: &Path, arguments: &[&str], global: &str) {
    let _alone = crate::support::targets::alone();
    let native = natively(Command::new(program).args(arguments));
    for every in [&[][..], &["--every", "1000"]] {
        let options = [&["--isolate-global", global], every].concat();
        let Some(protected) = protect(&options, program, arguments) else {
            return;
        };
        let shown = program.display();
        let said = String::from_utf8_lossy(&protected.stderr);
        println!("{shown} {every:?}: {}", said.trim());
        assert_eq!(
            protected.status.code(),
            native.status.code(),
            "{shown} {every:?}: {said}"
        );
        assert!(
            protected.stdout == native.stdout,
            "{shown} {every:?}: {} bytes of output are not the {} of the native run: {said}",
            protected.stdout.len(),
            native.stdout.len()
        );
    }
}

/// Without options, none of these programs has false sharing to protect, so they stay native. Then
/// a page of the C library's or of their own is private as often as can be: they do not notice, and
/// the report says if their code or memory prevents it.
#[test]
fn programs_that_compute_write_what_they_write_natively() {
    let (text, film) = (text(3_000_000), film(30));
    for (program, arguments) in computing(text.path(), film.path()) {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        same(&program, &arguments, "stderr");
    }
}

#[test]
fn sqlite_answers_as_natively() {
    if let Some(program) = c_program("sqlite_threads", &["-lsqlite3"]) {
        for mode in ["shared", "separate"] {
            same(&program, &[mode, "3", "10000"], "shared");
        }
    }
}

/// Compiles a program of another language than C.
fn compiled(source: &str, compiler: &str, flags: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let program = folder.join(format!("{source}-program"));
    let built = Command::new(compiler)
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(from.join(source))
        .output()
        .expect("the compiler is needed, as the README says");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    program
}

#[test]
fn tasks_and_exceptions_of_cpp_cross_threads_as_natively() {
    let program = compiled("across.cpp", "g++", &["-O1", "-g", "-pthread"]);
    same(&program, &[], "shared");
}

#[test]
fn locks_channels_and_panics_of_rust_work_as_natively() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let program = compiled("tasks.rs", &rustc, &["--edition", "2024", "-O", "-g"]);
    same(&program, &[], "shared");
}

/// A protected server that listens; `None`, with a notice, if it is not installed.
fn server(name: &str, global: &str, arguments: &[&str], port: u16) -> Option<Ended> {
    let program = installed(name)?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut command = plain_sunder();
    command
        .current_dir(folder)
        .args([
            "protect",
            "--every",
            "2000",
            "--isolate-global",
            global,
            "--",
        ])
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let server = Ended::new(&mut command);
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "no server");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(server)
}

/// Exit status of a server that was told to end; a hang is a failure.
fn end(mut server: Ended) -> Option<i32> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        if let Some(status) = server.child().try_wait().expect("it was started") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

#[test]
fn memcached_answers_as_natively_and_ends_as_told() {
    let _alone = crate::support::targets::alone();
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
    let Some(server) = server("memcached", "stderr", &arguments, port) else {
        return;
    };
    std::thread::scope(|scope| {
        for client in 0..4 {
            scope.spawn(move || {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
                stream.set_nodelay(true).expect("set");
                let mut answers = BufReader::new(stream.try_clone().expect("cloned")).lines();
                let mut next = || answers.next().expect("an answer").expect("text");
                for i in 0..500 {
                    let key = format!("key{client}-{}", i % 100);
                    write!(stream, "set {key} 0 0 6\r\n{i:06}\r\nget {key}\r\n").expect("sent");
                    assert_eq!(next(), "STORED");
                    assert_eq!(next(), format!("VALUE {key} 0 6"));
                    assert_eq!(next(), format!("{i:06}"));
                    assert_eq!(next(), "END");
                }
            });
        }
    });
    server.kill(libc::SIGTERM);
    // It handles SIGTERM and exits with 0, protected as alone.
    assert_eq!(end(server), Some(0));
}

#[test]
fn redis_loses_no_increment() {
    let _alone = crate::support::targets::alone();
    let port = free_port();
    let shown = port.to_string();
    let arguments = [
        "--port",
        &shown,
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--io-threads",
        "3",
        "--io-threads-do-reads",
        "yes",
    ];
    let Some(server) = server("redis-server", "server", &arguments, port) else {
        return;
    };
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(move || {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
                let mut answers = BufReader::new(stream.try_clone().expect("cloned")).lines();
                for _ in 0..50 {
                    // Twenty at a time, so that the threads have work.
                    let request = "INCR counter\r\n".repeat(20);
                    stream.write_all(request.as_bytes()).expect("sent");
                    for _ in 0..20 {
                        let answer = answers.next().expect("an answer").expect("text");
                        assert!(answer.starts_with(':'), "{answer}");
                    }
                }
            });
        }
    });
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    let mut answers = BufReader::new(stream.try_clone().expect("cloned")).lines();
    stream.write_all(b"INCR counter\r\n").expect("sent");
    let last = answers.next().expect("an answer").expect("text");
    assert_eq!(
        last, ":6001",
        "six clients with a thousand each, and this one"
    );
    stream.write_all(b"SHUTDOWN NOSAVE\r\n").expect("sent");
    assert_eq!(end(server), Some(0));
}

/// The example beside the header that programs may include: it does the same alone and protected,
/// where its own calls choose what is isolated.
#[test]
fn a_program_says_itself_what_its_threads_have_for_themselves() {
    let _alone = crate::support::targets::alone();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("slots-example");
    for (compiler, language) in [("gcc", "c"), ("g++", "c++")] {
        // C++ has no compound literals, which the example uses, so only the header is compiled.
        let check = include.join("sunder.h");
        let checked = Command::new(compiler)
            .args([
                "-Wall",
                "-Wextra",
                "-Werror",
                "-fsyntax-only",
                "-x",
                language,
            ])
            .args(["-Wno-pragma-once-outside-header", "-Wno-unused-function"])
            .arg(check)
            .output()
            .expect("gcc is needed, as the README says");
        assert!(checked.status.success(), "{checked:?}");
    }
    let built = Command::new("gcc")
        .args(["-O1", "-g", "-pthread", "-Wall", "-Werror", "-I"])
        .arg(&include)
        .arg(include.join("example/slots.c"))
        .arg("-o")
        .arg(&program)
        .status();
    assert!(built.is_ok_and(|status| status.success()));
    let sums = "1000000000 19999999\n1000000000 19999999\n100\n";
    let native = output(&Command::new(&program));
    assert_eq!(String::from_utf8_lossy(&native.stdout), sums);
    let said = String::from_utf8_lossy(&native.stderr);
    assert_eq!(said, "active 0, isolated 0\nshared again 0\n");
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join("slots-report.json");
    let path = report.to_str().expect("utf-8");
    for every in [&[][..], &["--every", "1000", "--isolate-global", "stderr"]] {
        let options = [&["--report", path], every].concat();
        let Some(done) = protect(&options, &program, &[]) else {
            return;
        };
        assert_eq!(String::from_utf8_lossy(&done.stdout), sums, "{done:?}");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            said.starts_with("active 1, isolated 1\nshared again 1\n"),
            "{said}"
        );
        let report = std::fs::read_to_string(&report).expect("it was written");
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        assert!(report["pages"].as_u64().is_some_and(|n| n > 0), "{report}");
    }
}
