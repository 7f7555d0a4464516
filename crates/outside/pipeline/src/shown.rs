//! Objects in the result's schema. Called with the names of a line or of a prediction; must not look
//! anything up but the language and kind of a type.

use crate::naming::{TypedPointer, made_shared};
use crate::process::Process;
use crate::runtimes::{runtime_of, runtime_of_file};
use sunder_access::LinkAddress;
use sunder_findings as findings;
use sunder_objects::{CodeFrame, Language, ObjectKind, ObjectName, is_c_library};
use sunder_sharing::SiteUse;

/// An object in the result's schema.
pub fn show_object(
    process: &mut Process,
    name: &ObjectName,
    seen: Option<&TypedPointer>,
) -> findings::Object {
    let through = seen.map(|seen| {
        let count = name.size.unwrap_or(0) / seen.size.max(1);
        let array = name.kind == ObjectKind::Heap && count >= 2 && seen.size > 0 && !seen.is_head;
        if array {
            format!("{}[{count}]", seen.type_name)
        } else {
            seen.type_name.clone()
        }
    });
    // A stack as a whole is not of the type of one variable on it.
    let bare_stack = name.kind == ObjectKind::Stack && name.type_handle.is_none();
    let through = through.filter(|_| !bare_stack);
    let allocated = || match made_shared(name) {
        Some(made) => Some(made.to_owned()),
        None => {
            let of = name.type_name.clone()?;
            match elements(name) {
                Some(count) if !of.ends_with(']') => Some(format!("{of}[{count}]")),
                _ => Some(of),
            }
        }
    };
    let type_name = through.or_else(allocated);
    let handle = seen.map(|s| s.handle).or(name.type_handle);
    let language = handle.and_then(|ty| process.names.language_of(ty));
    let own_record = match seen {
        Some(seen) => seen.own_record,
        None => name
            .type_handle
            .is_some_and(|ty| process.names.is_own_record(ty)),
    };
    findings::Object {
        kind: match name.kind {
            ObjectKind::Heap => findings::ObjectKind::Heap,
            ObjectKind::Global => findings::ObjectKind::Global,
            ObjectKind::Tls => findings::ObjectKind::Tls,
            ObjectKind::Stack => findings::ObjectKind::Stack,
            ObjectKind::Mapping => findings::ObjectKind::Mapping,
            ObjectKind::Unknown => findings::ObjectKind::Unknown,
        },
        name: name
            .name
            .clone()
            .or_else(|| seen.and_then(|s| s.variable.clone()))
            .filter(|told| !says_less_than_type(name, told, own_record)),
        type_name,
        size: name.size,
        element_size: seen
            .map(|s| s.size)
            .or(name.element_size)
            .filter(|&s| s > 0),
        address: name.start,
        declared: name.declared.as_ref().map(|d| findings::Location {
            file: d.file.clone(),
            line: d.line,
        }),
        allocation: name.allocation.iter().map(show_frame).collect(),
        thread: name.thread.map(|t| process.threads.label(t)),
        freed: name.freed,
        blocks: None,
        module: name.module.clone(),
        language: language.and_then(show_language),
        // Beside a number's type, even a local variable's name says more. A name that only the
        // accesses tell is that of the pointer they go through.
        name_is_local: (name.name_is_local || name.name.is_none()) && own_record,
    }
}

/// Whether a block's name is a single letter, as libraries and loops call their variables, and its type
/// is the program's own.
fn says_less_than_type(name: &ObjectName, told: &str, own_record: bool) -> bool {
    name.kind == ObjectKind::Heap && own_record && told.len() == 1
}

/// How many elements a block has of the type that its allocation tells, if several.
fn elements(name: &ObjectName) -> Option<u64> {
    let (whole, one) = name.size.zip(name.element_size)?;
    let several = name.kind == ObjectKind::Heap && one > 0 && whole > one;
    (several && whole.is_multiple_of(one)).then(|| whole / one)
}

/// The language of the busiest code that states one and is not the C library's.
pub fn language_of_code(process: &mut Process, sites: &[SiteUse]) -> Option<findings::Language> {
    let mut found = sites.iter().filter_map(|site| {
        let frames = process.names.frames(site.instruction);
        let foreign = frames[0].module.as_deref().is_some_and(is_c_library);
        let language = process.names.language_at(site.instruction)?;
        show_language(language).filter(|_| !foreign)
    });
    found.next().or_else(|| {
        // A runtime's own code, and what it makes, which is in no file.
        let busiest = sites.first()?;
        let frames = process.names.frames(busiest.instruction);
        let module = frames[0].module.as_deref();
        let made = module.is_none_or(|file| runtime_of_file(file).is_some());
        made.then(|| runtime_of(process.mappings())).flatten()
    })
}

fn show_frame(frame: &CodeFrame) -> findings::Frame {
    findings::Frame {
        function: frame.function.clone(),
        file: frame.file.clone(),
        line: frame.line,
        inlined: frame.inlined,
        module: frame.module.clone(),
        offset: frame.offset.map(LinkAddress),
        wrapper: frame.wrapper,
    }
}

fn show_language(language: Language) -> Option<findings::Language> {
    Some(match language {
        Language::C => findings::Language::C,
        Language::Cpp => findings::Language::Cpp,
        Language::Rust => findings::Language::Rust,
        Language::Go => findings::Language::Go,
        Language::Fortran | Language::Other => return None,
    })
}
