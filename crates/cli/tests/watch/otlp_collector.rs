//! What the real OpenTelemetry Collector writes, beside what the watch itself has written.

use crate::collector::{Collector, attribute, collector, number, requests};
use crate::receiver::wait_until;
use crate::records::{can_watch, findings, target};
use crate::sending::{Watch, batches, nothing_is_lost, sending, times};
use crate::support::installed::free_port;
use crate::support::small_disk::on_small_disk;
use crate::support::targets::side_by_side;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use sunder_findings::{Happening, Record};
use sunder_workloads::Variant;

/// One series of a metric: its name and attributes.
type Series = (String, Vec<(String, String)>);

/// All points of all metrics: time and value, in the order in which they came.
fn series(requests: &[Value]) -> BTreeMap<Series, Vec<(u64, f64)>> {
    let mut all: BTreeMap<Series, Vec<(u64, f64)>> = BTreeMap::new();
    for request in requests {
        let of_resource = &request["resourceMetrics"][0];
        assert_eq!(
            attribute(&of_resource["resource"], "host.name").as_deref(),
            Some("here")
        );
        assert_eq!(
            attribute(&of_resource["resource"], "service.name").as_deref(),
            Some("sunder")
        );
        let metrics = &of_resource["scopeMetrics"][0]["metrics"];
        for metric in metrics.as_array().expect("metrics") {
            let name = metric["name"].as_str().expect("a name");
            let data = match (&metric["sum"], &metric["gauge"]) {
                (Value::Object(_), Value::Null) => {
                    assert_eq!(metric["sum"]["isMonotonic"], true, "{name}");
                    // AGGREGATION_TEMPORALITY_CUMULATIVE.
                    assert_eq!(metric["sum"]["aggregationTemporality"], 2, "{name}");
                    &metric["sum"]
                }
                (Value::Null, Value::Object(_)) => &metric["gauge"],
                _ => panic!("{metric}"),
            };
            let no_points = Vec::new();
            for point in data["dataPoints"].as_array().unwrap_or(&no_points) {
                let no_labels = Vec::new();
                let labels = point["attributes"].as_array().unwrap_or(&no_labels);
                let labels = labels.iter().map(|one| {
                    let key = one["key"].as_str().expect("a key");
                    (key.to_owned(), attribute(point, key).unwrap_or_default())
                });
                let key = (name.to_owned(), labels.collect());
                let time = number(&point["timeUnixNano"]).expect("a time");
                let exact = point["timeUnixNano"]
                    .as_str()
                    .map_or(time as u64, |text| text.parse().expect("a time"));
                let value = number(&point["asDouble"]).expect("a value");
                all.entry(key).or_default().push((exact, value));
            }
        }
    }
    let is_sum = |name: &str| {
        requests.iter().any(|request| {
            let metrics = &request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
            let mut metrics = metrics.as_array().expect("metrics").iter();
            metrics.any(|metric| metric["name"] == name && metric["sum"].is_object())
        })
    };
    for ((name, labels), points) in &all {
        let in_order = points.is_sorted_by(|a, b| a.0 < b.0);
        assert!(in_order, "{name} {labels:?}: {points:?}");
        if is_sum(name) {
            let rises = points.is_sorted_by(|a, b| a.1 <= b.1);
            assert!(rises, "{name} {labels:?} falls: {points:?}");
        }
    }
    all
}

/// The points of the only series of a metric.
fn only<'a>(all: &'a BTreeMap<Series, Vec<(u64, f64)>>, name: &str) -> &'a [(u64, f64)] {
    all.get(&(name.to_owned(), Vec::new()))
        .expect("it is there")
}

/// What the findings cost, by the statuses alone: what each has more than in the status before.
fn lost_seconds(records: &[Record]) -> f64 {
    let (mut before, mut sum) = (BTreeMap::new(), 0.0);
    for record in records {
        let Record::Status(status) = record else {
            continue;
        };
        let mut now = BTreeMap::new();
        for one in &status.present {
            let was = before.get(&one.fingerprint).copied().unwrap_or(0.0);
            sum += if one.lost_seconds < was {
                one.lost_seconds
            } else {
                one.lost_seconds - was
            };
            now.insert(one.fingerprint.clone(), one.lost_seconds);
        }
        before = now;
    }
    sum
}

fn are_metrics(requests: &[Value], told: &[Record]) {
    let all = series(requests);
    let samples: Vec<(u64, f64)> = told
        .iter()
        .filter_map(|record| match record {
            Record::Status(status) => Some((status.time_unix_ns, status.samples as f64)),
            Record::Finding(_) => None,
        })
        .collect();
    assert_eq!(only(&all, "sunder_samples"), samples);
    let lost = all
        .iter()
        .filter(|((name, _), _)| name == "sunder_lost_cpu_seconds");
    let lost: f64 = lost.map(|(_, points)| points.last().expect("some").1).sum();
    let expected = lost_seconds(told);
    assert!((lost - expected).abs() < 1e-6, "{lost}, not {expected}");
    for event in [Happening::Appeared, Happening::Gone] {
        let label = ("event".to_owned(), event.word().to_owned());
        let of = &all[&("sunder_events".to_owned(), vec![label])];
        // The last status is told after all findings.
        let count = findings(told).iter().filter(|f| f.event == event).count();
        assert_eq!(of.last().map(|last| last.1), Some(count as f64));
    }
}

fn are_logs(requests: &[Value], told: &[Record]) {
    let found = findings(told);
    assert_eq!(requests.len(), found.len());
    let mut identities = BTreeSet::new();
    for (request, watched) in requests.iter().zip(found) {
        let logs = request["resourceLogs"][0]["scopeLogs"][0]["logRecords"].as_array();
        let [log] = &logs.expect("logs")[..] else {
            panic!("one record a request: {request}");
        };
        assert_eq!(log["timeUnixNano"], watched.time_unix_ns.to_string());
        let body = log["body"]["stringValue"].as_str().expect("text");
        let body: Record = serde_json::from_str(body).expect("a record");
        assert_eq!(body, Record::Finding(Box::new(watched.clone())));
        let expected = [
            ("sunder.fingerprint", watched.fingerprint.clone()),
            ("sunder.event", watched.event.word().to_owned()),
            ("process.pid", watched.origin.pid.to_string()),
            ("process.executable.name", watched.origin.program.clone()),
        ];
        for (key, value) in expected {
            assert_eq!(attribute(log, key), Some(value), "{key}");
        }
        identities.insert(attribute(log, "log.record.uid").expect("it has one"));
    }
    assert_eq!(identities.len(), requests.len());
}

fn are_profiles(requests: &[Value], told: &[Record]) {
    let (mut sum, mut count, mut identities) = (0.0, 0, BTreeSet::new());
    let found = findings(told);
    for request in requests {
        let tables = &request["dictionary"];
        let text = |index: &Value| {
            let index = index.as_u64().unwrap_or(0) as usize;
            tables["stringTable"][index].as_str().unwrap_or_default()
        };
        let profile = &request["resourceProfiles"][0]["scopeProfiles"][0]["profiles"][0];
        let kind = &profile["sampleType"];
        assert_eq!(text(&kind["typeStrindex"]), "false_sharing");
        assert_eq!(text(&kind["unitStrindex"]), "nanoseconds");
        identities.insert(profile["profileId"].to_string());
        for sample in profile["samples"].as_array().expect("samples") {
            sum += number(&sample["values"][0]).expect("a value");
            count += 1;
            let stack = sample["stackIndex"].as_u64().expect("a stack") as usize;
            let places = tables["stackTable"][stack]["locationIndices"].as_array();
            let frames = places.expect("frames").iter().map(|index| {
                let location = &tables["locationTable"][index.as_u64().expect("a number") as usize];
                let line = &location["lines"][0];
                let function = line["functionIndex"].as_u64().expect("a number") as usize;
                let function = &tables["functionTable"][function];
                (
                    text(&function["nameStrindex"]),
                    text(&function["filenameStrindex"]),
                )
            });
            let frames: Vec<_> = frames.collect();
            let [.., object, program] = &frames[..] else {
                panic!("{frames:?}");
            };
            assert_eq!(program.0, found[0].origin.program);
            assert!(
                found.iter().any(|f| f.finding.subject() == object.0),
                "{frames:?}"
            );
            assert!(frames[0].1.ends_with("thread_stats.c"), "{frames:?}");
        }
    }
    let expected = lost_seconds(told) * 1e9;
    assert!(
        (sum - expected).abs() <= f64::from(count),
        "{sum}, not {expected}"
    );
    assert_eq!(identities.len(), requests.len());
}

/// Watches a program with false sharing until that has cost something, with `collector`. Returns the records and
/// the words of the watch.
fn watched(collector: &Collector) -> Result<(Vec<Record>, String), String> {
    let shared = target("thread_stats", Variant::Shared);
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("sunder.prom");
    let mut command = sending(collector.port, &["--interval", "2s", "--budget", "100%"]);
    command.args(["--pid", &shared.id(), "--otlp-profiles", "--prom-file"]);
    let watch = Watch::start(command.arg(&page));
    let since = Instant::now();
    let costs = || {
        let page = std::fs::read_to_string(&page).unwrap_or_default();
        let mut lines = page
            .lines()
            .filter(|l| l.starts_with("sunder_lost_cpu_seconds_total{"));
        lines.any(|line| !line.ends_with(" 0"))
    };
    while !costs() && since.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let found = costs();
    drop(shared);
    std::thread::sleep(Duration::from_secs(2));
    let (told, said) = watch.end();
    if found {
        Ok((told, said))
    } else {
        Err(format!("not found: {said}"))
    }
}

fn files(folder: &Path, name: &str) -> PathBuf {
    let files = folder.join(name);
    std::fs::create_dir_all(&files).expect("ours");
    files
}

#[test]
fn the_collector_writes_what_the_watch_has_told() {
    let Some(program) = collector().filter(|_| can_watch()) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = 0;
    side_by_side("a collector's files", || {
        run += 1;
        let files = files(folder.path(), &format!("with-{run}"));
        let collector = Collector::anywhere(&program, &files, true);
        let watched = watched(&collector);
        collector.end();
        let (told, said) = watched?;
        are_metrics(&requests(&files, "metrics"), &told);
        are_logs(&requests(&files, "logs"), &told);
        are_profiles(&requests(&files, "profiles"), &told);
        assert_eq!(said, "");
        Ok(())
    });
}

#[test]
fn a_collector_without_profiles_switches_that_signal_off_alone() {
    let Some(program) = collector().filter(|_| can_watch()) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = 0;
    side_by_side("a collector without profiles", || {
        run += 1;
        let files = files(folder.path(), &format!("without-{run}"));
        let collector = Collector::anywhere(&program, &files, false);
        let watched = watched(&collector);
        collector.end();
        let (told, said) = watched?;
        let metrics = requests(&files, "metrics");
        are_metrics(&metrics, &told);
        are_logs(&requests(&files, "logs"), &told);
        assert_eq!(
            said.matches("answers 404: no profiles are taken").count(),
            1,
            "{said}"
        );
        let all = series(&metrics);
        let last = |name: &str, sink: &str| {
            let label = ("sink".to_owned(), sink.to_owned());
            all[&(name.to_owned(), vec![label])]
                .last()
                .map(|last| last.1)
        };
        assert_eq!(last("sunder_sink_off", "otlp-profiles"), Some(1.0));
        assert!(last("sunder_sink_lost_batches", "otlp-profiles") >= Some(1.0));
        for sink in ["otlp-metrics", "otlp-logs"] {
            assert_eq!(last("sunder_sink_off", sink), Some(0.0));
            assert_eq!(last("sunder_sink_lost_batches", sink), Some(0.0));
        }
        Ok(())
    });
}

/// The times of the metrics that a collector has written.
fn written(files: &Path) -> Vec<u64> {
    let requests = requests(files, "metrics");
    let mut times = Vec::new();
    for request in requests {
        // Each on its own: one that is sent again has the time of another.
        let of = series(&[request]);
        times.extend(only(&of, "sunder_samples").iter().map(|point| point.0));
    }
    times
}

#[test]
fn a_collector_that_is_killed_and_comes_back_gets_the_rest() {
    let Some(program) = collector().filter(|_| can_watch()) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let files = files(folder.path(), "files");
    let spool = folder.path().join("spool");
    let collector = Collector::anywhere(&program, &files, false);
    let port = collector.port;
    let mut command = sending(port, &["--interval", "500ms", "--pid", "1", "--spool"]);
    let watch = Watch::start(command.arg(&spool));
    wait_until("two statuses", || collector.so_far("metrics").len() >= 2);
    // Killed, and not asked to end.
    drop(collector);
    wait_until("three wait", || batches(&spool, "otlp-metrics") >= 3);
    let before = written(&files);
    let collector = Collector::start(&program, port, &files, false);
    wait_until("all has come", || batches(&spool, "otlp-metrics") == 0);
    let (told, _) = watch.end();
    collector.end();
    let came: BTreeSet<u64> = written(&files).into_iter().collect();
    let missing: Vec<_> = times(&told).difference(&came).copied().collect();
    println!("{} of {} are missing", missing.len(), times(&told).len());
    // The one that it had taken and not written within the last millisecond, if any.
    let least = before.last().copied().expect("some");
    assert!(
        missing.len() <= 1 && missing.iter().all(|&time| time > least),
        "{missing:?}"
    );
    assert_eq!(batches(&spool, "otlp-metrics"), 0);
}

#[test]
fn what_a_collector_with_a_full_disk_refuses_waits() {
    let Some(program) = collector().filter(|_| can_watch()) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let files = files(folder.path(), "files");
    let Some(mut command) = on_small_disk(&files, "32k") else {
        return;
    };
    let port = free_port();
    command.arg(&program);
    let full = Collector::start_by(&mut command, port, &files, false);
    let spool = folder.path().join("spool");
    let mut command = sending(port, &["--interval", "500ms", "--pid", "1", "--spool"]);
    let watch = Watch::start(command.arg(&spool));
    let within = PathBuf::from(format!("/proc/{}/root{}", full.id(), files.display()));
    // Batches wait in the spool also before the first one is sent.
    wait_until("some are written and three are refused", || {
        !written(&within).is_empty() && batches(&spool, "otlp-metrics") >= 3
    });
    let first = written(&within);
    drop(full);
    let with_room = Collector::start(&program, port, &files, false);
    wait_until("all has come", || batches(&spool, "otlp-metrics") == 0);
    let (told, said) = watch.end();
    with_room.end();
    nothing_is_lost(&told);
    assert_eq!(
        said.matches("what is to be sent waits").count(),
        1,
        "{said}"
    );
    let came: BTreeSet<u64> = first.into_iter().chain(written(&files)).collect();
    let missing: Vec<_> = times(&told).difference(&came).copied().collect();
    println!("{} of {} are missing", missing.len(), times(&told).len());
    // The one that filled the disk was taken, and written in part.
    assert!(missing.len() <= 1, "{missing:?} of {}", times(&told).len());
}
