//! Another library of ours in this process (the isolating one): a program that the
//! process executes is told of it as well, as long as it says that there is use in that.
//! Contexts: pre-init, normal, post-fork; also in a vforked child.

#![cfg(not(test))]

use crate::environment;
use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use sunder_guest::system;

/// Its variable, with the equals sign.
pub const VARIABLE: &[u8] = b"SUNDER_ISOLATE=";

/// The function that says what to pass on.
static CARRIED: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// What a new program is told.
#[derive(Clone, Copy)]
pub struct Companion {
    /// The variable's value: the paths of a file, of another, and of the library.
    pub value: &'static [u8],
    /// The last of the paths, to be preloaded.
    pub library: &'static [u8],
}

/// Looks whether there is one. Called by the constructor.
pub fn find() {
    // SAFETY: a C string.
    let carried = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"sunder_isolate_carried".as_ptr()) };
    // What the program asks for first must not be this one's failure.
    // SAFETY: takes nothing, and nobody reads the text.
    unsafe { libc::dlerror() };
    CARRIED.store(carried, Ordering::Release);
}

/// What the next program is to be told, if it will find it.
pub fn get() -> Option<Companion> {
    type Carried = unsafe extern "C" fn() -> *const c_char;
    let carried = CARRIED.load(Ordering::Acquire);
    if carried.is_null() {
        return None;
    }
    // SAFETY: the function of that name in our library has this type; it returns null or a C
    // string that stays.
    let value = unsafe {
        let carried = core::mem::transmute::<*mut c_void, Carried>(carried);
        let value = carried().cast::<u8>();
        if value.is_null() {
            return None;
        }
        core::slice::from_raw_parts(value, environment::length(value))
    };
    let library = value.rsplit(|byte| *byte == b',').next()?;
    // SAFETY: the library's path ends where the value does: with a zero byte.
    let found = unsafe { system::open(libc::AT_FDCWD, library.as_ptr(), libc::O_RDONLY) };
    found.map(system::close)?;
    Some(Companion { value, library })
}
