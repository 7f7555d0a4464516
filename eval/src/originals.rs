//! `originals`: the programs of Phoenix, PARSEC and Splash-3 that the papers measure, built from
//! checkouts that the caller gives, with inputs that are made here: natively, fixed as the papers
//! describe, and under every command, at several numbers of threads. What crashes natively is said and
//! not measured.

mod build;
mod inputs;
mod spec;

use crate::measure::{Measurement, median, quantile, run as measure};
use crate::modes::{MODES, Mode};
use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::{Result, ensure};
use build::{Built, Folder};
use spec::{Program, Suite, Variant};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_findings::{Findings, Sharing};

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct What {
    /// Which suite
    #[arg(value_enum)]
    suite: spec::Kind,
    /// Its checkout; it is only read
    #[arg(long)]
    dir: PathBuf,
    /// Sizes of the inputs, as factors of the usual ones, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1")]
    sizes: Vec<f64>,
    /// Only these commands of the tool, separated by commas
    #[arg(long, default_value = "detect,run,repair,protect,cure")]
    modes: String,
}

const COLUMNS: [&str; 7] = [
    "program", "threads", "size", "run", "way", "seconds", "same",
];

/// The times of one way to run a program, in seconds.
type Times = Vec<f64>;

/// One program at one size with one number of threads.
struct Case<'a> {
    program: &'a Program,
    threads: u32,
    size: f64,
    input: Option<PathBuf>,
}

/// What came of a case.
struct Row {
    name: String,
    threads: u32,
    size: f64,
    native: Times,
    by_hand: Option<Times>,
    /// In the order of the modes.
    under: Vec<Times>,
    /// What detection said of its first finding.
    said: String,
    /// How it was fixed by hand.
    fixed_by: Option<String>,
    /// Ways whose output or status was not the native one.
    wrong: Vec<String>,
    crash: Option<String>,
}

/// Runs the benchmark.
///
/// # Errors
/// If a program does not build, an output was wrong under Sunder, or nothing can be recorded.
pub fn run(what: &What, options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let modes: Vec<&Mode> = MODES
        .iter()
        .filter(|mode| what.modes.split(',').any(|name| name == mode.name))
        .collect();
    ensure!(!modes.is_empty(), "no command has a name of these");
    let suite = Suite::of(what.suite)?;
    let folder = Folder::copy(&what.dir, &suite.folder)?;
    let mut record = Record::new(
        &format!("originals-{}", what.suite.name()),
        &format!(
            "The programs of {} as they are, fixed where the papers say how, and under the commands, \
             in turns.",
            suite.what
        ),
        options.repetitions,
        &COLUMNS,
    )?;
    let mut rows = Vec::new();
    let chosen = |program: &&Program| {
        let mut parts = options.only.split(',');
        parts.any(|part| program.name.contains(part))
    };
    for program in suite.program.iter().filter(chosen) {
        for &size in &what.sizes {
            let input = program.input(size)?;
            let usual = [2];
            let counts = match options.threads.as_slice() {
                [] => &usual[..],
                counts => counts,
            };
            for &threads in counts {
                let case = Case {
                    program,
                    threads,
                    size,
                    input: input.clone(),
                };
                let row = case.measure(&folder, &sunder, &modes, options, &mut record)?;
                println!("{}", line(&row));
                rows.push(row);
            }
            // Inputs are large.
            if let Some(input) = &input {
                inputs::remove(input)?;
            }
        }
    }
    record.finish(&summary(&rows, &modes))?;
    let wrong: Vec<&str> = rows
        .iter()
        .flat_map(|r| &r.wrong)
        .map(String::as_str)
        .collect();
    ensure!(wrong.is_empty(), "not as natively: {}", wrong.join(", "));
    Ok(())
}

impl Case<'_> {
    fn measure(
        &self,
        folder: &Folder,
        sunder: &Path,
        modes: &[&Mode],
        options: &Options,
        record: &mut Record,
    ) -> Result<Row> {
        let shared = folder.build(self.program, Variant::Shared, self.threads)?;
        let fixed = match self.program.edit.as_slice() {
            [] => None,
            _ => Some(folder.build(self.program, Variant::Fixed, self.threads)?),
        };
        let mut row = Row {
            name: self.program.name.clone(),
            threads: self.threads,
            size: self.size,
            native: Vec::new(),
            by_hand: fixed.as_ref().map(|_| Vec::new()),
            under: vec![Vec::new(); modes.len()],
            said: String::new(),
            fixed_by: self.program.fixed_by.clone(),
            wrong: Vec::new(),
            crash: None,
        };
        let run = |command: &mut Command| {
            let mut seen = measure(command)?;
            seen.stdout = self.program.compared(&seen.stdout);
            anyhow::Ok(seen)
        };
        let first = run(&mut self.native(&shared))?;
        if first.status != 0 {
            row.crash = Some(ended(first.status));
            return Ok(row);
        }
        // What differs from run to run is not compared.
        let again = run(&mut self.native(&shared))?;
        let expected = (first.stdout == again.stdout).then_some(first.stdout);
        let file = folder.scratch("result.json");
        for number in 0..options.repetitions {
            let mut keep = |way: &str, seen: &Measurement, times: &mut Times| {
                let same = seen.status == 0
                    && expected
                        .as_ref()
                        .is_none_or(|output| *output == seen.stdout);
                times.push(seen.wall);
                let fields = [
                    self.program.name.clone(),
                    self.threads.to_string(),
                    self.size.to_string(),
                    number.to_string(),
                    way.to_owned(),
                    format!("{:.4}", seen.wall),
                    same.to_string(),
                ];
                if !same {
                    row.wrong.push(format!(
                        "{} under {way} ({})",
                        self.program.name,
                        ended(seen.status)
                    ));
                }
                record.row(&fields)
            };
            keep("native", &run(&mut self.native(&shared))?, &mut row.native)?;
            if let (Some(fixed), Some(times)) = (&fixed, &mut row.by_hand) {
                keep("by hand", &run(&mut self.native(fixed))?, times)?;
            }
            for (mode, times) in modes.iter().zip(&mut row.under) {
                let mut command = mode.command(sunder, &file);
                self.add_to(&mut command, &shared);
                keep(mode.name, &run(&mut command)?, times)?;
            }
        }
        row.said = self.said(sunder, &shared, &file)?;
        Ok(row)
    }

    /// What `detect` says of the finding that costs most.
    fn said(&self, sunder: &Path, shared: &Built, file: &Path) -> Result<String> {
        let mut command = Command::new(sunder);
        command.args(["detect", "--quiet", "--format", "json", "-o"]);
        command.arg(file).arg("--");
        self.add_to(&mut command, shared);
        measure(&mut command)?;
        let result = Findings::open(file)?;
        let present = result.significant(result.run.threshold_percent);
        let first =
            present.max_by(|a, b| a.false_cost_percent().total_cmp(&b.false_cost_percent()));
        let Some(first) = first else {
            let reasons = result
                .verdict
                .map(|verdict| verdict.reasons)
                .unwrap_or_default();
            let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
            return Ok(match reasons.as_slice() {
                [] => "none".into(),
                _ => format!("not known: {}", reasons.join("; ")),
            });
        };
        let gain = first.gain_percent.map_or_else(
            || "no figure".into(),
            |g| format!("saves {:.0} % ({:.0}-{:.0})", g.likely, g.low, g.high),
        );
        let kind = match first.sharing {
            Sharing::Mixed => ", mixed",
            _ => "",
        };
        Ok(format!(
            "{}{kind}: up to {:.0} %, {gain}",
            first.object.short_name(),
            first.false_cost_percent()
        ))
    }

    fn native(&self, program: &Built) -> Command {
        let mut command = Command::new("env");
        self.add_to(&mut command, program);
        command
    }

    fn add_to(&self, command: &mut Command, program: &Built) {
        // Some leave files where they run.
        command.current_dir(&program.folder).arg(&program.file);
        for word in self.program.run.split_whitespace() {
            match (word, &self.input) {
                ("$INPUT", Some(input)) => command.arg(input),
                _ => command.arg(word.replace("$N", &self.threads.to_string())),
            };
        }
    }
}

/// How a process ended, from its wait status.
fn ended(status: i32) -> String {
    if libc::WIFSIGNALED(status) {
        format!("signal {}", libc::WTERMSIG(status))
    } else {
        format!("status {}", libc::WEXITSTATUS(status))
    }
}

fn line(row: &Row) -> String {
    if let Some(crash) = &row.crash {
        return format!(
            "{} ({} threads) crashes natively: {crash}",
            row.name, row.threads
        );
    }
    let native = median(&row.native);
    format!(
        "{} ({} threads): {native:.2} s natively; {}",
        row.name, row.threads, row.said
    )
}

fn summary(rows: &[Row], modes: &[&Mode]) -> String {
    let mut text =
        String::from("| program | threads | size | native s (range) | by hand s | gain % |");
    for mode in modes {
        let _ = write!(text, " {} s |", mode.name);
    }
    text.push_str(" said by detect |\n|---|---|---|---|---|---|");
    text.push_str(&"---|".repeat(modes.len() + 1));
    text.push('\n');
    for row in rows {
        let _ = write!(text, "| {} | {} | {} | ", row.name, row.threads, row.size);
        if let Some(crash) = &row.crash {
            let _ = writeln!(
                text,
                "crashes natively: {crash} |{}",
                " |".repeat(modes.len() + 3)
            );
            continue;
        }
        let native = median(&row.native);
        let _ = write!(
            text,
            "{native:.2} ({:.2}-{:.2}) | ",
            quantile(&row.native, 0.0),
            quantile(&row.native, 1.0)
        );
        match &row.by_hand {
            Some(times) => {
                let fixed = median(times);
                let _ = write!(text, "{fixed:.2} | {:.0} |", 100.0 * (1.0 - fixed / native));
            }
            None => text.push_str("- | - |"),
        }
        for times in &row.under {
            let _ = write!(text, " {:.2} |", median(times));
        }
        let _ = writeln!(text, " {} |", row.said);
    }
    text.push_str("\nFixed by hand:\n\n");
    let mut told = Vec::new();
    for row in rows {
        if let Some(how) = &row.fixed_by
            && !told.contains(&&row.name)
        {
            let _ = writeln!(text, "- {}: {how}", row.name);
            told.push(&row.name);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_has_its_row_and_no_figures() {
        let row = Row {
            name: "histogram".into(),
            threads: 2,
            size: 1.0,
            native: Vec::new(),
            by_hand: None,
            under: vec![Vec::new()],
            said: String::new(),
            fixed_by: None,
            wrong: Vec::new(),
            crash: Some("signal 6".into()),
        };
        let table = summary(&[row], &[&MODES[0]]);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[2].contains("crashes natively: signal 6"), "{table}");
        let cells = |line: &str| line.matches('|').count();
        assert_eq!(cells(lines[2]), cells(lines[0]), "{table}");
    }

    #[test]
    fn a_death_is_told_from_a_status() {
        assert_eq!(ended(6), "signal 6");
        assert_eq!(ended(3 << 8), "status 3");
    }
}
