//! Repairs from the view of `sunder top`: what the rows say of them, that leaving the view takes
//! everything out again, and that the program does not notice either, also if `top` is killed.

use crate::screen::Screen;
use crate::support::counting::{Target, cpu_times, program};
use crate::support::targets::{side_by_side, took};
use std::cell::Cell;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

const SUNDER: &str = env!("CARGO_BIN_EXE_sunder");

/// How long bytes must stay moved: longer than threads are measured, and than the tool's answers may
/// take.
const STAYS: Duration = Duration::from_secs(3);

/// Ends the target, as natively.
fn ends_well(target: Target) {
    let (text, success) = target.end();
    assert!(success, "{text}");
    assert!(text.contains("wrong 0"), "{text}");
}

fn has_prompt(text: &str) -> bool {
    text.trim_end().ends_with("\n>") && !text.contains("sunder top - ")
}

/// Opens a view of the target, and waits until it names what is shared.
fn watched(screen: &Screen, target: &Target) -> Result<(), String> {
    screen.enter(&format!("{SUNDER} top -q --pid {}", target.id()));
    screen.shows("object", |text| text.contains("shared"))?;
    Ok(())
}

/// Confirms the repair of the selected object in this process, and waits until its bytes have moved
/// and have stayed so for some time.
fn moved(screen: &Screen, process: &str) -> Result<String, String> {
    screen.press("r");
    screen.wait_for("question", |text| {
        text.contains("library of its own") && text.contains("y   do it")
    });
    screen.press("y");
    has_moved(screen, process)
}

thread_local! {
    /// How often the tool has found in this test that a move did not help.
    static NOT_HELPED: Cell<u32> = const { Cell::new(0) };
}

/// The same from the wish on. What goes wrong counts only if the threads of the process ran side by
/// side meanwhile: else they have nothing to gain, and their bytes go back. So may be while the tool
/// measures, if not on the whole: that a move did not help counts the third time.
fn has_moved(screen: &Screen, process: &str) -> Result<String, String> {
    let cpu = || cpu_times(process).unwrap_or_default();
    let (before, begun) = (cpu(), Instant::now());
    stays_moved(screen).map_err(|wrong| {
        let not_helped = NOT_HELPED.get() + u32::from(wrong.contains("did not help"));
        let is_chance = not_helped > NOT_HELPED.replace(not_helped) && not_helped < 3;
        let now = cpu();
        let (user, kernel) = (now.0 - before.0, now.1 - before.1);
        let used = if is_chance { 0.0 } else { user + kernel };
        took(used, begun.elapsed().as_secs_f64());
        format!("{wrong}\nmeanwhile it had {user:.2} s of CPU time in its code and {kernel:.2} s in the kernel")
    })
}

fn stays_moved(screen: &Screen) -> Result<String, String> {
    let is_back = |text: &str| text.contains("put back") || text.contains("not repaired: ");
    let is_moved = |text: &str| text.contains("moved: ") && !text.contains("measuring");
    let text = screen.shows("move", |text| is_back(text) || is_moved(text))?;
    let begun = Instant::now();
    while begun.elapsed() < STAYS {
        let text = screen.text();
        if is_back(&text) || !is_moved(&text) {
            return Err(format!("the bytes did not stay moved:\n{text}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(text)
}

/// Leaves the view, which takes the library out; the program goes on to its end.
fn left(screen: &Screen, target: Target) {
    screen.press("q");
    screen.wait_for("prompt", has_prompt);
    assert!(!target.has_library(), "it was taken out");
    ends_well(target);
}

#[test]
fn an_object_is_moved_and_put_back_by_keys() {
    let folder = tempfile::tempdir().expect("a folder");
    side_by_side("repair in top", || {
        let Some(screen) = Screen::open(folder.path(), 80, 24) else {
            return Ok(());
        };
        let target = Target::start(&[]);
        watched(&screen, &target)?;
        // Any other key leaves the program alone.
        screen.press("r");
        screen.wait_for("question", |text| text.contains("y   do it"));
        screen.press("n");
        screen.wait_for("objects", |text| text.contains("the last 30 s"));
        assert!(!target.has_library());
        let text = moved(&screen, &target.id())?;
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
        has_moved(&screen, &target.id())?;
        left(&screen, target);
        Ok(())
    });
}

#[test]
fn who_is_killed_leaves_a_program_that_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    side_by_side("killed top", || {
        let Some(screen) = Screen::open(folder.path(), 80, 24) else {
            return Ok(());
        };
        let target = Target::start(&[]);
        screen.enter(&format!(
            "{SUNDER} top -q --pid {} & echo $! > {}; fg",
            target.id(),
            folder.path().join("number").display()
        ));
        screen.shows("object", |text| text.contains("shared"))?;
        moved(&screen, &target.id())?;
        let number = std::fs::read_to_string(folder.path().join("number")).expect("written");
        let number: i32 = number.trim().parse().expect("a number");
        // SAFETY: takes two integers; the shell has not waited for the process.
        assert_eq!(unsafe { libc::kill(number, libc::SIGKILL) }, 0);
        screen.enter("reset");
        std::thread::sleep(Duration::from_millis(300));
        ends_well(target);
        Ok(())
    });
}

#[test]
fn a_program_that_can_t_be_repaired_is_told_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    side_by_side("refused in top", || {
        let Some(screen) = Screen::open(folder.path(), 80, 24) else {
            return Ok(());
        };
        let target = Target::start(&["no-code"]);
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
        let number = folder.path().join("number");
        let script = format!(
            "echo $$ > {}; exec {} < {}",
            number.display(),
            program().display(),
            fifo.display()
        );
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
        let number = std::fs::read_to_string(number).expect("written");
        moved(&screen, number.trim())?;
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
