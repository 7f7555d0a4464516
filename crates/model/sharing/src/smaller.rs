//! What would remain of a contended line on a machine with smaller lines: a part of the line
//! that no two threads use is not shared there. It is computed from the verdict's words and
//! bytes, so the accesses are not needed again. Called by whatever presents a verdict.

use crate::bytes::ByteState;
use crate::false_share::Sharing;
use crate::verdict::{ThreadUse, Verdict, WordUse};
use sunder_access::Granule;

impl Verdict {
    /// The kind of sharing that would remain on lines of `granule`, which must be smaller than
    /// the judged line. `None` if no part of the line has two threads of which one writes.
    pub fn within(&self, granule: Granule) -> Option<Sharing> {
        let part = granule.bytes() as usize;
        let kinds = (0..self.bytes.len().div_ceil(part)).filter_map(|i| self.in_part(i, part));
        kinds.reduce(Sharing::and)
    }

    /// The kind of sharing that remains in the part that begins at byte `index * size` of the
    /// line.
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

/// Whether a thread writes one of the two words while another thread uses the other word.
fn apart(a: &WordUse, b: &WordUse) -> bool {
    let writes = |t: &ThreadUse| t.writes + t.updates > 0;
    a.threads.iter().any(|x| {
        b.threads
            .iter()
            .any(|y| x.thread != y.thread && (writes(x) || writes(y)))
    })
}
