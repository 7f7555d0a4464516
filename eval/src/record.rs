//! Keeps the figures of a benchmark in `eval/runs/<date>-<machine>-<name>/`: a README with the
//! command and the machine, the raw rows, and a summary that is generated from the rows. Called by
//! every benchmark. No record names a folder of the machine on which it was made: see
//! [`without_places`].

use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder of one benchmark.
pub struct Record {
    folder: PathBuf,
    rows: String,
}

impl Record {
    /// Makes the folder for the benchmark `name` and writes its README. `about` describes the
    /// measurement, `repetitions` the number of runs.
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
            commit(),
            cpu_field("model name"),
            std::thread::available_parallelism().map_or(1, usize::from),
            output("uname", &["-r"]),
            if cpu_field("flags").contains("hypervisor") {
                "yes"
            } else {
                "no"
            },
        );
        fs::write(folder.join("README.md"), without_places(&readme))?;
        Ok(Self {
            folder,
            rows: columns.join(",") + "\n",
        })
    }

    /// Adds a row and saves all rows so far, so that they are kept if the benchmark is interrupted.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn row(&mut self, fields: &[String]) -> Result<()> {
        writeln!(self.rows, "{}", without_places(&fields.join(",")))?;
        fs::write(self.folder.join("raw.csv"), &self.rows)?;
        Ok(())
    }

    /// Saves another table beside the rows.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn attach(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.folder.join(name), without_places(text))?;
        Ok(())
    }

    /// Writes the summary and prints it.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn finish(self, summary: &str) -> Result<()> {
        let summary = without_places(summary);
        fs::write(self.folder.join("summary.md"), &summary)?;
        println!("{summary}\nrecorded in {}", self.folder.display());
        Ok(())
    }
}

/// Folders with the same files on every distribution.
const SYSTEM: [&str; 9] = [
    "/bin/", "/dev/", "/etc/", "/lib/", "/lib64/", "/proc/", "/sbin/", "/sys/", "/usr/",
];

/// Characters that separate a path from the text around it.
fn parts_words(c: char) -> bool {
    c.is_whitespace() || "\"'`,;:|()<>=".contains(c)
}

/// The text with paths of this machine (a home, a working folder) replaced by the names of their
/// files: the folders differ between machines and are private.
pub fn without_places(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for piece in text.split_inclusive(parts_words) {
        let word = piece.trim_end_matches(parts_words);
        let inside = word.strip_prefix('~').unwrap_or(word);
        let is_path = inside.len() > 1 && inside.starts_with('/') && !inside.starts_with("//");
        if is_path && !SYSTEM.iter().any(|folder| word.starts_with(folder)) {
            let name = word.trim_end_matches('/').rsplit('/').next();
            plain.push_str(name.unwrap_or_default());
            plain.push_str(&piece[word.len()..]);
        } else {
            plain.push_str(piece);
        }
    }
    plain
}

/// Where records go, if not to `eval/runs`.
static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Keeps all records of this run in `folder`.
pub fn keep_in(folder: PathBuf) {
    FOLDER.get_or_init(|| folder);
}

/// The folder of all records.
pub fn runs_folder() -> PathBuf {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("runs");
    FOLDER.get().cloned().unwrap_or_else(own)
}

/// The commit of the checkout, and whether the checkout differs from it in anything but records.
pub fn commit() -> String {
    let changes = ["status", "--porcelain", "--", ".", ":!eval/runs"];
    let changed = match git(&changes).is_empty() {
        true => "",
        false => ", with changes that are not in it",
    };
    git(&["rev-parse", "--short", "HEAD"]) + changed
}

/// What `git` says of this checkout, wherever it is called.
fn git(arguments: &[&str]) -> String {
    let within = ["-C", concat!(env!("CARGO_MANIFEST_DIR"), "/..")];
    output("git", &[&within[..], arguments].concat())
}

fn today() -> String {
    output("date", &["+%Y-%m-%d"])
}

/// Number of CPUs and whether the machine is virtual: enough to tell our machines apart.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_paths_are_reduced_to_file_names() {
        for (text, wanted) in [
            (
                "the code of /home/somebody/.tools/bin/rustc can't be looked through",
                "the code of rustc can't be looked through",
            ),
            ("\"~/.tools/bin/rustc\",1", "\"rustc\",1"),
            ("--report=/tmp/a/report.json", "--report=report.json"),
            ("in `/srv/build/`, twice", "in `build`, twice"),
            (
                "/usr/lib/libgomp.so.1 makes kernel calls",
                "/usr/lib/libgomp.so.1 makes kernel calls",
            ),
            (
                "| 3 | 1/2 | crates/cli/tests |",
                "| 3 | 1/2 | crates/cli/tests |",
            ),
            ("https://example.org/a/b / c", "https://example.org/a/b / c"),
        ] {
            assert_eq!(without_places(text), wanted);
        }
    }

    /// All files below a folder: the record of several has a folder for each.
    fn below(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).expect("a folder");
        let paths = entries.map(|entry| entry.expect("readable").path());
        let all = paths.flat_map(|path| match path.is_dir() {
            true => below(&path),
            false => vec![path],
        });
        all.collect()
    }

    #[test]
    fn records_contain_no_local_paths() {
        let all = below(&runs_folder());
        assert!(!all.is_empty(), "no record was found");
        for path in all {
            // The ends of a picture's elements are no paths.
            let text = fs::read_to_string(&path)
                .expect("a record is text")
                .replace("</", "<");
            for (line, written) in text.lines().enumerate() {
                let plain = without_places(written);
                assert_eq!(written, plain, "{}, line {}", path.display(), line + 1);
            }
        }
    }
}
