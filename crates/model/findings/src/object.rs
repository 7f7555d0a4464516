//! An object of the program in a result: a variable or a heap block, with where it was declared or
//! allocated. Read and written with [`crate::Findings`].

use crate::language::Language;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sunder_access::{Address, LinkAddress};

/// A piece of the program's memory with a name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Object {
    /// Where the object lives.
    pub kind: ObjectKind,
    /// The name of the variable; for a heap object the pointer or type through which it was
    /// accessed, if known.
    pub name: Option<String>,
    /// Its type, as the language writes it.
    #[serde(rename = "type")]
    pub type_name: Option<String>,
    /// Its size in bytes, where known.
    pub size: Option<u64>,
    /// For arrays, the size of one element in bytes, where known.
    pub element_size: Option<u64>,
    /// Its first byte, `0x…`.
    #[serde(with = "crate::address::known")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub address: Address,
    /// Where it was declared, for variables.
    pub declared: Option<Location>,
    /// For heap objects the call stack of the allocation, innermost first;
    /// otherwise empty.
    pub allocation: Vec<Frame>,
    /// The thread that allocated it or on whose stack it lives.
    pub thread: Option<Thread>,
    /// Whether the program freed it before the end.
    pub freed: bool,
    /// On pages: how many blocks of this call stack the object stands for, if more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u64>,
    /// The file that contains it, for globals and TLS.
    pub module: Option<String>,
    /// The language of its declaration, its type or the code that uses it, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<Language>,
    /// Whether `name` is that of a local variable that took a heap object's address: it says less
    /// than the type.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub name_is_local: bool,
}

/// Where an object lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// Allocated with `malloc` or a related function.
    Heap,
    /// A global or static variable.
    Global,
    /// A thread-local variable.
    Tls,
    /// A thread's stack.
    Stack,
    /// An anonymous or file mapping.
    Mapping,
    /// The kind is not known.
    #[default]
    Unknown,
}

/// A source position.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Location {
    /// Path as in the debug information.
    pub file: String,
    /// Line, from 1.
    pub line: Option<u32>,
}

/// One frame of a call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Frame {
    /// Demangled name; `symbol+0x…` or `file+0x…` if no better name is known.
    pub function: String,
    /// Source file.
    pub file: Option<String>,
    /// Source line, from 1.
    pub line: Option<u32>,
    /// Whether this function was inlined into the next frame.
    pub inlined: bool,
    /// The file that holds the code.
    pub module: Option<String>,
    /// Where the call returns to, `0x…`: the address less what the loader added
    /// to the file's own; the same for functions inlined into each other.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "crate::address::or_null"
    )]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub offset: Option<LinkAddress>,
    /// In the call stack of an allocation: whether the function hands the memory that it got on to
    /// its caller without a type, as a wrapper of `malloc` does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wrapper: bool,
}

/// A thread of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Thread {
    /// The kernel's thread id.
    pub id: u32,
    /// The name that the thread gave itself.
    pub name: Option<String>,
}

/// The process of a finding's thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ProcessName {
    /// The kernel's process id.
    pub id: u32,
    /// Its name, where known.
    pub name: Option<String>,
    /// The process that started it, where known.
    pub parent: Option<u32>,
}
