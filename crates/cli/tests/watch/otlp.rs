//! Figures and findings by OTLP, to a small server that refuses, goes away and comes back.

use crate::records::{can_watch, findings, records, target};
use crate::support::plain_sunder;
use crate::support::targets::side_by_side;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use prost::Message;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use sunder_findings::Record;
use sunder_workloads::Variant;

/// Path and body of each request that a collector has taken.
type Taken = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A collector. Dropping it closes its port.
struct Collector {
    port: u16,
    taken: Taken,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    /// One at `port`, or at any if that is 0, which answers the first requests with these statuses.
    fn start(port: u16, first: &'static [u16]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port");
        let port = listener.local_addr().expect("it has one").port();
        let taken = Taken::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (of_thread, ends) = (Arc::clone(&taken), Arc::clone(&stop));
        let mut first = first.iter().copied();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let mut stream = stream.expect("a connection");
                if let Some((path, body)) = request(&mut stream) {
                    let status = first.next().unwrap_or(200);
                    if status == 200 {
                        of_thread.lock().expect("ours").push((path, body));
                    }
                    let head =
                        format!("HTTP/1.1 {status} x\r\nRetry-After: 1\r\nConnection: close\r\n");
                    let _ = write!(stream, "{head}Content-Length: 0\r\n\r\n");
                }
            }
        });
        Self {
            port,
            taken,
            stop,
            thread: Some(thread),
        }
    }

    fn of(&self, path: &str) -> Vec<Vec<u8>> {
        let taken = self.taken.lock().expect("ours");
        let of = taken.iter().filter(|(p, _)| p == path);
        of.map(|(_, body)| body.clone()).collect()
    }

    /// Ends it; what it has taken of this path.
    fn end(self, path: &str) -> Vec<Vec<u8>> {
        let taken = Arc::clone(&self.taken);
        drop(self);
        let taken = taken.lock().expect("ours");
        let of = taken.iter().filter(|(p, _)| p == path);
        of.map(|(_, body)| body.clone()).collect()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A request's path and body.
fn request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .ok()?;
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut chunk).ok().filter(|&count| count > 0)?;
        bytes.extend_from_slice(&chunk[..count]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let field = |name: &str| {
            head.lines()
                .find_map(|l| l.strip_prefix(name))
                .map(str::trim)
        };
        let length: usize = field("content-length:")?.parse().ok()?;
        if bytes.len() < end + 4 + length {
            continue;
        }
        assert_eq!(field("content-type:"), Some("application/x-protobuf"));
        assert_eq!(field("x-tenant:"), Some("a b"), "{head}");
        let path = head.split(' ').nth(1)?.to_owned();
        return Some((path, bytes[end + 4..end + 4 + length].to_vec()));
    }
}

fn watching(port: u16, arguments: &[&str]) -> Command {
    let mut command = plain_sunder();
    command.args([
        "watch",
        "--quiet",
        "--otlp",
        "--host",
        "here",
        "--json",
        "/dev/stdout",
    ]);
    command.args(arguments);
    command.env(
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        format!("http://127.0.0.1:{port}"),
    );
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "X-Tenant=a%20b");
    for proxy in [
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ] {
        command.env_remove(proxy);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn told(output: &Output) -> Vec<Record> {
    assert!(output.status.success(), "{output:?}");
    records(&output.stdout)
}

/// The times of the status records.
fn times(records: &[Record]) -> BTreeSet<u64> {
    let of = |record: &Record| match record {
        Record::Status(status) => Some(status.time_unix_ns),
        Record::Finding(_) => None,
    };
    records.iter().filter_map(of).collect()
}

/// The times of the metrics that came, and the last value of a sum.
fn metrics(batches: &[Vec<u8>], name: &str) -> (BTreeSet<u64>, Option<f64>) {
    use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
    let (mut times, mut last) = (BTreeSet::new(), None);
    for batch in batches {
        let request = ExportMetricsServiceRequest::decode(&batch[..]).expect("metrics");
        let resource = &request.resource_metrics[0];
        let attributes = &resource.resource.as_ref().expect("a resource").attributes;
        assert!(attributes.iter().any(|a| a.key == "host.name"));
        for metric in &resource.scope_metrics[0].metrics {
            if let Some(Data::Sum(sum)) = metric.data.as_ref().filter(|_| metric.name == name) {
                assert!(sum.is_monotonic);
                for point in &sum.data_points {
                    times.insert(point.time_unix_nano);
                    if let Some(Value::AsDouble(value)) = point.value {
                        assert!(last.is_none_or(|last| last <= value), "it falls");
                        last = Some(value);
                    }
                }
            }
        }
    }
    (times, last)
}

#[test]
fn a_finding_arrives_as_a_log_with_its_identity() {
    if !can_watch() {
        return;
    }
    side_by_side("a finding by OTLP", || {
        let collector = Collector::start(0, &[]);
        let shared = target("thread_stats", Variant::Shared);
        let arguments = ["--once", "3s", "--pid", &shared.id()];
        let output = watching(collector.port, &arguments)
            .output()
            .expect("it starts");
        drop(shared);
        let told = told(&output);
        let found = findings(&told);
        let first = found.first().ok_or("not found")?;
        let logs = collector.of("/v1/logs");
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
        let (_, lost) = metrics(&collector.of("/v1/metrics"), "sunder_lost_cpu_seconds");
        assert!(lost.is_some_and(|lost| lost > 0.0), "{lost:?}");
        Ok(())
    });
}

#[test]
fn a_collector_that_refuses_goes_away_and_comes_back_gets_everything() {
    if !can_watch() {
        return;
    }
    let collector = Collector::start(0, &[503, 503, 429]);
    let port = collector.port;
    let arguments = ["--interval", "500ms", "--pid", "1"];
    let watch = watching(port, &arguments).spawn().expect("it starts");
    let wait = || {
        let since = std::time::Instant::now();
        while collector.of("/v1/metrics").is_empty() {
            assert!(since.elapsed() < Duration::from_secs(60), "nothing came");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait();
    std::thread::sleep(Duration::from_secs(1));
    let before = collector.end("/v1/metrics");
    std::thread::sleep(Duration::from_secs(2));
    let collector = Collector::start(port, &[502]);
    let since = std::time::Instant::now();
    while collector.of("/v1/metrics").len() < 3 {
        assert!(since.elapsed() < Duration::from_secs(60), "nothing came");
        std::thread::sleep(Duration::from_millis(20));
    }
    // SAFETY: takes two integers; the child has not been waited for.
    unsafe { libc::kill(watch.id() as i32, libc::SIGTERM) };
    let told = told(&watch.wait_with_output().expect("it ends"));
    let came = [before, collector.of("/v1/metrics")].concat();
    let (came, samples) = metrics(&came, "sunder_samples");
    assert_eq!(came, times(&told));
    assert!(samples.is_some());
}

fn batches(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("otlp-metrics")).map_or(0, Iterator::count)
}

#[test]
fn what_waits_in_the_spool_is_sent_by_the_next_watch() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let spool = folder.path().to_str().expect("text");
    let port = crate::support::installed::free_port();
    let arguments = ["--once", "500ms", "--pid", "1", "--spool", spool];
    let first = watching(port, &arguments).output().expect("it starts");
    let first = told(&first);
    assert_eq!(batches(folder.path()), times(&first).len());
    let collector = Collector::start(port, &[]);
    let second = watching(port, &arguments).output().expect("it starts");
    let both = [first, told(&second)].concat();
    let mut came = BTreeSet::new();
    for batch in collector.of("/v1/metrics") {
        came.extend(metrics(&[batch], "sunder_samples").0);
    }
    assert_eq!(came, times(&both));
    assert_eq!(batches(folder.path()), 0);
}
