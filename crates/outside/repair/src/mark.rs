//! What had been used of lines by some moment, and what has been since: who contends now
//! is who has used a line more (Plastic's verification, section 4.5), and what is to be
//! moved again must take apart what contends now. Called by the chooser and as repairs live.

use super::choose::on_pages;
use super::pattern::used;
use std::collections::BTreeMap;
use std::time::Duration;
use sunder_access::Time;
use sunder_observe::monotonic_now;
use sunder_pipeline::Process;
use sunder_plan::remap::{Count, Group, Use, apart_by, groups};
use sunder_sharing::Verdict;
use sunder_wire::remap::GROUPS;

/// With fewer accesses since it is not known what contends.
const KNOWN: u64 = 8;
/// So long more are waited for; then what contends is taken for what it was.
const PATIENCE: Duration = Duration::from_millis(80);
/// What takes less than this share of it apart than could be has become another pattern.
const STILL: f64 = 0.5;

/// See the file's head.
pub struct Mark {
    made: Time,
    /// How much each thread had used each line.
    touched: BTreeMap<(u64, u32), f64>,
    /// What was seen of bytes, by their address, their number, and the thread.
    seen: BTreeMap<(u64, u64, u32), Count>,
}

impl Mark {
    /// Of these lines, as they are now.
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

    /// Before anybody used anything.
    pub const fn nothing() -> Self {
        Self {
            made: Time(0),
            touched: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Of some pages of `process`.
    pub fn of_pages(process: &mut Process, page: u64, len: u64) -> Self {
        let verdicts = process.judge.verdicts();
        Self::of(on_pages(&verdicts, page, len))
    }

    /// Whether two threads have used the line since.
    pub fn is_contended(&self, line: &Verdict) -> bool {
        let more = line.threads.iter().filter(|t| {
            let before = self.touched.get(&(line.line.0, t.thread.0));
            t.touched_ns > before.copied().unwrap_or(0.0)
        });
        more.count() >= 2
    }

    /// Whether these groups, of pages that begin at `page`, take apart what threads have
    /// done to each other on the line since, as far as that is known: they may use other
    /// bytes by now.
    pub fn comes_apart(&self, line: &Verdict, page: u64, moved: &[Group]) -> bool {
        let since = self.since(uses(line, page), page);
        if since.iter().map(Use::accesses).sum::<u64>() < KNOWN {
            return monotonic_now().since(self.made) >= PATIENCE;
        }
        let best = groups(&since, GROUPS).ok();
        best.is_none_or(|best| apart_by(&since, moved) >= STILL * best.apart)
    }

    /// What of `uses`, of pages that begin at `page`, has come since.
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

/// What was seen of a line's bytes, by their distance from `page`.
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

    /// Threads that used two words use two others by now.
    #[test]
    fn what_was_seen_before_does_not_count() {
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
