//! Removes this library's two variables from the environment, in place and without allocating, so
//! that the program and its children see the environment that the user gave.
//!
//! Context: normal, before `main`, one thread.

use core::ffi::c_char;

/// Bytes of `string` before its end.
///
/// # Safety
/// `string` ends with a zero byte.
pub unsafe fn length(string: *const u8) -> usize {
    let mut n = 0;
    // SAFETY: stops at the zero byte that the caller guarantees.
    while unsafe { *string.wrapping_add(n) } != 0 {
        n += 1;
    }
    n
}

/// Whether `string` begins with `prefix`.
///
/// # Safety
/// `string` ends with a zero byte.
pub unsafe fn starts_with(string: *const u8, prefix: &[u8]) -> bool {
    prefix
        .iter()
        .enumerate()
        // SAFETY: a shorter string differs at its zero byte, where `all` stops.
        .all(|(i, &byte)| unsafe { *string.wrapping_add(i) } == byte)
}

/// The value of the variable whose name and equals sign are `prefix`.
///
/// # Safety
/// `environment` is null or an array of C strings that ends with null.
pub unsafe fn find(environment: *mut *mut c_char, prefix: &[u8]) -> Option<*const u8> {
    let mut at = environment;
    if at.is_null() {
        return None;
    }
    loop {
        // SAFETY: the index does not pass the null pointer that ends the array.
        let string = unsafe { *at }.cast::<u8>();
        if string.is_null() {
            return None;
        }
        // SAFETY: an entry is a C string.
        if unsafe { starts_with(string, prefix) } {
            return Some(string.wrapping_add(prefix.len()));
        }
        at = at.wrapping_add(1);
    }
}

/// What to do with an entry of the environment.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Keep,
    Remove,
}

/// Removes the segment's variable, and our library from `LD_PRELOAD`: it is the first entry, with a
/// colon after it if the user had a list.
///
/// # Safety
/// As [`find`]; no other thread uses the environment meanwhile.
pub unsafe fn remove_ours(environment: *mut *mut c_char) {
    let (mut from, mut to) = (environment, environment);
    if from.is_null() {
        return;
    }
    loop {
        // SAFETY: both indices stay within the array; `to` never overtakes `from`.
        unsafe {
            let string = *from;
            if string.is_null() || cleaned(string.cast()) == Fate::Keep {
                *to = string;
                to = to.wrapping_add(1);
            }
            if string.is_null() {
                return;
            }
        }
        from = from.wrapping_add(1);
    }
}

/// # Safety
/// `string` is a C string that may be written to.
unsafe fn cleaned(string: *mut u8) -> Fate {
    const PRELOAD: &[u8] = b"LD_PRELOAD=";
    // SAFETY: the caller passes a C string; all positions are within it or at its end.
    unsafe {
        if starts_with(string, b"SUNDER_SEGMENT=") {
            return Fate::Remove;
        }
        if !starts_with(string, PRELOAD) {
            return Fate::Keep;
        }
        let value = string.wrapping_add(PRELOAD.len());
        let len = length(value);
        let Some(colon) = (0..len).find(|&i| *value.wrapping_add(i) == b':') else {
            return Fate::Remove;
        };
        let rest = value.wrapping_add(colon + 1);
        core::ptr::copy(rest, value, len - colon);
    }
    Fate::Keep
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::{CStr, CString};

    fn after(entries: &[&str]) -> Vec<String> {
        let kept: Vec<*mut c_char> = entries
            .iter()
            .map(|e| CString::new(*e).expect("no zero").into_raw())
            .collect();
        let mut array = kept.clone();
        array.push(core::ptr::null_mut());
        // SAFETY: the array is as the function demands; its strings are freed below, and the
        // function only ever shortens them.
        unsafe { remove_ours(array.as_mut_ptr()) };
        let left = array.iter().take_while(|p| !p.is_null());
        left.map(|&p| {
            // SAFETY: the pointer is an entry of the array.
            let s = unsafe { CStr::from_ptr(p) };
            s.to_string_lossy().into_owned()
        })
        .collect()
    }

    #[test]
    fn the_users_environment_comes_back() {
        let ours = "SUNDER_SEGMENT=/proc/1/fd/3";
        for (given, wanted) in [
            (
                vec!["A=1", "LD_PRELOAD=/r.so", ours, "B="],
                vec!["A=1", "B="],
            ),
            (vec![ours, "LD_PRELOAD=/r.so:"], vec!["LD_PRELOAD="]),
            (
                vec![
                    "LD_PRELOAD=/r.so:/a.so:/b.so c.so",
                    "SUNDER_SEGMENTS=1",
                    ours,
                ],
                vec!["LD_PRELOAD=/a.so:/b.so c.so", "SUNDER_SEGMENTS=1"],
            ),
            (vec![], vec![]),
        ] {
            assert_eq!(after(&given), wanted);
        }
    }
}
