//! Files and folders as they lie on real machines: rotated, packed, cut off, damaged, and with things in
//! them that must not be opened.

use flate2::Compression;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, metric::Data, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use proptest::prelude::*;
use prost::Message;
use std::io::Write;
use std::path::{Path, PathBuf};
use sunder_findings::{Happening, examples as findings};
use sunder_fleet::examples::{SECOND, START, Told, finding, fleet, lines};
use sunder_fleet::{Fleet, Reading};
use sunder_watched::read;

fn text(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("a folder of ours");
    path
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(bytes).expect("memory takes it");
    packer.finish().expect("memory takes it")
}

fn of(path: &Path) -> Fleet {
    read(&[path.to_owned()]).expect("it has records")
}

/// The summary without what counts readings.
fn facts(mut fleet: Fleet) -> Fleet {
    fleet.reading = Reading::default();
    fleet
}

#[test]
fn a_folder_of_rotated_packed_and_repeated_files_is_one_fleet() {
    let folder = tempfile::tempdir().expect("a folder");
    let all = lines();
    let (old, new) = all.split_at(all.len() / 2);
    std::fs::create_dir(folder.path().join("web1")).expect("ours");
    write(folder.path(), "web1/findings.jsonl", text(new));
    write(folder.path(), "web1/findings.jsonl.1", text(old));
    // Packed in two parts, as `cat a.gz b.gz` makes them.
    let parts = [packed(text(old).as_bytes()), packed(text(new).as_bytes())].concat();
    write(folder.path(), "copy.gz", parts);
    let read = of(folder.path());
    assert_eq!(read.reading.files, 3);
    assert_eq!(read.reading.records, 2 * all.len() as u64);
    assert_eq!(facts(read), facts(fleet()));
}

#[test]
fn what_is_damaged_or_cut_off_is_counted_and_the_rest_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let all = lines();
    let mut bytes = text(&all)
        .replacen("\"version\":1", "\"version\":9", 1)
        .into_bytes();
    bytes.extend(b"\n{\"record\":\"finding\"}\nno record\n\xff\xfe\n");
    bytes.extend(&all[0].as_bytes()[..100]);
    let file = write(folder.path(), "a", &bytes);
    let reading = of(&file).reading;
    assert_eq!((reading.damaged, reading.newer, reading.cut_off), (3, 1, 1));
    assert_eq!(reading.records, all.len() as u64 - 1);
    // A packed file that was cut off.
    let whole = packed(text(&all).as_bytes());
    write(folder.path(), "b.gz", &whole[..whole.len() * 3 / 4]);
    let reading = of(folder.path()).reading;
    assert_eq!((reading.unread, reading.unread_names.len()), (1, 1));
    assert!(
        reading.records > all.len() as u64,
        "the first part was read"
    );
}

#[test]
fn links_and_pipes_in_a_folder_are_not_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let elsewhere = tempfile::tempdir().expect("a folder");
    let file = write(elsewhere.path(), "records", text(&lines()));
    write(folder.path(), "own", text(&lines()[..1]));
    std::os::unix::fs::symlink(&file, folder.path().join("link")).expect("ours");
    let made = std::process::Command::new("mkfifo")
        .arg(folder.path().join("pipe"))
        .status();
    assert!(made.expect("there is mkfifo").success());
    let reading = of(folder.path()).reading;
    assert_eq!(
        (reading.files, reading.records, reading.passed_over),
        (1, 1, 2)
    );
    // A link that is named is meant.
    assert_eq!(facts(of(&folder.path().join("link"))), facts(fleet()));
}

#[test]
fn without_a_record_the_reader_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in [("empty", ""), ("others", "{\"a\":1}\n"), ("blank", "\n\n")] {
        let path = write(folder.path(), name, bytes);
        let error = read(&[path]).expect_err("no record");
        assert!(
            error.to_string().contains("no record of `sunder watch`"),
            "{error}"
        );
    }
    assert!(read(&[folder.path().join("not there")]).is_err());
}

fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value.into())),
        }),
        ..KeyValue::default()
    }
}

fn logs(bodies: &[String]) -> Vec<u8> {
    let record = |body: &String| LogRecord {
        body: Some(AnyValue {
            value: Some(Value::StringValue(body.clone())),
        }),
        ..LogRecord::default()
    };
    let scope = ScopeLogs {
        log_records: bodies.iter().map(record).collect(),
        ..ScopeLogs::default()
    };
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            scope_logs: vec![scope],
            ..ResourceLogs::default()
        }],
    };
    request.encode_to_vec()
}

/// Metrics of the watch that began at [`START`], as `sunder watch --otlp` sends them.
fn metrics(host: &str, seconds: u64, lost: f64) -> Vec<u8> {
    let sum = |name: &str, attributes: Vec<KeyValue>, value: f64| Metric {
        name: name.into(),
        data: Some(Data::Sum(Sum {
            data_points: vec![NumberDataPoint {
                attributes,
                start_time_unix_nano: START,
                time_unix_nano: START + seconds * SECOND,
                value: Some(number_data_point::Value::AsDouble(value)),
                ..NumberDataPoint::default()
            }],
            is_monotonic: true,
            ..Sum::default()
        })),
        ..Metric::default()
    };
    let labels = vec![
        attribute("program", "server"),
        attribute("object", &findings::global_array().subject()),
        attribute("container", ""),
    ];
    let scope = ScopeMetrics {
        metrics: vec![
            sum("sunder_samples", vec![], 500.0),
            sum("sunder_looks", vec![], 3.0),
            sum("sunder_lost_cpu_seconds", labels, lost),
        ],
        ..ScopeMetrics::default()
    };
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: vec![attribute("host.name", host)],
                ..Resource::default()
            }),
            scope_metrics: vec![scope],
            ..ResourceMetrics::default()
        }],
    };
    request.encode_to_vec()
}

#[test]
fn a_spool_tells_findings_and_what_they_cost() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["otlp-logs", "otlp-metrics"] {
        std::fs::create_dir(folder.path().join(name)).expect("ours");
    }
    let line = finding(
        &Told::default(),
        Happening::Appeared,
        10.0,
        &findings::global_array(),
    );
    write(
        folder.path(),
        "otlp-logs/00000000000000000003.batch",
        logs(&[line.clone(), "{}".into()]),
    );
    for (number, lost) in [(1, 2.0), (2, 5.0)] {
        let name = format!("otlp-metrics/{number:020}.batch");
        write(folder.path(), &name, metrics("web1", number * 60, lost));
    }
    let read = of(folder.path());
    assert_eq!((read.reading.records, read.reading.damaged), (3, 1));
    assert!(
        (read.lost_seconds - 5.0).abs() < 1e-9,
        "{}",
        read.lost_seconds
    );
    assert_eq!((read.objects.len(), read.hosts.len()), (1, 1));
    assert_eq!((read.hosts[0].samples, read.hosts[0].looks), (500, 3));
    // Beside the file of the same watch.
    write(folder.path(), "findings.jsonl", format!("\n{line}\n"));
    let both = of(folder.path());
    assert_eq!(both.reading.records, 4);
    assert_eq!(facts(both), facts(read));
}

/// A file with bytes changed, taken out and doubled at some places.
fn damaged(mut bytes: Vec<u8>, places: &[(prop::sample::Index, u8, u8)]) -> Vec<u8> {
    for (at, how, with) in places {
        if bytes.is_empty() {
            break;
        }
        let at = at.index(bytes.len());
        match how % 4 {
            0 => bytes[at] = *with,
            1 => drop(bytes.drain(at..(at + usize::from(*with)).min(bytes.len()))),
            2 => bytes.truncate(at),
            _ => {
                let part = bytes[at..(at + usize::from(*with)).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
    bytes
}

fn place() -> impl Strategy<Value = (prop::sample::Index, u8, u8)> {
    (any::<prop::sample::Index>(), any::<u8>(), any::<u8>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every line that is not blank is a record, or is counted as none. What comes of it can be shown.
    #[test]
    fn no_damage_is_fatal_or_goes_uncounted(places in prop::collection::vec(place(), 0..12)) {
        let folder = tempfile::tempdir().expect("a folder");
        let bytes = damaged(text(&lines()).into_bytes(), &places);
        // A file of another kind is told by its first bytes.
        prop_assume!(!bytes.starts_with(&[0x1f, 0x8b]));
        write(folder.path(), "good", text(&lines()[..1]));
        write(folder.path(), "bad", &bytes);
        let fleet = of(folder.path());
        let blank = |line: &&[u8]| !line.trim_ascii().is_empty();
        let wanted = bytes.split(|&byte| byte == b'\n').filter(blank).count() as u64;
        let reading = &fleet.reading;
        let counted = reading.records - 1 + reading.damaged + reading.newer + reading.cut_off;
        prop_assert_eq!(counted, wanted);
        prop_assert!(fleet.lost_seconds.is_finite() && fleet.lost_seconds >= 0.0);
        prop_assert!(serde_json::to_string(&fleet).is_ok());
    }

    #[test]
    fn damaged_packed_files_and_batches_are_survived(
        places in prop::collection::vec(place(), 1..8),
        kind in 0..3,
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let bytes = match kind {
            0 => packed(text(&lines()).as_bytes()),
            1 => logs(&lines()),
            _ => metrics("web1", 60, 3.0),
        };
        write(folder.path(), "good", text(&lines()[..1]));
        write(folder.path(), "bad", damaged(bytes, &places));
        let fleet = of(folder.path());
        prop_assert!(fleet.reading.records >= 1);
        prop_assert!(fleet.lost_seconds.is_finite() && fleet.lost_seconds >= 0.0);
    }
}
