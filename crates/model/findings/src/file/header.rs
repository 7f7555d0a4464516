//! What tells whether a file is a result that this version reads: its schema and version. They are
//! read before anything else, because a newer result may have any other form. All else is passed
//! over and not kept: in memory, a number of one digit would take seventy times its size.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Schema and version of any JSON; none where they are missing or of another type.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) schema: Option<String>,
    pub(super) version: Option<u64>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match from.deserialize_any(AnyValue)? {
            Value::Object(header) => Ok(header),
            _ => Ok(Self::default()),
        }
    }
}

/// A JSON value, as far as it can be a header or a part of one.
enum Value {
    Text(String),
    Number(u64),
    Object(Header),
    Other,
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        while from.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut header = Header::default();
        while let Some(key) = from.next_key::<Key>()? {
            match key {
                Key::Schema => {
                    header.schema = match from.next_value()? {
                        Value::Text(text) => Some(text),
                        _ => None,
                    }
                }
                Key::Version => {
                    header.version = match from.next_value()? {
                        Value::Number(number) => Some(number),
                        _ => None,
                    }
                }
                Key::Other => drop(from.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::Object(header))
    }
}

/// The key of a field of an object.
#[derive(serde::Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Schema,
    Version,
    #[serde(other)]
    Other,
}
