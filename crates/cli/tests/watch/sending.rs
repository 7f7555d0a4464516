//! A watch that sends by OTLP, and what it sent.

use crate::records::records;
use crate::support::plain_sunder;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use prost::Message;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use sunder_findings::Record;

/// Paths of the signals.
pub const METRICS: &str = "/v1/metrics";
pub const LOGS: &str = "/v1/logs";
pub const PROFILES: &str = "/v1development/profiles";

/// A watch that sends to the receiver at this port, and writes its records to standard output.
pub fn sending(port: u16, arguments: &[&str]) -> Command {
    sending_to(&format!("http://127.0.0.1:{port}"), arguments)
}

/// The same, to this address.
pub fn sending_to(endpoint: &str, arguments: &[&str]) -> Command {
    let mut command = plain_sunder();
    command.args(["watch", "--quiet", "--otlp", "--host", "here"]);
    command.args(["--json", "/dev/stdout"]).args(arguments);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
    for proxy in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(proxy).env_remove(proxy.to_uppercase());
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A watch that goes on. It is killed when this value is dropped, at the latest with the test.
pub struct Watch(Option<Child>);

impl Watch {
    /// Starts the command.
    pub fn start(command: &mut Command) -> Self {
        Self(Some(command.spawn().expect("it starts")))
    }

    /// The process.
    pub fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("it has not ended")
    }

    /// Sends it a signal.
    pub fn signal(&mut self, signal: i32) {
        // SAFETY: takes two integers; the child has not been waited for.
        assert_eq!(unsafe { libc::kill(self.child().id() as i32, signal) }, 0);
    }

    /// Ends it by SIGTERM; it has to end well. What it has left on standard output and error.
    pub fn output(mut self) -> Output {
        self.signal(libc::SIGTERM);
        let child = self.0.take().expect("it has not ended");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        output
    }

    /// The same: its records and its words.
    pub fn end(self) -> (Vec<Record>, String) {
        let output = self.output();
        (told(&output), said(&output))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Its records, of which none was dropped.
pub fn told(output: &Output) -> Vec<Record> {
    assert!(output.status.success(), "{output:?}");
    let records = records(&output.stdout);
    nothing_is_lost(&records);
    records
}

/// Whatever receivers do, no record waits for them so long that it is dropped, and the kernel's records are
/// read in time.
pub fn nothing_is_lost(records: &[Record]) {
    for record in records {
        if let Record::Status(status) = record {
            assert_eq!((status.records_dropped, status.lost_records), (0, 0));
        }
    }
}

/// Its words.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The times of the status records.
pub fn times(records: &[Record]) -> BTreeSet<u64> {
    let of = |record: &Record| match record {
        Record::Status(status) => Some(status.time_unix_ns),
        Record::Finding(_) => None,
    };
    records.iter().filter_map(of).collect()
}

/// Time and value of each point of a figure in these requests, in the order in which they came.
pub fn points(batches: &[Vec<u8>], name: &str) -> Vec<(u64, f64)> {
    let mut points = Vec::new();
    for batch in batches {
        let request = ExportMetricsServiceRequest::decode(&batch[..]).expect("metrics");
        let resource = &request.resource_metrics[0];
        let attributes = &resource.resource.as_ref().expect("a resource").attributes;
        assert!(attributes.iter().any(|a| a.key == "host.name"));
        for metric in &resource.scope_metrics[0].metrics {
            if metric.name != name {
                continue;
            }
            let of = match metric.data.as_ref().expect("data") {
                Data::Sum(sum) => {
                    assert!(sum.is_monotonic);
                    &sum.data_points
                }
                Data::Gauge(gauge) => &gauge.data_points,
                other => panic!("{other:?}"),
            };
            for point in of {
                let Some(Value::AsDouble(value)) = point.value else {
                    panic!("{point:?}");
                };
                points.push((point.time_unix_nano, value));
            }
        }
    }
    points
}

/// The times at which the metrics in these requests were made.
pub fn times_of(batches: &[Vec<u8>]) -> BTreeSet<u64> {
    let points = points(batches, "sunder_samples");
    points.into_iter().map(|(time, _)| time).collect()
}

/// How many batches a spool has of a signal.
pub fn batches(spool: &Path, signal: &str) -> usize {
    std::fs::read_dir(spool.join(signal)).map_or(0, Iterator::count)
}
