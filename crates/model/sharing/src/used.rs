//! All that was seen in use of some memory, whether it is contended or not. Called where
//! something is done about contended lines, which must know what lies beside. Pure
//! reading.

use crate::judge::Judge;
use crate::verdict::{WordUse, words};
use sunder_access::{Address, Span, ThreadId, Time};

impl Judge {
    /// What was used of `span`, by ascending address: by threads that ran at `since` or
    /// later, as others are in nobody's way. Lines that were
    /// touched only once are left out.
    pub fn used(&self, span: Span, since: Time) -> Vec<(Address, WordUse)> {
        let granule = self.config().granule();
        let times = self.thread_time();
        let runs = |t: &ThreadId| times.iter().any(|x| x.thread == *t && x.last >= since);
        let mut all = Vec::new();
        for base in granule.bases(span) {
            let Some(line) = self.line_as_it_is(base) else {
                continue;
            };
            let threads = line.users.iter().map(|u| u.thread).filter(runs);
            let used = words(&line, threads, |used| used.count);
            let at = |word: &WordUse| base.offset(i64::from(word.offset));
            all.extend(used.into_iter().map(|word| (at(&word), word)));
        }
        let inside = |at: Address, word: &WordUse| Span::new(at, word.size.into()).overlaps(span);
        all.retain(|(at, word)| inside(*at, word));
        all
    }
}
