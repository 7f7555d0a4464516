//! Restores the program's environment: programs that it starts are not emulated. Contexts: normal,
//! before `main`, one thread.

use core::ffi::{CStr, c_char, c_int};

type Strings = *mut *mut c_char;

/// The library's entry is the first of the list; others may follow.
const VARIABLE: &[u8] = b"LD_PRELOAD=";

#[used]
#[unsafe(link_section = ".init_array")]
static FIRST: unsafe extern "C" fn(c_int, Strings, Strings) = first;

unsafe extern "C" fn first(_: c_int, _: Strings, environment: Strings) {
    let mut at = environment;
    // SAFETY: an environment is an array of strings that ends with null, and the program may change
    // it.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let text = CStr::from_ptr(*at).to_bytes_with_nul();
            if let Some(list) = text.strip_prefix(VARIABLE) {
                match list.iter().position(|&b| b == b':') {
                    Some(end) => {
                        let to = (*at).add(VARIABLE.len());
                        core::ptr::copy(to.add(end + 1), to, list.len() - end - 1);
                    }
                    None => remove(at),
                }
                return;
            }
            at = at.add(1);
        }
    }
}

/// Removes one string.
///
/// # Safety
/// `at` is in an environment.
unsafe fn remove(mut at: Strings) {
    // SAFETY: the loop ends at the null pointer.
    unsafe {
        while !(*at).is_null() {
            *at = *at.add(1);
            at = at.add(1);
        }
    }
}
