//! What the end-to-end tests share: the program under test and small C targets
//! that are compiled on first use.

#![allow(dead_code, reason = "each test file uses a part of it")]

use assert_cmd::Command;
use std::path::{Path, PathBuf};

/// The `sunder` that cargo built for this test.
pub fn sunder() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.timeout(std::time::Duration::from_secs(120));
    command.env("NO_COLOR", "1");
    command
}

/// `sunder detect -- PROGRAM…`.
pub fn detect(program: &[&str]) -> Command {
    let mut command = sunder();
    command.args(["detect", "--"]).args(program);
    command
}

/// Compiles `tests/programs/NAME.c` with `-O1 -g -pthread` and `flags`.
///
/// Returns `None`, and says so, if the compiler can't link with these flags
/// here (a machine without static libraries, for example).
pub fn c_program(name: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
        .with_extension("c");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(format!("{name}{}", flags.concat()));
    // Tests run side by side: compile aside and rename.
    let aside = folder.join(format!("{name}.{:?}", std::thread::current().id()));
    let compiled = std::process::Command::new("gcc")
        .args(["-O1", "-g", "-pthread", "-o"])
        .arg(&aside)
        .arg(&source)
        .args(flags)
        .output()
        .expect("gcc is needed, as the README says");
    if !compiled.status.success() {
        assert!(
            !flags.is_empty(),
            "{}",
            String::from_utf8_lossy(&compiled.stderr)
        );
        println!(
            "SKIP: {name} with {flags:?}: {}",
            String::from_utf8_lossy(&compiled.stderr)
        );
        return None;
    }
    std::fs::rename(&aside, &program).expect("same folder");
    Some(program)
}
