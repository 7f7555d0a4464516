//! The code that takes and releases a lock: calls of the lock functions of the C library and of the
//! languages' libraries whose argument leads to an object. Samples show where in such a function
//! the time goes, but not its caller; the program's code does. Called by the pipeline through
//! [`Names::lock_calls_on`].
//!
//! Only certain arguments count: a variable with static storage, or a part of a record of the
//! program's own that the object has at that offset. If a function passes on its own parameter, its
//! callers count instead, for one level.

use super::lock_call::{FoundCall, LockCall, LockedObject};
use super::placed::{Placed, is_backed};
use super::process::Names;
use crate::answer::{ObjectKind, ObjectName, Storage, TypeHandle};
use crate::fold;
use crate::limits::{Limits, is_system_library};
use crate::module::{Debug, Module, PassedPointer};
use crate::options::NameOptions;
use crate::path;
use crate::types::{Shape, TypeId, TypeTable};
use std::collections::{BTreeMap, HashMap};
use sunder_access::{Address, CodeAddress, LinkAddress, Mapping};

/// How many functions with lock calls are analysed in one file; the others are skipped.
const MAX_CALLS: usize = 2_000;
/// Records nested deeper than this are taken for a broken file.
const MAX_DEPTH: u32 = 64;

/// A function that takes or releases a lock.
#[derive(Clone, Copy)]
struct LockFunction {
    /// The index of the argument that is the lock's address.
    argument: usize,
    /// Size of the lock in bytes.
    size: u64,
}

impl LockFunction {
    /// The lock function of this name, mangled or readable.
    fn by_name(name: &str) -> Option<Self> {
        let first = |size| Some(Self { argument: 0, size });
        let second = |size| Some(Self { argument: 1, size });
        let c = |prefix: &str, ends: &[&str]| {
            name.strip_prefix(prefix)
                .is_some_and(|rest| ends.contains(&rest))
        };
        // Sizes of the C library's types on x86-64 (bits/pthreadtypes-arch.h).
        const LOCK: [&str; 5] = ["lock", "trylock", "unlock", "timedlock", "clocklock"];
        const RW: [&str; 9] = [
            "rdlock",
            "wrlock",
            "tryrdlock",
            "trywrlock",
            "timedrdlock",
            "timedwrlock",
            "clockrdlock",
            "clockwrlock",
            "unlock",
        ];
        if c("pthread_mutex_", &LOCK) || c("mtx_", &LOCK) {
            return first(40);
        }
        if c("pthread_rwlock_", &RW) {
            return first(56);
        }
        if c("pthread_spin_", &LOCK) {
            return first(4);
        }
        if c(
            "sem_",
            &["wait", "trywait", "timedwait", "clockwait", "post"],
        ) {
            return first(32);
        }
        if c(
            "pthread_cond_",
            &["wait", "timedwait", "clockwait", "signal", "broadcast"],
        ) {
            return first(48);
        }
        if name == "pthread_barrier_wait" {
            return first(32);
        }
        let (record, method) = name.rsplit_once("::")?;
        let of = |ends: &[&str]| ends.contains(&method);
        let guards = ["std::lock_guard<", "std::unique_lock<", "std::scoped_lock<"];
        if guards.iter().any(|g| record.starts_with(g))
            && of(&["lock_guard", "unique_lock", "scoped_lock"])
        {
            return second(40);
        }
        match record {
            "std::mutex" | "std::recursive_mutex" | "std::timed_mutex"
                if of(&["lock", "unlock", "try_lock"]) =>
            {
                first(40)
            }
            "std::shared_mutex" | "std::shared_timed_mutex"
                if of(&["lock", "unlock", "try_lock", "lock_shared", "unlock_shared"]) =>
            {
                first(56)
            }
            _ if record.starts_with("std::sync::")
                && record.ends_with("::Mutex<T>")
                && method == "lock" =>
            {
                // The first argument is the memory for the guard.
                second(8)
            }
            _ if record.starts_with("std::sys::")
                && record.ends_with("futex::Mutex")
                && of(&["lock", "lock_contended", "wake", "unlock"]) =>
            {
                first(4)
            }
            _ => None,
        }
    }
}

impl Names {
    /// The calls of lock functions in the program's code whose argument leads to the lock of
    /// `object` that covers `offset`, by code address. `seen` is the type by which instructions
    /// access the object and the position of one value of it, modulo its size, where that is known
    /// better than from the object itself. Empty if nothing is certain.
    pub fn lock_calls_on(
        &mut self,
        object: &ObjectName,
        seen: Option<(TypeHandle, u64)>,
        offset: u64,
    ) -> Vec<LockCall> {
        // Types that a memory told of are loaded: all code is looked through.
        let seen = seen.map(|(ty, phase)| (self.loaded_type(ty), phase));
        let wanted = self.ways_to(object, seen, offset);
        let found = match self.lock_calls.take() {
            Some(found) => found,
            None => self.all_lock_calls(),
        };
        let hits = found
            .iter()
            .filter(|f| {
                wanted.iter().any(|(reached, at)| {
                    let at = if f.modulo == 0 { *at } else { at % f.modulo };
                    *reached == f.object && (f.offset..f.offset + f.size).contains(&at)
                })
            })
            .map(|f| f.call.clone())
            .collect();
        self.lock_calls = Some(found);
        hits
    }

    /// The ways in which code can reach the byte at `offset` of `object`, each with the byte's
    /// offset from there.
    fn ways_to(
        &mut self,
        object: &ObjectName,
        seen: Option<(TypeHandle, u64)>,
        offset: u64,
    ) -> Vec<(LockedObject, u64)> {
        let mut ways = Vec::new();
        if object.kind == ObjectKind::Global {
            ways.push((LockedObject::Static(object.start), offset));
        }
        let (handle, phase) = match (seen, object.type_handle) {
            (Some(seen), _) => seen,
            (None, Some(handle)) => (self.loaded_type(handle), 0),
            (None, None) => return ways,
        };
        let mut at = offset;
        let mut ty = TypeId(handle.ty);
        for depth in 0..MAX_DEPTH {
            let Some(debug) = self.loaded(handle) else {
                break;
            };
            let Some(size) = debug.tables.types.size(ty).filter(|&s| s > 0) else {
                break;
            };
            // The block may be an array of the outermost record.
            if depth == 0 {
                at = (at % size + size - phase % size) % size;
            }
            if is_named_record(&debug.tables.types, ty) {
                let name = debug
                    .tables
                    .types
                    .name(&mut debug.tables.info, debug.tables.types.plain(ty));
                ways.push((LockedObject::Record(name, size), at));
            } else if depth == 0
                && let Some(variable) = &object.name
            {
                let name = debug.tables.types.name(&mut debug.tables.info, ty);
                ways.push((LockedObject::Named(variable.clone(), name, size), at));
            }
            let types = &debug.tables.types;
            match types.get(ty).map(|t| &t.shape) {
                _ if is_opaque_type(types, ty) => break,
                Some(Shape::Alias { to: Some(to), .. }) => ty = *to,
                Some(Shape::Array { element, .. }) => {
                    let Some(size) = types.size(*element).filter(|&s| s > 0) else {
                        break;
                    };
                    (ty, at) = (*element, at % size);
                }
                Some(Shape::Record { members, .. }) => {
                    let holds = |m: &&crate::types::Member| {
                        at.checked_sub(m.offset)
                            .is_some_and(|o| m.size.is_some_and(|size| o < size))
                    };
                    let Some(member) = members.iter().find(holds) else {
                        break;
                    };
                    (ty, at) = (member.ty, at - member.offset);
                }
                _ => break,
            }
        }
        ways
    }

    /// All calls of lock functions in the program and its own libraries.
    fn all_lock_calls(&mut self) -> Vec<FoundCall> {
        let mut seen: Vec<(String, u64)> = Vec::new();
        let mut found = Vec::new();
        let code: Vec<Mapping> = self
            .mappings
            .iter()
            .filter(|m| m.execute && is_backed(m) && !is_system_library(&m.path))
            .cloned()
            .collect();
        for mapping in code {
            let key = (mapping.path.clone(), mapping.inode);
            if seen.contains(&key) {
                continue;
            }
            seen.push(key);
            let placed = self.place(mapping.span.start).or_else(|| {
                // The code may begin within its first page.
                self.place(Address(mapping.span.end().0.saturating_sub(1)))
            });
            if let Some(placed) = placed {
                self.lock_calls_in(placed, &mut found);
            }
        }
        found.sort_by_key(|f| f.call.code);
        found
    }

    fn lock_calls_in(&mut self, placed: Placed, found: &mut Vec<FoundCall>) {
        if self.debug(placed.module).is_none() {
            return;
        }
        let executable = self.executable() == Some(placed.module);
        let Self {
            modules,
            options,
            limits,
            ..
        } = self;
        let Some(module) = modules.get_mut(placed.module) else {
            return;
        };
        let image = &module.image;
        let mut functions: Vec<(String, LockFunction)> = Vec::new();
        let mut known = |name: &str| {
            let readable = fold::function(name);
            let function = LockFunction::by_name(&readable)?;
            functions.push((readable, function));
            Some(functions.len() - 1)
        };
        let pointers: HashMap<u64, usize> = image
            .imports()
            .iter()
            .filter_map(|(&place, name)| Some((place, known(name)?)))
            .collect();
        let direct: HashMap<u64, usize> = image
            .symbols
            .functions()
            .iter()
            .filter_map(|s| Some((s.address, known(&s.name)?)))
            .collect();
        let calls = image.calls_of(&direct, &pointers);
        let mut search = Search {
            module,
            options,
            limits,
            executable,
            bias: placed.bias,
        };
        let handing_on = search.look_at(&calls, &functions, found);
        if handing_on.is_empty() {
            return;
        }
        let (entries, functions): (Vec<u64>, Vec<_>) = handing_on.into_iter().unzip();
        let direct = entries.into_iter().zip(0..).collect();
        let calls = search.module.image.calls_of(&direct, &HashMap::new());
        search.look_at(&calls, &functions, found);
    }
}

/// The module and the data of a search.
struct Search<'a> {
    module: &'a mut Module,
    options: &'a NameOptions,
    limits: &'a mut Limits,
    executable: bool,
    /// Runtime address minus link address.
    bias: u64,
}

impl Search<'_> {
    /// Adds the locks of the `calls` in `functions` to `found`. Returns the functions that only
    /// pass on their caller's lock, by their first addresses: their callers' arguments name the
    /// lock.
    fn look_at(
        &mut self,
        calls: &[(u64, u64, usize)],
        functions: &[(String, LockFunction)],
        found: &mut Vec<FoundCall>,
    ) -> BTreeMap<u64, (String, LockFunction)> {
        let mut handing_on = BTreeMap::new();
        for &(at, after, which) in calls.iter().take(MAX_CALLS) {
            let Some((debug, image)) = self.module.debug(self.options, self.limits) else {
                break;
            };
            let after = LinkAddress(after);
            let limits = &mut self.limits.sentences;
            let passed = debug.pointers_passed(after, image, self.executable, limits);
            let (name, function) = &functions[which];
            let Some(passed) = passed.and_then(|p| p.into_iter().nth(function.argument)?) else {
                continue;
            };
            if let Some((entry, argument)) = debug.passed_through(after, &passed, limits)
                && let Some(symbol) = image.symbols.function(LinkAddress(entry))
            {
                let size = function.size;
                let readable = fold::function(&symbol.name);
                handing_on.insert(entry, (readable, LockFunction { argument, size }));
            }
            let Some((object, offset, modulo)) = reached(debug, &passed, self.bias) else {
                continue;
            };
            found.push(FoundCall {
                call: LockCall {
                    code: CodeAddress(at.wrapping_add(self.bias)),
                    callee: name.clone(),
                },
                object,
                offset,
                modulo,
                size: function.size,
            });
        }
        handing_on
    }
}

/// Whether `ty` is a record of the program's own with a name. Types such as `pthread_mutex_t` do
/// not count: their fields are the same in all objects.
fn is_named_record(types: &TypeTable, ty: TypeId) -> bool {
    let named = |ty| types.get(ty).is_some_and(|t| t.name.is_some());
    types.is_own_record(ty) && named(types.plain(ty)) && !is_opaque_type(types, ty)
}

fn is_opaque_type(types: &TypeTable, ty: TypeId) -> bool {
    let name = types.get(ty).and_then(|t| t.name.as_deref());
    name.is_some_and(path::is_opaque)
}

/// The object that `passed` leads to, and the offset in it.
fn reached(
    debug: &mut Debug,
    passed: &PassedPointer,
    bias: u64,
) -> Option<(LockedObject, u64, u64)> {
    let touched = passed.touched;
    match touched.storage {
        Storage::Frame => None,
        Storage::Global => {
            let start = Address(passed.start?.wrapping_add(bias));
            let offset = u64::try_from(touched.offset).ok()?;
            let offset = match touched.modulo {
                0 => offset,
                modulo => offset % modulo,
            };
            Some((LockedObject::Static(start), offset, touched.modulo))
        }
        Storage::Pointer => {
            let types = &debug.tables.types;
            let offset = types.known_offset(touched.ty, touched.offset, touched.modulo)?;
            let (own, plain) = (is_named_record(types, touched.ty), types.plain(touched.ty));
            let size = types.size(touched.ty)?;
            let object = if own {
                LockedObject::Record(debug.tables.types.name(&mut debug.tables.info, plain), size)
            } else {
                let name = debug.tables.types.name(&mut debug.tables.info, touched.ty);
                LockedObject::Named(passed.variable.clone()?, name, size)
            };
            Some((object, offset, 0))
        }
    }
}
