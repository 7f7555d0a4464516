//! What the terminal shows: its width, and whether it understands more than ASCII. Asked by
//! whatever writes text for people.

use std::ffi::OsString;
use std::os::fd::{AsFd, RawFd};
use std::sync::OnceLock;

/// The width of reports in files, whatever shows them.
pub const FILE_WIDTH: usize = 100;

/// The width of text that goes neither to a terminal nor to a reader that says how wide it is.
const USUAL_WIDTH: usize = 100;

/// The columns of text that goes to `stream`: those of its terminal, else those that `COLUMNS` says.
pub fn width(stream: impl AsFd) -> usize {
    let of_terminal = terminal_size::terminal_size_of(stream);
    of_terminal.map_or_else(
        || width_of_pipe(std::env::var("COLUMNS").ok().as_deref()),
        |(width, _)| usize::from(width.0),
    )
}

fn width_of_pipe(columns: Option<&str>) -> usize {
    let columns = columns.and_then(|columns| columns.trim().parse().ok());
    columns
        .filter(|&columns| columns > 0)
        .unwrap_or(USUAL_WIDTH)
}

/// Whether text is to be ASCII only, because the locale is not one of UTF-8.
pub fn is_ascii() -> bool {
    !is_utf8(|name| std::env::var_os(name))
}

/// Whether the locale is one of UTF-8: the first of these variables that is set says so.
fn is_utf8(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let mut set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter();
    let locale = set.find_map(|name| variable(name).filter(|value| !value.is_empty()));
    let locale = locale.unwrap_or_default().to_string_lossy().to_lowercase();
    let charset = locale.split(['.', '@']).nth(1);
    matches!(charset, Some("utf-8" | "utf8"))
}

/// Whether this process is in the foreground of `terminal`: others must not write to it. The first call must
/// come before rights are given up: asking for the own process group is one of them.
pub fn is_in_foreground(terminal: RawFd) -> bool {
    static OWN: OnceLock<libc::pid_t> = OnceLock::new();
    // SAFETY: takes nothing and cannot fail.
    let own = *OWN.get_or_init(|| unsafe { libc::getpgrp() });
    // SAFETY: takes a number; -1 where it is no terminal.
    own > 0 && unsafe { libc::tcgetpgrp(terminal) } == own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_set_names_the_character_set() {
        let locale = |set: &[(&str, &str)]| {
            is_utf8(|name| {
                let found = set.iter().find(|(n, _)| *n == name);
                found.map(|(_, value)| OsString::from(value))
            })
        };
        assert!(locale(&[("LANG", "de_DE.UTF-8")]));
        assert!(locale(&[("LC_CTYPE", "C.utf8"), ("LANG", "C")]));
        assert!(locale(&[("LC_ALL", ""), ("LANG", "de_DE.UTF-8@euro")]));
        assert!(!locale(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]));
        assert!(!locale(&[("LANG", "de_DE")]));
        assert!(!locale(&[("LANG", "de_DE.ISO-8859-1")]));
        // The system's own locale, where nothing is said.
        assert!(!locale(&[]));
    }

    #[test]
    fn what_is_no_terminal_is_as_wide_as_columns_says() {
        assert_eq!(width_of_pipe(Some("72")), 72);
        for nothing in [None, Some(""), Some("0"), Some("wide")] {
            assert_eq!(width_of_pipe(nothing), USUAL_WIDTH);
        }
    }
}
