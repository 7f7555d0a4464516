//! `import`: what perf recorded is judged like Sunder's own samples. Any other file is refused in
//! one sentence.

use crate::support::sunder;
use crate::support::targets::{as_expected, build, falsely_shared, global, open, side_by_side};
use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_workloads::Variant;

/// The option that the help of `sunder import` names.
const REGISTERS: &str = "--user-regs=ax,bx,cx,dx,si,di,bp,sp,ip,r8,r9,r10,r11,r12,r13,r14,r15";

/// Records a run of the workload. `None`, with a notice, where perf is missing or refused.
fn record(folder: &Path, options: &[&str], size: &str) -> Option<PathBuf> {
    let file = folder.join("perf.data");
    let recorded = Command::new("perf")
        .args(["record", "-q", "-e", "cpu-clock:u", "-F", "2000"])
        .args(options)
        .arg("-o")
        .arg(&file)
        .arg("--")
        .arg(build("thread_stats", Variant::Shared))
        .args(["2", size])
        .output();
    match recorded {
        Ok(done) if done.status.success() => Some(file),
        Ok(done) => {
            let why = String::from_utf8_lossy(&done.stderr).into_owned();
            println!(
                "SKIP: perf record: {}",
                why.lines().next().unwrap_or("failed")
            );
            None
        }
        Err(error) => {
            println!("SKIP: perf: {error}");
            None
        }
    }
}

/// The sentence that `import` says about a file that it can't use.
fn refusal(file: &Path) -> String {
    let seen = sunder().arg("import").arg(file).assert().code(125);
    let told = String::from_utf8_lossy(&seen.get_output().stderr).into_owned();
    assert_eq!(told.lines().count(), 1, "{told}");
    let name = file.file_name().expect("a file").to_string_lossy();
    assert!(told.contains(name.as_ref()), "{told}");
    told
}

#[test]
fn a_recording_with_registers_gives_the_same_finding() {
    let folder = tempfile::tempdir().expect("a folder");
    side_by_side("thread_stats", || {
        let options = ["--sample-cpu", "-d", REGISTERS];
        let Some(file) = record(folder.path(), &options, "200000000") else {
            return Ok(());
        };
        let json = folder.path().join("result.json");
        let mut import = sunder();
        import
            .arg("import")
            .arg(&file)
            .args(["--quiet", "-o"])
            .arg(&json);
        import.assert().success().stdout("").stderr("");
        let result = open(&json)?;
        assert_eq!(result.run.observer, "import");
        as_expected(falsely_shared(&result, global("stats"))?, "thread_stats")
    });
}

#[test]
fn a_recording_without_registers_says_how_to_record() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(file) = record(folder.path(), &[], "10000000") else {
        return;
    };
    let told = refusal(&file);
    assert!(told.contains("--user-regs"), "{told}");
}

#[test]
fn a_recording_cut_anywhere_is_no_half_result() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(file) = record(folder.path(), &["-d", REGISTERS], "10000000") else {
        return;
    };
    let whole = std::fs::read(&file).expect("readable");
    let cut = folder.path().join("cut.data");
    for part in 0..20 {
        let length = whole.len() * part / 20;
        std::fs::write(&cut, &whole[..length]).expect("written");
        refusal(&cut);
    }
}

#[test]
fn foreign_and_empty_files_are_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in [
        ("empty.data", &b""[..]),
        ("foreign.data", b"PERFFIL1 is the magic of an older format"),
        ("magic-only.data", b"PERFILE2"),
        ("text.data", b"# captured on: today\n"),
    ] {
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).expect("written");
        refusal(&file);
    }
    refusal(Path::new(env!("CARGO_BIN_EXE_sunder")));
    refusal(folder.path());
    refusal(Path::new("/no/such/perf.data"));
}
