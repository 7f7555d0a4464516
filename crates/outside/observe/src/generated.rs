//! The names of functions that a runtime made while its program ran, as it wrote them for `perf`:
//! `/tmp/perf-PID.map` (Node's `--perf-basic-prof`, the JVM's agents, Python's `-X perf`, .NET) and
//! jitdump, a file `jit-PID.dump` that the process maps executable as a sign. Called once names are
//! wanted. The files are the target's, so they are opened with its rights, must belong to it and be
//! younger than it, and are read up to a bound; what can't be read has no names.

use crate::foreign::ForeignFiles;
use linux_perf_data::jitdump::{JitDumpReader, JitDumpRecord, JitDumpRecordHeader};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use sunder_access::{Address, Mappings, ProcessId, Span};

/// The most bytes that are read of all files of a process.
const MOST_BYTES: u64 = 256 << 20;
/// The most lines and records that are read of them.
const MOST_FUNCTIONS: usize = 1 << 20;
/// The longest line or record.
const LONGEST: u64 = 4 << 20;
/// The most bytes of a name that are kept.
const LONGEST_NAME: usize = 512;

/// A function, and where its code is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedFunction {
    /// Its code.
    pub span: Span,
    /// Its name, as the runtime writes it.
    pub name: String,
}

/// The functions of `process` that its runtime told of, in the order in which it made them: where
/// two overlap, the later one took the place of the other.
pub fn generated_functions(
    files: &ForeignFiles,
    process: ProcessId,
    mappings: &Mappings,
) -> Vec<GeneratedFunction> {
    let map = format!("/tmp/perf-{}.map", process.0);
    let own = |file: &File| files.are_owned(file) && files.are_as_young(file);
    let mut found = Found::default();
    if let Some(file) = files.open(Path::new(&map)).ok().filter(own) {
        found.read_map(file);
    }
    // A dump may be mapped many times.
    let mut seen = HashSet::new();
    for mapping in mappings.iter().filter(|m| m.execute && is_dump(&m.path)) {
        let Some(file) = files.mapped(mapping).ok().filter(own) else {
            continue;
        };
        let identity = file.metadata().map(|m| (m.dev(), m.ino()));
        if identity.is_ok_and(|identity| seen.insert(identity)) {
            found.read_dump(file);
        }
    }
    found.functions
}

/// Whether `path` is that of a jitdump.
fn is_dump(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default();
    let number = file
        .strip_prefix("jit-")
        .and_then(|f| f.strip_suffix(".dump"));
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// What was read so far.
#[derive(Default)]
struct Found {
    functions: Vec<GeneratedFunction>,
    /// The latest function that begins at an address, by its index.
    latest: HashMap<u64, usize>,
    /// Bytes and entries that were read of all files.
    bytes: u64,
    entries: usize,
}

impl Found {
    /// Whether more may be read.
    const fn has_room(&self) -> bool {
        self.bytes < MOST_BYTES && self.entries < MOST_FUNCTIONS
    }

    fn add(&mut self, function: Option<GeneratedFunction>) {
        if let Some(function) = function {
            self.latest
                .insert(function.span.start.0, self.functions.len());
            self.functions.push(function);
        }
    }

    /// Reads lines of start, size (both hexadecimal) and name. Lines of any other form are left out.
    fn read_map(&mut self, file: impl Read) {
        let mut reader = BufReader::new(file.take(MOST_BYTES - self.bytes));
        let mut line = Vec::new();
        while self.has_room() {
            line.clear();
            match reader.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(read) => {
                    self.bytes += read as u64;
                    self.entries += 1;
                    self.add(entry(&String::from_utf8_lossy(&line)));
                }
            }
        }
    }

    /// Reads the functions of a jitdump; those behind a damaged record are left out.
    fn read_dump(&mut self, file: impl Read) {
        let left = MOST_BYTES.saturating_sub(self.bytes);
        let Ok(mut reader) = JitDumpReader::new(file.take(left)) else {
            return;
        };
        while self.has_room() {
            // The reader trusts the size of a record.
            match reader.next_record_header() {
                Ok(Some(header)) if is_sound(&header) => {
                    self.bytes += u64::from(header.total_size);
                }
                _ => break,
            }
            self.entries += 1;
            let Ok(Some(record)) = reader.next_record() else {
                break;
            };
            match record.parse() {
                Ok(JitDumpRecord::CodeLoad(load)) => {
                    let name = load.function_name.as_slice();
                    let name = String::from_utf8_lossy(&name).into_owned();
                    self.add(function(load.vma, load.code_bytes.len() as u64, &name));
                }
                Ok(JitDumpRecord::CodeMove(moved)) => {
                    let old = self.latest.get(&moved.old_code_addr);
                    let name = old.map(|&old| self.functions[old].name.clone());
                    let new =
                        name.and_then(|name| function(moved.new_code_addr, moved.code_size, &name));
                    self.add(new);
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
}

fn entry(line: &str) -> Option<GeneratedFunction> {
    let mut parts = line.trim_end().splitn(3, ' ');
    let mut number = || {
        let digits = parts.next()?;
        u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    function(start, size, parts.next()?)
}

fn is_sound(header: &JitDumpRecordHeader) -> bool {
    let size = u64::from(header.total_size);
    (JitDumpRecordHeader::SIZE as u64..=LONGEST).contains(&size)
}

fn function(start: u64, size: u64, name: &str) -> Option<GeneratedFunction> {
    let end = name
        .char_indices()
        .map(|(at, _)| at)
        .find(|&at| at >= LONGEST_NAME);
    let name = name[..end.unwrap_or(name.len())].trim();
    let sound = size > 0 && start.checked_add(size).is_some() && !name.is_empty();
    sound.then(|| GeneratedFunction {
        span: Span::new(Address(start), size),
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn perf_map(text: &[u8]) -> Vec<GeneratedFunction> {
        let mut found = Found::default();
        found.read_map(text);
        found.functions
    }

    fn jitdump(bytes: &[u8]) -> Vec<GeneratedFunction> {
        let mut found = Found::default();
        found.read_dump(bytes);
        found.functions
    }

    /// The body of a record of code that moved.
    fn moved(from: u64, to: u64, size: u64) -> Vec<u8> {
        let mut body = [7u32.to_le_bytes(), 8u32.to_le_bytes()].concat();
        for number in [to, from, to, size, 1] {
            body.extend(number.to_le_bytes());
        }
        body
    }

    #[test]
    fn code_that_moved_keeps_its_name() {
        let mut records = vec![
            (0, load(0x1000, 16, "first")),
            (0, load(0x1000, 16, "again")),
            (1, moved(0x1000, 0x9000, 16)),
        ];
        // Moves of code that nobody told of are no functions, and are looked for in no list.
        records.extend((0..5000).map(|n| (1, moved(0x7000_0000 + n, 0x10, 16))));
        let all = jitdump(&dump(&records));
        let last = (0x9000, 16, "again");
        assert_eq!(
            named(&all),
            [(0x1000, 16, "first"), (0x1000, 16, "again"), last]
        );
    }

    #[test]
    fn all_files_together_have_a_bound() {
        let mut found = Found {
            entries: MOST_FUNCTIONS - 1,
            ..Found::default()
        };
        found.read_map(&b"10 4 one\n20 4 two\n"[..]);
        assert_eq!(named(&found.functions), [(0x10, 4, "one")]);
        found.read_dump(dump(&[(0, load(0x1000, 16, "more"))]).as_slice());
        assert_eq!(found.functions.len(), 1);
    }

    fn named(all: &[GeneratedFunction]) -> Vec<(u64, u64, &str)> {
        let of = |f: &'_ GeneratedFunction| (f.span.start.0, f.span.len);
        all.iter()
            .map(|f| (of(f).0, of(f).1, f.name.as_str()))
            .collect()
    }

    #[test]
    fn a_map_has_a_function_a_line_and_damage_is_left_out() {
        let text = "7f00a0 40 LazyCompile:*add /app/sum.js:3\n\
                    zz 10 no start\n\
                    10 0 no size\n\
                    ffffffffffffffff 10 beyond all addresses\n\
                    0x7f00e0 0x8 py::work:/app/sum.py\n\
                    20 8";
        assert_eq!(
            named(&perf_map(text.as_bytes())),
            [
                (0x7f_00a0, 0x40, "LazyCompile:*add /app/sum.js:3"),
                (0x7f_00e0, 8, "py::work:/app/sum.py")
            ]
        );
    }

    /// A dump for x86-64 with the given records, each a kind and a body.
    fn dump(records: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = b"DTiJ".to_vec();
        // Version, size of the header, machine, padding, process, time and flags.
        for number in [1u32, 40, 62, 0, 7] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend([0; 16]);
        for (kind, body) in records {
            bytes.extend(kind.to_le_bytes());
            bytes.extend((body.len() as u32 + 16).to_le_bytes());
            bytes.extend(0u64.to_le_bytes());
            bytes.extend(body);
        }
        bytes
    }

    /// The body of a record of a function with `size` bytes of code at `start`.
    fn load(start: u64, size: u64, name: &str) -> Vec<u8> {
        let mut body = [7u32.to_le_bytes(), 8u32.to_le_bytes()].concat();
        for number in [start, start, size, 1] {
            body.extend(number.to_le_bytes());
        }
        body.extend(name.as_bytes());
        body.push(0);
        body.extend(vec![0x90; size as usize]);
        body
    }

    #[test]
    fn a_dump_is_read_until_it_is_damaged() {
        let whole = dump(&[
            (0, load(0x1000, 16, "first")),
            (0, load(0x2000, 8, "second")),
        ]);
        let both = [(0x1000, 16, "first"), (0x2000, 8, "second")];
        assert_eq!(named(&jitdump(&whole)), both);
        assert_eq!(named(&jitdump(&whole[..whole.len() - 1])), both[..1]);
        // A record that is shorter than its own head.
        let mut broken = whole.clone();
        broken[40 + 4..40 + 8].copy_from_slice(&3u32.to_le_bytes());
        assert_eq!(named(&jitdump(&broken)), []);
        assert_eq!(named(&jitdump(b"no dump")), []);
        assert_eq!(named(&jitdump(b"")), []);
    }

    #[test]
    fn a_dump_is_known_by_its_name() {
        assert!(is_dump("/home/user/.debug/jit/x/jit-12.dump"));
        for other in ["/tmp/jit-.dump", "/tmp/jit-a.dump", "/tmp/x-12.dump", ""] {
            assert!(!is_dump(other), "{other}");
        }
    }
}
