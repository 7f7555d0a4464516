//! Reading types from the debug information.

use super::{Dimension, MAX_DEPTH, Member, Shape, Type, TypeId, TypeTable};
use crate::dwarf::{Bytes, DebugInfo, DieRef, Language, LoadedEntry, LoadedUnit};
use gimli::{AttributeValue, Reader, constants as dw};
use std::collections::HashMap;

/// A type larger than the address space is taken for a broken file.
const MAX_SIZE: u64 = 1 << 48;

impl TypeTable {
    /// The type described by the entry `die`.
    pub(crate) fn load(
        &mut self,
        debug: &mut DebugInfo,
        die: DieRef,
        depth: u32,
    ) -> Option<TypeId> {
        if let Some(&known) = self.known.get(&die) {
            return Some(known);
        }
        if depth > MAX_DEPTH {
            return None;
        }
        let id = TypeId(u32::try_from(self.types.len()).ok()?);
        self.types.push(Type {
            name: None,
            size: None,
            shape: Shape::Scalar,
            language: Language::C,
        });
        self.known.insert(die, id);
        if let Some(ty) = self.read(debug, die, depth) {
            self.types[id.0 as usize] = ty;
        }
        Some(id)
    }

    fn read(&mut self, debug: &mut DebugInfo, die: DieRef, depth: u32) -> Option<Type> {
        let unit = debug.unit(die.unit)?.clone();
        let entry = unit.entry(die.offset)?;
        let name = debug.qualified_name(die);
        let mut ty = Type {
            name,
            size: LoadedUnit::number(&entry, dw::DW_AT_byte_size),
            shape: Shape::Scalar,
            language: unit.language(),
        };
        let pointer = |sign| Shape::Pointer {
            to: entry
                .attr_value(dw::DW_AT_type)
                .and_then(|t| debug.resolve(die.unit, &t)),
            sign,
        };
        match entry.tag() {
            dw::DW_TAG_pointer_type => ty.shape = pointer("*"),
            dw::DW_TAG_reference_type => ty.shape = pointer("&"),
            dw::DW_TAG_rvalue_reference_type => ty.shape = pointer("&&"),
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                if entry.attr(dw::DW_AT_declaration).is_some()
                    || entry.attr(dw::DW_AT_signature).is_some()
                {
                    return self.complete(debug, die, &entry, &ty, depth);
                }
                let union = entry.tag() == dw::DW_TAG_union_type;
                let (members, all_placed) = self.members(debug, die, depth);
                let keyword = if union { "union" } else { "struct" };
                ty.shape = Shape::Record {
                    keyword,
                    members,
                    all_placed,
                };
            }
            dw::DW_TAG_array_type => {
                let element = self.nested(debug, die.unit, &entry, depth)?;
                let dimensions = dimensions(&unit, die.offset, ty.language);
                ty.size = ty.size.or_else(|| {
                    let size = self.size(element)?;
                    dimensions
                        .iter()
                        .try_fold(size, |size, d| size.checked_mul(d.count?))
                });
                ty.shape = Shape::Array {
                    element,
                    dimensions,
                };
            }
            tag => {
                if let Some(qualifier) = alias(tag) {
                    let to = self.nested(debug, die.unit, &entry, depth);
                    ty.size = ty.size.or_else(|| self.size(to?));
                    ty.shape = Shape::Alias { to, qualifier };
                } else if tag == dw::DW_TAG_enumeration_type
                    && matches!(ty.language, Language::C | Language::Other)
                {
                    ty.name = ty.name.map(|n| format!("enum {n}"));
                }
            }
        }
        if matches!(ty.shape, Shape::Pointer { .. }) {
            ty.size = Some(8);
        }
        ty.size = ty.size.filter(|&size| size < MAX_SIZE);
        Some(ty)
    }

    fn nested(
        &mut self,
        debug: &mut DebugInfo,
        unit: u32,
        entry: &LoadedEntry,
        depth: u32,
    ) -> Option<TypeId> {
        let die = debug.resolve(unit, &entry.attr_value(dw::DW_AT_type)?)?;
        self.load(debug, die, depth + 1)
    }

    /// The definition for the declaration at `die`, or an empty record of its name.
    fn complete(
        &mut self,
        debug: &mut DebugInfo,
        die: DieRef,
        entry: &LoadedEntry,
        declared: &Type,
        depth: u32,
    ) -> Option<Type> {
        let by_signature = entry
            .attr_value(dw::DW_AT_signature)
            .and_then(|s| debug.resolve(die.unit, &s));
        let found = by_signature.or_else(|| self.definition(debug, declared.name.as_deref()?));
        let found = found
            .filter(|&f| f != die)
            .and_then(|f| self.load(debug, f, depth + 1));
        let complete = found.and_then(|f| self.get(f)).cloned();
        complete.or_else(|| {
            Some(Type {
                shape: Shape::Record {
                    keyword: "struct",
                    members: Vec::new(),
                    all_placed: false,
                },
                ..declared.clone()
            })
        })
    }

    fn definition(&mut self, debug: &mut DebugInfo, name: &str) -> Option<DieRef> {
        if self.records.is_none() {
            let mut all: HashMap<&'static str, Vec<DieRef>> = HashMap::new();
            for unit in 0..debug.loaded_units() {
                let Some(index) = debug.index(unit) else {
                    continue;
                };
                for &(name, offset) in &index.records {
                    all.entry(name).or_default().push(DieRef { unit, offset });
                }
            }
            self.records = Some(all);
        }
        let last = name.rsplit("::").next().unwrap_or(name);
        // The arguments of a template may contain `::`, too.
        let last = if name.ends_with('>') { name } else { last };
        let candidates = self.records.as_ref()?.get(last).cloned()?;
        candidates
            .into_iter()
            .find(|&c| debug.qualified_name(c).as_deref() == Some(name))
    }

    /// The type of the elements that a vector of Rust's library holds, by its first type parameter: its own
    /// pointer is one to bytes.
    pub(crate) fn elements_held(&mut self, debug: &mut DebugInfo, id: TypeId) -> Option<TypeId> {
        let plain = self.plain(id);
        let known = self.get(plain)?;
        let name = known.name.as_deref();
        let is_vector = name.is_some_and(|name| name.starts_with("alloc::vec::Vec<"));
        if known.language != Language::Rust || !is_vector {
            return None;
        }
        let die = self.die_of(plain)?;
        let unit = debug.unit(die.unit)?.clone();
        let mut parameters = Vec::new();
        let is_parameter = |entry: &LoadedEntry| entry.tag() == dw::DW_TAG_template_type_parameter;
        let read = unit.for_each_child(die.offset, |entry| {
            parameters.extend(is_parameter(entry).then(|| entry.clone()));
        });
        read.ok()?;
        self.nested(debug, die.unit, parameters.first()?, 0)
    }

    /// The members and base classes of a record, and whether these are all.
    fn members(&mut self, debug: &mut DebugInfo, die: DieRef, depth: u32) -> (Vec<Member>, bool) {
        let Some(unit) = debug.unit(die.unit).cloned() else {
            return (Vec::new(), false);
        };
        let mut found = Vec::new();
        let mut entries = Vec::new();
        let is_sound = collect_members(&unit, die.offset, 0, &mut entries).is_ok();
        let mut all_placed = is_sound && entries.len() < MOST_MEMBERS;
        for entry in entries {
            let ty = self.nested(debug, die.unit, &entry, depth);
            let place = ty.and_then(|ty| placement(&entry, self.size(ty)));
            let (Some(ty), Some((offset, bits))) = (ty, place) else {
                all_placed = false;
                continue;
            };
            // A virtual base of a base class may be anywhere in the derived class.
            if entry.tag() == dw::DW_TAG_inheritance {
                all_placed &= self.is_all_placed(ty);
            }
            let size = match bits {
                Some((first, count)) => Some(first.saturating_add(count).div_ceil(8)),
                None => self.size(ty),
            };
            let name = match entry.tag() {
                dw::DW_TAG_inheritance => None,
                _ => entry.attr_value(dw::DW_AT_name).and_then(|n| unit.text(n)),
            };
            found.push(Member {
                name,
                ty,
                offset,
                size,
            });
        }
        (found, all_placed)
    }

    fn is_all_placed(&self, ty: TypeId) -> bool {
        let known = self.get(self.plain(ty)).map(|t| &t.shape);
        matches!(
            known,
            Some(Shape::Record {
                all_placed: true,
                ..
            })
        )
    }
}

fn alias(tag: gimli::DwTag) -> Option<&'static str> {
    Some(match tag {
        dw::DW_TAG_typedef => "",
        dw::DW_TAG_const_type => "const ",
        dw::DW_TAG_volatile_type => "volatile ",
        dw::DW_TAG_atomic_type => "_Atomic ",
        dw::DW_TAG_restrict_type => "restrict ",
        _ => return None,
    })
}

/// More members are taken for a broken file: a compressed file of some kilobytes can have millions. Generated
/// records have thousands.
const MOST_MEMBERS: usize = 1 << 16;
/// More dimensions are, too. Compilers allow dozens at most.
const MOST_DIMENSIONS: usize = 256;

/// An array's dimensions, outermost first.
fn dimensions(unit: &LoadedUnit, offset: usize, language: Language) -> Vec<Dimension> {
    let mut all = Vec::new();
    let usual = unit.first_index();
    let _ = unit.for_each_child(offset, |entry| {
        if entry.tag() == dw::DW_TAG_subrange_type && all.len() < MOST_DIMENSIONS {
            let count = LoadedUnit::number(entry, dw::DW_AT_count);
            // Where the bound is known at run time only, so are the indices.
            let stated = entry.attr(dw::DW_AT_lower_bound).is_some();
            let first = match bound(entry, dw::DW_AT_lower_bound) {
                Some(first) => Some(first),
                None => (!stated).then_some(usual),
            };
            let upper = bound(entry, dw::DW_AT_upper_bound);
            // `T x[0]` has no bound or one before the first element.
            let bounds = first.zip(upper);
            let between = |(first, upper): (i64, i64)| upper.checked_sub(first)?.checked_add(1);
            let between = bounds.and_then(between).filter(|&count| count > 0);
            let count = count.or_else(|| u64::try_from(between?).ok());
            all.push(Dimension {
                count: count.filter(|&c| c < MAX_SIZE),
                first: first.unwrap_or(usual),
            });
        }
    });
    if all.is_empty() {
        all.push(Dimension {
            count: None,
            first: usual,
        });
    }
    if language == Language::Fortran {
        // The first index changes from one element to the next.
        all.reverse();
    }
    all
}

/// A bound of an array's dimension. One byte of 255 is that number, as C's compilers write it; negative
/// bounds have a form with a sign.
fn bound(entry: &LoadedEntry, name: gimli::DwAt) -> Option<i64> {
    let number = LoadedUnit::number(entry, name);
    number
        .and_then(|number| i64::try_from(number).ok())
        .or_else(|| LoadedUnit::signed(entry, name))
}

/// Members and base classes of the record at `offset`; the fields of a Rust enum's variants are
/// overlapping members. Variants that are nested deeper than [`MAX_DEPTH`] are left out, and so are members
/// beyond [`MOST_MEMBERS`].
fn collect_members(
    unit: &LoadedUnit,
    offset: usize,
    depth: u32,
    found: &mut Vec<LoadedEntry>,
) -> Result<(), gimli::Error> {
    let mut inner = Vec::new();
    unit.for_each_child(offset, |entry| match entry.tag() {
        _ if found.len() >= MOST_MEMBERS => {}
        dw::DW_TAG_member
            // A static member is only declared here; its definition is elsewhere.
            if entry.attr(dw::DW_AT_declaration).is_none()
                && entry.attr(dw::DW_AT_external).is_none() =>
        {
            found.push(entry.clone());
        }
        dw::DW_TAG_inheritance => found.push(entry.clone()),
        dw::DW_TAG_variant_part | dw::DW_TAG_variant => inner.push(entry.offset().0),
        _ => {}
    })?;
    for offset in inner {
        if depth < MAX_DEPTH && found.len() < MOST_MEMBERS {
            collect_members(unit, offset, depth + 1, found)?;
        }
    }
    Ok(())
}

/// Byte offset of a member, and for bit fields the first bit in that byte and the number of bits.
/// `None` for virtual bases, whose offset is not fixed.
fn placement(entry: &LoadedEntry, size: Option<u64>) -> Option<(u64, Option<(u64, u64)>)> {
    let bits = LoadedUnit::number(entry, dw::DW_AT_bit_size);
    if let (Some(first), Some(count)) = (LoadedUnit::number(entry, dw::DW_AT_data_bit_offset), bits)
    {
        return Some((first / 8, Some((first % 8, count))));
    }
    let at = match entry.attr_value(dw::DW_AT_data_member_location) {
        None => 0,
        Some(AttributeValue::Exprloc(gimli::Expression(steps)) | AttributeValue::Block(steps)) => {
            added(steps)?
        }
        Some(value) => value.udata_value()?,
    };
    if let (Some(from_top), Some(count)) = (LoadedUnit::number(entry, dw::DW_AT_bit_offset), bits) {
        // DWARF 3 counts from the most significant bit of the storage unit.
        let storage = LoadedUnit::number(entry, dw::DW_AT_byte_size)
            .or(size)?
            .checked_mul(8)?;
        let gap = storage.checked_sub(from_top.checked_add(count)?)?;
        let first = at.checked_mul(8)?.checked_add(gap)?;
        return Some((first / 8, Some((first % 8, count))));
    }
    Some((at, None))
}

/// The number that an expression of one operation adds to a record's address, as DWARF 2 writes the
/// place of a member. Others compute it from the record's data.
fn added(mut steps: Bytes) -> Option<u64> {
    let operation = gimli::DwOp(steps.read_u8().ok()?);
    let number = steps.read_uleb128().ok()?;
    (operation == dw::DW_OP_plus_uconst && steps.is_empty()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dwarf::made::{dwarf_of, one_unit};

    /// Entries without attributes, all with children but the last: a unit, a record, a variant
    /// part and a member.
    const ABBREVIATIONS: &[u8] = &[
        1, 0x11, 1, 0, 0, //
        2, 0x13, 1, 0, 0, //
        3, 0x33, 1, 0, 0, //
        4, 0x0d, 0, 0, 0, //
        0,
    ];

    /// A record in which variant parts are nested `depth` times, with a member in each.
    fn nested_variants(depth: usize) -> (LoadedUnit, usize) {
        let mut entries = vec![1, 2];
        for _ in 0..depth {
            entries.extend([4, 3]);
        }
        entries.extend(vec![0; depth + 2]);
        let info = one_unit(&entries);
        // Behind the unit's own entry, of one byte.
        let record = info.len() - entries.len() + 1;
        let dwarf = dwarf_of(info, ABBREVIATIONS.to_vec());
        let unit = LoadedUnit::first_of(dwarf).expect("a unit");
        (unit, record)
    }

    #[test]
    fn variants_are_read_up_to_a_depth() {
        for (depth, found) in [(1, 1), (3, 3), (20_000, MAX_DEPTH as usize + 1)] {
            let (unit, record) = nested_variants(depth);
            let mut entries = Vec::new();
            collect_members(&unit, record, 0, &mut entries).expect("sound entries");
            assert_eq!(entries.len(), found, "{depth}");
        }
    }

    #[test]
    fn members_are_read_up_to_a_number() {
        let mut entries = vec![1, 2];
        entries.extend(vec![4; MOST_MEMBERS + 1000]);
        entries.extend([0, 0]);
        let info = one_unit(&entries);
        let record = info.len() - entries.len() + 1;
        let unit = LoadedUnit::first_of(dwarf_of(info, ABBREVIATIONS.to_vec())).expect("a unit");
        let mut found = Vec::new();
        collect_members(&unit, record, 0, &mut found).expect("sound entries");
        assert_eq!(found.len(), MOST_MEMBERS);
    }

    /// What an expression of these bytes adds, as the place of a member.
    fn place_of_member(steps: &[u8]) -> Option<u64> {
        // A unit, and a member with its place in a block of one byte's length.
        let kinds = vec![1, 0x11, 1, 0, 0, 2, 0x0d, 0, 0x38, 0x0a, 0, 0, 0];
        let mut entries = vec![1, 2, steps.len() as u8];
        entries.extend(steps);
        entries.push(0);
        let info = one_unit(&entries);
        let member = info.len() - entries.len() + 1;
        let unit = LoadedUnit::first_of(dwarf_of(info, kinds)).expect("a unit");
        let entry = unit.entry(member).expect("a member");
        placement(&entry, Some(8)).map(|(offset, _)| offset)
    }

    #[test]
    fn a_place_may_be_an_expression_that_adds_a_number() {
        assert_eq!(place_of_member(&[0x23, 8]), Some(8));
        assert_eq!(place_of_member(&[0x23, 0x80, 1]), Some(128));
        // A virtual base; two numbers; a constant; damaged ones.
        let virtual_base = [0x12, 0x06, 0x48, 0x1c, 0x06, 0x22];
        let others: [&[u8]; 6] = [
            &virtual_base,
            &[0x23, 8, 0x23, 8],
            &[0x10, 8],
            &[0x23],
            &[0x23, 0x80],
            &[],
        ];
        for steps in others {
            assert_eq!(place_of_member(steps), None, "{steps:?}");
        }
    }
}
