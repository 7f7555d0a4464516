//! Repairs from the view of `sunder top`: what the rows say of them, that leaving the view takes
//! everything out again, and that the program does not notice either, also if `top` is killed.

use crate::screen::Screen;
use crate::support::targets::side_by_side;
use crate::support::{Ended, c_program};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

const SUNDER: &str = env!("CARGO_BIN_EXE_sunder");

/// The program of the tests of `attach --repair`: it counts until it is told to end, and says whether
/// all counts are right.
struct Target {
    process: Ended,
    output: BufReader<ChildStdout>,
}

/// Compiled once: the program of one test must not lose its file to that of the next.
fn program() -> PathBuf {
    static PROGRAM: LazyLock<Option<PathBuf>> = LazyLock::new(|| c_program("attached", &[]));
    PROGRAM.clone().expect("gcc is needed, as the README says")
}

impl Target {
    fn start(program: &PathBuf, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = Ended::new(&mut command);
        let mut output = BufReader::new(process.child().stdout.take().expect("piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("readable");
        assert!(line == "ready\n" || line == "not ready\n", "{line}");
        Self { process, output }
    }

    fn has_library(&self) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.process.id()));
        maps.expect("the process lives").contains("sunder-remap")
    }

    /// Ends it, as natively.
    fn ends_well(mut self) {
        let mut input = self.process.child().stdin.take().expect("piped");
        input.write_all(b"x").expect("it reads");
        drop(input);
        let mut text = String::new();
        self.output.read_to_string(&mut text).expect("readable");
        let status = self.process.child().wait().expect("waited for");
        assert!(status.success(), "{status}: {text}");
        assert!(text.contains("wrong 0"), "{text}");
    }
}

fn has_prompt(text: &str) -> bool {
    text.trim_end().ends_with("\n>") && !text.contains("sunder top - ")
}

/// Opens a view of the target, and waits until it names what is shared.
fn watched(screen: &Screen, target: &Target) -> Result<(), String> {
    screen.enter(&format!("{SUNDER} top -q --pid {}", target.process.id()));
    screen.shows("object", |text| text.contains("shared"))?;
    Ok(())
}

/// Confirms the repair of the selected object, and waits until its bytes have moved. `None`, with a
/// notice, if they did not stay: on a busy machine they go back, with the reason.
fn moved(screen: &Screen) -> Result<Option<String>, String> {
    screen.press("r");
    screen.wait_for("question", |text| {
        text.contains("library of its own") && text.contains("y   do it")
    });
    screen.press("y");
    has_moved(screen)
}

fn has_moved(screen: &Screen) -> Result<Option<String>, String> {
    let is_back = |text: &str| text.contains("put back: ") || text.contains("not repaired: ");
    let text = screen.shows("move", |text| {
        is_back(text) || text.contains("moved: ") && !text.contains("measuring")
    })?;
    if is_back(&text) {
        println!("SKIP: the bytes did not stay moved:\n{text}");
        return Ok(None);
    }
    Ok(Some(text))
}

/// Leaves the view, which takes the library out; the program goes on to its end.
fn left(screen: &Screen, target: Target) {
    screen.press("q");
    screen.wait_for("prompt", has_prompt);
    assert!(!target.has_library(), "it was taken out");
    target.ends_well();
}

#[test]
fn an_object_is_moved_and_put_back_by_keys() {
    let program = program();
    let folder = tempfile::tempdir().expect("a folder");
    side_by_side("repair in top", || {
        let Some(screen) = Screen::open(folder.path(), 80, 24) else {
            return Ok(());
        };
        let target = Target::start(&program, &[]);
        watched(&screen, &target)?;
        // Any other key leaves the program alone.
        screen.press("r");
        screen.wait_for("question", |text| text.contains("y   do it"));
        screen.press("n");
        screen.wait_for("objects", |text| text.contains("the last 30 s"));
        assert!(!target.has_library());
        let Some(text) = moved(&screen)? else {
            left(&screen, target);
            return Ok(());
        };
        assert!(target.has_library());
        assert!(
            text.contains("times as fast") || text.contains("not known"),
            "{text}"
        );
        assert!(text.lines().all(|row| row.chars().count() <= 80), "{text}");
        screen.press("u");
        screen.shows("return", |text| text.contains("put back: you put it back"))?;
        // Once the library is there, no question is asked.
        screen.press("r");
        // What was put back by hand is shown until it moves.
        screen.shows("second move", |text| !text.contains("you put it back"))?;
        has_moved(&screen)?;
        left(&screen, target);
        Ok(())
    });
}

#[test]
fn who_is_killed_leaves_a_program_that_goes_on() {
    let program = program();
    let folder = tempfile::tempdir().expect("a folder");
    side_by_side("killed top", || {
        let Some(screen) = Screen::open(folder.path(), 80, 24) else {
            return Ok(());
        };
        let target = Target::start(&program, &[]);
        screen.enter(&format!(
            "{SUNDER} top -q --pid {} & echo $! > {}; fg",
            target.process.id(),
            folder.path().join("number").display()
        ));
        screen.shows("object", |text| text.contains("shared"))?;
        if moved(&screen)?.is_none() {
            left(&screen, target);
            return Ok(());
        }
        let number = std::fs::read_to_string(folder.path().join("number")).expect("written");
        let number: i32 = number.trim().parse().expect("a number");
        // SAFETY: takes two integers; the shell has not waited for the process.
        assert_eq!(unsafe { libc::kill(number, libc::SIGKILL) }, 0);
        screen.enter("reset");
        std::thread::sleep(Duration::from_millis(300));
        target.ends_well();
        Ok(())
    });
}

#[test]
fn a_program_that_can_t_be_repaired_is_told_and_left_alone() {
    let program = program();
    let folder = tempfile::tempdir().expect("a folder");
    side_by_side("refused in top", || {
        let Some(screen) = Screen::open(folder.path(), 80, 24) else {
            return Ok(());
        };
        let target = Target::start(&program, &["no-code"]);
        watched(&screen, &target)?;
        screen.press("r");
        screen.wait_for("question", |text| text.contains("y   do it"));
        screen.press("y");
        screen.shows("reason", |text| {
            text.contains("repair: refused") && text.contains("not repaired: ")
        })?;
        assert!(!target.has_library());
        left(&screen, target);
        Ok(())
    });
}

#[test]
fn a_program_that_was_started_here_goes_on_after_a_repair() {
    let program = program();
    let folder = tempfile::tempdir().expect("a folder");
    side_by_side("repair of a child", || {
        let Some(screen) = Screen::open(folder.path(), 80, 24) else {
            return Ok(());
        };
        let fifo = folder.path().join("end");
        let _ = std::fs::remove_file(&fifo);
        let made = Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .expect("mkfifo runs");
        assert!(made.success());
        // Standard input is the view's, so the program gets its byte from elsewhere.
        let script = format!("exec {} < {}", program.display(), fifo.display());
        std::fs::write(folder.path().join("script"), script).expect("written");
        screen.enter(&format!(
            "{SUNDER} top -q -- sh {}/script",
            folder.path().display()
        ));
        let mut input = std::fs::File::options()
            .write(true)
            .open(&fifo)
            .expect("ours");
        screen.shows("object", |text| text.contains("shared"))?;
        moved(&screen)?;
        screen.press("q");
        screen.wait_for("notice", |text| text.contains("the program goes on"));
        input.write_all(b"x").expect("it reads");
        drop(input);
        screen.wait_for("prompt", has_prompt);
        let history = screen.history();
        assert!(history.contains("wrong 0"), "{history}");
        screen.enter("echo status $?");
        screen.wait_for("status", |text| text.contains("status 0"));
        Ok(())
    });
}
