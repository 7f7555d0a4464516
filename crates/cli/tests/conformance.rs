//! What threads, signals, processes and memory promise holds under every command that puts
//! something of ours into a program. The programs in `conformance/` check themselves; each runs
//! natively first, and its output and exit status must be the same under the command.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use support::natively::natively;
use support::{limited, plain_sunder};

/// A program, its arguments after the scale, and its status as a shell shows it.
const CASES: [(&str, &[&str], i32); 30] = [
    ("mutexes.c", &[], 0),
    ("conditions.c", &[], 0),
    ("barriers.c", &[], 0),
    ("identity.c", &[], 0),
    ("cancellation.c", &[], 0),
    ("signals.c", &[], 0),
    ("children.c", &[], 9),
    ("memory.c", &[], 0),
    ("strings.c", &[], 0),
    ("streams.c", &[], 0),
    ("litmus.c", &[], 0),
    ("crowds.c", &[], 0),
    ("coroutines.c", &[], 0),
    ("waits.c", &[], 0),
    ("start.c", &[], 0),
    ("limits.c", &[], 0),
    ("limits.c", &["time"], 42),
    ("limits.c", &["waits"], 0),
    ("confined.c", &["early"], 6),
    ("confined.c", &["late"], 6),
    ("languages.cpp", &[], 0),
    ("languages.rs", &[], 0),
    ("death.c", &["segv"], 139),
    ("death.c", &["abort"], 134),
    ("death.c", &["exit"], 7),
    ("death.c", &["kill"], 143),
    ("death.c", &["trap"], 132),
    ("death.c", &["bell"], 191),
    ("death.c", &["aside"], 191),
    ("death.c", &["last"], 0),
];

/// How the programs are compiled.
#[derive(Clone, Copy, Debug)]
enum Build {
    Plain,
    /// By `sunder cc` and `sunder c++`, so that they record every access.
    Instrumented,
}

/// The program of this source, if there is one of this kind; built once.
fn built(source: &str, build: Build) -> Option<PathBuf> {
    static FOLDERS: [OnceLock<PathBuf>; 2] = [const { OnceLock::new() }; 2];
    let folder = FOLDERS[build as usize].get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("conformance-{build:?}"));
        std::fs::create_dir_all(&folder).expect("our own folder");
        let mut sources: Vec<&str> = CASES.iter().map(|case| case.0).collect();
        sources.dedup();
        for source in sources {
            compile(source, build, &folder);
        }
        folder
    });
    let program = folder.join(program_name(source));
    program.exists().then_some(program)
}

fn program_name(source: &str) -> String {
    source.replace('.', "-")
}

fn compile(source: &str, build: Build, folder: &Path) {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let (compiler, ours, options): (&str, _, &[&str]) = match source.rsplit_once('.') {
        Some((_, "c")) => ("gcc", Some("cc"), &["-O1", "-g", "-pthread", "-lm"]),
        Some((_, "cpp")) => ("g++", Some("c++"), &["-std=c++20", "-O1", "-g", "-pthread"]),
        _ => (&rustc, None, &["--edition", "2024", "-O", "-g"]),
    };
    let mut command = match (build, ours) {
        (Build::Plain, _) => Command::new(compiler),
        (Build::Instrumented, None) => return,
        (Build::Instrumented, Some(ours)) => {
            let mut command = plain_sunder();
            command.arg(ours);
            command
        }
    };
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    command.arg(sources.join(source)).args(options).arg("-o");
    let built = command.arg(folder.join(program_name(source))).output();
    let built = built.expect("it starts");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{source}: {said}");
}

/// Every program natively and as `command` starts it.
fn all_alike(build: Build, command: impl Fn() -> Command) {
    all_but(&[], build, "1", command);
}

fn all_but(left_out: &[&str], build: Build, scale: &str, command: impl Fn() -> Command) {
    for (source, arguments, expected) in CASES {
        let Some(program) = built(source, build).filter(|_| !left_out.contains(&source)) else {
            continue;
        };
        let seen = |output: Output| {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let complained = String::from_utf8_lossy(&output.stderr).into_owned();
            let status = limited::status(&output).expect("ended one way or the other");
            (status, said, complained)
        };
        // Which our command has too.
        let mut alone = Command::new(&program);
        alone.env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8");
        let native = seen(natively(alone.arg(scale).args(arguments)));
        assert_eq!(
            native.0, expected,
            "{source} {arguments:?} natively: {native:?}"
        );
        let mut ours = command();
        ours.arg("--").arg(&program).arg(scale).args(arguments);
        let ours = seen(limited::output(&ours));
        assert_eq!(ours, native, "{source} {arguments:?}");
    }
}

fn detect(observer: &'static str) -> impl Fn() -> Command {
    let folder = tempfile::tempdir().expect("a folder");
    move || {
        let mut command = plain_sunder();
        command
            .args(["detect", "--quiet", "--observer", observer, "-o"])
            .arg(folder.path().join("result.json"));
        command
    }
}

#[test]
fn while_the_kernel_samples() {
    all_alike(Build::Plain, detect("perf"));
}

#[test]
fn while_timers_sample() {
    all_alike(Build::Plain, detect("timer"));
}

#[test]
fn on_another_heap() {
    all_alike(Build::Plain, || {
        let mut command = plain_sunder();
        command.args(["run", "--placement", "sized-call-site"]);
        command
    });
}

fn trace(via: &'static str) -> impl Fn() -> Command {
    let folder = tempfile::tempdir().expect("a folder");
    move || {
        let mut command = plain_sunder();
        command
            .args(["trace", "--quiet", "--via", via, "-o"])
            .arg(folder.path().join("trace"));
        command
    }
}

#[test]
fn while_every_access_is_recorded() {
    // A notice on standard error says that half of the trace is missing; and a filter of system calls
    // that does not know the tracer's ends the program (docs/design/trace.md).
    all_but(
        &["death.c", "confined.c"],
        Build::Instrumented,
        "1",
        trace("instrumented"),
    );
}

#[test]
fn in_an_emulator_that_records() {
    if Command::new("qemu-x86_64")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("SKIP: qemu-x86_64 (Debian's package qemu-user) is not installed");
        return;
    }
    // The emulator itself has no robust and no priority-inheriting mutexes, does not survive an
    // asynchronous cancellation, reports deaths in its own words, keeps real-time signals for itself,
    // shows its own environment in `/proc`, and is confined as its program is.
    let left_out = [
        "mutexes.c",
        "cancellation.c",
        "confined.c",
        "death.c",
        "waits.c",
        "start.c",
    ];
    all_but(&left_out, Build::Plain, "1", trace("emulated"));
}

#[test]
fn under_repair() {
    all_but(&[], Build::Plain, "2", || {
        let mut command = plain_sunder();
        command.args(["repair", "--quiet"]);
        command
    });
}

#[test]
fn under_cure() {
    all_but(&[], Build::Plain, "2", || {
        let mut command = plain_sunder();
        command.args(["cure", "--quiet"]);
        command
    });
}

/// Moves pages far more often than any remedy would, whatever the threads do.
#[test]
fn under_protection() {
    all_but(&[], Build::Plain, "2", || {
        let mut command = plain_sunder();
        command.args(["protect", "--quiet", "--isolate-global", "hot"]);
        command.args(["--every", "300"]);
        command
    });
}

/// Every interval is looked at, so that threads are isolated all the time.
#[test]
fn while_threads_are_isolated() {
    let detect = detect("isolate");
    all_but(&[], Build::Plain, "2", || {
        let mut command = detect();
        command.args(["--sampled", "1000"]);
        command
    });
}

#[test]
fn under_eager_protection() {
    all_but(&[], Build::Plain, "2", || {
        let mut command = plain_sunder();
        command.args(["protect", "--quiet", "--eager"]);
        command
    });
}
