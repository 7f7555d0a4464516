//! Variables with static storage: the one that holds an address, with its name, type and
//! declaration. Entries are read in full only when their address matches.
//!
//! Walking all entries of a large program takes longer than many a program runs. But the location
//! of a variable contains its address in plain bytes. So a search through the bytes finds numbers
//! that may be the address, and only the units that contain one are walked.

use crate::answer::Declared;
use crate::dwarf::{DebugInfo, DieRef, Language, StaticLocation};
use crate::types::{TypeId, TypeTable};
use gimli::constants as dw;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A variable with static storage.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Variable {
    /// Qualified name.
    pub(crate) name: String,
    #[serde(skip)]
    pub(crate) ty: TypeId,
    pub(crate) size: u64,
    /// Link address, or offset in the TLS block.
    pub(crate) start: u64,
    pub(crate) declared: Option<Declared>,
}

/// Variables of a module, by address.
#[derive(Debug, Default)]
pub(crate) struct Globals {
    /// Numbers that may be addresses of variables, with the unit of each; `None` until first
    /// needed.
    places: Option<Vec<(u64, u32)>>,
    /// The units that were walked because of such a number.
    walked: BTreeSet<u32>,
    /// Variables at fixed addresses, of the units that were walked.
    fixed: Vec<(u64, DieRef)>,
    /// Thread-local variables of all units; `None` until first needed.
    tls: Option<Vec<(u64, DieRef)>>,
}

/// How many variables that start at or below an address are tried: aliases and empty ones share a
/// start.
const TRIED: usize = 6;
/// How many numbers that may be their addresses are tried: other bytes may look like one.
const PLACES: usize = 4 * TRIED;

impl Globals {
    /// The variable that holds the byte at `place`, in a module whose addresses lie in `span`.
    pub(crate) fn at(
        &mut self,
        place: StaticLocation,
        span: (u64, u64),
        debug: &mut DebugInfo,
        types: &mut TypeTable,
        limits: &mut Vec<String>,
    ) -> Option<Variable> {
        let (table, wanted) = match place {
            StaticLocation::Address(address) => {
                if !(span.0..span.1).contains(&address) {
                    return None;
                }
                self.walk_near(address, span, debug, limits);
                (&self.fixed, address)
            }
            StaticLocation::Tls(offset) => {
                let all = self.tls.get_or_insert_with(|| thread_locals(debug, limits));
                (&*all, offset)
            }
        };
        let end = table.partition_point(|v| v.0 <= wanted);
        let near = &table[end.saturating_sub(TRIED)..end];
        near.iter().rev().find_map(|&(start, die)| {
            let variable = resolve(start, die, debug, types)?;
            (wanted - start < variable.size).then_some(variable)
        })
    }

    /// Walks the units that may have a variable at or just below `address`.
    fn walk_near(
        &mut self,
        address: u64,
        span: (u64, u64),
        debug: &mut DebugInfo,
        limits: &mut Vec<String>,
    ) {
        let places = self
            .places
            .get_or_insert_with(|| debug.address_like(span, limits));
        let end = places.partition_point(|p| p.0 <= address);
        let near = &places[end.saturating_sub(PLACES)..end];
        let mut more = false;
        for &(_, unit) in near {
            if self.walked.insert(unit)
                && let Some(index) = debug.index(unit)
            {
                more = true;
                for &(place, offset) in &index.variables {
                    if let StaticLocation::Address(address) = place {
                        self.fixed.push((address, DieRef { unit, offset }));
                    }
                }
            }
        }
        if more {
            self.fixed.sort_unstable();
        }
    }
}

/// The thread-local variables of all units, by offset.
fn thread_locals(debug: &mut DebugInfo, limits: &mut Vec<String>) -> Vec<(u64, DieRef)> {
    let mut all = Vec::new();
    for unit in 0..debug.unit_count(limits) {
        let Some(index) = debug.index(unit) else {
            continue;
        };
        let tls = index
            .variables
            .iter()
            .filter_map(|&(place, at)| match place {
                StaticLocation::Tls(offset) => Some((offset, DieRef { unit, offset: at })),
                StaticLocation::Address(_) => None,
            });
        all.extend(tls);
    }
    all.sort_unstable();
    all
}

fn resolve(
    start: u64,
    die: DieRef,
    debug: &mut DebugInfo,
    types: &mut TypeTable,
) -> Option<Variable> {
    let (typed, attribute) = debug.inherited(die, dw::DW_AT_type)?;
    // A definition may complete the type of its declaration (`extern int a[]`); the definition is
    // found first.
    let ty = debug.resolve(typed.unit, &attribute)?;
    let ty = types.load(debug, ty, 0)?;
    let name = debug.qualified_name(die)?;
    let language = debug.unit(die.unit)?.language();
    Some(Variable {
        name: match language {
            Language::Rust => rust_name(&name),
            Language::Go => name,
            _ => crate::fold::cpp(&name),
        },
        ty,
        size: types.size(ty)?,
        start,
        declared: declared(debug, die),
    })
}

/// The declaration of the variable at `die`.
pub(crate) fn declared(debug: &DebugInfo, die: DieRef) -> Option<Declared> {
    let (at, line) = debug.inherited(die, dw::DW_AT_decl_line)?;
    let entry = debug.unit(at.unit)?.entry(at.offset)?;
    let holder = match entry.attr_value(dw::DW_AT_decl_file) {
        Some(_) => at,
        // gcc omits the file in a definition in the same file as its declaration.
        None => debug.inherited(at, dw::DW_AT_decl_file)?.0,
    };
    let unit = debug.unit(holder.unit)?;
    let file = unit.entry(holder.offset)?.attr_value(dw::DW_AT_decl_file)?;
    let number = match file {
        gimli::AttributeValue::FileIndex(number) => number,
        other => other.udata_value()?,
    };
    Some(Declared {
        file: unit.file(number)?,
        line: line.udata_value().and_then(|l| u32::try_from(l).ok()),
    })
}

/// The path of a Rust static within its crate: without the crate's own name, and for
/// `thread_local!` without the macro's inner names.
fn rust_name(name: &str) -> String {
    let mut name = match name.split_once("::") {
        Some((root, rest)) if !matches!(root, "std" | "core" | "alloc") => rest,
        _ => name,
    };
    for inside in [
        "::VAL",
        "::__rust_std_internal_VAL",
        "::{closure",
        "::{constant",
        "::__init",
    ] {
        if let Some(at) = name.find(inside) {
            name = &name[..at];
        }
    }
    name.to_owned()
}
