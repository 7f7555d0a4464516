//! `chaos`: workloads and programs of the distribution under `sunder repair --chaos`, which moves
//! random pages at random moments and puts them back. The programs must do what they do natively.
//! Counts how much was really moved: a run without a move proves nothing.

use crate::limited::{Folder, Ran, run as run_limited};
use crate::options::Options;
use crate::real::servers::{self, Server};
use crate::real::{CASES, Case, input};
use crate::record::Record;
use crate::{measure, programs};
use anyhow::Result;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;
use sunder_findings::{Findings, Repair};

/// A run that takes longer hangs.
const HANGS: Duration = Duration::from_secs(120);

/// The program of a run.
enum Subject {
    Workload(programs::Target, bool),
    Program(&'static Case),
    Server(&'static Server),
}

impl Subject {
    fn name(&self) -> &str {
        match self {
            Self::Workload(target, _) => &target.name,
            Self::Program(case) => case.name,
            Self::Server(server) => server.name,
        }
    }

    /// Whether it has the same output in every run.
    const fn is_deterministic(&self) -> bool {
        !matches!(self, Self::Workload(_, false))
    }

    /// Runs it with the words of a command before it, if there are any.
    fn run(&self, before: &[OsString], folder: &Path) -> Result<Ran> {
        match self {
            Self::Workload(target, _) => run_limited(&mut target.after(before), HANGS),
            Self::Program(case) => {
                let mut ran = run_limited(&mut case.command(before, folder), HANGS)?;
                if let Some(written) = case.writes {
                    ran.stdout
                        .extend(std::fs::read(folder.join(written)).unwrap_or_default());
                }
                Ok(ran)
            }
            Self::Server(server) => Ok(served(server, before, folder)),
        }
    }
}

/// A run of a server; a wrong answer counts like a hang.
fn served(server: &Server, before: &[OsString], folder: &Path) -> Ran {
    match server.run(before, None, folder) {
        Ok((measured, answers)) => Ran {
            status: Some(ExitStatus::from_raw(measured.status)),
            stdout: answers.to_le_bytes().to_vec(),
            stderr: String::new(),
            wall: measured.wall,
            left: String::new(),
        },
        Err(error) => Ran {
            status: None,
            stdout: Vec::new(),
            stderr: format!("{error:#}"),
            wall: 0.0,
            left: String::new(),
        },
    }
}

/// The runs of one program.
#[derive(Default)]
struct Row {
    native: f64,
    walls: Vec<f64>,
    runs: u32,
    wrong: u32,
    /// How many runs moved anything.
    moved_in: u32,
    done: Done,
    /// Reasons for which something was not moved, with their counts.
    refused: BTreeMap<String, u32>,
}

/// The effort of `--chaos` in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Done {
    /// How many moves there were; a page that moves twice counts twice.
    moves: usize,
    /// How many moves were undone, also those that the program needed undone.
    back: usize,
    /// How many faults sent a thread to a copy of code.
    faults: u64,
    refused: usize,
}

impl Done {
    fn of(repair: &Repair) -> Self {
        let moves = || repair.moved.iter().flat_map(|m| &m.moves);
        Self {
            moves: moves().count(),
            back: moves().filter(|m| m.rolled_back.is_some()).count(),
            faults: repair.moved.iter().map(|m| m.faults).sum(),
            refused: repair.refused.len(),
        }
    }

    fn add(&mut self, other: Self) {
        self.moves += other.moves;
        self.back += other.back;
        self.faults += other.faults;
        self.refused += other.refused;
    }
}

impl Row {
    fn add(&mut self, ran: &Ran, verdict: Option<&str>, repair: &Repair) -> Done {
        let done = Done::of(repair);
        self.runs += 1;
        self.walls.push(ran.wall);
        self.wrong += u32::from(verdict.is_some());
        self.moved_in += u32::from(done.moves > 0);
        self.done.add(done);
        let reasons = repair.refused.iter().map(|r| &r.reason);
        for reason in reasons.chain(&repair.hindrance) {
            *self.refused.entry(without_numbers(reason)).or_default() += 1;
        }
        done
    }
}

/// The reason without addresses: reasons that differ only in an address count as one.
fn without_numbers(reason: &str) -> String {
    let words = reason.split(' ').map(|word| {
        let number = word.starts_with("0x") || word.starts_with(|c: char| c.is_ascii_digit());
        if number { "…" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

const COLUMNS: [&str; 10] = [
    "program",
    "seed",
    "verdict",
    "status",
    "wall_s",
    "moves",
    "put_back",
    "faults",
    "refused",
    "hindrance",
];

/// Runs the benchmark, with as many seeds for each program as there are repetitions.
///
/// # Errors
/// If a run was wrong, after all runs are recorded; or if nothing can be run or recorded.
pub fn run(options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let subjects = subjects(options)?;
    let inputs = input::prepare()?;
    let mut record = Record::new(
        "chaos",
        "The workloads and Debian's programs, as they come, under `sunder repair --chaos SEED`, which \
         moves random pages and puts them back and moves them again; each seed is one run. A run \
         is wrong if it hangs (for two minutes), leaves a process behind, or has another output, \
         written file, answers (of a server) or status than natively. Runs in which nothing was \
         moved prove nothing.",
        options.repetitions,
        &COLUMNS,
    )?;
    let folder = Folder::new()?;
    let report = folder.path().join("report.json");
    let mut rows = Vec::new();
    let mut failures = String::new();
    for subject in &subjects {
        let native = subject.run(&[], inputs.path())?;
        let mut row = Row {
            native: native.wall,
            ..Row::default()
        };
        for seed in 1..=options.repetitions {
            let before = under_chaos(&sunder, seed, &report);
            let ran = subject.run(&before, inputs.path())?;
            let verdict = ran.wrong(&native, subject.is_deterministic());
            let repair = Findings::open(&report).ok().and_then(|f| f.repair);
            let _ = std::fs::remove_file(&report);
            let repair = repair.unwrap_or_default();
            let done = row.add(&ran, verdict, &repair);
            record.row(&csv(subject.name(), seed, &ran, verdict, done, &repair))?;
            if let Some(why) = verdict {
                println!("{}, seed {seed}: {why}", subject.name());
                writeln!(
                    failures,
                    "## {}, seed {seed}: {why}\n\n{:?}\n\n{}\n{}\n{repair:#?}\n",
                    subject.name(),
                    ran.status,
                    ran.stderr,
                    ran.left
                )?;
                record.attach("failures.md", &failures)?;
            }
        }
        println!("{}: {:?} in {} runs", subject.name(), row.done, row.runs);
        rows.push((subject.name(), row));
    }
    let wrong: u32 = rows.iter().map(|(_, row)| row.wrong).sum();
    record.finish(&summary(&rows))?;
    anyhow::ensure!(wrong == 0, "{wrong} runs were not right");
    Ok(())
}

/// All programs that are installed and that `options` do not exclude.
fn subjects(options: &Options) -> Result<Vec<Subject>> {
    let mut all: Vec<Subject> = programs::workloads(options)?
        .into_iter()
        .filter(|(_, variant, _)| variant.name() == "shared")
        .map(|(workload, _, target)| Subject::Workload(target, workload.deterministic))
        .collect();
    let wanted = |name: &str| name.contains(&options.only);
    let is_there = |name: &str, installed: bool| {
        if !installed {
            println!("SKIP: {name} is not installed");
        }
        installed
    };
    for case in CASES.iter().filter(|c| wanted(c.name)) {
        // Programs with options for `detect` are in the table a second time without.
        if case.options.is_empty() && is_there(case.name, case.is_installed()) {
            all.push(Subject::Program(case));
        }
    }
    for server in servers::ALL.iter().filter(|s| wanted(s.name)) {
        if is_there(server.name, server.is_installed()) {
            all.push(Subject::Server(server));
        }
    }
    Ok(all)
}

fn under_chaos(sunder: &Path, seed: u32, report: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![sunder.into()];
    words.extend(["repair", "--quiet", "--chaos"].map(OsString::from));
    words.extend([seed.to_string().into(), "--report".into(), report.into()]);
    words.push("--".into());
    words
}

fn csv(
    name: &str,
    seed: u32,
    ran: &Ran,
    verdict: Option<&str>,
    done: Done,
    repair: &Repair,
) -> Vec<String> {
    vec![
        name.into(),
        seed.to_string(),
        verdict.unwrap_or("right").into(),
        ran.status.and_then(|s| s.code()).unwrap_or(-1).to_string(),
        format!("{:.3}", ran.wall),
        done.moves.to_string(),
        done.back.to_string(),
        done.faults.to_string(),
        done.refused.to_string(),
        format!(
            "\"{}\"",
            repair
                .hindrance
                .as_deref()
                .unwrap_or_default()
                .replace('"', "'")
        ),
    ]
}

fn summary(rows: &[(&str, Row)]) -> String {
    let all = |of: fn(&Row) -> u32| rows.iter().map(|(_, row)| of(row)).sum::<u32>();
    let mut done = Done::default();
    rows.iter().for_each(|(_, row)| done.add(row.done));
    let mut text = format!(
        "- {} runs, {} of them not right\n- something was moved in {} of them: {} times, and put \
         back {} times; {} faults\n\n",
        all(|r| r.runs),
        all(|r| r.wrong),
        all(|r| r.moved_in),
        done.moves,
        done.back,
        done.faults
    );
    text.push_str(
        "| program | runs | not right | moved in | moves | put back | faults | refused | native s | \
         under chaos s | why refused |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (name, row) in rows {
        let refused: Vec<String> = row
            .refused
            .iter()
            .map(|(why, times)| format!("{times}: {}", why.replace('|', "/")))
            .collect();
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {:.2} | {:.2} | {} |",
            row.runs,
            row.wrong,
            row.moved_in,
            row.done.moves,
            row.done.back,
            row.done.faults,
            row.done.refused,
            row.native,
            measure::median(&row.walls),
            refused.join("; ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_findings::{Move, Moved, RolledBack, Unrepaired};

    #[test]
    fn repeated_moves_are_counted_each_time() {
        let back = Some(RolledBack::default());
        let away = |rolled_back| Move {
            rolled_back,
            ..Move::default()
        };
        let moved = |moves, faults| Moved {
            moves,
            faults,
            ..Moved::default()
        };
        let repair = Repair {
            moved: vec![
                moved(vec![away(back.clone()), away(back), away(None)], 7),
                moved(vec![away(None)], 5),
            ],
            refused: vec![Unrepaired::default()],
            ..Repair::default()
        };
        let wanted = Done {
            moves: 4,
            back: 2,
            faults: 12,
            refused: 1,
        };
        assert_eq!(Done::of(&repair), wanted);
        assert_eq!(Done::of(&Repair::default()), Done::default());
    }

    #[test]
    fn reasons_that_differ_in_an_address_are_one() {
        assert_eq!(
            without_numbers("the instruction at 0x401000 in 3 threads"),
            "the instruction at … in … threads"
        );
    }
}
