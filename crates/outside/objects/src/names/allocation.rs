//! The type and the holder of a heap block, from the code that allocated it. Called by [`Names`];
//! the recorder of the allocation provides the call stacks.

use super::placed::Placed;
use super::process::Names;
use crate::answer::TypeHandle;
use crate::flow::Argument;
use crate::fold;
use crate::module::CallResult;
use crate::types::TypeId;
use sunder_access::{Address, CodeAddress, LinkAddress};

/// How many functions around an allocation (`operator new`, allocators, factories) may be wrappers
/// of it.
const MAX_WRAPPERS: usize = 12;

impl Names {
    /// The type of a heap block of `size` bytes, or of its elements, according to the code that
    /// allocated it: what the pointer that takes the result points to, or what the allocating
    /// function returns. `stack` has the return addresses, innermost first. A guess if a function
    /// allocates one type and returns another of fitting size; the types of accesses
    /// ([`Names::typed_access`]) count more.
    pub fn allocated_type(&mut self, stack: &[CodeAddress], size: u64) -> Option<TypeHandle> {
        for &ret in stack.iter().take(MAX_WRAPPERS) {
            let placed = self.place(Address(ret.0.wrapping_sub(1)))?;
            if self.debug(placed.module).is_none() {
                // The allocator itself, or a wrapper in a library without debug information.
                continue;
            }
            let call = self.call_before(placed)?;
            let types = &self.debug(placed.module)?.0.tables.types;
            let fits = |ty: &TypeId| {
                types.size(*ty).is_some_and(|s| {
                    s == size || (s > 1 && size.is_multiple_of(s) && !types.is_shared_head(*ty))
                })
            };
            let found = call.result.filter(fits).or(call.returned.filter(fits));
            if let Some(ty) = found {
                return Some(TypeHandle {
                    module: placed.module as u32,
                    ty: ty.0,
                });
            }
            if !call.passed_on {
                return None;
            }
        }
        None
    }

    /// The variable or field that holds a block that was allocated by the call stack `stack`
    /// (return addresses, innermost first), as the user's code calls it: the one that takes the
    /// result of the call, or the container in which a library's function stores it. If a function
    /// returns the block, its caller is looked at. `None` if the holder is not certain.
    pub fn holder(&mut self, stack: &[CodeAddress]) -> Option<String> {
        let mut known: Option<String> = None;
        let mut by_library = false;
        for &ret in stack.iter().take(MAX_WRAPPERS) {
            let own = self.frames_of_return(ret).iter().any(|frame| {
                !fold::is_library_function(&frame.function, frame.file.as_deref())
                    && frame.file.is_some()
            });
            let call = self
                .place(Address(ret.0.wrapping_sub(1)))
                .and_then(|placed| self.call_before(placed));
            let Some(CallResult {
                call, passed_on, ..
            }) = call.filter(|_| own)
            else {
                by_library = true;
                if known.is_some() {
                    return known;
                }
                continue;
            };
            let stored = match &call.argument {
                Argument::Container(name) if by_library => Some(name),
                // `posix_memalign(&p, ...)`.
                Argument::Pointer(name) if known.is_none() => Some(name),
                _ => None,
            };
            let taker = call.taker().or(stored.map(String::as_str));
            known = taker.map(str::to_owned).or(known);
            let behind_this = by_library && call.argument == Argument::Own;
            let outward = call.returned || (taker.is_none() && (passed_on || behind_this));
            if !outward {
                return known;
            }
            by_library = by_library && taker.is_none();
        }
        known
    }

    /// The analysis of the call that returns to the address one byte after `placed`.
    fn call_before(&mut self, placed: Placed) -> Option<CallResult> {
        let executable = self.executable() == Some(placed.module);
        let after = LinkAddress(placed.link.0.checked_add(1)?);
        let Self {
            modules,
            options,
            limits,
            ..
        } = self;
        let (debug, image) = modules.get_mut(placed.module)?.debug(options, limits)?;
        debug.result_of_call(after, image, executable, &mut limits.sentences)
    }
}
