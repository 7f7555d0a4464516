//! The kind of sharing of an object with several lines. Called by the pipeline, which joins lines
//! to objects. It must not judge a line again: it weighs the lines' verdicts.

use crate::false_share::{FalseShare, Sharing};
use crate::verdict::{MOSTLY, Verdict};

/// The kind of sharing of an object with several lines; `None` without lines. It is mixed if
/// one line clearly is, or if some lines are truly and others falsely shared. Lines in doubt
/// are decided together, so that an unimportant line with few samples does not decide for the
/// object. Where bursts confirmed one of the lines, samples alone leave every other line in
/// doubt: the samples' estimate assumes a random order of accesses, and bursts of the same code
/// may have shown that the order is not random.
pub fn joint_sharing<'a>(lines: impl Iterator<Item = &'a Verdict> + Clone) -> Option<Sharing> {
    let some_confirmed = lines.clone().any(|line| line.confirmed);
    let mut kinds = None;
    let mut clear = false;
    let mut all = Vec::new();
    for line in lines {
        kinds = Some(kinds.map_or(line.sharing, |k: Sharing| k.and(line.sharing)));
        clear |= line.sharing == Sharing::False
            || line.falsely.is_clearly_mixed() && (line.confirmed || !some_confirmed);
        all.push((line.falsely, line.interleavings_per_second));
    }
    match kinds {
        Some(Sharing::Mixed) if !clear => Some(FalseShare::joint(&all).sharing()),
        other => other,
    }
}

/// Of an object with these lines that is true sharing: the share of the interleavings that is false by
/// samples alone, if that is most of them. See [`Verdict::doubt`].
pub fn joint_doubt<'a>(lines: impl Iterator<Item = &'a Verdict> + Clone) -> Option<f64> {
    let all: f64 = lines.clone().map(|v| v.interleavings_per_second).sum();
    let falsely = lines.map(|v| v.doubt().unwrap_or(v.false_share) * v.interleavings_per_second);
    let share = falsely.sum::<f64>() / all;
    (share >= MOSTLY).then_some(share)
}

/// Whether bursts confirmed that an object with these lines is shared in the way that `sharing`
/// says. A burst on a line of true sharing confirms nothing about the false sharing of another line.
pub fn jointly_confirmed<'a>(
    mut lines: impl Iterator<Item = &'a Verdict>,
    sharing: Sharing,
) -> bool {
    lines.any(|line| line.confirmed && (line.sharing != Sharing::True || sharing == Sharing::True))
}
