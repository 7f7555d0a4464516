//! OTLP over HTTP: figures as metrics, findings as logs, in binary Protobuf. Where to, and with which headers
//! and certificates, the usual variables say (`OTEL_EXPORTER_OTLP_*`).

use crate::figures::{Figure, Kind, figures};
use crate::metrics::Metrics;
use crate::sender::{Answer, Sender};
use crate::spool::Spool;
use anyhow::{Context, Result, bail};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
    metric::Data, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use percent_encoding::percent_decode_str;
use prost::Message;
use std::path::{Path, PathBuf};
use std::time::Duration;
use sunder_findings::{Happening, Record, Watched};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// Where a signal goes if no variable says it.
const USUAL: &str = "http://localhost:4318";
/// How long one request may take if no variable says it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where and how one signal is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The whole address.
    pub url: String,
    /// Headers beside the usual ones.
    pub headers: Vec<(String, String)>,
    /// How long a request may take.
    pub timeout: Duration,
    /// A file of certificates to be trusted, in place of the usual ones.
    pub certificates: Option<PathBuf>,
}

/// The two signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The figures.
    Metrics,
    /// The findings.
    Logs,
}

impl Signal {
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Metrics => ("METRICS", "metrics"),
            Self::Logs => ("LOGS", "logs"),
        }
    }
}

impl Target {
    /// What the variables say of a signal; `variable` looks one up.
    ///
    /// # Errors
    /// If a variable can't be followed.
    pub fn of(signal: Signal, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let (upper, path) = signal.names();
        let of_signal = |name: &str| {
            let own = variable(&format!("OTEL_EXPORTER_OTLP_{upper}_{name}"));
            own.filter(|value| !value.is_empty())
        };
        let common = |name: &str| {
            let common = variable(&format!("OTEL_EXPORTER_OTLP_{name}"));
            common.filter(|value| !value.is_empty())
        };
        let either = |name: &str| of_signal(name).or_else(|| common(name));
        if let Some(other) = either("PROTOCOL").filter(|protocol| protocol != "http/protobuf") {
            bail!("OTEL_EXPORTER_OTLP_PROTOCOL is {other}: only http/protobuf is spoken here");
        }
        let url = of_signal("ENDPOINT").unwrap_or_else(|| {
            let base = common("ENDPOINT").unwrap_or_else(|| USUAL.into());
            format!("{}/v1/{path}", base.trim_end_matches('/'))
        });
        if !url.starts_with("http://") && !url.starts_with("https://") {
            bail!("{url} is no address of HTTP");
        }
        let timeout = match either("TIMEOUT") {
            Some(text) => {
                let milliseconds = text.parse();
                let wrong = || format!("OTEL_EXPORTER_OTLP_TIMEOUT is {text}: no milliseconds");
                Duration::from_millis(milliseconds.with_context(wrong)?)
            }
            None => TIMEOUT,
        };
        Ok(Self {
            url,
            headers: headers(&either("HEADERS").unwrap_or_default())?,
            timeout,
            certificates: either("CERTIFICATE").map(PathBuf::from),
        })
    }

    fn agent(&self) -> Result<ureq::Agent> {
        let mut config = ureq::Agent::config_builder()
            .timeout_global(Some(self.timeout))
            .http_status_as_error(false);
        if let Some(file) = &self.certificates {
            let roots = certificates(file)?;
            config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        Ok(config.build().into())
    }
}

/// `key=value,key=value`, the values percent-encoded.
fn headers(text: &str) -> Result<Vec<(String, String)>> {
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let parsed = parts.map(|part| {
        let (key, value) = part.split_once('=').context("a header has no =")?;
        let value = percent_decode_str(value.trim()).decode_utf8();
        Ok((key.trim().to_owned(), value?.into_owned()))
    });
    // Not the value, which may be secret.
    parsed
        .collect::<Result<_>>()
        .context("OTEL_EXPORTER_OTLP_HEADERS can't be read")
}

fn certificates(file: &Path) -> Result<RootCerts> {
    let wrong = || format!("cannot read the certificates in {}", file.display());
    let text = std::fs::read(file).with_context(wrong)?;
    let mut all = Vec::new();
    for item in parse_pem(&text) {
        if let PemItem::Certificate(certificate) = item.with_context(wrong)? {
            all.push(certificate);
        }
    }
    if all.is_empty() {
        bail!("there are no certificates in {}", file.display());
    }
    Ok(RootCerts::from(all))
}

/// Sends both signals.
#[derive(Debug)]
pub struct Otlp {
    metrics: Sender,
    logs: Sender,
    resource: Resource,
    since_unix_ns: u64,
}

impl Otlp {
    /// Begins to send what waits in the two spools and what will be put there.
    ///
    /// # Errors
    /// If a variable can't be followed, or there can be no further threads.
    pub fn start(
        host: &str,
        since_unix_ns: u64,
        variable: &dyn Fn(&str) -> Option<String>,
        spool: &dyn Fn(&str) -> Result<Spool>,
    ) -> Result<Self> {
        let begin = |signal: Signal| {
            let target = Target::of(signal, variable)?;
            let agent = target.agent()?;
            let spool = spool(&format!("otlp-{}", signal.names().1))?;
            Ok::<_, anyhow::Error>(Sender::start(spool, move |batch| {
                send(&agent, &target, batch)
            })?)
        };
        let service = variable("OTEL_SERVICE_NAME").unwrap_or_else(|| "sunder".into());
        Ok(Self {
            metrics: begin(Signal::Metrics)?,
            logs: begin(Signal::Logs)?,
            resource: Resource {
                attributes: vec![text("service.name", &service), text("host.name", host)],
                ..Resource::default()
            },
            since_unix_ns,
        })
    }

    /// Takes a record, after `metrics` has.
    pub fn tell(&self, record: &Record, metrics: &Metrics) {
        match record {
            Record::Finding(watched) => self.logs.put(self.log(watched).encode_to_vec()),
            Record::Status(_) => {
                let request = self.figures(&figures(metrics), metrics.status.time_unix_ns);
                self.metrics.put(request.encode_to_vec());
            }
        }
    }

    /// Both senders, with the names of their signals.
    pub fn senders(&self) -> [(&'static str, &Sender); 2] {
        [("otlp-metrics", &self.metrics), ("otlp-logs", &self.logs)]
    }

    /// Sends what waits, for so long at most.
    pub fn end(self, patience: Duration) {
        self.logs.end(patience);
        self.metrics.end(patience);
    }

    fn figures(&self, all: &[Figure], now: u64) -> ExportMetricsServiceRequest {
        let metrics = all.iter().map(|figure| self.metric(figure, now));
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope()),
                    metrics: metrics.collect(),
                    schema_url: String::new(),
                }],
                schema_url: String::new(),
            }],
        }
    }

    fn metric(&self, figure: &Figure, now: u64) -> Metric {
        let is_sum = figure.kind == Kind::Sum;
        let point = |(labels, value): &(Vec<(&'static str, String)>, f64)| NumberDataPoint {
            attributes: labels.iter().map(|(key, value)| text(key, value)).collect(),
            start_time_unix_nano: if is_sum { self.since_unix_ns } else { 0 },
            time_unix_nano: now,
            value: Some(number_data_point::Value::AsDouble(*value)),
            ..NumberDataPoint::default()
        };
        let data_points = figure.points.iter().map(point).collect();
        Metric {
            name: figure.name.into(),
            description: figure.help.into(),
            unit: figure.unit.into(),
            data: Some(if is_sum {
                Data::Sum(Sum {
                    data_points,
                    aggregation_temporality: AggregationTemporality::Cumulative.into(),
                    is_monotonic: true,
                })
            } else {
                Data::Gauge(Gauge { data_points })
            }),
            ..Metric::default()
        }
    }

    fn log(&self, watched: &Watched) -> ExportLogsServiceRequest {
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
            number("process.pid", i64::from(origin.pid)),
            text("process.executable.name", &origin.program),
            KeyValue {
                key: "sunder.cost_percent".into(),
                value: Some(AnyValue {
                    value: Some(Value::DoubleValue(watched.finding.cost_percent)),
                }),
                ..KeyValue::default()
            },
        ];
        let more = [
            ("container.id", &origin.container),
            ("process.executable.build_id.gnu", &origin.build_id),
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
            body: body.ok().map(|body| AnyValue {
                value: Some(Value::StringValue(body)),
            }),
            attributes,
            ..LogRecord::default()
        };
        ExportLogsServiceRequest {
            resource_logs: vec![ResourceLogs {
                resource: Some(self.resource.clone()),
                scope_logs: vec![ScopeLogs {
                    scope: Some(scope()),
                    log_records: vec![record],
                    schema_url: String::new(),
                }],
                schema_url: String::new(),
            }],
        }
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "sunder-watch".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..InstrumentationScope::default()
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value.into())),
        }),
        ..KeyValue::default()
    }
}

fn number(key: &str, value: i64) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: Some(AnyValue {
            value: Some(Value::IntValue(value)),
        }),
        ..KeyValue::default()
    }
}

/// Sends one batch. Which answers mean "later", the specification says (OTLP/HTTP, "Retryable Response
/// Codes").
fn send(agent: &ureq::Agent, target: &Target, batch: &[u8]) -> Answer {
    let mut request = agent
        .post(&target.url)
        .content_type("application/x-protobuf");
    for (name, value) in &target.headers {
        request = request.header(name, value);
    }
    let at = &target.url;
    match request.send(batch) {
        Ok(response) => {
            let status = response.status().as_u16();
            let after = response.headers().get("retry-after");
            let after = after.and_then(|after| after.to_str().ok()?.trim().parse().ok());
            match status {
                200..=299 => Answer::Taken,
                429 | 502 | 503 | 504 => Answer::Later(
                    format!("{at} answers {status}: what is to be sent waits"),
                    after.map(Duration::from_secs),
                ),
                404 => Answer::Never(format!(
                    "{at} answers 404: this signal is switched off there"
                )),
                _ => Answer::Never(format!("{at} answers {status}: what was sent is lost")),
            }
        }
        Err(ureq::Error::BadUri(why)) => Answer::Never(format!("{at} is no address: {why}")),
        Err(error) => Answer::Later(
            format!("{at} can't be reached ({error}): what is to be sent waits"),
            None,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(signal: Signal, all: &[(&str, &str)]) -> Result<Target> {
        let variable = |name: &str| {
            let found = all.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Target::of(signal, &variable)
    }

    /// The rules of the specification ("OpenTelemetry Protocol Exporter").
    #[test]
    fn variables_of_a_signal_come_before_the_common_ones() {
        let usual = target(Signal::Logs, &[]).expect("no variables");
        assert_eq!(usual.url, "http://localhost:4318/v1/logs");
        assert_eq!((usual.timeout, usual.certificates), (TIMEOUT, None));
        let all = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:1/base/"),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://logs:2/as/it/is"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "a=b%20c, authorization=Bearer%3D",
            ),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "250"),
        ];
        let metrics = target(Signal::Metrics, &all).expect("valid");
        assert_eq!(metrics.url, "https://collector:1/base/v1/metrics");
        assert_eq!(metrics.timeout, Duration::from_millis(250));
        let pairs = [("a", "b c"), ("authorization", "Bearer=")];
        assert_eq!(
            metrics.headers,
            pairs.map(|(k, v)| (k.to_owned(), v.to_owned()))
        );
        let logs = target(Signal::Logs, &all).expect("valid");
        assert_eq!(logs.url, "http://logs:2/as/it/is");
        assert_eq!(logs.timeout, TIMEOUT);
    }

    #[test]
    fn what_can_not_be_followed_is_said_without_secrets() {
        let wrong = |name: &str, value: &str| {
            let error = target(Signal::Logs, &[(name, value)]).expect_err("it is wrong");
            format!("{error:#}")
        };
        assert!(wrong("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc").contains("grpc"));
        assert!(wrong("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317").contains("HTTP"));
        assert!(wrong("OTEL_EXPORTER_OTLP_TIMEOUT", "soon").contains("milliseconds"));
        let told = wrong("OTEL_EXPORTER_OTLP_HEADERS", "authorization:secret");
        assert!(!told.contains("secret"), "{told}");
    }
}
