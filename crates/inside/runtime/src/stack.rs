//! Finds the number of a call stack quickly. Context: normal.
//!
//! A thread that allocates at the same place with the same stack pointer has nearly always the same
//! callers. So each thread remembers, for a return address and stack pointer (a *shape*), where the
//! outer return addresses lie; it reads them again at every allocation, and their checksum finds
//! the number of the stack. The frames that are read are therefore always right. Outer frames are
//! assumed to be those of the first stack with the same inner frames, which also keeps deep
//! recursion from filling the table.

use crate::frames::{self, Frames};
use core::sync::atomic::Ordering;
use sunder_guest::allocator::Caller;
use sunder_wire::layout::View;
use sunder_wire::stacks::MAX_FRAMES;

/// Outer return addresses that are read again at every allocation. Deep enough
/// for the containers of unoptimised C++, about ten frames; and a shape fills
/// one cache line.
const MOST_CHECKED: usize = 12;
/// At least so many are checked, and the number is a multiple of this.
const STEP: usize = 4;
/// A thread must have saved so many cycles before a walk: more than most walks take.
const WALK_COST: u64 = 5_000;
const SHAPES: usize = 256;
const SUMS: usize = 1024;
/// Walks of whole stacks may take this share of a thread's time (one in so many cycles). A program
/// that recurses without repeating a stack would otherwise spend most of its time in walks. Beyond
/// this share, only the innermost frames are walked and checked.
const WALK_SHARE: u64 = 50;
/// The most cycles that a thread can save for walks: some milliseconds.
const MOST_CREDIT: u64 = 30_000_000;

/// The stack slots of the return addresses for one stack pointer.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Shape {
    address: u64,
    sp: u64,
    /// Distances from the stack pointer in units of 8 bytes; 0 (the return
    /// address itself) where there are fewer frames.
    distances: [u16; MOST_CHECKED],
    /// How many of them are checked, a multiple of [`STEP`].
    checked: u32,
    /// The number of the stack that was last seen with this shape.
    number: u32,
    /// The checksum of that stack.
    key: u64,
}

const _: () = assert!(size_of::<Shape>() == 64);

#[derive(Clone, Copy)]
#[repr(C)]
struct Sum {
    key: u64,
    number: u32,
}

/// The stacks that a thread remembers. Starts as zeroed memory.
#[repr(C)]
pub struct Cache {
    shapes: [Shape; SHAPES],
    sums: [Sum; SUMS],
    /// Cycles left for walks of whole stacks, and the time at which they were counted.
    credit: u64,
    counted_at: u64,
}

impl Cache {
    /// Forgets all stacks, because another thread will use the memory.
    pub fn forget(&mut self) {
        // SAFETY: plain numbers, for all of which zero is valid.
        *self = unsafe { core::mem::zeroed() };
    }
}

/// An odd constant with irregular bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline]
const fn seed_of(address: u64, sp: u64) -> u64 {
    (address ^ sp.rotate_left(29)).wrapping_mul(FACTOR)
}

/// The checksum of the words in the stack slots of `shape`.
///
/// # Safety
/// They lie on the calling thread's stack.
#[inline]
unsafe fn checksum(shape: &Shape, sp: *const u64, seed: u64) -> u64 {
    // One chain of dependent multiplications. The branch on the result is nearly always predicted,
    // so nothing waits for the chain, and it needs few registers.
    let mut sum = seed;
    let (steps, _) = shape.distances.as_chunks::<STEP>();
    let mut left = shape.checked;
    for step in steps {
        for &distance in step {
            // SAFETY: by this function's contract.
            let word = unsafe { *sp.wrapping_add(distance as usize) };
            sum = sum.wrapping_add(word).wrapping_mul(FACTOR);
        }
        left = left.wrapping_sub(STEP as u32);
        if left == 0 {
            break;
        }
    }
    sum
}

/// The number of the stack of `caller`, if it is the one that was last seen with its shape.
///
/// # Safety
/// `caller` is the calling thread, to which `cache` belongs.
#[inline]
pub unsafe fn known(cache: *const Cache, caller: Caller) -> Option<u32> {
    // SAFETY: `sp` is the stack pointer at our entry, where the return address
    // lies; a shape for it was made from this thread's stack.
    unsafe {
        let address = *caller.sp;
        let seed = seed_of(address, caller.sp as u64);
        let shape = &(*cache).shapes[first_way(seed)];
        if !shape.is_for(address, caller) {
            return None;
        }
        let key = checksum(shape, caller.sp, seed);
        if shape.key == key {
            return Some(shape.number);
        }
        let sum = &(*cache).sums[sum_index(key)];
        (sum.key == key).then_some(sum.number)
    }
}

#[inline]
const fn sum_index(key: u64) -> usize {
    (key >> 40) as usize & (SUMS - 1)
}

/// The number of the stack of `caller`; 0 if the table of stacks is full. `bounds` are those of the
/// thread's stack.
///
/// # Safety
/// `caller` is the calling thread, to which `cache` belongs.
pub unsafe fn number(view: View, cache: &mut Cache, bounds: (u64, u64), caller: Caller) -> u32 {
    // SAFETY: the caller's registers at our entry, as in [`known`].
    unsafe {
        let address = *caller.sp;
        let seed = seed_of(address, caller.sp as u64);
        for way in [first_way(seed), first_way(seed) ^ 1] {
            let shape = cache.shapes[way];
            if shape.is_for(address, caller) {
                let key = checksum(&shape, caller.sp, seed);
                let sum = cache.sums[sum_index(key)];
                if sum.key == key {
                    // The same stack is likely to come next, too.
                    cache.shapes[way].key = key;
                    cache.shapes[way].number = sum.number;
                    cache.shapes.swap(way, first_way(seed));
                    return sum.number;
                }
            }
        }
        walk(view, cache, bounds, caller, seed)
    }
}

/// The first of the two places that a pair of stack pointer and return address has, for two shapes.
#[inline]
const fn first_way(seed: u64) -> usize {
    (seed >> 32) as usize & (SHAPES - 1)
}

impl Shape {
    #[inline]
    fn is_for(&self, address: u64, caller: Caller) -> bool {
        self.address == address && self.sp == caller.sp as u64
    }
}

/// The number of the stack for a thread without tables: only its return address.
#[cold]
#[inline(never)]
pub fn number_without_tables(view: View, caller: Caller) -> u32 {
    // SAFETY: the return address of our own call, on the live stack.
    intern(view, &[unsafe { *caller.sp }])
}

fn intern(view: View, returns: &[u64]) -> u32 {
    view.intern_stack(returns).unwrap_or_else(|| {
        let dropped = &view.status().stacks_dropped;
        dropped.fetch_add(1, Ordering::Relaxed);
        0
    })
}

/// Walks the stack and remembers its shape.
///
/// # Safety
/// As [`number`].
#[cold]
#[inline(never)]
unsafe fn walk(
    view: View,
    cache: &mut Cache,
    (low, high): (u64, u64),
    caller: Caller,
    seed: u64,
) -> u32 {
    // SAFETY: the return address of our own call, on the live stack.
    let address = unsafe { *caller.sp };
    let (first, second) = (first_way(seed), first_way(seed) ^ 1);
    let start = cycles();
    let earned = start.wrapping_sub(cache.counted_at) / WALK_SHARE;
    cache.credit = cache.credit.saturating_add(earned).min(MOST_CREDIT);
    cache.counted_at = start;
    let whole = cache.credit >= WALK_COST;
    let limit = if whole { MAX_FRAMES } else { STEP + 1 };
    let found = frames::walk(caller, low, high, limit);
    let number = intern(view, found.returns.get(..found.len).unwrap_or_default());
    let mut shape = shape_of(&found, caller, limit);
    // SAFETY: the walk stays within the thread's stack.
    let key = unsafe { checksum(&shape, caller.sp, seed) };
    (shape.key, shape.number) = (key, number);
    // The shape in the first place moves to the second, unless it belongs to the same caller, whose
    // stacks are too many to be told apart.
    let taken = cache.shapes[first];
    if !taken.is_for(address, caller) || (whole && taken.distances != shape.distances) {
        cache.shapes[second] = taken;
    }
    cache.shapes[first] = shape;
    cache.sums[sum_index(key)] = Sum { key, number };
    let status = view.status();
    if whole {
        let spent = cycles().wrapping_sub(start);
        cache.credit = cache.credit.saturating_sub(spent);
        status.unwound.fetch_add(1, Ordering::Relaxed);
    } else {
        status.shortened.fetch_add(1, Ordering::Relaxed);
    }
    number
}

fn cycles() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

fn shape_of(found: &Frames, caller: Caller, limit: usize) -> Shape {
    let sp = caller.sp as u64;
    let mut distances = [0; MOST_CHECKED];
    let outer = found.slots.iter().take(found.len).skip(1);
    for (to, slot) in distances.iter_mut().take(limit - 1).zip(outer) {
        // A frame more than half a megabyte up the stack is not checked.
        *to = u16::try_from(slot.wrapping_sub(sp) / 8).unwrap_or(0);
    }
    let frames = found.len.saturating_sub(1).clamp(1, MOST_CHECKED);
    Shape {
        // SAFETY: the return address of our own call, on the live stack.
        address: unsafe { *caller.sp },
        sp,
        distances,
        checked: frames.next_multiple_of(STEP) as u32,
        number: 0,
        key: 0,
    }
}
