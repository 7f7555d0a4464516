//! The kinds of sharing, as they are in a result. This file must not say how a kind is found.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kind of sharing of a line or finding.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// The threads touch disjoint bytes of one line.
    #[default]
    False,
    /// The threads touch the same bytes.
    True,
    /// The threads do both on one line.
    Mixed,
}
