//! Reports: all forms from one run, the same again from the saved result, and the options that
//! choose what is shown and how Sunder exits. Tests that need no run use results written by hand,
//! so that the answers are known.

use crate::support::targets::{build, falsely_shared, global, open, side_by_side};
use crate::support::{plain_sunder, sunder};
use assert_cmd::Command;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use sunder_findings::{Answer, Findings, LatentOn, Reason, examples};
use sunder_workloads::Variant;

/// Saves a result in `folder`.
fn save(folder: &Path, name: &str, result: &Findings) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, result.to_json().expect("serializable")).expect("written");
    path
}

/// What `sunder report FILE` with these options says; its status must be `code`.
fn report(file: &Path, options: &[&str], code: i32) -> String {
    let mut command = sunder();
    command.arg("report").arg(file).args(options);
    said(&mut command, code)
}

fn said(command: &mut Command, code: i32) -> String {
    let seen = command.assert().code(code).stderr("");
    String::from_utf8(seen.get_output().stdout.clone()).expect("utf-8")
}

/// The first lines in which two texts differ.
fn first_difference<'a>(
    one: &'a str,
    other: &'a str,
) -> Option<(Option<&'a str>, Option<&'a str>)> {
    let (mut one, mut other) = (one.lines(), other.lines());
    loop {
        match (one.next(), other.next()) {
            (None, None) => return None,
            (a, b) if a != b => return Some((a, b)),
            _ => {}
        }
    }
}

#[test]
fn four_forms_come_from_one_run_and_again_from_the_saved_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let mut command = sunder();
    command.arg("detect");
    for name in ["a.json", "a.html", "a.sarif", "a.txt"] {
        command.arg("-o").arg(path(name));
    }
    command
        .arg("--")
        .arg(build("thread_stats", Variant::Shared));
    let seen = command.args(["2", "20000000"]).assert().success();
    let read = |name: &str| std::fs::read_to_string(path(name)).expect("written");
    // A summary for people still goes to standard error.
    let told = String::from_utf8_lossy(&seen.get_output().stderr).into_owned();
    assert_eq!(told, read("a.txt"));
    assert!(read("a.html").to_lowercase().starts_with("<!doctype html>"));
    let sarif: serde_json::Value = serde_json::from_str(&read("a.sarif")).expect("JSON");
    assert_eq!(sarif["version"], "2.1.0");
    for (format, name) in [
        ("text", "a.txt"),
        ("html", "a.html"),
        ("sarif", "a.sarif"),
        ("json", "a.json"),
    ] {
        let again = report(&path("a.json"), &["--format", format], 0);
        assert_eq!(first_difference(&again, &read(name)), None, "{name}");
        // Into a file as well.
        let to = path("again");
        let option = to.to_str().expect("utf-8");
        assert_eq!(
            report(
                &path("a.json"),
                &["--format", format, "-q", "-o", option],
                0
            ),
            ""
        );
        assert!(read("again") == read(name), "{name} differs in a file");
    }
}

#[test]
fn fail_on_speaks_only_where_the_program_was_content() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    let program = build("thread_stats", Variant::Shared);
    side_by_side("thread_stats", || {
        let found = |script: &str| {
            plain_sunder()
                .args([
                    "detect",
                    "--follow-children",
                    "--fail-on",
                    "false-sharing",
                    "-q",
                    "-o",
                ])
                .arg(&file)
                .args(["--", "sh", "-c", script])
                .arg(&program)
                .stdout(std::process::Stdio::null())
                .status()
                .expect("sunder starts")
                .code()
        };
        let code = found("exec \"$0\" 2 200000000");
        let result = open(&file)?;
        let significant = falsely_shared(&result, |_| true).is_ok();
        assert_eq!(code, Some(if significant { 123 } else { 0 }));
        if !significant {
            return Err("nothing was found".into());
        }
        falsely_shared(&result, global("stats"))?;
        assert_eq!(found("\"$0\" 2 200000000; exit 4"), Some(4));
        Ok(())
    });
    let nothing = ["detect", "-q", "--fail-on", "false-sharing", "--", "true"];
    sunder().args(nothing).assert().success();
}

/// On one CPU no line moves, so that nothing is found says nothing. What would be shared with more of
/// them is predicted.
#[test]
fn a_run_that_could_not_tell_is_inconclusive_and_can_fail() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    let program = build("thread_stats", Variant::Shared);
    let status = |fail_on: &str| {
        let mut command = plain_sunder();
        command.args(["detect", "-q", "--fail-on", fail_on, "-o"]);
        command.arg(&file).arg("--").arg(&program);
        // Long enough for the scheduler to switch between the two many times.
        command.args(["2", "400000000"]);
        command.stdout(std::process::Stdio::null());
        let on_one = || {
            // SAFETY: plain data, for which zeroes are valid; the call reads it.
            let set = unsafe {
                let mut cpus: libc::cpu_set_t = std::mem::zeroed();
                libc::sched_getaffinity(0, size_of_val(&cpus), &raw mut cpus);
                let first =
                    (0..libc::CPU_SETSIZE as usize).find(|&cpu| libc::CPU_ISSET(cpu, &cpus));
                libc::CPU_ZERO(&mut cpus);
                libc::CPU_SET(first.unwrap_or(0), &mut cpus);
                libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus)
            };
            if set != 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        };
        // SAFETY: the closure makes system calls only.
        unsafe { command.pre_exec(on_one) };
        command.status().expect("sunder starts").code()
    };
    assert_eq!(status("false-sharing,inconclusive"), Some(122));
    let result = open(&file).expect("a result");
    let latent = result.findings.first().expect("a prediction");
    assert_eq!(latent.latent_on, Some(LatentOn::MoreCpusThan(1)));
    assert_eq!(latent.object.name.as_deref(), Some("stats"));
    let verdict = result.verdict.expect("a verdict");
    assert_eq!(verdict.answer, Answer::Inconclusive);
    let one_cpu = |reason: &Reason| matches!(reason, Reason::OneCpu { cpu: None, .. });
    assert!(verdict.reasons.iter().any(one_cpu), "{verdict:?}");
    assert_eq!(status("false-sharing"), Some(0));
}

#[test]
fn a_saved_result_fails_if_it_has_false_sharing_above_the_threshold() {
    let folder = tempfile::tempdir().expect("a folder");
    let fail = ["--quiet", "--fail-on", "false-sharing"];
    let with = |name: &str, findings| save(folder.path(), name, &examples::result(findings));
    for (file, code) in [
        (with("one.json", vec![examples::global_array()]), 123),
        (with("mixed.json", vec![examples::mixed()]), 123),
        (with("true.json", vec![examples::true_sharing()]), 0),
        (with("latent.json", vec![examples::latent()]), 0),
        (with("none.json", vec![]), 0),
    ] {
        report(&file, &fail, code);
        // No finding of the examples costs as much as that.
        let strict = [&fail[..], &["--threshold", "99"]].concat();
        report(&file, &strict, 0);
    }
}

#[test]
fn the_threshold_hides_and_all_shows() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = save(folder.path(), "result.json", &examples::report());
    // Its headings name the object; the field of `one_writer` is below 1 %.
    let heading = |text: &str, rank: &str| text.lines().any(|l| l.starts_with(rank));
    let usual = report(&file, &[], 0);
    assert!(heading(&usual, "#1 false sharing"), "{usual}");
    let strict = report(&file, &["--threshold", "99"], 0);
    assert!(!heading(&strict, "#1 false sharing"), "{strict}");
    assert!(
        strict.starts_with("No false sharing found that costs 99 %"),
        "{strict}"
    );
    let all = report(&file, &["--threshold", "99", "--all"], 0);
    assert!(heading(&all, "#1 false sharing"), "{all}");
    // What is truly shared costs 9.5 %; the section about it is not among the findings.
    assert!(usual.contains("\nTruly shared: "), "{usual}");
    assert!(!strict.contains("true sharing:"), "{strict}");
    assert!(
        all.contains("true sharing:") && !all.contains("\nTruly shared: "),
        "{all}"
    );
}

#[test]
fn words_shows_every_word_with_its_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let finding = examples::global_array();
    let words: Vec<_> = finding.lines.iter().flat_map(|l| l.words.clone()).collect();
    let file = save(folder.path(), "r.json", &examples::result(vec![finding]));
    let rows = |text: &str, field: &str| {
        let row = |l: &&str| l.contains(field) && l.split_whitespace().count() >= 6;
        text.lines().filter(row).count()
    };
    let (usual, wide) = (report(&file, &[], 0), report(&file, &["--words"], 0));
    for word in &words {
        let field = word.field.as_deref().expect("the example names all");
        assert!(rows(&wide, field) > rows(&usual, field), "{field}: {wide}");
    }
}

#[test]
fn colour_follows_the_conventions() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = save(folder.path(), "result.json", &examples::report());
    let escape = '\u{1b}';
    let run = |variables: &[(&str, &str)]| {
        let mut command = plain_sunder();
        for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied());
        let seen = command.arg("report").arg(&file).output().expect("starts");
        String::from_utf8(seen.stdout).expect("utf-8")
    };
    assert!(!run(&[]).contains(escape), "not a terminal");
    assert!(!run(&[("NO_COLOR", "1")]).contains(escape));
    assert!(run(&[("CLICOLOR_FORCE", "1")]).contains(escape));
    // Files and machine-readable forms never have colour.
    let mut json = sunder();
    json.env_remove("NO_COLOR").env("CLICOLOR_FORCE", "1");
    let json = said(json.arg("report").arg(&file).args(["--format", "json"]), 0);
    assert!(!json.contains(escape));
    let text = folder.path().join("r.txt");
    let mut to_file = sunder();
    to_file.env_remove("NO_COLOR").env("CLICOLOR_FORCE", "1");
    said(
        to_file
            .arg("report")
            .arg(&file)
            .args(["-q", "-o"])
            .arg(&text),
        0,
    );
    assert!(
        !std::fs::read_to_string(&text)
            .expect("written")
            .contains(escape)
    );
}

#[test]
fn a_comparison_says_what_appeared_and_what_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let shared = examples::result(vec![
        examples::linear_regression(),
        examples::global_array(),
    ]);
    let fixed = examples::result(vec![examples::global_array()]);
    let shared = save(folder.path(), "shared.json", &shared);
    let fixed = save(folder.path(), "fixed.json", &fixed);
    let diff = |old: &Path, new: &Path, options: &[&str], code: i32| {
        let mut command = sunder();
        command.arg("diff").args([old, new]).args(options);
        said(&mut command, code)
    };
    let fail = ["--fail-on", "false-sharing"];
    let section = |text: &str, title: &str| text.lines().any(|l| l == title);
    let better = diff(&shared, &fixed, &fail, 0);
    assert!(
        section(&better, "Gone") && !section(&better, "Appeared"),
        "{better}"
    );
    let worse = diff(&fixed, &shared, &fail, 123);
    assert!(
        section(&worse, "Appeared") && !section(&worse, "Gone"),
        "{worse}"
    );
    diff(&fixed, &shared, &[], 0);
    let same = diff(&shared, &shared, &fail, 0);
    assert!(
        !section(&same, "Appeared") && !section(&same, "Gone"),
        "{same}"
    );
    // `--all` shows what the report says it would show.
    assert!(
        same.contains("--all") && !section(&same, "Unchanged"),
        "{same}"
    );
    assert!(section(&diff(&shared, &shared, &["--all"], 0), "Unchanged"));
    let json = diff(&fixed, &shared, &["--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["appeared"].as_array().map(Vec::len), Some(1));
    // For a pull request: the answer, and a row with the old and the new cost.
    let markdown = diff(&fixed, &shared, &["--format", "markdown"], 0);
    assert!(
        markdown.starts_with("### False sharing was added\n"),
        "{markdown}"
    );
    let row =
        "| appeared | lreg\\_args\\[4\\] on the heap | linear\\_regression.c:133 | - | 71 % |";
    assert!(section(&markdown, row), "{markdown}");
    let same: serde_json::Value =
        serde_json::from_str(&diff(&fixed, &shared, &["--format", "json"], 0)).expect("JSON");
    assert_eq!(same, json);
    let page = diff(&fixed, &shared, &["--format", "html"], 0);
    assert!(
        page.starts_with("<!doctype html>") && page.contains("Appeared"),
        "{page}"
    );
}

#[test]
fn the_fixed_variant_of_a_program_is_seen_to_be_better() {
    let folder = tempfile::tempdir().expect("a folder");
    side_by_side("thread_stats", || {
        let run = |variant: Variant| {
            let file = folder.path().join(variant.name());
            let mut command = sunder();
            command
                .args(["detect", "-q", "--format", "json", "-o"])
                .arg(&file);
            command.arg("--").arg(build("thread_stats", variant));
            command.args(["2", "200000000"]).assert().success();
            file
        };
        let (fixed, shared) = (run(Variant::Fixed), run(Variant::Shared));
        // The threads of this line must run side by side.
        open(&shared)?;
        let mut diff = sunder();
        diff.args(["diff", "--fail-on", "false-sharing"])
            .args([&shared, &fixed]);
        let text = said(&mut diff, 0);
        if !text.lines().any(|l| l == "Gone") {
            return Err(text);
        }
        let mut diff = sunder();
        diff.args(["diff", "--fail-on", "false-sharing"])
            .args([&fixed, &shared]);
        let output = diff.output().expect("sunder starts");
        match output.status.code() {
            Some(123) => Ok(()),
            other => Err(format!(
                "{other:?}: {}",
                String::from_utf8_lossy(&output.stdout)
            )),
        }
    });
}

#[test]
fn completions_and_manual_pages_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let text = said(sunder().args(["completions", shell]), 0);
        assert!(text.contains("follow-children"), "{shell}");
    }
    let page = said(sunder().arg("man"), 0);
    assert!(page.contains(".TH") && page.contains("detect"), "{page}");
    let folder = tempfile::tempdir().expect("a folder");
    said(sunder().args(["man", "--directory"]).arg(folder.path()), 0);
    let detect = folder.path().join("sunder-detect.1");
    let page = std::fs::read_to_string(detect).expect("a page for each command");
    assert!(page.contains("watch\\-budget"), "{page}");
}

#[test]
fn the_help_names_every_option_that_is_promised() {
    let help = said(sunder().args(["detect", "--help"]), 0);
    for option in [
        "--observer",
        "--frequency",
        "--line-size",
        "--format",
        "-o",
        "--all",
        "--threshold",
        "--words",
        "--follow-children",
        "--fail-on",
        "--quiet",
        "--watch-budget",
    ] {
        assert!(help.contains(option), "{option}: {help}");
    }
    for choice in [
        "auto", "perf", "timer", "pmu", "text", "json", "html", "sarif",
    ] {
        assert!(help.contains(&format!("- {choice}:")), "{choice}: {help}");
    }
    let help = said(sunder().args(["attach", "--help"]), 0);
    assert!(
        help.contains("--pid") && help.contains("--duration"),
        "{help}"
    );
    let help = said(sunder().arg("--help"), 0);
    for status in ["123", "125", "126", "127"] {
        assert!(help.contains(status), "{status}: {help}");
    }
}

#[test]
fn where_the_locale_is_not_utf_8_text_is_ascii() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = save(folder.path(), "a.json", &examples::report());
    let shown = |variables: &[(&str, &str)]| {
        let mut command = sunder();
        command
            .env_remove("LC_ALL")
            .env_remove("LC_CTYPE")
            .env_remove("LANG");
        command.envs(variables.iter().copied());
        command.arg("report").arg(&file);
        said(&mut command, 0)
    };
    assert!(shown(&[("LC_ALL", "C")]).is_ascii());
    assert!(shown(&[]).is_ascii());
    assert!(shown(&[("LC_ALL", "C"), ("LANG", "C.UTF-8")]).is_ascii());
    let whole = shown(&[("LANG", "C.UTF-8")]);
    assert!(!whole.is_ascii());
    assert_eq!(shown(&[("LC_CTYPE", "de_DE.utf8")]), whole);
}

#[test]
fn a_pipe_is_as_wide_as_columns_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = save(folder.path(), "a.json", &examples::report());
    let widest = |columns: Option<&str>| {
        let mut command = sunder();
        command.env_remove("COLUMNS");
        columns.map(|columns| command.env("COLUMNS", columns));
        command.arg("report").arg(&file);
        let text = said(&mut command, 0);
        text.lines().map(|line| line.chars().count()).max()
    };
    assert_eq!(widest(Some("60")), Some(60));
    assert_eq!(widest(Some("80")), Some(80));
    assert_eq!(widest(None), Some(100));
    assert_eq!(widest(Some("nonsense")), Some(100));
}
