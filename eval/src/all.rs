//! `all`: every table and figure of the papers in one go, each by its own command, into one folder.
//! It can be stopped and started again: what is there from the same commit is kept. At the end it
//! writes a page with all summaries, and charts with the papers' own numbers beside ours.

mod chart;
mod papers;

use crate::options::Options;
use crate::record::{commit, runs_folder, without_places};
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What `sunder-eval all` takes.
#[derive(Debug, Clone, clap::Args)]
pub struct What {
    /// An hour in place of a night: few repetitions, short programs
    #[arg(long)]
    quick: bool,
    /// Make everything again, also what is there from this commit
    #[arg(long)]
    anew: bool,
    /// A checkout of an original suite, as phoenix=DIR; may be given several times
    #[arg(long, value_name = "SUITE=DIR", value_parser = suite)]
    originals: Vec<(String, PathBuf)>,
    /// Only say what would be run
    #[arg(long)]
    dry_run: bool,
}

fn suite(text: &str) -> Result<(String, PathBuf), String> {
    let (name, folder) = text.split_once('=').ok_or("give SUITE=DIR")?;
    Ok((name.to_owned(), PathBuf::from(folder)))
}

/// One command, and what it is for.
struct Step {
    /// The end of its record's name.
    record: String,
    /// The tables and figures that it makes.
    makes: &'static str,
    arguments: Vec<String>,
}

/// A step: its record, what it makes, and its options in full and where time is short.
type Entry = (&'static str, &'static str, &'static str, &'static str);

const STEPS: [Entry; 17] = [
    (
        "detection",
        "SHERIFF, Tables 1 and 2",
        "detection",
        "detection --repetitions 1 --scale 1",
    ),
    (
        "detection-pairs",
        "the same for programs that nothing was learned from",
        "detection --set pairs",
        "detection --set pairs --repetitions 1 --scale 1",
    ),
    (
        "overhead",
        "SHERIFF, Figure 7; Plastic, section 6.2",
        "overhead",
        "overhead --repetitions 2 --scale 1",
    ),
    (
        "sampling",
        "SHERIFF, Figure 9 and Table 5, for samples",
        "sampling",
        "sampling --repetitions 1 --scale 1",
    ),
    (
        "isolate-sampling",
        "SHERIFF, Figure 9 and Table 5, for pages",
        "isolate-sampling",
        "isolate-sampling --repetitions 1 --scale 1",
    ),
    (
        "protect",
        "SHERIFF, Tables 3 and 4, Figures 7 and 8",
        "protect",
        "protect --repetitions 1 --seconds 1",
    ),
    (
        "repair",
        "Plastic, Figure 10",
        "repair",
        "repair --repetitions 1 --seconds 1",
    ),
    (
        "repair-progress",
        "Plastic, Figure 9; the thesis, Figure 5.4",
        "repair-progress",
        "repair-progress --repetitions 1",
    ),
    (
        "repair-callers",
        "Plastic, section 6.1: other callers of the same code",
        "repair-callers",
        "repair-callers --repetitions 3",
    ),
    (
        "first-stage",
        "the thesis, Figures 4.2 and 5.1, with samples in place of counters",
        "first-stage",
        "first-stage --repetitions 1",
    ),
    (
        "cure-pairs",
        "both remedies, on programs that nothing was learned from",
        "cure --set pairs",
        "cure --set pairs --repetitions 1 --seconds 2",
    ),
    (
        "gain",
        "what a fix is said to gain, and gains",
        "gain",
        "gain --repetitions 1 --scale 1",
    ),
    (
        "gain-pairs",
        "the same for programs that nothing was learned from",
        "gain --set pairs",
        "gain --set pairs --repetitions 1 --scale 1",
    ),
    (
        "ground-truth",
        "precision and recall against exact traces",
        "ground-truth --repetitions 5",
        "ground-truth --repetitions 1",
    ),
    (
        "scst",
        "the SCSTallocator paper, Tables 1 to 3",
        "scst",
        "scst",
    ),
    (
        "replay",
        "speed of replays",
        "replay",
        "replay --repetitions 1",
    ),
    (
        "heap",
        "the live heap beside others",
        "heap",
        "heap --repetitions 1",
    ),
];

impl Step {
    /// The end of the command that its record names.
    fn command(&self, options: &Options) -> String {
        let arguments = [passed_on(options), self.arguments.clone()].concat();
        without_places(&format!("{}`", arguments.join(" ")))
    }
}

impl What {
    fn steps(&self) -> Vec<Step> {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        let mut all: Vec<Step> = STEPS
            .iter()
            .map(|&(record, makes, full, quick)| Step {
                record: record.to_owned(),
                makes,
                arguments: words(if self.quick { quick } else { full }),
            })
            .collect();
        for (name, folder) in &self.originals {
            let mut arguments = vec!["originals".to_owned(), name.clone(), "--dir".to_owned()];
            arguments.push(folder.display().to_string());
            if self.quick {
                arguments.extend(["--repetitions".to_owned(), "1".to_owned()]);
            }
            all.push(Step {
                record: format!("originals-{name}"),
                makes: "the papers' own programs",
                arguments,
            });
        }
        all
    }
}

/// The options that every step gets.
fn passed_on(options: &Options) -> Vec<String> {
    let mut all = Vec::new();
    if !options.only.is_empty() {
        all.extend(["--only".to_owned(), options.only.clone()]);
    }
    if !options.threads.is_empty() {
        let counts: Vec<String> = options.threads.iter().map(u32::to_string).collect();
        all.extend(["--threads".to_owned(), counts.join(",")]);
    }
    all
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq)]
enum Ended {
    /// It was there from this commit.
    Kept,
    /// So many seconds.
    Made(f64),
    /// With this status.
    Failed(String),
}

/// Makes the records of all steps in the folder of records, and the page.
///
/// # Errors
/// If a step can't be started, one of them failed, or the page can't be written.
pub fn run(what: &What, options: &Options) -> Result<()> {
    let folder = runs_folder();
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let commit = commit();
    let mut ends = Vec::new();
    for step in what.steps() {
        let there = finished(&folder, &step.record, &commit, &step.command(options));
        if what.dry_run {
            let now = if there.is_some() {
                "kept"
            } else {
                "to be made"
            };
            println!("{}: {} ({now})", step.record, step.arguments.join(" "));
            continue;
        }
        let ended = if there.is_some() && !what.anew {
            Ended::Kept
        } else {
            make(&step, &folder, options)?
        };
        println!("{}: {ended:?}", step.record);
        ends.push((step, ended));
        page(&folder, &commit, &ends, options)?;
    }
    let failed = ends.iter().filter(|(_, e)| matches!(e, Ended::Failed(_)));
    let failed: Vec<&str> = failed.map(|(step, _)| step.record.as_str()).collect();
    if !failed.is_empty() {
        bail!(
            "{} of {} failed: {}",
            failed.len(),
            ends.len(),
            failed.join(", ")
        );
    }
    Ok(())
}

fn make(step: &Step, folder: &Path, options: &Options) -> Result<Ended> {
    let begin = Instant::now();
    let done = Command::new(std::env::current_exe()?)
        .arg("--out")
        .arg(folder)
        .args(passed_on(options))
        .args(&step.arguments)
        .status()
        .with_context(|| format!("cannot run {}", step.record))?;
    Ok(match done.success() {
        true => Ended::Made(begin.elapsed().as_secs_f64()),
        false => Ended::Failed(done.to_string()),
    })
}

/// The folder of the newest finished record of this name from this commit, by a command that ends so.
fn finished(folder: &Path, record: &str, commit: &str, command: &str) -> Option<PathBuf> {
    let all = std::fs::read_dir(folder).ok()?.flatten();
    let mut paths: Vec<PathBuf> = all.map(|entry| entry.path()).collect();
    paths.sort();
    paths.into_iter().rev().find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let readme = std::fs::read_to_string(path.join("README.md")).unwrap_or_default();
        is_record_of(&name, record)
            && path.join("summary.md").is_file()
            && readme.contains(&format!("- commit: {commit}\n"))
            && readme.contains(command)
    })
}

/// Whether a folder of this name, `<date>-<machine>-<name>`, is that of the record. Machines end in
/// `vm` or `metal`.
fn is_record_of(folder: &str, record: &str) -> bool {
    let before = folder
        .strip_suffix(record)
        .and_then(|f| f.strip_suffix('-'));
    before.is_some_and(|before| before.ends_with("-vm") || before.ends_with("-metal"))
}

/// Writes the page: how each step ended, the charts, and the summaries.
fn page(folder: &Path, commit: &str, ends: &[(Step, Ended)], options: &Options) -> Result<()> {
    let record = |step: &Step| finished(folder, &step.record, commit, &step.command(options));
    let mut text = format!(
        "# The papers' tables\n\nMade by `sunder-eval all`. The papers measured other machines, with 8 cores and \
         more threads.\n\n- commit: {commit}\n\n| record | makes | |\n|---|---|---|\n"
    );
    let mut summaries = String::new();
    for (step, ended) in ends {
        let how = match ended {
            Ended::Kept => "was there".to_owned(),
            Ended::Made(seconds) => format!("{seconds:.0} s"),
            Ended::Failed(status) => format!("**failed**: {status}"),
        };
        writeln!(text, "| {} | {} | {how} |", step.record, step.makes)?;
        let Some(path) = record(step) else {
            continue;
        };
        let summary = std::fs::read_to_string(path.join("summary.md"))?;
        write!(
            summaries,
            "\n## {}: {}\n\n{summary}",
            step.record, step.makes
        )?;
    }
    for figure in papers::figures()? {
        let mut steps = ends.iter().map(|(step, _)| step);
        let step = steps.find(|step| step.record == figure.record);
        let Some(path) = step.and_then(record) else {
            continue;
        };
        let rows = papers::beside(&figure, &path.join("raw.csv"))?;
        if rows.is_empty() {
            continue;
        }
        let file = format!("{}.svg", figure.name);
        chart::draw(&folder.join(&file), &figure, &rows)?;
        write!(
            text,
            "\n## {}\n\n![{}]({file})\n\n| program | {} | here, median | least | most |\n|---|---|---|---|---|\n",
            figure.title, figure.title, figure.paper
        )?;
        for row in &rows {
            writeln!(
                text,
                "| {} | {:.2} | {:.2} | {:.2} | {:.2} |",
                row.program, row.paper, row.median, row.least, row.most
            )?;
        }
    }
    std::fs::write(folder.join("README.md"), text + &summaries)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_known_by_its_name_commit_and_summary() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = |name: &str, commit: &str, done: bool| {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).expect("new");
            let readme = format!("# x\n\n- command: `a --only b`\n- commit: {commit}\n- CPU: y\n");
            std::fs::write(path.join("README.md"), readme).expect("written");
            if done {
                std::fs::write(path.join("summary.md"), "").expect("written");
            }
        };
        made("2026-11-22-2cpu-vm-repair", "abc", true);
        made("2026-11-23-2cpu-vm-repair", "abc", false);
        made("2026-11-24-2cpu-vm-repair-progress", "abc", true);
        made("2026-11-25-2cpu-vm-repair", "def", true);
        let found = |record, commit| {
            let path = finished(folder.path(), record, commit, "--only b`")?;
            Some(path.file_name()?.to_string_lossy().into_owned())
        };
        let first = Some("2026-11-22-2cpu-vm-repair".to_owned());
        assert_eq!(found("repair", "abc"), first);
        assert_eq!(
            found("progress", "abc"),
            None,
            "another record's name ends so"
        );
        assert_eq!(found("repair", "ab"), None);
        let other = finished(folder.path(), "repair", "abc", "--only b --repetitions 1`");
        assert_eq!(other, None, "made by a shorter command");
    }

    /// Each step's command line is one that this program understands.
    #[test]
    fn the_steps_are_commands() {
        use clap::CommandFactory;
        for (_, _, full, quick) in STEPS {
            for line in [full, quick] {
                let words = ["sunder-eval", "--out", "x"]
                    .into_iter()
                    .chain(line.split(' '));
                let parsed = crate::Cli::command().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{line}: {parsed:?}");
            }
        }
    }
}
