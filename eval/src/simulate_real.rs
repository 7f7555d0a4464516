//! `simulate-real`: unmodified programs of the distribution, recorded under the emulator, replayed
//! on lines and on pages, and analysed by `what-if`. Is the output the same, what do recording and
//! replaying cost, and what is found first? A person judges the findings; nothing here says what
//! should be found.

use crate::measure::{Measurement, median, run as measure};
use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_findings::{Finding, Findings};

/// A program and how to run it in the folder of inputs. Inputs are small, because a trace has every
/// access.
struct Case {
    name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
}

const CASES: [Case; 8] = [
    Case {
        name: "pigz",
        program: "/usr/bin/pigz",
        arguments: &["-p", "4", "-b", "128", "-n", "-c", "text"],
    },
    Case {
        name: "xz",
        program: "/usr/bin/xz",
        arguments: &["-T4", "-0", "--block-size=128KiB", "-c", "text"],
    },
    Case {
        name: "zstd",
        program: "/usr/bin/zstd",
        arguments: &["-T4", "-B524288", "-3", "-q", "-c", "text"],
    },
    Case {
        name: "pbzip2",
        program: "/usr/bin/pbzip2",
        arguments: &["-p4", "-b1", "-c", "text"],
    },
    Case {
        name: "pfscan",
        program: "/usr/bin/pfscan",
        arguments: &["-n", "2", "-c", "1234", "text"],
    },
    Case {
        name: "x264",
        program: "/usr/bin/x264",
        arguments: &[
            "--threads",
            "4",
            "--preset",
            "ultrafast",
            "--quiet",
            "--no-progress",
            "--muxer",
            "raw",
            "-o",
            "/dev/stdout",
            "video.y4m",
        ],
    },
    Case {
        name: "python3",
        program: "/usr/bin/python3",
        arguments: &["-S", "-E", "threads.py"],
    },
    Case {
        name: "sqlite3",
        program: "/usr/bin/sqlite3",
        arguments: &[":memory:", ".read query.sql"],
    },
];

const QUERY: &str = "pragma threads=2;
create table t(a integer, b text);
with recursive n(i) as (values(1) union all select i+1 from n where i<6000)
  insert into t select (i*2654435761)%1000003, 'row '||i from n;
create index x on t(b, a);
select count(*), sum(a), min(b), max(b) from t;
";

const PYTHON: &str = "import threading, zlib
out = [None] * 4
def work(n):
    out[n] = zlib.crc32(zlib.compress(bytes((i * n) % 251 for i in range(20000)), 6))
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*out)
";

/// Bytes of text to compress, at scale 1.
const TEXT: usize = 600_000;

const COLUMNS: [&str; 17] = [
    "program",
    "run",
    "native_s",
    "recorded_s",
    "accesses",
    "trace_bytes",
    "threads",
    "lines_s",
    "lines_false",
    "lines_true",
    "pages_s",
    "pages_false",
    "pages_true",
    "what_if_s",
    "changes",
    "misses_saved",
    "best_change",
];

/// Runs the benchmark.
///
/// # Errors
/// If a program or a command fails, an output differs, or the record can't be written.
pub fn run(options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let folder = inputs(options.scale)?;
    let mut record = Record::new(
        "simulate-real",
        "Unmodified Debian programs recorded by `sunder trace --via emulated` on small inputs, then \
         `sunder simulate` with lines of 64 bytes and a node for each thread, `sunder simulate \
         --granule 4096` with up to 16 nodes, and `sunder what-if`. Times are elapsed seconds of each \
         command; misses are those of the whole machine because another node wrote. \
         `findings.md` has what was found first.",
        options.repetitions,
        &COLUMNS,
    )?;
    let mut report = Report::default();
    for case in CASES.iter().filter(|c| c.name.contains(&options.only)) {
        if !Path::new(case.program).exists() {
            println!("SKIP: {} is not installed", case.name);
            report.skipped.push(case.name);
            continue;
        }
        let mut seen = Vec::new();
        for i in 0..options.repetitions {
            let one = Results::of(case, &sunder, &folder)?;
            record.row(&one.row(case.name, i))?;
            println!("{}: {} accesses", case.name, one.accesses);
            seen.push(one);
        }
        report.add(case.name, &seen)?;
    }
    record.attach("findings.md", &report.findings)?;
    record.finish(&report.summary())?;
    fs::remove_dir_all(&folder)?;
    Ok(())
}

/// The inputs, the same on every machine.
fn inputs(scale: u64) -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("sunder-simulate-real-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut text = String::new();
    let mut number = 20_261_122_u64;
    while text.len() < TEXT * usize::try_from(scale)? {
        for _ in 0..8 {
            // Knuth's MMIX constants.
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let small = (number >> 33) % 5000;
            write!(text, "{} ", small * small)?;
        }
        text.push('\n');
    }
    fs::write(folder.join("video.y4m"), film(&text))?;
    fs::write(folder.join("threads.py"), PYTHON)?;
    fs::write(folder.join("text"), text)?;
    fs::write(folder.join("query.sql"), QUERY)?;
    Ok(folder)
}

/// Eight small frames whose pixels are made of `text`.
fn film(text: &str) -> Vec<u8> {
    const WIDTH: usize = 192;
    const HEIGHT: usize = 112;
    const FRAME: usize = WIDTH * HEIGHT * 3 / 2;
    let mut all = format!("YUV4MPEG2 W{WIDTH} H{HEIGHT} F25:1 C420\n").into_bytes();
    for frame in 0..8 {
        all.extend_from_slice(b"FRAME\n");
        let from = frame * 97;
        all.extend(text.bytes().cycle().skip(from).take(FRAME));
    }
    all
}

/// The results for one program.
struct Results {
    native: f64,
    recorded: f64,
    accesses: u64,
    bytes: u64,
    threads: u32,
    lines: (f64, Findings),
    pages: (f64, Findings),
    what_if: (f64, Findings),
}

impl Results {
    fn of(case: &Case, sunder: &Path, folder: &Path) -> Result<Self> {
        let mut alone = Command::new(case.program);
        let alone = done(alone.args(case.arguments).current_dir(folder))?;
        let file = folder.join("trace");
        let mut traced = Command::new(sunder);
        traced
            .args(["trace", "--quiet", "--via", "emulated", "-o"])
            .arg(&file)
            .arg("--")
            .arg(case.program)
            .args(case.arguments)
            .current_dir(folder);
        let traced = done(&mut traced)?;
        let same = alone.stdout == traced.stdout;
        ensure!(same, "{}: recorded, its output differs", case.name);
        let bytes = fs::metadata(&file)?.len();
        let lines = result(sunder, &["simulate"], &file)?;
        let machine = lines.1.simulation.as_ref().context("nothing simulated")?;
        let (accesses, threads) = (machine.accesses, machine.nodes);
        let nodes = threads.min(16).to_string();
        let on_pages = [
            "simulate",
            "--granule",
            "4096",
            "--nodes",
            &nodes,
            "--protocol",
            "msi",
        ];
        let pages = result(sunder, &on_pages, &file)?;
        let what_if = result(sunder, &["what-if"], &file)?;
        fs::remove_file(&file)?;
        Ok(Self {
            native: alone.wall,
            recorded: traced.wall,
            accesses,
            bytes,
            threads,
            lines,
            pages,
            what_if,
        })
    }

    fn row(&self, name: &str, run: u32) -> Vec<String> {
        let mut row = vec![
            name.to_owned(),
            run.to_string(),
            format!("{:.4}", self.native),
            format!("{:.4}", self.recorded),
            self.accesses.to_string(),
            self.bytes.to_string(),
            self.threads.to_string(),
        ];
        for (seconds, found) in [&self.lines, &self.pages] {
            let (falsely, truly) = misses(found);
            row.extend([
                format!("{seconds:.3}"),
                falsely.to_string(),
                truly.to_string(),
            ]);
        }
        let changes = self.what_if.1.what_if.as_ref();
        let best = changes.and_then(|tried| tried.changes.first());
        row.extend([
            format!("{:.3}", self.what_if.0),
            changes.map_or(0, |tried| tried.changes.len()).to_string(),
            best.map_or(0, |tried| tried.misses_saved).to_string(),
            best.map_or_else(String::new, |tried| quoted(&tried.arguments.join(" "))),
        ]);
        row
    }
}

/// Runs `command`, which must succeed.
fn done(command: &mut Command) -> Result<Measurement> {
    let measured = measure(command)?;
    ensure!(
        measured.status == 0,
        "{command:?} ended with wait status {}",
        measured.status
    );
    Ok(measured)
}

/// The result of one of our commands for the trace, and the seconds that it takes.
fn result(sunder: &Path, arguments: &[&str], trace: &Path) -> Result<(f64, Findings)> {
    let file = trace.with_extension("json");
    let mut command = Command::new(sunder);
    command.args(arguments);
    command.args(["--quiet", "--format", "json", "-o"]);
    command.arg(&file).arg(trace);
    let measured = done(&mut command)?;
    let found = Findings::open(&file)?;
    fs::remove_file(&file)?;
    Ok((measured.wall, found))
}

/// False- and true-sharing misses of the machine.
fn misses(found: &Findings) -> (u64, u64) {
    let totals = found.simulation.as_ref().map(|s| s.totals);
    totals.map_or((0, 0), |t| (t.false_sharing, t.true_sharing))
}

/// The tables of the report.
#[derive(Default)]
struct Report {
    table: String,
    findings: String,
    skipped: Vec<&'static str>,
}

impl Report {
    fn add(&mut self, name: &str, seen: &[Results]) -> Result<()> {
        let of = |f: fn(&Results) -> f64| median(&seen.iter().map(f).collect::<Vec<_>>());
        let last = seen.last().context("no run")?;
        let (native, recorded) = (of(|s| s.native), of(|s| s.recorded));
        let (lines, pages) = (misses(&last.lines.1), misses(&last.pages.1));
        let saved = last.what_if.1.what_if.as_ref();
        let saved = saved.and_then(|tried| tried.changes.first());
        writeln!(
            self.table,
            "| {name} | {} | {:.1} | {:.2} | {:.0} | {:.2} | {} | {} | {:.2} | {} | {} | {:.2} | {} |",
            last.threads,
            last.accesses as f64 / 1e6,
            last.bytes as f64 / last.accesses.max(1) as f64,
            recorded / native.max(1e-9),
            of(|s| s.lines.0),
            lines.0,
            lines.1,
            of(|s| s.pages.0),
            pages.0,
            pages.1,
            of(|s| s.what_if.0),
            saved.map_or(0, |tried| tried.misses_saved),
        )?;
        for (title, found) in [
            ("lines of 64", &last.lines.1),
            ("pages of 4096", &last.pages.1),
        ] {
            writeln!(self.findings, "## {name}, {title} bytes\n")?;
            if found.findings.is_empty() {
                writeln!(self.findings, "Nothing.")?;
            }
            for finding in found.findings.iter().take(3) {
                writeln!(self.findings, "{}", described(finding))?;
            }
            writeln!(self.findings)?;
        }
        if let Some(tried) = &last.what_if.1.what_if {
            writeln!(self.findings, "## {name}, what if\n")?;
            for one in tried.changes.iter().take(3) {
                let saved = one.misses_saved;
                let arguments = one.arguments.join(" ");
                writeln!(
                    self.findings,
                    "- {saved} misses: {} (`{arguments}`)",
                    one.change
                )?;
            }
            writeln!(self.findings)?;
        }
        Ok(())
    }

    fn summary(&self) -> String {
        let mut text = format!(
            "| program | threads | accesses, millions | bytes an access | recorded, times native | \
             simulate, s | false | true | on pages, s | false | true | what-if, s | most misses saved |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|---|\n{}\n\
             Output of every recorded run as that of the native one. Findings are in `findings.md`.\n",
            self.table
        );
        if !self.skipped.is_empty() {
            text += &format!("\nNot installed: {}.\n", self.skipped.join(", "));
        }
        text
    }
}

/// A finding in one line, with its first advice.
fn described(finding: &Finding) -> String {
    let counts = finding.simulated.unwrap_or_default();
    let at = finding.sites.first().map_or("", |s| s.function.as_str());
    let advice = finding.advice.first().map_or("", |a| a.text.as_str());
    format!(
        "- {} sharing, {:.1} %, {} useless misses: {} (code: {at}). {advice}",
        match finding.sharing {
            sunder_findings::Sharing::False => "false",
            sunder_findings::Sharing::True => "true",
            sunder_findings::Sharing::Mixed => "mixed",
        },
        finding.cost_percent,
        counts.false_sharing,
        finding.subject(),
    )
}

/// A field of a CSV file.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_field_for_each_column() {
        let found = || (0.5, Findings::default());
        let seen = Results {
            native: 1.0,
            recorded: 2.0,
            accesses: 3,
            bytes: 4,
            threads: 5,
            lines: found(),
            pages: found(),
            what_if: found(),
        };
        assert_eq!(seen.row("made up", 0).len(), COLUMNS.len());
        let mut report = Report::default();
        report.add("made up", &[seen]).expect("it has one run");
        let table = report.summary();
        let columns = |line: &str| line.matches('|').count();
        let rows: Vec<usize> = table.lines().take(3).map(columns).collect();
        assert_eq!(rows, [14, 14, 14], "{table}");
    }
}
