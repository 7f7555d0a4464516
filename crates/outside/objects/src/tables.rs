//! The debug information of a module and the tables of its types and variables, without the
//! analyses that are made of them.

use crate::dwarf::{DebugInfo, DieRef, StaticLocation};
use crate::globals::{Globals, Variable};
use crate::image::Image;
use crate::options::NameOptions;
use crate::types::TypeTable;
use sunder_access::LinkAddress;

/// See the module's head.
pub(crate) struct Tables {
    pub(crate) info: DebugInfo,
    pub(crate) types: TypeTable,
    globals: Globals,
    /// The lowest and the highest link address of the module.
    span: (u64, u64),
}

impl Tables {
    /// Loads the debug information of `image`; reports missing parts in `limits`.
    pub(crate) fn load(
        image: &Image,
        options: &NameOptions,
        limits: &mut Vec<String>,
    ) -> Option<Self> {
        Some(Self {
            info: DebugInfo::load(image, options, limits)?,
            types: TypeTable::default(),
            globals: Globals::default(),
            span: image.span(),
        })
    }

    /// The variable with static storage that holds `place`.
    pub(crate) fn variable(
        &mut self,
        place: StaticLocation,
        limits: &mut Vec<String>,
    ) -> Option<Variable> {
        let Self {
            info,
            types,
            globals,
            span,
            ..
        } = self;
        globals.at(place, *span, info, types, limits)
    }

    /// The function at `address`: its entry and code range.
    pub(crate) fn function(
        &mut self,
        address: LinkAddress,
        limits: &mut Vec<String>,
    ) -> Option<(DieRef, u64, u64)> {
        for unit in self.info.units_at(address, limits) {
            let index = self.info.index(unit)?;
            if let Some((begin, end, offset)) = index.function(address.0) {
                return Some((DieRef { unit, offset }, begin, end));
            }
        }
        None
    }

    /// The inlined functions around `address`, outermost first.
    pub(crate) fn inlined_at(
        &mut self,
        address: LinkAddress,
        limits: &mut Vec<String>,
    ) -> Vec<Inlined> {
        let Some((die, ..)) = self.function(address, limits) else {
            return Vec::new();
        };
        let Self { info, types, .. } = self;
        let found = info.inlined_at(die, address.0);
        let with_type = |(ranges, returns): (_, Option<DieRef>)| Inlined {
            ranges,
            raw: returns
                .and_then(|ty| types.load(info, ty, 0))
                .is_some_and(|ty| types.is_raw_pointer(info, ty)),
        };
        found.into_iter().map(with_type).collect()
    }

    /// Whether the function at `address` never returns, according to its declaration.
    pub(crate) fn never_returns(&mut self, address: LinkAddress, limits: &mut Vec<String>) -> bool {
        let Some((die, begin, _)) = self.function(address, limits) else {
            return false;
        };
        begin == address.0 && self.info.inherited(die, gimli::DW_AT_noreturn).is_some()
    }
}

/// A function that is inlined into another.
pub(crate) struct Inlined {
    /// Its code, as first address and the one after the last.
    pub(crate) ranges: Vec<(u64, u64)>,
    /// Whether it returns a pointer to memory without a type.
    pub(crate) raw: bool,
}
