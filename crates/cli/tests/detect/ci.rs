//! What others put into their continuous integration (`action.yml`, `contrib/ci`), run on a program before
//! and after a change by `contrib/ci/test`, which has stand-ins for what only the services have.

use crate::support::installed::installed;
use std::process::Command;

const TEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/ci/test");

/// The status with which the script says that something it needs is missing.
const SKIPPED: i32 = 77;

#[test]
fn a_change_that_brings_false_sharing_fails_and_is_commented() {
    let Some(python) = installed("python3") else {
        return;
    };
    let output = Command::new(python)
        .args([TEST, env!("CARGO_BIN_EXE_sunder")])
        .output()
        .expect("python starts");
    let told = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(SKIPPED) {
        println!("{}", told.trim());
        return;
    }
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{failed}");
    assert!(told.contains(" passed, 0 failed"), "{told}");
}
