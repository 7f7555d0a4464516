//! Removes this library's entries from the environment, in place and without allocating.
//!
//! Context: normal, before `main`, one thread.

use core::ffi::c_char;

/// Names the library's path, a comma, and the path of the shared file.
pub const VARIABLE: &[u8] = b"SUNDER_REMAP=";
const PRELOAD: &[u8] = b"LD_PRELOAD=";

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

/// # Safety
/// `string` ends with a zero byte.
unsafe fn starts_with(string: *const u8, prefix: &[u8]) -> bool {
    let mut all = prefix.iter().enumerate();
    // SAFETY: a shorter string differs at its zero byte, where the comparison stops.
    all.all(|(i, &byte)| unsafe { *string.wrapping_add(i) } == byte)
}

/// The value of [`VARIABLE`].
///
/// # Safety
/// `environment` is null or an array of C strings that ends with null.
pub unsafe fn find(environment: *mut *mut c_char) -> Option<*mut u8> {
    let mut at = environment;
    // SAFETY: stops at the null pointer that ends the array.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let string = (*at).cast::<u8>();
            if starts_with(string, VARIABLE) {
                return Some(string.wrapping_add(VARIABLE.len()));
            }
            at = at.wrapping_add(1);
        }
    }
    None
}

/// Removes [`VARIABLE`], and `library` from the list of libraries to preload.
///
/// # Safety
/// As [`find`]; no other thread uses the environment meanwhile.
pub unsafe fn remove_ours(environment: *mut *mut c_char, library: &[u8]) {
    let (mut from, mut to) = (environment, environment);
    if from.is_null() {
        return;
    }
    loop {
        // SAFETY: both indices stay within the array; `to` never overtakes `from`.
        unsafe {
            let string = *from;
            let gone = !string.is_null() && is_gone(string.cast(), library);
            if !gone {
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

/// Removes `library` from a list of libraries; returns whether the whole entry is to be removed.
///
/// # Safety
/// `string` is a C string that may be written to.
unsafe fn is_gone(string: *mut u8, library: &[u8]) -> bool {
    // SAFETY: the caller passes a C string; all positions are within it or at its end.
    unsafe {
        if starts_with(string, VARIABLE) {
            return true;
        }
        if !starts_with(string, PRELOAD) {
            return false;
        }
        let list = string.wrapping_add(PRELOAD.len());
        let len = length(list);
        let mut start = 0;
        while start < len {
            let mut end = start;
            while end < len && *list.wrapping_add(end) != b':' {
                end += 1;
            }
            let ours =
                end - start == library.len() && starts_with(list.wrapping_add(start), library);
            if ours {
                // Includes the colon after it, or before it at the end of the list.
                let (from, to) = match (end < len, start > 0) {
                    (true, _) => (end + 1, start),
                    (false, true) => (end, start - 1),
                    (false, false) => return true,
                };
                core::ptr::copy(
                    list.wrapping_add(from),
                    list.wrapping_add(to),
                    len - from + 1,
                );
                return false;
            }
            start = end + 1;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::{CStr, CString};

    fn after(entries: &[&str]) -> Vec<String> {
        let mut array: Vec<*mut c_char> = entries
            .iter()
            .map(|e| CString::new(*e).expect("no zero").into_raw())
            .collect();
        array.push(core::ptr::null_mut());
        // SAFETY: the array is as the function demands; its strings are only ever shortened.
        unsafe { remove_ours(array.as_mut_ptr(), b"/m.so") };
        let left = array.iter().take_while(|p| !p.is_null());
        left.map(|&p| {
            // SAFETY: the pointer is an entry of the array.
            unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned()
        })
        .collect()
    }

    #[test]
    fn only_our_entries_are_removed() {
        let ours = "SUNDER_REMAP=/m.so,/c";
        for (given, wanted) in [
            (
                vec!["A=1", "LD_PRELOAD=/m.so", ours, "B="],
                vec!["A=1", "B="],
            ),
            (vec!["LD_PRELOAD=/r.so:/m.so"], vec!["LD_PRELOAD=/r.so"]),
            (vec!["LD_PRELOAD=/m.so:/u.so"], vec!["LD_PRELOAD=/u.so"]),
            (
                vec!["LD_PRELOAD=/r.so:/m.so:/u.so"],
                vec!["LD_PRELOAD=/r.so:/u.so"],
            ),
            (
                vec!["LD_PRELOAD=/m.sox:/u.so"],
                vec!["LD_PRELOAD=/m.sox:/u.so"],
            ),
            (vec![], vec![]),
        ] {
            assert_eq!(after(&given), wanted);
        }
    }
}
