//! The exported `malloc` family. [`forward!`](crate::forward) exports functions that pass their
//! caller's registers to the function behind them; every library that exports allocation functions
//! uses it. [`watched_heap!`](crate::watched_heap) exports the whole family for a library that
//! watches the program's allocator and does not replace it: each function calls the real one and
//! reports the result to the library's [`Watch`]. `operator new` and `delete` get here through the
//! C++ library. Contexts: pre-init, normal, post-fork. Where the library says so, a block gets cache
//! lines of its own; everything else is asked for as the program asks.
//!
//! A free is reported before it happens and an allocation after it, so that a reused address is
//! never allocated before it was freed. While a real function is looked up, requests are served
//! from [`early`], and these blocks are not reported.

use crate::early;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use sunder_access::PAGE_SIZE as PAGE;

/// Bytes of a cache line.
const LINE: usize = sunder_access::LINE as usize;
/// Larger blocks, in bytes, are never placed: they share only two of their many lines, and `calloc` and
/// `realloc` of them leave to the kernel what placing would have to write and copy.
const MOST_PLACED: usize = 64 << 10;

/// The real functions.
pub mod real {
    use core::ffi::{c_int, c_void};

    crate::functions! {
        all look_up_all;
        malloc: fn(usize) -> *mut c_void;
        malloc_usable_size: fn(*mut c_void) -> usize;
        calloc: fn(usize, usize) -> *mut c_void;
        realloc: fn(*mut c_void, usize) -> *mut c_void;
        reallocarray: fn(*mut c_void, usize, usize) -> *mut c_void;
        free: fn(*mut c_void) -> ();
        posix_memalign: fn(*mut *mut c_void, usize, usize) -> c_int;
        aligned_alloc: fn(usize, usize) -> *mut c_void;
        memalign: fn(usize, usize) -> *mut c_void;
        valloc: fn(usize) -> *mut c_void;
        pvalloc: fn(usize) -> *mut c_void;
    }
}

/// The caller's registers at an exported function, as [`forward!`](crate::forward) passes them.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The stack pointer at the function's entry, where the return address lies.
    pub sp: *const u64,
    /// The frame pointer at the function's entry.
    pub bp: u64,
}

/// What a library does about the program's blocks. The functions of this module call it in the
/// thread that allocates.
pub trait Watch {
    /// Whether the block that `caller` asks for is to begin and end at cache lines. Asked at most once for
    /// each block.
    #[inline]
    fn places(_caller: Caller) -> bool {
        false
    }

    /// A request for `size` bytes, aligned to `alignment` (1 if none was requested), returned
    /// `block`; null if it failed. Returns the block.
    fn allocated(block: *mut c_void, size: usize, alignment: usize, caller: Caller) -> *mut c_void;

    /// A block of the real allocator, or null, is about to be freed.
    fn freeing(block: *mut c_void);

    /// `call` reallocates a block of the real allocator, or null, to `size` bytes. The end of the
    /// old block is recorded before the call, because afterwards its address may belong to another
    /// thread. If the call fails, the block lives on: it is allocated again.
    #[inline]
    fn reallocated(
        block: *mut c_void,
        size: usize,
        caller: Caller,
        call: impl FnOnce() -> *mut c_void,
    ) -> *mut c_void {
        Self::freeing(block);
        Self::allocated(call(), size, 1, caller)
    }

    /// The body of `free`.
    ///
    /// # Safety
    /// As `free`.
    #[inline]
    unsafe fn free(block: *mut c_void) {
        if block.is_null() || early::owns(block) {
            return;
        }
        Self::freeing(block);
        if let Some(real) = real::free() {
            // SAFETY: the caller's arguments, passed on unchanged under the same contract.
            unsafe { real(block) }
        }
    }
}

/// Sets `errno` to `ENOMEM` and returns null.
pub fn out_of_memory() -> *mut c_void {
    // SAFETY: the C library returns the valid address of this thread's `errno`.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    null_mut()
}

/// Serves an allocation before the real function is known.
#[cold]
fn serve_early(size: Option<usize>, alignment: usize) -> *mut c_void {
    let block = size.map_or(null_mut(), |s| early::allocate(s, alignment));
    if block.is_null() {
        out_of_memory()
    } else {
        block.cast()
    }
}

/// Moves a block of the early arena into the real heap.
///
/// # Safety
/// `block` was allocated from the arena.
#[cold]
unsafe fn leave_arena<W: Watch>(block: *mut c_void, size: usize, caller: Caller) -> *mut c_void {
    let Some(malloc) = real::malloc() else {
        return out_of_memory();
    };
    // SAFETY: `malloc` accepts any size. The old block is the arena's, and the new one has room for
    // the bytes that are copied.
    unsafe {
        let new = malloc(size);
        if !new.is_null() {
            early::move_to(new.cast(), size, block.cast());
        }
        W::allocated(new, size, 1, caller)
    }
}

/// A block of `size` bytes that begins and ends at a line, and is aligned to `alignment` as well. The
/// program's allocator is asked as the program might ask it.
#[cold]
fn place<W: Watch>(size: usize, alignment: usize, caller: Caller) -> *mut c_void {
    let alignment = alignment.max(LINE);
    let Some(whole) = size.max(1).checked_next_multiple_of(alignment) else {
        return out_of_memory();
    };
    let Some(real) = real::aligned_alloc() else {
        return serve_early(Some(whole), alignment);
    };
    // SAFETY: any request may be made.
    W::allocated(unsafe { real(alignment, whole) }, size, alignment, caller)
}

/// As `realloc` of a block that is there to a size that is not 0: the block gets lines of its own.
/// `None` if the allocator does not tell how large blocks are.
///
/// # Safety
/// `block` is a block of the real allocator.
#[cold]
unsafe fn place_again(block: *mut c_void, size: usize) -> Option<*mut c_void> {
    let (usable, new, free) = (
        real::malloc_usable_size()?,
        real::aligned_alloc()?,
        real::free()?,
    );
    let Some(whole) = size.checked_next_multiple_of(LINE) else {
        return Some(out_of_memory());
    };
    // SAFETY: by this function's contract; both blocks have the bytes that are copied, and the old one
    // is freed as `realloc` frees it.
    unsafe {
        let to = new(LINE, whole);
        if !to.is_null() {
            let bytes = usable(block).min(size);
            to.cast::<u8>()
                .copy_from_nonoverlapping(block.cast(), bytes);
            free(block);
        }
        Some(to)
    }
}

/// The bodies of the exported functions, with their caller as an argument. Each has the safety
/// contract of the C library's function of its name.
#[doc(hidden)]
#[allow(
    clippy::missing_safety_doc,
    reason = "said once, of the module; the contracts are the C library's"
)]
pub mod inner {
    use super::*;

    pub unsafe extern "C-unwind" fn malloc<W: Watch>(
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        let caller = Caller { sp, bp };
        if size <= MOST_PLACED && W::places(caller) {
            return place::<W>(size, 1, caller);
        }
        let Some(real) = real::malloc() else {
            return serve_early(Some(size), 16);
        };
        // SAFETY: the caller's arguments under the C library's contract, as in all that follow.
        W::allocated(unsafe { real(size) }, size, 1, caller)
    }

    pub unsafe extern "C-unwind" fn valloc<W: Watch>(
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        let Some(real) = real::valloc() else {
            return serve_early(Some(size), PAGE);
        };
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        W::allocated(unsafe { real(size) }, size, PAGE, Caller { sp, bp })
    }

    pub unsafe extern "C-unwind" fn pvalloc<W: Watch>(
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        let Some(real) = real::pvalloc() else {
            return serve_early(size.checked_next_multiple_of(PAGE), PAGE);
        };
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        W::allocated(unsafe { real(size) }, size, PAGE, Caller { sp, bp })
    }

    pub unsafe extern "C-unwind" fn calloc<W: Watch>(
        count: usize,
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        let caller = Caller { sp, bp };
        if let Some(all) = count.checked_mul(size)
            && all <= MOST_PLACED
            && W::places(caller)
        {
            let block = place::<W>(all, 1, caller);
            if !block.is_null() {
                // SAFETY: a new block of at least this size.
                unsafe { block.cast::<u8>().write_bytes(0, all) };
            }
            return block;
        }
        let Some(real) = real::calloc() else {
            // The arena's memory is zero and never reused.
            return serve_early(count.checked_mul(size), 16);
        };
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        let block = unsafe { real(count, size) };
        W::allocated(block, count.wrapping_mul(size), 1, caller)
    }

    pub unsafe extern "C-unwind" fn aligned_alloc<W: Watch>(
        alignment: usize,
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        let caller = Caller { sp, bp };
        if alignment.is_power_of_two() && size <= MOST_PLACED && W::places(caller) {
            return place::<W>(size, alignment, caller);
        }
        let Some(real) = real::aligned_alloc() else {
            return serve_early(Some(size), alignment);
        };
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        let block = unsafe { real(alignment, size) };
        W::allocated(block, size, alignment, caller)
    }

    pub unsafe extern "C-unwind" fn memalign<W: Watch>(
        alignment: usize,
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        let caller = Caller { sp, bp };
        if alignment.is_power_of_two() && size <= MOST_PLACED && W::places(caller) {
            return place::<W>(size, alignment, caller);
        }
        let Some(real) = real::memalign() else {
            return serve_early(Some(size), alignment);
        };
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        let block = unsafe { real(alignment, size) };
        W::allocated(block, size, alignment, caller)
    }

    pub unsafe extern "C-unwind" fn posix_memalign<W: Watch>(
        block: *mut *mut c_void,
        alignment: usize,
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> c_int {
        let Some(real) = real::posix_memalign() else {
            return libc::ENOMEM;
        };
        let caller = Caller { sp, bp };
        // What the program did not ask for must not turn an error into a success.
        let valid = alignment.is_power_of_two() && alignment.is_multiple_of(size_of::<usize>());
        let (wanted, room) = if valid && size <= MOST_PLACED && W::places(caller) {
            (alignment.max(LINE), size.max(1).next_multiple_of(LINE))
        } else {
            (alignment, size)
        };
        // SAFETY: the caller's arguments, but for more room and a larger alignment, under the same
        // contract.
        let result = unsafe { real(block, wanted, room) };
        if result == 0 {
            // SAFETY: the function succeeded, so `block` is a valid place.
            W::allocated(unsafe { *block }, size, alignment, caller);
        }
        result
    }

    pub unsafe extern "C-unwind" fn realloc<W: Watch>(
        block: *mut c_void,
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        let caller = Caller { sp, bp };
        if early::owns(block) {
            // SAFETY: the block was allocated from the arena.
            return unsafe { leave_arena::<W>(block, size, caller) };
        }
        let Some(real) = real::realloc() else {
            return serve_early(block.is_null().then_some(size), 16);
        };
        // A size of 0 may mean `free`.
        let places = (1..=MOST_PLACED).contains(&size) && W::places(caller);
        if places && block.is_null() {
            return place::<W>(size, 1, caller);
        }
        W::reallocated(block, size, caller, || {
            // SAFETY: the caller's arguments, passed on under the same contract.
            unsafe {
                let placed = places.then(|| place_again(block, size)).flatten();
                placed.unwrap_or_else(|| real(block, size))
            }
        })
    }

    pub unsafe extern "C-unwind" fn reallocarray<W: Watch>(
        block: *mut c_void,
        count: usize,
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        let caller = Caller { sp, bp };
        let total = count.checked_mul(size);
        if early::owns(block) {
            return match total {
                // SAFETY: the block was allocated from the arena.
                Some(total) => unsafe { leave_arena::<W>(block, total, caller) },
                None => out_of_memory(),
            };
        }
        let Some(real) = real::reallocarray() else {
            return serve_early(total.filter(|_| block.is_null()), 16);
        };
        W::reallocated(block, total.unwrap_or(usize::MAX), caller, || {
            // SAFETY: the caller's arguments, passed on unchanged under the same contract.
            unsafe { real(block, count, size) }
        })
    }
}

/// Exports functions of three instructions. Each passes the stack and frame pointer at its entry to
/// the function behind it, in the two named registers, and has no stack frame of its own. The
/// registers are those of the two arguments after the function's own.
#[macro_export]
macro_rules! forward {
    ($sp:literal, $bp:literal; $($name:ident = $inner:path where ($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        /// Interposed; see the C library's manual.
        ///
        /// # Safety
        /// As the C library demands.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            ::core::arch::naked_asm!(
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $bp, ", rbp"),
                "jmp {}",
                sym $inner,
            )
        }
    )*};
}

/// Exports the allocation functions, which interpose the C library's, for a type that is a
/// [`Watch`](crate::allocator::Watch). Not in test binaries, which keep their own `malloc`.
#[macro_export]
macro_rules! watched_heap {
    ($watch:ty) => {
        $crate::forward! { "rsi", "rdx";
            malloc = $crate::allocator::inner::malloc::<$watch> where (size: usize) -> *mut ::core::ffi::c_void;
            valloc = $crate::allocator::inner::valloc::<$watch> where (size: usize) -> *mut ::core::ffi::c_void;
            pvalloc = $crate::allocator::inner::pvalloc::<$watch> where (size: usize) -> *mut ::core::ffi::c_void;
        }
        $crate::forward! { "rdx", "rcx";
            calloc = $crate::allocator::inner::calloc::<$watch> where (count: usize, size: usize) -> *mut ::core::ffi::c_void;
            realloc = $crate::allocator::inner::realloc::<$watch> where (block: *mut ::core::ffi::c_void, size: usize) -> *mut ::core::ffi::c_void;
            aligned_alloc = $crate::allocator::inner::aligned_alloc::<$watch> where (alignment: usize, size: usize) -> *mut ::core::ffi::c_void;
            memalign = $crate::allocator::inner::memalign::<$watch> where (alignment: usize, size: usize) -> *mut ::core::ffi::c_void;
        }
        $crate::forward! { "rcx", "r8";
            reallocarray = $crate::allocator::inner::reallocarray::<$watch> where (block: *mut ::core::ffi::c_void, count: usize, size: usize) -> *mut ::core::ffi::c_void;
            posix_memalign = $crate::allocator::inner::posix_memalign::<$watch> where (block: *mut *mut ::core::ffi::c_void, alignment: usize, size: usize) -> ::core::ffi::c_int;
        }

        /// Interposed; see the C library's manual.
        ///
        /// # Safety
        /// As the C library demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn free(block: *mut ::core::ffi::c_void) {
            // SAFETY: the caller's arguments, passed on unchanged under the same contract.
            unsafe { <$watch as $crate::allocator::Watch>::free(block) }
        }
    };
}
