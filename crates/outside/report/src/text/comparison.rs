//! A comparison of two results, for a terminal or a pull request.

use super::options::TextOptions;
use super::page::{Page, Paint};
use crate::describe::place;
use crate::figures::{counted, percent};
use sunder_findings::{Change, Comparison, Measure, Sharing};

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
    let parts: Vec<String> = [
        ("appeared", comparison.appeared.len()),
        ("grew", comparison.grew.len()),
        ("gone", comparison.gone.len()),
        ("shrank", comparison.shrank.len()),
    ]
    .iter()
    .filter(|(_, many)| *many > 0)
    .map(|(what, many)| format!("{many} {what}"))
    .collect();
    let (paint, verdict) = if comparison.is_worse() {
        (Paint::Alarm, "More false sharing than before")
    } else if parts.is_empty() {
        (Paint::Good, "No change in sharing beyond noise")
    } else if comparison.gone.len() + comparison.shrank.len() > 0 {
        (Paint::Good, "Less sharing than before")
    } else {
        (
            Paint::Bold,
            "Sharing changed, but no false sharing was added",
        )
    };
    let text = if parts.is_empty() {
        format!("{verdict}.")
    } else {
        format!("{verdict}: {}.", parts.join(", "))
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
            (Paint::Plain, &costs(change)),
        );
        let kind = match (change.latent, change.sharing) {
            (true, _) => "latent false sharing",
            (false, Sharing::False) => continue,
            (false, Sharing::True) => "true sharing",
            (false, Sharing::Mixed) => "mixed sharing, its false part",
        };
        page.line(&[(Paint::Dim, "    "), (Paint::Dim, kind)]);
    }
}

/// The old and the new cost: `12 % -> 3.1 %`.
fn costs(change: &Change) -> String {
    let cost = |m: Measure| percent(m.cost_percent);
    if change.latent {
        return "costs nothing here".to_owned();
    }
    match (change.old, change.new) {
        (Some(old), Some(new)) => format!("{} -> {}", cost(old), cost(new)),
        (Some(old), None) => format!("was {}", cost(old)),
        (None, Some(new)) => format!("costs {}", cost(new)),
        (None, None) => String::new(),
    }
}
