//! The functions of a Go program: where each begins and ends, its name, and its lines. They come from the
//! table by which Go's runtime walks stacks. `strip` and the linker's `-s -w` take symbols away and leave
//! this table, and unwinding tables there are none. Used by `observe` for the bounds of code and by
//! `objects` for names. It gets bytes and reads no file. What it is given may be damaged, or made to keep
//! the reader busy.
//!
//! The format is that of Go 1.18 and later, as `runtime/symtab.go` and `debug/gosym/pclntab.go` of Go
//! 1.26 have it: a header, the names, and a sorted list of pairs, the offset of a function in the code
//! and that of its record. Older tables are not read. Lines are in `lines`.

mod lines;

/// The section with the table has one of these names, the second in some programs that may lie anywhere.
pub const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// The first number of the header: of Go 1.18 and 1.19, and of 1.20 and later.
const MAGIC: [u32; 2] = [0xffff_fff0, 0xffff_fff1];

/// Where the header has what, in bytes.
const QUANTUM: usize = 6;
const POINTER: usize = 7;
const COUNT: usize = 8;
const NAMES: usize = 32;
const FILES_OF_UNITS: usize = 40;
const FILES: usize = 48;
const VALUES: usize = 56;
const FUNCTIONS: usize = 64;

/// The bytes of a pair of offsets.
const PAIR: usize = 8;
/// Where a function's record has the offset of its name.
const NAME: usize = 4;
/// Longer names are taken for damaged, in bytes. Those of generic functions have a few hundred.
const LONGEST_NAME: usize = 64 << 10;

/// The byte that the linker puts between functions: an `int3`.
const PADDING: u8 = 0xcc;
/// So many of a hundred functions must begin behind padding. Of functions of any length, one of 32 ends
/// right where the next one begins.
const PADDED_OF_HUNDRED: usize = 80;
/// How many functions are looked at for this.
const LOOKED_AT: usize = 256;
/// The alignment of Go's code, in bytes, and how much other code may lie before it.
const ALIGNMENT: usize = 32;
const MOST_BEFORE: usize = 4 << 20;

/// A function of a Go program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// The link address of its first byte.
    pub start: u64,
    /// The link address behind its last byte, padding included.
    pub end: u64,
    /// Its name with that of its package, as in `main.(*Server).serve`.
    pub name: &'a str,
}

/// A table of functions.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    /// The link address from which offsets count.
    text: u64,
    names: &'a [u8],
    /// The pairs of offsets, and the last function's end; the records lie at offsets from its start.
    functions: &'a [u8],
    count: usize,
    /// For each unit, the offsets of its files' names, of which `files` has the bytes.
    files_of_units: &'a [u8],
    files: &'a [u8],
    /// Values that change along the code of a function.
    values: &'a [u8],
    /// The bytes of a function's record before its list of values.
    record: usize,
    /// The bytes of the whole table.
    bytes: usize,
}

impl<'a> Table<'a> {
    /// The table in a section's bytes. `code` is what lies in the section `.text`, whose link address is
    /// `text`. `None` if it is none that can be read, or if functions do not begin where it says. A linker
    /// of C may have put other code before Go's, and the table does not tell where Go's begins: there is
    /// one place at which its functions do.
    pub fn read(table: &'a [u8], text: u64, code: &[u8]) -> Option<Self> {
        let mut found = Self::at(table, text)?;
        let mut places = (0..code.len().min(MOST_BEFORE)).step_by(ALIGNMENT);
        let before = places.find(|&at| found.fits(&code[at..]))?;
        found.text = text.checked_add(before as u64)?;
        Some(found)
    }

    /// The same table, if it is known that its code begins at `text` ([`Self::text`]).
    pub fn at(table: &'a [u8], text: u64) -> Option<Self> {
        let magic = number(table, 0)? as u32;
        let kind = (*table.get(QUANTUM)?, *table.get(POINTER)?);
        if !MAGIC.contains(&magic) || kind != (1, 8) {
            return None;
        }
        let part = |at: usize| table.get(usize::try_from(number(table, at)?).ok()?..);
        let found = Self {
            text,
            names: part(NAMES)?,
            functions: part(FUNCTIONS)?,
            count: usize::try_from(number(table, COUNT)?).ok()?,
            files_of_units: part(FILES_OF_UNITS)?,
            files: part(FILES)?,
            values: part(VALUES)?,
            // The line of the function's start came with Go 1.20.
            record: if magic == MAGIC[0] { 40 } else { 44 },
            bytes: table.len(),
        };
        let length = found.count.checked_mul(PAIR)?.checked_add(4)?;
        (length <= found.functions.len()).then_some(found)
    }

    /// The link address at which Go's code begins.
    pub const fn text(&self) -> u64 {
        self.text
    }

    /// The link addresses of the first byte of each function and of the one behind its last, padding
    /// included; only of functions whose bounds ascend.
    pub fn bounds(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.count).filter_map(|index| self.bounds_of(index))
    }

    /// The functions of [`Self::bounds`] with their names. They end at the first name that is damaged, and
    /// where all names together are longer than the table: those of a real one do not overlap.
    pub fn functions(&self) -> impl Iterator<Item = Function<'a>> {
        let mut left = self.bytes;
        let all = (0..self.count).map_while(move |index| {
            let name = self.name(index)?;
            left = left.checked_sub(name.len())?;
            Some((index, name))
        });
        all.filter_map(|(index, name)| {
            let (start, end) = self.bounds_of(index)?;
            Some(Function { start, end, name })
        })
    }

    /// Whether the table has a function that holds the instruction at a link address.
    pub fn holds(&self, address: u64) -> bool {
        self.place(address).is_some()
    }

    fn bounds_of(&self, index: usize) -> Option<(u64, u64)> {
        let (start, end) = (self.offset(index)?, self.offset(index + 1)?);
        let address = |offset: u32| self.text.checked_add(offset.into());
        (start < end).then_some((address(start)?, address(end)?))
    }

    /// The index of the function that holds a link address, and the offset of the address in it.
    fn place(&self, address: u64) -> Option<(usize, u32)> {
        let offset = u32::try_from(address.checked_sub(self.text)?).ok()?;
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.offset(middle)? <= offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let index = low.checked_sub(1)?;
        let within = offset.checked_sub(self.offset(index)?)?;
        (offset < self.offset(index + 1)?).then_some((index, within))
    }

    /// The offset in the code of the function at `index`, or the last one's end.
    fn offset(&self, index: usize) -> Option<u32> {
        word(self.functions, index * PAIR)
    }

    fn name(&self, index: usize) -> Option<&'a str> {
        text_at(self.names, self.of_record(index, NAME)?)
    }

    /// A number in the record of the function at `index`.
    fn of_record(&self, index: usize, at: usize) -> Option<u32> {
        let record = word(self.functions, index * PAIR + 4)? as usize;
        word(self.functions, record.checked_add(at)?)
    }

    /// Whether functions of the code begin where this table says.
    fn fits(&self, code: &[u8]) -> bool {
        let mut looked_at = 0;
        let mut padded = 0;
        for index in 1..self.count.min(LOOKED_AT) {
            let Some(start) = self.offset(index) else {
                return false;
            };
            let around = (start as usize)
                .checked_sub(1)
                .and_then(|at| code.get(at..at + 2));
            let Some(&[before, first]) = around else {
                return false;
            };
            looked_at += 1;
            padded += usize::from(before == PADDING && first != PADDING);
            // Most places are refused by a few functions.
            if looked_at == 16 && padded < 8 {
                return false;
            }
        }
        looked_at > 0 && padded * 100 >= looked_at * PADDED_OF_HUNDRED
    }
}

/// The text at an offset, which ends before a zero; `None` if it is empty, too long or no text.
fn text_at(bytes: &[u8], at: u32) -> Option<&str> {
    let rest = bytes.get(at as usize..)?;
    let rest = &rest[..rest.len().min(LONGEST_NAME)];
    let end = rest.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&rest[..end])
        .ok()
        .filter(|text| !text.is_empty())
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let number = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(number.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: u64 = 0x40_1000;

    /// A table of functions at these offsets, each with a name, and code in which each begins behind
    /// padding; the last offset is the end.
    fn made(offsets: &[u32]) -> (Vec<u8>, Vec<u8>) {
        let count = offsets.len() - 1;
        let names: Vec<u8> = (0..count)
            .flat_map(|n| format!("main.f{n}\0").into_bytes())
            .collect();
        let (header, records) = (72, count * PAIR + 4);
        let mut table = vec![0; header];
        table[..4].copy_from_slice(&MAGIC[1].to_le_bytes());
        (table[QUANTUM], table[POINTER]) = (1, 8);
        let mut put = |at: usize, value: usize| {
            table[at..at + 8].copy_from_slice(&(value as u64).to_le_bytes());
        };
        put(COUNT, count);
        put(NAMES, header);
        put(FUNCTIONS, header + names.len());
        table.extend(&names);
        for (n, offset) in offsets[..count].iter().enumerate() {
            table.extend(offset.to_le_bytes());
            table.extend(((records + n * 8) as u32).to_le_bytes());
        }
        table.extend(offsets[count].to_le_bytes());
        let mut name = 0;
        for (n, offset) in offsets[..count].iter().enumerate() {
            table.extend(offset.to_le_bytes());
            table.extend((name as u32).to_le_bytes());
            name += format!("main.f{n}\0").len();
        }
        let mut code = vec![0x90; offsets[count] as usize];
        for &offset in &offsets[1..count] {
            code[offset as usize - 1] = PADDING;
        }
        (table, code)
    }

    #[test]
    fn functions_have_bounds_and_names() {
        let (table, code) = made(&[0, 32, 96, 128]);
        let read = Table::read(&table, TEXT, &code).expect("it is whole");
        let found: Vec<_> = read
            .functions()
            .map(|f| (f.start - TEXT, f.end - TEXT, f.name))
            .collect();
        assert_eq!(
            found,
            [
                (0, 32, "main.f0"),
                (32, 96, "main.f1"),
                (96, 128, "main.f2")
            ]
        );
    }

    #[test]
    fn code_of_another_language_may_lie_before() {
        let (table, code) = made(&[0, 32, 96, 128, 192]);
        let mut all = vec![0x90; 160];
        all.extend(&code);
        let read = Table::read(&table, TEXT, &all).expect("it is found");
        let first = read.functions().next().expect("there are four");
        assert_eq!(first.start, TEXT + 160);
    }

    #[test]
    fn a_table_of_other_code_is_refused() {
        let (table, code) = made(&[0, 32, 96, 128, 192]);
        assert!(Table::read(&table, TEXT, &code[..100]).is_none());
        assert!(Table::read(&table, TEXT, &vec![0x90; 4096]).is_none());
        assert!(Table::read(&table, TEXT, &vec![PADDING; 4096]).is_none());
    }

    /// A program may be made to keep whoever reads it busy: a thousand functions with one long name.
    #[test]
    fn names_that_overlap_end_the_functions() {
        let offsets: Vec<u32> = (0..=1000).map(|n| n * 32).collect();
        let (mut table, code) = made(&offsets);
        let whole = Table::read(&table, TEXT, &code).expect("it is whole");
        assert_eq!(whole.functions().count(), 1000);
        let bytes = table.len();
        let long = bytes as u32 - 72;
        table.extend(vec![b'x'; bytes / 4]);
        table.push(0);
        let records = table.len() - bytes / 4 - 1 - 8 * 1000;
        for n in 0..1000 {
            let at = records + n * 8 + NAME;
            table[at..at + 4].copy_from_slice(&long.to_le_bytes());
        }
        let read = Table::read(&table, TEXT, &code).expect("its bounds are right");
        assert_eq!(read.bounds().count(), 1000);
        assert!((1..10).contains(&read.functions().count()));
    }

    proptest! {
        #[test]
        fn damage_ends_nothing(at in 0usize..200, byte: u8, cut in 0usize..300) {
            let (mut table, code) = made(&[0, 32, 96, 128]);
            let at = at % table.len();
            table[at] = byte;
            table.truncate(cut);
            if let Some(read) = Table::read(&table, TEXT, &code) {
                prop_assert!(read.bounds().all(|(start, end)| start < end));
                let lines = read.functions().filter_map(|f| read.line(f.start));
                prop_assert!(lines.count() <= 3);
            }
        }
    }
}
