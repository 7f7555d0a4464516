//! The functions that the program calls instead of the C library's. Functions that may need to know
//! their caller pass it on to the function of the same name in [`inner`]. Contexts: pre-init,
//! normal, signal, post-fork.

use crate::arena;
use crate::block::Block;
use crate::fatal;
use crate::heap::{self, BLOCK_MOST, DIRECT_MOST, Heap, Refusal};
use crate::local::Away;
use crate::segments;
use crate::site;
use crate::span::Span;
use crate::table::{self, Key, PADDED};
use crate::{config, huge, large, local, pool, shared};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use sunder_access::{PAGE_SIZE as PAGE, ThreadId};
use sunder_guest::allocator::{Caller, out_of_memory};
use sunder_guest::callers;
use sunder_placement::{CallSite, Placement, Policy, Request, class};

/// The alignment of all blocks, in bytes.
const LEAST_ALIGN: usize = 16;
/// The exported functions. Not in test binaries: these keep their own malloc.
#[cfg(not(test))]
mod exported {
    use super::inner;
    use core::ffi::{c_int, c_void};

    sunder_guest::forward! { "rdx", "rcx";
        malloc = inner::malloc where (size: usize) -> *mut c_void;
        // `operator new(size_t)`: all others of the C++ library call it.
        _Znwm = inner::new where (size: usize) -> *mut c_void;
    }
    sunder_guest::forward! { "rsi", "rdx";
        valloc = inner::valloc where (size: usize) -> *mut c_void;
        pvalloc = inner::pvalloc where (size: usize) -> *mut c_void;
    }
    sunder_guest::forward! { "rdx", "rcx";
        calloc = inner::calloc where (count: usize, size: usize) -> *mut c_void;
        realloc = inner::realloc where (block: *mut c_void, size: usize) -> *mut c_void;
        aligned_alloc = inner::aligned_alloc where (alignment: usize, size: usize) -> *mut c_void;
        memalign = inner::aligned_alloc where (alignment: usize, size: usize) -> *mut c_void;
    }
    sunder_guest::forward! { "rcx", "r8";
        reallocarray = inner::reallocarray where (block: *mut c_void, count: usize, size: usize) -> *mut c_void;
        posix_memalign = inner::posix_memalign where (block: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    }

    macro_rules! frees {
        ($($name:ident;)*) => {$(
            /// Interposed; see the C library's manual.
            ///
            /// # Safety
            /// As the C library demands.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(block: *mut c_void) {
                // SAFETY: the caller's arguments, passed on unchanged under the same contract.
                unsafe { inner::free(block) }
            }
        )*};
    }

    // `operator delete(void*)`: all others of the C++ library call it.
    frees! { free; cfree; _ZdlPv; }

    /// Interposed; see the C library's manual.
    ///
    /// # Safety
    /// As the C library demands.
    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn malloc_usable_size(block: *mut c_void) -> usize {
        if block.is_null() {
            return 0;
        }
        super::size_of_block(block as usize)
    }

    /// Interposed; see the C library's manual.
    #[unsafe(no_mangle)]
    pub extern "C-unwind" fn malloc_trim(_keep: usize) -> c_int {
        super::trim()
    }

    /// Interposed: the counts are not kept.
    #[unsafe(no_mangle)]
    pub extern "C-unwind" fn mallinfo2() -> libc::mallinfo2 {
        // SAFETY: plain numbers, for which zero is valid.
        unsafe { core::mem::zeroed() }
    }

    /// Interposed: the counts are not kept.
    #[unsafe(no_mangle)]
    pub extern "C-unwind" fn mallinfo() -> libc::mallinfo {
        // SAFETY: plain numbers, for which zero is valid.
        unsafe { core::mem::zeroed() }
    }

    /// Interposed: this allocator has none of glibc's parameters. 1 is success.
    #[unsafe(no_mangle)]
    pub extern "C-unwind" fn mallopt(_parameter: c_int, _value: c_int) -> c_int {
        1
    }
}

fn trim() -> c_int {
    let heap = local::heap();
    if !heap.is_null() {
        // SAFETY: the calling thread's own heap.
        unsafe {
            let _away = Away::begin(heap);
            (*heap).trim();
        }
    }
    pool::scavenge();
    c_int::from(arena::trim())
}

/// A block for a request that the fast path has not served, and whether it is known to be zero.
/// Null if there is no memory.
#[cold]
#[inline(never)]
fn allocate(size: usize, align: usize, caller: Caller) -> (*mut u8, bool) {
    if size > isize::MAX as usize - segments::SEGMENT {
        return (null_mut(), false);
    }
    let from = |heap| from_heap(heap, size, align, caller);
    if config::policy() == Policy::General && !config::pads() {
        let block = shared::with(from).or_else(|| pool::borrow(from));
        return block.unwrap_or((null_mut(), false));
    }
    let heap = pool::own_heap();
    if heap.is_null() {
        let block = pool::borrow(from);
        return block.unwrap_or((null_mut(), false));
    }
    // SAFETY: the thread's own heap.
    let _away = unsafe { Away::begin(heap) };
    from(heap)
}

/// Allocates from `heap`, of which the caller is the only user.
fn from_heap(heap: *mut Heap, size: usize, align: usize, caller: Caller) -> (*mut u8, bool) {
    // SAFETY: the caller is the only user of the heap, and the bins belong to it.
    let block = unsafe {
        let bucket =
            if config::uses_classes() || config::policy() == Policy::General && !config::pads() {
                None
            } else {
                bucket(size, align, caller)
            };
        let from_class = || {
            let bin = (*heap).class_bin(size, align)?;
            Some(Heap::allocate(heap, bin, false, pool::scavenge))
        };
        let from_bucket = |bucket: &Bucket, limited| {
            let bin = (*heap).bucket(bucket.key, bucket.block, limited)?;
            Heap::allocate(heap, bin, limited, pool::scavenge)
        };
        let block = match bucket {
            Some(bucket) if bucket.block > BLOCK_MOST => None,
            Some(bucket) => Some(match from_bucket(&bucket, bucket.limited) {
                // Where no class has blocks of this size with this alignment, it has its bucket.
                Err(Refusal::Budget) => from_class().unwrap_or_else(|| from_bucket(&bucket, false)),
                result => result,
            }),
            None => from_class(),
        };
        match block {
            Some(block) => block,
            None => return large::allocate(size, align, pool::scavenge),
        }
    };
    match block {
        Ok(block) => (block.cast(), false),
        Err(_) if arena::may_refuse() => (huge::allocate(size, align), true),
        Err(_) => (null_mut(), false),
    }
}

/// Where the policy puts a request.
struct Bucket {
    key: Key,
    /// Bytes of its blocks.
    block: usize,
    /// Whether it takes memory only within the heap's budget. Objects that are to have lines of
    /// their own have them in any case.
    limited: bool,
}

/// The bucket of a request; `None` if its size class alone chooses the bin.
fn bucket(size: usize, align: usize, caller: Caller) -> Option<Bucket> {
    const LISTED: CallSite = CallSite(table::LISTED);
    let placement = Placement {
        policy: config::policy(),
        padded: if config::pads() { &[LISTED] } else { &[] },
        line: config::line(),
    };
    let address = callers::address(caller);
    let listed = config::pads() && site::is_listed(caller);
    let bucket = placement.bucket(&Request {
        // Each thread has a heap of its own, so the key needs no thread.
        thread: ThreadId(0),
        size: size as u64,
        align: align as u64,
        site: if listed { LISTED } else { CallSite(address) },
    });
    if !bucket.padded && !matches!(placement.policy, p if p.separates_sizes() || p.needs_site()) {
        return None;
    }
    let least = if bucket.padded {
        placement.line
    } else {
        LEAST_ALIGN as u64
    };
    // The policy `call-site` may mix sizes; here they are not mixed across size classes.
    let wanted = bucket
        .size
        .unwrap_or_else(|| class::block_size(size as u64));
    let block = class::round_up(wanted.max(1), least.max(align as u64));
    Some(Bucket {
        key: Key {
            site: bucket.site.map_or(0, |site| site.0) | if bucket.padded { PADDED } else { 0 },
            size: wanted << 32 | align.max(LEAST_ALIGN) as u64,
        },
        block: block as usize,
        limited: !bucket.padded,
    })
}

/// The fast path; null if the slow path is needed.
#[inline(always)]
fn from_direct(size: usize) -> *mut Block {
    let heap = local::heap();
    if size > DIRECT_MOST || heap.is_null() {
        return null_mut();
    }
    // SAFETY: the thread's own heap, whose table has a span for each such size.
    unsafe {
        let span = *(*heap).direct.get_unchecked(size.div_ceil(16));
        (*span).take()
    }
}

/// The usable size of a block of this heap, in bytes.
#[inline]
fn size_of_block(address: usize) -> usize {
    let span = segments::span_of(address);
    if span.is_null() {
        return huge::size_of_block(address)
            .unwrap_or_else(|| fatal::abort(b"invalid pointer", address));
    }
    // SAFETY: the descriptors of segments in use are readable.
    unsafe {
        if !(*span).starts_block(address) {
            fatal::abort(b"invalid pointer", address);
        }
        (*span).fixed.block
    }
}

/// The work of the exported functions, with their caller as an argument.
mod inner {
    use super::*;

    /// The unused second argument places the others in the registers in which the slow path expects
    /// them.
    pub unsafe extern "C-unwind" fn malloc(
        size: usize,
        _: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        let block = from_direct(size);
        if !block.is_null() {
            return block.cast();
        }
        slow_malloc(size, LEAST_ALIGN, sp, bp)
    }

    /// The fast path jumps here and so needs no stack frame, also below.
    #[cold]
    #[inline(never)]
    extern "C-unwind" fn slow_malloc(
        size: usize,
        align: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        aligned(size, align, Caller { sp, bp })
    }

    #[inline]
    fn aligned(size: usize, align: usize, caller: Caller) -> *mut c_void {
        let (block, _) = allocate(size, align, caller);
        if block.is_null() {
            return out_of_memory();
        }
        block.cast()
    }

    pub unsafe extern "C-unwind" fn new(
        size: usize,
        _: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        let block = from_direct(size);
        if !block.is_null() {
            return block.cast();
        }
        slow_new(size, LEAST_ALIGN, sp, bp)
    }

    #[cold]
    #[inline(never)]
    extern "C-unwind" fn slow_new(
        size: usize,
        align: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        let block = aligned(size, align, Caller { sp, bp });
        if block.is_null() {
            return new_failed(size);
        }
        block
    }

    /// Calls the C++ library, which calls the new-handler or throws.
    #[cold]
    fn new_failed(size: usize) -> *mut c_void {
        // SAFETY: the name is a C string; the function of that name has this type.
        unsafe {
            let real = libc::dlsym(libc::RTLD_NEXT, c"_Znwm".as_ptr());
            if real.is_null() {
                return null_mut();
            }
            let real: unsafe extern "C-unwind" fn(usize) -> *mut c_void =
                core::mem::transmute(real);
            real(size)
        }
    }

    pub unsafe extern "C-unwind" fn valloc(size: usize, sp: *const u64, bp: u64) -> *mut c_void {
        aligned(size, PAGE, Caller { sp, bp })
    }

    pub unsafe extern "C-unwind" fn pvalloc(size: usize, sp: *const u64, bp: u64) -> *mut c_void {
        match size.checked_next_multiple_of(PAGE) {
            Some(size) => aligned(size.max(PAGE), PAGE, Caller { sp, bp }),
            None => out_of_memory(),
        }
    }

    pub unsafe extern "C-unwind" fn calloc(
        count: usize,
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        let Some(total) = count.checked_mul(size) else {
            return out_of_memory();
        };
        let (mut block, mut zero) = (from_direct(total).cast::<u8>(), false);
        if block.is_null() {
            (block, zero) = allocate(total, LEAST_ALIGN, Caller { sp, bp });
            if block.is_null() {
                return out_of_memory();
            }
        }
        if !zero {
            // SAFETY: the new block has so many bytes.
            unsafe { block.write_bytes(0, total) };
        }
        block.cast()
    }

    pub unsafe extern "C-unwind" fn aligned_alloc(
        alignment: usize,
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        // As glibc does: an alignment that is no power of two is rounded up.
        match alignment.checked_next_power_of_two() {
            Some(align) if align <= 1 << 47 => {
                aligned(size, align.max(LEAST_ALIGN), Caller { sp, bp })
            }
            _ => {
                // SAFETY: the C library returns the valid address of this thread's `errno`.
                unsafe { *libc::__errno_location() = libc::EINVAL };
                null_mut()
            }
        }
    }

    pub unsafe extern "C-unwind" fn posix_memalign(
        place: *mut *mut c_void,
        alignment: usize,
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> c_int {
        if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<usize>()) {
            return libc::EINVAL;
        }
        if alignment > 1 << 47 {
            return libc::ENOMEM;
        }
        let (block, _) = allocate(size, alignment.max(LEAST_ALIGN), Caller { sp, bp });
        if block.is_null() {
            return libc::ENOMEM;
        }
        // SAFETY: the caller passes a valid place.
        unsafe { *place = block.cast() };
        0
    }

    pub unsafe extern "C-unwind" fn reallocarray(
        block: *mut c_void,
        count: usize,
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        match count.checked_mul(size) {
            // SAFETY: the caller's block, under the same contract.
            Some(total) => unsafe { realloc(block, total, sp, bp) },
            None => out_of_memory(),
        }
    }

    pub unsafe extern "C-unwind" fn realloc(
        block: *mut c_void,
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        if block.is_null() {
            // SAFETY: the caller upholds the C library's contract.
            return unsafe { malloc(size, 0, sp, bp) };
        }
        if size == 0 {
            // SAFETY: as in glibc, the block is freed and none is returned.
            unsafe { free(block) };
            return null_mut();
        }
        let old = size_of_block(block as usize);
        if size <= old && (size > old / 2 || old <= 64) {
            return block;
        }
        let in_arena = !segments::span_of(block as usize).is_null();
        if !in_arena && size > BLOCK_MOST {
            // SAFETY: the program passed the block to be moved.
            if let Some(new) = unsafe { huge::resize(block as usize, size) } {
                return new.cast();
            }
        }
        // A large block that grows will probably grow again, and memory that is not touched costs
        // nothing.
        let wanted = if size > old && old > BLOCK_MOST {
            size.max(old.saturating_add(old / 4))
        } else {
            size
        };
        // SAFETY: the new block has at least as many bytes as are copied.
        unsafe {
            let mut new = malloc(wanted, 0, sp, bp);
            if new.is_null() && wanted > size {
                new = malloc(size, 0, sp, bp);
            }
            if new.is_null() {
                return null_mut();
            }
            new.cast::<u8>()
                .copy_from_nonoverlapping(block.cast(), old.min(size));
            free(block);
            new
        }
    }

    #[inline(always)]
    pub unsafe fn free(block: *mut c_void) {
        let span = segments::span_of(block as usize);
        if span.is_null() {
            return free_elsewhere(block as usize);
        }
        let heap = local::heap();
        // SAFETY: the descriptors of segments in use are readable; if the address is the start of a
        // block, the span is live.
        unsafe {
            if !(*span).starts_block(block as usize) {
                return fatal::invalid(block as usize);
            }
            // The owner of a live span is not null, so the comparison fails for a thread without a
            // heap.
            if (*span).fixed.owner == Heap::owner(heap) {
                if (*span).give(block.cast()) {
                    settle(heap, span);
                }
            } else if (*span).fixed.capacity == 1 {
                large::free(span);
            } else {
                heap::give_remote(span, block.cast());
            }
        }
    }

    /// # Safety
    /// As [`Heap::settle`] of the calling thread's heap.
    #[cold]
    #[inline(never)]
    unsafe fn settle(heap: *mut Heap, span: *mut Span) {
        // SAFETY: by this function's contract.
        unsafe {
            if !Heap::is_settled(span) {
                let _away = Away::begin(heap);
                (*heap).settle(span);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn free_elsewhere(address: usize) {
        if address != 0 && !huge::free(address) {
            fatal::abort(b"invalid pointer", address);
        }
    }
}
