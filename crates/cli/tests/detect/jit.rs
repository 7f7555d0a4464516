//! Code without a file: made at run time, or in a program whose file is deleted. Data are named all
//! the same where their names can be known, and the report says where they can't.

use crate::support::targets::{falsely_shared, global, open, side_by_side};
use crate::support::{c_program, copy_program, plain_sunder};
use std::path::Path;
use std::sync::OnceLock;
use sunder_findings::{Finding, Findings, Limit};

const OBSERVERS: [&str; 2] = ["auto", "timer"];

/// Runs a copy of `tests/programs/jit.c` that may delete its own file.
fn detect(how: &str, observer: &str) -> Result<Findings, String> {
    static COMPILED: OnceLock<std::path::PathBuf> = OnceLock::new();
    let compile = || c_program("jit", &[]).expect("it compiles without flags");
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("jit");
    copy_program(COMPILED.get_or_init(compile), &program);
    let file = folder.path().join("result.json");
    let mut command = plain_sunder();
    command.args([
        "detect",
        "--quiet",
        "--observer",
        observer,
        "--watch-budget",
        "5",
        "-o",
    ]);
    let seen = command.arg(&file).arg("--").arg(&program).arg(how).output();
    let seen = seen.expect("sunder starts");
    let told = String::from_utf8_lossy(&seen.stderr);
    assert_eq!((seen.status.code(), told.as_ref()), (Some(0), ""), "{how}");
    // 150 million for each counter, the second one twice.
    assert_eq!(seen.stdout, b"checksum 450000000\n");
    assert_eq!(Path::new(&program).exists(), how != "deleted");
    open(&file)
}

/// The bytes that each thread touches, of the only line.
fn bytes(finding: &Finding) -> Vec<(u32, u32)> {
    let words = finding.lines.iter().flat_map(|l| &l.words);
    words.map(|w| (w.offset, w.size)).collect()
}

#[test]
fn a_global_that_generated_code_shares_is_named() {
    for how in ["anonymous", "memfd"] {
        for observer in OBSERVERS {
            side_by_side(how, || {
                let result = detect(how, observer)?;
                let finding = falsely_shared(&result, global("counters"))?;
                assert_eq!(bytes(finding), [(0, 8), (8, 8)], "{how}");
                // No function or line of that code is known; only its address.
                for site in &finding.sites {
                    assert!(site.line.is_none() && site.file.is_none(), "{site:?}");
                    assert_ne!(site.address.0, 0, "{site:?}");
                }
                Ok(())
            });
        }
    }
}

#[test]
fn generated_code_has_the_name_that_its_runtime_wrote_down() {
    side_by_side("told", || {
        let result = detect("told", "auto")?;
        for process in &result.processes {
            // The program leaves its file behind, as runtimes do.
            let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", process.id));
        }
        let finding = falsely_shared(&result, global("counters"))?;
        for site in &finding.sites {
            assert_eq!(site.function, "JS:*adding /app/sum.js:3", "{site:?}");
        }
        Ok(())
    });
}

#[test]
fn code_that_was_written_over_blames_nothing_else() {
    for observer in OBSERVERS {
        side_by_side("rewritten", || {
            let result = detect("rewritten", observer)?;
            for finding in &result.findings {
                assert_eq!(finding.object.name.as_deref(), Some("counters"));
                assert_eq!(bytes(finding), [(0, 8), (8, 8)]);
            }
            falsely_shared(&result, global("counters")).map(|_| ())
        });
    }
}

#[test]
fn a_program_whose_file_is_gone_is_named_or_the_report_says_why_not() {
    for observer in OBSERVERS {
        side_by_side("deleted", || {
            let result = detect("deleted", observer)?;
            let named = |f: &Finding| f.object.name.as_deref() == Some("counters");
            let finding = falsely_shared(&result, |_| true)?;
            let touched: Vec<u32> = bytes(finding).iter().map(|b| b.1).collect();
            assert_eq!(touched, [8, 8]);
            let told =
                |l: &Limit| l.to_string().contains("deleted") && l.to_string().contains("no names");
            assert!(
                named(finding) || result.limits.iter().any(told),
                "{:#?}",
                result.limits
            );
            Ok(())
        });
    }
}
