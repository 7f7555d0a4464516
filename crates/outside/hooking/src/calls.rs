//! Which modules of a program make kernel calls of their own. A remedy sees only the calls that go
//! through the hooks in the C library and the dynamic linker; where unseen calls would do harm, it
//! asks here and does nothing. Called by `repair` and `protect`. Reads the mapped files; must not
//! change a program.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use sunder_access::{Address, Mapping, Mappings, is_own_file};
use sunder_observe::code::ModuleCode;
use sunder_observe::foreign::ForeignFiles;
use sunder_rewrite::sites::{Entering, Function, Number, Want};

/// The kernel calls that each module makes; every file is examined once.
pub struct Calls {
    /// Which calls do harm if the remedy does not see them.
    harmful: fn(Number) -> bool,
    /// The remedy moves threads out of code, into copies of it.
    leads: bool,
    /// The program's files.
    files: Arc<ForeignFiles>,
    /// Start addresses of executable memory without a file when the library was loaded: the hooks'
    /// own code.
    first: Option<HashSet<u64>>,
    /// Address ranges of the hooks' own code, if the library has reported them.
    hooks: Vec<[u64; 2]>,
    /// Keyed by path and inode: another file may get the same path.
    modules: HashMap<(String, u64), KernelCalls>,
    /// Modules whose own calls go through hooks, at their present addresses.
    led: Vec<Own>,
    /// All executable mappings at the last check that found no unseen call.
    seen: Vec<Mapping>,
}

/// Which kernel calls a module makes itself.
enum KernelCalls {
    /// None that does harm.
    Nothing,
    /// Calls that do harm if they are not seen.
    Calls,
    /// Unknown, for this reason.
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
    /// For a remedy that is harmed by the calls for which `harmful` holds, if it does not see them.
    pub fn new(harmful: fn(Number) -> bool) -> Self {
        Self {
            harmful,
            leads: false,
            files: Arc::new(ForeignFiles::ours()),
            first: None,
            hooks: Vec::new(),
            modules: HashMap::new(),
            led: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// For a remedy that moves bytes: any call may take their address, and threads are moved into
    /// copies of code.
    pub fn to_move() -> Self {
        Self {
            leads: true,
            ..Self::new(|_| true)
        }
    }

    /// Tells whose files are to be read: ours, unless this was called.
    pub fn set_files(&mut self, files: Arc<ForeignFiles>) {
        self.files = files;
    }

    /// Notes which executable memory without a file is there. To be called right after the library
    /// was loaded into the program.
    pub fn begin(&mut self, mappings: &Mappings) {
        if self.first.is_none() {
            let made = mappings.iter().filter(|m| is_made(m));
            self.first = Some(made.map(|m| m.span.start.0).collect());
        }
    }

    /// Tells the address ranges of the hooks' own code.
    pub fn know(&mut self, hooks: &[[u64; 2]]) {
        self.hooks = hooks.to_vec();
        self.hooks.sort_unstable();
    }

    /// Whether all of a mapping is code of the hooks. The kernel merges neighbouring mappings, so
    /// one mapping may hold several of the ranges.
    fn is_hooks(&self, mapping: &Mapping) -> bool {
        let mut at = mapping.span.start.0;
        for [start, end] in &self.hooks {
            if *start <= at {
                at = at.max(*end);
            }
        }
        at >= mapping.span.end().0
    }

    /// The calls of these modules go through hooks from now on.
    pub fn lead(&mut self, modules: Vec<Own>) {
        self.led = modules;
    }

    /// Checks all executable mappings for calls that the remedy does not see.
    ///
    /// # Errors
    /// Says where such calls are.
    pub fn all_seen(&mut self, mappings: &Mappings) -> Result<(), String> {
        let own = self.own(mappings)?;
        if let Some(own) = own.iter().find(|own| !self.led.contains(own)) {
            return Err(format!("{} makes kernel calls of its own", own.path));
        }
        self.seen = code(mappings).cloned().collect();
        Ok(())
    }

    /// Whether the executable mappings are those of the last successful [`Self::all_seen`].
    pub fn have_seen(&self, mappings: &Mappings) -> bool {
        code(mappings).eq(&self.seen)
    }

    /// The modules that make harmful calls themselves, outside of the C library.
    ///
    /// # Errors
    /// Says which calls can't be led through hooks.
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
        let covered = mappings.iter().filter(|m| m.execute && is_covered(&m.path));
        let mut ends: HashMap<&str, Address> = HashMap::new();
        for mapping in covered {
            let end = ends.insert(&mapping.path, mapping.span.end());
            if end.is_some_and(|end| end != mapping.span.start) {
                // In a namespace of its own (`dlmopen`).
                return Err(format!("{} is loaded twice", mapping.path));
            }
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
            if path.starts_with('[') || is_own_file(path) || is_covered(path) {
                continue;
            }
            let (harmful, leads) = (self.harmful, self.leads);
            let module = self.modules.entry((path.clone(), mapping.inode));
            match module.or_insert_with(|| kernel_calls(&self.files, mapping, harmful, leads)) {
                KernelCalls::Nothing => {}
                KernelCalls::Calls => own.push(Own {
                    path: path.clone(),
                    start: mapping.span.start.0,
                }),
                KernelCalls::Unknown(why) => return Err(why.clone()),
            }
        }
        Ok(own)
    }
}

/// The executable mappings, without the copies of code that we made.
pub fn code(mappings: &Mappings) -> impl Iterator<Item = &Mapping> {
    let all = mappings.iter().filter(|m| m.execute);
    all.filter(|m| !is_own_file(&m.path))
}

/// Executable memory without a file: code that was made at run time.
fn is_made(mapping: &Mapping) -> bool {
    mapping.execute && !mapping.is_file() && !mapping.path.starts_with("[v")
}

/// Modules whose calls the remedy's hooks always see: the C library and the dynamic linker.
pub fn is_covered(path: &str) -> bool {
    path.ends_with("/libc.so.6") || path.ends_with("/ld-linux-x86-64.so.2")
}

/// Examines the code of one module; see [`KernelCalls`].
fn kernel_calls(
    files: &ForeignFiles,
    mapping: &Mapping,
    harmful: fn(Number) -> bool,
    leads: bool,
) -> KernelCalls {
    let path = &mapping.path;
    let file = files.mapped(mapping).ok();
    let Some(code) = file.and_then(|file| ModuleCode::read(&file)) else {
        return KernelCalls::Unknown(format!("the code of {path} can't be looked through"));
    };
    if leads && code.restarts {
        // The kernel restarts such a sequence only if the thread is inside it: not if the thread
        // was moved out and comes back, and never in a copy.
        let why = "has sequences that the kernel begins anew (rseq), which threads can't be led away from";
        return KernelCalls::Unknown(format!("{path} {why}"));
    }
    let bounds = |&(start, end): &(u64, u64)| Function { start, end };
    let functions: Vec<Function> = code.functions.iter().map(bounds).collect();
    let seen = Cell::new(false);
    let mut entering = Entering::of(&code.bytes, code.address, &functions);
    if !code.catches {
        entering.without_exception_handlers();
    }
    let _nothing_planned = entering.plan(|_, number| {
        seen.set(seen.get() || harmful(number));
        Want::Nothing
    });
    if seen.get() && code.segments.len() > 1 {
        let why = "makes kernel calls of its own, and its code lies in several places";
        KernelCalls::Unknown(format!("{path} {why}"))
    } else if seen.get() {
        KernelCalls::Calls
    } else {
        KernelCalls::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_hooks_is_recognized() {
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

    #[test]
    fn a_second_c_library_is_one_whose_calls_nobody_sees() {
        let own = |maps: &str| {
            let mappings = sunder_observe::proc::parse_mappings(maps.as_bytes());
            Calls::new(|_| true).own(&mappings)
        };
        let at = |range: &str| format!("{range} r-xp 00001000 08:01 7 /lib/libc.so.6\n");
        assert_eq!(own(&at("1000-3000")), Ok(Vec::new()));
        // The kernel shows one mapping in two parts where something about them differs.
        let parts = at("1000-2000") + &at("2000-3000");
        assert_eq!(own(&parts), Ok(Vec::new()));
        let twice = at("1000-3000") + &at("8000-a000");
        assert!(own(&twice).is_err_and(|why| why.contains("loaded twice")));
    }
}
