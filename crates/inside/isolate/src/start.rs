//! Finds the control file when the program starts. Removes the variables that made the loader load
//! this library from the environment, so that the program and its children see the environment that
//! they would have without it.
//!
//! Contexts: pre-init.

use crate::{carry, control, enter, files, placing, real, sequences};
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering;
use sunder_access::PAGE_SIZE as PAGE;
use sunder_guest::environment::{self, Library, Start};
use sunder_guest::system;
use sunder_wire::isolation::{
    CONTROL_BYTES, Control, ISOLATE_MAGIC, ISOLATE_VERSION, closed, ready,
};

/// Names the two files and this library.
const VARIABLE: &[u8] = b"SUNDER_ISOLATE=";

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = start;

#[cfg_attr(test, allow(dead_code))]
extern "C" fn start(count: c_int, arguments: *mut *mut c_char, environment: *mut *mut c_char) {
    real::look_up_all();
    let start = Start {
        count,
        arguments,
        environment,
    };
    // SAFETY: the dynamic linker passes these values, and no other code uses the environment yet.
    unsafe {
        let Some(value) = start.find(VARIABLE) else {
            return;
        };
        let mut kept = [0; carry::LONGEST];
        let given = core::slice::from_raw_parts(value, environment::length(value));
        let Some(value) = kept.get_mut(..given.len()) else {
            return;
        };
        value.copy_from_slice(given);
        // The value ends with our library's path.
        let library = value.rsplit(|b| *b == b',').next().unwrap_or_default();
        start.remove(&[VARIABLE], Library::Path(library));
        begin(value);
    }
}

/// Begins with `text`: the paths of the two files and of this library, separated by commas.
///
/// # Safety
/// The files are ours.
unsafe fn begin(text: &[u8]) {
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
    placing::begin(&control.placing);
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
