//! What threads had used of lines at one moment, so that later use can be told apart: threads that
//! have used a line since contend for it now (Plastic's verification, section 4.5). Bytes that are
//! moved again must be grouped by what contends now. Called by `choose`, and by `repairer` for
//! repairs under way.

use super::lines::on_pages;
use super::pattern::used;
use std::collections::BTreeMap;
use std::time::Duration;
use sunder_access::Time;
use sunder_observe::monotonic_now;
use sunder_pipeline::Process;
use sunder_plan::remap::{Count, Group, Use, apart_by, groups};
use sunder_sharing::Verdict;
use sunder_wire::remap::GROUPS;

/// With fewer accesses since the mark than this, it is not known which bytes contend.
const KNOWN: u64 = 8;
/// How long more accesses are waited for; then the old pattern is taken to hold still.
const PATIENCE: Duration = Duration::from_millis(80);
/// The least share, of what could be taken apart now, that the old groups must take apart to be
/// used again.
const STILL: f64 = 0.5;

/// See the head of this file.
pub struct Mark {
    made: Time,
    /// How long each thread had used each line, in ns.
    touched: BTreeMap<(u64, u32), f64>,
    /// Accesses that were seen, by address, size and thread.
    seen: BTreeMap<(u64, u64, u32), Count>,
}

impl Mark {
    /// A mark of these lines at present.
    pub fn of<'a>(lines: impl Iterator<Item = &'a Verdict>) -> Self {
        let mut mark = Self {
            made: monotonic_now(),
            ..Self::nothing()
        };
        for line in lines {
            let threads = line.threads.iter();
            mark.touched
                .extend(threads.map(|t| ((line.line.0, t.thread.0), t.touched_ns)));
            for one in uses(line, 0) {
                let (at, size) = (one.offset, one.size);
                let counts = one.threads.into_iter();
                mark.seen
                    .extend(counts.map(|(thread, count)| ((at, size, thread), count)));
            }
        }
        mark
    }

    /// A mark from before all accesses.
    pub const fn nothing() -> Self {
        Self {
            made: Time(0),
            touched: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    /// A mark of the lines on some pages of `process`.
    pub fn of_pages(process: &mut Process, page: u64, len: u64) -> Self {
        let verdicts = process.judge.verdicts();
        Self::of(on_pages(&verdicts, page, len))
    }

    /// Whether two threads have used the line since the mark.
    pub fn is_contended(&self, line: &Verdict) -> bool {
        let more = line.threads.iter().filter(|t| {
            let before = self.touched.get(&(line.line.0, t.thread.0));
            t.touched_ns > before.copied().unwrap_or(0.0)
        });
        more.count() >= 2
    }

    /// Whether `moved`, groups of the pages from `page` on, take apart the accesses to the line
    /// since the mark, as far as those are known: threads may use other bytes by now.
    pub fn comes_apart(&self, line: &Verdict, page: u64, moved: &[Group]) -> bool {
        let since = self.since(uses(line, page), page);
        if since.iter().map(Use::accesses).sum::<u64>() < KNOWN {
            return monotonic_now().since(self.made) >= PATIENCE;
        }
        let best = groups(&since, GROUPS).ok();
        best.is_none_or(|best| apart_by(&since, moved) >= STILL * best.apart)
    }

    /// The part of `uses`, of pages from `page` on, that was seen since the mark.
    fn since(&self, mut uses: Vec<Use>, page: u64) -> Vec<Use> {
        for one in &mut uses {
            let (at, size) = (page + one.offset, one.size);
            one.threads.retain(|&thread, count| {
                let before = self.seen.get(&(at, size, thread)).copied();
                *count = count.less(before.unwrap_or_default());
                *count != Count::default()
            });
        }
        uses.retain(|one| !one.threads.is_empty());
        uses
    }
}

/// The accesses to a line's bytes, at offsets from `page`.
fn uses(line: &Verdict, page: u64) -> Vec<Use> {
    let words = line.words.iter();
    words
        .map(|word| used(word, line.line.0 + u64::from(word.offset) - page))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(offset: u64, thread: u32, times: u64) -> Use {
        let mut one = Use {
            offset,
            size: 8,
            ..Use::default()
        };
        let count = Count {
            writes: times,
            ..Count::default()
        };
        one.add(thread, count);
        one
    }

    /// Threads that used two words now use two other words.
    #[test]
    fn accesses_before_the_mark_do_not_count() {
        const PAGE: u64 = 0x5000_0000;
        let mut mark = Mark::nothing();
        for (offset, thread) in [(0, 1), (8, 2)] {
            let count = Count {
                writes: 90,
                ..Count::default()
            };
            mark.seen.insert((PAGE + offset, 8, thread), count);
        }
        let seen = vec![
            written(0, 1, 90),
            written(8, 2, 97),
            written(32, 1, 50),
            written(40, 2, 50),
        ];
        let since = mark.since(seen, PAGE);
        assert_eq!(
            since,
            [written(8, 2, 7), written(32, 1, 50), written(40, 2, 50)]
        );
    }
}
