//! The allocation functions: each calls the real one and reports the result. `operator new` and
//! `delete` get here through the C++ library. Contexts: pre-init, normal, post-fork.

use crate::tell;
use core::ffi::c_void;
use sunder_guest::allocator::{Caller, Watch};
use sunder_trace::announce::kind;
use sunder_trace::slot::alignment_code;

sunder_guest::watched_heap!(Blocks);

/// Reports the program's blocks to the plugin.
struct Blocks;

impl Watch for Blocks {
    #[inline]
    fn allocated(block: *mut c_void, size: usize, alignment: usize, _: Caller) -> *mut c_void {
        if !block.is_null() {
            let kind = kind::allocate(alignment_code(alignment));
            tell(kind, block.addr() as u64, size as u64);
        }
        block
    }

    #[inline]
    fn freeing(block: *mut c_void) {
        if !block.is_null() {
            tell(kind::FREE, block.addr() as u64, 0);
        }
    }
}
