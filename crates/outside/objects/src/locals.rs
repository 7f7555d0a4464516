//! A function's parameters and local variables with the registers and frame slots that hold them,
//! inlined functions included. Read at the first query about an instruction of the function; called
//! by [`crate::flow`], and by [`crate::frame`] for the variables of stack frames.

use crate::dwarf::{Attribute, Bytes, DebugInfo, DieRef, LoadedEntry, LoadedUnit, ranges_of};
use crate::fold::is_library_file;
use crate::types::{TypeId, TypeTable};
use gimli::{AttributeValue, Expression, Operation, UnitOffset, constants as dw};
use std::collections::HashMap;

/// The location of a variable, or of a piece of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// In this register (x86-64 encoding number).
    Register(usize),
    /// Its value is this register plus a constant.
    Sum(usize, i64),
    /// In memory at this register plus a constant.
    Memory(usize, i64),
    /// In memory at this offset from the canonical frame address.
    Frame(i64),
    /// In memory at the address that is stored at this offset from the canonical frame address, as
    /// for parameters passed by invisible reference.
    FrameIndirect(i64),
}

/// A variable, or a piece of one, in a range of code.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    pub(crate) name: &'static str,
    pub(crate) ty: TypeId,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) place: Location,
    /// Offset of the piece in the variable, in bytes.
    pub(crate) piece: u64,
    /// Whether the location holds the whole variable, not a piece.
    pub(crate) whole: bool,
    /// Whether it is a parameter.
    pub(crate) parameter: bool,
    /// Its entry, in the function's unit.
    pub(crate) entry: usize,
    /// How deeply nested the block or inlined function is.
    pub(crate) depth: isize,
    /// How many inlined functions it is in.
    pub(crate) inlined: u8,
    /// Whether it is declared by a language's library.
    pub(crate) librarys: bool,
}

impl Local {
    /// The name by which a reader may know what the variable points to. What a library calls its
    /// parameters (`f`, `ptr`) says nothing about the user's data.
    pub(crate) const fn telling_name(&self) -> &'static str {
        if self.librarys { "" } else { self.name }
    }
}

/// A part of a variable with a location of its own.
#[derive(Clone, Copy)]
struct Piece {
    place: Location,
    /// Offset in the variable, in bytes.
    at: u64,
    whole: bool,
}

#[derive(Clone, Copy)]
enum FrameBase {
    Cfa,
    Register(usize, i64),
    Unknown,
}

/// A function with more variables is not analysed: it is generated code, and the analysis would
/// cost more than the names are worth.
const MAX_LOCALS: usize = 20_000;

/// Bytes of a register that can hold an address.
const REGISTER: u64 = 8;

/// The variables of the function at `die`, those of the innermost inlined functions first, but
/// those of a library after the user's.
pub(crate) fn read(debug: &mut DebugInfo, types: &mut TypeTable, die: DieRef) -> Vec<Local> {
    let Some(unit) = debug.unit(die.unit).cloned() else {
        return Vec::new();
    };
    let mut reader = Reader {
        debug,
        types,
        unit: &unit,
        number: die.unit,
        base: FrameBase::Unknown,
        found: Vec::new(),
        files: HashMap::new(),
    };
    let _ = reader.walk(die.offset);
    let mut found = reader.found;
    // A variable in a register counts more than one whose value the compiler can compute from
    // that register.
    let computed = |l: &Local| matches!(l.place, Location::Sum(..));
    found.sort_by_key(|l| {
        let library = l.librarys && l.inlined > 0;
        (library, computed(l), std::cmp::Reverse(l.depth))
    });
    found
}

struct Reader<'a> {
    debug: &'a mut DebugInfo,
    types: &'a mut TypeTable,
    unit: &'a LoadedUnit,
    number: u32,
    base: FrameBase,
    found: Vec<Local>,
    /// Whether source files, by unit and number, belong to a library.
    files: HashMap<(u32, u64), bool>,
}

impl Reader<'_> {
    fn walk(&mut self, offset: usize) -> Result<(), gimli::Error> {
        let unit = self.unit.unit.clone();
        let mut entries = unit.entries_at_offset(UnitOffset(offset))?;
        entries.next_entry()?;
        let Some(root) = entries.current() else {
            return Ok(());
        };
        let top = root.depth();
        self.base = self.frame_base(root);
        // The code ranges of the enclosing blocks, by depth.
        let mut scopes: Vec<(isize, Vec<(u64, u64)>)> = vec![(top, self.ranges(root))];
        // The enclosing inlined functions: their depths and entries.
        let mut inlined: Vec<(isize, usize)> = Vec::new();
        let mut skip_below: Option<isize> = None;
        entries.next_entry()?;
        while let Some(entry) = entries.current() {
            let depth = entry.depth();
            if depth <= top || self.found.len() > MAX_LOCALS {
                break;
            }
            if skip_below.is_some_and(|s| depth <= s) {
                skip_below = None;
            }
            // Depths ascend, and a file may nest blocks without end.
            scopes.truncate(scopes.partition_point(|s| s.0 < depth));
            inlined.truncate(inlined.partition_point(|&(d, _)| d < depth));
            if skip_below.is_none() {
                match entry.tag() {
                    dw::DW_TAG_lexical_block | dw::DW_TAG_inlined_subroutine => {
                        scopes.push((depth, self.ranges(entry)));
                        if entry.tag() == dw::DW_TAG_inlined_subroutine {
                            inlined.push((depth, entry.offset().0));
                        }
                    }
                    dw::DW_TAG_formal_parameter | dw::DW_TAG_variable => {
                        let entry = entry.clone();
                        if let Some(scope) = scopes.last() {
                            let level = u8::try_from(inlined.len()).unwrap_or(u8::MAX);
                            let function = inlined.last().map_or(offset, |&(_, at)| at);
                            self.variable(&entry, &scope.1, (depth, level, function));
                        }
                    }
                    // Functions and types declared inside have frames of their own.
                    dw::DW_TAG_subprogram
                    | dw::DW_TAG_structure_type
                    | dw::DW_TAG_class_type
                    | dw::DW_TAG_union_type => skip_below = Some(depth),
                    _ => {}
                }
            }
            if entries.next_dfs()?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn ranges(&self, entry: &LoadedEntry) -> Vec<(u64, u64)> {
        ranges_of(&self.unit.dwarf, &self.unit.unit, entry).collect()
    }

    fn frame_base(&self, entry: &LoadedEntry) -> FrameBase {
        let Some(AttributeValue::Exprloc(expression)) = entry.attr_value(dw::DW_AT_frame_base)
        else {
            return FrameBase::Unknown;
        };
        match expression.operations(self.unit.unit.encoding()).next() {
            Ok(Some(Operation::CallFrameCFA)) => FrameBase::Cfa,
            Ok(Some(Operation::Register { register })) => match encoding_number(register.0) {
                Some(number) => FrameBase::Register(number, 0),
                None => FrameBase::Unknown,
            },
            Ok(Some(Operation::RegisterOffset {
                register, offset, ..
            })) => match encoding_number(register.0) {
                Some(number) => FrameBase::Register(number, offset),
                None => FrameBase::Unknown,
            },
            _ => FrameBase::Unknown,
        }
    }

    fn variable(
        &mut self,
        entry: &LoadedEntry,
        scope: &[(u64, u64)],
        (depth, inlined, function): (isize, u8, usize),
    ) {
        let Some(location) = entry.attr_value(dw::DW_AT_location) else {
            return;
        };
        let places = self.places(&location, scope);
        if places.is_empty() {
            return;
        }
        let die = DieRef {
            unit: self.number,
            offset: entry.offset().0,
        };
        let Some((typed, ty)) = self.debug.inherited(die, dw::DW_AT_type) else {
            return;
        };
        let Some(ty) = self.debug.resolve(typed.unit, &ty) else {
            return;
        };
        let Some(ty) = self.types.load(self.debug, ty, 0) else {
            return;
        };
        let name = self
            .debug
            .inherited(die, dw::DW_AT_name)
            .and_then(|(at, value)| self.debug.unit(at.unit)?.text(value));
        // The compiler declares `this` in no file.
        let function = DieRef {
            unit: self.number,
            offset: function,
        };
        let declared = self.is_librarys(die);
        let librarys = declared.or_else(|| self.is_librarys(function)) == Some(true);
        // Go's compiler says of an interface that one register holds it, although that holds its data only.
        let plain = self.types.plain(ty);
        let wide = self.types.size(plain).is_some_and(|size| size > REGISTER);
        let is_told = |piece: &Piece| {
            let in_one = matches!(piece.place, Location::Register(_) | Location::Sum(..));
            !(wide && piece.whole && in_one)
        };
        let places = places.into_iter().filter(|(.., piece)| is_told(piece));
        for (begin, end, Piece { place, at, whole }) in places {
            self.found.push(Local {
                name: name.unwrap_or(""),
                ty,
                begin,
                end,
                place,
                piece: at,
                whole,
                parameter: entry.tag() == dw::DW_TAG_formal_parameter,
                entry: die.offset,
                depth,
                inlined,
                librarys,
            });
        }
    }

    /// Whether the file that declares `die` belongs to a language's library; `None` if there is none.
    fn is_librarys(&mut self, die: DieRef) -> Option<bool> {
        let (at, value) = self.debug.inherited(die, dw::DW_AT_decl_file)?;
        let number = match value {
            AttributeValue::FileIndex(number) => number,
            other => other.udata_value()?,
        };
        let debug = &*self.debug;
        let is_librarys = self.files.entry((at.unit, number)).or_insert_with(|| {
            let file = debug.unit(at.unit).and_then(|unit| unit.file(number));
            file.is_some_and(|file| is_library_file(&file))
        });
        Some(*is_librarys)
    }

    fn places(&self, location: &Attribute, scope: &[(u64, u64)]) -> Vec<(u64, u64, Piece)> {
        let mut all = Vec::new();
        if let AttributeValue::Exprloc(expression) = location {
            for piece in self.pieces(*expression) {
                all.extend(scope.iter().map(|&(begin, end)| (begin, end, piece)));
            }
            return all;
        }
        if let Ok(Some(mut list)) = self.unit.dwarf.attr_locations(&self.unit.unit, *location) {
            while let Ok(Some(entry)) = list.next() {
                for piece in self.pieces(entry.data) {
                    all.push((entry.range.begin, entry.range.end, piece));
                }
            }
        }
        all
    }

    /// The pieces in `expression` that have locations.
    fn pieces(&self, expression: Expression<Bytes>) -> Vec<Piece> {
        let mut operations = expression.operations(self.unit.unit.encoding());
        let mut found = Vec::new();
        let mut current = Vec::new();
        let mut at = 0;
        while let Ok(Some(operation)) = operations.next() {
            match operation {
                Operation::Piece { size_in_bits, .. } => {
                    found.extend(self.place(&current).map(|place| Piece {
                        place,
                        at,
                        whole: false,
                    }));
                    at = (size_in_bits / 8).saturating_add(at);
                    current.clear();
                }
                other => current.push(other),
            }
        }
        found.extend(self.place(&current).map(|place| Piece {
            place,
            at,
            whole: at == 0,
        }));
        found
    }

    fn place(&self, operations: &[Operation<Bytes>]) -> Option<Location> {
        let number = |register: &gimli::Register| encoding_number(register.0);
        match operations {
            [Operation::Register { register }] => Some(Location::Register(number(register)?)),
            [
                Operation::RegisterOffset {
                    register, offset, ..
                },
            ] => Some(Location::Memory(number(register)?, *offset)),
            [
                Operation::RegisterOffset {
                    register, offset, ..
                },
                Operation::StackValue,
            ] => Some(Location::Sum(number(register)?, *offset)),
            [Operation::FrameOffset { offset }] => Some(match self.base {
                FrameBase::Cfa => Location::Frame(*offset),
                FrameBase::Register(register, more) => {
                    Location::Memory(register, offset.wrapping_add(more))
                }
                FrameBase::Unknown => return None,
            }),
            [Operation::CallFrameCFA] => Some(Location::Frame(0)),
            [Operation::FrameOffset { offset }, Operation::Deref { .. }] => match self.base {
                FrameBase::Cfa => Some(Location::FrameIndirect(*offset)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The encoding number of a general register from its DWARF number (System V
/// ABI, AMD64 supplement, figure 3.36).
fn encoding_number(dwarf: u16) -> Option<usize> {
    const ORDER: [usize; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
    ORDER.get(usize::from(dwarf)).copied()
}
