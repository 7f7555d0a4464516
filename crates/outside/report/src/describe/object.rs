//! An object's size, kind and origin, and names of threads and source positions.

use crate::clean::clean;
use crate::figures::counted;
use sunder_findings::{Location, Object, ObjectKind, file_name};

/// A source position: `file.c:12`.
pub(crate) fn place(location: &Location) -> String {
    let file = clean(file_name(&location.file));
    match location.line {
        Some(line) => format!("{file}:{line}"),
        None => file,
    }
}

/// Size, kind and origin of an object: `256 bytes, allocated at a.c:3 in main`.
pub(crate) fn origin(object: &Object) -> String {
    let mut facts = Vec::new();
    let named = object.name.is_some() || object.type_name.is_some();
    let is_stack = object.name.is_some() && object.is_bare_stack();
    if let Some(blocks) = object.blocks {
        let each = object
            .size
            .map(|size| format!(" of {}", counted(size as usize, "byte")))
            .unwrap_or_default();
        facts.push(format!("{}{each}", counted(blocks as usize, "block")));
    } else if is_stack {
        facts.push("a variable there whose name is not known".to_owned());
    } else if let (Some(size), true) = (object.size, named) {
        facts.push(counted(size as usize, "byte"));
    }
    if let Some(site) = object.allocation_site() {
        let at = object
            .place()
            .map(|p| format!(" at {}", place(&p)))
            .unwrap_or_default();
        // The allocation of a variable on a stack is the frame that declares it.
        let how = match object.kind {
            ObjectKind::Stack => "declared",
            _ => "allocated",
        };
        facts.push(format!("{how}{at} in {}", clean(&site.function)));
    } else if let Some(declared) = &object.declared {
        facts.push(format!(
            "{} declared at {}",
            object.kind.words(),
            place(declared)
        ));
    } else if object.kind != ObjectKind::Unknown && named && !is_stack {
        facts.push(object.kind.words().to_owned());
    }
    if let Some(thread) = &object.thread {
        let who = thread_label(thread.id, thread.name.as_deref());
        facts.push(match object.kind {
            ObjectKind::Stack | ObjectKind::Tls => format!("of thread {who}"),
            _ => format!("by thread {who}"),
        });
    }
    if object.freed {
        facts.push("freed later".to_owned());
    }
    if facts.is_empty() {
        facts.push("no symbol and no allocation record tells its name or size".to_owned());
    }
    if let (true, None, Some(module)) = (
        object.allocation.is_empty(),
        &object.declared,
        &object.module,
    ) {
        facts.push(format!("in {}", clean(file_name(module))));
    }
    facts.join(", ")
}

/// A thread's number and name: `4701 worker`.
pub(crate) fn thread_label(id: u32, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{id} {}", clean(name)),
        None => id.to_string(),
    }
}

/// A field as seen from its object: without the object's own name.
pub(crate) fn inner_field(field: &str, object: &Object) -> String {
    let name = object.name.as_deref().unwrap_or_default();
    let last = name.rsplit("::").next().unwrap_or(name);
    for prefix in [name, last] {
        if let Some(rest) = field.strip_prefix(prefix).filter(|_| !prefix.is_empty()) {
            if let Some(member) = rest.strip_prefix('.') {
                return clean(member);
            }
            if rest.starts_with('[') {
                return clean(rest);
            }
        }
    }
    clean(field)
}
