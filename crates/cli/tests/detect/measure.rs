//! `detect --measure` stops contending threads for moments. The program must not notice, and what is
//! measured, or why nothing is, must be in the result.

use crate::support::{c_program, sunder};
use std::process::Command;
use sunder_findings::{Findings, Limit};

/// Runs `contends` with so many rounds under `detect --measure`; its result, or `None` without a
/// compiler.
fn measured(rounds: &str, options: &[&str]) -> Option<Findings> {
    let _alone = crate::support::targets::alone();
    let program = c_program("contends", &["-O2", "-pthread"])?;
    let native = Command::new(&program).arg(rounds).output();
    let native = native.expect("it was just compiled");
    let file = std::env::temp_dir().join(format!("sunder-measure-{}", std::process::id()));
    let output = sunder()
        .args(["detect", "--measure", "--format", "json", "-o"])
        .arg(&file)
        .args(options)
        .arg("--")
        .arg(&program)
        .arg(rounds)
        .output()
        .expect("sunder runs");
    let seen = String::from_utf8_lossy(&output.stdout);
    assert_eq!(seen, String::from_utf8_lossy(&native.stdout), "{output:?}");
    assert_eq!(output.status.code(), native.status.code());
    assert!(seen.contains("interrupted 0"), "{seen}");
    let result = Findings::open(&file).expect("a result");
    std::fs::remove_file(&file).expect("our own file");
    Some(result)
}

#[test]
fn a_program_whose_threads_are_stopped_for_moments_goes_on_as_natively() {
    let Some(result) = measured("300", &[]) else {
        return;
    };
    let gains: Vec<_> = result
        .findings
        .iter()
        .filter_map(|f| f.gain_percent)
        .collect();
    for gain in &gains {
        assert!(gain.comparisons > 0, "{gain:?}");
        assert!(0.0 <= gain.low && gain.low <= gain.likely, "{gain:?}");
        assert!(gain.likely <= gain.high && gain.high <= 100.0, "{gain:?}");
    }
    let says_why = |limit: &Limit| limit.to_string().contains("gains was not measured");
    let present = result.findings.iter().any(|f| !f.latent);
    assert!(
        !present || !gains.is_empty() || result.limits.iter().any(says_why),
        "{:?}",
        result.limits
    );
}

#[test]
fn without_the_option_nothing_is_measured() {
    let _alone = crate::support::targets::alone();
    let Some(program) = c_program("contends", &["-O2", "-pthread"]) else {
        return;
    };
    let output = sunder()
        .args(["detect", "--format", "json", "--"])
        .arg(&program)
        .arg("30")
        .output()
        .expect("sunder runs");
    let text = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(
        !text.contains("gain_percent") && !text.contains("gains was not"),
        "{text}"
    );
}
