//! The arrays that lie in a type, at any depth of its records. Used for objects whose elements are used
//! by different threads.

use super::{MOST_PARTS, Place, Shape, TypeId, TypeTable, inside};
use crate::answer::ArrayPart;
use std::cell::Cell;

/// The most arrays of one type that are told.
const MOST_ARRAYS: usize = 16;

impl TypeTable {
    /// The arrays in a value of type `id`, by ascending offset, without those in their elements and
    /// without those that overlap an array before them, as members of unions do.
    pub(crate) fn arrays(&self, id: TypeId) -> Vec<ArrayPart> {
        let mut found = Vec::new();
        self.find_arrays(id, 0, &mut found, (0, &Cell::new(MOST_PARTS)));
        found.sort_by_key(|part| part.offset);
        let mut end = 0;
        found.retain(|part| {
            let is_apart = part.offset >= end;
            if is_apart {
                end = part.offset.saturating_add(part.size);
            }
            is_apart
        });
        found
    }

    fn find_arrays(&self, id: TypeId, at: u64, found: &mut Vec<ArrayPart>, place: Place<'_>) {
        let Some(inner) = inside(place).filter(|_| found.len() < MOST_ARRAYS) else {
            return;
        };
        let id = self.plain(id);
        match self.get(id).map(|ty| &ty.shape) {
            Some(Shape::Array { element, .. }) => {
                let size = self.size(id).zip(self.size(*element));
                if let Some((size, element)) = size.filter(|&(all, one)| one > 0 && all > one) {
                    found.push(ArrayPart {
                        offset: at,
                        size,
                        element,
                    });
                }
            }
            Some(Shape::Record { members, .. }) => {
                for member in members {
                    if let Some(at) = at.checked_add(member.offset) {
                        self.find_arrays(member.ty, at, found, inner);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::examples::nested_unions;
    use super::super::{Dimension, Member, Type};
    use super::*;
    use crate::dwarf::Language;

    fn ty(size: u64, shape: Shape) -> Type {
        Type {
            name: None,
            size: Some(size),
            shape,
            language: Language::C,
        }
    }

    fn member(ty: u32, offset: u64, size: u64) -> Member {
        Member {
            name: Some("member"),
            ty: TypeId(ty),
            offset,
            size: Some(size),
        }
    }

    fn array(element: u32, count: u64) -> Shape {
        Shape::Array {
            element: TypeId(element),
            dimensions: vec![Dimension {
                count: Some(count),
                first: 0,
            }],
        }
    }

    fn record(members: Vec<Member>) -> Shape {
        let keyword = "struct";
        Shape::Record {
            keyword,
            members,
            all_placed: true,
        }
    }

    #[test]
    fn arrays_are_found_in_records_of_records() {
        let types = vec![
            ty(8, Shape::Scalar),
            // 1: eight numbers; 2: a record of them alone, as `std::array` is; 3: numbers around it.
            ty(64, array(0, 8)),
            ty(64, record(vec![member(1, 0, 64)])),
            ty(
                88,
                record(vec![
                    member(0, 0, 8),
                    member(2, 8, 64),
                    member(0, 72, 8),
                    member(4, 80, 8),
                ]),
            ),
            // 4: an array of one; 5: an array of the records.
            ty(8, array(0, 1)),
            ty(880, array(3, 10)),
        ];
        let mut table = TypeTable {
            types,
            ..TypeTable::default()
        };
        let part = |offset, size, element| ArrayPart {
            offset,
            size,
            element,
        };
        assert_eq!(table.arrays(TypeId(3)), [part(8, 64, 8)]);
        assert_eq!(table.arrays(TypeId(5)), [part(0, 880, 88)], "the outermost");
        assert_eq!(table.arrays(TypeId(0)), []);
        // A union of two arrays.
        let both = vec![member(5, 0, 880), member(1, 0, 64)];
        table.types.push(ty(880, record(both)));
        assert_eq!(table.arrays(TypeId(6)).len(), 1);
    }

    #[test]
    fn a_walk_through_many_parts_ends() {
        let (table, many) = nested_unions(60);
        assert_eq!(table.arrays(many), []);
    }
}
