//! The path from a type and an offset to the element and field there, written as in source code:
//! `[3].hits`. The inside of a standard library's types stays hidden: an atomic's value is the
//! atomic, a lock's word the lock.

use crate::dwarf::Language;
use crate::fold::{is_library_name, shortened};
use crate::types::{Dimension, MOST_PARTS, Member, Place, Shape, TypeId, TypeTable, inside};
use std::cell::Cell;

/// The path to the byte at `offset` of a value of type `ty`; empty for the value as a whole. If
/// `exact` is false, indices are left open (`[..]`).
pub(crate) fn path(table: &TypeTable, ty: TypeId, offset: u64, exact: bool) -> String {
    let mut path = String::new();
    let parts = &Cell::new(MOST_PARTS);
    Walk { table, exact }.append(ty, offset, &mut path, (0, parts));
    path
}

/// The path to the library's object or the pointer that starts at or holds the
/// byte at `offset`, and whether it is a library's object, such as a container;
/// `None` if it is neither.
pub(crate) fn owner(
    table: &TypeTable,
    ty: TypeId,
    offset: u64,
    exact: bool,
) -> Option<(String, bool)> {
    let (mut ty, mut offset, mut path) = (ty, offset, String::new());
    for _ in 0..MAX_DEPTH {
        let found = table.get(ty)?;
        match &found.shape {
            Shape::Pointer { .. } => return Some((path, false)),
            Shape::Scalar => return None,
            Shape::Alias { to, .. } => ty = (*to)?,
            Shape::Array {
                element,
                dimensions,
            } => {
                let size = table.size(*element).filter(|&s| s > 0)?;
                let walk = Walk { table, exact };
                walk.indices(found.language, dimensions, offset / size, &mut path);
                (ty, offset) = (*element, offset % size);
            }
            Shape::Record { .. } if is_library_name(found.name.as_deref().unwrap_or("")) => {
                return Some((path, true));
            }
            Shape::Record { members, .. } => {
                let member = members.iter().find(|m| {
                    let within = offset.checked_sub(m.offset);
                    within.is_some_and(|w| m.size.is_some_and(|size| w < size))
                })?;
                if let Some(name) = member.name {
                    path.push('.');
                    path.push_str(rust_tuple_index(name));
                }
                (ty, offset) = (member.ty, offset - member.offset);
            }
        }
    }
    None
}

/// A record on the way, and whether its inside stays hidden.
struct Record<'a> {
    name: &'a str,
    members: &'a [Member],
    hidden: bool,
    all_placed: bool,
}

struct Walk<'a> {
    table: &'a TypeTable,
    exact: bool,
}

/// Types nested deeper than this are taken for a broken file.
const MAX_DEPTH: u32 = 64;
/// How many members of a union are named; the others are left out.
const MAX_ALTERNATIVES: usize = 3;

impl Walk<'_> {
    fn append(&self, ty: TypeId, offset: u64, path: &mut String, at: Place<'_>) {
        let Some(inner) = inside(at) else {
            return;
        };
        let Some(found) = self.table.get(ty) else {
            return;
        };
        let name = found.name.as_deref().unwrap_or("");
        match &found.shape {
            Shape::Scalar | Shape::Pointer { .. } => {}
            Shape::Alias { .. } if is_opaque(name) => {}
            Shape::Alias { to, .. } => {
                if let Some(to) = to {
                    self.append(*to, offset, path, inner);
                }
            }
            Shape::Array {
                element,
                dimensions,
            } => {
                let Some(size) = self.table.size(*element).filter(|&s| s > 0) else {
                    return;
                };
                self.indices(found.language, dimensions, offset / size, path);
                self.append(*element, offset % size, path, inner);
            }
            Shape::Record {
                members,
                all_placed,
                ..
            } => {
                let record = Record {
                    name,
                    members,
                    hidden: is_library_name(name),
                    all_placed: *all_placed,
                };
                self.member(&record, offset, path, inner);
            }
        }
    }

    /// Appends the indices of element number `index` of an array, as its language writes them. Fortran
    /// names the innermost dimension first.
    fn indices(
        &self,
        language: Language,
        dimensions: &[Dimension],
        mut index: u64,
        path: &mut String,
    ) {
        let mut all: Vec<String> = Vec::new();
        for (n, dimension) in dimensions.iter().enumerate() {
            let lengths = dimensions[n + 1..].iter();
            let inner = lengths.fold(1u64, |all, d| {
                all.saturating_mul(d.count.unwrap_or(1).max(1))
            });
            all.push(if self.exact {
                (index / inner)
                    .wrapping_add_signed(dimension.first)
                    .cast_signed()
                    .to_string()
            } else {
                "..".to_owned()
            });
            index %= inner;
        }
        if language == Language::Fortran {
            all.reverse();
            all = vec![all.join(",")];
        }
        all.iter()
            .for_each(|index| path.push_str(&format!("[{index}]")));
    }

    fn member(&self, record: &Record<'_>, offset: u64, path: &mut String, inner: Place<'_>) {
        let hidden = record.hidden;
        let mut alternatives: Vec<String> = Vec::new();
        let covers = |m: &&Member| {
            offset
                .checked_sub(m.offset)
                .is_some_and(|o| m.size.is_none_or(|size| o < size))
        };
        for member in record.members.iter().filter(covers) {
            let mut one = String::new();
            match (member.name, hidden) {
                (Some(name), true) => one.push_str(library_word(record.name, name)),
                (Some(name), false) => {
                    one.push('.');
                    one.push_str(rust_tuple_index(name));
                }
                (None, _) => {}
            }
            if !(hidden && self.is_text(member.ty)) {
                self.append(member.ty, offset - member.offset, &mut one, inner);
            }
            one.truncate(shortened(&one).len());
            if !alternatives.contains(&one) {
                alternatives.push(one);
            }
        }
        // A base class or anonymous member with a hole at the offset says less than a member that
        // has a field there.
        if alternatives.len() > 1 {
            alternatives.retain(|a| {
                !a.is_empty() && !a.ends_with("<padding>") && !a.ends_with("<unknown>")
            });
        }
        match alternatives.as_slice() {
            [] if hidden => {}
            [] if record.members.is_empty() => {}
            // Without a mark, it would read as the object as a whole.
            [] if !record.all_placed => path.push_str(".<unknown>"),
            [] => path.push_str(".<padding>"),
            [one] => path.push_str(one),
            many => {
                let shown: Vec<&str> = many
                    .iter()
                    .take(MAX_ALTERNATIVES)
                    .map(|a| a.trim_start_matches('.'))
                    .collect();
                path.push_str(&format!(".{{{}}}", shown.join("|")));
            }
        }
    }

    /// Whether `ty` is a buffer of characters, for which an index is of no use.
    fn is_text(&self, ty: TypeId) -> bool {
        match self.table.get(self.table.plain(ty)).map(|t| &t.shape) {
            Some(Shape::Array { element, .. }) => self.table.size(*element) == Some(1),
            _ => false,
        }
    }
}

/// Members of Rust tuples are called `__0` and written `.0`.
fn rust_tuple_index(name: &str) -> &str {
    match name.strip_prefix("__") {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => digits,
        _ => name,
    }
}

/// Typedefs whose fields are internal to the C library.
pub(crate) fn is_opaque(name: &str) -> bool {
    name.starts_with("pthread_") || matches!(name, "FILE" | "sem_t" | "mtx_t" | "cnd_t" | "jmp_buf")
}

/// The text for a library's own member; empty unless users know it as a part of the object, such as
/// a lock beside the data that it guards.
fn library_word(record: &str, member: &str) -> &'static str {
    let is = |word: &str| record.contains(word);
    match member {
        "_M_use_count" => " (use count)",
        "_M_weak_count" => " (weak count)",
        "strong" if is("Inner") => " (strong count)",
        "weak" if is("Inner") => " (weak count)",
        "inner" if is("::Mutex<") || is("::RwLock<") => " (lock)",
        "raw" if is("lock_api::") => " (lock)",
        "poison" if is("::Mutex<") || is("::RwLock<") => " (poison flag)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::LONGEST_NAME;
    use crate::types::examples::nested_unions;

    #[test]
    fn the_path_into_nested_unions_ends() {
        let (table, few) = nested_unions(2);
        assert_eq!(
            path(&table, few, 0, true),
            ".{first.{first|second}|second.{first|second}}"
        );
        // 2^60 ways lead to the innermost type.
        let (table, many) = nested_unions(60);
        assert!(path(&table, many, 0, true).len() <= 2 * LONGEST_NAME + 8);
    }
}
