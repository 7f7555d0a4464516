//! Receivers that refuse, answer late or not at all, and disks that are full: what is sent waits within its bounds, what
//! is dropped is counted, no sample is lost, and the watch ends in time.

use crate::receiver::{Receiver, Reply, wait_until};
use crate::records::{can_watch, findings, records, target};
use crate::sending::{
    LOGS, METRICS, PROFILES, Watch, batches, points, said, sending, times, times_of, told,
};
use crate::support::installed::free_port;
use crate::support::small_disk::on_small_disk;
use crate::support::targets::side_by_side;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};
use sunder_workloads::Variant;

/// A watch of a process without findings, which tells its status twice a second.
const QUIET: [&str; 4] = ["--interval", "500ms", "--pid", "1"];

#[test]
fn a_receiver_that_says_when_is_not_asked_before_and_one_that_does_not_is_asked_soon() {
    if !can_watch() {
        return;
    }
    for retry_after in [None, Some(0), Some(3)] {
        let refusals = std::sync::Mutex::new(0..2);
        let receiver = Receiver::start(0, move |_| Reply {
            retry_after,
            ..Reply::of(match refusals.lock().expect("ours").next() {
                Some(_) => 503,
                None => 200,
            })
        });
        let watch = Watch::start(&mut sending(receiver.port, &QUIET));
        receiver.log.wait_for(METRICS, 3);
        let (told, said) = watch.end();
        assert_eq!(times_of(&receiver.log.taken(METRICS)), times(&told));
        assert_eq!(said.matches("answers 503").count(), 1, "{said}");
        let asked = receiver.log.asked();
        let pauses: Vec<_> = asked
            .windows(2)
            .map(|two| two[1].0.at - two[0].0.at)
            .collect();
        // One that asks for no pause is not asked without one.
        let asked_for = Duration::from_secs(retry_after.unwrap_or(0).into());
        let least = asked_for.max(Duration::from_millis(500));
        assert!(
            pauses[..2].iter().all(|&pause| pause >= least),
            "{pauses:?}"
        );
    }
}

/// Nothing was lost in silence, and whoever looks at the status learns of it.
#[test]
fn a_single_look_whose_batches_are_refused_fails_and_says_so() {
    if !can_watch() {
        return;
    }
    let receiver = Receiver::start(0, |_| Reply::of(400));
    let once = ["--once", "1s", "--pid", "1"];
    let output = sending(receiver.port, &once).output().expect("it runs");
    assert_eq!(output.status.code(), Some(125));
    let said = said(&output);
    assert!(said.contains("1 batch was lost: refused"), "{said}");
}

#[test]
fn what_a_slow_receiver_could_not_confirm_is_sent_again() {
    if !can_watch() {
        return;
    }
    let slow = std::sync::Mutex::new(0..3);
    let receiver = Receiver::start(0, move |_| Reply {
        delay: match slow.lock().expect("ours").next() {
            Some(_) => Duration::from_secs(5),
            None => Duration::ZERO,
        },
        ..Reply::of(200)
    });
    let mut command = sending(receiver.port, &QUIET);
    command.env("OTEL_EXPORTER_OTLP_TIMEOUT", "300");
    let watch = Watch::start(&mut command);
    receiver.log.wait_for(METRICS, 6);
    let (told, said) = watch.end();
    let came = receiver.log.taken(METRICS);
    assert_eq!(times_of(&came), times(&told));
    // The first was taken, and confirmed too late.
    assert!(came.iter().filter(|&batch| *batch == came[0]).count() > 1);
    assert!(said.contains("can't be reached (timeout"), "{said}");
}

#[test]
fn a_receiver_that_never_answers_does_not_hold_up_the_end() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let never = Duration::from_secs(3600);
    let receiver = Receiver::start(0, move |_| Reply {
        delay: never,
        ..Reply::of(200)
    });
    for spool in [None, Some(folder.path())] {
        let mut command = sending(receiver.port, &QUIET);
        command.env("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000");
        command.args(
            spool
                .iter()
                .flat_map(|s| ["--spool", s.to_str().expect("text")]),
        );
        let before = receiver.log.taken(METRICS).len();
        let watch = Watch::start(&mut command);
        receiver.log.wait_for(METRICS, before + 1);
        let since = Instant::now();
        let (told, said) = watch.end();
        // It waits for 5 s; the rest of the bound is for a busy machine.
        assert!(
            since.elapsed() < Duration::from_secs(60),
            "{:?}",
            since.elapsed()
        );
        let count = times(&told).len();
        let es = if count == 1 { "" } else { "es" };
        let wanted = format!("otlp-metrics: {count} batch{es} could not be sent");
        assert!(said.contains(&wanted), "{wanted}: {said}");
        let kept = spool.map_or(0, |_| count);
        assert_eq!(batches(folder.path(), "otlp-metrics"), kept);
    }
}

#[test]
fn a_signal_that_is_not_taken_does_not_hold_up_the_others() {
    if !can_watch() {
        return;
    }
    side_by_side("signals on their own", || {
        let folder = tempfile::tempdir().expect("a folder");
        let never = Duration::from_secs(3600);
        let receiver = Receiver::start(0, move |request| match request.path.as_str() {
            METRICS => Reply::of(503),
            PROFILES => Reply {
                delay: never,
                ..Reply::of(200)
            },
            _ => Reply::of(200),
        });
        let shared = target("thread_stats", Variant::Shared);
        let spool = folder.path().to_str().expect("text");
        let mut command = sending(receiver.port, &["--once", "4s", "--pid", &shared.id()]);
        command.args(["--otlp-profiles", "--spool", spool]);
        command.env("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000");
        let output = command.output().expect("it starts");
        drop(shared);
        let told = told(&output);
        let found = findings(&told);
        if found.is_empty() {
            return Err("not found".into());
        }
        assert_eq!(receiver.log.taken(LOGS).len(), found.len());
        assert_eq!(batches(folder.path(), "otlp-logs"), 0);
        assert_eq!(batches(folder.path(), "otlp-metrics"), times(&told).len());
        assert_eq!(batches(folder.path(), "otlp-profiles"), 1);
        Ok(())
    });
}

#[test]
fn profiles_that_nobody_wants_are_asked_for_once_and_counted() {
    if !can_watch() {
        return;
    }
    side_by_side("a signal that is off", || {
        let receiver = Receiver::start(0, |request| match request.path.as_str() {
            PROFILES => Reply::of(501),
            _ => Reply::of(200),
        });
        let shared = target("thread_stats", Variant::Shared);
        let folder = tempfile::tempdir().expect("a folder");
        let page = folder.path().join("sunder.prom");
        let mut command = sending(receiver.port, &["--interval", "2s", "--budget", "100%"]);
        command.args(["--pid", &shared.id(), "--otlp-profiles"]);
        command.arg("--prom-file").arg(&page);
        let mut watch = Watch::start(&mut command);
        let counted = || {
            let page = std::fs::read_to_string(&page).unwrap_or_default();
            let line = "sunder_sink_lost_batches_total{sink=\"otlp-profiles\"} ";
            let count = page
                .lines()
                .find_map(|l| l.strip_prefix(line)?.parse().ok());
            (count.unwrap_or(0), page)
        };
        let since = Instant::now();
        while counted().0 < 3 && since.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(100));
        }
        let (count, page) = counted();
        let asked = || {
            let asked = receiver.log.asked();
            let asked = asked.iter().filter(|(request, _)| request.path == PROFILES);
            asked.count()
        };
        let before = asked();
        watch.signal(libc::SIGHUP);
        let since = Instant::now();
        while count >= 3 && asked() == before && since.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(100));
        }
        let (told, said) = watch.end();
        drop(shared);
        if count < 3 {
            return Err(format!("{count} profiles: {page}"));
        }
        assert!(
            page.contains("sunder_sink_off{sink=\"otlp-profiles\"} 1"),
            "{page}"
        );
        assert!(
            page.contains("sunder_sink_off{sink=\"otlp-logs\"} 0"),
            "{page}"
        );
        // Once, and once more when it was asked to.
        assert_eq!((before, asked()), (1, 2));
        assert_eq!(
            said.matches("no profiles are taken there").count(),
            2,
            "{said}"
        );
        assert_eq!(receiver.log.taken(LOGS).len(), findings(&told).len());
        assert_eq!(times_of(&receiver.log.taken(METRICS)), times(&told));
        Ok(())
    });
}

#[test]
fn what_has_no_room_is_dropped_and_counted() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("sunder.prom");
    let mut command = sending(free_port(), &QUIET);
    command
        .args(["--spool-size", "0", "--prom-file"])
        .arg(&page);
    let watch = Watch::start(&mut command);
    let line = "sunder_sink_lost_batches_total{sink=\"otlp-metrics\"} ";
    let dropped = || {
        let page = std::fs::read_to_string(&page).unwrap_or_default();
        let count = page
            .lines()
            .find_map(|l| l.strip_prefix(line)?.parse().ok());
        count.unwrap_or(0)
    };
    wait_until("three are dropped", || dropped() >= 3);
    let (told, _) = watch.end();
    // All but that of the page itself.
    assert_eq!(dropped(), times(&told).len() - 1);
}

#[test]
fn what_a_full_disk_does_not_take_waits_in_memory_and_arrives() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let spool = folder.path().to_str().expect("text");
    // A batch takes one page of four, its folder another.
    let Some(mut command) = on_small_disk(folder.path(), "16k") else {
        return;
    };
    let port = free_port();
    let plain = sending(port, &QUIET);
    command.arg(plain.get_program()).args(plain.get_args());
    command.args(["--spool", spool]);
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watch = Watch::start(&mut command);
    let out = BufReader::new(watch.child().stdout.take().expect("piped"));
    // More than the disk can have.
    let mut lines = out.lines().map(|line| line.expect("text"));
    let first: Vec<String> = lines.by_ref().take(10).collect();
    let within = format!("/proc/{}/root{spool}/otlp-metrics", watch.child().id());
    let on_disk = std::fs::read_dir(within).expect("it is mounted").count();
    assert!((1..10).contains(&on_disk), "{on_disk}");
    let receiver = Receiver::start(port, |_| Reply::of(200));
    receiver.log.wait_for(METRICS, first.len());
    // It does not end while nobody reads what it writes.
    let rest = std::thread::spawn(move || lines.collect::<Vec<String>>());
    let output = watch.output();
    let all = [first, rest.join().expect("text")].concat();
    let told = records(all.join("\n").as_bytes());
    crate::sending::nothing_is_lost(&told);
    assert_eq!(times_of(&receiver.log.taken(METRICS)), times(&told));
    let said = said(&output);
    assert_eq!(said.matches("No space left").count(), 1, "{said}");
    let lost = points(&receiver.log.taken(METRICS), "sunder_sink_lost_batches");
    assert!(!lost.is_empty() && lost.iter().all(|point| point.1 == 0.0));
}
