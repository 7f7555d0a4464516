//! What changed between two results, in words.

use crate::figures::percent;
use sunder_findings::{Change, Comparison, Measure, Sharing};

/// What a comparison says as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeVerdict {
    /// False sharing that is present appeared or grew.
    Worse,
    /// Something is gone or shrank, and nothing is worse.
    Better,
    /// Nothing changed beyond noise.
    Same,
    /// Only true or latent sharing was added.
    Other,
    /// The new run could not tell what there is.
    Unknown,
}

/// The verdict, and the sentence that says it: `Less false sharing than before: 1 gone.`
pub(crate) fn change_answer(comparison: &Comparison) -> (ChangeVerdict, String) {
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
    let (verdict, words) = if comparison.is_worse() {
        (ChangeVerdict::Worse, "More false sharing than before")
    } else if let Some(why) = &comparison.unknown {
        let many = match parts.is_empty() {
            true => String::new(),
            false => format!(" What differs: {}.", parts.join(", ")),
        };
        let sentence = format!(
            "Not known whether there is less false sharing than before, as the new run could not tell: {why}.{many}"
        );
        return (ChangeVerdict::Unknown, sentence);
    } else if parts.is_empty() {
        (ChangeVerdict::Same, "No change in sharing beyond noise")
    } else if comparison.gone.len() + comparison.shrank.len() > 0 {
        (ChangeVerdict::Better, "Less false sharing than before")
    } else {
        (
            ChangeVerdict::Other,
            "Sharing changed, but no false sharing was added",
        )
    };
    let sentence = match parts.is_empty() {
        true => format!("{words}."),
        false => format!("{words}: {}.", parts.join(", ")),
    };
    (verdict, sentence)
}

/// The kind of sharing, unless it is false sharing that is present.
pub(crate) const fn change_kind(change: &Change) -> Option<&'static str> {
    match (change.latent, change.sharing) {
        (true, _) => Some("latent false sharing"),
        (false, Sharing::False) => None,
        (false, Sharing::True) => Some("true sharing"),
        (false, Sharing::Mixed) => Some("mixed sharing, its false part"),
    }
}

/// The old and the new cost: `12 % -> 3.1 %`.
pub(crate) fn change_costs(change: &Change) -> String {
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
