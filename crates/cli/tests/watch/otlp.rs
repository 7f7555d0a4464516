//! Figures and findings by OTLP, to a small receiver.

use crate::receiver::{Receiver, Reply};
use crate::records::{can_watch, findings, target};
use crate::sending::{LOGS, METRICS, Watch, batches, points, said, sending, times, times_of, told};
use crate::support::installed::free_port;
use crate::support::targets::side_by_side;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use prost::Message;
use sunder_workloads::Variant;

#[test]
fn a_finding_arrives_as_a_log_with_its_identity() {
    if !can_watch() {
        return;
    }
    side_by_side("a finding by OTLP", || {
        let collector = Receiver::start(0, |_| Reply::of(200));
        let shared = target("thread_stats", Variant::Shared);
        let arguments = ["--once", "3s", "--pid", &shared.id()];
        let output = sending(collector.port, &arguments)
            .output()
            .expect("it starts");
        drop(shared);
        let told = told(&output);
        let found = findings(&told);
        let first = found.first().ok_or("not found")?;
        let logs = collector.log.taken(LOGS);
        assert_eq!(logs.len(), found.len());
        let request = ExportLogsServiceRequest::decode(&logs[0][..]).expect("logs");
        let log = &request.resource_logs[0].scope_logs[0].log_records[0];
        assert_eq!(log.time_unix_nano, first.time_unix_ns);
        let text = format!("{:?}", log.attributes);
        for wanted in [&first.fingerprint, &first.origin.program, "present"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        let body = format!("{:?}", log.body);
        assert!(body.contains("thread_stats"), "{body}");
        let lost = points(&collector.log.taken(METRICS), "sunder_lost_cpu_seconds");
        assert!(lost.iter().any(|point| point.1 > 0.0), "{lost:?}");
        Ok(())
    });
}

#[test]
fn a_collector_that_refuses_goes_away_and_comes_back_gets_everything() {
    if !can_watch() {
        return;
    }
    let refusals = std::sync::Mutex::new([503, 503, 429].into_iter());
    let collector = Receiver::start(0, move |_| Reply {
        retry_after: Some(1),
        ..Reply::of(refusals.lock().expect("ours").next().unwrap_or(200))
    });
    let port = collector.port;
    let arguments = ["--interval", "500ms", "--pid", "1"];
    let watch = Watch::start(&mut sending(port, &arguments));
    collector.log.wait_for(METRICS, 2);
    let before = collector.log.clone();
    drop(collector);
    std::thread::sleep(std::time::Duration::from_secs(2));
    let refusals = std::sync::Mutex::new([502].into_iter());
    let collector = Receiver::start(port, move |_| {
        Reply::of(refusals.lock().expect("ours").next().unwrap_or(200))
    });
    collector.log.wait_for(METRICS, 3);
    let (told, _) = watch.end();
    let came = [before.taken(METRICS), collector.log.taken(METRICS)].concat();
    assert_eq!(times_of(&came), times(&told));
    let samples = points(&came, "sunder_samples");
    assert!(samples.is_sorted_by(|a, b| a.1 <= b.1), "{samples:?}");
}

#[test]
fn what_waits_in_the_spool_is_sent_by_the_next_watch() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let spool = folder.path().to_str().expect("text");
    let port = free_port();
    let arguments = ["--once", "500ms", "--pid", "1", "--spool", spool];
    let output = sending(port, &arguments).output().expect("it starts");
    let first = told(&output);
    let said = said(&output);
    assert!(
        said.contains("the next watch with this spool sends"),
        "{said}"
    );
    assert_eq!(batches(folder.path(), "otlp-metrics"), times(&first).len());
    let collector = Receiver::start(port, |_| Reply::of(200));
    let second = sending(port, &arguments).output().expect("it starts");
    let both = [first, told(&second)].concat();
    assert_eq!(times_of(&collector.log.taken(METRICS)), times(&both));
    assert_eq!(batches(folder.path(), "otlp-metrics"), 0);
}
