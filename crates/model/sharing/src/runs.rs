//! What lines on neighbouring pages cost together. An object of many lines costs little on each of
//! them, and a sample or a burst finds each of them seldom. Called by remedies, which act on pages.
//! It must not judge a line: it adds up verdicts.

use crate::false_share::Sharing;
use crate::verdict::Verdict;
use std::collections::BTreeSet;
use sunder_access::{Address, CodeAddress, PAGE, Time};

/// From this many confirmed lines on, the samples on all other lines of a run are believed, too. One
/// line may be that of a small object which the others have nothing to do with: it speaks for those that
/// the same instructions write.
const SPEAK_FOR_OTHERS: u32 = 2;

/// Runs of neighbouring pages, in ascending order.
#[derive(Debug, Default)]
pub struct PageRuns(Vec<Run>);

#[derive(Debug)]
struct Run {
    start: u64,
    end: u64,
    /// The sum over the lines that are believed.
    believed: Costs,
    confirmed_lines: u32,
    /// The instructions that write on confirmed lines.
    writers: BTreeSet<CodeAddress>,
    last: Time,
}

/// Shares of the threads' time.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    cost: f64,
    falsely: f64,
}

impl Costs {
    fn add(&mut self, line: &Verdict) {
        self.cost += line.cost_share;
        if line.sharing != Sharing::True {
            self.falsely += line.cost_share * line.false_share;
        }
    }
}

impl Run {
    fn take_in(&mut self, line: &Verdict, end: u64) {
        self.end = self.end.max(end);
        self.last = self.last.max(line.last);
        if line.confirmed && line.sharing != Sharing::True {
            self.confirmed_lines += 1;
            self.writers.extend(writers(line));
        }
    }

    fn speaks_for(&self, line: &Verdict) -> bool {
        let enough = self.confirmed_lines >= SPEAK_FOR_OTHERS;
        enough || writers(line).any(|site| self.writers.contains(&site))
    }
}

/// The instructions that were seen to write on a line.
fn writers(line: &Verdict) -> impl Iterator<Item = CodeAddress> {
    let writing = line.sites.iter().filter(|site| site.kind.writes());
    writing.map(|site| site.instruction)
}

impl PageRuns {
    /// The runs of `lines`, of at most `longest` bytes each. Lines whose memory has changed owner
    /// are left out.
    #[must_use]
    pub fn of<'a>(lines: impl Iterator<Item = &'a Verdict>, longest: u64) -> Self {
        let mut lines: Vec<&Verdict> = lines.filter(|line| line.owner.is_none()).collect();
        lines.sort_unstable_by_key(|line| line.line);
        let mut runs: Vec<Run> = Vec::new();
        for line in &lines {
            let page = line.line.0 & !(PAGE - 1);
            let end = page.saturating_add(PAGE);
            let goes_on = |run: &&mut Run| page <= run.end && end - run.start <= longest;
            match runs.last_mut().filter(goes_on) {
                Some(run) => run.take_in(line, end),
                None => {
                    let mut run = Run {
                        start: page,
                        end,
                        believed: Costs::default(),
                        confirmed_lines: 0,
                        writers: BTreeSet::new(),
                        last: line.last,
                    };
                    run.take_in(line, end);
                    runs.push(run);
                }
            }
        }
        let mut runs = Self(runs);
        for line in lines {
            let index = runs.index(line.line);
            let run = index.and_then(|index| runs.0.get_mut(index));
            if let Some(run) = run.filter(|run| line.confirmed || run.speaks_for(line)) {
                run.believed.add(line);
            }
        }
        runs
    }

    /// The number of the run with this line.
    fn index(&self, line: Address) -> Option<usize> {
        let after = self.0.partition_point(|run| run.start <= line.0);
        let index = after.checked_sub(1)?;
        (line.0 < self.0.get(index)?.end).then_some(index)
    }

    fn at(&self, line: Address) -> Option<&Run> {
        self.0.get(self.index(line)?)
    }

    /// Whether confirmed lines around this one make the samples on it believed.
    pub fn speak_for(&self, line: &Verdict) -> bool {
        self.at(line.line).is_some_and(|run| run.speaks_for(line))
    }

    fn costs(&self, line: Address) -> Costs {
        self.at(line)
            .map_or_else(Costs::default, |run| run.believed)
    }

    /// What the lines around `line` and this one cost, as a share of their threads' time: the
    /// confirmed ones, and those for which they speak.
    pub fn cost(&self, line: &Verdict) -> f64 {
        self.costs(line.line).cost.max(line.cost_share)
    }

    /// The part of [`Self::cost`] that is false sharing.
    pub fn false_cost(&self, line: &Verdict) -> f64 {
        let mut own = Costs::default();
        own.add(line);
        self.costs(line.line).falsely.max(own.falsely)
    }

    /// When a line around this one was last touched.
    pub fn last(&self, line: &Verdict) -> Time {
        self.at(line.line).map_or(line.last, |run| run.last)
    }
}
