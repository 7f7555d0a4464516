//! Types as owned values, read from the debug information when a query first needs them. Targets of
//! pointers stay references until they are needed, so that one query never reads a program's whole
//! type graph. Used by the tables of variables and by [`crate::path`]; one table per module.

mod arrays;
mod name;
mod read;

use crate::dwarf::{DebugInfo, DieRef, Language};
use crate::fold;
use std::cell::Cell;
use std::collections::HashMap;

/// A type's number in its module's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TypeId(pub(crate) u32);

#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// `None` for base classes and anonymous members.
    pub(crate) name: Option<&'static str>,
    pub(crate) ty: TypeId,
    pub(crate) offset: u64,
    /// Size in bytes; `None` for a flexible array.
    pub(crate) size: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// A number, an enumeration, a function: a type without parts.
    Scalar,
    Pointer {
        to: Option<DieRef>,
        sign: &'static str,
    },
    Record {
        keyword: &'static str,
        members: Vec<Member>,
        /// Whether all members and base classes are among them. Else bytes without a member may be one's, such
        /// as a virtual base's, whose place depends on the class of the whole object.
        all_placed: bool,
    },
    /// The outermost dimension comes first, whose index changes least often from one element to the
    /// next in memory.
    Array {
        element: TypeId,
        dimensions: Vec<Dimension>,
    },
    /// A typedef or a qualified type.
    Alias {
        to: Option<TypeId>,
        qualifier: &'static str,
    },
}

/// One dimension of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dimension {
    /// The number of elements, if it is known.
    pub(crate) count: Option<u64>,
    /// The index of the first one.
    pub(crate) first: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Type {
    /// Qualified by scopes, not shortened.
    pub(crate) name: Option<String>,
    pub(crate) size: Option<u64>,
    pub(crate) shape: Shape,
    pub(crate) language: Language,
}

/// The types of one module that have been needed.
#[derive(Debug, Default)]
pub(crate) struct TypeTable {
    types: Vec<Type>,
    known: HashMap<DieRef, TypeId>,
    /// Complete records of all units by unqualified name, for declarations.
    records: Option<HashMap<&'static str, Vec<DieRef>>>,
}

/// Types nested deeper than this are taken for a broken file.
const MAX_DEPTH: u32 = 64;
/// Parts of a type that are looked at for one query. Members of a union lie on each other, so that
/// a few dozens of nested unions have more parts than can be visited.
pub(crate) const MOST_PARTS: u32 = 1 << 14;

/// How deep in a type a walk is, and how many parts it may still visit.
pub(crate) type Place<'a> = (u32, &'a Cell<u32>);

/// The place one level deeper, if the walk may go on.
pub(crate) fn inside((depth, parts): Place<'_>) -> Option<Place<'_>> {
    parts.set(parts.get().checked_sub(1)?);
    (depth < MAX_DEPTH).then_some((depth + 1, parts))
}

impl TypeTable {
    pub(crate) fn get(&self, id: TypeId) -> Option<&Type> {
        self.types.get(id.0 as usize)
    }

    /// The entry that a type was read from.
    pub(crate) fn die_of(&self, id: TypeId) -> Option<DieRef> {
        let mut all = self.known.iter();
        all.find(|(_, known)| **known == id).map(|(die, _)| *die)
    }

    /// The size of a type in bytes.
    pub(crate) fn size(&self, id: TypeId) -> Option<u64> {
        self.get(id)?.size
    }

    /// Distance between the elements that a pointer to `id` steps over: the size of the type, or of
    /// its element if it is an array itself.
    pub(crate) fn stride(&self, id: TypeId) -> Option<u64> {
        let plain = self.plain(id);
        match &self.get(plain)?.shape {
            Shape::Array { element, .. } => self.size(*element),
            _ => self.size(plain),
        }
    }

    /// The element of an array of one dimension.
    pub(crate) fn element(&self, id: TypeId) -> Option<TypeId> {
        match &self.get(self.plain(id))?.shape {
            Shape::Array {
                element,
                dimensions,
            } if dimensions.len() == 1 => Some(*element),
            _ => None,
        }
    }

    /// `offset` from a pointer to `id` as an offset within one value of it.
    pub(crate) fn reduced(&self, id: TypeId, offset: i64) -> u64 {
        match self.size(id) {
            Some(size) if size > 0 => offset.rem_euclid(size as i64) as u64,
            _ => offset.max(0) as u64,
        }
    }

    /// The offset within one value of type `id` of an address that is `offset` from its start,
    /// known up to multiples of `modulo` (0: exactly). `None` if these multiples are in more than
    /// one field.
    pub(crate) fn known_offset(&self, id: TypeId, offset: i64, modulo: u64) -> Option<u64> {
        if modulo == 0 {
            return Some(self.reduced(id, offset));
        }
        if let Some(stride) = self
            .stride(id)
            .filter(|&s| s > 0 && modulo.is_multiple_of(s))
        {
            return Some(offset.rem_euclid(stride as i64) as u64);
        }
        // An index into an array that is a field: compilers add the array's own offset to the
        // displacement.
        let offset = u64::try_from(offset).ok()?;
        let parts = &Cell::new(MOST_PARTS);
        self.steps_through_array(id, offset, modulo, (0, parts))
            .then_some(offset)
    }

    fn steps_through_array(&self, id: TypeId, offset: u64, modulo: u64, at: Place<'_>) -> bool {
        let Some(inner) = inside(at) else {
            return false;
        };
        let Some(ty) = self.get(self.plain(id)) else {
            return false;
        };
        match &ty.shape {
            Shape::Array { element, .. } => match self.size(*element) {
                Some(size) if size > 0 => {
                    modulo.is_multiple_of(size)
                        || self.steps_through_array(*element, offset % size, modulo, inner)
                }
                _ => false,
            },
            Shape::Record { members, .. } => members
                .iter()
                .filter(|m| {
                    offset
                        .checked_sub(m.offset)
                        .is_some_and(|o| m.size.is_none_or(|s| o < s))
                })
                .any(|m| self.steps_through_array(m.ty, offset - m.offset, modulo, inner)),
            _ => false,
        }
    }

    /// The type without typedefs and qualifiers.
    pub(crate) fn plain(&self, mut id: TypeId) -> TypeId {
        for _ in 0..MAX_DEPTH {
            match self.get(id).map(|t| &t.shape) {
                Some(Shape::Alias { to: Some(to), .. }) => id = *to,
                _ => break,
            }
        }
        id
    }

    /// Whether a larger block than `ty` is no array of it, because `ty` may be the head of something
    /// else: the base class of the type that `make_shared` allocates, or of a container's nodes; the counts
    /// before what an `Arc<[T]>` points to; or a class with virtual functions, of which classes are derived.
    pub(crate) fn is_head(&self, ty: TypeId) -> bool {
        let Some(of) = self.get(self.plain(ty)) else {
            return false;
        };
        of.name.as_deref().is_some_and(is_head_by_name) || self.has_virtual(ty)
    }

    /// Whether it is a class with virtual functions: a compiler puts a pointer to these at its start,
    /// or its first base class has it.
    fn has_virtual(&self, mut ty: TypeId) -> bool {
        // One way down: a crafted file may have a class with many bases at its start.
        for _ in 0..MAX_DEPTH {
            let of = self.get(self.plain(ty)).map(|t| &t.shape);
            let Some(Shape::Record { members, .. }) = of else {
                return false;
            };
            let mut at_start = members.iter().filter(|m| m.offset == 0);
            if at_start.any(|m| m.name.is_some_and(|name| name.starts_with("_vptr"))) {
                return true;
            }
            let base = members.iter().find(|m| m.offset == 0 && m.name.is_none());
            match base {
                Some(base) => ty = base.ty,
                None => return false,
            }
        }
        false
    }

    /// Whether `id` is a record that the program itself declares.
    pub(crate) fn is_own_record(&self, id: TypeId) -> bool {
        self.get(self.plain(id)).is_some_and(|t| {
            let library = t.name.as_deref().is_some_and(fold::is_library_name);
            matches!(t.shape, Shape::Record { .. }) && !library
        })
    }

    pub(crate) fn is_pointer(&self, id: TypeId) -> bool {
        matches!(self.get(id).map(|t| &t.shape), Some(Shape::Pointer { .. }))
    }

    /// Whether `id` is a pointer to memory without a type: `void *`, or a pointer to bytes.
    pub(crate) fn is_raw_pointer(&mut self, debug: &mut DebugInfo, id: TypeId) -> bool {
        if !self.is_pointer(self.plain(id)) {
            return false;
        }
        let Some(target) = self.pointee(debug, id) else {
            return true;
        };
        let target = self.get(self.plain(target));
        target.is_some_and(|t| matches!(t.shape, Shape::Scalar) && t.size == Some(1))
    }

    /// The target type of a pointer or reference; `None` for other types and for `void *`.
    pub(crate) fn pointee(&mut self, debug: &mut DebugInfo, id: TypeId) -> Option<TypeId> {
        let Shape::Pointer { to: Some(to), .. } = self.get(self.plain(id))?.shape else {
            return None;
        };
        let target = self.load(debug, to, 0)?;
        let plain = self.plain(target);
        // `const void` is an alias of no type.
        match self.get(plain)?.shape {
            Shape::Alias { to: None, .. } => None,
            _ => Some(target),
        }
    }

    /// The pointer or scalar at `offset` of a value of type `id`.
    pub(crate) fn leaf(&self, id: TypeId, offset: u64) -> Option<TypeId> {
        self.leaf_within(id, offset, (0, &Cell::new(MOST_PARTS)))
    }

    fn leaf_within(&self, id: TypeId, offset: u64, at: Place<'_>) -> Option<TypeId> {
        let inner = inside(at)?;
        let id = self.plain(id);
        match &self.get(id)?.shape {
            Shape::Scalar | Shape::Pointer { .. } => (offset == 0).then_some(id),
            Shape::Array { element, .. } => {
                let size = self.size(*element).filter(|&s| s > 0)?;
                self.leaf_within(*element, offset % size, inner)
            }
            Shape::Record { members, .. } => members
                .iter()
                .filter(|m| {
                    offset
                        .checked_sub(m.offset)
                        .is_some_and(|o| m.size.is_none_or(|s| o < s))
                })
                .find_map(|m| self.leaf_within(m.ty, offset - m.offset, inner)),
            Shape::Alias { .. } => None,
        }
    }
}

/// Types for tests.
#[cfg(test)]
pub(crate) mod examples {
    use super::*;

    /// Unions nested `depth` times: each has two members of the type within, and the innermost
    /// type is a number of one byte. All have two bytes.
    pub(crate) fn nested_unions(depth: u32) -> (TypeTable, TypeId) {
        let ty = |size, shape| Type {
            name: None,
            size: Some(size),
            shape,
            language: Language::C,
        };
        let mut table = TypeTable::default();
        table.types.push(ty(1, Shape::Scalar));
        for within in 0..depth {
            let member = |name| Member {
                name: Some(name),
                ty: TypeId(within),
                offset: 0,
                size: Some(2),
            };
            let members = vec![member("first"), member("second")];
            let shape = Shape::Record {
                keyword: "union",
                members,
                all_placed: true,
            };
            table.types.push(ty(2, shape));
        }
        (table, TypeId(depth))
    }
}

/// Heads that the standard libraries of C++ (libstdc++, libc++) and Rust put before what a program stores.
fn is_head_by_name(name: &str) -> bool {
    const OF_CPP: [&str; 4] = ["_node_base", "_node_base_impl", "_base_node", "_end_node"];
    const OF_RUST: [&str; 3] = [
        "alloc::sync::ArcInner<",
        "alloc::rc::RcInner<",
        "alloc::rc::RcBox<",
    ];
    let whole = name.split('<').next().unwrap_or(name);
    let is_nodes = name.starts_with("std::") && OF_CPP.iter().any(|end| whole.ends_with(end));
    // An array's type ends with its length, as a slice's does not.
    let has_length = |rest: &str| {
        let inside = rest.strip_suffix(">").and_then(|r| r.strip_suffix("]"));
        let length = inside.and_then(|inside| inside.rsplit_once("; "));
        length.is_some_and(|(_, length)| length.bytes().all(|b| b.is_ascii_digit()))
    };
    // The size of these is that of the counts.
    let unsized_part = |rest: &str| {
        rest.starts_with("dyn ")
            || rest.starts_with("str>")
            || rest.starts_with('[') && !has_length(rest)
    };
    let of_rust = OF_RUST.iter().find_map(|start| name.strip_prefix(start));
    name.starts_with("std::_Sp_counted_base") || is_nodes || of_rust.is_some_and(unsized_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A larger block than a class with virtual functions holds a derived class, and no array.
    #[test]
    fn classes_with_virtual_functions_may_be_heads() {
        let mut table = TypeTable::default();
        let mut class = |members| {
            table.types.push(Type {
                name: None,
                size: Some(8),
                shape: Shape::Record {
                    keyword: "class",
                    members,
                    all_placed: true,
                },
                language: Language::Cpp,
            });
        };
        let member = |name, ty| Member {
            name,
            ty: TypeId(ty),
            offset: 0,
            size: Some(8),
        };
        class(vec![member(Some("count"), 0)]);
        class(vec![member(Some("_vptr.Filter"), 0)]);
        // Derived from the second, and from the first.
        class(vec![member(None, 1)]);
        class(vec![member(None, 0)]);
        // Derived from itself, as no compiler writes it.
        class(vec![member(None, 4), member(None, 4)]);
        let heads = [0, 1, 2, 3, 4].map(|ty| table.is_head(TypeId(ty)));
        assert_eq!(heads, [false, true, true, false, false]);
    }

    #[test]
    fn what_libraries_put_before_stored_values_is_a_head() {
        for head in [
            "std::_Sp_counted_base<2>",
            "std::__detail::_Hash_node_base",
            "std::__detail::_List_node_base",
            "std::_Rb_tree_node_base",
            "std::_Fwd_list_node_base",
            "std::__1::__list_node_base<int, void *>",
            "std::__1::__tree_node_base<void *>",
            "alloc::sync::ArcInner<[std::sync::poison::mutex::Mutex<u64>]>",
            "alloc::rc::RcInner<dyn core::ops::function::Fn<(u64), Output=u64>>",
            "alloc::sync::ArcInner<str>",
            "alloc::sync::ArcInner<[app::Row<[u64; 4]>]>",
        ] {
            assert!(is_head_by_name(head), "{head}");
        }
        for whole in [
            "std::_List_node<Stats>",
            "app::my_node_base",
            "alloc::sync::ArcInner<app::Stats>",
            "alloc::sync::ArcInner<[u64; 4]>",
            "alloc::boxed::Box<[u64]>",
        ] {
            assert!(!is_head_by_name(whole), "{whole}");
        }
    }

    #[test]
    fn a_walk_through_nested_unions_ends() {
        let (table, few) = examples::nested_unions(3);
        assert_eq!(table.leaf(few, 0), Some(TypeId(0)));
        assert_eq!(table.leaf(few, 1), None);
        // 2^60 ways lead to the innermost type, which has no byte at 1.
        let (table, many) = examples::nested_unions(60);
        assert_eq!(table.leaf(many, 0), Some(TypeId(0)));
        assert_eq!(table.leaf(many, 1), None);
        assert_eq!(table.known_offset(many, 1, 7), None);
    }
}
