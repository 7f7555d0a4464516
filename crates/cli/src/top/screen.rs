//! The terminal while the view is on it: a screen of its own without line editing, and the keys. What was
//! there before comes back at the end, before a signal stops or ends this process, and before a panic
//! is told.

use crate::terminal::is_in_foreground;
use anyhow::{Result, bail};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The terminal's descriptor, and its settings from before.
static BEFORE: OnceLock<(RawFd, libc::termios)> = OnceLock::new();
/// Whether the view is on the terminal.
static IS_ON: AtomicBool = AtomicBool::new(false);

const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[0m\x1b[2J";
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// The terminal of this process. Its screen is given back when the value is dropped.
pub struct Screen {
    terminal: File,
    /// Keys that were read and not taken yet.
    typed: Vec<u8>,
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// The arrow up.
    Up,
    /// The arrow down.
    Down,
    /// The key Enter.
    Enter,
    /// The key Escape.
    Escape,
    /// The key Backspace.
    Back,
    /// Ctrl-C.
    Interrupt,
}

impl Screen {
    /// Takes the terminal of this process.
    ///
    /// # Errors
    /// If it has none.
    pub fn open() -> Result<Self> {
        let terminal = File::options().read(true).write(true).open("/dev/tty");
        let Ok(terminal) = terminal else {
            bail!(
                "sunder top needs a terminal, and none controls this process (there is no /dev/tty)"
            );
        };
        // SAFETY: plain data, for which zeroes are valid, as a place for the answer.
        let (settings, known) = unsafe {
            let mut settings: libc::termios = std::mem::zeroed();
            let known = libc::tcgetattr(terminal.as_raw_fd(), &raw mut settings) == 0;
            (settings, known)
        };
        anyhow::ensure!(known, "the terminal does not tell its settings");
        let _ = BEFORE.set((terminal.as_raw_fd(), settings));
        sunder_live::before_leaving(restore);
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            usual(panic);
        }));
        Ok(Self {
            terminal,
            typed: Vec::new(),
        })
    }

    /// Puts the view on the terminal, if it is not there and this process is in the foreground. Returns
    /// whether everything has to be drawn again.
    pub fn enter(&mut self) -> bool {
        let Some((terminal, settings)) = BEFORE.get() else {
            return false;
        };
        if !is_in_foreground(*terminal) || IS_ON.swap(true, Ordering::SeqCst) {
            return false;
        }
        let mut raw = *settings;
        // SAFETY: valid settings.
        unsafe {
            libc::cfmakeraw(&raw mut raw);
            raw.c_cc[libc::VMIN] = 0;
            raw.c_cc[libc::VTIME] = 0;
            libc::tcsetattr(*terminal, libc::TCSANOW, &raw const raw);
        }
        let _ = self.terminal.write_all(ENTER);
        true
    }

    /// Whether the view is on the terminal.
    pub fn is_on(&self) -> bool {
        IS_ON.load(Ordering::SeqCst)
    }

    /// Gives the terminal back.
    pub fn leave(&self) {
        restore();
    }

    /// Columns and rows.
    pub fn size(&self) -> (u16, u16) {
        terminal_size::terminal_size_of(&self.terminal).map_or((80, 24), |(c, r)| (c.0, r.0))
    }

    /// Writes what draws the view.
    pub fn write(&mut self, text: &str) {
        let _ = self.terminal.write_all(text.as_bytes());
    }

    /// The keys that were pressed since the last call.
    pub fn keys(&mut self) -> Vec<Key> {
        let mut bytes = [0; 256];
        if self.is_on()
            && let Ok(read) = self.terminal.read(&mut bytes)
        {
            self.typed.extend_from_slice(&bytes[..read]);
        }
        let typed = std::mem::take(&mut self.typed);
        keys_in(&typed)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back. It makes async-signal-safe calls only.
fn restore() {
    if let Some((terminal, settings)) = BEFORE.get()
        && IS_ON.swap(false, Ordering::SeqCst)
    {
        // SAFETY: the text has this length, and the settings are those that the kernel told.
        unsafe {
            libc::write(*terminal, LEAVE.as_ptr().cast(), LEAVE.len());
            libc::tcsetattr(*terminal, libc::TCSANOW, settings);
        }
    }
}

/// The keys in what a terminal sends. Sequences of other keys are dropped.
fn keys_in(bytes: &[u8]) -> Vec<Key> {
    let text = String::from_utf8_lossy(bytes);
    let mut keys = Vec::new();
    let mut rest = text.as_ref();
    while let Some(first) = rest.chars().next() {
        if let Some(sequence) = rest.strip_prefix("\x1b[").or(rest.strip_prefix("\x1bO")) {
            let ends = |c: char| ('@'..='~').contains(&c);
            let end = sequence.find(ends).unwrap_or(sequence.len());
            match sequence.get(..=end) {
                Some("A") => keys.push(Key::Up),
                Some("B") => keys.push(Key::Down),
                _ => {}
            }
            rest = sequence.get(end + 1..).unwrap_or_default();
            continue;
        }
        keys.extend(match first {
            '\x03' => Some(Key::Interrupt),
            '\r' | '\n' => Some(Key::Enter),
            '\x1b' => Some(Key::Escape),
            '\x7f' | '\x08' => Some(Key::Back),
            c if c.is_control() => None,
            c => Some(Key::Char(c)),
        });
        rest = &rest[first.len_utf8()..];
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_other_sequences_dropped() {
        assert_eq!(
            keys_in(b"j\x1b[A\x1bOBq"),
            [Key::Char('j'), Key::Up, Key::Down, Key::Char('q')]
        );
        assert_eq!(keys_in(b"\x1b[15~\x1b[1;5Cx"), [Key::Char('x')]);
        assert_eq!(keys_in(b"\x1b"), [Key::Escape]);
        assert_eq!(
            keys_in(b"\r\x7f\x03\x1a"),
            [Key::Enter, Key::Back, Key::Interrupt]
        );
        assert_eq!(keys_in(b"\x1b["), []);
    }
}
