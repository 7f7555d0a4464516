//! Finds the control file when the program starts. Removes the variables that made the loader load
//! this library from the environment, so that the program and its children see the environment that
//! they would have without it.
//!
//! Contexts: pre-init.

use crate::{carry, control, enter, files, real, sequences};
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering;
use sunder_access::PAGE_SIZE as PAGE;
use sunder_guest::system;
use sunder_wire::isolation::{
    CONTROL_BYTES, Control, ISOLATE_MAGIC, ISOLATE_VARIABLE, ISOLATE_VERSION, closed, ready,
};

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = start;

#[cfg_attr(test, allow(dead_code))]
extern "C" fn start(_count: c_int, _arguments: *mut *mut c_char, environment: *mut *mut c_char) {
    real::look_up_all();
    // SAFETY: the dynamic linker passes the environment, which ends with null, and no other code
    // uses it yet.
    unsafe {
        let Some(value) = remove_variable(environment, ISOLATE_VARIABLE.as_bytes()) else {
            return;
        };
        restore_preload(environment, value);
        begin(value);
    }
}

/// Removes a variable from the environment and returns its value.
///
/// # Safety
/// `environment` is an environment that no other thread uses.
unsafe fn remove_variable(environment: *mut *mut c_char, name: &[u8]) -> Option<*mut u8> {
    let mut at = environment;
    // SAFETY: by this function's contract, read up to the null pointer, and in each string up to
    // the zero.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            if let Some(value) = value_of(*at, name) {
                let mut to = at;
                while !(*to).is_null() {
                    *to = *to.wrapping_add(1);
                    to = to.wrapping_add(1);
                }
                return Some(value);
            }
            at = at.wrapping_add(1);
        }
    }
    None
}

unsafe fn value_of(entry: *mut c_char, name: &[u8]) -> Option<*mut u8> {
    let entry = entry.cast::<u8>();
    // SAFETY: a C string, read up to the first difference.
    let same = name
        .iter()
        .chain(b"=")
        .enumerate()
        .all(|(i, byte)| unsafe { *entry.wrapping_add(i) } == *byte);
    same.then(|| entry.wrapping_add(name.len() + 1))
}

/// Restores `LD_PRELOAD`: removes this library's entry, wherever it is in the list. (Other
/// libraries of Sunder remove their own entries.) `value` ends with our library's path.
///
/// # Safety
/// As [`remove_variable`]; `value` is a C string.
unsafe fn restore_preload(environment: *mut *mut c_char, value: *const u8) {
    const NAME: &[u8] = b"LD_PRELOAD";
    // SAFETY: by this function's contract; what is written stays within the string.
    unsafe {
        let text = core::ffi::CStr::from_ptr(value.cast()).to_bytes();
        let ours = text.rsplit(|b| *b == b',').next().unwrap_or_default();
        let mut at = environment;
        while !at.is_null() && !(*at).is_null() {
            if let Some(list) = value_of(*at, NAME) {
                let is_only = remove_entry(list, ours);
                if is_only {
                    remove_variable(environment, NAME);
                }
                return;
            }
            at = at.wrapping_add(1);
        }
    }
}

/// Removes an entry and the colon beside it from a list. Returns whether it was the only entry.
///
/// # Safety
/// `list` is a C string that may be written to.
unsafe fn remove_entry(list: *mut u8, entry: &[u8]) -> bool {
    // SAFETY: by this function's contract, up to the zero.
    unsafe {
        let length = core::ffi::CStr::from_ptr(list.cast()).to_bytes().len();
        let byte = |i: usize| *list.wrapping_add(i);
        let mut start = 0;
        while start <= length {
            let mut end = start;
            while end < length && byte(end) != b':' {
                end += 1;
            }
            let same = end - start == entry.len()
                && entry.iter().enumerate().all(|(i, b)| byte(start + i) == *b);
            if same {
                let (from, to) = match (end < length, start > 0) {
                    (true, _) => (end + 1, start),
                    (false, true) => (end, start - 1),
                    (false, false) => return true,
                };
                for i in 0..=length - from {
                    *list.wrapping_add(to + i) = *list.wrapping_add(from + i);
                }
                return false;
            }
            start = end + 1;
        }
    }
    false
}

/// # Safety
/// `value` is a C string: the paths of the two files and of this library, separated by commas.
unsafe fn begin(value: *mut u8) {
    // SAFETY: by this function's contract.
    let text = unsafe { core::ffi::CStr::from_ptr(value.cast()) }.to_bytes();
    let mut parts = text.split(|b| *b == b',');
    let (Some(head), Some(memory)) = (parts.next(), parts.next()) else {
        return;
    };
    let mut path = [0u8; 64];
    if head.len() >= path.len() || !files::set_memory_path(memory) {
        return;
    }
    for (to, from) in path.iter_mut().zip(head) {
        *to = *from;
    }
    // SAFETY: the path is a C string, since the array ends with zeroes; the new mapping is of our
    // own file.
    unsafe {
        let Some(file) = files::open(path.as_ptr(), true) else {
            return;
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = system::map(0, CONTROL_BYTES, protection, libc::MAP_SHARED, file, 0);
        system::close(file);
        if at <= 0 {
            return;
        }
        let control = at as *mut Control;
        let meant = (*control).magic == ISOLATE_MAGIC
            && (*control).version == ISOLATE_VERSION
            && (*control).process.load(Ordering::Acquire) == system::process_id()
            && find_library()
            && claim(&*control);
        if !meant {
            system::unmap(at as usize, CONTROL_BYTES);
            return;
        }
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr());
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr());
        if !offset.is_null() && !size.is_null() && *size.cast::<u32>() != 0 {
            sequences::set(*offset.cast::<isize>());
        }
        sunder_hooks::note_modules();
        control::set(control);
        carry::keep(text);
        #[cfg(not(test))]
        crate::blocks::find_sites(&*control);
        (*control).base.store(at as u64, Ordering::Relaxed);
        let entry = enter::entry as *const () as u64;
        (*control).entry.store(entry, Ordering::Relaxed);
        let is_first = (*control).ready.load(Ordering::Relaxed) == ready::NOBODY;
        let now = if is_first {
            ready::READY
        } else {
            ready::ANOTHER
        };
        (*control).ready.store(now, Ordering::Release);
    }
}

/// Whether this program may begin with the control file: it is the first one, or the process has
/// executed it before the last program was changed in any way. Clears what the last program left in
/// the file.
fn claim(control: &Control) -> bool {
    if control.ready.load(Ordering::Acquire) == ready::NOBODY {
        return true;
    }
    if !carry::is_untouched(control) {
        return false;
    }
    // The tool does nothing while this state is set.
    control.ready.store(ready::BEGINNING, Ordering::SeqCst);
    for block in &control.blocks {
        block.address.store(0, Ordering::SeqCst);
        block.asked.store(0, Ordering::SeqCst);
    }
    control.block_changes.fetch_add(1, Ordering::SeqCst);
    control.plan_bytes.store(0, Ordering::Relaxed);
    control.stop.store(0, Ordering::SeqCst);
    control.stopped.store(0, Ordering::SeqCst);
    control.held.store(0, Ordering::SeqCst);
    control.closed.store(closed::OPEN, Ordering::SeqCst);
    true
}

/// Finds the addresses of this library.
fn find_library() -> bool {
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        _data: *mut c_void,
    ) -> c_int {
        let here = find_library as *const () as usize;
        // SAFETY: the linker passes a description with that many headers.
        unsafe {
            let headers = core::slice::from_raw_parts((*info).dlpi_phdr, (*info).dlpi_phnum.into());
            let base = (*info).dlpi_addr as usize;
            let (mut low, mut high) = (usize::MAX, 0);
            for header in headers.iter().filter(|h| h.p_type == libc::PT_LOAD) {
                let start = base + header.p_vaddr as usize;
                low = low.min(start & !(PAGE - 1));
                high = high.max((start + header.p_memsz as usize).next_multiple_of(PAGE));
            }
            if (low..high).contains(&here) {
                control::set_library(low, high);
                return 1;
            }
        }
        0
    }
    // SAFETY: the callback only reads.
    unsafe { libc::dl_iterate_phdr(Some(each), core::ptr::null_mut()) };
    control::library()[1] != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_entry_is_removed_from_any_position() {
        for (before, after, only) in [
            ("/i.so", "/i.so", true),
            ("/i.so:/u.so", "/u.so", false),
            ("/r.so:/i.so", "/r.so", false),
            ("/r.so:/i.so:/u.so", "/r.so:/u.so", false),
            ("/r.so:/i.sox", "/r.so:/i.sox", false),
            ("/i.so:", "", false),
            ("", "", false),
        ] {
            let mut list: Vec<u8> = before.bytes().chain([0]).collect();
            // SAFETY: a string with its zero.
            let is_only = unsafe { remove_entry(list.as_mut_ptr(), b"/i.so") };
            assert_eq!(is_only, only, "{before}");
            let text = core::ffi::CStr::from_bytes_until_nul(&list)
                .expect("the list ends with a zero byte");
            assert_eq!(text.to_str(), Ok(after));
        }
    }
}
