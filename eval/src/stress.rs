//! `stress`: programs that lock, allocate, make many threads and end them at random, run again and
//! again under `sunder protect` in each of its ways. Each run must end, leave no process behind and
//! be right. Counts how often threads really were isolated: a run without isolation proves nothing.

use crate::limited::{Folder, Ran, run as run_limited};
use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use sunder_findings::{Findings, Sharing};

/// A run takes a third of a second; one that takes longer than this hangs.
const HANGS: Duration = Duration::from_secs(60);
/// Cases that do not run in every round run in one round of so many.
const SELDOM: u32 = 20;

/// One case of the program.
struct Case {
    name: &'static str,
    arguments: &'static [&'static str],
    /// Arguments of a longer run of the same case, for `detect`.
    longer: &'static [&'static str],
    /// Whether it runs in every round, or in one of [`SELDOM`].
    always: bool,
}

const CASES: [Case; 5] = [
    Case {
        name: "locks",
        arguments: &["locks", "20", "15"],
        longer: &["locks", "100", "15"],
        always: true,
    },
    Case {
        name: "allocations",
        arguments: &["allocations", "3", "40"],
        longer: &["allocations", "15", "40"],
        always: true,
    },
    Case {
        name: "500 threads",
        arguments: &["many", "1", "5"],
        longer: &["locks", "100", "15"],
        always: false,
    },
    Case {
        name: "random ends",
        arguments: &["ends", "3"],
        longer: &["locks", "100", "15"],
        always: false,
    },
    Case {
        name: "8 GB of heap",
        arguments: &["heap", "8", "15"],
        longer: &["locks", "100", "15"],
        always: false,
    },
];

/// The command around the program.
#[derive(Clone)]
struct Mode {
    name: &'static str,
    options: Vec<OsString>,
}

const COLUMNS: [&str; 10] = [
    "case", "way", "run", "verdict", "status", "wall_s", "episodes", "commits", "bytes", "ended",
];

/// The runs of one case under one command.
#[derive(Default)]
struct Row {
    runs: u32,
    wrong: u32,
    isolated: u32,
    episodes: u64,
    commits: u64,
    bytes: u64,
    walls: Vec<f64>,
    /// Messages of runs in which no thread was isolated, with their counts.
    natively: BTreeMap<String, u32>,
}

/// Runs the benchmark; the first two cases run as often as there are repetitions.
///
/// # Errors
/// If a run was wrong, after all runs are recorded; or if nothing can be run or recorded.
pub fn run(options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let program = program()?;
    let mut record = Record::new(
        "stress",
        "`crates/cli/tests/programs/stress.c` under `sunder protect`, whose ways take turns: as it \
         is (`live`), with `--eager`, with a result of `sunder detect` (`--from`), and with episodes \
         of its counters' page as often as can be (`--every 300`). A run is wrong if it hangs (for \
         a minute), leaves a process behind, or has another output or status than natively. A run \
         counts as isolated if its report has an episode: others prove nothing.",
        options.repetitions,
        &COLUMNS,
    )?;
    let folder = Folder::new()?;
    let mut rows = BTreeMap::new();
    let mut failures = String::new();
    let cases: Vec<(usize, &Case)> = CASES
        .iter()
        .enumerate()
        .filter(|(_, case)| case.name.contains(&options.only))
        .collect();
    let mut prepared = Vec::new();
    for (number, case) in &cases {
        let native = run_limited(Command::new(&program).args(case.arguments), HANGS)?;
        let sound = native.status.is_some_and(|s| s.code() == Some(3)) && native.left.is_empty();
        ensure!(sound, "{} is wrong natively: {native:?}", case.name);
        let saved = folder.path().join(format!("result-{number}.json"));
        prepared.push((native, ways(saved_result(&sunder, &program, case, &saved)?)));
    }
    for round in 0..options.repetitions {
        for ((number, case), (native, ways)) in cases.iter().zip(&prepared) {
            let turn = if case.always { round } else { round / SELDOM };
            if !case.always && round % SELDOM != 0 {
                continue;
            }
            let way = &ways[turn as usize % ways.len()];
            let report = folder.path().join("report.json");
            let mut command = Command::new(&sunder);
            command.arg("protect").args(&way.options);
            command.arg("--report").arg(&report).arg("--");
            command.arg(&program).args(case.arguments);
            let ran = run_limited(&mut command, HANGS)?;
            let verdict = ran.wrong(native, true);
            let figures = read_report(&report);
            let row: &mut Row = rows.entry((*number, way.name)).or_default();
            row.add(&ran, verdict, &figures);
            record.row(&csv(case, way, round, &ran, verdict, &figures))?;
            if let Some(why) = verdict {
                println!("{} {}, run {round}: {why}", case.name, way.name);
                writeln!(failures, "## {why}: {command:?}, run {round}\n\n{ran:#?}\n")?;
                record.attach("failures.md", &failures)?;
            }
        }
        if round % 50 == 49 {
            println!("{} rounds", round + 1);
        }
    }
    let wrong: u32 = rows.values().map(|row| row.wrong).sum();
    record.finish(&summary(&rows))?;
    ensure!(wrong == 0, "{wrong} runs were not right");
    Ok(())
}

/// The program, built.
fn program() -> Result<PathBuf> {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cli/tests/programs/stress.c");
    let folder = sunder_workloads::default_out_dir();
    std::fs::create_dir_all(&folder)?;
    let program = folder.join("stress");
    let built = Command::new("gcc")
        .args(["-O1", "-g", "-w", "-pthread", "-o"])
        .args([&program, &source])
        .status()
        .context("cannot run gcc")?;
    ensure!(built.success(), "{} does not build", source.display());
    Ok(program)
}

/// All commands; the one with a saved result only if there is one.
fn ways(saved: Option<PathBuf>) -> Vec<Mode> {
    let way = |name, words: &[&str]| Mode {
        name,
        options: words.iter().map(OsString::from).collect(),
    };
    let mut all = vec![
        way("live", &[]),
        way("--eager", &["--eager"]),
        way(
            "--every 300",
            &["--every", "300", "--isolate-global", "shared"],
        ),
    ];
    if let Some(saved) = saved {
        all.push(Mode {
            name: "--from",
            options: vec!["--from".into(), saved.into()],
        });
    }
    all
}

/// A saved result with a falsely shared object; `None` if the machine is too busy for its threads
/// to contend.
fn saved_result(
    sunder: &Path,
    program: &Path,
    case: &Case,
    file: &Path,
) -> Result<Option<PathBuf>> {
    for _ in 0..5 {
        let mut command = Command::new(sunder);
        command
            .args(["detect", "--quiet", "--format", "json", "-o"])
            .arg(file)
            .arg("--")
            .arg(program)
            .args(case.longer);
        let ran = run_limited(&mut command, HANGS)?;
        ensure!(ran.status.is_some(), "{command:?} hung: {ran:#?}");
        let falsely = |f: &sunder_findings::Finding| !f.latent && f.sharing == Sharing::False;
        if Findings::open(file)?.findings.iter().any(falsely) {
            return Ok(Some(file.to_owned()));
        }
    }
    println!("SKIP: {} with a result: nothing was found", case.name);
    Ok(None)
}

/// Reads the report and removes its file.
fn read_report(report: &Path) -> Value {
    let text = std::fs::read_to_string(report).unwrap_or_default();
    let _ = std::fs::remove_file(report);
    serde_json::from_str(&text).unwrap_or_default()
}

fn csv(
    case: &Case,
    way: &Mode,
    round: u32,
    ran: &Ran,
    verdict: Option<&str>,
    figures: &Value,
) -> Vec<String> {
    let number = |name: &str| figures[name].as_u64().unwrap_or(0).to_string();
    vec![
        case.name.into(),
        way.name.into(),
        round.to_string(),
        verdict.unwrap_or("right").into(),
        ran.status.and_then(|s| s.code()).unwrap_or(-1).to_string(),
        format!("{:.3}", ran.wall),
        number("episodes"),
        number("commits"),
        number("committed_bytes"),
        format!("\"{}\"", figures["ended"].as_str().unwrap_or_default()),
    ]
}

impl Row {
    fn add(&mut self, ran: &Ran, verdict: Option<&str>, figures: &Value) {
        let number = |name: &str| figures[name].as_u64().unwrap_or(0);
        self.runs += 1;
        self.wrong += u32::from(verdict.is_some());
        self.walls.push(ran.wall);
        self.episodes += number("episodes");
        self.commits += number("commits");
        self.bytes += number("committed_bytes");
        if number("episodes") > 0 {
            self.isolated += 1;
            return;
        }
        let said = ran.stderr.lines().find_map(|l| l.strip_prefix("sunder: "));
        let said = said.unwrap_or("nothing").to_owned();
        *self.natively.entry(said).or_default() += 1;
    }
}

fn summary(rows: &BTreeMap<(usize, &str), Row>) -> String {
    let all = |of: fn(&Row) -> u32| rows.values().map(of).sum::<u32>();
    let mut text = format!(
        "- {} runs, {} of them not right\n- threads were isolated in {} of them\n\n",
        all(|r| r.runs),
        all(|r| r.wrong),
        all(|r| r.isolated)
    );
    text.push_str(
        "| case | way | runs | not right | isolated | episodes | commits | bytes | s a run | where \
         nobody was isolated |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for ((case, way), row) in rows {
        let natively: Vec<String> = row
            .natively
            .iter()
            .map(|(said, times)| format!("{times}: {}", said.replace('|', "/")))
            .collect();
        let _ = writeln!(
            text,
            "| {} | `{way}` | {} | {} | {} | {} | {} | {} | {:.2} | {} |",
            CASES[*case].name,
            row.runs,
            row.wrong,
            row.isolated,
            row.episodes,
            row.commits,
            row.bytes,
            crate::measure::median(&row.walls),
            natively.join("; ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(script: &str) -> Ran {
        run_limited(Command::new("sh").args(["-c", script]), HANGS).expect("sh runs")
    }

    #[test]
    fn a_run_counts_as_isolated_only_with_an_episode() {
        let mut row = Row::default();
        let native = ran("echo 'sunder: nobody was isolated: why' >&2");
        row.add(
            &native,
            None,
            &serde_json::json!({"episodes": 0, "commits": 3}),
        );
        assert_eq!((row.runs, row.isolated, row.wrong), (1, 0, 0));
        assert_eq!(row.natively["nobody was isolated: why"], 1);
        row.add(&native, Some("hung"), &serde_json::json!({"episodes": 2}));
        assert_eq!((row.runs, row.isolated, row.wrong), (2, 1, 1));
        // Without a report nothing is counted.
        row.add(&native, None, &Value::Null);
        assert_eq!((row.runs, row.isolated, row.episodes), (3, 1, 2));
    }

    #[test]
    fn the_saved_result_variant_runs_only_if_a_result_is_given() {
        assert_eq!(ways(None).len(), 3);
        let all = ways(Some("/result".into()));
        assert_eq!(all[3].options, ["--from", "/result"]);
    }
}
