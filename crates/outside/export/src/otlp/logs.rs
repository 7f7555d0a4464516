//! Records of findings as log records of OTLP. Pure.

use super::values::{any, attribute, scope, text};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use sunder_findings::{Happening, Record, Watched};

/// The same for a record that is sent again because its receiver took it and could not say so
/// (`log.record.uid` of the semantic conventions).
fn identity(watched: &Watched) -> String {
    let origin = &watched.origin;
    format!(
        "{}-{}-{}-{}-{}",
        origin.host,
        origin.pid,
        watched.fingerprint,
        watched.event.word(),
        watched.time_unix_ns
    )
}

/// The request that sends a record.
pub fn logs_request(resource: &Resource, watched: &Watched) -> ExportLogsServiceRequest {
    let origin = &watched.origin;
    let severity = match watched.event {
        Happening::Gone => SeverityNumber::Info,
        _ => SeverityNumber::Warn,
    };
    let mut attributes = vec![
        text("event.name", "sunder.finding"),
        text("sunder.event", watched.event.word()),
        text("sunder.fingerprint", &watched.fingerprint),
        text("sunder.object", &watched.finding.subject()),
        attribute("process.pid", Value::IntValue(origin.pid.into())),
        text("process.executable.name", &origin.program),
        attribute(
            "sunder.cost_percent",
            Value::DoubleValue(watched.finding.cost_percent),
        ),
        text("log.record.uid", &identity(watched)),
    ];
    let more = [
        ("container.id", &origin.container),
        ("process.executable.build_id.gnu", &origin.build_id),
        ("sunder.program.version", &origin.version),
        ("process.linux.cgroup", &origin.cgroup),
        ("systemd.unit", &origin.unit),
    ];
    let more = more
        .iter()
        .filter_map(|(key, value)| Some(text(key, value.as_ref()?)));
    attributes.extend(more);
    // The record as it is in files.
    let body = serde_json::to_string(&Record::Finding(Box::new(watched.clone())));
    let record = LogRecord {
        time_unix_nano: watched.time_unix_ns,
        observed_time_unix_nano: watched.time_unix_ns,
        severity_number: severity.into(),
        body: body.ok().map(|body| any(Value::StringValue(body))),
        attributes,
        ..LogRecord::default()
    };
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(resource.clone()),
            scope_logs: vec![ScopeLogs {
                scope: Some(scope()),
                log_records: vec![record],
                schema_url: String::new(),
            }],
            schema_url: String::new(),
        }],
    }
}
