//! Makes inputs like those that come with the suites, which are too large to be carried. The same size
//! gives the same bytes.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// What is in an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Random letters.
    Letters,
    /// Lines of a few words each, of a vocabulary in which some are frequent.
    Words,
    /// A bitmap of 24 bits a pixel.
    Bitmap,
    /// A folder of pages with links.
    Pages,
    /// Options for `blackscholes`, one on each line.
    Options,
    /// A netlist for `canneal`: elements on a grid, with their inputs.
    Netlist,
}

/// Numbers that look random and are the same each time (xorshift, Marsaglia 2003).
struct Numbers(u64);

impl Numbers {
    const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    const fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }
}

/// Makes an input of about `bytes`, and returns its path.
///
/// # Errors
/// If it can't be written.
pub fn make(kind: Kind, bytes: u64) -> Result<PathBuf> {
    let name = format!("sunder-input-{}-{kind:?}-{bytes}", std::process::id());
    let path = std::env::temp_dir().join(name);
    write(kind, bytes, &path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Removes an input.
///
/// # Errors
/// If it can't be removed.
pub fn remove(input: &Path) -> Result<()> {
    if input.is_dir() {
        fs::remove_dir_all(input)?;
    } else {
        fs::remove_file(input)?;
    }
    Ok(())
}

fn write(kind: Kind, bytes: u64, path: &Path) -> std::io::Result<()> {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    if kind == Kind::Pages {
        return pages(bytes, path, &mut numbers);
    }
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    match kind {
        Kind::Letters => letters(bytes, &mut out, &mut numbers)?,
        Kind::Words => words(bytes, &mut out, &mut numbers)?,
        Kind::Bitmap => bitmap(bytes, &mut out, &mut numbers)?,
        Kind::Options => options(bytes, &mut out, &mut numbers)?,
        Kind::Netlist => netlist(bytes, &mut out, &mut numbers)?,
        Kind::Pages => {}
    }
    out.flush()
}

fn letters(bytes: u64, out: &mut impl Write, numbers: &mut Numbers) -> std::io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let eight = numbers.next().to_le_bytes().map(|b| b'a' + b % 26);
        let count = left.min(8) as usize;
        out.write_all(&eight[..count])?;
        left -= count as u64;
    }
    Ok(())
}

/// A word of the vocabulary; small numbers are more frequent.
fn word(numbers: &mut Numbers) -> String {
    const VOCABULARY: u64 = 20_000;
    let most = numbers.below(VOCABULARY) + 1;
    let mut number = numbers.below(most);
    let mut text = String::new();
    loop {
        text.push(char::from(b'a' + (number % 26) as u8));
        number /= 26;
        if number == 0 {
            return text;
        }
    }
}

fn words(bytes: u64, out: &mut impl Write, numbers: &mut Numbers) -> std::io::Result<()> {
    let mut written = 0;
    while written < bytes {
        let mut line = String::new();
        for _ in 0..=numbers.below(8) {
            line += &word(numbers);
            line.push(' ');
        }
        line.pop();
        line.push('\n');
        let count = (line.len() as u64).min(bytes - written) as usize;
        out.write_all(&line.as_bytes()[..count])?;
        written += count as u64;
    }
    Ok(())
}

fn bitmap(bytes: u64, out: &mut impl Write, numbers: &mut Numbers) -> std::io::Result<()> {
    const HEADER: u32 = 54;
    const WIDTH: u32 = 4096;
    let height = (bytes / u64::from(WIDTH * 3)).max(1) as u32;
    let size = HEADER + WIDTH * height * 3;
    out.write_all(b"BM")?;
    for number in [
        size,
        0,
        HEADER,
        40,
        WIDTH,
        height,
        1 | 24 << 16,
        0,
        size - HEADER,
        2835,
        2835,
        0,
        0,
    ] {
        out.write_all(&number.to_le_bytes())?;
    }
    for _ in 0..u64::from(WIDTH * height) * 3 / 8 {
        out.write_all(&numbers.next().to_le_bytes())?;
    }
    Ok(())
}

fn options(bytes: u64, out: &mut impl Write, numbers: &mut Numbers) -> std::io::Result<()> {
    const LINE: u64 = 50;
    let count = (bytes / LINE).max(64);
    writeln!(out, "{count}")?;
    for number in 0..count {
        let price = |numbers: &mut Numbers| 40.0 + numbers.below(10_000) as f64 / 100.0;
        let (spot, strike) = (price(numbers), price(numbers));
        let kind = if number % 2 == 0 { 'C' } else { 'P' };
        writeln!(
            out,
            "{spot:.2} {strike:.2} 0.1000 0.00 0.20 0.50 {kind} 0.00 0.0"
        )?;
    }
    Ok(())
}

fn netlist(bytes: u64, out: &mut impl Write, numbers: &mut Numbers) -> std::io::Result<()> {
    const LINE: u64 = 30;
    let count = (bytes / LINE).max(64);
    let side = (count as f64).sqrt() as u64 + 2;
    writeln!(out, "{count} {side} {side}")?;
    for element in 0..count {
        write!(out, "e{element}\t1")?;
        for _ in 0..3 {
            write!(out, "\te{}", numbers.below(count))?;
        }
        writeln!(out, "\tEND")?;
    }
    Ok(())
}

fn pages(bytes: u64, path: &Path, numbers: &mut Numbers) -> std::io::Result<()> {
    const PAGE: u64 = 20_000;
    const LINKS: u64 = 1000;
    fs::create_dir_all(path)?;
    for page in 0..(bytes / PAGE).max(8) {
        let mut text = String::from("<html>\n");
        while (text.len() as u64) < PAGE {
            text += &word(numbers);
            let link = numbers.below(LINKS);
            text += &format!(" <a href=\"http://example.org/{link}.html\">");
            text += &word(numbers);
            text += "</a>\n";
        }
        text += "</html>\n";
        fs::write(path.join(format!("{page}.html")), text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_have_their_size_and_are_the_same_each_time() {
        let folder = tempfile::tempdir().expect("a folder");
        for kind in [Kind::Letters, Kind::Words] {
            let files = ["a", "b"].map(|name| folder.path().join(name));
            for file in &files {
                write(kind, 10_003, file).expect("written");
            }
            let [first, second] = files.map(|file| fs::read(file).expect("there"));
            assert_eq!(first.len(), 10_003, "{kind:?}");
            assert_eq!(first, second, "{kind:?}");
        }
    }

    #[test]
    fn a_bitmap_says_its_size_and_depth() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.bmp");
        write(Kind::Bitmap, 100_000, &file).expect("written");
        let bytes = fs::read(&file).expect("there");
        assert_eq!(bytes[..2], *b"BM");
        let size = u32::from_le_bytes(bytes[2..6].try_into().expect("four"));
        assert_eq!(size as usize, bytes.len());
        assert_eq!(bytes[28], 24, "bits of a pixel");
    }

    #[test]
    fn a_netlist_names_elements_that_exist() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a");
        write(Kind::Netlist, 3000, &file).expect("written");
        let text = fs::read_to_string(&file).expect("text");
        let count: usize = text
            .split(' ')
            .next()
            .and_then(|n| n.parse().ok())
            .expect("a number");
        assert_eq!(text.lines().count(), count + 1);
        for name in text.split_whitespace().filter_map(|w| w.strip_prefix('e')) {
            assert!(name.parse::<usize>().expect("a number") < count);
        }
    }
}
