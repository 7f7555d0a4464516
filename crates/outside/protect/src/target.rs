//! What is isolated without observation: the objects of a saved result, or variables that a test
//! names; and on which pages they lie at present. Called by `lib.rs` and `live`. Must not choose
//! objects by itself.

use super::keeper::Keeper;
use super::pages::{LARGEST, PageRequest};
use super::shared::Shared;
use crate::options::Options;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use sunder_access::{Address, Span};
use sunder_findings::{Findings, Object, ObjectKind};
use sunder_hooking::call_sites::direct_call_site;
use sunder_live::program;
use sunder_wire::isolation::SITE_NAME;

/// A global variable that is to be isolated.
#[derive(Debug)]
struct Global {
    name: String,
    /// The file that defines it, if known.
    file: Option<String>,
    /// A test wants everything on the variable's pages isolated.
    whole_pages: bool,
}

/// A call that allocates objects to be isolated: file and return address in it.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    file: String,
    offset: u64,
    is_program: bool,
}

/// The objects that are to be isolated; see the head of this file.
#[derive(Debug, Default)]
pub struct Targets {
    globals: Vec<Global>,
    calls: Vec<Call>,
    /// Path of the program that the result is about.
    program: Option<String>,
    /// The result names an object that a wrapper allocated on the program's behalf: no call of the
    /// program itself tells which blocks are meant.
    wrapped: bool,
    /// Objects that are not isolated, one sentence each.
    pub left_out: Vec<String>,
}

impl Targets {
    /// The targets that the options name.
    ///
    /// # Errors
    /// If the saved result can't be read.
    pub fn new(options: &Options) -> Result<Self> {
        let mut targets = Self::default();
        for name in &options.isolate_global {
            targets.globals.push(Global {
                name: name.clone(),
                file: None,
                whole_pages: true,
            });
        }
        if let Some(file) = &options.from {
            let findings =
                Findings::open(file).with_context(|| format!("cannot read {}", file.display()))?;
            targets.take(&findings, options.strict);
        }
        Ok(targets)
    }

    fn take(&mut self, findings: &Findings, strict: bool) {
        self.program.clone_from(&findings.program.path);
        let isolation = sunder_plan::isolation(findings, strict);
        self.left_out.extend(isolation.left_out);
        for (rank, object) in isolation.objects {
            if let Some(why) = self.add(object) {
                self.left_out.push(format!("finding {rank}: {why}"));
            }
        }
    }

    /// Adds an object; says why not, if it can't be isolated.
    fn add(&mut self, object: &Object) -> Option<&'static str> {
        if object.size.is_some_and(|size| size > LARGEST) {
            return Some("its object is too large");
        }
        if object.kind == ObjectKind::Global {
            // The name of a function's static variable follows the function's name.
            let name = object.name.as_deref().unwrap_or_default();
            let name = name.rsplit("::").next().unwrap_or(name);
            self.globals.push(Global {
                name: name.to_owned(),
                file: object.module.clone(),
                whole_pages: false,
            });
            return None;
        }
        let program = self.program.as_deref();
        let Some((file, offset)) = direct_call_site(object, program) else {
            self.wrapped = true;
            return Some("its object was not allocated by the program's own call of malloc");
        };
        let call = Call {
            file: file.to_owned(),
            offset,
            is_program: program == Some(file),
        };
        if file.len() >= SITE_NAME {
            return Some("the name of its file is too long");
        }
        if !self.calls.contains(&call) {
            self.calls.push(call);
        }
        None
    }

    /// Why the program runs natively from the start, if there is a reason.
    pub fn hindrance(&self, program: &OsStr) -> Option<String> {
        if self.globals.is_empty() && self.calls.is_empty() {
            let why = self.left_out.first();
            return Some(why.map_or_else(
                || "there is nothing to isolate (--from names a result of `sunder detect`)".into(),
                |why| format!("there is nothing to isolate; {why}"),
            ));
        }
        self.is_of_another(program)
    }

    /// Whether all heap objects of the result were allocated through wrappers. Those must be found
    /// again by observing.
    pub fn must_be_watched(&self) -> bool {
        self.wrapped && self.calls.is_empty()
    }

    /// Why the result does not fit the program, if it does not.
    pub fn is_of_another(&self, program: &OsStr) -> Option<String> {
        let wanted = self.program.as_deref()?;
        let found = program::find(program)?;
        let found = std::fs::canonicalize(&found).unwrap_or(found);
        (found != Path::new(wanted)).then(|| format!("the result is of another program, {wanted}"))
    }

    /// Tells the library which allocations it must report.
    pub fn ask_for_blocks(&self, shared: &Shared) {
        for (site, call) in shared.sites.iter().zip(&self.calls) {
            for (to, from) in site.file.iter().zip(call.file.bytes()) {
                to.store(from, Relaxed);
            }
            site.is_program.store(call.is_program.into(), Relaxed);
            site.offset.store(call.offset, Relaxed);
        }
    }

    /// Asks for the pages of the targets that exist at present.
    pub fn choose_pages(&self, keeper: &mut Keeper) {
        self.choose_globals(keeper);
        ask_for_blocks_of(keeper, false);
    }

    /// Whether the result names global variables.
    pub fn has_globals(&self) -> bool {
        !self.globals.is_empty()
    }

    /// Asks for the pages of global variables.
    pub fn choose_globals(&self, keeper: &mut Keeper) {
        let process = keeper.process();
        for global in &self.globals {
            let file = global.file.as_deref();
            if let Some([start, size]) = keeper.images.global(process, file, &global.name) {
                let request = PageRequest {
                    start,
                    size,
                    whole_pages: global.whole_pages,
                    common: false,
                    block: None,
                };
                keeper.request_pages(request);
                if let Some(log) = &mut keeper.log {
                    log.object(Span::new(Address(start), size), &global.name);
                }
            }
        }
    }
}

/// Asks for the pages of living heap blocks; with `own`, only of blocks for which the program
/// itself has asked.
pub fn ask_for_blocks_of(keeper: &mut Keeper, own: bool) {
    for place in 0..keeper.shared.blocks.len() {
        let block = &keeper.shared.blocks[place];
        let start = block.address.load(SeqCst);
        let size = block.bytes.load(Acquire);
        if start > 1 && (!own || block.asked.load(SeqCst) == 1) {
            let request = PageRequest {
                start,
                size,
                whole_pages: false,
                common: false,
                block: Some(place),
            };
            keeper.request_pages(request);
            if let Some(log) = &mut keeper.log {
                log.object(Span::new(Address(start), size), "");
            }
        }
    }
}
