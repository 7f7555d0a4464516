//! Names of entries with their scopes, and attributes that an entry has from its declaration or
//! origin.

use super::DebugInfo;
use super::sections::Attribute;
use super::unit::DieRef;
use crate::fold::shortened;
use gimli::constants as dw;

impl DebugInfo {
    /// The name of the entry `die` with its scopes: `ns::Type::member`,
    /// `function()::variable`. Declarations and origins are followed.
    pub(crate) fn qualified_name(&mut self, die: DieRef) -> Option<String> {
        let mut die = self.named(die)?;
        let mut parts = Vec::new();
        for _ in 0..MAX_SCOPES {
            let unit = self.unit(die.unit)?;
            let entry = unit.entry(die.offset)?;
            let name = entry.attr_value(dw::DW_AT_name).and_then(|n| unit.text(n));
            let function = entry.tag() == dw::DW_TAG_subprogram && !parts.is_empty();
            parts.push(match name {
                Some(name) if function => format!("{name}()"),
                Some(name) => name.to_owned(),
                None if entry.tag() == dw::DW_TAG_namespace => "(anonymous namespace)".to_owned(),
                None if parts.is_empty() => return None,
                // A type of a section that is not there.
                None if entry.attr(dw::DW_AT_signature).is_some() => return None,
                None => "(anonymous)".to_owned(),
            });
            let Some(scope) = self.index(die.unit)?.scope(die.offset) else {
                break;
            };
            let scope = DieRef {
                unit: die.unit,
                offset: scope,
            };
            die = self.named(scope).unwrap_or(scope);
        }
        parts.reverse();
        Some(shortened(&parts.join("::")).to_owned())
    }

    /// The entry that has the name of `die`: itself, the declaration that it defines, the abstract entry that
    /// it is a copy of, or the type in a section of its own that it stands for. The latter has the name alone
    /// where clang is the compiler.
    pub(crate) fn named(&self, mut die: DieRef) -> Option<DieRef> {
        for _ in 0..MAX_SCOPES {
            let entry = self.unit(die.unit)?.entry(die.offset)?;
            let by_signature = || {
                let unnamed = entry.attr(dw::DW_AT_name).is_none();
                entry.attr_value(dw::DW_AT_signature).filter(|_| unnamed)
            };
            let other = entry
                .attr_value(dw::DW_AT_specification)
                .or_else(|| entry.attr_value(dw::DW_AT_abstract_origin))
                .or_else(by_signature);
            match other.and_then(|o| self.resolve(die.unit, &o)) {
                Some(next) => die = next,
                None => return Some(die),
            }
        }
        None
    }

    /// The first value of attribute `name` among `die` and its origins, with the unit that has it.
    pub(crate) fn inherited(
        &self,
        mut die: DieRef,
        name: gimli::DwAt,
    ) -> Option<(DieRef, Attribute)> {
        for _ in 0..MAX_SCOPES {
            let entry = self.unit(die.unit)?.entry(die.offset)?;
            if let Some(value) = entry.attr_value(name) {
                return Some((die, value));
            }
            let other = entry
                .attr_value(dw::DW_AT_specification)
                .or_else(|| entry.attr_value(dw::DW_AT_abstract_origin))?;
            die = self.resolve(die.unit, &other)?;
        }
        None
    }
}

/// Scopes and origins nested deeper than this are taken for a cycle.
const MAX_SCOPES: usize = 32;
