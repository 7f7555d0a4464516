//! Restores the program's environment: programs that it starts are not emulated. Contexts: normal,
//! before `main`, one thread.

use core::ffi::{c_char, c_int};
use sunder_guest::environment::{Library, Start};

type Strings = *mut *mut c_char;

#[used]
#[unsafe(link_section = ".init_array")]
static FIRST: unsafe extern "C" fn(c_int, Strings, Strings) = first;

unsafe extern "C" fn first(count: c_int, arguments: Strings, environment: Strings) {
    let start = Start {
        count,
        arguments,
        environment,
    };
    // SAFETY: the dynamic linker passes these values, and no other thread runs yet. Our library is
    // the first of the list.
    unsafe { start.remove(&[], Library::First) };
}
