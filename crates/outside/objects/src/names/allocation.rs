//! The type and the holder of a heap block, from the code that allocated it. Called by [`Names`];
//! the recorder of the allocation provides the call stacks.

use super::placed::Placed;
use super::process::Names;
use crate::answer::{CodeFrame, TypeHandle};
use crate::dwarf::Language;
use crate::flow::Argument;
use crate::fold;
use crate::module::CallResult;
use crate::types::{TypeId, TypeTable};
use sunder_access::{Address, CodeAddress, LINE, LinkAddress};

/// How many functions around an allocation (`operator new`, allocators, factories) may be wrappers
/// of it.
const MAX_WRAPPERS: usize = 12;

/// What holds a heap block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The variable, field or container, as the user's code calls it.
    pub name: String,
    /// Whether it is a local variable as a whole.
    pub is_local: bool,
}

impl Names {
    /// The type of a heap block of `size` bytes, or of its elements, according to the code that
    /// allocated it: what the pointer that takes the result points to, or what the allocating
    /// function returns, unless that keeps the block elsewhere. `stack` has the return addresses, innermost first. A guess if a function
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
            let fits = |ty: &TypeId| holds(types, *ty, size);
            // A constructor allocates parts of what it returns, too.
            let stays = call.call.taker.is_some() && !call.call.returned;
            let returned = call.returned.filter(|_| !stays);
            let told = [call.result, returned, call.elements];
            let found = told.into_iter().flatten().find(fits);
            if let Some(ty) = found {
                return Some(TypeHandle {
                    module: placed.module as u32,
                    ty: ty.0,
                });
            }
            if stays || !call.passed_on {
                return None;
            }
        }
        None
    }

    /// The variable or field that holds a block that was allocated by the call stack `stack`
    /// (return addresses, innermost first), as the user's code calls it: the one that takes the
    /// result of the call, or the container in which a library's function stores it. If a function
    /// returns the block, its caller is looked at. `None` if the holder is not certain.
    pub fn holder(&mut self, stack: &[CodeAddress]) -> Option<Holder> {
        let mut known: Option<Holder> = None;
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
            let taken = call.taker.as_ref().map(|taker| Holder {
                name: taker.name.clone(),
                is_local: taker.local,
            });
            let taker = taken.or_else(|| {
                Some(Holder {
                    name: stored?.clone(),
                    is_local: false,
                })
            });
            known = taker.clone().or(known);
            let behind_this = by_library && call.argument == Argument::Own;
            let outward = call.returned || (taker.is_none() && (passed_on || behind_this));
            if !outward {
                return known;
            }
            by_library = by_library && taker.is_none();
        }
        known
    }

    /// Marks the frames of `stack`, the functions at the call that returns to `ret`, that are
    /// wrappers of the allocator: they return raw memory that the call gave them. Where that memory
    /// is used differently, only their callers can be changed. Optimised code may have left a wrapper
    /// out of the call stack (a tail call), or made it part of its caller (an inlined function).
    pub(super) fn mark_wrappers(&mut self, ret: CodeAddress, frames: &mut [CodeFrame]) {
        let Some(placed) = self.place(Address(ret.0.wrapping_sub(1))) else {
            return;
        };
        let Some(CallResult { call, raw, .. }) = self.call_before(placed) else {
            return;
        };
        let Some((debug, limits)) = self.debug(placed.module) else {
            return;
        };
        let inlined = debug.tables.inlined_at(placed.link, limits);
        if inlined.len() + 1 != frames.len() {
            return;
        }
        // The innermost of inlined functions is the last of them, and the first of frames.
        let levels = inlined.iter().rev();
        let mut outward = true;
        for (frame, level) in frames.iter_mut().zip(levels) {
            let leaves = |at: u64| !level.ranges.iter().any(|r| (r.0..r.1).contains(&at));
            let taken_outside = call.taker.as_ref().is_some_and(|t| leaves(t.at()));
            outward &= level.raw && (call.returned || taken_outside);
            frame.wrapper = outward;
        }
        if let Some(whole) = frames.get_mut(inlined.len()) {
            whole.wrapper = outward && raw && call.returned;
        }
    }

    /// The analysis of the call that returns to the address one byte after `placed`.
    fn call_before(&mut self, placed: Placed) -> Option<CallResult> {
        let executable = self.executable() == Some(placed.module);
        let after = LinkAddress(placed.link.0.checked_add(1)?);
        let (debug, image, limits) = self.debug_and_image(placed.module)?;
        debug.result_of_call(after, image, executable, limits)
    }
}

/// Whether a block of `size` bytes may hold one `ty` or an array of them.
fn holds(types: &TypeTable, ty: TypeId, size: u64) -> bool {
    let Some(one) = types.size(ty) else {
        return false;
    };
    let array = one > 1 && size.is_multiple_of(one) && !types.is_head(ty);
    one == size || array || fills_lines(types, ty, one, size)
}

/// Whether a block of `size` bytes is one record of `one` bytes with room up to the end of its last
/// line, as `aligned_alloc` takes it. Only in C, where a larger block than a record is no derived
/// class.
fn fills_lines(types: &TypeTable, ty: TypeId, one: u64, size: u64) -> bool {
    let language = types.get(types.plain(ty)).map(|t| t.language);
    let lines = one.checked_next_multiple_of(LINE);
    one > size / 2
        && lines == Some(size)
        && language == Some(Language::C)
        && types.is_own_record(ty)
}
