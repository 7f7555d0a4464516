//! A watch that goes on: findings that appear and go away, signals, restarts.

use crate::records::{can_watch, findings, records, status, target};
use crate::support::targets::side_by_side;
use crate::support::{Ended, plain_sunder};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use sunder_findings::{Happening, Record};
use sunder_workloads::Variant;

/// How long a record is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A watch of the process `pid`, which appends its records to `file`.
pub fn watching(pid: &str, file: &Path) -> Ended {
    let mut command = plain_sunder();
    command.args([
        "watch",
        "--quiet",
        "--interval",
        "2s",
        "--budget",
        "100%",
        "--pid",
        pid,
    ]);
    command.arg("--json").arg(file).stderr(Stdio::inherit());
    Ended::new(&mut command)
}

/// The whole lines of a file so far.
pub fn so_far(file: &Path) -> Vec<Record> {
    let text = std::fs::read(file).unwrap_or_default();
    let whole = text
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |at| at + 1);
    records(&text[..whole])
}

/// Waits for records in `file` among which `is` holds.
pub fn wait_for(file: &Path, is: impl Fn(&[Record]) -> bool) -> Result<Vec<Record>, String> {
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        let records = so_far(file);
        if is(&records) {
            return Ok(records);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(format!("not within {PATIENCE:?}: {:#?}", so_far(file)))
}

/// Ends it by a signal; it has to end well.
pub fn end(mut watch: Ended, signal: i32) {
    watch.kill(signal);
    let ended = watch.child().wait().expect("it ends");
    assert!(ended.success(), "{ended}");
}

pub fn has(event: Happening) -> impl Fn(&[Record]) -> bool {
    move |records| findings(records).iter().any(|f| f.event == event)
}

/// As `sunder watch | head -1`.
#[test]
fn a_watch_that_nobody_reads_any_more_ends() {
    if !can_watch() {
        return;
    }
    let mut command = plain_sunder();
    command.args(["watch", "--interval", "500ms", "--pid", "1"]);
    let mut watch = Ended::new(command.stdout(Stdio::piped()));
    let mut first = String::new();
    let output = watch.child().stdout.take().expect("it is piped");
    BufReader::new(output)
        .read_line(&mut first)
        .expect("a record");
    assert!(first.starts_with('{'), "{first}");
    let ended = watch.child().wait().expect("it ends");
    assert!(ended.success(), "{ended}");
}

#[test]
fn a_finding_appears_goes_with_its_process_and_keeps_its_identity() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = 0;
    let mut prints = Vec::new();
    side_by_side("a finding that comes and goes", || {
        prints.clear();
        // The second watcher and the second process are others.
        for _ in 0..2 {
            run += 1;
            let file = folder.path().join(format!("{run}.jsonl"));
            let shared = target("thread_stats", Variant::Shared);
            let watch = watching(&shared.id(), &file);
            wait_for(&file, has(Happening::Appeared))?;
            drop(shared);
            let told = wait_for(&file, has(Happening::Gone))?;
            end(watch, libc::SIGTERM);
            let found = findings(&told);
            assert_eq!(found[0].event, Happening::Appeared, "{found:#?}");
            let gone = found.last().expect("some");
            assert_eq!(gone.event, Happening::Gone);
            assert!(gone.before_percent.is_some());
            let same = found.iter().find(|f| f.fingerprint == gone.fingerprint);
            assert_eq!(same.map(|f| f.event), Some(Happening::Appeared));
            prints.push(found[0].finding.object.name.clone());
            let last = so_far(&file);
            assert!(status(&last).present.is_empty(), "{last:#?}");
        }
        assert_eq!(prints[0], prints[1]);
        Ok(())
    });
}

#[test]
fn what_is_being_looked_at_is_told_when_the_watch_is_ended() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("records.jsonl");
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let _ = std::fs::remove_file(&file);
        let watch = watching("1", &file);
        wait_for(&file, |records| !records.is_empty()).expect("a first status");
        end(watch, signal);
        let told = so_far(&file);
        assert!(told.len() >= 2, "{told:#?}");
        assert!(matches!(told.last(), Some(Record::Status(_))), "{told:#?}");
    }
}

#[test]
fn after_a_hangup_records_go_to_a_new_file() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (file, moved) = (folder.path().join("new"), folder.path().join("old"));
    let watch = watching("1", &file);
    wait_for(&file, |records| !records.is_empty()).expect("a first status");
    std::fs::rename(&file, &moved).expect("ours");
    watch.kill(libc::SIGHUP);
    let told = wait_for(&file, |records| !records.is_empty()).expect("it goes on");
    assert!(status(&told).seconds > 0.0);
    end(watch, libc::SIGTERM);
}

/// The first of a process's children.
fn child_of(process: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    children.ok()?.split_whitespace().next()?.parse().ok()
}

/// The process that observes, of a watch: its keeper stands between.
fn observer_of(watch: u32) -> Option<u32> {
    child_of(watch).and_then(child_of)
}

/// Waits until a process has ended.
fn wait_for_the_end_of(process: u32) {
    let since = Instant::now();
    let is_there = || {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"));
        status.is_ok_and(|status| !status.contains("State:\tZ"))
    };
    while is_there() {
        assert!(since.elapsed() < PATIENCE, "{process} goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A watch that has begun, with its keeper and the process that observes.
fn begun(file: &Path) -> (Ended, u32, u32) {
    let mut watch = watching("1", file);
    wait_for(file, |records| !records.is_empty()).expect("a first status");
    let own = watch.child().id();
    let keeper = child_of(own).expect("a process keeps it");
    let observer = observer_of(own).expect("a process observes");
    (watch, keeper, observer)
}

#[test]
fn its_end_ends_the_process_that_observes() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (watch, keeper, observer) = begun(&folder.path().join("records.jsonl"));
    watch.kill(libc::SIGKILL);
    wait_for_the_end_of(observer);
    wait_for_the_end_of(keeper);
}

/// Nobody would look after the process that observes.
#[test]
fn the_end_of_its_keeper_ends_the_watch() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (mut watch, keeper, observer) = begun(&folder.path().join("records.jsonl"));
    // SAFETY: takes two integers.
    unsafe { libc::kill(keeper as i32, libc::SIGKILL) };
    wait_for_the_end_of(observer);
    let ended = watch.child().wait().expect("it ends");
    assert_eq!(ended.code(), Some(125), "{ended:?}");
}

/// The process that names what was found stands still, as at a file that keeps it busy for long.
#[test]
fn a_second_signal_ends_a_watch_at_once_that_waits_for_names() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("records.jsonl");
    side_by_side("a finding whose name never comes", || {
        let shared = target("thread_stats", Variant::Shared);
        let mut watch = watching(&shared.id(), &file);
        let since = Instant::now();
        let own = watch.child().id();
        let naming = loop {
            match observer_of(own).and_then(child_of) {
                Some(naming) => break naming,
                None if since.elapsed() > PATIENCE => return Err("nothing was named".to_owned()),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        // SAFETY: takes two integers.
        unsafe { libc::kill(naming as i32, libc::SIGSTOP) };
        watch.kill(libc::SIGTERM);
        // Signals within half a second are one, as of systemd, which sends it to each process.
        std::thread::sleep(Duration::from_millis(1500));
        // It waits for names, ten seconds long.
        if watch.child().try_wait().expect("a child").is_some() {
            return Err("all was named before".to_owned());
        }
        let since = Instant::now();
        end(watch, libc::SIGTERM);
        assert!(
            since.elapsed() < Duration::from_secs(6),
            "{:?}",
            since.elapsed()
        );
        wait_for_the_end_of(naming);
        Ok(())
    });
}

/// The process that reads debug information is killed, as by the kernel when its time or memory is used up.
#[test]
fn what_cannot_be_read_of_debug_information_is_named_by_symbols() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("records.jsonl");
    side_by_side("a finding named by symbols", || {
        let shared = target("thread_stats", Variant::Shared);
        let mut watch = watching(&shared.id(), &file);
        let own = watch.child().id();
        let since = Instant::now();
        let reading = loop {
            let observer = observer_of(own);
            match observer.and_then(child_of).and_then(child_of) {
                Some(reading) => break reading,
                None if since.elapsed() > PATIENCE => return Err("nothing was named".to_owned()),
                None => std::thread::sleep(Duration::from_micros(200)),
            }
        };
        // SAFETY: takes two integers.
        unsafe { libc::kill(reading as i32, libc::SIGKILL) };
        let counts = |one: &Record| matches!(one, Record::Status(it) if it.looks_by_symbols > 0);
        let told = wait_for(&file, |records| records.iter().any(counts))?;
        let found = findings(&told);
        let first = found.first().ok_or("no finding")?;
        assert_eq!(first.finding.object.name.as_deref(), Some("stats"));
        end(watch, libc::SIGTERM);
        Ok(())
    });
}
