//! Executables that are put together from the input: sound headers, sections, symbols and debug
//! information, whose numbers, names and references are the input's. Arbitrary bytes hardly ever get
//! that far. Must not check what the readers make of it; `program` does.

mod debug;
mod elf;

use crate::input::Input;
use crate::program::program;
use elf::{Elf, Section};
use lzma_rust2::{XzOptions, XzWriter};
use std::io::Write;

/// The most bytes that are changed in the end.
const MOST_CHANGES: u8 = 8;
/// The most symbols of a table.
const MOST_SYMBOLS: u8 = 32;

/// What the first byte of an input says.
mod flag {
    pub const COMPRESSED: u8 = 1;
    pub const PACKED_SYMBOLS: u8 = 2;
    pub const LINK: u8 = 4;
    pub const CHANGED: u8 = 8;
}

/// Puts an executable together, and asks for names all over it.
pub fn assembled(bytes: &[u8]) {
    program(&executable(bytes));
}

/// The executable that an input stands for.
fn executable(bytes: &[u8]) -> Vec<u8> {
    let mut input = Input(bytes);
    let flags = input.byte();
    let mut elf = Elf::default();
    symbols(&mut input, &mut elf);
    if flags & flag::PACKED_SYMBOLS != 0 {
        let mut small = Elf::default();
        symbols(&mut input, &mut small);
        elf.sections
            .push(Section::new(".gnu_debugdata", packed(&small.bytes())));
    }
    if flags & flag::LINK != 0 {
        let length = usize::from(input.byte() % 16);
        let mut link = input.take(length).to_vec();
        link.resize(16, 0);
        link.extend(input.take(4));
        elf.sections.push(Section::new(".gnu_debuglink", link));
    }
    for (name, bytes) in debug::sections(&mut input) {
        let section = Section::new(name, bytes);
        let compress = flags & flag::COMPRESSED != 0;
        elf.sections.push(if compress {
            section.compressed()
        } else {
            section
        });
    }
    let mut whole = elf.bytes();
    if flags & flag::CHANGED != 0 {
        for _ in 0..input.byte() % MOST_CHANGES {
            let at = input.number(4) as usize % whole.len();
            whole[at] = input.byte();
        }
    }
    whole
}

/// A table of symbols. Their names end anywhere in one text.
fn symbols(input: &mut Input<'_>, elf: &mut Elf) {
    let length = usize::from(input.byte());
    let mut names = vec![0];
    names.extend(input.take(length));
    names.push(0);
    let mut table = vec![0; elf::SYMBOL];
    for _ in 0..input.byte() % MOST_SYMBOLS {
        let (name, kind) = (u32::from(input.byte()), input.byte());
        let (section, value) = (u16::from(input.byte() % 4), input.extended(2, 8));
        let size = input.extended(1, 8);
        table.extend(name.to_le_bytes());
        table.extend([kind, 0]);
        table.extend(section.to_le_bytes());
        table.extend(value.to_le_bytes());
        table.extend(size.to_le_bytes());
    }
    elf.symbols = Some((table, names));
}

/// Packed as `.gnu_debugdata` is.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).expect("a preset");
    writer.write_all(bytes).expect("memory takes all");
    writer.finish().expect("memory takes all")
}

#[cfg(test)]
mod tests;
