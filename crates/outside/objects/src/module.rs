//! A file of the process image and the tables made from its debug information. Owned by
//! [`crate::Names`].

use crate::ahead::{Ahead, Questions};
use crate::answer::Storage;
use crate::dwarf::{DieRef, StaticLocation};
use crate::flow::{self, Answers, Call, Function};
use crate::image::Image;
use crate::limits::{Limits, is_system_library};
use crate::locals::{self, Local, Location};
use crate::options::NameOptions;
use crate::tables::Tables;
use crate::types::TypeId;
use crate::value::Touched;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use sunder_access::LinkAddress;

/// Registers of the first two arguments (System V ABI), as x86-64 numbers them.
const RDI: usize = 7;
/// See `RDI`.
const RSI: usize = 6;

/// What is said where debug information was not to be read.
const LEFT: &str = "Reading debug information takes too much time or memory here, and was left: functions and data \
                    are named by symbols only.";

/// One file of the image, with the parts that have been read.
pub(crate) struct Module {
    /// The path in the target's file system.
    pub(crate) path: String,
    pub(crate) image: Arc<Image>,
    /// `None` until first needed.
    pub(crate) debug: Option<Option<Debug>>,
    /// The reading of its debug information that began before it was needed.
    ahead: Option<Ahead<Loaded>>,
    /// See [`Image::identity`]; `None` until first needed.
    identity: Option<Option<String>>,
    /// Whether a memory has answered questions that its debug information was asked before.
    pub(crate) is_remembered: bool,
    /// The entries of types that have handles which do not depend on what has been loaded.
    pub(crate) dies: Vec<DieRef>,
}

/// Debug information, if there is any, and what is missing of it.
type Loaded = (Option<Debug>, Vec<String>);

/// The debug information of a module and the tables made of it.
pub(crate) struct Debug {
    pub(crate) tables: Tables,
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
    /// Loads the debug information of `image`.
    fn read(image: &Image, options: &NameOptions) -> Loaded {
        if !options.debug_information {
            return (None, vec![LEFT.to_owned()]);
        }
        let mut missing = Vec::new();
        let tables = Tables::load(image, options, &mut missing);
        let debug = tables.map(|tables| Self {
            tables,
            flows: HashMap::new(),
            locals: HashMap::new(),
            pointers: None,
            imports: None,
        });
        (debug, missing)
    }

    /// Finds the answers to these questions, so that they are at hand when they are asked.
    fn answer(&mut self, questions: &Questions, image: &Image, limits: &mut Vec<String>) {
        for &at in questions.accesses.iter().chain(&questions.calls) {
            let _ = self.flow(at, image, questions.executable, limits);
        }
        for &at in &questions.calls {
            let _ = self.tables.info.frames(at, limits);
        }
        for at in &questions.data {
            let _ = self.tables.variable(StaticLocation::Address(at.0), limits);
        }
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

    /// The first instructions of the blocks of the loop around the instruction at `address`.
    pub(crate) fn loop_around(
        &mut self,
        address: LinkAddress,
        image: &Image,
        executable: bool,
        limits: &mut Vec<String>,
    ) -> Option<Vec<u64>> {
        let answers = self.flow(address, image, executable, limits)?.1;
        answers.loop_around(address.0)
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
        let returned = self.tables.info.inherited(die, gimli::DW_AT_type);
        let returned = returned.and_then(|(at, value)| self.tables.info.resolve(at.unit, &value));
        let returned = returned.and_then(|ty| self.tables.types.load(&mut self.tables.info, ty, 0));
        let pointer =
            returned.filter(|&ty| self.tables.types.is_pointer(self.tables.types.plain(ty)));
        let raw = pointer.is_some_and(|ty| {
            let Tables { info, types, .. } = &mut self.tables;
            types.is_raw_pointer(info, ty)
        });
        let vector = call.taker.as_ref().map(|taker| taker.variable);
        let Tables { info, types, .. } = &mut self.tables;
        let elements = vector.and_then(|ty| types.elements_held(info, ty));
        Some(CallResult {
            result,
            elements,
            passed_on: pointer.is_some(),
            raw,
            returned: pointer.and_then(|ty| self.tables.types.pointee(&mut self.tables.info, ty)),
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
    ) -> Option<[Option<PassedPointer>; 2]> {
        let inside = LinkAddress(after.0.checked_sub(1)?);
        let (_, answers) = self.flow(inside, image, executable, limits)?;
        let call = answers.calls.get(&after.0)?;
        Some(call.pointers.map(|touched| {
            let touched = touched?;
            Some(PassedPointer {
                touched,
                variable: answers.name(touched.origin).map(str::to_owned),
                start: answers.static_start(touched.origin),
            })
        }))
    }

    /// The variables of the function at `die`, whose first address is `begin`.
    pub(crate) fn locals_of(&mut self, die: DieRef, begin: u64) -> Arc<Vec<Local>> {
        let Self { tables, locals, .. } = self;
        let Tables { info, types, .. } = tables;
        let read = || Arc::new(locals::read(info, types, die));
        Arc::clone(locals.entry(begin).or_insert_with(read))
    }

    /// Whether the function around the call that returns to `after` passes one of its own
    /// parameters on unchanged: the function's first address, and the index of the parameter.
    pub(crate) fn passed_through(
        &mut self,
        after: LinkAddress,
        passed: &PassedPointer,
        limits: &mut Vec<String>,
    ) -> Option<(u64, usize)> {
        let touched = passed.touched;
        let as_it_came =
            touched.storage == Storage::Pointer && touched.offset == 0 && touched.modulo == 0;
        let name = passed.variable.as_deref().filter(|_| as_it_came)?;
        let inside = LinkAddress(after.0.checked_sub(1)?);
        let (die, begin, _) = self.tables.function(inside, limits)?;
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
        let result = self.tables.info.inherited(die, gimli::DW_AT_type);
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
        let (die, begin, end) = self.tables.function(address, limits)?;
        if !self.flows.contains_key(&begin) {
            let pointers = self.pointers.take().unwrap_or_else(|| image.pointers());
            let imports = self.imports.take().unwrap_or_else(|| image.imports());
            let function = Function {
                image,
                imports: &imports,
                begin,
                code: &image.bytes(LinkAddress(begin), end - begin),
                locals: locals::read(&mut self.tables.info, &mut self.tables.types, die),
                pointers: &pointers,
                tls_size: image.tls_size().filter(|_| executable),
                fixed: image.first_page().is_some_and(|(_, address)| address > 0),
            };
            let answers = flow::analyse(&function, &mut self.tables, limits);
            self.pointers = Some(pointers);
            self.imports = Some(imports);
            self.flows.insert(begin, answers);
        }
        Some((die, self.flows.get(&begin)?))
    }
}

/// A pointer that is passed to a function.
pub(crate) struct PassedPointer {
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
    /// Whether that pointer is to memory without a type: `void *` or to bytes.
    pub(crate) raw: bool,
    /// The type that the returned pointer points to.
    pub(crate) returned: Option<TypeId>,
    /// The type of the elements of the vector that takes the result.
    pub(crate) elements: Option<TypeId>,
    /// The variable or function that takes the result.
    pub(crate) call: Call,
}

impl Module {
    /// A module whose headers and symbols have been read, and nothing else.
    pub(crate) fn new(path: String, image: Image) -> Self {
        Self {
            path,
            image: Arc::new(image),
            debug: None,
            ahead: None,
            identity: None,
            is_remembered: false,
            dies: Vec::new(),
        }
    }

    /// What tells its file from all others.
    pub(crate) fn identity(&mut self) -> Option<String> {
        let Self {
            image, identity, ..
        } = self;
        identity.get_or_insert_with(|| image.identity()).clone()
    }

    /// Begins to read the debug information for these questions, unless it has been read or somebody
    /// reads it.
    pub(crate) fn read_ahead(&mut self, options: &NameOptions, questions: Questions) {
        if self.debug.is_some() || self.ahead.is_some() {
            return;
        }
        let (image, options) = (Arc::clone(&self.image), options.clone());
        self.ahead = Ahead::begin(move || {
            let (mut debug, mut missing) = Debug::read(&image, &options);
            if let Some(debug) = &mut debug {
                debug.answer(&questions, &image, &mut missing);
            }
            (debug, missing)
        });
    }

    /// Whether its debug information is being read, so that who needs it must wait.
    pub(crate) fn is_reading_ahead(&self) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| !ahead.is_over())
    }

    /// The debug information, loaded at the first call.
    pub(crate) fn debug(
        &mut self,
        options: &NameOptions,
        limits: &mut Limits,
    ) -> Option<(&mut Debug, &Image)> {
        let Self {
            path,
            image,
            debug,
            ahead,
            ..
        } = self;
        let debug = debug.get_or_insert_with(|| {
            let read = ahead.take().and_then(Ahead::end);
            let (loaded, missing) = read.unwrap_or_else(|| Debug::read(image, options));
            match loaded {
                None if is_system_library(path) => limits.add_library(path),
                _ => missing
                    .into_iter()
                    .for_each(|one| limits.add_for_file(path, one)),
            }
            loaded
        });
        Some((debug.as_mut()?, image))
    }
}
