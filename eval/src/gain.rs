//! `gain`: what `detect` says that a fix gains, beside what the fixed variant of each workload gains.

use crate::measure::{median, run as measured};
use crate::options::{Options, Set};
use crate::programs::{self, Target};
use crate::record::Record;
use anyhow::Result;
use std::fmt::Write as _;
use std::path::Path;
use sunder_findings::{Finding, GainPercent, Sharing};

/// A workload whose fixed variant gains less, in percent, is left out: its false sharing costs
/// nothing that a user would notice.
const LEAST_GAIN: f64 = 5.0;

/// What one run said of one workload.
struct Said {
    sharing: Sharing,
    cost: f64,
    gain: Option<GainPercent>,
}

/// Runs the benchmark.
///
/// # Errors
/// If a program fails or the record can't be written.
pub fn run(options: &Options, measure: bool) -> Result<()> {
    let sunder = programs::sunder()?;
    let mut record = Record::new(
        match (options.set, measure) {
            (Set::Workloads, false) => "gain",
            (Set::Workloads, true) => "gain-measure",
            (Set::Pairs, false) => "gain-pairs",
            (Set::Pairs, true) => "gain-measure-pairs",
        },
        &format!(
            "What `sunder detect{}` says that a fix of the first finding gains, in percent of the \
             program's time, beside what the workload's fixed variant gains natively. The \
             variants and the measurement run in turn.",
            if measure { " --measure" } else { "" }
        ),
        options.repetitions,
        &[
            "workload",
            "run",
            "shared_s",
            "fixed_s",
            "measured_s",
            "sharing",
            "cost_percent",
            "low",
            "likely",
            "high",
            "comparisons",
        ],
    )?;
    let mut table = String::from(
        "| workload | shared s | fixed s | gain % | sharing | cost % | said % | intervals | \
         off by |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut all = Sums::default();
    let targets = programs::workloads(options)?;
    for pair in targets.chunks(2) {
        let [(workload, _, shared), (_, _, fixed)] = pair else {
            continue;
        };
        if workload.ratio < 100.0 / (100.0 - LEAST_GAIN) {
            continue;
        }
        let (mut times, mut said) = ([Vec::new(), Vec::new()], Vec::new());
        for number in 0..options.repetitions {
            for (target, times) in [shared, fixed].into_iter().zip(&mut times) {
                times.push(measured(&mut target.native())?.wall);
            }
            let (seconds, one) = ask(shared, &sunder, measure)?;
            let figure = |of: fn(GainPercent) -> f64| {
                let gain = one.as_ref().and_then(|s| s.gain);
                gain.map_or_else(String::new, |g| format!("{:.1}", of(g)))
            };
            record.row(&[
                workload.name.clone(),
                number.to_string(),
                format!("{:.4}", times[0][times[0].len() - 1]),
                format!("{:.4}", times[1][times[1].len() - 1]),
                format!("{seconds:.4}"),
                one.as_ref().map_or("", |s| name(s.sharing)).into(),
                one.as_ref()
                    .map_or_else(String::new, |s| format!("{:.1}", s.cost)),
                figure(|g| g.low),
                figure(|g| g.likely),
                figure(|g| g.high),
                figure(|g| f64::from(g.comparisons)),
            ])?;
            said.extend(one);
        }
        let [shared_s, fixed_s] = [median(&times[0]), median(&times[1])];
        let truth = 100.0 * (1.0 - fixed_s / shared_s);
        let row = all.add(&said, truth);
        writeln!(
            table,
            "| {} | {shared_s:.2} | {fixed_s:.2} | {truth:.0} | {row} |",
            workload.name
        )?;
        println!("{}: {truth:.0} {row}", workload.name);
    }
    record.finish(&format!("{}\n\n{table}", all.sentence()))
}

/// The first finding of a run under `detect` that is not latent, and the seconds that
/// it took.
fn ask(target: &Target, sunder: &Path, measure: bool) -> Result<(f64, Option<Said>)> {
    let options: &[&str] = if measure { &["--measure"] } else { &[] };
    let result = programs::findings(target, sunder, options)?;
    let of = |finding: &Finding| Said {
        sharing: finding.sharing,
        cost: finding.cost_percent,
        gain: finding.gain_percent,
    };
    let present = result.findings.iter().filter(|f| !f.latent);
    let first = present.max_by(|a, b| a.false_cost_percent().total_cmp(&b.false_cost_percent()));
    for limit in &result.limits {
        let said = limit.to_string();
        if said.starts_with("What a fix gains") {
            println!("  {said}");
        }
    }
    Ok((result.run.seconds, first.map(of)))
}

const fn name(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::False => "false",
        Sharing::True => "true",
        Sharing::Mixed => "mixed",
    }
}

/// Counts over all workloads; of falsely shared ones, and of mixed ones.
#[derive(Default)]
struct Sums {
    of_false: Sum,
    of_mixed: Sum,
    silent: u32,
}

#[derive(Default)]
struct Sum {
    runs: u32,
    inside: u32,
    off: Vec<f64>,
}

impl Sums {
    /// Counts the runs of one workload; the rest of its row.
    fn add(&mut self, said: &[Said], truth: f64) -> String {
        let Some(first) = said.first() else {
            return "nothing found | | | |".into();
        };
        let costs: Vec<f64> = said.iter().map(|s| s.cost).collect();
        let mut gains = Vec::new();
        for one in said.iter().filter(|s| s.sharing != Sharing::True) {
            let Some(gain) = one.gain else {
                self.silent += 1;
                continue;
            };
            let sum = match one.sharing {
                Sharing::Mixed => &mut self.of_mixed,
                _ => &mut self.of_false,
            };
            sum.runs += 1;
            sum.inside += u32::from((gain.low..=gain.high).contains(&truth));
            sum.off.push((gain.likely - truth).abs());
            gains.push(gain);
        }
        let start = format!("{} | {:.0}", name(first.sharing), median(&costs));
        if gains.is_empty() {
            return format!("{start} | | | ");
        }
        let likely: Vec<f64> = gains.iter().map(|g| g.likely).collect();
        let intervals = gains.iter().map(|g| format!("{:.0}-{:.0}", g.low, g.high));
        let intervals: Vec<String> = intervals.collect();
        format!(
            "{start} | {:.0} | {} | {:.0}",
            median(&likely),
            intervals.join(", "),
            (median(&likely) - truth).abs()
        )
    }

    fn sentence(&self) -> String {
        format!(
            "{}. {}. {} runs had a finding and no figure.",
            self.of_false.sentence("False sharing"),
            self.of_mixed.sentence("Mixed sharing"),
            self.silent
        )
    }
}

impl Sum {
    fn sentence(&self, what: &str) -> String {
        let within = |most: f64| self.off.iter().filter(|off| **off <= most).count();
        format!(
            "{what}: {} runs with a figure; the likely figure was within 10 points in {} and within \
             20 in {}; the interval held the truth in {}",
            self.runs,
            within(10.0),
            within(20.0),
            self.inside
        )
    }
}
