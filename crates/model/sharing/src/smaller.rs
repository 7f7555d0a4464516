//! What would be left of a contended line on a machine whose lines are smaller:
//! parts that no two threads meet in are not shared there. From the verdict's own
//! words and bytes, so it needs no second look at the accesses. Called by whoever
//! tells of a verdict.

use crate::bytes::ByteState;
use crate::verdict::{Sharing, ThreadUse, Verdict, WordUse};
use sunder_access::Granule;

impl Verdict {
    /// The kind of sharing that `granule`, smaller than the line's, would leave;
    /// none if no part of the line would have two threads of which one writes.
    pub fn within(&self, granule: Granule) -> Option<Sharing> {
        let part = granule.bytes() as usize;
        let kinds = (0..self.bytes.len().div_ceil(part)).filter_map(|i| self.in_part(i, part));
        kinds.reduce(Sharing::and)
    }

    /// The same in the part of the line that begins at `index` times `size`.
    fn in_part(&self, index: usize, size: usize) -> Option<Sharing> {
        let from = index * size;
        let to = (from + size).min(self.bytes.len());
        let words: Vec<&WordUse> = self
            .words
            .iter()
            .filter(|w| (from..to).contains(&(w.offset as usize)))
            .collect();
        let truly = self.bytes[from..to].contains(&ByteState::WrittenShared);
        let falsely = words.iter().enumerate().any(|(i, a)| {
            let others = words[i + 1..].iter();
            others.into_iter().any(|b| apart(a, b))
        });
        match (falsely, truly) {
            (true, true) if self.sharing != Sharing::True => Some(Sharing::Mixed),
            (_, true) => Some(Sharing::True),
            (true, false) => Some(Sharing::False),
            (false, false) => None,
        }
    }
}

impl Sharing {
    /// Both on one line or object.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Mixed }
    }
}

/// Whether a thread writes one of two words while another uses the other.
fn apart(a: &WordUse, b: &WordUse) -> bool {
    let writes = |t: &ThreadUse| t.writes + t.updates > 0;
    a.threads.iter().any(|x| {
        b.threads
            .iter()
            .any(|y| x.thread != y.thread && (writes(x) || writes(y)))
    })
}
