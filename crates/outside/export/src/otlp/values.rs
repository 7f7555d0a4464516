//! Small messages of OTLP that all signals use.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};

/// Who says it.
pub fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "sunder-watch".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..InstrumentationScope::default()
    }
}

/// A value.
pub fn any(value: Value) -> AnyValue {
    AnyValue { value: Some(value) }
}

/// An attribute.
pub fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: Some(any(value)),
        ..KeyValue::default()
    }
}

/// An attribute that is a text.
pub fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}
