//! Results of replays, as `sunder simulate` and `sunder what-if` write them.

use std::path::Path;
use sunder_findings::{Findings, Simulated};

/// The result of replaying `trace` by `command` with `options`.
pub fn replay(command: &str, trace: &Path, options: &[&str]) -> Findings {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    super::sunder()
        .args([command, "--quiet", "--format", "json", "-o"])
        .arg(&file)
        .arg(trace)
        .args(options)
        .assert()
        .success();
    Findings::open(&file).expect("a result")
}

/// The totals of `sunder simulate` over all nodes.
pub fn totals(trace: &Path, options: &[&str]) -> Simulated {
    let result = replay("simulate", trace, options);
    result.simulation.expect("simulated").totals
}
