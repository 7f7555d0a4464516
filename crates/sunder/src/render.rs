//! Findings as text, HTML, JSON and SARIF.
//!
//! ```
//! let result = sunder::Findings::default();
//! assert!(sunder::render::html(&result).contains("<html"));
//! assert!(!sunder::render::text(&result, &sunder::render::TextOptions::default()).is_empty());
//! ```

pub use sunder_report::{
    TextOptions, comparison_html, comparison_text, html, json, sarif, sarif_with_root, text,
};
