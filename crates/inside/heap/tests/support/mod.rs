//! Builds the library and the test programs, and runs them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};

/// The library, built once for each run of the tests, in the folder in which
/// `crates/outside/guests/build/main.rs` builds guests (the outer cargo has locked the usual one).
pub fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("guests");
        let status = Command::new(env!("CARGO"))
            // For tests, overflow checks matter more than speed.
            .args(["build", "--profile", "guest-checked", "--quiet"])
            .arg("--manifest-path")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env_remove("CARGO_BUILD_TARGET")
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the library does not build");
        target.join("guest-checked/libsunder_heap.so")
    })
}

/// Compiles `tests/programs/SOURCE`, once: another test may be executing the program by now.
pub fn compiled(compiler: &str, source: &str, arguments: &[&str]) -> PathBuf {
    static DONE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut done = DONE.lock().expect("no test panics while it compiles");
    let name = format!("{source}{}", arguments.join("")).replace(['.', '='], "-");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if !done.insert(path.clone()) {
        return path;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(source);
    let status = Command::new(compiler)
        .args(arguments)
        .args(["-g", "-pthread", "-o"])
        .args([&path, &source])
        .status()
        .expect("the compiler runs");
    assert!(status.success(), "{} does not compile", source.display());
    path
}

/// The names of all policies.
pub fn policies() -> [&'static str; 5] {
    ["general", "hoard", "sized", "call-site", "sized-call-site"]
}

/// `command` with the library preloaded.
pub fn preloaded<'a>(command: &'a mut Command, policy: &str) -> &'a mut Command {
    command
        .env("LD_PRELOAD", library())
        .env("SUNDER_HEAP", format!("{policy},64"))
}

/// Runs `command` until it ends; it must succeed.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().expect("it can be started");
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Whether a program of this name is installed.
pub fn installed(name: &str) -> bool {
    Path::new("/usr/bin").join(name).exists()
}
