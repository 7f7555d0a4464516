//! `suites`: upstream test suites of threaded runtimes and servers, natively and under every
//! command that starts a program. The suites are not part of this repository; the caller gives their
//! folders. A test whose native runs differ among themselves, or that does not run here natively, is
//! counted and not compared.

mod kinds;
mod verdicts;

use crate::limited;
use crate::modes::{MODES, Mode};
use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::{Result, ensure};
pub use kinds::Kind;
use kinds::Unit;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use verdicts::{Seen, Verdicts};

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct What {
    /// Which suite
    #[arg(value_enum)]
    kind: Kind,
    /// The suite's folder, built where it needs that. For `python` and `go`: where that is installed
    #[arg(long)]
    dir: PathBuf,
    /// Only these commands of the tool, separated by commas
    #[arg(long, default_value = "detect,run,repair,protect")]
    modes: String,
}

const COLUMNS: [&str; 6] = ["suite", "unit", "mode", "tests", "differ", "verdict"];

/// What became of a mode's runs.
#[derive(Default)]
struct Row {
    /// Units that were run.
    units: u32,
    /// Tests whose verdict was the native one.
    equal: usize,
    /// Units of which something differed at first, and in none of the runs that were made again.
    once: u32,
    /// The same, and it differed again.
    differs: u32,
}

/// The words of suites for a test that passed.
const PASSED: [&str; 3] = ["ok", "PASS", "OK"];

#[derive(Default)]
struct Counts {
    units: u32,
    /// Tests of all units that passed, failed, or were skipped natively, by the suite's own word.
    native: BTreeMap<String, usize>,
    /// Tests whose native verdicts differ from run to run.
    varies: Vec<String>,
    /// What the first unit that failed natively printed last.
    failed: Option<String>,
    /// Units that do not end natively.
    unusable: Vec<String>,
    modes: BTreeMap<&'static str, Row>,
    differences: String,
}

/// Runs the suite.
///
/// # Errors
/// If a test differed under Sunder, after all are recorded; or if nothing can be run or recorded.
pub fn run(what: &What, options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let wanted: Vec<&Mode> = MODES
        .iter()
        .filter(|mode| what.modes.split(',').any(|name| name == mode.name))
        .collect();
    ensure!(!wanted.is_empty(), "no command has a name of these");
    let mut suite = what.kind.suite(&what.dir)?;
    let chosen = |unit: &Unit| options.only.split(',').any(|part| unit.name.contains(part));
    suite.units.retain(chosen);
    ensure!(!suite.units.is_empty(), "there is nothing to run");
    let about = format!(
        "The tests of {} natively, twice, and under each command. The status of a run and the \
         verdict on each test must be the native ones. What differs is run again three times.",
        suite.what
    );
    let name = format!("suite-{}", what.kind.name());
    let mut record = Record::new(&name, &about, options.repetitions, &COLUMNS)?;
    let mut counts = Counts::default();
    for unit in &suite.units {
        let mut compare = Compare {
            unit,
            kind: what.kind,
            sunder: &sunder,
            counts: &mut counts,
            record: &mut record,
        };
        compare.all(&wanted, options.repetitions)?;
    }
    let passes = |verdict: &String| PASSED.contains(&verdict.as_str());
    ensure!(
        counts.native.keys().any(passes),
        "no test passes natively; {}",
        counts.failed.as_deref().unwrap_or("none ended")
    );
    let differs: u32 = counts.modes.values().map(|row| row.differs).sum();
    record.finish(&summary(&counts))?;
    ensure!(differs == 0, "{differs} units were not as natively");
    Ok(())
}

/// One unit natively and under the commands.
struct Compare<'a> {
    unit: &'a Unit,
    kind: Kind,
    sunder: &'a Path,
    counts: &'a mut Counts,
    record: &'a mut Record,
}

impl Compare<'_> {
    fn seen(&self, mode: Option<&Mode>) -> Result<Seen> {
        let mut command = self.unit.command(mode.map(|mode| (self.sunder, mode)))?;
        let ran = limited::run(&mut command, self.unit.limit)?;
        Ok(Seen::of(self.kind, ran))
    }

    fn all(&mut self, modes: &[&Mode], repetitions: u32) -> Result<()> {
        let (first, second) = (self.seen(None)?, self.seen(None)?);
        let counts = &mut *self.counts;
        let name = &self.unit.name;
        println!(
            "{name}: natively {}, {} tests",
            first.status,
            first.verdicts.len()
        );
        counts.units += 1;
        if first.status != "0" && counts.failed.is_none() {
            counts.failed = Some(format!("{name} ended with: {}", first.tail()));
        }
        if !first.ends || first.status != second.status {
            counts.unusable.push(format!("{name} ({})", first.status));
            return Ok(());
        }
        let steady = first.steady(&second);
        for test in first
            .verdicts
            .keys()
            .filter(|test| !steady.contains_key(*test))
        {
            counts.varies.push(format!("{name}: {test}"));
        }
        for verdict in steady.values() {
            *counts.native.entry(verdict.clone()).or_default() += 1;
        }
        for mode in modes {
            for _ in 0..repetitions {
                self.under(mode, &first, &steady)?;
            }
        }
        Ok(())
    }

    fn under(&mut self, mode: &Mode, native: &Seen, steady: &Verdicts) -> Result<()> {
        let seen = self.seen(Some(mode))?;
        let differences = seen.differences(native, steady);
        let verdict = if differences.is_empty() {
            "as natively".to_owned()
        } else {
            let mut again = 0;
            for _ in 0..3 {
                let seen = self.seen(Some(mode))?;
                again += u32::from(!seen.differences(native, steady).is_empty());
            }
            format!("{again} of 3 again")
        };
        let row = self.counts.modes.entry(mode.name).or_default();
        row.units += 1;
        row.equal += steady.len().saturating_sub(differences.len());
        if !differences.is_empty() && verdict.starts_with('0') {
            row.once += 1;
        } else if !differences.is_empty() {
            row.differs += 1;
        }
        let fields = [
            self.kind.name().to_owned(),
            self.unit.name.clone(),
            mode.name.to_owned(),
            steady.len().to_string(),
            differences.len().to_string(),
            verdict.clone(),
        ];
        println!("{}", fields.join(": "));
        self.record
            .row(&fields.map(|text| text.replace(',', ";")))?;
        if !differences.is_empty() {
            let text = &mut self.counts.differences;
            writeln!(
                text,
                "## {}, {}: {verdict}\n\n{}\n\n```\n{}\n```\n",
                self.unit.name,
                mode.name,
                differences.join("\n"),
                seen.tail()
            )?;
            let text = text.clone();
            self.record.attach("differences.md", &text)?;
        }
        Ok(())
    }
}

fn summary(counts: &Counts) -> String {
    let mut text = format!("- {} units\n", counts.units);
    for (verdict, tests) in &counts.native {
        let _ = writeln!(text, "- natively {verdict}: {tests} tests");
    }
    let _ = writeln!(
        text,
        "- vary natively, not compared: {} tests",
        counts.varies.len()
    );
    let _ = writeln!(
        text,
        "- units that do not end natively, or not twice in the same way: {}",
        counts.unusable.len()
    );
    text.push_str(
        "\n| mode | units run | tests as natively | units that differed once | units that differ |\n|---|---|---|---|---|\n",
    );
    for (mode, row) in &counts.modes {
        let _ = writeln!(
            text,
            "| {mode} | {} | {} | {} | {} |",
            row.units, row.equal, row.once, row.differs
        );
    }
    for (title, names) in [
        ("Vary natively", &counts.varies),
        ("Not to be compared", &counts.unusable),
    ] {
        if !names.is_empty() {
            let _ = writeln!(text, "\n{title}: {}.", names.join(", "));
        }
    }
    text
}
