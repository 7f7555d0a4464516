//! The tables of `scst`, from replays: our figures beside the paper's. Medians of the recordings.
//! Runs nothing.

use super::paper::Paper;
use super::replay::{LINES, Machine, PAGES, POLICIES, Replay};
use crate::measure::median;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use sunder_findings::Placement;
use sunder_workloads::Parallel;

/// The policies that have buckets.
const WITH_BUCKETS: [&str; 3] = [POLICIES[1], POLICIES[2], POLICIES[3]];

/// The pages and buckets of a replay's placement.
///
/// # Errors
/// If the replay had no placement.
pub fn space(replay: &Replay) -> Result<&Placement> {
    replay
        .seen
        .placement
        .as_ref()
        .context("a replay without a placement")
}

/// The tables so far, as text.
pub struct Tables {
    first: String,
    second: String,
    third: String,
    lines: String,
    /// Cases in which equation (5) does not hold.
    broken: Vec<String>,
    /// Cases in which the order of the three policies is not the paper's.
    reversed: Vec<String>,
}

impl Tables {
    /// Empty tables.
    pub fn new() -> Self {
        let head = |text: &str| {
            let columns = text.matches('|').count() - 1;
            format!("{text}\n|{}\n", "---|".repeat(columns))
        };
        Self {
            first: head(
                "| program | function | references, millions | paper | working set, MiB | paper, MB |",
            ),
            second: head(
                "| program | placement | buckets | paper | false-sharing misses | spread | paper | \
                 less than sized, % | paper | less than general, % | true-sharing misses |",
            ),
            third: head(
                "| program | general pages | paper | sized: more pages (%) | paper | \
                 call-site: more pages (%) | paper | sized-call-site: more pages (%) | paper |",
            ),
            lines: head(
                "| program | placement | false-sharing misses | spread | less than sized, % | \
                 less than general, % | true-sharing misses |",
            ),
            broken: Vec::new(),
            reversed: Vec::new(),
        }
    }

    /// Adds a program with all its replays.
    ///
    /// # Errors
    /// If a replay is missing.
    pub fn add(&mut self, program: &Parallel, all: &[Replay]) -> Result<()> {
        let paper = Paper::of(program.name).context("the paper does not have it")?;
        self.add_program(program, paper, all)?;
        self.add_misses(program, paper, all)?;
        self.add_space(program, paper, all)
    }

    fn add_program(&mut self, program: &Parallel, paper: &Paper, all: &[Replay]) -> Result<()> {
        let general = &Misses::of(all, PAGES, POLICIES[0])?;
        writeln!(
            self.first,
            "| {} | {} | {:.3} | {:.3} | {:.2} | {:.2} |",
            program.name,
            program.function,
            general.references / 1e6,
            paper.references,
            general.granules * PAGES.granule as f64 / f64::from(1 << 20),
            paper.working_set,
        )?;
        Ok(())
    }

    fn add_misses(&mut self, program: &Parallel, paper: &Paper, all: &[Replay]) -> Result<()> {
        let name = program.name;
        for (machine, table) in [(PAGES, &mut self.second), (LINES, &mut self.lines)] {
            let of = POLICIES
                .iter()
                .map(|policy| Misses::of(all, machine, policy))
                .collect::<Result<Vec<Misses>>>()?;
            let (general, sized) = (of[0].falsely, of[1].falsely);
            for (policy, misses) in POLICIES.iter().zip(&of) {
                write!(table, "| {name} | {policy} ")?;
                if machine == PAGES {
                    let buckets = paper.row(policy).map(|row| row.0.to_string());
                    write!(
                        table,
                        "| {:.0} | {} ",
                        misses.buckets,
                        buckets.unwrap_or_default()
                    )?;
                }
                write!(table, "| {:.0} | {} ", misses.falsely, misses.spread)?;
                if machine == PAGES {
                    let row = paper.row(policy).map(|row| row.1.to_string());
                    write!(table, "| {} ", row.unwrap_or_default())?;
                }
                write!(table, "| {:.1} ", saved(sized, misses.falsely))?;
                if machine == PAGES {
                    write!(table, "| {} ", paper_saved(paper, policy))?;
                }
                writeln!(
                    table,
                    "| {:.1} | {:.0} |",
                    saved(general, misses.falsely),
                    misses.truly
                )?;
            }
            if machine == PAGES && !of[1..].is_sorted_by(|a, b| a.falsely >= b.falsely) {
                self.reversed.push(name.to_owned());
            }
        }
        Ok(())
    }

    fn add_space(&mut self, program: &Parallel, paper: &Paper, all: &[Replay]) -> Result<()> {
        for replay in all {
            let space = space(replay)?;
            if space.additional_pages > space.buckets || space.unplaced > 0 {
                self.broken.push(format!(
                    "{} under {} in run {}: {} more pages, {} buckets, {} objects not placed",
                    program.name,
                    replay.policy,
                    replay.run,
                    space.additional_pages,
                    space.buckets,
                    space.unplaced
                ));
            }
        }
        let of = |policy| {
            let found = all
                .iter()
                .find(|r| r.granule == PAGES.granule && r.policy == policy);
            space(found.context("a replay is missing")?)
        };
        write!(
            self.third,
            "| {} | {} | {} ",
            program.name,
            of(POLICIES[0])?.general_pages,
            paper.pages
        )?;
        for policy in WITH_BUCKETS {
            let space = of(policy)?;
            let more = |pages: u64, of: u64| {
                format!("{pages} ({:.2})", pages as f64 / of.max(1) as f64 * 100.0)
            };
            let theirs = paper.row(policy).map(|row| more(row.0, paper.pages));
            write!(
                self.third,
                "| {} | {} ",
                more(space.additional_pages, space.general_pages),
                theirs.unwrap_or_default()
            )?;
        }
        writeln!(self.third, "|")?;
        Ok(())
    }

    /// The cases in which equation (5) does not hold; empty if it holds.
    pub fn broken(&self) -> String {
        self.broken.join("; ")
    }

    /// All tables with their remarks.
    pub fn summary(&self) -> String {
        let order = if self.reversed.is_empty() {
            "sized, call-site, sized-call-site, from the most misses to the fewest, in every program"
                .to_owned()
        } else {
            format!(
                "not sized, call-site, sized-call-site in {}",
                self.reversed.join(", ")
            )
        };
        let bound = if self.broken.is_empty() {
            "holds for every replay".to_owned()
        } else {
            format!("DOES NOT HOLD: {}", self.broken())
        };
        format!(
            "The programs are ours and the machine is modelled, so only the directions can be \
             compared with the paper's figures, which stand beside ours. Order of the three \
             allocators by false-sharing misses in pages: {order}. Equation (5) {bound}.\n\n\
             Table 1: programs. The working set is what pages were touched under general \
             placement.\n\n{}\n\
             Table 2: false-sharing misses in pages of {} bytes. Spread is from the fewest to the \
             most of the recordings.\n\n{}\n\
             Table 3: pages. Additional ones by equation (5).\n\n{}\n\
             The same traces on lines of {} bytes:\n\n{}",
            self.first, PAGES.granule, self.second, self.third, LINES.granule, self.lines
        )
    }
}

/// Medians of the recordings.
struct Misses {
    references: f64,
    granules: f64,
    falsely: f64,
    truly: f64,
    buckets: f64,
    spread: String,
}

impl Misses {
    fn of(all: &[Replay], machine: Machine, policy: &str) -> Result<Self> {
        let chosen: Vec<&Replay> = all
            .iter()
            .filter(|r| r.granule == machine.granule && r.policy == policy)
            .collect();
        let first = chosen.first().context("a replay is missing")?;
        let buckets = space(first)?.buckets as f64;
        let of = |figure: fn(&Replay) -> u64| {
            let figures: Vec<f64> = chosen.iter().map(|r| figure(r) as f64).collect();
            median(&figures)
        };
        let falsely = |r: &&Replay| r.seen.totals.false_sharing;
        let fewest = chosen.iter().map(falsely).min().unwrap_or(0);
        let most = chosen.iter().map(falsely).max().unwrap_or(0);
        Ok(Self {
            references: of(|r| r.seen.totals.references),
            granules: of(|r| r.seen.granules),
            falsely: of(|r| r.seen.totals.false_sharing),
            truly: of(|r| r.seen.totals.true_sharing),
            buckets,
            spread: format!("{fewest}-{most}"),
        })
    }
}

/// The reduction from `before` to `after`, in percent; 0 if `before` is 0.
fn saved(before: f64, after: f64) -> f64 {
    if before == 0.0 {
        return 0.0;
    }
    (before - after) / before * 100.0
}

fn paper_saved(paper: &Paper, policy: &str) -> String {
    let misses = |policy| paper.row(policy).map(|row| row.1 as f64);
    match (misses(POLICIES[1]), misses(policy)) {
        (Some(sized), Some(own)) => format!("{:.1}", saved(sized, own)),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_findings::{Simulated, Simulation};

    /// Replays with these false-sharing misses by policy, and `additional` more pages per bucket.
    fn replays(misses: [u64; 4], additional: u64) -> Vec<Replay> {
        let mut all = Vec::new();
        for machine in [PAGES, LINES] {
            for (policy, falsely) in POLICIES.into_iter().zip(misses) {
                let buckets = if policy == "general" { 1 } else { 10 };
                let seen = Simulation {
                    totals: Simulated {
                        references: 2_500_000,
                        false_sharing: falsely,
                        ..Simulated::default()
                    },
                    granules: 512,
                    placement: Some(Placement {
                        buckets,
                        general_pages: 500,
                        additional_pages: if policy == "general" { 0 } else { additional },
                        ..Placement::default()
                    }),
                    ..Simulation::default()
                };
                all.push(Replay {
                    run: 0,
                    granule: machine.granule,
                    policy,
                    seen,
                });
            }
        }
        all
    }

    fn tables(misses: [u64; 4], additional: u64) -> Tables {
        let mut tables = Tables::new();
        let program = Parallel::get("mp3d").expect("it is there");
        tables
            .add(program, &replays(misses, additional))
            .expect("complete");
        tables
    }

    #[test]
    fn reductions_are_shown_beside_those_of_the_paper() {
        let text = tables([2000, 1000, 900, 750], 5).summary();
        assert!(
            text.contains(
                "| mp3d | call-site | 10 | 5 | 900 | 900-900 | 5754143 | 10.0 | 6.4 | 55.0 |"
            ),
            "{text}"
        );
        // 512 pages of 4 KiB are 2 MiB; 5 of 500 pages are one percent.
        assert!(text.contains("| 2.500 | 8.935 | 2.00 | 2.02 |"), "{text}");
        assert!(text.contains("| 5 (1.00) | 8 (1.45) |"), "{text}");
        assert!(text.contains("in every program"), "{text}");
    }

    #[test]
    fn a_different_order_and_a_broken_bound_are_reported() {
        let seen = tables([2000, 1000, 1100, 750], 11);
        assert!(
            seen.summary()
                .contains("not sized, call-site, sized-call-site in mp3d")
        );
        assert!(seen.broken().contains("11 more pages, 10 buckets"));
        assert!(seen.summary().contains("DOES NOT HOLD"));
    }

    #[test]
    fn a_replay_that_is_missing_is_an_error() {
        let mut all = replays([4, 3, 2, 1], 0);
        all.pop();
        let program = Parallel::get("mp3d").expect("it is there");
        assert!(Tables::new().add(program, &all).is_err());
    }
}
