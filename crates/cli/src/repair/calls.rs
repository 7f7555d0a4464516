//! Whether all kernel calls of the program can be seen: those of the C library and
//! the dynamic linker are, by hooks; others are refused.

use std::collections::{HashMap, HashSet};
use sunder_access::{Mapping, Mappings};
use sunder_observe::code::ModuleCode;
use sunder_rewrite::sites::{self, Function, Want};

/// A `syscall` instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Remembers what modules hold.
#[derive(Default)]
pub struct Calls {
    /// Code that is no file's, at the program's beginning: the hooks' own.
    first: Option<HashSet<u64>>,
    modules: HashMap<String, Result<(), String>>,
}

impl Calls {
    /// The library inside the program has just been put in place.
    pub fn begin(&mut self, mappings: &Mappings) {
        if self.first.is_none() {
            let made = mappings.iter().filter(|m| is_made(m));
            self.first = Some(made.map(|m| m.span.start.0).collect());
        }
    }

    /// # Errors
    /// Says which calls could not be seen.
    pub fn all_seen(&mut self, mappings: &Mappings) -> Result<(), String> {
        for mapping in mappings.iter().filter(|m| m.execute) {
            let first = self.first.as_ref();
            let known = first.is_some_and(|f| f.contains(&mapping.span.start.0));
            if is_made(mapping) {
                if mapping.write || !known {
                    return Err("the program makes code at run time".into());
                }
                continue;
            }
            let path = &mapping.path;
            if path.starts_with('[') || path.starts_with("/memfd:sunder-") || is_covered(path) {
                continue;
            }
            let module = self.modules.entry(path.clone());
            module.or_insert_with(|| makes_none(path)).clone()?;
        }
        Ok(())
    }
}

/// Code that is no file's.
fn is_made(mapping: &Mapping) -> bool {
    mapping.execute && !mapping.is_file() && !mapping.path.starts_with("[v")
}

/// Modules whose calls are led through hooks.
pub fn is_covered(path: &str) -> bool {
    path.ends_with("/libc.so.6") || path.ends_with("/ld-linux-x86-64.so.2")
}

/// Whether a module leaves kernel calls to the C library.
fn makes_none(path: &str) -> Result<(), String> {
    let code = ModuleCode::read(path.as_ref())
        .ok_or_else(|| format!("the code of {path} can't be looked through"))?;
    let holds = |&(start, end): &(u64, u64)| {
        let at = |a: u64| usize::try_from(a.checked_sub(code.address)?).ok();
        let bytes = at(start)
            .zip(at(end))
            .and_then(|(s, e)| code.bytes.get(s..e));
        bytes.is_none_or(|b| b.windows(2).any(|pair| pair == SYSCALL))
    };
    let functions: Vec<Function> = code
        .functions
        .iter()
        .filter(|f| holds(f))
        .map(|&(start, end)| Function { start, end })
        .collect();
    let plan = sites::plan(&code.bytes, code.address, &functions, |_| Want::Nothing);
    if plan.entries > 0 {
        return Err(format!("{path} makes kernel calls of its own"));
    }
    Ok(())
}
