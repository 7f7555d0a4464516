//! Where `perf_event_open` is refused, as in containers, `detect` samples with timers instead and
//! says so. What can't work says why in one sentence.

use crate::support::confine::refuse_perf;
use crate::support::plain_sunder;
use crate::support::targets::{
    as_expected, build, falsely_shared, global, open, side_by_side, workload,
};
use std::process::{Command, Output};
use sunder_findings::{Findings, Limit, ObjectKind};
use sunder_workloads::Variant;

/// How containers refuse (seccomp's usual answer), and kernels without perf.
const REFUSALS: [(i32, &str); 2] = [(libc::EPERM, "EPERM"), (libc::ENOSYS, "ENOSYS")];

fn refused(errno: i32) -> Command {
    let mut command = plain_sunder();
    refuse_perf(&mut command, errno);
    command
}

fn output(command: &mut Command) -> Output {
    command.output().expect("sunder starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs `program 2 size` under a refusing filter; the result.
fn detect(errno: i32, name: &str) -> Result<Findings, String> {
    let program = build(name, Variant::Shared);
    // Timers tick with the kernel's clock, 100 to 1,000 times a CPU second.
    let size = (2 * workload(name).size).to_string();
    let native = Command::new(&program).args(["2", &size]).output();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    let mut command = refused(errno);
    command.args(["detect", "--quiet", "-o"]).arg(&file);
    let seen = output(command.arg("--").arg(&program).args(["2", &size]));
    assert_eq!(seen.status.code(), Some(0), "{}", stderr(&seen));
    assert_eq!(seen.stdout, native.expect("the workload runs").stdout);
    assert_eq!(stderr(&seen), "");
    let result = open(&file)?;
    assert_eq!(result.run.observer, "timer");
    // The kernel looks at such timers at its ticks, at most 1,000 a second.
    let (high, _) = result.run.frequency_hz.expect("it is known");
    assert!((100..=1000).contains(&high), "{high}");
    let told = |l: &Limit| l.to_string().contains("timers") && l.to_string().contains("perf");
    assert!(result.limits.iter().any(told), "{:#?}", result.limits);
    Ok(result)
}

#[test]
fn a_global_is_found_by_timers() {
    for (errno, name) in REFUSALS {
        side_by_side(name, || {
            let result = detect(errno, "thread_stats")?;
            let finding = falsely_shared(&result, global("stats"))?;
            as_expected(finding, "thread_stats")
        });
    }
}

#[test]
fn a_heap_object_is_found_with_its_allocation_by_timers() {
    side_by_side("pseudo_sharing", || {
        let result = detect(libc::EPERM, "pseudo_sharing")?;
        let finding = falsely_shared(&result, |f| f.object.kind == ObjectKind::Heap)?;
        as_expected(finding, "pseudo_sharing")
    });
}

#[test]
fn status_and_streams_stay_the_programs() {
    for (errno, _) in REFUSALS {
        let seen = output(refused(errno).args(["detect", "--", "sh", "-c", "echo out; exit 7"]));
        assert_eq!(seen.status.code(), Some(7), "{}", stderr(&seen));
        assert_eq!(seen.stdout, b"out\n");
        let seen = output(refused(errno).args(["detect", "--", "sh", "-c", "kill -TERM $$"]));
        assert_eq!(seen.status.code(), Some(128 + 15), "{}", stderr(&seen));
    }
}

#[test]
fn what_needs_perf_fails_with_one_sentence() {
    for (errno, _) in REFUSALS {
        let pid = std::process::id().to_string();
        let attach = ["attach", "--duration", "100ms", "--pid", &pid];
        let explicit = ["detect", "--observer", "perf", "--", "true"];
        let pmu = ["detect", "--observer", "pmu", "--", "true"];
        for arguments in [&attach[..], &explicit, &pmu] {
            let seen = output(refused(errno).args(arguments));
            let told = stderr(&seen);
            assert_eq!(seen.status.code(), Some(125), "{arguments:?}: {told}");
            assert_eq!(told.lines().count(), 1, "{arguments:?}: {told}");
            assert!(told.contains("perf") || told.contains("pmu"), "{told}");
        }
        let told = stderr(&output(refused(errno).args(explicit)));
        assert!(told.contains("--observer timer"), "{told}");
        // The program must not have run.
        let touched = tempfile::tempdir().expect("a folder").path().join("ran");
        output(
            refused(errno)
                .args(["detect", "--observer", "perf", "--", "touch"])
                .arg(&touched),
        );
        assert!(!touched.exists());
    }
}

#[test]
fn the_doctor_says_what_is_refused_and_how_to_get_more() {
    for (errno, _) in REFUSALS {
        let seen = output(refused(errno).arg("doctor"));
        assert_eq!(seen.status.code(), Some(0), "{}", stderr(&seen));
        let text = String::from_utf8_lossy(&seen.stdout).into_owned();
        let row = |name: &str| {
            let line = text.lines().find(|l| l.contains(name));
            line.unwrap_or_else(|| panic!("{name}: {text}")).to_owned()
        };
        assert!(
            row("samples (perf)").trim_start().starts_with("no"),
            "{text}"
        );
        assert!(row("watchpoints").trim_start().starts_with("no"), "{text}");
        assert!(text.contains("timer: samples taken by timers"), "{text}");
        assert!(text.contains('→'), "no remedy: {text}");
    }
}
