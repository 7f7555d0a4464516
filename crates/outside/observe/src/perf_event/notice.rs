//! Records other than samples: mappings, names, starts and ends of threads, losses. Makes
//! [`Event`]s of what `linux-perf-event-reader` reads.

use super::{Record, kernel};
use crate::Event;
use byteorder::LittleEndian;
use linux_perf_data::linux_perf_event_reader::{
    CommOrExecRecord, ForkOrExitRecord, LostRecord, Mmap2FileId, Mmap2Record, MmapRecord, RawData,
};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use sunder_access::{Address, Mapping, ProcessId, Span, ThreadId, Time};

/// The process of mappings that belong to the kernel.
const KERNEL_PROCESS: i32 = -1;

/// A record that is too short for its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

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

/// The event of a record whose trailer has the time `trailer`; `None` if it is not needed.
///
/// # Errors
/// If it is malformed.
pub(crate) fn event_of(
    record: &Record<'_>,
    trailer: Time,
    inodes: &mut Inodes,
) -> Result<Option<Event>, Malformed> {
    let mut data = RawData::from(record.body);
    let event = match record.kind {
        kernel::PERF_RECORD_MMAP => mapping(record, inodes).map(|map| map_event(map, trailer)),
        kernel::PERF_RECORD_MMAP2 => mapping2(record, inodes).map(|map| map_event(map, trailer)),
        kernel::PERF_RECORD_COMM => {
            CommOrExecRecord::parse::<LittleEndian>(data, record.misc).map(|comm| {
                Some(Event::ThreadName {
                    process: ProcessId(comm.pid as u32),
                    thread: ThreadId(comm.tid as u32),
                    time: trailer,
                    name: text(comm.name),
                    exec: comm.is_execve,
                })
            })
        }
        kernel::PERF_RECORD_FORK => ForkOrExitRecord::parse::<LittleEndian>(data).map(|task| {
            Some(Event::ThreadStart {
                process: ProcessId(task.pid as u32),
                parent: ProcessId(task.ppid as u32),
                thread: ThreadId(task.tid as u32),
                time: Time(task.timestamp),
            })
        }),
        kernel::PERF_RECORD_EXIT => ForkOrExitRecord::parse::<LittleEndian>(data).map(|task| {
            Some(Event::ThreadEnd {
                process: ProcessId(task.pid as u32),
                thread: ThreadId(task.tid as u32),
                time: Time(task.timestamp),
            })
        }),
        kernel::PERF_RECORD_LOST => {
            LostRecord::parse::<LittleEndian>(data).map(|lost| Some(Event::Lost(lost.count)))
        }
        kernel::PERF_RECORD_LOST_SAMPLES => data
            .read_u64::<LittleEndian>()
            .map(|lost| Some(Event::Lost(lost))),
        // Throttling, and records that newer kernels add.
        _ => return Ok(None),
    };
    event.map_err(|_| Malformed)
}

fn mapping(record: &Record<'_>, inodes: &mut Inodes) -> io::Result<(i32, Mapping)> {
    let map = MmapRecord::parse::<LittleEndian>(record.body.into(), record.misc)?;
    let path = path_of(map.path);
    // These records do not have the protection, only whether the mapping is data or code.
    let mapping = Mapping {
        span: Span::new(Address(map.address), map.length),
        file_offset: map.page_offset,
        inode: inodes.of(&path),
        path,
        read: true,
        write: !map.is_executable,
        execute: map.is_executable,
        shared: false,
    };
    Ok((map.pid, mapping))
}

fn mapping2(record: &Record<'_>, inodes: &mut Inodes) -> io::Result<(i32, Mapping)> {
    /// In place of device and inode there may be a build id. It is not needed, and the reader
    /// panics if its length is wrong, so it is read as if it were a device and an inode.
    const BUILD_ID: u16 = kernel::PERF_RECORD_MISC_MMAP_BUILD_ID as u16;
    let misc = record.misc & !BUILD_ID;
    let map = Mmap2Record::parse::<LittleEndian>(record.body.into(), misc)?;
    let path = path_of(map.path);
    let inode = match map.file_id {
        Mmap2FileId::InodeAndVersion(file) if misc == record.misc => file.inode,
        _ => inodes.of(&path),
    };
    let (protection, flags) = (map.protection as i32, map.flags as i32);
    let mapping = Mapping {
        span: Span::new(Address(map.address), map.length),
        file_offset: map.page_offset,
        path,
        inode,
        read: protection & libc::PROT_READ != 0,
        write: protection & libc::PROT_WRITE != 0,
        execute: protection & libc::PROT_EXEC != 0,
        shared: flags & libc::MAP_SHARED != 0,
    };
    Ok((map.pid, mapping))
}

/// `None` for the kernel's mappings, and for addresses that no user process can have.
fn map_event((process, mapping): (i32, Mapping), time: Time) -> Option<Event> {
    let end = mapping.span.start.0.checked_add(mapping.span.len);
    let user = process != KERNEL_PROCESS && end.is_some_and(|end| end >> 63 == 0);
    let plausible = mapping.file_offset.checked_add(mapping.span.len).is_some();
    (user && plausible).then_some(Event::Map {
        process: ProcessId(process as u32),
        time,
        mapping,
    })
}

fn path_of(path: RawData<'_>) -> String {
    match text(path) {
        anonymous if anonymous == "//anon" => String::new(),
        path => path,
    }
}

/// The bytes as text; others than UTF-8 are replaced.
fn text(bytes: RawData<'_>) -> String {
    String::from_utf8_lossy(&bytes.as_slice()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library that reads mappings asserts that a build id has at most 20 bytes.
    #[test]
    fn build_id_of_an_impossible_length_is_not_read() {
        let mut body = vec![0; 8];
        body.extend(0x40_0000_u64.to_le_bytes());
        body.extend(0x1000_u64.to_le_bytes());
        body.extend([0; 8]);
        body.extend([0xff; 24]);
        body.extend([5, 0, 0, 0, 2, 0, 0, 0]);
        body.extend(b"//anon\0\0");
        let record = Record {
            kind: kernel::PERF_RECORD_MMAP2,
            misc: kernel::PERF_RECORD_MISC_MMAP_BUILD_ID as u16,
            body: &body,
        };
        let event = event_of(&record, Time(7), &mut Inodes::default());
        let Ok(Some(Event::Map { mapping, .. })) = event else {
            panic!("{event:?}");
        };
        assert_eq!((mapping.inode, mapping.path.as_str()), (0, ""));
        assert!(mapping.read && mapping.execute && !mapping.write);
    }
}
