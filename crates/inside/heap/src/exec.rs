//! Programs that the process executes get this heap too, by the environment that they inherit, with
//! one exception: where the library can't be loaded ([`program`]) or is out of reach, it is taken out
//! of the list of libraries to preload, so that the program starts as it would without `sunder run`.
//! Nothing else in an environment is changed.
//!
//! Contexts: normal, post-fork; also in a vforked child, which has its parent's memory.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicUsize, Ordering};
use sunder_guest::environment::{self, PRELOAD};
use sunder_guest::exec::{Execute, Process, Strings};
use sunder_guest::program::{self, Program};
use sunder_guest::system;

/// Bytes of the longest path that is kept.
const LONGEST: usize = 256;

/// The path by which this library was preloaded.
struct Path {
    text: UnsafeCell<[u8; LONGEST]>,
    /// Its length; 0 if it is not known.
    length: AtomicUsize,
}

// SAFETY: written once by the constructor, before `length` is set.
unsafe impl Sync for Path {}

static PATH: Path = Path {
    text: UnsafeCell::new([0; LONGEST]),
    length: AtomicUsize::new(0),
};

/// Keeps the path, as the dynamic linker got it. Called by the constructor.
pub fn prepare() {
    sunder_guest::exec::real::look_up_all();
    // A function that this C library lacks has left an error, which the program would be told.
    // SAFETY: it only forgets that error.
    unsafe { libc::dlerror() };
    // SAFETY: plain numbers and pointers, for which all zeros is a value. The linker knows this
    // library by any address in it, and its path is a C string.
    unsafe {
        let mut found: libc::Dl_info = core::mem::zeroed();
        if libc::dladdr((&raw const PATH).cast(), &raw mut found) == 0 || found.dli_fname.is_null()
        {
            return;
        }
        let path = text(found.dli_fname);
        // A zero has to follow.
        if path.len() < LONGEST {
            let to = PATH.text.get().cast::<u8>();
            core::ptr::copy_nonoverlapping(path.as_ptr(), to, path.len());
            PATH.length.store(path.len(), Ordering::Release);
        }
    }
}

/// The bytes of a C string.
///
/// # Safety
/// It is one, and lives as long as the result is used.
unsafe fn text<'a>(string: *const c_char) -> &'a [u8] {
    let string = string.cast::<u8>();
    // SAFETY: by this function's contract.
    unsafe { core::slice::from_raw_parts(string, environment::length(string)) }
}

/// The entries of the list of libraries to preload, if `string` sets it.
fn listed(string: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let list = string.strip_prefix(PRELOAD)?;
    Some(list.split(|&byte| byte == b':'))
}

/// Whether a program that this process executes would find the library: the process may have changed its
/// root folder or its user. The dynamic linker prints an error for a missing one.
fn is_reachable() -> bool {
    // SAFETY: zeros follow the path, which is not written any more.
    let file = unsafe { system::open(libc::AT_FDCWD, PATH.text.get().cast(), libc::O_RDONLY) };
    file.map(system::close).is_some()
}

/// Takes the library out of the environment of programs that can't have it.
struct Spared;

impl Execute for Spared {
    unsafe fn with(
        program: Program,
        _process: Process,
        strings: Strings,
        execute: impl FnOnce(Strings) -> c_int,
    ) -> c_int {
        let length = PATH.length.load(Ordering::Acquire);
        // SAFETY: by this function's contract; the path is not written any more.
        unsafe {
            let path = core::slice::from_raw_parts(PATH.text.get().cast::<u8>(), length);
            let has_it = (0..environment::count(strings.cast_mut()))
                .filter_map(|i| listed(text(*strings.wrapping_add(i))))
                .any(|mut list| list.any(|entry| entry == path));
            if length == 0 || !has_it || is_reachable() && program::accepts(program) {
                return execute(strings);
            }
            without(path, strings, execute)
        }
    }
}

#[cfg(not(test))]
sunder_guest::executes!(Spared);

/// Calls `execute` with a copy of the environment in which `path` is not preloaded; with the
/// environment as it is if there is no memory. The copy is unmapped if the call returns, so only a
/// vforked child leaves it, a page or two, to its parent.
///
/// # Safety
/// `strings` is an environment.
unsafe fn without(path: &[u8], strings: Strings, execute: impl FnOnce(Strings) -> c_int) -> c_int {
    // SAFETY: by this function's contract.
    unsafe {
        let count = environment::count(strings.cast_mut());
        let lists = (0..count).map(|i| text(*strings.wrapping_add(i)));
        let lists = lists.filter(|string| listed(string).is_some());
        let size =
            (count + 1) * size_of::<*mut c_char>() + lists.map(|l| l.len() + 1).sum::<usize>();
        let Some(memory) = system::map_anonymous(size, system::READ_WRITE, 0) else {
            return execute(strings);
        };
        write_without(path, strings, count, memory.as_ptr());
        let result = execute(memory.as_ptr().cast_const().cast());
        system::unmap(memory.as_ptr() as usize, size);
        result
    }
}

/// Writes the array of pointers, and behind it the shortened lists of libraries of which anything is
/// left.
///
/// # Safety
/// `strings` is an environment of `count` entries; `memory` is zero, aligned for pointers, and has
/// room for the array and the whole lists.
unsafe fn write_without(path: &[u8], strings: Strings, count: usize, memory: *mut u8) {
    let mut to = memory.cast::<*mut c_char>();
    let mut free = to.wrapping_add(count + 1).cast::<u8>();
    for i in 0..count {
        // SAFETY: both arrays have this entry, which is a C string. A shortened list is not longer
        // than the whole one, for which there is room; zeros follow it.
        unsafe {
            let string = *strings.wrapping_add(i);
            let mut kept = string;
            if let Some(list) = listed(text(string)) {
                let start = free;
                let mut put = |part: &[u8]| {
                    core::ptr::copy_nonoverlapping(part.as_ptr(), free, part.len());
                    free = free.wrapping_add(part.len());
                };
                kept = core::ptr::null_mut();
                for entry in list.filter(|entry| *entry != path) {
                    if kept.is_null() {
                        kept = start.cast();
                        put(PRELOAD);
                    } else {
                        put(b":");
                    }
                    put(entry);
                }
                free = free.wrapping_add(1);
            }
            if !kept.is_null() {
                *to = kept;
                to = to.wrapping_add(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::{CStr, CString};

    const OURS: &[u8] = b"/proc/7/fd/3";

    /// What is left of an environment of these strings.
    fn left(strings: &[&str]) -> Vec<String> {
        let owned = strings.iter().map(|s| CString::new(*s).expect("no zero"));
        let owned: Vec<CString> = owned.collect();
        let mut array: Vec<*mut c_char> = owned.iter().map(|s| s.as_ptr().cast_mut()).collect();
        array.push(core::ptr::null_mut());
        let mut seen = Vec::new();
        let collect = |strings: Strings| {
            // SAFETY: the function under test promises an environment.
            unsafe {
                for i in 0..environment::count(strings.cast_mut()) {
                    let string = CStr::from_ptr(*strings.wrapping_add(i));
                    seen.push(string.to_string_lossy().into_owned());
                }
            }
            0
        };
        // SAFETY: the array is an environment.
        unsafe { without(OURS, array.as_ptr(), collect) };
        seen
    }

    #[test]
    fn only_our_entry_leaves_the_list() {
        let before = ["A=1", "LD_PRELOAD=/proc/7/fd/3:/a.so:/b.so", "B="];
        assert_eq!(left(&before), ["A=1", "LD_PRELOAD=/a.so:/b.so", "B="]);
        let amid = ["LD_PRELOAD=/a.so:/proc/7/fd/3:/proc/7/fd/33"];
        assert_eq!(left(&amid), ["LD_PRELOAD=/a.so:/proc/7/fd/33"]);
    }

    #[test]
    fn a_list_of_ours_alone_leaves_the_environment() {
        assert_eq!(
            left(&["A=1", "LD_PRELOAD=/proc/7/fd/3", "B=2"]),
            ["A=1", "B=2"]
        );
        assert_eq!(left(&["LD_PRELOAD=/proc/7/fd/3"]), [""; 0]);
    }

    #[test]
    fn of_two_lists_both_are_shortened() {
        let two = [
            "LD_PRELOAD=/proc/7/fd/3:/a.so",
            "LD_PRELOAD=/b.so:/proc/7/fd/3",
        ];
        assert_eq!(left(&two), ["LD_PRELOAD=/a.so", "LD_PRELOAD=/b.so"]);
    }
}
