//! Names come from the program, which may have chosen them to command a terminal. No line of
//! Sunder's shows such a name as it is.

use crate::support::{plain_sunder, targets};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long the program counts: long enough for something to be moved.
const COUNTS: Duration = Duration::from_secs(2);

#[test]
fn a_name_that_would_command_the_terminal_is_shown_without_its_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    let [plain, named] = ["plain", "named"].map(|name| folder.path().join(name));
    targets::compile_disguised(Path::new("of-nobody"), &[], &plain);
    // Turns the terminal's text red, and goes to the start of the line.
    let renamed = Command::new("objcopy")
        .arg("--redefine-sym=shared=sha\u{1b}[31m\rred")
        .args([&plain, &named])
        .status();
    assert!(renamed.expect("objcopy comes with gcc").success());
    targets::side_by_side("a name with commands", || {
        let mut program = plain_sunder()
            .args(["repair", "--"])
            .arg(&named)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sunder starts");
        std::thread::sleep(COUNTS);
        let mut input = program.stdin.take().expect("piped");
        input.write_all(b"x").expect("the program lives");
        let told = program.wait_with_output().expect("it ends").stderr;
        let told = String::from_utf8(told).expect("text");
        let commands = told.chars().any(|c| c.is_control() && c != '\n');
        assert!(!commands, "{told:?}");
        let line = |line: &str| line.starts_with("sunder: ") && line.contains("sha\u{fffd}[31m");
        if told.lines().any(line) {
            return Ok(());
        }
        Err(format!("no line of it names what was moved: {told}"))
    });
}
