//! The records of a recording, or of the PMU sampler, other than samples: mappings, names, starts
//! and ends of threads, losses. Translates bytes into [`Event`]s; leaves out a record that is too
//! short for its kind.

use super::container::Record;
use crate::Event;
use crate::pmu::record::Fields;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use sunder_access::{Address, Mapping, ProcessId, Span, ThreadId, Time};

const MMAP: u32 = 1;
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
pub(crate) const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const LOST_SAMPLES: u32 = 13;

const MISC_CPUMODE: u16 = 7;
const MISC_USER: u16 = 2;
const MISC_MMAP_DATA: u16 = 1 << 13;
const MISC_COMM_EXEC: u16 = 1 << 13;
const MISC_MMAP_BUILD_ID: u16 = 1 << 14;
/// The process of mappings that belong to the kernel.
const KERNEL_PROCESS: u32 = u32::MAX;

/// Whether a record is about user mode.
pub(crate) const fn is_user(misc: u16) -> bool {
    misc & MISC_CPUMODE == MISC_USER
}

/// Inode numbers by path, for mappings that were recorded without one.
#[derive(Debug, Default)]
pub(crate) struct Inodes(HashMap<String, u64>);

impl Inodes {
    /// The inode number of the file that has `path` today; 0 if there is none. Later stages look
    /// for a mapping's file only if its inode number is not 0.
    fn of(&mut self, path: &str) -> u64 {
        if !path.starts_with('/') {
            return 0;
        }
        if let Some(&inode) = self.0.get(path) {
            return inode;
        }
        let inode = fs::metadata(path).map_or(0, |file| file.ino());
        self.0.insert(path.into(), inode);
        inode
    }
}

/// The event of a record; `None` if it is not needed or malformed.
pub(crate) fn event_of(record: &Record, inodes: &mut Inodes) -> Option<Event> {
    let fields = Fields(&record.body);
    let time = Time(record.time);
    match record.kind {
        MMAP => mapping(record, fields, inodes),
        MMAP2 => mapping2(record, fields, inodes),
        COMM => thread_name(record, fields),
        FORK => task(fields, true),
        EXIT => task(fields, false),
        LOST => lost(fields, 8),
        LOST_SAMPLES => lost(fields, 0),
        _ => None,
    }
    .map(|event| with_time(event, time))
}

/// Sets the time of an event. A record with a time of its own keeps it; others get that of their
/// trailer.
fn with_time(mut event: Event, trailer: Time) -> Event {
    match &mut event {
        Event::Map { time, .. } | Event::ThreadName { time, .. } => *time = trailer,
        _ => {}
    }
    event
}

fn lost(mut fields: Fields<'_>, skip: usize) -> Option<Event> {
    fields.bytes(skip)?;
    Some(Event::Lost(fields.u64()?))
}

fn task(mut fields: Fields<'_>, start: bool) -> Option<Event> {
    let process = ProcessId(fields.u32()?);
    let parent = ProcessId(fields.u32()?);
    let thread = ThreadId(fields.u32()?);
    let _creator = fields.u32()?;
    let time = Time(fields.u64()?);
    Some(if start {
        Event::ThreadStart {
            process,
            parent,
            thread,
            time,
        }
    } else {
        Event::ThreadEnd {
            process,
            thread,
            time,
        }
    })
}

fn thread_name(record: &Record, mut fields: Fields<'_>) -> Option<Event> {
    Some(Event::ThreadName {
        process: ProcessId(fields.u32()?),
        thread: ThreadId(fields.u32()?),
        time: Time(0),
        name: text(fields.0),
        exec: record.misc & MISC_COMM_EXEC != 0,
    })
}

fn mapping(record: &Record, mut fields: Fields<'_>, inodes: &mut Inodes) -> Option<Event> {
    let process = fields.u32()?;
    let _thread = fields.u32()?;
    let (start, len, file_offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let path = path_of(fields.0);
    // These records do not have the protection, only whether the mapping is data or code.
    let code = record.misc & MISC_MMAP_DATA == 0;
    let inode = inodes.of(&path);
    map_event(
        process,
        Mapping {
            span: Span::new(Address(start), len),
            file_offset,
            path,
            inode,
            read: true,
            write: !code,
            execute: code,
            shared: false,
        },
    )
}

fn mapping2(record: &Record, mut fields: Fields<'_>, inodes: &mut Inodes) -> Option<Event> {
    let process = fields.u32()?;
    let _thread = fields.u32()?;
    let (start, len, file_offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
    // Device (8 bytes), inode, generation; or, in the same place, a build id.
    let mut identity = Fields(fields.bytes(24)?);
    let _device = identity.u64()?;
    let recorded = (record.misc & MISC_MMAP_BUILD_ID == 0)
        .then(|| identity.u64())
        .flatten();
    let (protection, flags) = (fields.u32()? as i32, fields.u32()? as i32);
    let path = path_of(fields.0);
    let inode = recorded.unwrap_or_else(|| inodes.of(&path));
    map_event(
        process,
        Mapping {
            span: Span::new(Address(start), len),
            file_offset,
            path,
            inode,
            read: protection & libc::PROT_READ != 0,
            write: protection & libc::PROT_WRITE != 0,
            execute: protection & libc::PROT_EXEC != 0,
            shared: flags & libc::MAP_SHARED != 0,
        },
    )
}

fn map_event(process: u32, mapping: Mapping) -> Option<Event> {
    let end = mapping.span.start.0.checked_add(mapping.span.len);
    // Leaves out the kernel's mappings, and addresses that no user process can have.
    let user = process != KERNEL_PROCESS && end.is_some_and(|end| end >> 63 == 0);
    let plausible = mapping.file_offset.checked_add(mapping.span.len).is_some();
    (user && plausible).then_some(Event::Map {
        process: ProcessId(process),
        time: Time(0),
        mapping,
    })
}

fn path_of(bytes: &[u8]) -> String {
    match text(bytes) {
        anonymous if anonymous == "//anon" => String::new(),
        path => path,
    }
}

/// Text up to the first zero byte or the end.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}
