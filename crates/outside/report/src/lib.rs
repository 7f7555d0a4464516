//! Findings as text, HTML, JSON, SARIF and diagnostics for editors, and comparisons and fleets as text and HTML. Called by the commands
//! that report, with finished findings. Everything comes from the findings alone: this crate
//! must not look at the program, its sources or the machine, and it must not print.
#![forbid(unsafe_code)]

mod clean;
mod describe;
mod figures;
mod html;
mod lsp;
mod on_pages;
mod sarif;
mod text;

pub use clean::in_ascii;
pub use html::{comparison_html, fleet_html, html};
pub use lsp::diagnostics;
pub use sarif::{sarif, sarif_with_root};
pub use text::{
    TextOptions, comparison_markdown, comparison_text, explanation, fleet_markdown, fleet_text,
    line_picture, one_finding, text, watched_text,
};

use sunder_findings::{Findings, FindingsError};

/// The result as JSON: [`Findings::to_json`].
///
/// # Errors
/// If a figure is not a finite number.
pub fn json(findings: &Findings) -> Result<String, FindingsError> {
    findings.to_json()
}
