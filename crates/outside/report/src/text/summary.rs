//! The worst findings in a few lines each, for the first screen: what, what a fix gains, where, and
//! the change. Only where there are several findings; a single one says all this at its own beginning.

use super::page::{Page, Paint};
use crate::clean::clean;
use crate::describe;
use sunder_findings::Finding;

/// The most findings in it.
const WORST: usize = 3;
/// The most lines for a change; the whole of it is at the finding.
const CHANGE_LINES: usize = 4;

/// Writes the summary of `findings`, the worst first.
pub(super) fn summary(page: &mut Page, findings: &[&Finding]) {
    if findings.len() < 2 {
        return;
    }
    page.blank();
    for finding in findings.iter().take(WORST) {
        // Not as the findings below are numbered, so that these can be counted.
        let number = format!("{}. ", finding.rank);
        page.heading(
            &[(Paint::Bold, &number), (Paint::Bold, &finding.subject())],
            (Paint::Alarm, &describe::cost(finding)),
        );
        page.line(&[(Paint::Plain, "   "), (Paint::Plain, &place(finding))]);
        if let Some(advice) = finding.advice.first() {
            page.beginning("   ", Paint::Good, &advice.text, CHANGE_LINES);
        }
    }
}

/// The code that uses the object most, and where the object comes from.
fn place(finding: &Finding) -> String {
    let origin = describe::origin(&finding.object);
    let sampled = finding.sites.iter().filter(|site| site.calls.is_none());
    let Some(site) = sampled.min_by_key(|site| std::cmp::Reverse(site.accesses)) else {
        return origin;
    };
    let at = describe::site_place(site);
    let file = site.file.as_deref().map(sunder_findings::file_name);
    let used = match (file, site.line) {
        (Some(file), Some(line)) => format!("{}:{line}", clean(file)),
        _ => format!("{} {at}", clean(&site.function)),
    };
    format!("used at {used}; {origin}")
}
