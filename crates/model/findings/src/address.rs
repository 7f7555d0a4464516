//! How addresses stand in a result's file: numbers inside the program, text in
//! JSON (`0x` and hexadecimal digits), because JSON's numbers are not exact
//! beyond 53 bits. The schema's fields name these modules in `serde(with)`;
//! nothing else reads or writes addresses as text.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};
use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

/// Characters of a text that is no address, as the error shows it.
const SHOWN: usize = 40;

fn parsed<T, E>(text: &str) -> Result<T, E>
where
    T: FromStr,
    T::Err: Display,
    E: Error,
{
    text.parse().map_err(|why| {
        let shown: String = text.chars().take(SHOWN).collect();
        E::custom(format_args!("{shown:?} is no address ({why})"))
    })
}

/// An address that is always known.
pub(crate) mod known {
    use super::*;

    pub(crate) fn serialize<T: Display, S: Serializer>(
        address: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(address)
    }

    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        parsed(&Cow::<str>::deserialize(deserializer)?)
    }
}

/// An address that may be missing: empty text.
pub(crate) mod or_empty {
    use super::*;

    pub(crate) fn serialize<T: Display, S: Serializer>(
        address: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match address {
            Some(address) => serializer.collect_str(address),
            None => serializer.serialize_str(""),
        }
    }

    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        match Cow::<str>::deserialize(deserializer)? {
            text if text.is_empty() => Ok(None),
            text => parsed(&text).map(Some),
        }
    }
}

/// An address that may be missing: `null`, or the field is not there.
pub(crate) mod or_null {
    use super::*;

    pub(crate) fn serialize<T: Display, S: Serializer>(
        address: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match address {
            Some(address) => serializer.collect_str(address),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = Option::<Cow<str>>::deserialize(deserializer)?;
        text.map(|text| parsed(&text)).transpose()
    }
}
