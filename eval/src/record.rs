//! Keeps the figures of a benchmark in `eval/runs/<date>-<machine>-<name>/`:
//! a README that says how they came about, the raw rows, and a summary that is
//! generated from the rows.

use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One benchmark's folder.
pub struct Record {
    folder: PathBuf,
    rows: String,
}

impl Record {
    /// Makes the folder for the benchmark `name` and writes its README. `about`
    /// says what is measured, `repetitions` how often.
    ///
    /// # Errors
    /// If the folder can't be written.
    pub fn new(name: &str, about: &str, repetitions: u32, columns: &[&str]) -> Result<Self> {
        let folder = runs_folder().join(format!("{}-{}-{name}", today(), machine()));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let readme = format!(
            "# {name}\n\n{about}\n\n\
             - command: `cargo run --release -p sunder-eval -- {}`\n\
             - commit: {}\n- CPU: {}, {} CPUs\n- kernel: {}\n- virtual machine: {}\n\
             - repetitions: {repetitions}, the variants in turn; medians\n\n\
             `raw.csv` has every run, `summary.md` is generated from it.\n",
            arguments.join(" "),
            output("git", &["rev-parse", "--short", "HEAD"]),
            cpu_field("model name"),
            std::thread::available_parallelism().map_or(1, usize::from),
            output("uname", &["-r"]),
            if cpu_field("flags").contains("hypervisor") {
                "yes"
            } else {
                "no"
            },
        );
        fs::write(folder.join("README.md"), readme)?;
        Ok(Self {
            folder,
            rows: columns.join(",") + "\n",
        })
    }

    /// Adds a row and saves what there is, so that a benchmark that is cut off
    /// leaves its rows.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn row(&mut self, fields: &[String]) -> Result<()> {
        writeln!(self.rows, "{}", fields.join(","))?;
        fs::write(self.folder.join("raw.csv"), &self.rows)?;
        Ok(())
    }

    /// Saves another table beside the rows.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn attach(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.folder.join(name), text)?;
        Ok(())
    }

    /// Writes the summary and prints it.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn finish(self, summary: &str) -> Result<()> {
        fs::write(self.folder.join("summary.md"), summary)?;
        println!("{summary}\nrecorded in {}", self.folder.display());
        Ok(())
    }
}

fn runs_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("runs")
}

fn today() -> String {
    output("date", &["+%Y-%m-%d"])
}

/// CPUs and whether it is virtual: enough to tell two machines of ours apart.
fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let kind = if cpu_field("flags").contains("hypervisor") {
        "vm"
    } else {
        "metal"
    };
    format!("{cpus}cpu-{kind}")
}

fn cpu_field(name: &str) -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    info.lines()
        .find(|line| line.starts_with(name))
        .and_then(|line| line.split_once(':'))
        .map_or_else(|| "unknown".into(), |(_, value)| value.trim().into())
}

fn output(program: &str, arguments: &[&str]) -> String {
    Command::new(program)
        .args(arguments)
        .output()
        .map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
        .unwrap_or_default()
}
