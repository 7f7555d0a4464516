//! `sampling`: SHERIFF's Figure 9 and Table 5 for our sampler. SHERIFF varies its
//! interval (10, 20, 50 ms); we vary the frequency.

use crate::measure::{Measurement, median, run as measure};
use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::Result;
use std::fmt::Write as _;

const FREQUENCIES: [&str; 3] = ["250", "1000", "4000"];

/// Runs the benchmark.
///
/// # Errors
/// If a program fails or the record can't be written.
pub fn run(options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let mut record = Record::new(
        "sampling",
        "Wall time under `sunder detect --frequency HZ` relative to native (SHERIFF Figure 9), and \
         what is reported at each frequency (Table 5: objects and interleavings per second).",
        options.repetitions,
        &[
            "workload",
            "hz",
            "run",
            "native_s",
            "detect_s",
            "objects",
            "interleavings_per_s",
            "cost_percent",
        ],
    )?;
    let mut table = String::from(
        "| workload | 250 Hz: ratio | objects | cost % | 1000 Hz: ratio | objects | cost % | \
         4000 Hz: ratio | objects | cost % |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut ratios = vec![Vec::new(); FREQUENCIES.len()];
    for (workload, variant, target) in programs::workloads(options)? {
        if variant.name() != "shared" {
            continue;
        }
        write!(table, "| {} ", workload.name)?;
        for (hz, all) in FREQUENCIES.iter().zip(&mut ratios) {
            let (mut native, mut observed) = (Vec::new(), Vec::new());
            let (mut objects, mut cost, mut rate) = (Vec::new(), Vec::new(), Vec::new());
            for i in 0..options.repetitions {
                let n: Measurement = measure(&mut target.native())?;
                let o = measure(&mut target.detected(&sunder, &["--quiet", "--frequency", hz]))?;
                let seen = programs::findings(&target, &sunder, &["--frequency", hz])?;
                let threshold = seen.run.threshold_percent;
                let found: Vec<_> = seen.significant(threshold).collect();
                objects.push(found.len() as f64);
                cost.push(found.first().map_or(0.0, |f| f.cost_percent));
                rate.push(found.first().map_or(0.0, |f| f.interleavings_per_second));
                record.row(&[
                    workload.name.clone(),
                    (*hz).into(),
                    i.to_string(),
                    format!("{:.4}", n.wall),
                    format!("{:.4}", o.wall),
                    found.len().to_string(),
                    format!("{:.0}", rate[rate.len() - 1]),
                    format!("{:.2}", cost[cost.len() - 1]),
                ])?;
                native.push(n.wall);
                observed.push(o.wall);
            }
            let ratio = median(&observed) / median(&native);
            all.push(ratio);
            write!(
                table,
                "| {ratio:.3} | {:.0} | {:.1} ",
                median(&objects),
                median(&cost)
            )?;
        }
        writeln!(table, "|")?;
        println!("{}", workload.name);
    }
    let mut summary = String::new();
    for (hz, all) in FREQUENCIES.iter().zip(&ratios) {
        writeln!(summary, "- {hz} Hz: median ratio {:.3}", median(all))?;
    }
    record.finish(&format!("{summary}\n{table}"))
}
