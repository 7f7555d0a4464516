//! Which files are loaded where. The list is written when the recording begins,
//! before a library is closed, and when it ends: so every file that was ever
//! loaded is in one.

use crate::local::RECORDER;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use sunder_trace::meta::{ModuleParts, ModuleWriter, Segment};
use sunder_trace::record::system;

/// Loads and unloads at the last list.
static CHANGES: AtomicU64 = AtomicU64::new(u64::MAX);

struct Walk<'a, 'b> {
    writer: &'a mut ModuleWriter<'b>,
    first: bool,
}

/// Writes the list, if it is not what it was.
pub fn write() {
    let mut changes = 0;
    // SAFETY: the callback fits; the data is its number.
    unsafe { libc::dl_iterate_phdr(Some(count), (&raw mut changes).cast()) };
    if CHANGES.swap(changes, Ordering::Relaxed) == changes {
        return;
    }
    RECORDER.modules(|writer| {
        let mut walk = Walk {
            writer,
            first: true,
        };
        // SAFETY: the callback fits; the data lives as long as the call.
        unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut walk).cast()) };
    });
}

unsafe extern "C" fn count(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: given by the dynamic linker and by `write`.
    unsafe { *data.cast::<u64>() = (*info).dlpi_adds.wrapping_add((*info).dlpi_subs) };
    1
}

unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: given by the dynamic linker and by `write`.
    unsafe {
        let info = &*info;
        let walk = &mut *data.cast::<Walk<'_, '_>>();
        let headers = core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize);
        let mut own = [0; 4096];
        let path = if core::mem::take(&mut walk.first) {
            let length = system::read_link(b"/proc/self/exe\0", &mut own);
            own.get(..length).unwrap_or_default()
        } else if info.dlpi_name.is_null() {
            &[]
        } else {
            CStr::from_ptr(info.dlpi_name).to_bytes()
        };
        let segments = headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
        let segments = segments.map(|h| Segment {
            start: info.dlpi_addr.wrapping_add(h.p_vaddr),
            bytes: h.p_memsz,
            file_offset: h.p_offset,
            flags: h.p_flags,
        });
        let parts = ModuleParts {
            base: info.dlpi_addr,
            path,
            build_id: build_id(info.dlpi_addr, headers),
        };
        walk.writer.add(&parts, segments);
    }
    0
}

/// The build id among the notes of a loaded file.
///
/// # Safety
/// `headers` are those of a file that is loaded at `base`.
unsafe fn build_id(base: u64, headers: &[libc::Elf64_Phdr]) -> &'static [u8] {
    const BUILD_ID: u32 = 3;
    for header in headers.iter().filter(|h| h.p_type == libc::PT_NOTE) {
        let start = base.wrapping_add(header.p_vaddr) as *const u8;
        // SAFETY: notes are part of what is loaded.
        let mut notes = unsafe { core::slice::from_raw_parts(start, header.p_memsz as usize) };
        while let Some((head, rest)) = notes.split_at_checked(12) {
            let word = |i: usize| head.get(i..i + 4).and_then(|w| w.try_into().ok());
            let word = |i| word(i).map_or(0, u32::from_le_bytes);
            let name = (word(0) as usize).next_multiple_of(4);
            let bytes = word(4) as usize;
            let contents = rest.get(name..).and_then(|r| r.get(..bytes));
            if word(8) == BUILD_ID && rest.starts_with(b"GNU\0") {
                return contents.unwrap_or_default();
            }
            notes = rest
                .get(name + bytes.next_multiple_of(4)..)
                .unwrap_or_default();
        }
    }
    &[]
}

/// Interposed; see its manual.
///
/// # Safety
/// As the manual demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dlclose(library: *mut c_void) -> c_int {
    if RECORDER.is_recording() {
        write();
    }
    match crate::real::dlclose() {
        // SAFETY: handed on.
        Some(real) => unsafe { real(library) },
        None => -1,
    }
}
