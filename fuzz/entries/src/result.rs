//! Saved results, as `sunder show` and `sunder compare` read them.

use sunder_findings::{Findings, compare, rank};
use sunder_report::{TextOptions, comparison_text, html, sarif, text};

/// Reads arbitrary bytes as a result, writes it again and renders it in every form.
///
/// # Panics
/// If a written result is read back as another one.
pub fn result(bytes: &[u8]) {
    let Ok(read) = Findings::read(bytes) else {
        return;
    };
    let written = read.to_json().expect("JSON holds finite numbers only");
    let again = Findings::read(written.as_bytes()).expect("we wrote it");
    assert_eq!(read, again);
    for (all, words, width) in [(false, false, 100), (true, true, 40)] {
        let options = TextOptions {
            all,
            words,
            width,
            color: all,
            ..TextOptions::default()
        };
        text(&read, &options);
        comparison_text(&compare(&read, &again), &options);
    }
    html(&read);
    sarif(&read);
    let line_size = read.machine.line_size;
    for finding in &read.findings {
        sunder_plan::advise(finding, line_size);
    }
    let mut ranked = read;
    rank(&mut ranked);
    ranked.to_json().expect("ranking leaves finite numbers");
}
