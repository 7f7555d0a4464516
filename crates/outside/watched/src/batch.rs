//! A batch of OTLP as it waits in a spool: log records, whose bodies are the records of findings, or
//! metrics, which are the figures of a status. The two tell themselves apart: none can be read as the
//! other.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::metrics::v1::{
    Metric, NumberDataPoint, metric::Data, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use sunder_findings::WatchStatus;
use sunder_fleet::{Figures, Gather, Labelled};

/// The largest batch. Ours have a finding or some thousand figures; a message may take a hundred times
/// as much memory as its bytes.
pub const LARGEST: u64 = 4 << 20;
/// The first byte of both requests: field 1, which is a message (Protocol Buffers, "Message Structure").
const HEAD: u8 = 0x0a;

/// Whether a file that begins with this byte may be a batch. In text the same byte is a newline.
pub const fn may_begin(byte: u8) -> bool {
    byte == HEAD
}

/// Takes a batch. Returns how many of its parts are damaged; `None` if it is no batch.
pub fn read(bytes: &[u8], gather: &mut Gather) -> Option<u64> {
    if bytes.len() as u64 > LARGEST {
        return None;
    }
    let logs = ExportLogsServiceRequest::decode(bytes).ok();
    if let Some(damaged) = logs.and_then(|logs| take_logs(&logs, gather)) {
        return Some(damaged);
    }
    let metrics = ExportMetricsServiceRequest::decode(bytes).ok();
    metrics.and_then(|metrics| take_metrics(&metrics, gather))
}

/// The records in bodies; `None` if there are none.
fn take_logs(logs: &ExportLogsServiceRequest, gather: &mut Gather) -> Option<u64> {
    let scopes = logs.resource_logs.iter().flat_map(|of| &of.scope_logs);
    let (mut any, mut damaged) = (false, 0);
    for record in scopes.flat_map(|of| &of.log_records) {
        any = true;
        let body = record.body.as_ref().and_then(|body| body.value.as_ref());
        let taken = match body {
            Some(Value::StringValue(body)) => gather.line(body.as_bytes()).is_ok(),
            _ => false,
        };
        damaged += u64::from(!taken);
    }
    any.then_some(damaged)
}

/// The figures of each machine; `None` if there are none.
fn take_metrics(all: &ExportMetricsServiceRequest, gather: &mut Gather) -> Option<u64> {
    let (mut any, mut damaged) = (false, 0);
    for of in &all.resource_metrics {
        let metrics = of.scope_metrics.iter().flat_map(|scope| &scope.metrics);
        let metrics: Vec<&Metric> = metrics.collect();
        any |= !metrics.is_empty();
        let taken = figures(of.resource.as_ref(), &metrics)
            .is_some_and(|figures| gather.figures(&figures).is_ok());
        damaged += u64::from(!taken);
    }
    any.then_some(damaged)
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

fn points(metric: &Metric) -> &[NumberDataPoint] {
    match &metric.data {
        Some(Data::Sum(sum)) => &sum.data_points,
        Some(Data::Gauge(gauge)) => &gauge.data_points,
        _ => &[],
    }
}

fn value(point: &NumberDataPoint) -> f64 {
    match point.value {
        Some(number_data_point::Value::AsDouble(value)) => value,
        Some(number_data_point::Value::AsInt(value)) => value as f64,
        None => f64::NAN,
    }
}

/// What the metrics of one watch say; `None` if they are not of a watch.
fn figures(resource: Option<&Resource>, metrics: &[&Metric]) -> Option<Figures> {
    let host = text(&resource?.attributes, "host.name")?;
    let of = |name: &str| metrics.iter().find(|metric| metric.name == name);
    let first = of("sunder_samples").and_then(|metric| points(metric).first())?;
    // Numbers of others: negative ones and such that are none become 0.
    let count = |name: &str| {
        let point = of(name).and_then(|metric| points(metric).first());
        point.map_or(0.0, value)
    };
    let labelled = |point: &NumberDataPoint| {
        let label = |key: &str| text(&point.attributes, key).unwrap_or_default().to_owned();
        Labelled {
            program: label("program"),
            object: label("object"),
            container: label("container"),
            value: value(point),
        }
    };
    let lost = of("sunder_lost_cpu_seconds");
    Some(Figures {
        host: host.to_owned(),
        begun_unix_ns: first.start_time_unix_nano,
        time_unix_ns: first.time_unix_nano,
        status: WatchStatus {
            samples: count("sunder_samples") as u64,
            samples_looked_at: count("sunder_samples_looked_at") as u64,
            samples_unattributed: count("sunder_samples_unattributed"),
            lost_records: count("sunder_lost_records") as u64,
            looks: count("sunder_looks") as u64,
            looks_failed: count("sunder_looks_failed") as u64,
            looks_by_symbols: count("sunder_looks_by_symbols") as u64,
            own_cpu_seconds: count("sunder_own_cpu_seconds"),
            interrupt_seconds: count("sunder_interrupt_cpu_seconds"),
            records_dropped: count("sunder_records_dropped") as u64,
            ..WatchStatus::default()
        },
        lost_seconds: lost
            .map_or(&[][..], |lost| points(lost))
            .iter()
            .map(labelled)
            .collect(),
    })
}
