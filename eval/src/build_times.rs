//! How long this workspace takes to build and to test, and how much it leaves on disk: clones
//! it into empty folders and runs what a newcomer runs. Called by `sunder-eval build-times`.
//! It builds what is committed, never what lies changed in the working folder.

use crate::Options;
use crate::measure::{self, Measurement, median};
use crate::record::Record;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is timed, in this order: a clone replaces the one before.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// The program, from nothing: what `cargo run --release` does before it runs.
    Release,
    /// The same again after a change of one line of `sunder-sharing`.
    Change,
    /// The shipped program.
    Dist,
    /// The debug build after such a change, as whoever changes code builds and tests.
    Edit,
    /// All tests, from nothing.
    Test,
}

impl Step {
    const ALL: [Self; 5] = [
        Self::Release,
        Self::Change,
        Self::Dist,
        Self::Edit,
        Self::Test,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Change => "change",
            Self::Edit => "edit",
            Self::Dist => "dist",
            Self::Test => "test",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Release | Self::Change => &["build", "--release"],
            Self::Edit => &["build"],
            Self::Dist => &["build", "--profile", "dist"],
            Self::Test => &["test", "--workspace"],
        }
    }

    /// What the bytes are those of.
    fn left(self) -> &'static str {
        match self {
            Self::Dist => "target/dist/sunder",
            _ => "target",
        }
    }

    /// The most that is wanted: seconds of wall time, of CPU time, and bytes.
    fn wanted(self) -> &'static str {
        match self {
            Self::Release => "120 s, 240 CPU s, 400 MB",
            Self::Change | Self::Edit => "15 s",
            Self::Dist => "10 MB",
            Self::Test => "720 s, 2,500 MB",
        }
    }
}

/// One step of one repetition.
struct Row {
    step: Step,
    wall: f64,
    cpu: f64,
    bytes: u64,
    passed: u64,
    failed: u64,
}

/// Runs the benchmark.
///
/// # Errors
/// If the workspace can't be cloned or does not build, or the record can't be written. Tests
/// that fail are counted, not an error.
pub fn run(options: &Options) -> Result<()> {
    let wanted = |step: &Step| {
        let mut names = options.only.split(',');
        names.any(|name| step.name().contains(name))
    };
    let steps: Vec<Step> = Step::ALL.into_iter().filter(wanted).collect();
    // The record of some steps does not replace that of all.
    let name = match options.only.as_str() {
        "" => "build-times".to_owned(),
        only => format!("build-times-{}", only.replace(',', "-")),
    };
    let mut record = Record::new(
        &name,
        "The workspace is cloned into an empty folder and built there; the tests and debug builds \
         have clones of their own. Crates are downloaded before. Bytes are those of `target`, of `dist` those of \
         the program.",
        options.repetitions,
        &["step", "wall_s", "cpu_s", "bytes", "passed", "failed"],
    )?;
    let mut rows = Vec::new();
    for repetition in 0..options.repetitions {
        let mut built = None;
        for &step in &steps {
            eprintln!(
                "{} of {}: {}",
                repetition + 1,
                options.repetitions,
                step.name()
            );
            let fresh;
            let clone = if matches!(step, Step::Test | Step::Edit) {
                fresh = Clone::new()?;
                if step == Step::Edit {
                    build(&fresh, step)?;
                }
                &fresh
            } else {
                if built.is_none() {
                    let clone = Clone::new()?;
                    if step != Step::Release {
                        build(&clone, Step::Release)?;
                    }
                    built = Some(clone);
                }
                built.as_ref().context("it was just made")?
            };
            if matches!(step, Step::Change | Step::Edit) {
                clone.change_a_line()?;
            }
            let row = build(clone, step)?;
            record.row(&[
                row.step.name().into(),
                format!("{:.1}", row.wall),
                format!("{:.1}", row.cpu),
                row.bytes.to_string(),
                row.passed.to_string(),
                row.failed.to_string(),
            ])?;
            rows.push(row);
        }
    }
    record.finish(&summary(&steps, &rows))
}

/// The workspace as it is committed, in an empty folder that is removed at the end.
struct Clone {
    folder: PathBuf,
}

impl Clone {
    fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("sunder-build-{}", std::process::id()));
        let clone = Self {
            folder: folder.join("sunder"),
        };
        clone.remove();
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let cloned = Command::new("git")
            .args(["clone", "--quiet", "--no-hardlinks"])
            .args([&workspace, &clone.folder])
            .status()
            .context("cannot run git")?;
        ensure!(cloned.success(), "git could not clone the workspace");
        let fetched = clone.cargo(&["fetch", "--quiet"]).status()?;
        ensure!(fetched.success(), "cargo could not fetch the crates");
        Ok(clone)
    }

    /// Cargo in this folder, without anything that ours was told.
    fn cargo(&self, arguments: &[&str]) -> Command {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.folder);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let ours = ["CARGO_", "SUNDER_", "RUSTFLAGS", "RUSTC", "MAKEFLAGS"];
            if text != "CARGO_HOME" && ours.iter().any(|start| text.starts_with(start)) {
                command.env_remove(&name);
            }
        }
        command
    }

    /// Each time another line.
    fn change_a_line(&self) -> Result<()> {
        let path = self.folder.join("crates/model/sharing/src/lib.rs");
        let source =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let line = "\nconst _: () = assert!(size_of::<u64>() == 8, \"one line more\");\n";
        fs::write(&path, source + line)?;
        Ok(())
    }

    fn remove(&self) {
        // It may not be there.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Clone {
    fn drop(&mut self) {
        self.remove();
    }
}

fn build(clone: &Clone, step: Step) -> Result<Row> {
    let ran = measure::run(&mut clone.cargo(step.arguments()))?;
    let (passed, failed) = outcomes(&String::from_utf8_lossy(&ran.stdout));
    ensure!(
        ran.status == 0 || failed > 0,
        "`cargo {}` failed",
        step.arguments().join(" ")
    );
    let Measurement { wall, cpu, .. } = ran;
    Ok(Row {
        step,
        wall,
        cpu,
        bytes: bytes(&clone.folder.join(step.left()))?,
        passed,
        failed,
    })
}

/// How many test cases passed and failed, by the last lines of all test binaries.
fn outcomes(printed: &str) -> (u64, u64) {
    let count = |word: &str| {
        let results = printed.lines().filter(|l| l.starts_with("test result: "));
        let parts = results.flat_map(|line| line.split([';', '.']));
        parts
            .filter_map(|part| part.trim().strip_suffix(word)?.trim().parse::<u64>().ok())
            .sum()
    };
    (count("passed"), count("failed"))
}

/// The bytes on disk of a file or of everything in a folder; a file with two names counts
/// once.
fn bytes(path: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut seen = std::collections::BTreeSet::new();
    let mut open = vec![path.to_owned()];
    let mut sum = 0;
    while let Some(path) = open.pop() {
        let about = path
            .symlink_metadata()
            .with_context(|| format!("cannot look at {}", path.display()))?;
        if seen.insert((about.dev(), about.ino())) {
            sum += if path.is_dir() { 0 } else { about.len() };
        }
        if about.is_dir() {
            for entry in fs::read_dir(&path)? {
                open.push(entry?.path());
            }
        }
    }
    Ok(sum)
}

fn summary(steps: &[Step], rows: &[Row]) -> String {
    let mut text = String::from(
        "| step | command | wanted at most | best | median | CPU, median | left | tests |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for &step in steps {
        let of = |f: fn(&Row) -> f64| -> Vec<f64> {
            rows.iter().filter(|row| row.step == step).map(f).collect()
        };
        let walls = of(|row| row.wall);
        let [passed, failed] = [of(|row| row.passed as f64), of(|row| row.failed as f64)];
        let _ = writeln!(
            text,
            "| {} | `cargo {}` | {} | {:.1} s | {:.1} s | {:.1} s | {:.1} MB of `{}` | {} passed, {} failed |",
            step.name(),
            step.arguments().join(" "),
            step.wanted(),
            walls.iter().copied().fold(f64::INFINITY, f64::min),
            median(&walls),
            median(&of(|row| row.cpu)),
            median(&of(|row| row.bytes as f64)) / 1e6,
            step.left(),
            median(&passed),
            failed.iter().copied().fold(0.0, f64::max),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_of_all_test_binaries_are_added() {
        let printed = "running 2 tests\ntest a ... ok\n\
            test result: ok. 41 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 5.12s\n\
            test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.18s\n";
        assert_eq!(outcomes(printed), (43, 3));
    }

    #[test]
    fn the_summary_has_the_best_and_the_median_of_each_step() {
        let row = |wall, bytes| Row {
            step: Step::Release,
            wall,
            cpu: 2.0 * wall,
            bytes,
            passed: 0,
            failed: 0,
        };
        let rows = [
            row(100.0, 3_000_000),
            row(90.0, 3_000_000),
            row(130.0, 3_000_000),
        ];
        let text = summary(&[Step::Release], &rows);
        let wanted = "| release | `cargo build --release` | 120 s, 240 CPU s, 400 MB | 90.0 s | \
            100.0 s | 200.0 s | 3.0 MB of `target` | 0 passed, 0 failed |";
        assert_eq!(text.lines().last(), Some(wanted));
    }

    #[test]
    fn a_file_with_two_names_counts_once() {
        let folder = sunder_workloads::default_out_dir().join("build-times-bytes");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("a"), [0; 1000]).expect("writable");
        fs::hard_link(folder.join("a"), folder.join("b")).expect("one file system");
        fs::write(folder.join("c"), [0; 10]).expect("writable");
        assert_eq!(bytes(&folder).expect("readable"), 1010);
        assert_eq!(bytes(&folder.join("c")).expect("readable"), 10);
    }
}
