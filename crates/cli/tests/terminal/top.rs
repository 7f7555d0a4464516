//! `sunder top`: what it shows and how keys change it, and that the terminal comes back.

use crate::screen::Screen;
use crate::support::sunder;
use crate::support::targets::{build, side_by_side};
use std::path::Path;
use sunder_workloads::Variant;

const SUNDER: &str = env!("CARGO_BIN_EXE_sunder");

/// Iterations for minutes of work.
const LONG: &str = "80000000000";

fn is_view(text: &str) -> bool {
    text.starts_with("sunder top - ") && text.contains(" leave ")
}

fn has_prompt(text: &str) -> bool {
    text.trim_end().ends_with("\n>") && !text.contains("sunder top - ")
}

/// The terminal works by lines again and shows what is typed.
fn is_usual(screen: &Screen) {
    screen.enter("stty -a | tr ' ' '\\n' | grep -cxE 'icanon;?|echo;?|opost;?'");
    screen.wait_for("usual settings", |text| text.lines().any(|row| row == "3"));
}

#[test]
fn objects_are_listed_opened_filtered_and_frozen() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = build("thread_stats", Variant::Shared);
    side_by_side("top", || {
        let Some(screen) = Screen::open(folder.path(), 80, 24) else {
            return Ok(());
        };
        screen.enter(&format!("{SUNDER} top -- {} 2 {LONG}", program.display()));
        let is_listed = |text: &str| is_view(text) && text.contains("stats (struct thread_stats");
        let text = screen.shows("object", is_listed)?;
        assert_eq!(text.lines().count(), 24, "{text}");
        // The line by byte and thread, the code, and the threads.
        for part in ["WWWWWWWW", "thread_stats.c:", "share of a CPU"] {
            screen.shows(part, |text| is_view(text) && text.contains(part))?;
        }
        screen.press("Enter");
        screen.wait_for("finding", |text| {
            is_view(text) && text.contains("what to do")
        });
        screen.press("Escape");
        screen.wait_for("objects", is_listed);
        screen.press("s");
        screen.wait_for("other order", |text| text.contains("sort: run"));
        screen.press("/");
        screen.wait_for("filter", |text| text.contains("filter: _"));
        for key in ["z", "z", "z", "Enter"] {
            screen.press(key);
        }
        screen.wait_for("nothing that fits", |text| text.contains("No object fits"));
        screen.press("Escape");
        screen.wait_for("objects", is_listed);
        screen.press("Space");
        let frozen = screen.wait_for("mark", |text| text.contains("FROZEN"));
        std::thread::sleep(std::time::Duration::from_secs(2));
        assert_eq!(screen.text(), frozen);
        screen.press("Space");
        screen.wait_for("going on", |text| !text.contains("FROZEN"));
        for (columns, rows) in [(120, 40), (60, 16), (80, 24)] {
            screen.resize(columns, rows);
            let text = screen.wait_for("new size", |text| {
                is_listed(text) && text.lines().count() == usize::from(rows)
            });
            assert_eq!(text.matches("sunder top - ").count(), 1, "{text}");
        }
        screen.press("?");
        screen.wait_for("help", |text| text.contains("A repair puts a library"));
        screen.press("C-c");
        screen.wait_for("prompt", has_prompt);
        assert!(screen.history().contains("stats (struct thread_stats"));
        screen.enter("echo status $?");
        screen.wait_for("status", |text| text.contains("status 130"));
        is_usual(&screen);
        Ok(())
    });
}

/// Opens a terminal, and runs a script under `top` in it.
fn scripted(folder: &Path, script: &str, before: &str) -> Option<Screen> {
    std::fs::write(folder.join("script"), script).expect("written");
    let screen = Screen::open(folder, 80, 24)?;
    screen.enter(&format!(
        "cd {} && {before} {SUNDER} top -q -- sh script",
        folder.display()
    ));
    Some(screen)
}

const UNTIL_STOP: &str =
    "i=0; while [ ! -e stop ]; do i=$((i+1)); echo tick $i; sleep 0.1; done; exit 7";

#[test]
fn what_the_program_prints_comes_after_the_view_and_its_input_is_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!("cat; echo to errors >&2; {UNTIL_STOP}");
    let Some(screen) = scripted(folder.path(), &script, "") else {
        return;
    };
    screen.wait_for("view", |text| {
        is_view(text) && text.contains("No line is seen")
    });
    std::thread::sleep(std::time::Duration::from_secs(1));
    let text = screen.text();
    assert!(is_view(&text) && !text.contains("tick"), "{text}");
    std::fs::write(folder.path().join("stop"), "").expect("written");
    screen.wait_for("prompt", has_prompt);
    let history = screen.history();
    for line in ["to errors", "tick 1", "tick 5"] {
        assert!(
            history.lines().any(|row| row.trim_end() == line),
            "{line}: {history}"
        );
    }
    screen.enter("echo status $?");
    screen.wait_for("status", |text| text.contains("status 7"));
    is_usual(&screen);
}

/// They are the program's, whole and apart from each other.
#[test]
fn streams_that_are_no_terminal_are_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    // More than what a file of output was once cut down to.
    let script = "cat; seq 300000; echo to errors >&2";
    std::fs::write(folder.path().join("script"), script).expect("written");
    let Some(screen) = Screen::open(folder.path(), 80, 24) else {
        return;
    };
    screen.enter(&format!(
        "cd {} && echo from a pipe | {SUNDER} top -- sh script >out 2>err; echo status $?",
        folder.path().display()
    ));
    screen.wait_for("status", |text| text.contains("status 0"));
    let read = |name| std::fs::read_to_string(folder.path().join(name)).expect("it was written");
    let numbers: String = (1..=300_000).map(|n| format!("{n}\n")).collect();
    let (out, err) = (read("out"), read("err"));
    let whole = format!("from a pipe\n{numbers}");
    let begins = &out[..out.len().min(100)];
    assert!(out == whole, "{} bytes: {begins} ...", out.len());
    let report = err.strip_prefix("to errors\n").unwrap_or_default();
    // There is no option to follow the children.
    assert!(report.contains("which were not looked at."), "{err}");
    is_usual(&screen);
}

#[test]
fn who_leaves_the_view_leaves_the_program_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(screen) = scripted(folder.path(), UNTIL_STOP, "LC_ALL=C") else {
        return;
    };
    let text = screen.wait_for("view", is_view);
    assert!(text.is_ascii(), "{text}");
    screen.press("q");
    screen.wait_for("notice", |text| text.contains("the program goes on"));
    std::fs::write(folder.path().join("stop"), "").expect("written");
    screen.wait_for("prompt", has_prompt);
    screen.enter("echo status $?");
    screen.wait_for("status", |text| text.contains("status 7"));
    is_usual(&screen);
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let folder = tempfile::tempdir().expect("a folder");
    for (signal, status) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        // The shell tells its parent's number, which is that of `sunder`.
        let script = format!("echo $PPID >sunder; {UNTIL_STOP}");
        let Some(screen) = scripted(folder.path(), &script, "") else {
            return;
        };
        screen.wait_for("view", is_view);
        let file = folder.path().join("sunder");
        // The view may be there before the shell has begun.
        screen.wait_for("the shell's file", |_| {
            std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n'))
        });
        let number = std::fs::read_to_string(&file).expect("it is there");
        std::fs::remove_file(&file).expect("ours");
        let kill = std::process::Command::new("kill")
            .args(["-s", signal, number.trim()])
            .status();
        assert!(kill.expect("kill runs").success());
        screen.wait_for("prompt", has_prompt);
        screen.enter("echo status $?");
        screen.wait_for("status", |text| text.contains(&format!("status {status}")));
        is_usual(&screen);
    }
}

#[test]
fn a_running_process_is_watched_until_the_user_leaves() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(screen) = Screen::open(folder.path(), 80, 24) else {
        return;
    };
    let mut sleep = std::process::Command::new("sleep")
        .arg("300")
        .spawn()
        .expect("it starts");
    screen.enter(&format!("{SUNDER} top -q --pid {}", sleep.id()));
    screen.wait_for("view", |text| {
        is_view(text) && text.contains(&format!("({})", sleep.id()))
    });
    screen.press("q");
    screen.wait_for("prompt", has_prompt);
    is_usual(&screen);
    assert!(sleep.try_wait().expect("ours").is_none(), "it goes on");
    sleep.kill().expect("ours");
    sleep.wait().expect("ours");
}

#[test]
fn without_a_terminal_or_anything_to_watch_there_is_no_view() {
    sunder().arg("top").assert().code(2);
    sunder()
        .args(["top", "--pid", "1", "--", "true"])
        .assert()
        .code(2);
    let alone = std::process::Command::new("setsid")
        .args(["--wait", SUNDER, "top", "--", "echo", "ran"])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("setsid runs");
    assert_eq!(alone.status.code(), Some(125));
    assert_eq!(alone.stdout, b"");
    let said = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(said.contains("needs a terminal"), "{said}");
}
