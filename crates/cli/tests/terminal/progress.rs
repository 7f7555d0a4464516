//! The line of the progress: it lives on the last row, and the program's output never meets it.

use crate::screen::Screen;
use std::path::Path;

const SUNDER: &str = env!("CARGO_BIN_EXE_sunder");

/// What a line of the progress begins with.
const LINE: &str = "sunder: ";

/// A shell's script that prints `tick` and a number until there is a file `stop`.
const TICKS: &str =
    "i=0; while [ ! -e stop ]; do i=$((i+1)); echo tick $i; sleep 0.1; done; echo ended";

fn ticking(folder: &Path, command: &str) -> Option<Screen> {
    std::fs::write(folder.join("ticks"), TICKS).expect("written");
    let screen = Screen::open(folder, 80, 16)?;
    screen.enter(&format!(
        "cd {} && {SUNDER} {command} -- sh ticks",
        folder.display()
    ));
    Some(screen)
}

/// Whether the last row has the line, and the row above it nothing of it.
fn has_line(text: &str) -> bool {
    text.lines()
        .last()
        .is_some_and(|row| row.starts_with(LINE) && row.contains("samples"))
}

/// The numbers of the ticks must follow each other, and each have a row of its own.
fn ticks_are_whole(history: &str) {
    let ticks = history.lines().filter(|row| row.contains("tick "));
    let ticks: Vec<_> = ticks.map(str::trim_end).collect();
    let expected = (1..=ticks.len()).map(|number| format!("tick {number}"));
    assert_eq!(ticks, expected.collect::<Vec<_>>(), "{history}");
    assert!(ticks.len() > 20, "it has not scrolled: {history}");
}

#[test]
fn the_line_is_on_the_last_row_and_no_output_meets_it() {
    let folder = tempfile::tempdir().expect("a folder");
    for command in ["detect", "repair", "protect", "cure"] {
        let _ = std::fs::remove_file(folder.path().join("stop"));
        let Some(screen) = ticking(folder.path(), command) else {
            return;
        };
        screen.wait_for("line", has_line);
        screen.wait_for("line below a full screen", |text| {
            has_line(text) && text.contains("tick 30")
        });
        std::fs::write(folder.path().join("stop"), "").expect("written");
        screen.wait_for("prompt", |text| text.trim_end().ends_with("\n>"));
        let history = screen.history();
        ticks_are_whole(&history);
        assert!(!history.contains(" samples · "), "{command}: {history}");
        // All rows scroll again.
        screen.enter("seq 40");
        screen.wait_for("end of seq on the last row", |text| {
            let rows: Vec<_> = text.lines().collect();
            rows.len() == 16 && rows[14] == "40" && rows[15].starts_with('>')
        });
    }
}

#[test]
fn before_a_stop_the_line_is_taken_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(screen) = ticking(folder.path(), "detect") else {
        return;
    };
    screen.wait_for("line", has_line);
    screen.press("C-z");
    screen.wait_for("prompt", |text| text.trim_end().ends_with('>'));
    let text = screen.text();
    assert!(!text.contains(LINE), "{text}");
    screen.enter("fg");
    screen.wait_for("line again", has_line);
    std::fs::write(folder.path().join("stop"), "").expect("written");
    screen.wait_for("prompt", |text| text.trim_end().ends_with("\n>"));
    assert!(screen.history().contains("ended"));
}

#[test]
fn a_larger_terminal_has_the_line_on_its_last_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(screen) = ticking(folder.path(), "detect") else {
        return;
    };
    screen.wait_for("line", has_line);
    for rows in [24, 12] {
        screen.resize(100, rows);
        screen.wait_for("line", |text| {
            has_line(text) && text.lines().count() == usize::from(rows)
        });
    }
    std::fs::write(folder.path().join("stop"), "").expect("written");
    screen.wait_for("prompt", |text| text.trim_end().ends_with("\n>"));
    assert!(screen.history().contains("ended"));
}

#[test]
fn the_quiet_and_those_who_have_no_terminal_have_no_line() {
    let folder = tempfile::tempdir().expect("a folder");
    for command in ["detect -q", "detect 2>errors"] {
        let _ = std::fs::remove_file(folder.path().join("stop"));
        let Some(screen) = ticking(folder.path(), command) else {
            return;
        };
        // Longer than the line is waited for.
        screen.wait_for("ticks", |text| text.contains("tick 40"));
        assert!(!screen.text().contains(LINE), "{}", screen.text());
        std::fs::write(folder.path().join("stop"), "").expect("written");
        screen.wait_for("prompt", |text| text.trim_end().ends_with("\n>"));
        assert!(screen.history().contains("ended"));
    }
    let errors = std::fs::read_to_string(folder.path().join("errors")).expect("readable");
    assert!(
        !errors.contains('\u{1b}') && !errors.contains(LINE),
        "{errors}"
    );
}

#[test]
fn a_program_that_takes_the_terminal_over_is_left_alone_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(
        folder.path().join("ticks"),
        "stty raw -echo; printf 'raw\\r\\n'; while [ ! -e stop ]; do sleep 0.1; done; stty sane; echo ended",
    )
    .expect("written");
    let Some(screen) = Screen::open(folder.path(), 80, 16) else {
        return;
    };
    screen.enter(&format!(
        "cd {} && {SUNDER} detect -- sh ticks",
        folder.path().display()
    ));
    screen.wait_for("beginning", |text| text.lines().any(|row| row == "raw"));
    std::thread::sleep(std::time::Duration::from_secs(4));
    let text = screen.text();
    assert!(!text.contains(LINE), "{text}");
    std::fs::write(folder.path().join("stop"), "").expect("written");
    screen.wait_for("prompt", |text| text.trim_end().ends_with("\n>"));
    assert!(screen.history().contains("ended"));
}
