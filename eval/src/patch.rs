//! `patch`: every form of advice, carried out to the letter. For each program that shares falsely, its
//! result is given to `sunder patch` with a trial, and what the patched program gains stands beside
//! what the fix by hand gains.

use crate::limited::Folder;
use crate::measure::{median, run as measured};
use crate::options::{Options, Set};
use crate::programs;
use crate::record::Record;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use sunder_findings::Findings;
use sunder_workloads::{Variant, Workload};

/// What to try.
#[derive(Clone, Debug, clap::Args)]
pub struct What {
    /// Most seconds for the runs of one change
    #[arg(long, default_value_t = 15)]
    seconds: u32,
}

/// A fix by hand that gains less makes no difference that a user would notice.
const LEAST_TIMES: f64 = 1.05;
/// A patch that reaches this part of what the fix by hand gains is as good.
const AS_GOOD: f64 = 0.95;

/// What became of one program.
#[derive(Default)]
struct Tried {
    /// What the first finding is about; empty if nothing was found.
    subject: String,
    /// What the best change does, or why there is none.
    what: String,
    /// How many times as fast the patched program is.
    times: Option<f64>,
    /// Whether a patch was written.
    patched: bool,
}

/// Runs the benchmark.
///
/// # Errors
/// If a program fails or the record can't be written.
pub fn run(what: &What, options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let mut record = Record::new(
        match options.set {
            Set::Workloads => "patch",
            Set::Pairs => "patch-pairs",
        },
        "What `sunder patch` makes of the result of `sunder detect`, tried with its own trial: how many \
         times as fast the patched program is, beside the variant that was fixed by hand.",
        options.repetitions,
        &["workload", "by_hand", "patched", "times", "subject", "what"],
    )?;
    let mut table = String::from(
        "| workload | by hand | patched | first finding | change, or why there is none |\n|---|---|---|---|---|\n",
    );
    let (mut worth, mut patched, mut as_good) = (0, 0, 0);
    let targets = programs::workloads(options)?;
    for pair in targets.chunks(2) {
        let [(workload, _, shared), (_, _, fixed)] = pair else {
            continue;
        };
        if workload.shared.clean {
            continue;
        }
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..options.repetitions {
            for (target, times) in [shared, fixed].into_iter().zip(&mut times) {
                times.push(measured(&mut target.native())?.wall);
            }
        }
        let by_hand = median(&times[0]) / median(&times[1]);
        let tried = attempt(workload, &sunder, what, options.scale)?;
        let said = tried.times.map_or_else(String::new, |t| format!("{t:.2}"));
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "'"));
        record.row(&[
            workload.name.clone(),
            format!("{by_hand:.2}"),
            tried.patched.to_string(),
            said.clone(),
            quoted(&tried.subject),
            quoted(&tried.what),
        ])?;
        writeln!(
            table,
            "| {} | {by_hand:.2} | {} | {} | {} |",
            workload.name,
            if tried.patched { &said } else { "no" },
            tried.subject,
            tried.what.replace('|', "/")
        )?;
        println!("{}: {by_hand:.2} {said} {}", workload.name, tried.what);
        if by_hand >= LEAST_TIMES {
            worth += 1;
            patched += u32::from(tried.patched);
            let good = tried.times.is_some_and(|t| t >= by_hand * AS_GOOD);
            as_good += u32::from(tried.patched && good);
        }
    }
    record.finish(&format!(
        "Of {worth} programs that are at least {LEAST_TIMES} times as fast when they are fixed by hand, {patched} \
         were patched; {as_good} of them reach {:.0} % of the hand-fixed speed.\n\n{table}",
        100.0 * AS_GOOD
    ))
}

/// Detects false sharing in the shared variant and tries what `sunder patch` makes of it.
fn attempt(workload: &Workload, sunder: &Path, what: &What, scale: u64) -> Result<Tried> {
    let folder = Folder::new()?;
    let sources = folder.path().join("sources");
    workload.write_plain_sources(&sources)?;
    let build = workload.build_line(Variant::Shared, "program");
    let built = Command::new("sh")
        .args(["-c", &build])
        .current_dir(&sources)
        .status();
    ensure!(
        built.context("cannot run sh")?.success(),
        "{build} does not build"
    );
    let result = folder.path().join("result.json");
    let size = (workload.size * scale).to_string();
    let ended = Command::new(sunder)
        .args(["detect", "--quiet", "--no-measure", "-o"])
        .arg(&result)
        .args(["--", "./program", &workload.threads.to_string(), &size])
        .current_dir(&sources)
        .output()
        .context("cannot run sunder")?;
    ensure!(ended.status.success(), "{} failed", workload.name);
    let findings = Findings::open(&result)?;
    let threshold = findings.run.threshold_percent;
    let first = findings.significant(threshold).next();
    let Some(first) = first else {
        return Ok(Tried {
            what: format!("{:?}", findings.answer(threshold).answer),
            ..Tried::default()
        });
    };
    let told = Command::new(sunder)
        .arg("patch")
        .arg(&result)
        .arg("--root")
        .arg(&sources)
        .args(["--build", &build, "--time", &format!("{}s", what.seconds)])
        .args([
            "--run",
            &format!("./program {} {size}", workload.threads),
            "-o",
        ])
        .arg(folder.path().join("fix.diff"))
        .output()
        .context("cannot run sunder")?;
    Ok(read(
        &first.subject(),
        &String::from_utf8_lossy(&told.stdout),
    ))
}

/// What `sunder patch` said of a trial.
fn read(subject: &str, told: &str) -> Tried {
    let mut best = Tried {
        subject: subject.to_owned(),
        patched: told.contains("The best is in"),
        ..Tried::default()
    };
    let mut change = String::new();
    let mut faults = Vec::new();
    for line in told.lines() {
        if let Some((number, what)) = line.split_once(". ")
            && number.parse::<u32>().is_ok()
        {
            what.clone_into(&mut change);
        } else if let Some(gain) = line.trim_start().strip_prefix("gain ") {
            let times = gain.split_whitespace().next().and_then(|t| t.parse().ok());
            if times > best.times {
                (best.times, best.what) = (times, change.clone());
            }
        } else if let Some(why) = line.strip_prefix("# No patch: ") {
            faults.push(why.to_owned());
        } else if line.contains(" no: ") {
            faults.push(line.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    if !faults.is_empty() {
        let faults = faults.join("; ");
        best.what = match best.what.as_str() {
            "" => faults,
            what => format!("{what} ({faults})"),
        };
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_change_of_a_trial_is_read() {
        let told = "# #1 stats\n# align it\n1. align the type\n   compiles     yes\n   gain         \
                    1.50 times as fast (1.4 to 1.6: 99 % interval of 5 pairs of runs, in turns)\n2. align the \
                    variable\n   finding gone no: stats\n   gain         1.10 times as fast (1.0 to 1.2: …)\n\
                    The best is in fix.diff: apply it\n";
        let tried = read("stats", told);
        assert!(tried.patched && tried.times == Some(1.5));
        assert_eq!(tried.what, "align the type (finding gone no: stats)");
        let none = read("stats", "# #1 stats\n# No patch: it is a union.\n");
        assert!(!none.patched && none.what == "it is a union.");
    }
}
