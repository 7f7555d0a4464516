//! A process that executes another program (`env`, `taskset`, `nice`, a shell's `exec`) stays
//! observed: the new program gets the variables that name the library and the registry, as the
//! first program did, and those of the isolating library if that is in the process ([`companion`]).
//! If children are followed, so do the programs that they execute. Contexts: normal, post-fork;
//! also in a vforked child, which has its parent's memory.
//!
//! The functions that execute programs are in [`sunder_guest::exec`], and `syscall` in
//! [`crate::syscall`]. A program that is started in another way is not recorded.

#![cfg(not(test))]

use crate::companion::{self, Companion};
use crate::{follow, segment};
use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sunder_guest::environment::{self, PADDING, PRELOAD, count};
use sunder_guest::exec::{Execute, Process, Strings};
use sunder_guest::program::{self, Program};
use sunder_guest::system;

const LONGEST: usize = 4096;

/// The two variables' values, as the first program got them.
struct Kept {
    library: UnsafeCell<[u8; LONGEST]>,
    segment: UnsafeCell<[u8; LONGEST]>,
    /// The user whose rights the process had then.
    user: AtomicU32,
    valid: AtomicBool,
}

// SAFETY: written once by the constructor, before `valid` is set.
unsafe impl Sync for Kept {}

static KEPT: Kept = Kept {
    library: UnsafeCell::new([0; LONGEST]),
    segment: UnsafeCell::new([0; LONGEST]),
    user: AtomicU32::new(0),
    valid: AtomicBool::new(false),
};

/// Copies `string` up to its end or to a byte for which `ends` is true; false
/// if it is too long.
///
/// # Safety
/// `string` is a C string and `to` has [`LONGEST`] zeroed bytes.
unsafe fn copy_until(string: *const u8, to: *mut u8, ends: impl Fn(u8) -> bool) -> bool {
    for i in 0..LONGEST - 1 {
        // SAFETY: neither index goes beyond the string's end or the buffer's.
        unsafe {
            let byte = *string.wrapping_add(i);
            if byte == 0 || ends(byte) {
                return true;
            }
            *to.wrapping_add(i) = byte;
        }
    }
    false
}

/// Keeps the values for later programs. Called by the constructor.
///
/// # Safety
/// `strings` is an environment.
pub unsafe fn keep(strings: *mut *mut c_char) {
    // SAFETY: by this function's contract; no other code uses the buffers yet.
    unsafe {
        let (Some(library), Some(segment)) = (
            environment::find(strings, PRELOAD),
            environment::find(strings, segment::VARIABLE),
        ) else {
            return;
        };
        let whole = copy_until(library, KEPT.library.get().cast(), |byte| byte == b':')
            && copy_until(segment, KEPT.segment.get().cast(), |_| false);
        KEPT.user.store(system::user_id(), Ordering::Relaxed);
        KEPT.valid.store(whole, Ordering::Release);
    }
    companion::find();
}

/// An environment in a mapping of its own, which is unmapped when dropped (only if the program
/// could not be executed).
struct Extended {
    memory: NonNull<u8>,
    bytes: usize,
}

impl Drop for Extended {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { system::unmap(self.memory.as_ptr() as usize, self.bytes) };
    }
}

/// The most entries that [`extend`] adds, and the null pointer.
const ADDED: usize = 5;

/// The size of `strings` with our variables, in bytes.
///
/// # Safety
/// As [`count`].
unsafe fn bytes(strings: Strings, beside: Option<Companion>) -> usize {
    // SAFETY: by this function's contract; a value is a C string.
    unsafe {
        let user = environment::find(strings.cast_mut(), PRELOAD);
        let user = user.map_or(0, |user| environment::length(user));
        let library = environment::length(KEPT.library.get().cast());
        let segment = environment::length(KEPT.segment.get().cast());
        let more = beside.map_or(0, |b| b.value.len() + b.library.len());
        (count(strings.cast_mut()) + ADDED) * 8 + library + segment + user + more + 96
    }
}

/// Writes `strings` with our variables to `memory`: at the end, so that their removal changes no
/// order, and an even number of them, which `sunder_guest::environment` can remove.
///
/// # Safety
/// As [`count`]; `memory` has [`bytes`] bytes, aligned for pointers, and
/// [`KEPT`] is valid.
unsafe fn extend(strings: Strings, beside: Option<Companion>, memory: *mut u8) {
    // SAFETY: by this function's contract.
    let (count, user) = unsafe {
        (
            count(strings.cast_mut()),
            environment::find(strings.cast_mut(), PRELOAD),
        )
    };
    let array = memory.cast::<*mut c_char>();
    let mut text = array.wrapping_add(count + ADDED).cast::<u8>();
    let mut put = |parts: [&[u8]; 6]| {
        let start = text;
        for part in parts {
            // SAFETY: the memory was made large enough for all parts.
            unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), text, part.len()) };
            text = text.wrapping_add(part.len());
        }
        text = text.wrapping_add(1);
        start.cast::<c_char>()
    };
    // SAFETY: the buffers hold C strings and are not written any more; the array has room for all
    // old entries, the new ones and the final null pointer, which is there already.
    unsafe {
        let slice = |s: *const u8| core::slice::from_raw_parts(s, environment::length(s));
        let library = slice(KEPT.library.get().cast());
        let segment = slice(KEPT.segment.get().cast());
        let is_users = user.is_some();
        let user: [&[u8]; 2] = user.map_or([b"", b""], |user| [b":", slice(user)]);
        let more: [&[u8]; 2] = beside.map_or([b"", b""], |beside| [b":", beside.library]);
        let mut at = array;
        let mut append = |string| {
            *at = string;
            at = at.wrapping_add(1);
        };
        let mut preload = Some(put([PRELOAD, library, more[0], more[1], user[0], user[1]]));
        for i in 0..count {
            let string = *strings.wrapping_add(i);
            if !environment::starts_with(string.cast(), PRELOAD) {
                append(string);
            } else if let Some(preload) = preload.take() {
                append(preload);
            }
        }
        if let Some(preload) = preload {
            append(preload);
        }
        append(put([segment::VARIABLE, segment, b"", b"", b"", b""]));
        if let Some(beside) = beside {
            append(put([companion::VARIABLE, beside.value, b"", b"", b"", b""]));
        }
        // The segment's variable, and these if they are new.
        if (1 + usize::from(!is_users) + usize::from(beside.is_some())) % 2 == 1 {
            append(put([PADDING, b"", b"", b"", b"", b""]));
        }
    }
}

/// Whether a program that this process executes will find the library and the registry: the process
/// may have changed its root folder or its user since it loaded us. The dynamic linker prints an
/// error for a missing library. Who became another user may have kept root's rights up to here
/// (`setpriv`), but the new program has them no more.
fn reachable() -> bool {
    let is_another = system::user_id() != KEPT.user.load(Ordering::Relaxed);
    !is_another
        && [KEPT.library.get(), KEPT.segment.get()]
            .into_iter()
            .all(|path| {
                // SAFETY: both are C strings once they are valid.
                let fd = unsafe { system::open(libc::AT_FDCWD, path.cast(), libc::O_RDONLY) };
                fd.map(system::close).is_some()
            })
}

/// Gives programs the environment in which they are observed.
pub struct Observed;

impl Execute for Observed {
    unsafe fn with(
        program: Program,
        process: Process,
        strings: Strings,
        execute: impl FnOnce(Strings) -> c_int,
    ) -> c_int {
        // SAFETY: the caller upholds this function's contract.
        unsafe {
            match process {
                Process::Own => with_beside(program, strings, companion::get, execute),
                // Another process gets the runtime if children are followed.
                Process::Child if follow::passes_to_children() => {
                    with_beside(program, strings, || None, execute)
                }
                Process::Child => execute(strings),
            }
        }
    }
}

sunder_guest::executes!(Observed);

/// # Safety
/// As [`Execute::with`].
unsafe fn with_beside(
    program: Program,
    strings: Strings,
    beside: impl FnOnce() -> Option<Companion>,
    execute: impl FnOnce(Strings) -> c_int,
) -> c_int {
    let wanted = KEPT.valid.load(Ordering::Acquire) && follow::passes_on() && reachable();
    // SAFETY: by this function's contract.
    if !wanted || unsafe { !program::accepts(program) } {
        return execute(strings);
    }
    let beside = beside();
    // SAFETY: by this function's contract.
    let bytes = unsafe { bytes(strings, beside) };
    if follow::is_guest() {
        // A vforked child uses the stack: memory that it maps would stay with its parent.
        // SAFETY: by this function's contract; `bytes` is the size for these strings.
        return unsafe { with_on_stack(strings, beside, bytes, execute) };
    }
    let Some(memory) = system::map_anonymous(bytes, system::READ_WRITE, 0) else {
        return execute(strings);
    };
    let extended = Extended { memory, bytes };
    // SAFETY: the memory is new and large enough.
    unsafe { extend(strings, beside, extended.memory.as_ptr()) };
    execute(extended.memory.as_ptr().cast_const().cast())
}

/// Calls `execute` with our variables added, on the stack, if the environment fits: threads may have
/// small stacks.
///
/// # Safety
/// As [`Execute::with`]; `bytes` is the size of the environment.
#[inline(never)]
unsafe fn with_on_stack(
    strings: Strings,
    beside: Option<Companion>,
    bytes: usize,
    execute: impl FnOnce(Strings) -> c_int,
) -> c_int {
    let mut words = [0u64; 1024];
    if bytes > size_of_val(&words) {
        return execute(strings);
    }
    // SAFETY: the array is large enough and aligned.
    unsafe { extend(strings, beside, words.as_mut_ptr().cast()) };
    execute(words.as_ptr().cast())
}
