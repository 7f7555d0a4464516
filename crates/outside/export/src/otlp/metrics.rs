//! Figures as metrics of OTLP. Sums are cumulative. Pure.

use super::values::{scope, text};
use crate::figures::{Figure, Kind};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
    metric::Data, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

/// When the sums began, and now, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub since_unix_ns: u64,
    pub now_unix_ns: u64,
}

/// The request that sends all figures.
pub fn metrics_request(
    resource: &Resource,
    all: &[Figure],
    times: Times,
) -> ExportMetricsServiceRequest {
    let metrics = all.iter().map(|figure| metric(figure, times));
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource.clone()),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope()),
                metrics: metrics.collect(),
                schema_url: String::new(),
            }],
            schema_url: String::new(),
        }],
    }
}

fn metric(figure: &Figure, times: Times) -> Metric {
    let is_sum = figure.kind == Kind::Sum;
    let point = |(labels, value): &(Vec<(&'static str, String)>, f64)| NumberDataPoint {
        attributes: labels.iter().map(|(key, value)| text(key, value)).collect(),
        start_time_unix_nano: if is_sum { times.since_unix_ns } else { 0 },
        time_unix_nano: times.now_unix_ns,
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
