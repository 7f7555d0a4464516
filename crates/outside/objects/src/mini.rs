//! MiniDebugInfo: the symbols of functions that a distribution leaves in a stripped file, as a
//! small ELF file in an xz-compressed section (gdb's manual, "Debugging information in a special
//! section"). Called by [`crate::image`]; must not trust the sizes in the section.

use lzma_rust2::XzReader;
use object::LittleEndian;
use object::elf;
use object::read::elf::ElfFile64;
use std::io::Read;

/// The section's name.
pub(crate) const SECTION: &str = ".gnu_debugdata";

/// The largest size of an unpacked section, in bytes; a larger one is ignored. Those of Fedora's
/// largest programs have less than a tenth of it.
const MOST_UNPACKED: u64 = 64 << 20;
/// Memory that unpacking may take, in KiB: xz's largest setting needs 65 MiB.
const MOST_MEMORY: u32 = 80 << 10;

/// The ELF file in the section's bytes; `None` if they are damaged.
pub(crate) fn unpack(section: &[u8]) -> Option<Vec<u8>> {
    unpack_up_to(section, MOST_UNPACKED)
}

fn unpack_up_to(section: &[u8], most: u64) -> Option<Vec<u8>> {
    let reader = XzReader::new_mem_limit(section, false, MOST_MEMORY);
    let mut file = Vec::new();
    reader.take(most + 1).read_to_end(&mut file).ok()?;
    (file.len() as u64 <= most).then_some(file)
}

/// The ELF file in `unpacked`, if it is of this machine.
pub(crate) fn parse(unpacked: &[u8]) -> Option<ElfFile64<'_, LittleEndian>> {
    let file: ElfFile64<'_, LittleEndian> = ElfFile64::parse(unpacked).ok()?;
    let machine = file.elf_header().e_machine.get(LittleEndian);
    (machine == elf::EM_X86_64).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of `xz` for 26 bytes of text.
    const PACKED: &[u8] = &[
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00, 0x21,
        0x01, 0x16, 0x00, 0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0x01, 0x00, 0x19, 0x61, 0x20, 0x74,
        0x65, 0x78, 0x74, 0x20, 0x6f, 0x66, 0x20, 0x32, 0x36, 0x20, 0x6c, 0x65, 0x74, 0x74, 0x65,
        0x72, 0x73, 0x20, 0x68, 0x65, 0x72, 0x65, 0x0a, 0x00, 0x00, 0x00, 0xd5, 0x48, 0xc9, 0xfb,
        0x34, 0xd7, 0xcc, 0x71, 0x00, 0x01, 0x32, 0x1a, 0x20, 0x18, 0x94, 0x30, 0x1f, 0xb6, 0xf3,
        0x7d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x04, 0x59, 0x5a,
    ];

    #[test]
    fn more_than_the_most_is_refused() {
        assert_eq!(unpack_up_to(PACKED, 26).map(|f| f.len()), Some(26));
        assert_eq!(unpack_up_to(PACKED, 25), None);
    }

    #[test]
    fn damage_anywhere_is_noticed() {
        for at in 0..PACKED.len() {
            let mut damaged = PACKED.to_vec();
            damaged[at] ^= 0x10;
            assert_eq!(unpack(&damaged), None, "byte {at}");
            assert_eq!(unpack(&PACKED[..at]), None, "cut at {at}");
        }
    }
}
