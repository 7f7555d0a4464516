//! The language in which an object's code was written, by which advice chooses its words. Filled
//! from the debug information by the pipeline; file names are looked at only where it is absent.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A programming language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// C.
    C,
    /// C++.
    Cpp,
    /// Rust.
    Rust,
    /// Go.
    Go,
    /// A language of the Java virtual machine.
    Java,
    /// JavaScript, in Node.
    Javascript,
    /// Python.
    Python,
    /// A language of .NET.
    Dotnet,
}
