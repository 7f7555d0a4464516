//! Hand-made results, for the tests of every crate that reads results and for the
//! documentation's example. The figures are invented but consistent: counts of words agree with
//! those of sites, and offsets with types.
//!
//! They have no advice: `sunder-plan` adds it.

mod findings;
mod parts;

pub use findings::*;
pub use parts::{Use, frame, line, site, word};

use crate::*;

/// A ranked result with these findings, on an invented machine.
pub fn result(findings: Vec<Finding>) -> Findings {
    let mut all = Findings {
        tool: "0.1.0".to_owned(),
        program: Program {
            command: ["./linear_regression", "key_file_50MB.txt"]
                .map(str::to_owned)
                .to_vec(),
            path: Some("/home/user/phoenix/linear_regression".to_owned()),
            exit: Some(Exit::Status(0)),
        },
        machine: Machine {
            cpu: "AMD EPYC 9B14".to_owned(),
            cpus: 8,
            cpus_online: 16,
            cpu_quota: None,
            line_size: 64,
            transfer_ns: Some(61.5),
            kernel: "6.1.0-28-amd64".to_owned(),
            virtualized: true,
        },
        run: Run {
            seconds: 3.214,
            threads: 9,
            samples: 12_801,
            lost_samples: 0,
            accesses: 44_102,
            watched_accesses: 2_210,
            observer: "perf".to_owned(),
            frequency_hz: Some((1000, 4000)),
            threshold_percent: DEFAULT_THRESHOLD_PERCENT,
            first_contention_seconds: Some(0.031),
            observer_cpu_seconds: 0.021,
            program_cpu_seconds: Some(6.3),
            left_out_percent: None,
            at_once_percent: Some(91.5),
            only_cpu: None,
            shares_memory: false,
            without_cpu: false,
            unattributed_percent: Some(2.5),
            unattributed: vec![Unattributed {
                function: "parse_points".to_owned(),
                module: Some("/home/user/phoenix/linear_regression".to_owned()),
                percent: 2.25,
            }],
        },
        findings,
        limits: vec![Limit::Text(
            "No PMU on this machine: costs rest on samples in time and on watchpoints.".to_owned(),
        )],
        ..Findings::default()
    };
    rank(&mut all);
    all
}

/// A result with one finding of each kind, for the documentation and for a look at a report.
pub fn report() -> Findings {
    let mut small = one_writer();
    small.cost_percent = 0.4;
    small.interleavings_per_second = 900.0;
    result(vec![
        linear_regression(),
        global_array(),
        mixed(),
        true_sharing(),
        small,
        latent(),
    ])
}
