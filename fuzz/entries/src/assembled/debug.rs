//! Debug information after DWARF, versions 2 to 5: a tree of entries whose tags, attributes and
//! references the input chooses. A type may so be made of itself, a function lie within its own
//! variable, and a list of ranges go backwards.

use crate::input::Input;
use gimli::write::{
    Address, AttributeValue, DwarfUnit, EndianVec, Expression, LineProgram, LineString, Location,
    LocationList, Range, RangeList, Sections, UnitEntryId,
};
use gimli::{
    DwAt, DwAte, DwLang, DwTag, Encoding, Format, LineEncoding, LittleEndian, Register,
    constants as is,
};

/// The most entries, attributes of one, and parts of a list.
const MOST_ENTRIES: u8 = 96;
const MOST_ATTRIBUTES: u8 = 8;
const MOST_PARTS: u8 = 8;
/// The most rows of the table of lines.
const MOST_ROWS: u8 = 32;

/// Those that our readers know, and one that they don't.
const TAGS: [DwTag; 28] = [
    is::DW_TAG_structure_type,
    is::DW_TAG_member,
    is::DW_TAG_variable,
    is::DW_TAG_subprogram,
    is::DW_TAG_array_type,
    is::DW_TAG_subrange_type,
    is::DW_TAG_base_type,
    is::DW_TAG_pointer_type,
    is::DW_TAG_union_type,
    is::DW_TAG_class_type,
    is::DW_TAG_inheritance,
    is::DW_TAG_typedef,
    is::DW_TAG_const_type,
    is::DW_TAG_volatile_type,
    is::DW_TAG_restrict_type,
    is::DW_TAG_atomic_type,
    is::DW_TAG_reference_type,
    is::DW_TAG_rvalue_reference_type,
    is::DW_TAG_enumeration_type,
    is::DW_TAG_namespace,
    is::DW_TAG_lexical_block,
    is::DW_TAG_inlined_subroutine,
    is::DW_TAG_formal_parameter,
    is::DW_TAG_variant_part,
    is::DW_TAG_variant,
    is::DW_TAG_template_type_parameter,
    is::DW_TAG_call_site,
    is::DW_TAG_label,
];

pub(super) const ATTRIBUTES: [DwAt; 28] = [
    is::DW_AT_type,
    is::DW_AT_name,
    is::DW_AT_byte_size,
    is::DW_AT_location,
    is::DW_AT_data_member_location,
    is::DW_AT_low_pc,
    is::DW_AT_high_pc,
    is::DW_AT_ranges,
    is::DW_AT_specification,
    is::DW_AT_abstract_origin,
    is::DW_AT_upper_bound,
    is::DW_AT_count,
    is::DW_AT_frame_base,
    is::DW_AT_declaration,
    is::DW_AT_external,
    is::DW_AT_linkage_name,
    is::DW_AT_encoding,
    is::DW_AT_data_bit_offset,
    is::DW_AT_bit_size,
    is::DW_AT_bit_offset,
    is::DW_AT_call_file,
    is::DW_AT_call_line,
    is::DW_AT_decl_file,
    is::DW_AT_decl_line,
    is::DW_AT_language,
    is::DW_AT_noreturn,
    is::DW_AT_signature,
    is::DW_AT_alignment,
];

/// The sections; none if the input asks for what the format can't say.
pub fn sections(input: &mut Input<'_>) -> Vec<(&'static str, Vec<u8>)> {
    let choice = input.byte();
    let encoding = Encoding {
        format: if choice & 4 == 0 {
            Format::Dwarf32
        } else {
            Format::Dwarf64
        },
        version: 2 + u16::from(choice % 4),
        address_size: 8,
    };
    let mut dwarf = DwarfUnit::new(encoding);
    lines(input, &mut dwarf, encoding);
    let entries = tree(input, &mut dwarf);
    for &entry in &entries {
        for _ in 0..input.byte() % MOST_ATTRIBUTES {
            let name = ATTRIBUTES[usize::from(input.byte()) % ATTRIBUTES.len()];
            let value = value(input, &mut dwarf, &entries, name);
            dwarf.unit.get_mut(entry).set(name, value);
        }
    }
    let mut sections = Sections::new(EndianVec::new(LittleEndian));
    if dwarf.write(&mut sections).is_err() {
        return Vec::new();
    }
    let mut all = Vec::new();
    let done: gimli::write::Result<()> = sections.for_each(|id, bytes| {
        all.push((id.name(), bytes.slice().to_vec()));
        Ok(())
    });
    done.map_or(Vec::new(), |()| all)
}

/// The entries, each below one that came before it.
fn tree(input: &mut Input<'_>, dwarf: &mut DwarfUnit) -> Vec<UnitEntryId> {
    let root = dwarf.unit.root();
    let languages = [
        is::DW_LANG_C11,
        is::DW_LANG_C_plus_plus_14,
        is::DW_LANG_Rust,
    ];
    let language: DwLang = languages[usize::from(input.byte()) % languages.len()];
    let unit = dwarf.unit.get_mut(root);
    unit.set(is::DW_AT_language, AttributeValue::Language(language));
    let (low, size) = (Address::Constant(0x1000), AttributeValue::Udata(0x1000));
    unit.set(is::DW_AT_low_pc, AttributeValue::Address(low));
    unit.set(is::DW_AT_high_pc, size);
    let mut entries = vec![root];
    for _ in 0..input.byte() % MOST_ENTRIES {
        let parent = match input.byte() {
            // The last one, so that some are nested deeply.
            0..64 => entries.len() - 1,
            64..128 => 0,
            any => usize::from(any) % entries.len(),
        };
        let tag = TAGS[usize::from(input.byte()) % TAGS.len()];
        entries.push(dwarf.unit.add(entries[parent], tag));
    }
    entries
}

/// The value of an attribute: mostly of the kind that belongs to it.
fn value(
    input: &mut Input<'_>,
    dwarf: &mut DwarfUnit,
    entries: &[UnitEntryId],
    name: DwAt,
) -> AttributeValue {
    let kind = input.byte();
    let reference = |at: u8| AttributeValue::UnitRef(entries[usize::from(at) % entries.len()]);
    if kind >= 32 {
        match name {
            is::DW_AT_type | is::DW_AT_specification | is::DW_AT_abstract_origin => {
                return reference(input.byte());
            }
            is::DW_AT_name | is::DW_AT_linkage_name => return text(input),
            is::DW_AT_low_pc => return AttributeValue::Address(address(input)),
            is::DW_AT_location if kind < 192 => {
                return AttributeValue::Exprloc(expression(input));
            }
            is::DW_AT_frame_base => return AttributeValue::Exprloc(expression(input)),
            is::DW_AT_encoding => return AttributeValue::Encoding(DwAte(input.byte())),
            is::DW_AT_declaration | is::DW_AT_external | is::DW_AT_noreturn => {
                return AttributeValue::Flag(kind.is_multiple_of(2));
            }
            is::DW_AT_ranges => {
                let version = dwarf.unit.encoding().version;
                let list = RangeList(
                    (0..input.byte() % MOST_PARTS)
                        .map(|_| range(input, version))
                        .collect(),
                );
                return AttributeValue::RangeListRef(dwarf.unit.ranges.add(list));
            }
            is::DW_AT_location => {
                let version = dwarf.unit.encoding().version;
                let list = (0..input.byte() % MOST_PARTS).map(|_| location(input, version));
                let list = LocationList(list.collect());
                return AttributeValue::LocationListRef(dwarf.unit.locations.add(list));
            }
            _ => return AttributeValue::Udata(input.extended(1, 8)),
        }
    }
    match kind % 8 {
        0 => reference(input.byte()),
        1 => text(input),
        2 => AttributeValue::Address(address(input)),
        3 => AttributeValue::Exprloc(expression(input)),
        4 => AttributeValue::Sdata(input.extended(1, 8) as i64),
        5 => AttributeValue::Data8(input.extended(1, 8)),
        6 => AttributeValue::FlagPresent,
        _ => {
            let length = usize::from(input.byte() % 32);
            AttributeValue::Block(input.take(length).to_vec())
        }
    }
}

/// A name; with zeroes in it, the rest is read as something else.
fn text(input: &mut Input<'_>) -> AttributeValue {
    let length = usize::from(input.byte() % 16);
    let text = input.take(length).iter().copied();
    AttributeValue::String(text.filter(|&byte| byte != 0).collect())
}

/// Mostly one in what is loaded.
fn address(input: &mut Input<'_>) -> Address {
    Address::Constant(match input.number(2) {
        0xffff => input.number(8),
        near => near & 0x3fff,
    })
}

fn expression(input: &mut Input<'_>) -> Expression {
    let mut made = Expression::new();
    for _ in 0..1 + input.byte() % 3 {
        match input.byte() % 12 {
            0..3 => made.op_addr(address(input)),
            3 | 4 => made.op_fbreg(i64::from(input.byte() as i8)),
            5 => made.op(is::DW_OP_call_frame_cfa),
            6 => made.op_plus_uconst(input.extended(1, 8)),
            7 => made.op_breg(Register(u16::from(input.byte())), i64::from(input.byte())),
            8 => {
                made.op_constu(input.extended(1, 8));
                made.op(is::DW_OP_form_tls_address);
            }
            9 => made.op_deref(),
            10 => made.op_piece(input.extended(1, 8)),
            _ => {
                let length = usize::from(input.byte() % 16);
                return Expression::raw(input.take(length).to_vec());
            }
        }
    }
    made
}

fn range(input: &mut Input<'_>, version: u16) -> Range {
    match input.byte() % 3 {
        0 => Range::BaseAddress {
            address: address(input),
        },
        1 => Range::OffsetPair {
            begin: input.extended(1, 8),
            end: input.extended(1, 8),
        },
        _ if version < 5 => Range::StartEnd {
            begin: address(input),
            end: address(input),
        },
        _ => Range::StartLength {
            begin: address(input),
            length: input.extended(1, 8),
        },
    }
}

fn location(input: &mut Input<'_>, version: u16) -> Location {
    match range(input, version) {
        Range::BaseAddress { address } => Location::BaseAddress { address },
        Range::OffsetPair { begin, end } => Location::OffsetPair {
            begin,
            end,
            data: expression(input),
        },
        Range::StartLength { begin, length } => Location::StartLength {
            begin,
            length,
            data: expression(input),
        },
        Range::StartEnd { begin, end } => Location::StartEnd {
            begin,
            end,
            data: expression(input),
        },
    }
}

/// The table of lines, unless the input begins with an odd byte.
fn lines(input: &mut Input<'_>, dwarf: &mut DwarfUnit, encoding: Encoding) {
    if !input.byte().is_multiple_of(2) {
        return;
    }
    let text = |text: &[u8]| LineString::String(text.to_vec());
    let (folder, file) = (text(b"/src"), text(b"a.c"));
    let how = LineEncoding::default();
    let mut program = LineProgram::new(encoding, how, folder, None, file, None);
    let folder = program.default_directory();
    let other = program.add_file(text(b"../b.c"), folder, None);
    program.begin_sequence(Some(address(input)));
    let mut at = 0u64;
    for _ in 0..input.byte() % MOST_ROWS {
        at = at.saturating_add(input.number(1));
        let row = program.row();
        row.address_offset = at;
        row.file = other;
        // `gimli` can't write the difference of two lines that are further apart.
        row.line = input.extended(1, 8) & i64::MAX as u64;
        program.generate_row();
    }
    program.end_sequence(at.saturating_add(input.extended(1, 8)));
    dwarf.unit.line_program = program;
    let root = dwarf.unit.root();
    let unit = dwarf.unit.get_mut(root);
    unit.set(is::DW_AT_stmt_list, AttributeValue::LineProgramRef);
}
