//! Replays of a recorded program: under every placement, on both machines.

use anyhow::{Context, Result, ensure};
use rayon::prelude::*;
use std::path::Path;
use std::process::Command;
use sunder_findings::{Findings, Simulation};

/// In the order of the tables. The others are compared with the first, in the paper with the
/// second.
pub const POLICIES: [&str; 4] = ["general", "sized", "call-site", "sized-call-site"];

/// A machine: size of its granule and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The size of the granule in bytes.
    pub granule: u64,
    /// The name for `sunder simulate --protocol`.
    protocol: &'static str,
}

/// The paper's machine: a shared memory of pages, in which a copy is readable or writable.
pub const PAGES: Machine = Machine {
    granule: 4096,
    protocol: "msi",
};

/// The caches of CPUs.
pub const LINES: Machine = Machine {
    granule: 64,
    protocol: "mesi",
};

/// The result of one replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The number of the recording, from 0.
    pub run: u32,
    /// The size of the granule in bytes.
    pub granule: u64,
    /// One of [`POLICIES`].
    pub policy: &'static str,
    /// The counts.
    pub seen: Simulation,
}

/// The standard output of a command that succeeds.
pub fn output(command: &mut Command) -> Result<Vec<u8>> {
    let done = command.output().with_context(|| format!("{command:?}"))?;
    let stderr = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "{command:?}: {}: {stderr}",
        done.status
    );
    Ok(done.stdout)
}

/// Replays `trace` under every policy on both machines, as many at a time as there are CPUs:
/// nothing here is timed.
pub fn replays(sunder: &Path, trace: &Path, nodes: u32, run: u32) -> Result<Vec<Replay>> {
    let jobs: Vec<(Machine, &'static str)> = [PAGES, LINES]
        .into_iter()
        .flat_map(|machine| POLICIES.map(|policy| (machine, policy)))
        .collect();
    let one = |&(machine, policy): &(Machine, &'static str)| {
        let seen = replay(sunder, trace, nodes, machine, policy)?;
        Ok(Replay {
            run,
            granule: machine.granule,
            policy,
            seen,
        })
    };
    jobs.par_iter().map(one).collect()
}

fn replay(
    sunder: &Path,
    trace: &Path,
    nodes: u32,
    machine: Machine,
    policy: &str,
) -> Result<Simulation> {
    let result = trace.with_extension(format!("{}-{policy}.json", machine.granule));
    output(
        Command::new(sunder)
            .args(["simulate", "--quiet", "--format", "json", "-o"])
            .arg(&result)
            .args(["--placement", policy, "--protocol", machine.protocol])
            .args(["--granule", &machine.granule.to_string()])
            .args(["--nodes", &nodes.to_string()])
            .arg(trace),
    )?;
    let seen = Findings::open(&result)?;
    std::fs::remove_file(&result)?;
    seen.simulation.context("a result without a simulation")
}
