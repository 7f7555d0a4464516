//! The allocation functions: each calls the real one and records the result. `operator new` and
//! `delete` get here through the C++ library. Contexts: pre-init, normal, post-fork.

use crate::hooks::call_stack;
use crate::local::{RECORDER, recorded};
use core::ffi::c_void;
use sunder_guest::allocator::{Caller, Watch};
use sunder_recorder::MOST_FRAMES;
use sunder_trace::slot::{Key, Slot, alignment_code, tag};

sunder_guest::watched_heap!(Blocks);

/// Records the program's blocks with their call stacks.
struct Blocks;

impl Watch for Blocks {
    fn allocated(block: *mut c_void, size: usize, alignment: usize, caller: Caller) -> *mut c_void {
        if block.is_null() {
            return block;
        }
        if let Some(buffer) = recorded() {
            let mut frames = [0; MOST_FRAMES];
            // SAFETY: the exported function passed its own stack pointer, at which its return
            // address lies.
            let own = unsafe { *caller.sp };
            let stack = caller.sp as u64;
            // `operator new` has no hooks, so its caller is not in the call stack.
            let new = crate::new::caller(stack, own);
            let mut known = 0;
            if let Some(place) = frames.first_mut().filter(|_| new.is_some()) {
                *place = own;
                known = 1;
            }
            let rest = frames.get_mut(known..).unwrap_or_default();
            let count = known + call_stack(new.unwrap_or(own), stack, rest);
            // SAFETY: the calling thread's buffer.
            unsafe {
                let stack = RECORDER.stack(buffer, frames.get(..count).unwrap_or_default());
                let code = alignment_code(alignment);
                let size = Slot::new(size as u64, Key::new(tag::SIZE, code, u64::from(stack)));
                RECORDER.push_after(buffer, size);
                RECORDER.push(
                    buffer,
                    Slot::new(block as u64, Key::new(tag::ALLOCATE, 0, 0)),
                );
            }
        }
        block
    }

    fn freeing(block: *mut c_void) {
        if !block.is_null() {
            crate::local::before(Slot::new(block as u64, Key::new(tag::FREE, 0, 0)));
        }
    }
}
