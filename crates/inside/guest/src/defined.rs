//! Finds a function in the symbol tables of the loaded modules, without the dynamic linker's `dlsym`.
//! Used where that can't be called: `dlsym` of glibc before 2.34 takes a key for thread-local values
//! when it is first called, and waits for itself if that calls it again. This module must not
//! allocate or call an interposed function.
//!
//! Contexts: pre-init, normal.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::null_mut;

/// What is looked for, and what was found so far.
struct Search<'a> {
    name: &'a CStr,
    /// Whether the module that this code belongs to was seen.
    behind_ours: bool,
    found: *mut c_void,
}

/// The first definition of the function in the modules that were loaded after the one that this code
/// belongs to, as `dlsym` finds it with `RTLD_NEXT`; null if there is none.
#[must_use]
pub fn next(name: &CStr) -> *mut c_void {
    let mut search = Search {
        name,
        behind_ours: false,
        found: null_mut(),
    };
    // SAFETY: the function has the required type, and the data outlive the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// Looks into one module; not zero ends the search.
///
/// # Safety
/// As `dl_iterate_phdr` calls it; `data` is a [`Search`].
unsafe extern "C" fn look(
    module: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: by this function's contract.
    let (module, search) = unsafe { (&*module, &mut *data.cast::<Search<'_>>()) };
    let base = module.dlpi_addr as usize;
    let count = usize::from(module.dlpi_phnum);
    // SAFETY: the dynamic linker's table of that many entries.
    let headers = unsafe { core::slice::from_raw_parts(module.dlpi_phdr, count) };
    let own = next as *const () as usize;
    let is_ours = headers.iter().any(|h| {
        let start = base.wrapping_add(h.p_vaddr as usize);
        h.p_type == libc::PT_LOAD && own.wrapping_sub(start) < h.p_memsz as usize
    });
    if is_ours || !search.behind_ours {
        search.behind_ours |= is_ours;
        return 0;
    }
    let Some(dynamic) = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC) else {
        return 0;
    };
    let dynamic = base.wrapping_add(dynamic.p_vaddr as usize);
    // SAFETY: the module is loaded, and stays so during the call.
    let offset = unsafe { Tables::of(base, dynamic).and_then(|t| t.function(search.name)) };
    if let Some(offset) = offset {
        search.found = base.wrapping_add(offset) as *mut c_void;
    }
    c_int::from(!search.found.is_null())
}

/// Addresses of a module's tables in memory.
struct Tables {
    symbols: usize,
    strings: usize,
    hashes: usize,
}

/// `Elf64_Sym`.
#[repr(C)]
struct Symbol {
    name: u32,
    /// Binding above, type in the lower four bits.
    info: u8,
    visibility: u8,
    section: u16,
    value: u64,
    size: u64,
}

impl Tables {
    /// Those that the dynamic section at `dynamic` tells; `None` without a table of GNU hashes.
    ///
    /// # Safety
    /// It is that of a loaded module at `base`.
    unsafe fn of(base: usize, dynamic: usize) -> Option<Self> {
        const STRINGS: usize = 5;
        const SYMBOLS: usize = 6;
        const GNU_HASHES: usize = 0x6fff_fef5;
        let [mut symbols, mut strings, mut hashes] = [0; 3];
        let mut entry = dynamic as *const [usize; 2];
        loop {
            // SAFETY: the section ends with an entry of zeros, which ends the loop.
            let [tag, value] = unsafe { *entry };
            // The dynamic linker adds the base, but not where the section is read-only.
            let address = if value < base { value + base } else { value };
            match tag {
                0 => break,
                STRINGS => strings = address,
                SYMBOLS => symbols = address,
                GNU_HASHES => hashes = address,
                _ => {}
            }
            entry = entry.wrapping_add(1);
        }
        (symbols != 0 && strings != 0 && hashes != 0).then_some(Self {
            symbols,
            strings,
            hashes,
        })
    }

    /// The offset of the function of this name in the module.
    ///
    /// # Safety
    /// The tables are those of a loaded module.
    unsafe fn function(&self, name: &CStr) -> Option<usize> {
        /// `STT_FUNC`.
        const FUNCTION: u8 = 2;
        let wanted = hash(name);
        let number = |at: usize, index: usize| {
            // SAFETY: within the table of hashes, by its format.
            unsafe { *(at as *const u32).wrapping_add(index) }
        };
        let symbol = |index: usize| {
            // SAFETY: within the table of symbols, for which the indices are.
            unsafe { &*(self.symbols as *const Symbol).wrapping_add(index) }
        };
        let [buckets, first, blooms] = [0, 1, 2].map(|i| number(self.hashes, i) as usize);
        let table = self.hashes + 16 + blooms * 8;
        let chains = table + buckets * 4;
        let mut index = number(table, (wanted as usize).checked_rem(buckets)?) as usize;
        // Zero is an empty bucket.
        while index >= first {
            let of = number(chains, index - first);
            let it = symbol(index);
            // SAFETY: names end within the table of strings.
            let named = || unsafe { CStr::from_ptr((self.strings + it.name as usize) as *const _) };
            if of | 1 == wanted | 1
                && it.section != 0
                && it.info & 15 == FUNCTION
                && named() == name
            {
                return Some(it.value as usize);
            }
            // The last of its bucket.
            if of & 1 != 0 {
                break;
            }
            index += 1;
        }
        None
    }
}

/// The hash of a name in `DT_GNU_HASH`.
fn hash(name: &CStr) -> u32 {
    let bytes = name.to_bytes().iter();
    bytes.fold(5381u32, |h, &b| {
        h.wrapping_mul(33).wrapping_add(u32::from(b))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test's own program comes first, so that everything else is behind it.
    #[test]
    fn it_finds_what_dlsym_finds() {
        for name in [c"pthread_key_create", c"malloc", c"getpid", c"fopen"] {
            // SAFETY: the name is a C string.
            let known = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
            assert!(!known.is_null());
            assert_eq!(next(name), known, "{name:?}");
        }
        assert!(next(c"no_such_function_of_ours").is_null());
    }
}
