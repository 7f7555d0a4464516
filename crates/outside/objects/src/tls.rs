//! The location of a library's thread-local block in each thread, from values that the loader wrote
//! into the library's own memory. The relocations of thread-local variables ("ELF Handling for
//! Thread-Local Storage", sections 4.1.6 and 4.3.6) store there either the number of the module,
//! the index in each thread's table of blocks, or the distance from the thread pointer. Used by
//! [`crate::names`], which knows the mappings; reads files itself, and the process's memory only
//! through its caller.
//!
//! The loader's private structures are not read. Every value is checked, because the process runs
//! on and may be loading a library at that moment: an inconsistent value counts as none.

use crate::bounded::FileBytes;
use crate::image::{Elf, first_page_of};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{
    LittleEndian, Object, ObjectSymbol, ObjectSymbolTable, RelocationFlags, RelocationTarget, elf,
};
use std::fs::File;
use sunder_access::Address;

/// Reads memory of the process; false if it can't be read as a whole.
pub(crate) type Read<'a> = dyn FnMut(Address, &mut [u8]) -> bool + 'a;

/// How many relocations of one library are read; all of them must agree.
const MAX_RELOCATIONS: usize = 64;
/// The most modules with thread-local variables; a larger number is no module's.
const MAX_MODULES: u64 = 4096;
/// Blocks at the same distance in all threads are closer to the thread pointer than this, in bytes.
pub(crate) const MAX_DISTANCE: u64 = 1 << 20;

/// A library's thread-local segment, and the addresses in its memory that tell where its blocks
/// are.
#[derive(Debug)]
pub(crate) struct Library {
    address: u64,
    align: u64,
    /// Size of a block in bytes.
    pub(crate) size: u64,
    /// File offset and link address of the first page that is mapped.
    pub(crate) first_page: (u64, u64),
    relocations: Vec<TlsRelocation>,
}

/// A relocation of a thread-local variable: a word that the loader fills in, by link address.
#[derive(Clone, Copy, Debug)]
enum TlsRelocation {
    /// The module's number. For a variable that other modules could define too, the next word is
    /// its offset in the block if the definition is this module's.
    Module { at: u64, position: Option<u64> },
    /// The distance from the byte at `position` of the block to the thread pointer.
    Distance { at: u64, position: u64 },
    /// A TLS descriptor of that byte: either of the two, after the address of a function.
    Descriptor { at: u64, position: u64 },
}

/// The location of a library's blocks, according to its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockLocation {
    /// At this distance below the thread pointer, in every thread.
    Distance(u64),
    /// In each thread's table, at this index.
    Module(u64),
}

impl Library {
    /// Reads a library's file; `None` if it has no thread-local variables.
    pub(crate) fn read(file: File) -> Option<Self> {
        let bytes = FileBytes::of(file);
        let file: Elf<'_> = ElfFile64::parse(&bytes).ok()?;
        let e = LittleEndian;
        let segment = file
            .elf_program_headers()
            .iter()
            .find(|h| h.p_type(e) == elf::PT_TLS && h.p_memsz(e) > 0)?;
        let mut relocations = relocations(&file);
        // Words that certainly are about the file's own variables suffice.
        if relocations.iter().any(|(own, _)| *own) {
            relocations.retain(|(own, _)| *own);
        }
        relocations.truncate(MAX_RELOCATIONS);
        Some(Self {
            address: segment.p_vaddr(e),
            align: segment.p_align(e).checked_next_power_of_two().unwrap_or(1),
            size: segment.p_memsz(e),
            first_page: first_page_of(&file)?,
            relocations: relocations
                .into_iter()
                .map(|(_, relocation)| relocation)
                .collect(),
        })
    }

    /// The location according to the library's memory, if it is loaded `bias` above its link
    /// addresses; `None` if its words contradict each other.
    pub(crate) fn block_location(&self, bias: u64, read: &mut Read<'_>) -> Option<BlockLocation> {
        let mut location: Option<BlockLocation> = None;
        for relocation in &self.relocations {
            let Some(this) = self.location_from(*relocation, bias, read) else {
                continue;
            };
            match location {
                // By descriptor and by number: both can be true at once.
                Some(BlockLocation::Module(_)) if matches!(this, BlockLocation::Distance(_)) => {
                    location = Some(this)
                }
                Some(BlockLocation::Distance(_)) if matches!(this, BlockLocation::Module(_)) => {}
                Some(other) if other != this => return None,
                _ => location = Some(this),
            }
        }
        location
    }

    fn location_from(
        &self,
        relocation: TlsRelocation,
        bias: u64,
        read: &mut Read<'_>,
    ) -> Option<BlockLocation> {
        match relocation {
            TlsRelocation::Module { at, position } => {
                let [module, behind] = words(bias.wrapping_add(at), read)?;
                let fits = position.is_none_or(|p| p == behind);
                fits.then_some(()).and_then(|()| module_number(module))
            }
            TlsRelocation::Distance { at, position } => {
                let [value] = words(bias.wrapping_add(at), read)?;
                self.distance(value, position)
            }
            TlsRelocation::Descriptor { at, position } => {
                let [_, argument] = words(bias.wrapping_add(at), read)?;
                // Distances are negative, addresses are not.
                if (argument as i64) < 0 {
                    return self.distance(argument, position);
                }
                let [module, at] = words(argument, read)?;
                (at == position).then_some(())?;
                module_number(module)
            }
        }
    }

    /// The distance of the block's start, computed from `value`, the offset of the byte at
    /// `position` of the block from the thread pointer.
    fn distance(&self, value: u64, position: u64) -> Option<BlockLocation> {
        let distance = position.wrapping_sub(value);
        // Thread pointers are multiples of 64, the strictest alignment of the data after them.
        let from_pointer = distance.wrapping_add(self.address);
        let aligned = from_pointer.is_multiple_of(self.align.min(64));
        let below = (value as i64) < 0 && distance >= self.size && distance < MAX_DISTANCE;
        (aligned && below).then_some(BlockLocation::Distance(distance))
    }

    /// Whether a block can start at `start`.
    pub(crate) const fn can_start(&self, start: u64) -> bool {
        // A block that is allocated later is aligned itself; it need not be congruent to the
        // segment in its file.
        let rest = start % self.align;
        start != 0 && (rest == 0 || rest == self.address % self.align)
    }
}

fn module_number(value: u64) -> Option<BlockLocation> {
    (1..MAX_MODULES)
        .contains(&value)
        .then_some(BlockLocation::Module(value))
}

/// The words in `file` that the loader fills in, each with whether it is certainly about the file's
/// own variable. Others may be about a variable of the same name in another module.
fn relocations(file: &Elf<'_>) -> Vec<(bool, TlsRelocation)> {
    let table = file.dynamic_symbol_table();
    let position = |target, addend: i64| match target {
        RelocationTarget::Symbol(index) => {
            let symbol = table.as_ref()?.symbol_by_index(index).ok()?;
            let known = !symbol.is_undefined();
            known.then(|| (false, symbol.address().wrapping_add_signed(addend)))
        }
        _ => Some((true, addend as u64)),
    };
    let all = file.dynamic_relocations().into_iter().flatten();
    all.filter_map(|(at, relocation)| {
        let RelocationFlags::Elf { r_type } = relocation.flags() else {
            return None;
        };
        let target = relocation.target();
        match r_type {
            elf::R_X86_64_DTPMOD64 => {
                let (own, position) = position(target, 0)?;
                let position = (!own).then_some(position);
                Some((own, TlsRelocation::Module { at, position }))
            }
            elf::R_X86_64_TPOFF64 => {
                let (own, position) = position(target, relocation.addend())?;
                Some((own, TlsRelocation::Distance { at, position }))
            }
            elf::R_X86_64_TLSDESC => {
                let (own, position) = position(target, relocation.addend())?;
                Some((own, TlsRelocation::Descriptor { at, position }))
            }
            _ => None,
        }
    })
    .collect()
}

/// The words at `address` of the process.
fn words<const N: usize>(address: u64, read: &mut Read<'_>) -> Option<[u64; N]> {
    let mut bytes = vec![0; N * 8];
    read(Address(address), &mut bytes).then(|| {
        let mut words = bytes.chunks_exact(8).map(word);
        std::array::from_fn(|_| words.next().unwrap_or(0))
    })
}

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// A thread's table of blocks ("dynamic thread vector", section 3 of the same): the start of its
/// block for each module in `0..modules`, or `None` for modules that it has not used. The layout is
/// that of glibc since 2.25: two words per module. The first word is the table's generation, the
/// word before it the number of modules that it has room for.
pub(crate) fn blocks_of_thread(
    pointer: Address,
    modules: u64,
    read: &mut Read<'_>,
) -> Option<Vec<Option<u64>>> {
    const UNALLOCATED: u64 = u64::MAX;
    // The thread pointer points to itself (System V ABI, x86-64).
    let [itself, table] = words(pointer.0, read)?;
    if itself != pointer.0 {
        return None;
    }
    let [room] = words(table.wrapping_sub(16), read)?;
    if room > 4 * MAX_MODULES {
        return None;
    }
    let count = modules.min(room + 1).min(MAX_MODULES);
    let mut bytes = vec![0; usize::try_from(count * 16).ok()?];
    if !read(Address(table), &mut bytes) {
        return None;
    }
    let entry = |pair: &[u8]| Some(word(&pair[..8])).filter(|&p| p != UNALLOCATED && p != 0);
    Some(bytes.chunks_exact(16).map(entry).collect())
}
