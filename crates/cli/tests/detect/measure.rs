//! `detect` stops contending threads for moments, more often with `--measure` and never with
//! `--no-measure`. The program must not notice, and what is measured must be in the result.

use crate::support::targets::{open, side_by_side};
use crate::support::{c_program, sunder};
use std::process::Command;
use sunder_findings::Findings;

/// Runs `contends` under `detect` with these options, and compares it with itself; the result.
fn detected(options: &[&str]) -> Result<Findings, String> {
    let program = c_program("contends", &["-O2", "-pthread"]).ok_or("there is no gcc")?;
    let native = Command::new(&program).arg("300").output();
    let native = native.expect("it was just compiled");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    let output = sunder()
        .arg("detect")
        .args(options)
        .args(["--format", "json", "-o"])
        .arg(&file)
        .arg("--")
        .arg(&program)
        .arg("300")
        .output()
        .expect("sunder runs");
    let seen = String::from_utf8_lossy(&output.stdout);
    assert_eq!(seen, String::from_utf8_lossy(&native.stdout), "{output:?}");
    assert_eq!(output.status.code(), native.status.code());
    assert!(seen.contains("interrupted 0"), "{seen}");
    open(&file)
}

#[test]
fn a_program_whose_threads_are_stopped_for_moments_goes_on_as_natively() {
    for options in [&[][..], &["--measure"]] {
        side_by_side("measure", || {
            let result = detected(options)?;
            let mut gains = result.findings.iter().filter_map(|f| f.gain_percent);
            let gain = gains.next().ok_or(format!("{:?}", result.limits))?;
            assert!(gain.comparisons > 0, "{gain:?}");
            assert!(0.0 <= gain.low && gain.low <= gain.likely, "{gain:?}");
            assert!(gain.likely <= gain.high && gain.high <= 100.0, "{gain:?}");
            Ok(())
        });
    }
}

/// How often `held` saw a thread of its own traced under `detect`.
fn traced(how: &str) -> Result<u64, String> {
    let program = c_program("held", &["-O2", "-pthread"]).ok_or("there is no gcc")?;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    let output = sunder()
        .args(["detect", "--quiet", "-o"])
        .arg(&file)
        .arg("--")
        .arg(&program)
        .arg(how)
        .output()
        .expect("sunder runs");
    open(&file)?;
    let seen = String::from_utf8_lossy(&output.stdout).into_owned();
    let count = seen.trim().strip_prefix("traced ");
    count.and_then(|n| n.parse().ok()).ok_or(seen)
}

#[test]
fn threads_are_held_for_false_sharing_and_for_nothing_else() {
    side_by_side("held", || match traced("apart")? {
        0 => Err("no thread was seen to be held".into()),
        _ => Ok(()),
    });
    side_by_side("not held", || {
        assert_eq!(traced("together")?, 0);
        Ok(())
    });
}

#[test]
fn if_no_thread_may_be_stopped_nothing_is_measured() {
    side_by_side("no measure", || {
        let result = detected(&["--no-measure"])?;
        let first = result.findings.iter().find(|f| !f.latent);
        let first = first.ok_or(format!("{:?}", result.limits))?;
        assert_eq!(first.gain_percent, None);
        Ok(())
    });
}

#[test]
fn where_nothing_can_be_measured_it_is_refused() {
    sunder()
        .args(["detect", "--observer", "isolate", "--measure", "--", "true"])
        .assert()
        .code(2)
        .stderr(predicates::str::contains("--observer isolate"));
}
