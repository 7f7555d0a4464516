//! Traces of Rust programs: built by `sunder cargo`, and unmodified under the emulator. A small
//! package with two threads whose counters share a line, from its sources to the verdict.

use crate::support::{plain_sunder, sunder};
use std::path::{Path, PathBuf};
use std::process::{Command as Plain, Output};
use sunder_findings::{Findings, Sharing};
use sunder_trace::meta::Via;
use sunder_trace::{Trace, What};

const MANIFEST: &str = r#"
[package]
name = "shares"
version = "0.1.0"
edition = "2021"
build = "build.rs"
[lib]
crate-type = ["rlib", "cdylib"]
[workspace]
"#;

/// A build script, which runs during the build and is not instrumented.
const BUILD: &str = r#"fn main() { println!("cargo:rustc-env=ROUNDS={}", 20_000); }"#;

const LIBRARY: &str = r"
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
#[repr(align(64))]
pub struct Counts(pub [AtomicU64; 2]);
pub static COUNTS: Counts = Counts([const { AtomicU64::new(0) }; 2]);
#[inline(never)]
pub fn count(own: &AtomicU64, rounds: u64) {
    for _ in 0..rounds { own.fetch_add(1, Relaxed); }
}
";

const MAIN: &str = r#"
use std::sync::atomic::Ordering::Relaxed;
fn main() {
    let rounds: u64 = env!("ROUNDS").parse().unwrap();
    std::thread::scope(|scope| {
        for own in &shares::COUNTS.0 {
            scope.spawn(move || shares::count(own, rounds));
        }
    });
    let boxes: Vec<Box<[u8; 777]>> = (0..3).map(|i| Box::new([i; 777])).collect();
    let sum: u64 = shares::COUNTS.0.iter().map(|c| c.load(Relaxed)).sum();
    println!("{}", sum + boxes.len() as u64);
}
"#;

fn package(folder: &Path) {
    std::fs::create_dir(folder.join("src")).expect("our own folder");
    for (name, text) in [
        ("Cargo.toml", MANIFEST),
        ("build.rs", BUILD),
        ("src/lib.rs", LIBRARY),
        ("src/main.rs", MAIN),
    ] {
        std::fs::write(folder.join(name), text).expect("our own folder");
    }
}

/// Removes the variables that the cargo that runs this test has set.
fn clean(command: &mut Plain) -> &mut Plain {
    for name in [
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_BOOTSTRAP",
    ] {
        command.env_remove(name);
    }
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether the compiler here has what is needed; prints a notice if not.
fn can_be_instrumented() -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut probe = Plain::new(rustc);
    clean(&mut probe).env("RUSTC_BOOTSTRAP", "1").args([
        "-Zsanitizer=thread",
        "-Zexternal-clangrt",
        "-Cunsafe-allow-abi-mismatch=sanitizer",
        "--print=cfg",
    ]);
    match probe.output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            println!("SKIP: this compiler takes no hooks: {}", said(&output));
            false
        }
        Err(error) => {
            println!("SKIP: no Rust compiler: {error}");
            false
        }
    }
}

/// Records the program and replays the trace.
fn verdict(program: &Path, via: &str) -> (Trace, Findings) {
    let folder = program.parent().expect("a program is in a folder");
    let (trace, result) = (folder.join("a.trace"), folder.join("a.json"));
    let run = sunder()
        .args(["trace", "--via", via, "-o"])
        .arg(&trace)
        .arg("--")
        .arg(program)
        .assert()
        .success();
    assert_eq!(run.get_output().stdout, b"40003\n");
    sunder()
        .args(["simulate", "--quiet", "-o"])
        .arg(&result)
        .arg(&trace)
        .assert()
        .success();
    let trace = Trace::open(&trace).expect("it was recorded");
    assert!(trace.summary().is_complete(), "{:?}", trace.summary());
    (trace, Findings::open(&result).expect("it was replayed"))
}

/// The counters share a line falsely and nothing else costs as much.
fn counters_share_falsely(findings: &Findings) {
    let first = findings.findings.first().expect("there is one");
    let name = first.object.name.as_deref().unwrap_or_default();
    assert!(name.ends_with("COUNTS"), "{name}");
    assert_eq!(first.sharing, Sharing::False);
}

#[test]
fn a_package_built_by_sunder_cargo_is_recorded_and_its_counters_are_found() {
    if !can_be_instrumented() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    package(folder.path());
    let built = clean(&mut plain_sunder())
        .args(["cargo", "build", "--release", "--offline"])
        .current_dir(folder.path())
        .output()
        .expect("it runs");
    assert!(built.status.success(), "{}", said(&built));
    let target = folder.path().join("target/sunder/x86_64-unknown-linux-gnu");
    let told = said(&built);
    assert!(told.contains("programs to be recorded are in"), "{told}");
    let program = target.join("release/shares");
    let (trace, findings) = verdict(&program, "auto");
    assert_eq!(trace.header().via, Via::Instrumented);
    counters_share_falsely(&findings);
    let of_box = |what: &What| matches!(what, What::Allocate { size: 777, .. });
    let all = trace.events(sunder_trace::Filter::default());
    assert_eq!(all.filter(|event| of_box(&event.what)).count(), 3);
    // Nothing is built again if nothing has changed.
    let again = clean(&mut plain_sunder())
        .args(["cargo", "build", "--release", "--offline"])
        .current_dir(folder.path())
        .output()
        .expect("it runs");
    assert!(!said(&again).contains("Compiling"), "{}", said(&again));
    // Cargo's own errors keep cargo's status.
    let wrong = clean(&mut plain_sunder())
        .args(["cargo", "build", "--no-such-flag"])
        .current_dir(folder.path())
        .output()
        .expect("it runs");
    assert_eq!(wrong.status.code(), Some(1), "{}", said(&wrong));
}

#[test]
fn the_same_package_as_it_is_gives_the_same_under_the_emulator() {
    if Plain::new("qemu-x86_64").arg("--version").output().is_err() {
        println!("SKIP: qemu-x86_64 (Debian's package qemu-user) is not installed");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    package(folder.path());
    let mut cargo = Plain::new(env!("CARGO"));
    let built = clean(&mut cargo)
        .args(["build", "--offline"])
        .current_dir(folder.path())
        .output()
        .expect("it runs");
    assert!(built.status.success(), "{}", said(&built));
    let program: PathBuf = folder.path().join("target/debug/shares");
    let (trace, findings) = verdict(&program, "auto");
    assert_eq!(trace.header().via, Via::Emulated);
    counters_share_falsely(&findings);
}
