//! Lists the loaded files and their addresses. The list is written when the recording begins,
//! before events of a library that was opened, before and after one is closed, and at the end: so
//! every file that was ever loaded is in one of the lists, even if the program dies. Contexts:
//! normal.

use crate::local::RECORDER;
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use sunder_guest::system;
use sunder_trace::meta::{ModuleParts, ModuleWriter, Segment};

/// The counts of loads and unloads at the last list.
static CHANGES: AtomicU64 = AtomicU64::new(u64::MAX);

struct Walk<'a, 'b> {
    writer: &'a mut ModuleWriter<'b>,
    first: bool,
}

/// Writes the list if it has changed since the last one.
pub fn write() {
    let mut changes = 0;
    // SAFETY: the callback has the required type; its data is `changes`.
    unsafe { libc::dl_iterate_phdr(Some(count), (&raw mut changes).cast()) };
    if CHANGES.swap(changes, Ordering::Relaxed) == changes {
        return;
    }
    RECORDER.modules(|writer| {
        let mut walk = Walk {
            writer,
            first: true,
        };
        // SAFETY: the callback has the required type; its data lives as long as the call.
        unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut walk).cast()) };
    });
}

unsafe extern "C" fn count(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the dynamic linker passes `info`, and `write` passes the data.
    unsafe { *data.cast::<u64>() = (*info).dlpi_adds.wrapping_add((*info).dlpi_subs) };
    1
}

unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes `info`, and `write` passes the data.
    unsafe {
        let info = &*info;
        let walk = &mut *data.cast::<Walk<'_, '_>>();
        let headers = core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize);
        let mut own = [0; 4096];
        let path = if core::mem::take(&mut walk.first) {
            let length = system::read_link(c"/proc/self/exe", &mut own);
            own.get(..length).unwrap_or_default()
        } else if info.dlpi_name.is_null() {
            &[]
        } else {
            absolute(CStr::from_ptr(info.dlpi_name).to_bytes(), &mut own)
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

/// The absolute path of a file; `memory` may be used for it. A name without a slash belongs to no
/// file.
fn absolute<'a>(name: &'a [u8], memory: &'a mut [u8]) -> &'a [u8] {
    if name.starts_with(b"/") || !name.contains(&b'/') {
        return name;
    }
    let folder = system::read_link(c"/proc/self/cwd", memory);
    let length = folder + 1 + name.len();
    let Some(rest) = memory.get_mut(folder..length) else {
        return name;
    };
    for (to, from) in rest.iter_mut().zip(b"/".iter().chain(name)) {
        *to = *from;
    }
    memory.get(..length).unwrap_or(name)
}

/// The build id among the notes of a loaded file.
///
/// # Safety
/// `headers` are the program headers of a file that is loaded at `base`.
unsafe fn build_id(base: u64, headers: &[libc::Elf64_Phdr]) -> &'static [u8] {
    const BUILD_ID: u32 = 3;
    for header in headers.iter().filter(|h| h.p_type == libc::PT_NOTE) {
        let start = base.wrapping_add(header.p_vaddr) as *const u8;
        // SAFETY: the notes are in a loaded segment.
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

/// Whether the program has opened a library itself. Until then the dynamic linker is not called,
/// because its lock may be held by a thread that waits for this one.
static OPENED: AtomicBool = AtomicBool::new(false);

/// Writes the list, if libraries may have been opened since the last one. Called
/// before a block of events is written.
pub fn write_if_opened() {
    if OPENED.load(Ordering::Relaxed) {
        write();
    }
}

/// The real functions; null until they have been looked up.
static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static DLMOPEN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

extern "C" fn look_up() {
    if let Some(real) = crate::real::dlopen() {
        DLOPEN.store(real as *mut c_void, Ordering::Relaxed);
    }
    if let Some(real) = crate::real::dlmopen() {
        DLMOPEN.store(real as *mut c_void, Ordering::Relaxed);
    }
    if DLOPEN.load(Ordering::Relaxed).is_null() || DLMOPEN.load(Ordering::Relaxed).is_null() {
        crate::real::missing();
    }
}

macro_rules! opens {
    ($($name:ident($($argument:ident: $type:ty),*) => $real:ident;)*) => {$(
        /// Interposed; see its manual. The real function must return to the program, because its
        /// search path for libraries depends on its caller.
        ///
        /// # Safety
        /// As the manual demands.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> *mut c_void {
            naked_asm!(
                "mov byte ptr [rip + {opened}], 1",
                "mov rax, qword ptr [rip + {real}]",
                "test rax, rax",
                "jnz 2f",
                "push rdi",
                "push rsi",
                "push rdx",
                "call {look_up}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "mov rax, qword ptr [rip + {real}]",
                "2:",
                "jmp rax",
                opened = sym OPENED,
                real = sym $real,
                look_up = sym look_up,
            )
        }
    )*};
}

opens! {
    dlopen(file: *const c_char, flags: c_int) => DLOPEN;
    dlmopen(space: libc::Lmid_t, file: *const c_char, flags: c_int) => DLMOPEN;
}

/// Interposed; see its manual.
///
/// # Safety
/// As the manual demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dlclose(library: *mut c_void) -> c_int {
    let recording = RECORDER.is_recording() && RECORDER.is_own_process();
    if recording {
        write();
    }
    let result = match crate::real::dlclose() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        Some(real) => unsafe { real(library) },
        None => -1,
    };
    // A file that is loaded at the same addresses later must not be taken for this one.
    if recording {
        write();
    }
    result
}
