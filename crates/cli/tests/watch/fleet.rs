//! `sunder fleet report` on what real watches of two machines wrote. The two machines are two names of
//! this one, each in a namespace of its own.

use crate::records::{VERSION, can_watch, findings, records, target};
use crate::support::targets::side_by_side;
use crate::support::{plain_sunder, sunder};
use std::path::Path;
use std::process::{Command, Output};
use sunder_workloads::Variant;

/// Runs `sunder fleet report` with these arguments.
fn report(arguments: &[&str]) -> Output {
    let mut command = sunder();
    let told = command.args(["fleet", "report"]).args(arguments).output();
    told.expect("it starts")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let told = report(&[arguments, &["--format", "json"]].concat());
    serde_json::from_str(&text(&told)).expect("JSON")
}

/// Whether a machine can have another name for a while; says why not.
fn can_rename() -> bool {
    let tried = Command::new("unshare")
        .args(["--uts", "hostname", "sunder-test"])
        .output();
    let can = tried.as_ref().is_ok_and(|out| out.status.success());
    if !can {
        println!(
            "SKIP: no namespace for names can be made here ({tried:?}); two machines were not tried"
        );
    }
    can
}

/// A single look by a machine of this name, with more arguments; records go to `file`.
fn watch_as(host: &str, pid: &str, file: &Path, more: &[&str]) {
    let script = "hostname \"$1\" && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--uts", "sh", "-c", script, "sh", host]);
    command.arg(plain_sunder().get_program());
    command
        .args(["watch", "--quiet", "--once", "4s", "--pid", pid, "--json"])
        .arg(file)
        .args(more);
    // Nothing listens there: what is to be sent waits in the spool.
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9");
    let seen = command.output().expect("it starts");
    assert!(seen.status.success(), "{seen:?}");
}

#[test]
fn the_same_finding_of_two_machines_is_one_object() {
    if !can_watch() || !can_rename() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = 0;
    side_by_side("two machines", || {
        run += 1;
        let here = folder.path().join(run.to_string());
        let spool = here.join("spool");
        std::fs::create_dir(&here).expect("ours");
        let shared = target("thread_stats", Variant::Shared);
        let (one, two) = (here.join("one.jsonl"), here.join("two.jsonl"));
        let spooled = ["--otlp", "--spool", spool.to_str().expect("text")];
        watch_as("machine-one", &shared.id(), &one, &[]);
        watch_as("machine-two", &shared.id(), &two, &spooled);
        drop(shared);
        let told = [&one, &two].map(|file| records(&std::fs::read(file).expect("written")));
        let lost = |file: usize| -> f64 {
            let present = crate::records::status(&told[file]).present.iter();
            present.map(|one| one.lost_seconds).sum()
        };
        let first = told.each_ref().map(|told| {
            findings(told)
                .first()
                .map(|found| (found.fingerprint.clone(), found.origin.clone()))
        });
        let [Some((print, origin)), Some((other, _))] = first else {
            return Err("not found".into());
        };
        if print != other {
            return Err(format!("another object was seen: {print} {other}"));
        }
        let near = |value: &serde_json::Value, wanted: f64| {
            let value = value.as_f64().expect("a number");
            assert!((value - wanted).abs() < 1e-6, "{value} {wanted}");
        };
        // The folder has the spool, too, which tells the same again.
        let fleet = json(&[here.to_str().expect("text")]);
        assert_eq!(fleet["answer"], "found", "{fleet:#}");
        near(&fleet["lost_seconds"], lost(0) + lost(1));
        let objects = fleet["objects"].as_array().expect("a list");
        let object = objects
            .iter()
            .find(|one| one["fingerprint"] == print.as_str());
        let object = object.expect("both found it");
        assert_eq!(
            (&object["hosts"], &object["there_on"]),
            (&2.into(), &2.into()),
            "{object:#}"
        );
        assert_eq!(
            object["builds"][0]["build_id"].as_str(),
            origin.build_id.as_deref()
        );
        assert_eq!(object["builds"][0]["path"].as_str(), origin.path.as_deref());
        assert_eq!(object["builds"][0]["version"], VERSION);
        assert!(
            object["builds"][0]["looks"].as_u64() >= Some(2),
            "{object:#}"
        );
        let names: Vec<&str> = fleet["hosts"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|host| host["host"].as_str())
            .collect();
        assert!(
            names.contains(&"machine-one") && names.contains(&"machine-two"),
            "{names:?}"
        );
        assert_eq!(names.len(), 2);
        // The spool alone.
        let alone = json(&[spool.to_str().expect("text")]);
        near(&alone["lost_seconds"], lost(1));
        assert_eq!(alone["reading"]["damaged"], 0);
        Ok(())
    });
}

/// Records of a machine, hand-made.
fn made(folder: &Path) -> std::path::PathBuf {
    let file = folder.join("findings.jsonl");
    let lines: String = sunder_fleet::examples::lines()
        .iter()
        .map(|l| format!("{l}\n"))
        .collect();
    std::fs::write(&file, lines).expect("written");
    file
}

#[test]
fn the_form_is_that_of_the_format_or_of_the_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = made(folder.path());
    let file = file.to_str().expect("text");
    let plain = text(&report(&[file]));
    assert!(
        plain.starts_with("2 objects are shared falsely, on 3 of 5 machines."),
        "{plain}"
    );
    assert!(
        plain.contains("appeared with this build") && !plain.contains('\u{1b}'),
        "{plain}"
    );
    assert!(text(&report(&[file, "--format", "markdown"])).starts_with("### 2 objects"));
    for (name, beginning) in [
        ("page.html", "<!doctype html>"),
        ("page.md", "### "),
        ("page.txt", "2 objects"),
        ("page.json", "{\n"),
    ] {
        let out = folder.path().join(name);
        let told = report(&[file, "-o", out.to_str().expect("text")]);
        assert_eq!(text(&told), "", "nothing else is printed");
        let written = std::fs::read_to_string(&out).expect("written");
        assert!(written.starts_with(beginning), "{name}: {written}");
    }
}

#[test]
fn without_records_it_fails_in_one_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").expect("written");
    for file in [empty, folder.path().join("not there")] {
        let told = report(&[file.to_str().expect("text")]);
        let why = String::from_utf8_lossy(&told.stderr);
        assert_eq!(
            (told.status.code(), why.lines().count()),
            (Some(125), 1),
            "{why}"
        );
    }
    assert_eq!(report(&[]).status.code(), Some(2));
}

/// What others wrote is read without the right to write, to connect or to start anything.
#[test]
fn it_gives_up_its_rights_before_it_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo")
        .arg(&pipe)
        .status()
        .expect("there is mkfifo");
    assert!(made.success());
    let mut command = plain_sunder();
    command.args(["fleet", "report"]).arg(&pipe);
    let mut reading = crate::support::Ended::new(command.stderr(std::process::Stdio::null()));
    // Opening waits until somebody reads.
    let writer = std::fs::File::options()
        .write(true)
        .open(&pipe)
        .expect("it is read");
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", reading.id())).expect("it lives");
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1))
            .map(str::to_owned)
    };
    assert_eq!(field("Seccomp:").as_deref(), Some("2"), "{status}");
    assert_eq!(field("NoNewPrivs:").as_deref(), Some("1"), "{status}");
    drop(writer);
    assert_eq!(reading.child().wait().expect("it ends").code(), Some(125));
}
