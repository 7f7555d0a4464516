//! The program's environment becomes what it is without us: programs that it
//! starts are not emulated. Contexts: normal, before `main`, one thread.

use core::ffi::{CStr, c_char, c_int};

type Strings = *mut *mut c_char;

/// Our entry is the first of the list, and others may follow.
const VARIABLE: &[u8] = b"LD_PRELOAD=";

#[used]
#[unsafe(link_section = ".init_array")]
static FIRST: unsafe extern "C" fn(c_int, Strings, Strings) = first;

unsafe extern "C" fn first(_: c_int, _: Strings, environment: Strings) {
    let mut at = environment;
    // SAFETY: an environment is an array of strings with a null at its end, and
    // the program's to change.
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

/// Takes one string out.
///
/// # Safety
/// `at` is in an environment.
unsafe fn remove(mut at: Strings) {
    // SAFETY: up to the null at the end.
    unsafe {
        while !(*at).is_null() {
            *at = *at.add(1);
            at = at.add(1);
        }
    }
}
