//! What the judge's verdicts on lines say to a repair: which lines can come apart, and what their
//! false sharing costs. Pure.

use sunder_sharing::{Sharing, Verdict};

/// The lines on these pages that can come apart.
pub fn on_pages(verdicts: &[Verdict], page: u64, len: u64) -> impl Iterator<Item = &Verdict> {
    let apart = |v: &&Verdict| v.owner.is_none() && can_come_apart(v);
    let on = move |v: &&Verdict| v.line.0.wrapping_sub(page) < len;
    verdicts.iter().filter(apart).filter(on)
}

/// Whether threads use different bytes of a line, even if they also share some.
pub fn can_come_apart(line: &Verdict) -> bool {
    line.sharing != Sharing::True
}

/// The cost of a line's false sharing, as a share of its threads' time.
pub fn false_cost(line: &Verdict) -> f64 {
    if can_come_apart(line) {
        line.cost_share * line.false_share
    } else {
        0.0
    }
}
