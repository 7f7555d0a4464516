//! A file of the process image and the tables made from its debug information. Owned by
//! [`crate::Names`].

use crate::answer::Storage;
use crate::die::StaticLocation;
use crate::dwarf::{DebugInfo, DieRef};
use crate::flow::{self, Answers, Call, Function};
use crate::globals::{Globals, Variable};
use crate::image::Image;
use crate::locals::{self, Local, Location};
use crate::options::NameOptions;
use crate::types::{TypeId, TypeTable};
use crate::value::Touched;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use sunder_access::LinkAddress;

/// Registers of the first two arguments (System V ABI), as x86-64 numbers them.
const RDI: usize = 7;
/// See `RDI`.
const RSI: usize = 6;

/// One file of the image, with the parts that have been read.
pub(crate) struct Module {
    /// The path in the target's file system.
    pub(crate) path: String,
    pub(crate) image: Image,
    /// `None` until first needed.
    pub(crate) debug: Option<Option<Debug>>,
}

/// The debug information of a module and the tables made of it.
pub(crate) struct Debug {
    pub(crate) info: DebugInfo,
    pub(crate) types: TypeTable,
    globals: Globals,
    /// The lowest and the highest link address of the module.
    span: (u64, u64),
    /// The analyses of functions so far, by the function's first address.
    flows: HashMap<u64, Answers>,
    /// The variables of functions whose frames were queried, by the function's first address.
    locals: HashMap<u64, Arc<Vec<Local>>>,
    /// See [`Image::pointers`]; `None` until first needed.
    pointers: Option<HashMap<u64, u64>>,
    /// See [`Image::imports`]; `None` until first needed.
    imports: Option<HashMap<u64, String>>,
}

impl Debug {
    /// Loads the debug information of `image`; reports missing parts in `limits`.
    fn load(image: &Image, options: &NameOptions, limits: &mut Vec<String>) -> Option<Self> {
        Some(Self {
            info: DebugInfo::load(image, options, limits)?,
            types: TypeTable::default(),
            globals: Globals::default(),
            span: image.span(),
            flows: HashMap::new(),
            locals: HashMap::new(),
            pointers: None,
            imports: None,
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

    /// Whether the function at `address` never returns, according to its declaration.
    pub(crate) fn never_returns(&mut self, address: LinkAddress, limits: &mut Vec<String>) -> bool {
        let Some((die, begin, _)) = self.function(address, limits) else {
            return false;
        };
        begin == address.0 && self.info.inherited(die, gimli::DW_AT_noreturn).is_some()
    }

    /// The object that the instruction at `address` accesses, with the name of the variable that
    /// leads there.
    pub(crate) fn touched(
        &mut self,
        address: LinkAddress,
        image: &Image,
        executable: bool,
        limits: &mut Vec<String>,
    ) -> Option<(Touched, Option<String>)> {
        let answers = self.flow(address, image, executable, limits)?.1;
        let touched = *answers.touched.get(&address.0)?;
        let name = answers.name(touched.origin).map(str::to_owned);
        Some((touched, name))
    }

    /// What takes the result of the call that returns to `after`; and whether the enclosing
    /// function returns a pointer itself, and to what.
    pub(crate) fn result_of_call(
        &mut self,
        after: LinkAddress,
        image: &Image,
        executable: bool,
        limits: &mut Vec<String>,
    ) -> Option<CallResult> {
        // The call may be the function's last instruction.
        let inside = LinkAddress(after.0.checked_sub(1)?);
        let (die, answers) = self.flow(inside, image, executable, limits)?;
        let result = answers.results.get(&after.0).copied();
        let call = answers.calls.get(&after.0).cloned().unwrap_or_default();
        let returned = self.info.inherited(die, gimli::DW_AT_type);
        let returned = returned.and_then(|(at, value)| self.info.resolve(at.unit, &value));
        let returned = returned.and_then(|ty| self.types.load(&mut self.info, ty, 0));
        let pointer = returned.filter(|&ty| self.types.is_pointer(self.types.plain(ty)));
        Some(CallResult {
            result,
            passed_on: pointer.is_some(),
            returned: pointer.and_then(|ty| self.types.pointee(&mut self.info, ty)),
            call,
        })
    }

    /// The targets of the first two arguments of the call that returns to `after`, each with the
    /// name of the variable that leads there, and that variable's start if it has static storage.
    pub(crate) fn pointers_passed(
        &mut self,
        after: LinkAddress,
        image: &Image,
        executable: bool,
        limits: &mut Vec<String>,
    ) -> Option<[Option<Passed>; 2]> {
        let inside = LinkAddress(after.0.checked_sub(1)?);
        let (_, answers) = self.flow(inside, image, executable, limits)?;
        let call = answers.calls.get(&after.0)?;
        Some(call.pointers.map(|touched| {
            let touched = touched?;
            Some(Passed {
                touched,
                variable: answers.name(touched.origin).map(str::to_owned),
                start: answers.static_start(touched.origin),
            })
        }))
    }

    /// The variables of the function at `die`, whose first address is `begin`.
    pub(crate) fn locals_of(&mut self, die: DieRef, begin: u64) -> Arc<Vec<Local>> {
        let Self {
            info,
            types,
            locals,
            ..
        } = self;
        let read = || Arc::new(locals::read(info, types, die));
        Arc::clone(locals.entry(begin).or_insert_with(read))
    }

    /// Whether the function around the call that returns to `after` passes one of its own
    /// parameters on unchanged: the function's first address, and the index of the parameter.
    pub(crate) fn passed_through(
        &mut self,
        after: LinkAddress,
        passed: &Passed,
        limits: &mut Vec<String>,
    ) -> Option<(u64, usize)> {
        let touched = passed.touched;
        let as_it_came =
            touched.storage == Storage::Pointer && touched.offset == 0 && touched.modulo == 0;
        let name = passed.variable.as_deref().filter(|_| as_it_came)?;
        let inside = LinkAddress(after.0.checked_sub(1)?);
        let (die, begin, _) = self.function(inside, limits)?;
        let locals = self.locals_of(die, begin);
        let own = |l: &&Local| l.parameter && l.inlined == 0;
        let mut named: Vec<&Local> = locals.iter().filter(own).collect();
        let entries: BTreeSet<usize> = named.iter().map(|l| l.entry).collect();
        named.retain(|l| l.name == name);
        let entry = named.first()?.entry;
        if named.iter().any(|l| l.entry != entry) {
            return None;
        }
        // The parameter's location at the function's entry, by the calling convention.
        let at_first = named.iter().find(|l| (l.begin..l.end).contains(&begin));
        match at_first.map(|l| l.place) {
            Some(Location::Register(RDI)) => return Some((begin, 0)),
            Some(Location::Register(RSI)) => return Some((begin, 1)),
            Some(Location::Frame(_) | Location::Memory(..)) => {}
            _ => return None,
        }
        // Unoptimised code stores the parameter in the frame. The first parameter came as the first
        // argument, unless that is the address for a large result.
        let result = self.info.inherited(die, gimli::DW_AT_type);
        (result.is_none() && entries.first() == Some(&entry)).then_some((begin, 0))
    }

    /// The analysis of the function at `address`, made at the first call.
    fn flow(
        &mut self,
        address: LinkAddress,
        image: &Image,
        executable: bool,
        limits: &mut Vec<String>,
    ) -> Option<(DieRef, &Answers)> {
        let (die, begin, end) = self.function(address, limits)?;
        if !self.flows.contains_key(&begin) {
            let pointers = self.pointers.take().unwrap_or_else(|| image.pointers());
            let imports = self.imports.take().unwrap_or_else(|| image.imports());
            let function = Function {
                image,
                imports: &imports,
                begin,
                code: &image.bytes(LinkAddress(begin), end - begin),
                locals: locals::read(&mut self.info, &mut self.types, die),
                pointers: &pointers,
                tls_size: image.tls_size().filter(|_| executable),
                fixed: image.first_page().is_some_and(|(_, address)| address > 0),
            };
            let answers = flow::analyse(&function, self, limits);
            self.pointers = Some(pointers);
            self.imports = Some(imports);
            self.flows.insert(begin, answers);
        }
        Some((die, self.flows.get(&begin)?))
    }
}

/// A pointer that is passed to a function.
pub(crate) struct Passed {
    pub(crate) touched: Touched,
    pub(crate) variable: Option<String>,
    pub(crate) start: Option<u64>,
}

/// The result of a call.
pub(crate) struct CallResult {
    /// The type that the result points to.
    pub(crate) result: Option<TypeId>,
    /// Whether the enclosing function returns a pointer, so that its own caller may hold the
    /// block.
    pub(crate) passed_on: bool,
    /// The type that the returned pointer points to.
    pub(crate) returned: Option<TypeId>,
    /// The variable or function that takes the result.
    pub(crate) call: Call,
}

impl Module {
    /// A module whose headers and symbols have been read, and nothing else.
    pub(crate) fn new(path: String, image: Image) -> Self {
        Self {
            path,
            image,
            debug: None,
        }
    }

    /// The debug information, loaded at the first call.
    pub(crate) fn debug(
        &mut self,
        options: &NameOptions,
        limits: &mut Limits,
    ) -> Option<(&mut Debug, &Image)> {
        let Self { path, image, debug } = self;
        let debug = debug.get_or_insert_with(|| {
            let mut missing = Vec::new();
            let loaded = Debug::load(image, options, &mut missing);
            match loaded {
                None if is_system_library(path) => limits.add_library(path),
                _ => limits.sentences.extend(missing),
            }
            loaded
        });
        Some((debug.as_mut()?, image))
    }
}

/// Missing debug information and symbols, for the report.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub(crate) sentences: Vec<String>,
    /// Libraries of the system without debug information, for one sentence about all.
    libraries: Vec<String>,
}

impl Limits {
    fn add_library(&mut self, path: &str) {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.libraries.push(name.to_owned());
    }

    /// Sets `sentence` for the file at `path`, which then is not in the sentence about several
    /// files.
    pub(crate) fn say_of(&mut self, path: &str, sentence: String) {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.libraries.retain(|library| library != name);
        if !self.sentences.contains(&sentence) {
            self.sentences.push(sentence);
        }
    }

    /// All of it, in sentences.
    pub(crate) fn told(&self) -> Vec<String> {
        let mut all = self.sentences.clone();
        if !self.libraries.is_empty() {
            all.push(format!(
                "Libraries of the system have no debug information here ({}): their functions and \
                 data are named by symbols only.",
                self.libraries.join(", ")
            ));
        }
        all
    }
}

/// Whether a file belongs to the system: missing debug information is normal there, and users do
/// not compile such files.
pub(crate) fn is_system_library(path: &str) -> bool {
    const FOLDERS: [&str; 4] = ["/usr/lib/", "/usr/lib64/", "/lib/", "/lib64/"];
    FOLDERS.iter().any(|folder| path.starts_with(folder))
}
