//! A line on the last row of the terminal. The program that is observed writes to the same terminal,
//! and nobody tells us before it does. So its rows scroll above the last one (a scrolling region, as
//! `apt` makes one), and the two never meet. Each drawing is one write that leaves the cursor and its
//! colours as they were.
//!
//! A program that takes the terminal over for itself (an editor) is left alone with it for good.
//! Nothing is written where the terminal can't take it at once, so that nobody waits for it.

use crate::terminal;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// On a smaller terminal nothing is drawn.
const FEWEST_ROWS: u16 = 8;
const FEWEST_COLUMNS: u16 = 40;

/// What is on the terminal.
#[derive(Debug, Default)]
struct Row {
    /// The rows of the terminal when the last one was taken; `None` while it is not.
    taken: Option<u16>,
    /// The program has taken the terminal over.
    given_up: bool,
}

static ROW: Mutex<Row> = Mutex::new(Row {
    taken: None,
    given_up: false,
});

fn row() -> MutexGuard<'static, Row> {
    ROW.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is over by then has no line.
const BEGINS: Duration = Duration::from_secs(2);

/// The line, which is taken away when the value is dropped, before Ctrl-Z stops this process, and
/// before a panic is told.
pub struct Line(());

impl Line {
    /// A line that nothing is on yet; `None` if no terminal can have one.
    pub fn begin() -> Option<Self> {
        let kind = std::env::var_os("TERM").unwrap_or_default();
        if !std::io::stderr().is_terminal() || kind.is_empty() || kind == "dumb" {
            return None;
        }
        // Asked now, as long as this process may.
        if !is_ours() {
            return None;
        }
        sunder_live::before_leaving(clear_at_once);
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            clear_at_once();
            usual(panic);
        }));
        Some(Self(()))
    }

    /// Draws `text`, which is clean, after so much time of what it is about.
    pub fn draw(&self, elapsed: Duration, text: &str) {
        draw(elapsed, text);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        clear();
    }
}

/// Draws `text`, or nothing where that would disturb anybody.
pub fn draw(elapsed: Duration, text: &str) {
    if elapsed < BEGINS {
        return;
    }
    let text = if terminal::is_ascii() {
        sunder_report::in_ascii(text)
    } else {
        text.to_owned()
    };
    let mut row = row();
    let Some((columns, rows)) = size() else {
        return;
    };
    if row.given_up || rows < FEWEST_ROWS || columns < FEWEST_COLUMNS || !is_ours() {
        return;
    }
    if !has_lines() {
        if row.taken.take().is_some() {
            write(&give_back(None));
        }
        row.given_up = true;
        return;
    }
    if !can_take() {
        return;
    }
    let begins = if row.taken == Some(rows) {
        String::new()
    } else {
        take(rows, row.taken.is_some())
    };
    row.taken = Some(rows);
    // A terminal wraps a line that is as wide as it.
    let text: String = text.chars().take(usize::from(columns) - 1).collect();
    write(&format!(
        "{begins}\x1b7\x1b[{rows};1H\x1b[0;2m\x1b[2K{text}\x1b[0m\x1b8"
    ));
}

/// Takes the line away, if it is there.
fn clear() {
    if let Some(rows) = row().taken.take()
        && is_ours()
    {
        let same = size().is_some_and(|(_, now)| now == rows);
        write(&give_back(same.then_some(rows)));
    }
}

/// As [`clear`], when this process is about to stop or to die, in a signal handler or a panic: it waits
/// for nothing and takes no memory.
fn clear_at_once() {
    let Ok(mut row) = ROW.try_lock() else { return };
    let Some(rows) = row.taken.take() else { return };
    let mut text = [0_u8; 40];
    let mut rest = &mut text[..];
    let told = write!(rest, "\x1b7\x1b[r\x1b[{rows};1H\x1b[2K\x1b8");
    let left = rest.len();
    if told.is_err() {
        return;
    }
    let length = text.len() - left;
    // SAFETY: the text has at least so many bytes.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), length) };
}

/// Makes room: the cursor goes down and up again, so that it is not on the last row, and then all rows
/// but that one scroll. If the terminal had another size before, the line that was drawn then is below
/// the cursor.
fn take(rows: u16, again: bool) -> String {
    let last = rows - 1;
    let erase = if again { "\x1b[B\r\x1b[J" } else { "" };
    format!("\x1b7\x1b[r\x1b8\x1bD\x1b[A\x1b7{erase}\x1b[1;{last}r\x1b8")
}

/// All rows scroll again, and the last one of `rows` is empty, if that is asked for.
fn give_back(rows: Option<u16>) -> String {
    let erase = rows.map(|rows| format!("\x1b[{rows};1H\x1b[2K"));
    format!("\x1b7\x1b[r{}\x1b8", erase.unwrap_or_default())
}

fn write(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Columns and rows of the terminal.
fn size() -> Option<(u16, u16)> {
    let (columns, rows) = terminal_size::terminal_size_of(std::io::stderr())?;
    Some((columns.0, rows.0))
}

/// Whether this process is in the terminal's foreground.
fn is_ours() -> bool {
    terminal::is_in_foreground(libc::STDERR_FILENO)
}

/// Whether the terminal works by lines. A program that shows a screen of its own has changed that.
fn has_lines() -> bool {
    // SAFETY: plain data, for which zeroes are valid, as a place for the answer.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        libc::tcgetattr(libc::STDERR_FILENO, &raw mut settings) == 0
            && settings.c_lflag & libc::ICANON != 0
            && settings.c_oflag & libc::OPOST != 0
    }
}

/// Whether the terminal takes text at once: the user may have held it with Ctrl-S.
fn can_take() -> bool {
    let mut asked = libc::pollfd {
        fd: libc::STDERR_FILENO,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&raw mut asked, 1, 0) == 1 && asked.revents & libc::POLLOUT != 0 }
}
