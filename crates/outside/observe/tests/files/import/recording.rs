//! Recordings written by hand, byte by byte after `perf_event.h` and
//! `perf.data-file-format.txt`.

use std::path::Path;
use sunder_access::{Access, Address, CodeAddress, Kind, ProcessId, Provenance, ThreadId, Time};
use sunder_observe::{Event, ImportError, Imported, import};

pub(super) const IP: u64 = 1 << 0;
pub(super) const TID: u64 = 1 << 1;
pub(super) const TIME: u64 = 1 << 2;
pub(super) const ADDR: u64 = 1 << 3;
pub(super) const PERIOD: u64 = 1 << 8;
pub(super) const REGS_USER: u64 = 1 << 12;
pub(super) const WEIGHT: u64 = 1 << 14;
pub(super) const DATA_SRC: u64 = 1 << 15;
pub(super) const IDENTIFIER: u64 = 1 << 16;
pub(super) const WEIGHT_STRUCT: u64 = 1 << 24;
pub(super) const SAMPLE_ID_ALL: u64 = 1 << 18;
/// The fields that `perf mem record` requests.
pub(super) const MEMORY: u64 = IP | TID | TIME | ADDR | PERIOD | WEIGHT | DATA_SRC;

pub(super) const MISC_USER: u16 = 2;
pub(super) const MISC_KERNEL: u16 = 1;
/// A name that comes from an `exec`.
pub(super) const MISC_COMM_EXEC: u16 = 1 << 13;

pub(super) const MMAP: u32 = 1;
pub(super) const LOST: u32 = 2;
pub(super) const COMM: u32 = 3;
pub(super) const EXIT: u32 = 4;
pub(super) const FORK: u32 = 7;
pub(super) const SAMPLE: u32 = 9;
pub(super) const MMAP2: u32 = 10;

pub(super) fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub(super) fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(misc.to_le_bytes());
    bytes.extend((body.len() as u16 + 8).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// `perf_event_attr`, version 5.
pub(super) fn attr(kind: u32, sample_type: u64, period: u64, registers: u64) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(112u32.to_le_bytes());
    bytes.extend(words(&[0, period, sample_type, 0, SAMPLE_ID_ALL]));
    bytes.extend(words(&[0, 0, 0, 0, registers, 0, 0, 0]));
    assert_eq!(bytes.len(), 112);
    bytes
}

/// A recording to be written.
#[derive(Clone, Default)]
pub(super) struct Recording {
    /// Attributes and the ids of their events.
    pub(super) events: Vec<(Vec<u8>, Vec<u64>)>,
    pub(super) records: Vec<u8>,
    pub(super) arch: Option<&'static str>,
}

impl Recording {
    pub(super) fn file(&self) -> Vec<u8> {
        let attrs_at = 104;
        let attrs_len: usize = self.events.iter().map(|(attr, _)| attr.len() + 16).sum();
        let mut ids_at = (attrs_at + attrs_len) as u64;
        let ids: Vec<u64> = self
            .events
            .iter()
            .flat_map(|(_, ids)| ids.clone())
            .collect();
        let data_at = ids_at + ids.len() as u64 * 8;

        let mut bytes = b"PERFILE2".to_vec();
        bytes.extend(words(&[104, 112 + 16, attrs_at as u64, attrs_len as u64]));
        bytes.extend(words(&[data_at, self.records.len() as u64, 0, 0]));
        let features = if self.arch.is_some() { 1 << 6 } else { 0 };
        bytes.extend(words(&[features, 0, 0, 0]));
        for (attr, ids) in &self.events {
            bytes.extend(attr);
            bytes.extend(words(&[ids_at, ids.len() as u64 * 8]));
            ids_at += ids.len() as u64 * 8;
        }
        bytes.extend(words(&ids));
        bytes.extend(&self.records);
        if let Some(arch) = self.arch {
            let section_at = bytes.len() as u64 + 16;
            bytes.extend(words(&[section_at, 4 + 64]));
            bytes.extend(arch_string(arch));
        }
        bytes
    }

    pub(super) fn pipe(&self) -> Vec<u8> {
        let mut bytes = b"PERFILE2".to_vec();
        bytes.extend(words(&[16]));
        for (attr, ids) in &self.events {
            let body = [attr.clone(), words(ids)].concat();
            bytes.extend(record(64, 0, &body));
        }
        if let Some(arch) = self.arch {
            let body = [words(&[6]), arch_string(arch)].concat();
            bytes.extend(record(80, 0, &body));
        }
        bytes.extend(&self.records);
        bytes
    }

    pub(super) fn add(&mut self, kind: u32, misc: u16, body: &[u8]) {
        self.records.extend(record(kind, misc, body));
    }
}

pub(super) fn arch_string(arch: &str) -> Vec<u8> {
    let mut bytes = 64u32.to_le_bytes().to_vec();
    bytes.extend(arch.as_bytes());
    bytes.resize(4 + 64, 0);
    bytes
}

pub(super) fn read(bytes: &[u8]) -> Result<(Imported, Vec<Event>), ImportError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    std::fs::write(&path, bytes).unwrap();
    read_file(&path)
}

pub(super) fn read_file(path: &Path) -> Result<(Imported, Vec<Event>), ImportError> {
    let mut events = Vec::new();
    let imported = import(path, |event| events.push(event))?;
    Ok((imported, events))
}

pub(super) const TASK: u64 = 7 | 8 << 32;
/// The trailer of a record of thread 8 of process 7.
pub(super) fn trailer(time: u64) -> Vec<u8> {
    words(&[TASK, time])
}

/// Load, L3 hit, snoop HITM, not locked: what `perf c2c` counts.
pub(super) const LOAD_HITM: u64 = 0x02 | (0x02 | 0x40) << 5 | 0x10 << 19 | 0x01 << 24;
/// Store, L1 hit, no snoop.
pub(super) const STORE: u64 = 0x04 | (0x02 | 0x08) << 5 | 0x01 << 19 | 0x01 << 24;
/// The same load in the encoding by number: level 3, any cache, snoop HITM.
pub(super) const LOAD_NUMBERED: u64 = 0x02 | 0x10 << 19 | 0x02 << 24 | 0x03 << 33;

pub(super) fn memory_recording() -> Recording {
    let mut recording = Recording {
        events: vec![(attr(4, MEMORY, 1000, 0), vec![])],
        arch: Some("x86_64"),
        ..Recording::default()
    };
    // Not in the order of time: the second comes from another CPU's buffer.
    recording.add(
        SAMPLE,
        MISC_USER,
        &words(&[0x40_1010, TASK, 300, 0x7f00_0008, 50, 12, STORE]),
    );
    recording.add(
        SAMPLE,
        MISC_USER,
        &words(&[0x40_1000, 7 | 9 << 32, 200, 0x7f00_0000, 70, 99, LOAD_HITM]),
    );
    recording.add(
        SAMPLE,
        MISC_KERNEL,
        &words(&[u64::MAX - 99, TASK, 250, 0x7f00_0000, 70, 99, LOAD_HITM]),
    );
    recording
}

pub(super) fn expected_accesses() -> Vec<Event> {
    let access = |time, thread, instruction, address, kind, weight| Access {
        time: Time(time),
        thread: ThreadId(thread),
        instruction: CodeAddress(instruction),
        address: Address(address),
        width: 1,
        kind,
        provenance: Provenance::Counted,
        weight,
    };
    vec![
        Event::Access {
            process: ProcessId(7),
            access: access(200, 9, 0x40_1000, 0x7f00_0000, Kind::Read, 70.0),
            hitm: true,
        },
        Event::Access {
            process: ProcessId(7),
            access: access(300, 8, 0x40_1010, 0x7f00_0008, Kind::Write, 50.0),
            hitm: false,
        },
    ]
}
