//! Everything that was seen to be used in some range of memory, contended or not. Called by
//! remedies, which must know what lies beside a contended word. It only reads the judge.

use crate::judge::Judge;
use crate::verdict::{WordUse, words};
use sunder_access::{Address, Span, ThreadId, Time};

impl Judge {
    /// The uses that were seen in `span`, by ascending address. Only threads that ran at
    /// `since` or later count, because others cannot contend. Lines that were touched only once
    /// are left out.
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
