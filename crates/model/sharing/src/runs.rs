//! What lines on neighbouring pages cost together. An object of many lines costs little on each of
//! them, and a sample or a burst finds each of them seldom. Called by remedies, which act on pages.
//! It must not judge a line: it adds up verdicts.

use crate::false_share::Sharing;
use crate::verdict::Verdict;
use sunder_access::{Address, PAGE, Time};

/// From this many confirmed lines on, the samples on the other lines of a run are believed, too: one
/// line may be that of a small object which the others have nothing to do with.
const SPEAK_FOR_OTHERS: u32 = 2;

/// Runs of neighbouring pages, in ascending order.
#[derive(Debug, Default)]
pub struct PageRuns(Vec<Run>);

#[derive(Debug)]
struct Run {
    start: u64,
    end: u64,
    /// The sums over confirmed lines, and over all lines.
    confirmed: Costs,
    all: Costs,
    confirmed_lines: u32,
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

impl PageRuns {
    /// The runs of `lines`, of at most `longest` bytes each. Lines whose memory has changed owner
    /// are left out.
    #[must_use]
    pub fn of<'a>(lines: impl Iterator<Item = &'a Verdict>, longest: u64) -> Self {
        let mut lines: Vec<&Verdict> = lines.filter(|line| line.owner.is_none()).collect();
        lines.sort_unstable_by_key(|line| line.line);
        let mut runs: Vec<Run> = Vec::new();
        for line in lines {
            let page = line.line.0 & !(PAGE - 1);
            let end = page.saturating_add(PAGE);
            let goes_on = |run: &&mut Run| page <= run.end && end - run.start <= longest;
            let run = match runs.last_mut().filter(goes_on) {
                Some(_) => runs.last_mut(),
                None => {
                    runs.push(Run {
                        start: page,
                        end,
                        confirmed: Costs::default(),
                        all: Costs::default(),
                        confirmed_lines: 0,
                        last: line.last,
                    });
                    runs.last_mut()
                }
            };
            let Some(run) = run else { continue };
            run.end = run.end.max(end);
            run.last = run.last.max(line.last);
            run.all.add(line);
            if line.confirmed {
                run.confirmed.add(line);
                run.confirmed_lines += u32::from(line.sharing != Sharing::True);
            }
        }
        Self(runs)
    }

    fn at(&self, line: Address) -> Option<&Run> {
        let after = self.0.partition_point(|run| run.start <= line.0);
        let run = self.0.get(after.checked_sub(1)?)?;
        (line.0 < run.end).then_some(run)
    }

    /// Whether enough lines around this one are confirmed for the samples on the others to be
    /// believed.
    pub fn speak_for(&self, line: Address) -> bool {
        let run = self.at(line);
        run.is_some_and(|run| run.confirmed_lines >= SPEAK_FOR_OTHERS)
    }

    fn costs(&self, line: Address) -> Costs {
        match self.at(line) {
            Some(run) if run.confirmed_lines >= SPEAK_FOR_OTHERS => run.all,
            Some(run) => run.confirmed,
            None => Costs::default(),
        }
    }

    /// What the lines around `line` and this one cost, as a share of their threads' time: the
    /// confirmed ones, or all of them if enough are confirmed.
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
