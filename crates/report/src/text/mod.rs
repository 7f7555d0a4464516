//! The report for a terminal.

use sunder_findings::{Comparison, Findings};

/// How the text report looks and what it leaves out.
#[derive(Clone, Debug, PartialEq)]
pub struct TextOptions {
    /// Whether to use ANSI colours.
    pub color: bool,
    /// Columns of the terminal; less than 40 counts as 40.
    pub width: usize,
    /// Also true sharing and what is below the threshold.
    pub all: bool,
    /// Every word with its counts and threads (SHERIFF section 4.4).
    pub words: bool,
    /// Percent; [`sunder_findings::Run::threshold_percent`] if `None`.
    pub threshold: Option<f64>,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            color: false,
            width: 100,
            all: false,
            words: false,
            threshold: None,
        }
    }
}

/// The result for a terminal.
pub fn text(findings: &Findings, options: &TextOptions) -> String {
    format!("{} findings ({})", findings.findings.len(), options.width)
}

/// A comparison for a terminal.
pub fn comparison_text(comparison: &Comparison, options: &TextOptions) -> String {
    format!("{} appeared ({})", comparison.appeared.len(), options.width)
}
