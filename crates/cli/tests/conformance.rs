//! What threads, signals, processes and memory promise holds under every command
//! that puts something of ours into a program. The programs in `conformance/`
//! check themselves; each runs natively first, and output and end must be equal.

mod support;

use assert_cmd::Command;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;
use std::time::Duration;
use support::sunder;

/// Nothing here needs more than seconds; this is for what hangs.
const HANGS: Duration = Duration::from_secs(180);

/// A program, its argument behind the scale, and its status in a shell.
const CASES: [(&str, &[&str], i32); 20] = [
    ("mutexes.c", &[], 0),
    ("conditions.c", &[], 0),
    ("barriers.c", &[], 0),
    ("identity.c", &[], 0),
    ("cancellation.c", &[], 0),
    ("signals.c", &[], 0),
    ("children.c", &[], 9),
    ("memory.c", &[], 0),
    ("streams.c", &[], 0),
    ("litmus.c", &[], 0),
    ("crowds.c", &[], 0),
    ("coroutines.c", &[], 0),
    ("languages.cpp", &[], 0),
    ("languages.rs", &[], 0),
    ("death.c", &["segv"], 139),
    ("death.c", &["abort"], 134),
    ("death.c", &["exit"], 7),
    ("death.c", &["kill"], 143),
    ("death.c", &["trap"], 132),
    ("death.c", &["last"], 0),
];

/// The program of this source, built once.
fn built(source: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let folder = FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance");
        std::fs::create_dir_all(&folder).expect("our own folder");
        let mut sources_seen: Vec<&str> = CASES.iter().map(|case| case.0).collect();
        sources_seen.dedup();
        for source in sources_seen {
            compile(
                &sources.join(source),
                &folder.join(source.replace('.', "-")),
            );
        }
        folder
    });
    folder.join(source.replace('.', "-"))
}

fn compile(source: &Path, program: &Path) {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let (compiler, options): (&str, &[&str]) = match source.extension().and_then(|end| end.to_str())
    {
        Some("c") => ("gcc", &["-O1", "-g", "-pthread", "-lm"]),
        Some("cpp") => ("g++", &["-std=c++20", "-O1", "-g", "-pthread"]),
        _ => (&rustc, &["--edition", "2024", "-O", "-g"]),
    };
    let status = std::process::Command::new(compiler)
        .arg(source)
        .args(options)
        .arg("-o")
        .arg(program)
        .status()
        .expect("the compiler runs");
    assert!(status.success(), "{}", source.display());
}

/// The status as a shell tells it.
fn status(output: &Output) -> i32 {
    let died = output.status.signal().map(|signal| 128 + signal);
    died.or(output.status.code())
        .expect("ended one way or the other")
}

/// Every program natively and as `command` starts it.
fn all_alike(command: impl Fn() -> Command) {
    for (source, arguments, expected) in CASES {
        let program = built(source);
        let run = |mut command: Command| {
            command.arg("1").args(arguments).timeout(HANGS);
            let output = command.output().expect("it ends");
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let complained = String::from_utf8_lossy(&output.stderr).into_owned();
            (status(&output), said, complained)
        };
        let native = run(Command::new(&program));
        assert_eq!(
            native.0, expected,
            "{source} {arguments:?} natively: {native:?}"
        );
        let mut ours = command();
        ours.arg("--").arg(&program);
        assert_eq!(run(ours), native, "{source} {arguments:?}");
    }
}

fn detect(observer: &'static str) -> impl Fn() -> Command {
    let folder = tempfile::tempdir().expect("a folder");
    move || {
        let mut command = sunder();
        command
            .args(["detect", "--quiet", "--observer", observer, "-o"])
            .arg(folder.path().join("result.json"));
        command
    }
}

#[test]
fn while_the_kernel_samples() {
    all_alike(detect("perf"));
}

#[test]
fn while_timers_sample() {
    all_alike(detect("timer"));
}

#[test]
fn on_another_heap() {
    all_alike(|| {
        let mut command = sunder();
        command.args(["run", "--placement", "sized-call-site"]);
        command
    });
}
