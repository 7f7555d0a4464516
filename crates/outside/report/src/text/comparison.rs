//! A comparison of two results, for a terminal or a pull request.

use super::options::TextOptions;
use super::page::{Page, Paint};
use crate::describe::{self, ChangeVerdict, place};
use crate::figures::counted;
use sunder_findings::{Change, Comparison};

/// A comparison for a terminal.
pub fn comparison_text(comparison: &Comparison, options: &TextOptions) -> String {
    let mut page = Page::new(options);
    answer(&mut page, comparison);
    for caveat in &comparison.caveats {
        page.paragraph("  - ", "    ", Paint::Dim, caveat);
    }
    let lists = [
        ("Appeared", &comparison.appeared, Paint::Alarm),
        ("Grew", &comparison.grew, Paint::Alarm),
        ("Gone", &comparison.gone, Paint::Good),
        ("Shrank", &comparison.shrank, Paint::Good),
    ];
    for (title, changes, paint) in lists {
        list(&mut page, title, changes, paint);
    }
    if options.all {
        list(&mut page, "Unchanged", &comparison.unchanged, Paint::Bold);
    } else if !comparison.unchanged.is_empty() {
        page.blank();
        let many = counted(comparison.unchanged.len(), "finding");
        page.line(&[(Paint::Dim, &format!("Unchanged: {many} (--all)."))]);
    }
    page.blank();
    page.paragraph(
        "",
        "",
        Paint::Dim,
        &format!(
            "A cost counts as changed from a factor of {} and {} points of percent.",
            comparison.noise_factor, comparison.noise_percent
        ),
    );
    page.finish()
}

fn answer(page: &mut Page, comparison: &Comparison) {
    let (verdict, text) = describe::change_answer(comparison);
    let paint = match verdict {
        ChangeVerdict::Worse => Paint::Alarm,
        ChangeVerdict::Better | ChangeVerdict::Same => Paint::Good,
        ChangeVerdict::Other | ChangeVerdict::Unknown => Paint::Bold,
    };
    page.paragraph("", "", paint, &text);
}

fn list(page: &mut Page, title: &str, changes: &[Change], paint: Paint) {
    if changes.is_empty() {
        return;
    }
    page.blank();
    page.line(&[(paint, title)]);
    for change in changes {
        let at = change
            .place
            .as_ref()
            .map(|p| format!("  {}", place(p)))
            .unwrap_or_default();
        page.heading(
            &[
                (Paint::Plain, "  "),
                (Paint::Bold, &change.subject),
                (Paint::Dim, &at),
            ],
            (Paint::Plain, &describe::change_costs(change)),
        );
        let Some(kind) = describe::change_kind(change) else {
            continue;
        };
        page.line(&[(Paint::Dim, "    "), (Paint::Dim, kind)]);
    }
}
