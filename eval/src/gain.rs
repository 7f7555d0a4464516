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
    /// Of the run.
    seconds: f64,
    /// How much less the fixed variant takes than this run, both observed, in percent.
    truth: f64,
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
             program's time, beside what the fixed variant gains: against the observed run itself \
             (`gain %`: the scheduler decides anew in each run which threads meet, and the figure is \
             about this one; the fixed variant is observed, too), and against native runs (`natively %`). The variants and the \
             measurement run in turn.",
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
            "fixed_observed_s",
        ],
    )?;
    let mut table = String::from(
        "| workload | shared s | fixed s | natively % | gain %: said (interval) | sharing | cost % \
         |\n|---|---|---|---|---|---|---|\n",
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
        let mut observed_fixed = Vec::new();
        for number in 0..options.repetitions {
            for (target, times) in [shared, fixed].into_iter().zip(&mut times) {
                times.push(measured(&mut target.native())?.wall);
            }
            let (seconds, one) = ask(shared, &sunder, measure)?;
            // Both with what observing adds.
            observed_fixed.push(programs::findings(fixed, &sunder, &[])?.run.seconds);
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
                format!("{:.4}", observed_fixed[observed_fixed.len() - 1]),
            ])?;
            said.extend(one);
        }
        let [shared_s, fixed_s] = [median(&times[0]), median(&times[1])];
        let natively = 100.0 * (1.0 - fixed_s / shared_s);
        for one in &mut said {
            one.truth = 100.0 * (1.0 - median(&observed_fixed) / one.seconds);
        }
        let row = all.add(&said, natively);
        writeln!(
            table,
            "| {} | {shared_s:.2} | {fixed_s:.2} | {row} |",
            workload.name
        )?;
        println!("{}: {row}", workload.name);
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
        seconds: result.run.seconds,
        truth: 0.0,
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

/// Counts against the observed runs, and against native ones.
#[derive(Default)]
struct Sum {
    observed: Hits,
    natively: Hits,
}

#[derive(Default)]
struct Hits {
    inside: u32,
    off: Vec<f64>,
}

impl Sums {
    /// Counts the runs of one workload; the rest of its row.
    fn add(&mut self, said: &[Said], natively: f64) -> String {
        let Some(first) = said.first() else {
            return format!("{natively:.0} | nothing found | | ");
        };
        let costs: Vec<f64> = said.iter().map(|s| s.cost).collect();
        let mut told = Vec::new();
        for one in said {
            let Some(gain) = one.gain else {
                if one.sharing != Sharing::True {
                    self.silent += 1;
                }
                told.push(format!("{:.0}: -", one.truth));
                continue;
            };
            let sum = match one.sharing {
                Sharing::Mixed => &mut self.of_mixed,
                _ => &mut self.of_false,
            };
            sum.observed.add(gain, one.truth);
            sum.natively.add(gain, natively);
            told.push(format!(
                "{:.0}: {:.0} ({:.0}-{:.0})",
                one.truth, gain.likely, gain.low, gain.high
            ));
        }
        format!(
            "{natively:.0} | {} | {} | {:.0}",
            told.join(", "),
            name(first.sharing),
            median(&costs)
        )
    }

    fn sentence(&self) -> String {
        format!(
            "{}\n{}\n\n{} runs had a finding and no figure.",
            self.of_false.sentence("False sharing"),
            self.of_mixed.sentence("Mixed sharing"),
            self.silent
        )
    }
}

impl Sum {
    fn sentence(&self, what: &str) -> String {
        format!(
            "{what}, {} runs with a figure. Against the observed run: {}. Against native runs: {}.",
            self.observed.off.len(),
            self.observed.sentence(),
            self.natively.sentence()
        )
    }
}

impl Hits {
    fn add(&mut self, said: GainPercent, truth: f64) {
        self.inside += u32::from((said.low..=said.high).contains(&truth));
        self.off.push((said.likely - truth).abs());
    }

    fn sentence(&self) -> String {
        let within = |most: f64| self.off.iter().filter(|off| **off <= most).count();
        format!(
            "the likely figure was within 10 points in {} and within 20 in {}; the interval held \
             the gain in {}",
            within(10.0),
            within(20.0),
            self.inside
        )
    }
}
