//! Which modules of a program make kernel calls of their own. A remedy sees those of
//! the C library and the dynamic linker; where others would harm it, it asks here and
//! does nothing. Called by `repair` and `protect`; reads the files that are mapped.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use sunder_access::{Mapping, Mappings};
use sunder_observe::code::ModuleCode;
use sunder_rewrite::sites::{Entering, Function, Number, Want};

/// Remembers what modules hold.
pub struct Calls {
    /// Which calls would do harm unseen.
    harmful: fn(Number) -> bool,
    /// Threads are led away from where they are, and into copies of code.
    leads: bool,
    /// Code that is no file's, at the program's beginning: the hooks' own.
    first: Option<HashSet<u64>>,
    /// Where the hooks' own code lies, if that was told.
    hooks: Vec<[u64; 2]>,
    /// By path and file: another one may come to be called the same.
    modules: HashMap<(String, u64), Held>,
    /// Modules whose own calls are led through hooks where they lie now.
    led: Vec<Own>,
    /// All code when it was last looked at, and all calls in it were seen.
    seen: Vec<Mapping>,
}

/// What a module does itself.
enum Held {
    /// No harm.
    Nothing,
    /// Kernel calls that would do harm unseen.
    Calls,
    /// It can't be known, for this reason.
    Unknown(String),
}

/// A module that makes kernel calls of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Its path.
    pub path: String,
    /// Where its code lies.
    pub start: u64,
}

impl Calls {
    /// For a remedy to which these calls do harm if it does not see them.
    pub fn new(harmful: fn(Number) -> bool) -> Self {
        Self {
            harmful,
            leads: false,
            first: None,
            hooks: Vec::new(),
            modules: HashMap::new(),
            led: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// For one that moves bytes: any call may be about them, and threads are led elsewhere.
    pub fn to_move() -> Self {
        Self {
            leads: true,
            ..Self::new(|_| true)
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

    /// The calls of these modules are led through hooks.
    pub fn lead(&mut self, modules: Vec<Own>) {
        self.led = modules;
    }

    /// Looks at all code.
    ///
    /// # Errors
    /// Says where harmful calls can't be seen.
    pub fn all_seen(&mut self, mappings: &Mappings) -> Result<(), String> {
        let own = self.own(mappings)?;
        if let Some(own) = own.iter().find(|own| !self.led.contains(own)) {
            return Err(format!("{} makes kernel calls of its own", own.path));
        }
        self.seen = code(mappings).cloned().collect();
        Ok(())
    }

    /// Whether all code is that at which [`Self::all_seen`] looked last and found nothing.
    pub fn have_seen(&self, mappings: &Mappings) -> bool {
        code(mappings).eq(&self.seen)
    }

    /// The modules that make harmful calls themselves.
    ///
    /// # Errors
    /// Says where such calls can't be led through hooks.
    pub fn own(&mut self, mappings: &Mappings) -> Result<Vec<Own>, String> {
        let mut own = Vec::new();
        let by_itself = |m: &Mapping| {
            m.path.starts_with("anon_inode:[io_uring]") || m.path.starts_with("/[aio]")
        };
        if mappings.iter().any(by_itself) {
            return Err(
                "the kernel uses the program's memory by itself (io_uring or alike)".into(),
            );
        }
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
            let (harmful, leads) = (self.harmful, self.leads);
            let module = self.modules.entry((path.clone(), mapping.inode));
            match module.or_insert_with(|| held(path, harmful, leads)) {
                Held::Nothing => {}
                Held::Calls => own.push(Own {
                    path: path.clone(),
                    start: mapping.span.start.0,
                }),
                Held::Unknown(why) => return Err(why.clone()),
            }
        }
        Ok(own)
    }
}

/// What is executable, but for copies that we made.
pub fn code(mappings: &Mappings) -> impl Iterator<Item = &Mapping> {
    let all = mappings.iter().filter(|m| m.execute);
    all.filter(|m| !m.path.starts_with("/memfd:sunder-"))
}

/// Code that is no file's.
fn is_made(mapping: &Mapping) -> bool {
    mapping.execute && !mapping.is_file() && !mapping.path.starts_with("[v")
}

/// Modules whose calls are led through hooks.
pub fn is_covered(path: &str) -> bool {
    path.ends_with("/libc.so.6") || path.ends_with("/ld-linux-x86-64.so.2")
}

/// What a module does itself.
fn held(path: &str, harmful: fn(Number) -> bool, leads: bool) -> Held {
    let Some(code) = ModuleCode::read(path.as_ref()) else {
        return Held::Unknown(format!("the code of {path} can't be looked through"));
    };
    if leads && code.restarts {
        // One that comes back from where we have led it is not begun anew, and no copy ever is.
        let why = "has sequences that the kernel begins anew (rseq), which threads can't be led away from";
        return Held::Unknown(format!("{path} {why}"));
    }
    let bounds = |&(start, end): &(u64, u64)| Function { start, end };
    let functions: Vec<Function> = code.functions.iter().map(bounds).collect();
    let seen = Cell::new(false);
    let mut entering = Entering::of(&code.bytes, code.address, &functions);
    if !code.catches {
        entering.catches_nothing();
    }
    let _nothing_planned = entering.plan(|_, number| {
        seen.set(seen.get() || harmful(number));
        Want::Nothing
    });
    if seen.get() && code.segments.len() > 1 {
        let why = "makes kernel calls of its own, and its code lies in several places";
        Held::Unknown(format!("{path} {why}"))
    } else if seen.get() {
        Held::Calls
    } else {
        Held::Nothing
    }
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
