//! Advice for variables of the C library, whose layout no user can change, and which code is its.

use crate::words::quoted;
use sunder_findings::{Advice, Finding, Fix, Object, ObjectKind, file_name};

/// Advice for a finding whose objects are all variables of the C library; `None` if one of them
/// is the program's.
pub(crate) fn advise(finding: &Finding) -> Option<Advice> {
    let objects = std::iter::once(&finding.object).chain(&finding.neighbour);
    let objects: Vec<&Object> = objects.collect();
    if !objects.iter().all(|object| is_c_library_s(object)) {
        return None;
    }
    let names: Vec<String> = objects.iter().map(|o| quoted(o.short_name())).collect();
    let (is, it) = match names.len() {
        1 => ("is a variable", "it"),
        _ => ("are variables", "them"),
    };
    Some(Advice {
        fix: Fix::ShareLess,
        text: format!(
            "{} {is} of the C library, whose layout a program can't change: call the functions that \
             use {it} less often from several threads. If these allocate memory, another allocator \
             may do better (`sunder run`).",
            names.join(" and ")
        ),
        grows_by: None,
    })
}

fn is_c_library_s(object: &Object) -> bool {
    let variable = matches!(object.kind, ObjectKind::Global | ObjectKind::Tls);
    variable && is_c_library(object.module.as_deref())
}

/// Whether this file, given by its path, is the C library.
pub(crate) fn is_c_library(module: Option<&str>) -> bool {
    let file = module.map_or("", file_name);
    ["libc.so", "libc-2.", "libpthread", "ld-linux", "ld-musl"]
        .iter()
        .any(|name| file.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_findings_wholly_in_the_c_library_get_no_advice() {
        let variable = |module: &str| Object {
            kind: ObjectKind::Global,
            name: Some("mp_".into()),
            module: Some(module.into()),
            ..Object::default()
        };
        let mut finding = Finding {
            object: variable("/usr/lib/x86_64-linux-gnu/libc.so.6"),
            ..Finding::default()
        };
        let advice = crate::advise(&finding, 64);
        assert_eq!(advice.len(), 1);
        assert!(
            advice[0]
                .text
                .starts_with("`mp_` is a variable of the C library")
        );
        finding.neighbour = Some(variable("/usr/bin/program"));
        assert!(advise(&finding).is_none());
    }
}
