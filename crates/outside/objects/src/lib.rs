//! Names: from addresses to objects, elements, fields and source lines.
//!
//! [`Names`] describes one process image. The caller sets its mappings ([`Names::set_mappings`])
//! and then makes queries. Nothing is read before the first query that needs it, and each module's
//! symbols and debug information are read once. Called by the pipeline, for the lines that are
//! reported, and by the remedies. This crate only reads files: it must not read `/proc`, attach
//! to anything, print, or judge what an access means.
//!
//! The bytes of debug sections are leaked once per module ([`Box::leak`]): they are needed until
//! the tool ends, and every table that borrows from them stays free of lifetimes.

mod ahead;
mod answer;
mod blocks;
mod bounded;
mod copies;
mod debug_file;
mod dwarf;
mod files;
mod flow;
mod fold;
mod frame;
mod generated;
mod globals;
mod image;
mod inspect;
mod limits;
mod locals;
mod mini;
mod module;
mod names;
mod options;
mod packages;
mod path;
mod remembered;
mod source;
mod symbols;
mod tables;
mod tls;
mod types;
mod value;

pub use answer::{
    ArrayPart, CodeFrame, Declared, HeapBlock, ObjectContext, ObjectKind, ObjectName, StackFrame,
    Storage, ThreadPointer, ThreadStack, TypeHandle, TypedAccess,
};
pub use dwarf::Language;
pub use files::{Files, OwnFiles};
pub use generated::GeneratedCode;
pub use inspect::{
    BuildFacts, DebugPlace, ProgramFacts, build_facts, debug_place, has_dynamic_loader, inspect,
};
pub use names::{Holder, LockCall, Names, file_name_of, is_c_library};
pub use options::NameOptions;
pub use remembered::Memory;
