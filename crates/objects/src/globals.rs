//! Variables with static storage: which one holds an address, with its name,
//! type and place of declaration. One table a module, built when data are
//! first asked for; entries are read in full only when hit.

use crate::answer::Declared;
use crate::die::StaticPlace;
use crate::dwarf::{DebugInfo, DieRef};
use crate::types::{Language, TypeId, TypeTable};
use gimli::constants as dw;

/// A variable with static storage.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    /// Qualified name.
    pub(crate) name: String,
    pub(crate) ty: TypeId,
    pub(crate) size: u64,
    /// Link address, or offset in the TLS block.
    pub(crate) start: u64,
    pub(crate) declared: Option<Declared>,
}

/// All variables of a module, by place.
#[derive(Debug, Default)]
pub(crate) struct Globals {
    fixed: Vec<(u64, DieRef)>,
    tls: Vec<(u64, DieRef)>,
}

/// So many variables that start at or below an address are tried: aliases and
/// empty ones share a start.
const TRIED: usize = 6;

impl Globals {
    /// Walks all units.
    pub(crate) fn build(debug: &mut DebugInfo, limits: &mut Vec<String>) -> Self {
        let mut all = Self::default();
        for unit in 0..debug.unit_count(limits) {
            let Some(index) = debug.index(unit) else {
                continue;
            };
            for &(place, offset) in &index.variables {
                let die = DieRef { unit, offset };
                match place {
                    StaticPlace::Address(address) => all.fixed.push((address, die)),
                    StaticPlace::Tls(offset) => all.tls.push((offset, die)),
                }
            }
        }
        all.fixed.sort_unstable();
        all.tls.sort_unstable();
        all
    }

    /// The variable that holds the byte at `place`.
    pub(crate) fn at(
        &self,
        place: StaticPlace,
        debug: &mut DebugInfo,
        types: &mut TypeTable,
    ) -> Option<Variable> {
        let (table, wanted) = match place {
            StaticPlace::Address(address) => (&self.fixed, address),
            StaticPlace::Tls(offset) => (&self.tls, offset),
        };
        let end = table.partition_point(|v| v.0 <= wanted);
        let near = &table[end.saturating_sub(TRIED)..end];
        near.iter().rev().find_map(|&(start, die)| {
            let variable = resolve(start, die, debug, types)?;
            (wanted - start < variable.size).then_some(variable)
        })
    }
}

fn resolve(
    start: u64,
    die: DieRef,
    debug: &mut DebugInfo,
    types: &mut TypeTable,
) -> Option<Variable> {
    let (typed, attribute) = debug.inherited(die, dw::DW_AT_type)?;
    // A definition may complete the type of its declaration (`extern int a[]`);
    // the definition comes first on the way.
    let ty = debug.resolve(typed.unit, &attribute)?;
    let ty = types.load(debug, ty, 0)?;
    let name = debug.qualified_name(die)?;
    let language = debug.unit(die.unit)?.language();
    Some(Variable {
        name: match language {
            Language::Rust => rust_name(&name),
            _ => crate::fold::cpp(&name),
        },
        ty,
        size: types.size(ty)?,
        start,
        declared: declared(debug, die),
    })
}

/// Where the variable at `die` was declared.
pub(crate) fn declared(debug: &DebugInfo, die: DieRef) -> Option<Declared> {
    let (at, line) = debug.inherited(die, dw::DW_AT_decl_line)?;
    let entry = debug.unit(at.unit)?.entry(at.offset)?;
    let holder = match entry.attr_value(dw::DW_AT_decl_file) {
        Some(_) => at,
        // gcc leaves the file out of a definition in its declaration's file.
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

/// A Rust static as its crate calls it: without the crate's own name, and for
/// `thread_local!` without what the macro puts inside.
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
