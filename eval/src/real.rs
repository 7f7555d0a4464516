//! `real`: unmodified programs of the distribution, natively and under `detect` in turn: is their
//! output the same, what does it cost, and what is found? A person judges the findings, in notes
//! beside the record; nothing here says what should be found.

pub mod input;
pub mod servers;

use crate::measure::{Measurement, hash, median, run as measure};
use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use sunder_findings::{Findings, Sharing};

/// A program, how to run it in the folder of inputs, and what else must be there.
pub struct Case {
    /// Its name in tables.
    pub name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    /// Additional options of `detect`.
    pub options: &'static [&'static str],
    /// A file that it writes, which is compared as well as its output.
    pub writes: Option<&'static str>,
}

impl Case {
    /// Whether the program is installed.
    pub fn is_installed(&self) -> bool {
        !self.program.starts_with('/') || Path::new(self.program).exists()
    }

    /// The command that runs it in `folder`, with the words of another command before it, if there
    /// are any.
    pub fn command(&self, before: &[OsString], folder: &Path) -> Command {
        let mut words = before.iter().cloned().chain([self.program.into()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(self.arguments).current_dir(folder);
        command
    }
}

const fn case(
    name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
) -> Case {
    Case {
        name,
        program,
        arguments,
        options: &[],
        writes: None,
    }
}

const LINK: &[&str] = &[
    "-O2",
    "-flto=2",
    "-frandom-seed=1",
    "-o",
    "linked",
    "main.c",
    "part0.c",
    "part1.c",
    "part2.c",
    "part3.c",
];

/// All programs other than servers.
pub const CASES: [Case; 15] = [
    case("pigz", "/usr/bin/pigz", &["-p", "4", "-n", "-c", "text"]),
    case("pbzip2", "/usr/bin/pbzip2", &["-p2", "-c", "text"]),
    case(
        "pfscan",
        "/usr/bin/pfscan",
        &["-n", "2", "-c", "1234", "text"],
    ),
    case(
        "xz",
        "/usr/bin/xz",
        &["-T2", "-2", "--block-size=2MiB", "-c", "text"],
    ),
    case("zstd", "/usr/bin/zstd", &["-T2", "-9", "-q", "-c", "text"]),
    case(
        "sort",
        "/usr/bin/sort",
        &["--parallel=2", "-S", "64M", "text"],
    ),
    case(
        "x264",
        "/usr/bin/x264",
        &[
            "--threads",
            "3",
            "--quiet",
            "--no-progress",
            "--muxer",
            "raw",
            "-o",
            "/dev/stdout",
            "video.y4m",
        ],
    ),
    case(
        "ffmpeg",
        "/usr/bin/ffmpeg",
        &[
            "-v",
            "error",
            "-nostdin",
            "-stream_loop",
            "9",
            "-i",
            "video.y4m",
            "-threads",
            "4",
            "-c:v",
            "mpeg4",
            "-fflags",
            "+bitexact",
            "-flags:v",
            "+bitexact",
            "-f",
            "nut",
            "pipe:1",
        ],
    ),
    case(
        "sqlite3",
        "/usr/bin/sqlite3",
        &[":memory:", ".read query.sql"],
    ),
    case(
        "sqlite-shared",
        "./sqlite_threads",
        &["shared", "3", "60000"],
    ),
    case(
        "sqlite-separate",
        "./sqlite_threads",
        &["separate", "3", "60000"],
    ),
    case("python3", "/usr/bin/python3", &["threads.py"]),
    case(
        "rustc",
        "rustc",
        &[
            "-C",
            "codegen-units=2",
            "-O",
            "-o",
            "rust-program",
            "program.rs",
        ],
    ),
    Case {
        writes: Some("linked"),
        ..case("gcc-lto", "/usr/bin/gcc", LINK)
    },
    Case {
        options: &["--follow-children"],
        writes: Some("linked"),
        ..case("gcc-lto-children", "/usr/bin/gcc", LINK)
    },
];

const COLUMNS: [&str; 7] = [
    "program", "mode", "run", "wall_s", "cpu_s", "status", "output",
];

/// Runs the benchmark.
///
/// # Errors
/// If an output differs, or the record can't be written.
pub fn run(options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let inputs = input::prepare()?;
    let folder = inputs.path();
    let mut record = Record::new(
        "real-programs",
        "Unmodified Debian programs natively and under `sunder detect` at its default settings: \
         output and status compared, time, and what is reported (`findings.csv`, from the last \
         run of each, with all that `--all` shows). `judged.md` says by hand which findings are \
         right. Column `output` is a hash of standard output, of the file written, or of a \
         server's answers.",
        options.repetitions,
        &COLUMNS,
    )?;
    let mut report = Report::default();
    for case in CASES.iter().filter(|c| c.name.contains(&options.only)) {
        if !case.is_installed() {
            report.skip(case.name);
            continue;
        }
        let result = folder.join(format!("{}.json", case.name));
        let mut seen = Pair::default();
        for i in 0..options.repetitions {
            for detect in [false, true] {
                let before = if detect {
                    under(&sunder, "detect", &result, case.options)
                } else {
                    Vec::new()
                };
                let mut command = case.command(&before, folder);
                let m = measure(&mut command)?;
                let written = case.writes.map(|f| fs::read(folder.join(f))).transpose()?;
                let output = hash(&m.stdout) ^ written.as_deref().map_or(0, hash);
                record.row(&row(case.name, detect, i, &m, output))?;
                seen.add(detect, &m, output);
            }
        }
        report.add(case.name, &seen, &result)?;
    }
    for server in servers::ALL
        .iter()
        .filter(|s| s.name.contains(&options.only))
    {
        if !server.is_installed() {
            report.skip(server.name);
            continue;
        }
        let result = folder.join(format!("{}.json", server.name));
        let mut seen = Pair::default();
        for i in 0..options.repetitions {
            for detect in [false, true] {
                let before = if detect {
                    under(&sunder, "detect", &result, &[])
                } else {
                    Vec::new()
                };
                let (m, output) = server.run(&before, None, folder)?;
                record.row(&row(server.name, detect, i, &m, output))?;
                seen.add(detect, &m, output);
            }
            // The measurements of the server while `attach` observes it.
            let attached = servers::attach_result(&result);
            let (m, output) = server.run(&[], Some((&sunder, &attached)), folder)?;
            let name = format!("{}+attach", server.name);
            record.row(&row(&name, false, i, &m, output))?;
            ensure!(Some(output) == seen.output, "{name}: other answers");
        }
        report.add(server.name, &seen, &result)?;
        let attached = servers::attach_result(&result);
        report.list(&format!("{} attach", server.name), &attached)?;
    }
    record.attach("findings.csv", &report.findings)?;
    record.finish(&report.summary())
}

/// The words of Sunder's command line before a program.
fn under(sunder: &Path, name: &str, result: &Path, options: &[&str]) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![sunder.into()];
    words.extend([name, "--quiet", "--format", "json", "-o"].map(OsString::from));
    words.push(result.into());
    words.extend(options.iter().map(OsString::from));
    words.push("--".into());
    words
}

fn row(name: &str, detect: bool, run: u32, m: &Measurement, output: u64) -> Vec<String> {
    vec![
        name.to_owned(),
        if detect { "detect" } else { "native" }.to_owned(),
        run.to_string(),
        format!("{:.4}", m.wall),
        format!("{:.4}", m.cpu),
        m.status.to_string(),
        format!("{output:016x}"),
    ]
}

/// The runs of one program.
#[derive(Default)]
struct Pair {
    native: Vec<Measurement>,
    detected: Vec<Measurement>,
    output: Option<u64>,
    status: Option<i32>,
    differs: bool,
}

impl Pair {
    fn add(&mut self, detect: bool, m: &Measurement, output: u64) {
        self.differs |= *self.output.get_or_insert(output) != output;
        self.differs |= *self.status.get_or_insert(m.status) != m.status;
        let runs = if detect {
            &mut self.detected
        } else {
            &mut self.native
        };
        runs.push(m.clone());
    }
}

/// The tables of the report.
struct Report {
    table: String,
    findings: String,
    skipped: Vec<&'static str>,
    differing: Vec<String>,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            table:
                "| program | native s | detect s | wall | CPU | output | samples | false | true |\n\
                    |---|---|---|---|---|---|---|---|---|\n"
                    .into(),
            findings: "program,rank,sharing,latent,significant,cost_percent,false_share,\
                       interleavings_per_second,confirmed,object,threads,lines,code\n"
                .into(),
            skipped: Vec::new(),
            differing: Vec::new(),
        }
    }
}

impl Report {
    fn skip(&mut self, name: &'static str) {
        println!("SKIP: {name} is not installed");
        self.skipped.push(name);
    }

    fn add(&mut self, name: &str, seen: &Pair, result: &Path) -> Result<()> {
        let of = |all: &[Measurement], f: fn(&Measurement) -> f64| {
            median(&all.iter().map(f).collect::<Vec<_>>())
        };
        let (native, detected) = (of(&seen.native, |m| m.wall), of(&seen.detected, |m| m.wall));
        let cpu = of(&seen.detected, |m| m.cpu) / of(&seen.native, |m| m.cpu).max(1e-9);
        let (falsely, truly, samples) = self.list(name, result)?;
        if seen.differs {
            self.differing.push(name.to_owned());
        }
        writeln!(
            self.table,
            "| {name} | {native:.3} | {detected:.3} | {:.2} | {cpu:.2} | {} | {samples} | {falsely} | {truly} |",
            detected / native.max(1e-9),
            if seen.differs { "DIFFERS" } else { "same" },
        )?;
        println!("{name}: {falsely} false, {truly} true");
        Ok(())
    }

    /// Lists a result's findings. Returns the numbers of significant findings of false or mixed
    /// sharing, of true sharing, and of samples.
    fn list(&mut self, name: &str, result: &Path) -> Result<(usize, usize, u64)> {
        let all = Findings::open(result).with_context(|| format!("the result of {name}"))?;
        let (mut falsely, mut truly) = (0, 0);
        for finding in &all.findings {
            let false_cost = finding.cost_percent * finding.false_share;
            let significant = !finding.latent
                && finding.sharing != Sharing::True
                && false_cost >= all.run.threshold_percent;
            falsely += usize::from(significant);
            truly += usize::from(finding.sharing == Sharing::True);
            writeln!(
                self.findings,
                "{name},{},{:?},{},{significant},{:.2},{:.2},{:.0},{},{},{},{},{}",
                finding.rank,
                finding.sharing,
                finding.latent,
                finding.cost_percent,
                finding.false_share,
                finding.interleavings_per_second,
                finding.confirmed,
                quoted(&finding.subject()),
                finding.threads().len(),
                finding.lines.len(),
                quoted(finding.sites.first().map_or("", |s| s.function.as_str())),
            )?;
        }
        Ok((falsely, truly, all.run.samples))
    }

    fn summary(&self) -> String {
        let mut text = format!(
            "Output and status {}. `false` counts findings of false or mixed sharing whose false \
             part costs the threshold or more, `true` all of true sharing.\n\n{}",
            if self.differing.is_empty() {
                "the same in every run".to_owned()
            } else {
                format!("DIFFER for {}", self.differing.join(", "))
            },
            self.table
        );
        if !self.skipped.is_empty() {
            text += &format!("\nNot installed: {}.\n", self.skipped.join(", "));
        }
        text
    }
}

/// A field of a CSV file.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "'"))
}
