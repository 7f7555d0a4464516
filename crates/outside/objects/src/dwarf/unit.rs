//! A unit of debug information, and the entries in it.

use super::index::UnitIndex;
use super::sections::{Attribute, Bytes, Dwarf, Unit, text_of};
use crate::fold::shortened;
use gimli::{AttributeValue, UnitOffset, constants as dw};
use std::path::PathBuf;
use std::sync::Arc;

/// An entry of the debug information: the number of its unit, and its offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct DieRef {
    pub(crate) unit: u32,
    pub(crate) offset: usize,
}

/// The language of a unit's source, in whose syntax its types are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Language {
    /// C.
    #[default]
    C,
    /// C++.
    Cpp,
    /// Rust.
    Rust,
    /// Go.
    Go,
    /// Fortran, whose arrays lie in memory by columns.
    Fortran,
    /// Another one, or none is stated. Types are written as in C.
    Other,
}

/// The section that a unit was read from; references by section offset stay within one section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Origin(pub(super) u32);

pub(super) const MAIN: Origin = Origin(0);
pub(super) const SUPPLEMENTARY: Origin = Origin(1);

/// A unit and the data that are needed to read it.
#[derive(Clone, Debug)]
pub(crate) struct LoadedUnit {
    pub(crate) dwarf: Arc<Dwarf>,
    pub(crate) unit: Arc<Unit>,
    /// For a split unit, the unit in the main file, which has the line table.
    pub(crate) skeleton: Option<(Arc<Dwarf>, Arc<Unit>)>,
    pub(super) origin: Origin,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) index: Option<Arc<UnitIndex>>,
    /// See [`super::nesting`]; `None` until first needed.
    pub(super) is_deep: Option<bool>,
}

/// An entry with its attributes.
pub(crate) type LoadedEntry = gimli::DebuggingInformationEntry<Bytes>;

impl LoadedUnit {
    /// The text of `attribute`, a name; see [`crate::fold::LONGEST_NAME`].
    pub(crate) fn text(&self, attribute: Attribute) -> Option<&'static str> {
        let text = shortened(text_of(self.dwarf.attr_string(&self.unit, attribute).ok()?));
        (!text.is_empty()).then_some(text)
    }

    /// The first unit of `dwarf`, as if it were a module's only one.
    #[cfg(test)]
    pub(crate) fn first_of(dwarf: Dwarf) -> Option<Self> {
        let header = dwarf.units().next().ok()??;
        Some(Self {
            unit: Arc::new(dwarf.unit(header).ok()?),
            start: 0,
            end: header.length_including_self(),
            dwarf: Arc::new(dwarf),
            skeleton: None,
            origin: MAIN,
            index: None,
            is_deep: None,
        })
    }

    /// The source file with `number` in the unit's line table.
    pub(crate) fn file(&self, number: u64) -> Option<String> {
        // A split unit's file numbers belong to its own `.debug_line.dwo`
        // where there is one, else to the skeleton's table.
        let own = (&self.dwarf, &self.unit);
        let (dwarf, unit) = match (&self.skeleton, &self.unit.line_program) {
            (Some((dwarf, unit)), None) => (dwarf, unit),
            _ => own,
        };
        let header = unit.line_program.as_ref()?.header();
        let file = header.file(number)?;
        let mut path = PathBuf::new();
        if let Some(dir) = unit.comp_dir {
            path.push(text_of(dir));
        }
        let dir = file
            .directory(header)
            .and_then(|d| dwarf.attr_string(unit, d).ok());
        if let Some(dir) = dir {
            path.push(text_of(dir));
        }
        path.push(text_of(dwarf.attr_string(unit, file.path_name()).ok()?));
        path.to_str().map(str::to_owned)
    }

    /// The value of a non-negative constant attribute.
    pub(crate) fn number(entry: &LoadedEntry, name: gimli::DwAt) -> Option<u64> {
        entry.attr(name)?.udata_value()
    }

    /// The value of a constant attribute.
    pub(crate) fn signed(entry: &LoadedEntry, name: gimli::DwAt) -> Option<i64> {
        entry.attr(name)?.sdata_value()
    }

    /// The entry at `offset` of the unit.
    pub(crate) fn entry(&self, offset: usize) -> Option<LoadedEntry> {
        self.unit.entry(UnitOffset(offset)).ok()
    }

    /// Calls `visit` for each direct child of the entry at `offset`.
    pub(crate) fn for_each_child(
        &self,
        offset: usize,
        mut visit: impl FnMut(&LoadedEntry),
    ) -> Result<(), gimli::Error> {
        let mut entries = self.unit.entries_at_offset(UnitOffset(offset))?;
        entries.next_entry()?;
        let parent = entries.current().map_or(0, |e| e.depth());
        let has_children = entries.current().is_some_and(|e| e.has_children());
        if !has_children {
            return Ok(());
        }
        entries.next_entry()?;
        loop {
            match entries.current() {
                Some(entry) if entry.depth() > parent => visit(entry),
                _ => return Ok(()),
            }
            if entries.next_sibling()?.is_none() {
                return Ok(());
            }
        }
    }

    /// The language of the unit's source.
    pub(crate) fn language(&self) -> Language {
        match self.language_as_stated() {
            Language::C | Language::Cpp if self.is_made_of_another() => Language::Other,
            stated => stated,
        }
    }

    /// Whether the source is not what the unit states: Zig's compiler calls its own language C, and Nim's makes
    /// C or C++ that nobody edits.
    fn is_made_of_another(&self) -> bool {
        let text = |name| {
            let root = self.entry(self.unit.header.root_offset().0)?;
            self.text(root.attr_value(name)?)
        };
        let by_zig = |producer: &str| producer.starts_with("zig ");
        let by_nim = |file: &str| file.ends_with(".nim.c") || file.ends_with(".nim.cpp");
        text(dw::DW_AT_producer).is_some_and(by_zig) || text(dw::DW_AT_name).is_some_and(by_nim)
    }

    fn language_as_stated(&self) -> Language {
        match self.stated_language() {
            Some(
                dw::DW_LANG_C_plus_plus
                | dw::DW_LANG_C_plus_plus_03
                | dw::DW_LANG_C_plus_plus_11
                | dw::DW_LANG_C_plus_plus_14
                | dw::DW_LANG_C_plus_plus_17
                | dw::DW_LANG_C_plus_plus_20,
            ) => Language::Cpp,
            Some(dw::DW_LANG_Rust) => Language::Rust,
            Some(dw::DW_LANG_Go) => Language::Go,
            Some(
                dw::DW_LANG_C89
                | dw::DW_LANG_C
                | dw::DW_LANG_C99
                | dw::DW_LANG_C11
                | dw::DW_LANG_C17,
            ) => Language::C,
            Some(
                dw::DW_LANG_Fortran77
                | dw::DW_LANG_Fortran90
                | dw::DW_LANG_Fortran95
                | dw::DW_LANG_Fortran03
                | dw::DW_LANG_Fortran08
                | dw::DW_LANG_Fortran18,
            ) => Language::Fortran,
            _ => Language::Other,
        }
    }

    /// The index of the first element of an array that states none (DWARF 5, table 7.17).
    pub(crate) fn first_index(&self) -> i64 {
        let language = self.stated_language();
        language
            .and_then(gimli::DwLang::default_lower_bound)
            .unwrap_or(0) as i64
    }

    /// The language as the unit states it. The skeleton of a split unit does not; its split part does.
    fn stated_language(&self) -> Option<gimli::DwLang> {
        let root = self.unit.header.root_offset().0;
        match self.entry(root)?.attr_value(dw::DW_AT_language)? {
            AttributeValue::Language(language) => Some(language),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dwarf::made::{dwarf_of, one_unit};

    /// The language of a unit that states this producer, number of a language, and name of a file.
    fn language(producer: &str, stated: u8, file: &str) -> Language {
        let kinds = vec![
            1, 0x11, 0, 0x25, 0x08, 0x13, 0x0b, 0x03, 0x08, 0, 0, //
            0,
        ];
        let mut entries = vec![1];
        entries.extend(producer.bytes().chain([0, stated]));
        entries.extend(file.bytes().chain([0]));
        let unit = LoadedUnit::first_of(dwarf_of(one_unit(&entries), kinds)).expect("a unit");
        unit.language()
    }

    #[test]
    fn what_is_stated_as_c_may_be_made_of_another_language() {
        let (c99, cpp) = (0x0c, 0x04);
        assert_eq!(language("zig 0.15.1", c99, "root"), Language::Other);
        let gcc = "GNU C17 12.2.0";
        let made = "/tmp/nim/@mcount.nim.c";
        assert_eq!(language(gcc, c99, made), Language::Other);
        let made = "/tmp/nim/@mcount.nim.cpp";
        assert_eq!(language("GNU C++17", cpp, made), Language::Other);
        assert_eq!(language(gcc, c99, "nim.c"), Language::C);
        // As `zig cc` says of C.
        assert_eq!(language("clang version 20.1.2", c99, "a.c"), Language::C);
        assert_eq!(language("GNU C++17", cpp, "a.cpp"), Language::Cpp);
    }
}
