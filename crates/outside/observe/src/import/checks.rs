//! Checks a recording before it is read: sizes that contradict each other or the file are refused.
//! Format: `tools/perf/Documentation/perf.data-file-format.txt` of the kernel.

use super::attribute::EventAttr;
use super::bounds::Bounds;
use super::error::ImportError;
use super::source::{FILE_HEADER, Source};
use super::unpack::{COMPRESSED, COMPRESSED2, Unpacked};
use crate::perf_event::{Fields, kernel};
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Bytes of the header of a recording that was written to a pipe.
const PIPE_HEADER: usize = 16;
/// Bytes of a `perf_file_section`: offset and size.
const SECTION: u64 = 16;
/// Bytes of a record's header: type, misc, size.
const RECORD_HEADER: u64 = 8;
/// Bytes of the first version of an event's description; later ones are longer.
const LEAST_ATTR: u64 = kernel::PERF_ATTR_SIZE_VER0 as u64;
/// The feature that names the machine's architecture (`HEADER_ARCH`).
const FEATURE_ARCH: u64 = 6;

/// Records that perf itself writes: they are followed by more bytes than their size says, or
/// describe what is not needed here.
const HEADER_ATTR: u32 = 64;
const HEADER_TRACING_DATA: u32 = 66;
const AUXTRACE: u32 = 71;
const HEADER_FEATURE: u32 = 80;

/// Reads until `into` is full or the file ends.
fn read_up_to(file: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < into.len() {
        match file.read(&mut into[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// The number at `offset` of a header; the caller makes sure that it is within the header.
fn number(bytes: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(word)
}

/// A file that was checked: the bytes to read, the events that they describe, and the memory that
/// they take.
pub(super) type Checked = (Source, Vec<EventAttr>, Bounds);

/// Checks a file before it is read.
pub(super) struct Checker<'a> {
    pub path: &'a Path,
}

impl Checker<'_> {
    /// Opens the file and checks all of it.
    pub(super) fn open(&self) -> Result<Checked, ImportError> {
        let path = self.path;
        // To open a named pipe would wait for somebody who writes to it.
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path);
        let mut file = file.map_err(|error| self.unreadable(error))?;
        let metadata = file.metadata().map_err(|error| self.unreadable(error))?;
        if metadata.is_dir() {
            return Err(ImportError::Folder(path.into()));
        }
        if !metadata.is_file() {
            return Err(ImportError::NotAFile(path.into()));
        }
        let mut start = [0; PIPE_HEADER];
        let read = read_up_to(&mut file, &mut start).map_err(|error| self.unreadable(error))?;
        self.check_magic(&start[..read])?;
        let header_size = number(&start, 8);
        if header_size == PIPE_HEADER as u64 {
            self.check_pipe(file)
        } else {
            self.check_file(file, metadata.len())
        }
    }

    fn unreadable(&self, source: io::Error) -> ImportError {
        ImportError::Read {
            path: self.path.into(),
            source,
        }
    }

    pub(super) fn damaged(&self, what: impl Into<String>) -> ImportError {
        ImportError::Damaged {
            path: self.path.into(),
            what: what.into(),
        }
    }

    fn truncated(&self, needed: u64, there: u64) -> ImportError {
        ImportError::Truncated {
            path: self.path.into(),
            needed,
            there,
        }
    }

    pub(super) fn unreadable_by_reader(&self, error: linux_perf_data::Error) -> ImportError {
        self.damaged(error.to_string())
    }

    fn check_magic(&self, start: &[u8]) -> Result<(), ImportError> {
        let path = || self.path.to_path_buf();
        match start.get(..8) {
            Some(b"PERFILE2") if start.len() == PIPE_HEADER => Ok(()),
            Some(b"PERFILE2") => Err(self.truncated(PIPE_HEADER as u64, start.len() as u64)),
            Some(b"2ELIFREP") => Err(ImportError::Machine {
                path: path(),
                machine: "a big-endian machine".into(),
            }),
            Some(magic) if magic.starts_with(b"PERFILE") || magic == b"PERFFILE" => {
                Err(ImportError::Version {
                    path: path(),
                    magic: String::from_utf8_lossy(magic).into_owned(),
                })
            }
            _ => Err(ImportError::Foreign(path())),
        }
    }

    fn check_arch(&self, section: &[u8]) -> Result<(), ImportError> {
        let mut fields = Fields(section);
        let text = fields
            .u32()
            .and_then(|len| fields.bytes(len as usize))
            .ok_or_else(|| self.damaged("the name of the machine is cut off"))?;
        let end = text
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(text.len());
        match &text[..end] {
            b"x86_64" => Ok(()),
            other => Err(ImportError::Machine {
                path: self.path.into(),
                machine: String::from_utf8_lossy(other).into_owned(),
            }),
        }
    }

    /// A file in the usual layout.
    fn check_file(&self, file: File, length: u64) -> Result<Checked, ImportError> {
        let mut file = BufReader::new(file);
        let mut header = [0; FILE_HEADER];
        self.read_at(&mut file, 0, &mut header, length)?;
        if number(&header, 8) < FILE_HEADER as u64 {
            return Err(self.damaged("its header is shorter than any header"));
        }
        let attr_size = number(&header, 16);
        let attrs = Section::at(&header, 24);
        let data = Section::at(&header, 40);
        if data.size == 0 {
            return Err(ImportError::Unfinished(self.path.into()));
        }
        self.check_section(data, length)?;
        self.check_section(attrs, length)?;
        self.check_features(&mut file, &header, data, length)?;
        let attributes = self.check_attributes(&mut file, attrs, attr_size, length)?;
        let mut bounds = Bounds::new(length);
        self.check_records(&mut file, data, length, &mut bounds)?;

        // The reader gets a header without features, and with the attributes in the place of the
        // old event types. Only in this layout does it look outside of features for the numbers
        // that connect records to attributes.
        header[8..16].copy_from_slice(&(FILE_HEADER as u64).to_le_bytes());
        header[16..24].copy_from_slice(&(attr_size - SECTION).to_le_bytes());
        header.copy_within(24..40, 56);
        header[72..].fill(0);
        file.rewind().map_err(|error| self.unreadable(error))?;
        let source = Source::File {
            header,
            position: 0,
            file,
        };
        Ok((source, attributes, bounds))
    }

    fn read_at(
        &self,
        file: &mut BufReader<File>,
        offset: u64,
        into: &mut [u8],
        length: u64,
    ) -> Result<(), ImportError> {
        file.seek(SeekFrom::Start(offset))
            .and_then(|_| file.read_exact(into))
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    self.truncated(offset.saturating_add(into.len() as u64), length)
                }
                _ => self.unreadable(error),
            })
    }

    fn check_section(&self, section: Section, length: u64) -> Result<(), ImportError> {
        match section.offset.checked_add(section.size) {
            Some(end) if end <= length => Ok(()),
            Some(end) => Err(self.truncated(end, length)),
            None => Err(self.damaged("a section is larger than any file")),
        }
    }

    /// The sections of features follow the data, in the order of the bits.
    fn check_features(
        &self,
        file: &mut BufReader<File>,
        header: &[u8; FILE_HEADER],
        data: Section,
        length: u64,
    ) -> Result<(), ImportError> {
        let has = |bit: u64| number(header, 72 + bit as usize / 64 * 8) >> (bit % 64) & 1 == 1;
        let mut at = data.offset + data.size;
        for feature in (0..256).filter(|&bit| has(bit)) {
            let mut bytes = [0; SECTION as usize];
            self.read_at(file, at, &mut bytes, length)?;
            let section = Section::at(&bytes, 0);
            self.check_section(section, length)?;
            if feature == FEATURE_ARCH {
                /// `struct utsname` gives a machine's name 65 bytes.
                const LONGEST_NAME: u64 = 256;
                let mut name = vec![0; section.size.min(LONGEST_NAME) as usize];
                self.read_at(file, section.offset, &mut name, length)?;
                self.check_arch(&name)?;
            }
            at += SECTION;
        }
        Ok(())
    }

    fn check_attributes(
        &self,
        file: &mut BufReader<File>,
        attrs: Section,
        entry_size: u64,
        length: u64,
    ) -> Result<Vec<EventAttr>, ImportError> {
        /// Far above what any kernel has: today's is 136 bytes.
        const LARGEST_ENTRY: u64 = 4096;
        if !(LEAST_ATTR + SECTION..=LARGEST_ENTRY).contains(&entry_size)
            || !attrs.size.is_multiple_of(entry_size)
            || attrs.size == 0
        {
            return Err(self.damaged("its list of events makes no sense"));
        }
        let mut entry = vec![0; entry_size as usize];
        let mut attributes = Vec::new();
        for index in 0..attrs.size / entry_size {
            self.read_at(file, attrs.offset + index * entry_size, &mut entry, length)?;
            let (attr, ids) = entry.split_at((entry_size - SECTION) as usize);
            self.check_section(Section::at(ids, 0), length)?;
            attributes.push(self.check_attribute(attr)?);
        }
        Ok(attributes)
    }

    fn check_attribute(&self, bytes: &[u8]) -> Result<EventAttr, ImportError> {
        /// The sizes that the structure has had so far; later versions are larger. With any
        /// other size, the reader would take the bytes after it for something else, and
        /// allocate as much as it reads there.
        const SIZES: [u32; 8] = [
            kernel::PERF_ATTR_SIZE_VER0,
            kernel::PERF_ATTR_SIZE_VER1,
            kernel::PERF_ATTR_SIZE_VER2,
            kernel::PERF_ATTR_SIZE_VER3,
            kernel::PERF_ATTR_SIZE_VER4,
            kernel::PERF_ATTR_SIZE_VER5,
            kernel::PERF_ATTR_SIZE_VER6,
            kernel::PERF_ATTR_SIZE_VER7,
        ];
        let mut fields = Fields(bytes);
        let size = fields.u32().and_then(|_kind| fields.u32());
        if size.is_some_and(|size| !SIZES.contains(&size) && size <= SIZES[7]) {
            return Err(self.damaged("the description of an event has an impossible size"));
        }
        let parsed = EventAttr::parse(bytes);
        parsed.ok_or_else(|| self.damaged("the description of an event is cut off"))
    }

    fn check_records(
        &self,
        file: &mut BufReader<File>,
        data: Section,
        length: u64,
        bounds: &mut Bounds,
    ) -> Result<(), ImportError> {
        let end = data.offset + data.size;
        let mut unpacked = None;
        let mut at = data.offset;
        file.seek(SeekFrom::Start(at))
            .map_err(|error| self.unreadable(error))?;
        while at < end {
            let mut header = [0; 16];
            // As many bytes as any check below needs: the header and the first field.
            let ahead = (end - at).min(16) as usize;
            if ahead < RECORD_HEADER as usize {
                return Err(self.damaged("its last record is cut off"));
            }
            file.read_exact(&mut header[..ahead])
                .map_err(|_| self.truncated(end, length))?;
            let size = self.record_size(&header, end - at)?;
            let kind = number(&header, 0) as u32;
            if matches!(kind, COMPRESSED | COMPRESSED2) {
                let mut record = vec![0; size as usize];
                self.read_at(file, at, &mut record, length)?;
                let body = &record[RECORD_HEADER as usize..];
                self.check_compressed(&mut unpacked, (at, kind), body, bounds)?;
                at += size;
                continue;
            }
            let step = i64::try_from(size)
                .map_err(|_| self.damaged("a record is larger than any file"))?;
            file.seek_relative(step - ahead as i64)
                .map_err(|error| self.unreadable(error))?;
            at += size;
        }
        Ok(())
    }

    /// Counts what is in the compressed record at byte `at`.
    fn check_compressed(
        &self,
        unpacked: &mut Option<Unpacked>,
        (at, kind): (u64, u32),
        body: &[u8],
        bounds: &mut Bounds,
    ) -> Result<(), ImportError> {
        let unpacked = unpacked.get_or_insert_with(Unpacked::new);
        let checked = unpacked.check(kind, body, bounds);
        checked.map_err(|what| self.damaged(format!("at byte {at}, {what}")))
    }

    /// The size of a record with all bytes that belong to it. `header` are its first 16 bytes, or
    /// fewer and zeros; `left` is the number of bytes left in the data.
    fn record_size(&self, header: &[u8; 16], left: u64) -> Result<u64, ImportError> {
        let word = number(header, 0);
        let (kind, size) = (word as u32, word >> 48);
        let with_trace = match kind {
            AUXTRACE if size >= 16 => size.checked_add(number(header, 8)),
            AUXTRACE => None,
            _ => Some(size),
        };
        match with_trace {
            Some(total) if size >= RECORD_HEADER && total <= left => Ok(total),
            Some(_) if size < RECORD_HEADER => {
                Err(self.damaged("a record is shorter than its header"))
            }
            _ => Err(self.damaged("a record reaches beyond the end of the data")),
        }
    }

    /// A recording of `perf record -o -`: records throughout, with attributes among them.
    fn check_pipe(&self, mut file: File) -> Result<Checked, ImportError> {
        let mut bytes = Vec::new();
        file.rewind()
            .and_then(|()| file.read_to_end(&mut bytes))
            .map_err(|error| self.unreadable(error))?;
        let length = bytes.len() as u64;
        let mut attributes = Vec::new();
        let mut bounds = Bounds::new(length);
        let mut unpacked = None;
        let (mut first, mut rest) = (bytes[..PIPE_HEADER.min(bytes.len())].to_vec(), Vec::new());
        let mut at = PIPE_HEADER;
        while at < bytes.len() {
            let left = &bytes[at..];
            let mut header = [0; 16];
            let ahead = left.len().min(16);
            header[..ahead].copy_from_slice(&left[..ahead]);
            let kind = number(&header, 0) as u32;
            let mut size = self.record_size(&header, u64::MAX)?;
            if kind == HEADER_TRACING_DATA {
                // The text of trace points follows; the first field is its length.
                size += (number(&header, 8) & 0xffff_ffff).next_multiple_of(8);
            }
            if size > left.len() as u64 {
                return Err(self.truncated((at as u64).saturating_add(size), length));
            }
            let record = &left[..size as usize];
            let body = &record[RECORD_HEADER as usize..];
            match kind {
                HEADER_ATTR => {
                    attributes.push(self.check_attribute(body)?);
                    first.extend_from_slice(record);
                }
                HEADER_FEATURE => self.check_pipe_feature(body)?,
                HEADER_TRACING_DATA | AUXTRACE => {}
                COMPRESSED | COMPRESSED2 => {
                    self.check_compressed(&mut unpacked, (at as u64, kind), body, &mut bounds)?;
                    rest.extend_from_slice(record);
                }
                _ => rest.extend_from_slice(record),
            }
            at += size as usize;
        }
        if attributes.is_empty() {
            return Err(self.damaged("it describes no events"));
        }
        first.append(&mut rest);
        Ok((Source::Pipe(Cursor::new(first)), attributes, bounds))
    }

    fn check_pipe_feature(&self, body: &[u8]) -> Result<(), ImportError> {
        let mut fields = Fields(body);
        match fields.u64() {
            Some(FEATURE_ARCH) => self.check_arch(fields.0),
            _ => Ok(()),
        }
    }
}

/// A part of the file.
#[derive(Clone, Copy, Debug)]
struct Section {
    offset: u64,
    size: u64,
}

impl Section {
    fn at(bytes: &[u8], offset: usize) -> Self {
        Self {
            offset: number(bytes, offset),
            size: number(bytes, offset + 8),
        }
    }
}
