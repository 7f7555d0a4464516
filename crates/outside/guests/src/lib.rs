//! The libraries of `crates/inside`, built by this crate's build script and embedded, most of them as
//! compressed bytes, so that `sunder` is one self-contained file. They reach a target as memory files: nothing is
//! written to disk, and a temporary folder that is mounted `noexec` does not matter.
//!
//! Used by every crate that loads something into a program. It must not start, stop or observe
//! any process.

mod packed;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::FdFlags;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

/// A memory file of this process that holds one of the libraries, or data that one reads. It
/// lasts as long as this value, which must be kept until the target has started.
pub struct MemoryFile {
    file: File,
}

impl MemoryFile {
    /// The runtime library.
    ///
    /// # Errors
    /// If the kernel has no memory files or no memory.
    pub fn runtime() -> io::Result<Self> {
        Self::holding(c"sunder-runtime", packed::RUNTIME)
    }

    /// The live heap.
    ///
    /// # Errors
    /// As [`Self::runtime`].
    pub fn heap() -> io::Result<Self> {
        Self::holding(c"sunder-heap", &packed::unpack(packed::HEAP))
    }

    /// The library that isolates threads.
    ///
    /// # Errors
    /// As [`Self::runtime`].
    pub fn isolate() -> io::Result<Self> {
        Self::holding(c"sunder-isolate", packed::ISOLATE)
    }

    /// An empty file of `bytes` bytes; its memory is allocated when it is written. Nobody can
    /// shorten it, so that this process can map it although the program can open it.
    ///
    /// # Errors
    /// As [`Self::runtime`].
    pub fn empty(name: &CStr, bytes: u64) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create(name, flags)?);
        file.set_len(bytes)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok(Self { file })
    }

    /// The descriptor.
    pub fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// The library that moves bytes to other pages.
    ///
    /// # Errors
    /// As [`Self::runtime`].
    pub fn remap() -> io::Result<Self> {
        Self::holding(c"sunder-remap", &packed::unpack(packed::REMAP))
    }

    /// The emulator's plugin.
    ///
    /// # Errors
    /// As [`Self::runtime`].
    pub fn emulator() -> io::Result<Self> {
        Self::holding(c"sunder-emulator", &packed::unpack(packed::EMULATOR))
    }

    /// The library that tells the emulator's plugin of allocations.
    ///
    /// # Errors
    /// As [`Self::runtime`].
    pub fn announce() -> io::Result<Self> {
        Self::holding(c"sunder-announce", &packed::unpack(packed::ANNOUNCE))
    }

    /// A memory file with these bytes. `name` is shown in `/proc`.
    ///
    /// # Errors
    /// As [`Self::runtime`].
    pub fn holding(name: &CStr, bytes: &[u8]) -> io::Result<Self> {
        let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
        file.write_all(bytes)?;
        Ok(Self { file })
    }

    /// Writes these bytes at the offset `from`.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn write_at(&self, bytes: &[u8], from: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, from)
    }

    /// The path by which another process of the same user can open the file.
    pub fn path(&self) -> PathBuf {
        self.path_in(std::process::id())
    }

    /// The path by which a program that this process starts from now on can open the file, also if
    /// this process is gone by then. The program inherits the descriptor and has to close it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn handed_down(&self) -> io::Result<PathBuf> {
        rustix::io::fcntl_setfd(&self.file, FdFlags::empty())?;
        Ok(format!("/proc/self/fd/{}", self.descriptor()).into())
    }

    /// As [`Self::path`], for a process that holds all our descriptors under the same numbers.
    pub fn path_in(&self, process: u32) -> PathBuf {
        sunder_wire::descriptor_path(process, self.file.as_raw_fd() as u32)
    }
}

/// The recorder as one object file, to be linked into instrumented programs.
pub fn tracer() -> Vec<u8> {
    packed::unpack(packed::TRACER)
}

/// The library that isolates threads, for analyses of its code.
pub const fn isolation_library() -> &'static [u8] {
    packed::ISOLATE
}

/// The library that moves bytes to other pages, for programs into which the tool has to write
/// it.
pub fn remap_library() -> &'static [u8] {
    static LIBRARY: OnceLock<Vec<u8>> = OnceLock::new();
    LIBRARY.get_or_init(|| packed::unpack(packed::INJECTED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::read::elf::ElfFile64;
    use std::collections::BTreeMap;

    #[test]
    fn the_embedded_libraries_are_elf_files_that_can_be_opened_by_their_paths() {
        let built = |name| std::fs::read(format!("{}/{name}", env!("OUT_DIR"))).expect(name);
        for (library, name) in [
            (MemoryFile::runtime(), "libsunder_runtime.so"),
            (MemoryFile::heap(), "libsunder_heap.so"),
        ] {
            let library = library.expect("memory files exist since Linux 3.17");
            let bytes = std::fs::read(library.path()).expect("our own descriptor");
            assert!(bytes.starts_with(b"\x7fELF"));
            assert_eq!(bytes, built(name));
        }
        assert_eq!(remap_library(), built("libsunder_injected.so"));
        assert_eq!(tracer(), built("sunder_tracer.o"));
    }

    /// The numbers of a version such as `GLIBC_2.17`.
    fn numbers(version: &str) -> Option<Vec<u32>> {
        let numbers = version.strip_prefix("GLIBC_")?.split('.');
        numbers.map(|number| number.parse().ok()).collect()
    }

    /// RHEL 7 has glibc 2.17. The loader compares versions before it runs anything.
    #[test]
    fn the_libraries_are_loaded_by_each_glibc_since_2_17() {
        let packed = [
            packed::EMULATOR,
            packed::ANNOUNCE,
            packed::REMAP,
            packed::HEAP,
        ];
        let packed = packed.map(packed::unpack);
        let plain = [packed::RUNTIME, packed::ISOLATE];
        for library in plain.into_iter().chain(packed.iter().map(Vec::as_slice)) {
            let elf: ElfFile64<'_> = ElfFile64::parse(library).expect("it is an ELF file");
            let (endian, sections) = (elf.endian(), elf.elf_section_table());
            let needs = sections
                .gnu_verneed(endian, library)
                .expect("it can be read");
            let (needs, strings) = needs.expect("symbols of glibc have versions");
            let strings = sections
                .strings(endian, library, strings)
                .expect("the names");
            let mut newest = BTreeMap::new();
            for need in needs {
                let (of, versions) = need.expect("a library");
                let of = String::from_utf8_lossy(of.file(endian, strings).expect("its name"));
                for version in versions {
                    let version = version.expect("a version").name(endian, strings);
                    let version = String::from_utf8_lossy(version.expect("its name"));
                    let newest: &mut Vec<u32> = newest.entry(of.to_string()).or_default();
                    newest.clone_from(&numbers(&version).unwrap_or_default().max(newest.clone()));
                }
            }
            // The names that these had before glibc 2.34, and have in later ones, too.
            let known = [
                "libc.so.6",
                "libdl.so.2",
                "libgcc_s.so.1",
                "libpthread.so.0",
            ];
            assert!(
                newest.keys().all(|name| known.contains(&&**name)),
                "{newest:?}"
            );
            assert!(
                newest["libc.so.6"] >= vec![2, 3],
                "nothing was read: {newest:?}"
            );
            assert!(
                newest.values().all(|version| *version <= vec![2, 17]),
                "{newest:?}"
            );
        }
    }
}
