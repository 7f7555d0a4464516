//! A source position as the page shows it, with what an editor needs to open it.

use crate::clean::clean;
use crate::describe;
use sunder_findings::Location;

pub(super) struct Place {
    pub(super) text: String,
    /// The file, as the debug information names it.
    path: Option<String>,
    line: Option<u32>,
}

impl Place {
    /// `text` is what the page shows.
    pub(super) fn new(text: String, path: Option<&str>, line: Option<u32>) -> Self {
        Self {
            text,
            path: path.map(clean),
            line,
        }
    }

    pub(super) fn of(location: Option<&Location>) -> Self {
        Self::new(
            location.map(describe::place).unwrap_or_default(),
            location.map(|l| l.file.as_str()),
            location.and_then(|l| l.line),
        )
    }

    /// File and line, if both are known.
    pub(super) fn position(&self) -> Option<(&str, u32)> {
        Some((self.path.as_deref()?, self.line?))
    }
}
