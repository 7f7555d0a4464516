//! The library as it must lie in the memory of a running program: its segments with all relocations
//! applied. Its imports are bound to functions of its own, so that no code of the program is
//! called, no symbol looked up, and no lock of its loader or allocator taken. Called by `inject`.
//! Pure computation.

use anyhow::{Context, Result, bail, ensure};
use object::elf::{
    FileHeader64, PF_W, PF_X, PT_LOAD, R_X86_64_64, R_X86_64_DTPMOD64, R_X86_64_GLOB_DAT,
    R_X86_64_JUMP_SLOT, R_X86_64_RELATIVE, STB_WEAK,
};
use object::read::elf::{FileHeader, ProgramHeader, Rela, SectionHeader, Sym};
use object::{Endianness, SymbolIndex};
use sunder_access::PAGE;
use sunder_wire::attach::{ABSENT, MAGIC, PLAIN, TABLE, Table};

/// A library that is relocated for one address.
pub struct Image {
    /// All of its pages.
    pub bytes: Vec<u8>,
    /// Offset, length and access rights (`PROT_*`) of its segments, in whole pages.
    pub parts: Vec<(u64, u64, i32)>,
    /// The addresses of its functions.
    pub table: Table<u64>,
}

impl Image {
    /// Its runs of pages that are not all zero, with their offsets. Fresh memory in a program is
    /// zero, and takes up memory only once it is written to.
    pub fn contents(&self) -> impl Iterator<Item = (u64, &[u8])> {
        const BYTES: usize = PAGE as usize;
        let pages: Vec<&[u8]> = self.bytes.chunks(BYTES).collect();
        let is_empty = |page: &[u8]| page.iter().all(|&byte| byte == 0);
        let runs = pages.chunk_by(|a, b| is_empty(a) == is_empty(b));
        let mut at = 0;
        let runs: Vec<_> = runs
            .map(|run| {
                let (start, len) = (at, run.iter().map(|page| page.len()).sum::<usize>());
                at += len;
                (start, len)
            })
            .collect();
        let all = runs.into_iter();
        all.map(|(start, len)| (start as u64, &self.bytes[start..start + len]))
            .filter(move |(_, bytes)| !is_empty(bytes))
    }
}

/// Bytes of memory that the library needs.
///
/// # Errors
/// If the file is no library.
pub fn size(file: &[u8]) -> Result<u64> {
    let header = FileHeader64::<Endianness>::parse(file).context("it is no library")?;
    let endian = header.endian().context("it is of another machine")?;
    let segments = header.program_headers(endian, file)?;
    let loaded = segments.iter().filter(|s| s.p_type(endian) == PT_LOAD);
    let end = loaded.map(|s| s.p_vaddr(endian) + s.p_memsz(endian)).max();
    Ok(end.context("it has no contents")?.next_multiple_of(PAGE))
}

/// The library in `file`, relocated for the address `base`.
///
/// # Errors
/// If the file is not a library as we build it.
pub fn image(file: &[u8], base: u64) -> Result<Image> {
    let mut bytes = vec![0; usize::try_from(size(file)?)?];
    let header = FileHeader64::<Endianness>::parse(file)?;
    let endian = header.endian()?;
    let mut parts = Vec::new();
    for segment in header.program_headers(endian, file)? {
        if segment.p_type(endian) != PT_LOAD {
            continue;
        }
        let at = segment.p_vaddr(endian);
        let data = segment.data(endian, file).ok().context("it is cut off")?;
        let place = bytes.get_mut(at as usize..at as usize + data.len());
        place.context("it is cut off")?.copy_from_slice(data);
        let start = at & !(PAGE - 1);
        let end = (at + segment.p_memsz(endian)).next_multiple_of(PAGE);
        let flags = segment.p_flags(endian);
        let mut rights = libc::PROT_READ;
        if flags.contains(PF_W) {
            rights |= libc::PROT_WRITE;
        }
        if flags.contains(PF_X) {
            rights |= libc::PROT_EXEC;
        }
        parts.push((start, end - start, rights));
    }
    let symbols = Symbols::new(header, endian, file)?;
    relocate(&mut bytes, base, header, endian, file, &symbols)?;
    let table = symbols.own(TABLE).context("it lacks its table")?;
    let words: Vec<u64> = (0..size_of::<Table<u64>>() as u64 / 8)
        .map(|i| word(&bytes, table + 8 * i))
        .collect::<Option<_>>()
        .context("its table is cut off")?;
    let &[
        magic,
        lead,
        begin,
        end,
        apply,
        roll_back,
        instead,
        failed,
        before,
        parked,
    ] = &words[..]
    else {
        bail!("its table is cut off");
    };
    ensure!(magic == MAGIC, "its table is another's");
    Ok(Image {
        bytes,
        parts,
        table: Table {
            magic,
            lead,
            begin,
            end,
            apply,
            roll_back,
            instead,
            failed,
            before,
            parked,
        },
    })
}

/// The library's dynamic symbols.
struct Symbols<'a> {
    endian: Endianness,
    table: object::read::elf::SymbolTable<'a, FileHeader64<Endianness>>,
}

impl<'a> Symbols<'a> {
    fn new(header: &FileHeader64<Endianness>, endian: Endianness, file: &'a [u8]) -> Result<Self> {
        let sections = header.sections(endian, file)?;
        let table = sections.symbols(endian, file, object::elf::SHT_DYNSYM)?;
        Ok(Self { endian, table })
    }

    /// Offset of a symbol that the library defines.
    fn own(&self, name: &str) -> Option<u64> {
        let found = self.table.iter().find(|s| {
            !s.is_undefined(self.endian)
                && self.table.symbol_name(self.endian, s) == Ok(name.as_bytes())
        });
        found.map(|s| s.st_value(self.endian))
    }

    /// Offset of the function or variable that a relocation's symbol stands for; `None` for a weak
    /// symbol that nothing defines.
    fn meant(&self, index: usize) -> Result<Option<u64>> {
        let symbol = self.table.symbol(SymbolIndex(index))?;
        if !symbol.is_undefined(self.endian) {
            return Ok(Some(symbol.st_value(self.endian)));
        }
        if symbol.st_bind() == STB_WEAK {
            return Ok(None);
        }
        let name = self.table.symbol_name(self.endian, symbol)?;
        let name = std::str::from_utf8(name)?;
        let plain = self.own(&format!("{PLAIN}{name}"));
        let found = plain.or_else(|| self.own(ABSENT));
        Ok(Some(found.context("it lacks functions of its own")?))
    }
}

fn relocate(
    bytes: &mut [u8],
    base: u64,
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    file: &[u8],
    symbols: &Symbols<'_>,
) -> Result<()> {
    let sections = header.sections(endian, file)?;
    for section in sections.iter() {
        let Some((relocations, _)) = section.rela(endian, file)? else {
            continue;
        };
        for relocation in relocations {
            let at = relocation.r_offset(endian) as usize;
            let addend = relocation.r_addend(endian);
            let symbol = relocation.r_sym(endian, false) as usize;
            let value = match relocation.r_type(endian, false) {
                R_X86_64_RELATIVE => base.wrapping_add_signed(addend),
                kind @ (R_X86_64_64 | R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) => {
                    let more = if kind == R_X86_64_64 { addend } else { 0 };
                    let meant = symbols.meant(symbol)?;
                    meant.map_or(0, |v| base.wrapping_add(v).wrapping_add_signed(more))
                }
                // Thread-local variables are used only by code that is never reached here.
                R_X86_64_DTPMOD64 => 0,
                other => bail!("it has relocations of another kind ({other})"),
            };
            let place = bytes.get_mut(at..at + 8).context("it is damaged")?;
            place.copy_from_slice(&value.to_le_bytes());
        }
    }
    Ok(())
}

fn word(bytes: &[u8], at: u64) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_with_contents_are_written() {
        const BYTES: usize = PAGE as usize;
        let mut bytes = vec![0; 5 * BYTES + 9];
        bytes[2 * BYTES - 1] = 1;
        bytes[2 * BYTES] = 2;
        bytes[5 * BYTES + 8] = 3;
        let table = Table {
            magic: MAGIC,
            lead: 0,
            begin: 0,
            end: 0,
            apply: 0,
            roll_back: 0,
            instead: 0,
            failed: 0,
            before: 0,
            parked: 0,
        };
        let image = Image {
            bytes,
            parts: Vec::new(),
            table,
        };
        let runs = image.contents().map(|(at, bytes)| (at, bytes.len()));
        let wanted = [(PAGE, 2 * BYTES), (5 * PAGE, 9)];
        assert_eq!(runs.collect::<Vec<_>>(), wanted);
    }
}
