//! What stays of a finding's identity when its object is renamed or moved to another file, or when one
//! of two builds lacks debug information. Used by `comparison`, for what has no other partner. It must
//! claim no likeness where nothing speaks for it.

use crate::object::Object;
use crate::schema::Finding;
use crate::subject::normalized_field;
use std::collections::BTreeSet;

/// What two findings must have in common, the surest first. `None` if a finding has it not.
pub(crate) type Key = fn(&Finding) -> Option<String>;

/// Whether two objects with one key may be one.
pub(crate) type Check = fn(&Object, &Object) -> bool;

/// The keys in the order in which they are tried, each with what must not speak against it.
pub(crate) const KEYS: [(Key, Check); 3] = [
    (by_name, types_agree),
    (by_type_and_code, |_, _| true),
    (by_code, names_and_types_agree),
];

/// The kinds and names of the objects. Names of globals are symbols, which need no debug information.
fn by_name(finding: &Finding) -> Option<String> {
    let objects = std::iter::once(&finding.object).chain(&finding.neighbour);
    let mut names = Vec::new();
    for object in objects {
        names.push(format!(
            "{} {}",
            object.kind.words(),
            object.name.as_deref()?
        ));
    }
    names.sort();
    Some(names.join("\u{1f}"))
}

/// The kind and type of the object, and the functions that use it: the variable was renamed, or is
/// allocated elsewhere.
fn by_type_and_code(finding: &Finding) -> Option<String> {
    let kind = finding.object.kind.words();
    let its_type = normalized_field(finding.object.type_name.as_deref()?);
    Some(format!("{kind} {its_type} {}", code(finding)?))
}

/// The kind of the object and the functions that use it: one of the builds lacks the types.
fn by_code(finding: &Finding) -> Option<String> {
    Some(format!(
        "{} {}",
        finding.object.kind.words(),
        code(finding)?
    ))
}

/// The functions that use the object, without their parameters, which symbols may lack.
fn code(finding: &Finding) -> Option<String> {
    let sampled = finding.sites.iter().filter(|site| site.calls.is_none());
    let plain = |name: &str| {
        let name = name.split('(').next().unwrap_or(name);
        name.rsplit_once("+0x")
            .map_or(name, |(name, _)| name)
            .to_owned()
    };
    let functions: BTreeSet<String> = sampled.map(|site| plain(&site.function)).collect();
    let functions: Vec<String> = functions
        .into_iter()
        .filter(|name| !name.is_empty())
        .collect();
    (!functions.is_empty()).then(|| functions.join("\u{1f}"))
}

/// Whether their types are not both known and different.
fn types_agree(one: &Object, other: &Object) -> bool {
    match (&one.type_name, &other.type_name) {
        (Some(one), Some(other)) => normalized_field(one) == normalized_field(other),
        _ => true,
    }
}

/// Whether neither their names nor their types are both known and different.
fn names_and_types_agree(one: &Object, other: &Object) -> bool {
    let differ = matches!((&one.name, &other.name), (Some(one), Some(other)) if one != other);
    !differ && types_agree(one, other)
}
