//! The look of the text report, and what it leaves out.

/// The options of the text report: its look, and what it leaves out.
#[derive(Clone, Debug, PartialEq)]
pub struct TextOptions {
    /// Whether to use ANSI colours.
    pub color: bool,
    /// Whether to write ASCII only, for locales that have nothing else.
    pub ascii: bool,
    /// Columns of the terminal; taken as 40 to 120.
    pub width: usize,
    /// Whether to show true sharing, findings below the threshold, and all lines, threads and
    /// instructions.
    pub all: bool,
    /// Whether to show every word with its counts and threads (SHERIFF section 4.4).
    pub words: bool,
    /// The threshold in percent; `None` for [`sunder_findings::Run::threshold_percent`].
    pub threshold: Option<f64>,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            color: false,
            ascii: false,
            width: 100,
            all: false,
            words: false,
            threshold: None,
        }
    }
}
