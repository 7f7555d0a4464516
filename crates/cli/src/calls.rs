//! Which modules of a program make kernel calls of their own. A remedy sees those of
//! the C library and the dynamic linker; where others would harm it, it asks here and
//! does nothing. Called by `repair` and `protect`; reads the files that are mapped.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use sunder_access::{Mapping, Mappings};
use sunder_observe::code::ModuleCode;
use sunder_rewrite::sites::{self, Function, Number, Want};

/// A `syscall` instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Remembers what modules hold.
pub struct Calls {
    /// Which calls would do harm unseen.
    harmful: fn(Number) -> bool,
    /// Code that is no file's, at the program's beginning: the hooks' own.
    first: Option<HashSet<u64>>,
    /// Where the hooks' own code lies, if that was told.
    hooks: Vec<[u64; 2]>,
    modules: HashMap<String, Result<(), String>>,
}

impl Calls {
    /// For a remedy to which these calls do harm if it does not see them.
    pub fn new(harmful: fn(Number) -> bool) -> Self {
        Self {
            harmful,
            first: None,
            hooks: Vec::new(),
            modules: HashMap::new(),
        }
    }

    /// The library inside the program has just been put in place.
    pub fn begin(&mut self, mappings: &Mappings) {
        if self.first.is_none() {
            let made = mappings.iter().filter(|m| is_made(m));
            self.first = Some(made.map(|m| m.span.start.0).collect());
        }
    }

    /// Code that is no file's and lies in these ranges is the hooks' own.
    pub fn know(&mut self, hooks: &[[u64; 2]]) {
        self.hooks = hooks.to_vec();
        self.hooks.sort_unstable();
    }

    /// Whether all of a mapping is the hooks' own: the kernel makes one of neighbours.
    fn is_hooks(&self, mapping: &Mapping) -> bool {
        let mut at = mapping.span.start.0;
        for [start, end] in &self.hooks {
            if *start <= at {
                at = at.max(*end);
            }
        }
        at >= mapping.span.end().0
    }

    /// # Errors
    /// Says where harmful calls can't be seen.
    pub fn all_seen(&mut self, mappings: &Mappings) -> Result<(), String> {
        for mapping in mappings.iter().filter(|m| m.execute) {
            let first = self.first.as_ref();
            let known =
                first.is_some_and(|f| f.contains(&mapping.span.start.0)) || self.is_hooks(mapping);
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
            let harmful = self.harmful;
            module
                .or_insert_with(|| makes_none(path, harmful))
                .clone()?;
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

/// Whether a module leaves harmful kernel calls to the C library.
fn makes_none(path: &str, harmful: fn(Number) -> bool) -> Result<(), String> {
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
    let seen = Cell::new(false);
    let _nothing_planned = sites::plan(&code.bytes, code.address, &functions, |number| {
        seen.set(seen.get() || harmful(number));
        Want::Nothing
    });
    if seen.get() {
        return Err(format!("{path} makes kernel calls of its own"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hooks_own_code_is_known_and_no_other() {
        let made = |range: &str| {
            let line = format!("{range} r-xp 00000000 00:00 0\n");
            sunder_observe::proc::parse_mappings(line.as_bytes())
        };
        let mut calls = Calls::new(|_| true);
        calls.know(&[[0x5000, 0x7000], [0x2000, 0x3000], [0x3000, 0x4000], [0, 0]]);
        for (range, known) in [
            ("5000-7000", true),
            ("2000-4000", true),
            ("2000-3000", true),
            ("4000-5000", false),
            ("2000-5000", false),
            ("6000-8000", false),
            ("1000-3000", false),
        ] {
            assert_eq!(calls.all_seen(&made(range)).is_ok(), known, "{range}");
        }
    }
}
