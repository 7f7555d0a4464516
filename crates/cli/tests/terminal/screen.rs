//! A terminal of a given size with a shell in it. Without `tmux` there is none.

use crate::support::targets::as_our_session;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a screen is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The terminal. Its server ends with the value.
pub struct Screen {
    socket: PathBuf,
}

impl Screen {
    /// A terminal with a shell that has printed its prompt, `> `; `None`, with a notice, without `tmux`.
    pub fn open(folder: &Path, columns: u16, rows: u16) -> Option<Self> {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        // The server of an earlier screen may still be ending.
        let number = OPENED.fetch_add(1, Relaxed);
        let screen = Self {
            socket: folder.join(format!("tmux-{number}")),
        };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let shell = "env PS1='> ' LC_ALL=C.UTF-8 sh";
        let size = ["-x", &columns, "-y", &rows];
        let mut words = vec!["-f", "/dev/null", "-u", "new-session", "-d"];
        words.extend(size);
        words.push(shell);
        let Some(opened) = screen.tmux(&words) else {
            println!("SKIP: there is no tmux");
            return None;
        };
        assert!(opened.status.success(), "{opened:?}");
        let numbers = screen.tmux(&["display-message", "-p", "#{pid} #{pane_pid}"]);
        let numbers = String::from_utf8(numbers.expect("tmux runs").stdout).expect("utf-8");
        for number in numbers.split_whitespace() {
            as_our_session(number.parse().expect("a number"));
        }
        screen.wait_for("the prompt", |text| text.starts_with('>'));
        Some(screen)
    }

    fn tmux(&self, words: &[&str]) -> Option<Output> {
        let mut tmux = Command::new("tmux");
        tmux.env("LC_ALL", "C.UTF-8").arg("-S").arg(&self.socket);
        tmux.args(words).output().ok()
    }

    /// Types `text` and Enter.
    pub fn enter(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]).expect("tmux runs");
        self.press("Enter");
    }

    /// Presses a key, by its name in `tmux`.
    pub fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]).expect("tmux runs");
    }

    /// Gives the terminal another size.
    pub fn resize(&self, columns: u16, rows: u16) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.tmux(&["resize-window", "-x", &columns, "-y", &rows])
            .expect("tmux runs");
    }

    /// What it shows.
    pub fn text(&self) -> String {
        let shown = self.tmux(&["capture-pane", "-p"]).expect("tmux runs");
        String::from_utf8(shown.stdout).expect("utf-8")
    }

    /// What it shows, with all that has scrolled away.
    pub fn history(&self) -> String {
        let shown = self.tmux(&["capture-pane", "-p", "-S", "-", "-J"]);
        String::from_utf8(shown.expect("tmux runs").stdout).expect("utf-8")
    }

    /// Waits until it shows what is `wanted`, and returns it.
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        self.shows(what, wanted)
            .unwrap_or_else(|why| panic!("{why}"))
    }

    /// As [`Self::wait_for`], for what may not come.
    pub fn shows(&self, what: &str, wanted: impl Fn(&str) -> bool) -> Result<String, String> {
        let begun = Instant::now();
        loop {
            let text = self.text();
            if wanted(&text) {
                return Ok(text);
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("no {what}:\n{text}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}
