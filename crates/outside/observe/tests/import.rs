//! Recordings written by hand, byte by byte after `perf_event.h` and
//! `perf.data-file-format.txt`, and one made by `perf` itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_access::{Access, Address, CodeAddress, Kind, ProcessId, Provenance, ThreadId, Time};
use sunder_observe::{Event, ImportError, Imported, import};

const IP: u64 = 1 << 0;
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const ADDR: u64 = 1 << 3;
const PERIOD: u64 = 1 << 8;
const REGS_USER: u64 = 1 << 12;
const WEIGHT: u64 = 1 << 14;
const DATA_SRC: u64 = 1 << 15;
const IDENTIFIER: u64 = 1 << 16;
const WEIGHT_STRUCT: u64 = 1 << 24;
const SAMPLE_ID_ALL: u64 = 1 << 18;
/// The fields that `perf mem record` requests.
const MEMORY: u64 = IP | TID | TIME | ADDR | PERIOD | WEIGHT | DATA_SRC;

const MISC_USER: u16 = 2;
const MISC_KERNEL: u16 = 1;

const MMAP: u32 = 1;
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(misc.to_le_bytes());
    bytes.extend((body.len() as u16 + 8).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// `perf_event_attr`, version 5.
fn attr(kind: u32, sample_type: u64, period: u64, registers: u64) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(112u32.to_le_bytes());
    bytes.extend(words(&[0, period, sample_type, 0, SAMPLE_ID_ALL]));
    bytes.extend(words(&[0, 0, 0, 0, registers, 0, 0, 0]));
    assert_eq!(bytes.len(), 112);
    bytes
}

/// A recording to be written.
#[derive(Clone, Default)]
struct Recording {
    /// Attributes and the ids of their events.
    events: Vec<(Vec<u8>, Vec<u64>)>,
    records: Vec<u8>,
    arch: Option<&'static str>,
}

impl Recording {
    fn file(&self) -> Vec<u8> {
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

    fn pipe(&self) -> Vec<u8> {
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

    fn add(&mut self, kind: u32, misc: u16, body: &[u8]) {
        self.records.extend(record(kind, misc, body));
    }
}

fn arch_string(arch: &str) -> Vec<u8> {
    let mut bytes = 64u32.to_le_bytes().to_vec();
    bytes.extend(arch.as_bytes());
    bytes.resize(4 + 64, 0);
    bytes
}

fn read(bytes: &[u8]) -> Result<(Imported, Vec<Event>), ImportError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    std::fs::write(&path, bytes).unwrap();
    read_file(&path)
}

fn read_file(path: &Path) -> Result<(Imported, Vec<Event>), ImportError> {
    let mut events = Vec::new();
    let imported = import(path, |event| events.push(event))?;
    Ok((imported, events))
}

const TASK: u64 = 7 | 8 << 32;
/// The trailer of a record of thread 8 of process 7.
fn trailer(time: u64) -> Vec<u8> {
    words(&[TASK, time])
}

/// Load, L3 hit, snoop HITM, not locked: what `perf c2c` counts.
const LOAD_HITM: u64 = 0x02 | (0x02 | 0x40) << 5 | 0x10 << 19 | 0x01 << 24;
/// Store, L1 hit, no snoop.
const STORE: u64 = 0x04 | (0x02 | 0x08) << 5 | 0x01 << 19 | 0x01 << 24;
/// The same load in the encoding by number: level 3, any cache, snoop HITM.
const LOAD_NUMBERED: u64 = 0x02 | 0x10 << 19 | 0x02 << 24 | 0x03 << 33;

fn memory_recording() -> Recording {
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

fn expected_accesses() -> Vec<Event> {
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

#[test]
fn memory_events_become_accesses_by_time() {
    for bytes in [memory_recording().file(), memory_recording().pipe()] {
        let (imported, events) = read(&bytes).unwrap();
        assert_eq!(events, expected_accesses());
        assert_eq!((imported.accesses, imported.skipped), (2, 1));
        assert_eq!(imported.duration_ns, 100);
        assert_eq!(imported.processes[&ProcessId(7)], 2);
    }
}

#[test]
fn divided_weights_and_numbered_levels_are_understood() {
    let sample_type = MEMORY & !WEIGHT | WEIGHT_STRUCT;
    let mut recording = Recording {
        events: vec![(attr(4, sample_type, 1000, 0), vec![])],
        ..Recording::default()
    };
    let weight = 0x0003_0002_0000_0063;
    recording.add(
        SAMPLE,
        MISC_USER,
        &words(&[0x40_1000, TASK, 200, 0x7f00_0000, 70, weight, LOAD_NUMBERED]),
    );
    let (_, events) = read(&recording.file()).unwrap();
    let [Event::Access { access, hitm, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    // The lock bits are set, so the load is half of an atomic update.
    assert_eq!((access.kind, *hitm), (Kind::Atomic, true));
}

#[test]
fn samples_of_another_event_with_the_fields_of_a_memory_event() {
    // `perf record -d` and call graphs by DWARF request addresses, which a clock does not have; its
    // data source is "not available" throughout.
    const NOTHING: u64 = 0x01 | 0x01 << 5 | 0x01 << 19 | 0x01 << 24 | 0x01 << 26;
    let fields = IP | TID | TIME | ADDR | DATA_SRC;
    let mut recording = Recording {
        events: vec![(attr(1, fields | REGS_USER, 250_000, 0xff01ff), vec![])],
        ..Recording::default()
    };
    let mut body = vec![0x40_1000, TASK, 15, 0, 2];
    body.extend(100..117);
    body.push(NOTHING);
    recording.add(SAMPLE, MISC_USER, &words(&body));
    let (imported, events) = read(&recording.file()).unwrap();
    assert_eq!((imported.samples, imported.accesses), (1, 0));
    assert!(matches!(events[..], [Event::Sample(_)]));

    recording = Recording {
        events: vec![(attr(1, fields, 250_000, 0), vec![])],
        ..Recording::default()
    };
    let body = words(&[0x40_1000, TASK, 15, 0, NOTHING]);
    recording.add(SAMPLE, MISC_USER, &body);
    let error = read(&recording.file()).unwrap_err();
    assert!(error.to_string().contains("no memory event"), "{error}");
}

#[test]
fn the_retired_load_that_means_hitm_is_known_by_its_number() {
    let mut event = attr(4, MEMORY, 1000, 0);
    event[8..16].copy_from_slice(&0x04d2u64.to_le_bytes());
    let mut recording = Recording {
        events: vec![(event, vec![])],
        ..Recording::default()
    };
    // A load with an unknown snoop.
    let load = 0x02 | 0x01 << 19;
    let body = words(&[0x40_1000, TASK, 200, 0x7f00_0000, 70, 99, load]);
    recording.add(SAMPLE, MISC_USER, &body);
    let (_, events) = read(&recording.file()).unwrap();
    assert!(matches!(events[..], [Event::Access { hitm: true, .. }]));
}

#[test]
fn samples_find_their_event_by_its_id() {
    // Two events, as `perf mem record` has for loads and stores, and a dummy
    // without registers or addresses in between.
    let base = IDENTIFIER | IP | TID | TIME;
    let mut recording = Recording {
        events: vec![
            (attr(4, base | ADDR | DATA_SRC, 1000, 0), vec![100, 101]),
            (attr(1, base, 1, 0), vec![200]),
            (attr(4, base | ADDR | DATA_SRC | PERIOD, 500, 0), vec![300]),
        ],
        ..Recording::default()
    };
    let ip = 0x40_1000;
    recording.add(
        SAMPLE,
        MISC_USER,
        &words(&[101, ip, TASK, 10, 0x8000, STORE]),
    );
    recording.add(SAMPLE, MISC_USER, &words(&[200, ip, TASK, 20]));
    recording.add(
        SAMPLE,
        MISC_USER,
        &words(&[300, ip, TASK, 30, 0x8008, 5, STORE]),
    );
    for bytes in [recording.file(), recording.pipe()] {
        let (imported, events) = read(&bytes).unwrap();
        assert_eq!((imported.accesses, imported.unusable), (2, 1));
        let seen: Vec<_> = events
            .iter()
            .map(|event| match event {
                Event::Access { access, .. } => (access.address.0, access.weight),
                other => panic!("{other:?}"),
            })
            .collect();
        // The first event's samples have no period of their own.
        assert_eq!(seen, [(0x8000, 1000.0), (0x8008, 5.0)]);
    }
}

#[test]
fn mappings_names_threads_and_losses_are_told() {
    let sample_type = IP | TID | TIME | REGS_USER;
    let registers = 0xff01ff;
    let mut recording = Recording {
        events: vec![(attr(1, sample_type, 250_000, registers), vec![])],
        ..Recording::default()
    };
    // pid, tid, addr, len, pgoff, device, inode, generation, prot, flags, name
    let mut mapping = words(&[TASK, 0x40_0000, 0x2000, 0x1000, 0, 99, 0]);
    mapping.extend(words(&[5 | 2 << 32]));
    mapping.extend(b"/bin/made-up\0\0\0\0");
    mapping.extend(trailer(10));
    recording.add(MMAP2, MISC_USER, &mapping);
    // With a build ID in the place of the inode; no file has this path.
    let mut mapping = words(&[TASK, 0x50_0000, 0x2000, 0, 20, 1, 2]);
    mapping.extend(words(&[5 | 2 << 32]));
    mapping.extend(b"/made/up\0\0\0\0\0\0\0\0");
    mapping.extend(trailer(11));
    recording.add(MMAP2, MISC_USER | 1 << 14, &mapping);
    // The kernel, as perf synthesizes it.
    let mut kernel = words(&[u64::from(u32::MAX), u64::MAX - 0xffff, 0x1000, 0]);
    kernel.extend(b"[kernel]\0\0\0\0\0\0\0\0");
    kernel.extend(trailer(0));
    recording.add(MMAP, MISC_KERNEL, &kernel);
    let mut name = words(&[TASK]);
    name.extend(b"worker\0\0");
    name.extend(trailer(12));
    recording.add(COMM, 1 << 13, &name);
    // pid, ppid, tid, ptid, time
    let fork = [words(&[7 | 6 << 32, 9 | 8 << 32, 13]), trailer(13)].concat();
    recording.add(FORK, 0, &fork);
    recording.add(LOST, 0, &[words(&[1, 5]), trailer(14)].concat());
    let mut sample = vec![0x40_1000, TASK, 15, 2];
    sample.extend(100..117);
    recording.add(SAMPLE, MISC_USER, &words(&sample));
    let exit = [words(&[7 | 6 << 32, 9 | 8 << 32, 16]), trailer(16)].concat();
    recording.add(EXIT, 0, &exit);

    let (imported, events) = read(&recording.file()).unwrap();
    assert_eq!((imported.samples, imported.lost), (1, 5));
    assert_eq!(events.len(), 7, "{events:#?}");
    let Event::Map { mapping, time, .. } = &events[0] else {
        panic!("{events:?}");
    };
    assert_eq!(
        (mapping.path.as_str(), mapping.inode, time.0),
        ("/bin/made-up", 99, 10)
    );
    assert_eq!(
        (mapping.span.start.0, mapping.file_offset),
        (0x40_0000, 0x1000)
    );
    assert!(mapping.read && mapping.execute && !mapping.write && !mapping.shared);
    let Event::Map { mapping, .. } = &events[1] else {
        panic!("{events:?}");
    };
    assert_eq!((mapping.path.as_str(), mapping.inode), ("/made/up", 0));
    assert_eq!(
        events[2],
        Event::ThreadName {
            process: ProcessId(7),
            thread: ThreadId(8),
            time: Time(12),
            name: "worker".into(),
            exec: true,
        }
    );
    assert_eq!(
        events[3],
        Event::ThreadStart {
            process: ProcessId(7),
            parent: ProcessId(6),
            thread: ThreadId(9),
            time: Time(13),
        }
    );
    assert_eq!(events[4], Event::Lost(5));
    let Event::Sample(sample) = events[5] else {
        panic!("{events:?}");
    };
    // Numbered AX BX CX DX SI DI BP SP IP from 100 on.
    assert_eq!(sample.registers.general[..3], [100, 102, 103]);
    assert_eq!(sample.registers.ip, CodeAddress(108));
    assert_eq!((sample.period_ns, sample.thread), (250_000, ThreadId(8)));
    assert!(matches!(
        events[6],
        Event::ThreadEnd {
            thread: ThreadId(9),
            ..
        }
    ));
}

#[test]
fn a_recording_without_the_needed_fields_names_the_command() {
    for (sample_type, registers, missing) in [
        (IP | TID | TIME, 0, "user registers"),
        (IP | TID | TIME | REGS_USER, 0x1, "complete set"),
        (IP | TID | TIME | ADDR, 0, "data source"),
        (IP | TID | REGS_USER, 0xff01ff, "times"),
    ] {
        let mut recording = Recording {
            events: vec![(attr(1, sample_type, 1, registers), vec![])],
            ..Recording::default()
        };
        recording.add(SAMPLE, MISC_USER, &words(&[0x40_1000, TASK, 1, 1, 1]));
        let error = read(&recording.file()).unwrap_err();
        assert!(
            matches!(error, ImportError::MissingFields { .. }),
            "{error}"
        );
        let text = error.to_string();
        assert!(
            text.contains(missing) && text.contains("--user-regs="),
            "{text}"
        );
    }
}

#[test]
fn each_kind_of_wrong_file_has_its_own_error() {
    let good = memory_recording().file();
    let with = |at: usize, value: u64| {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        read(&bytes).unwrap_err()
    };
    assert!(matches!(read(b"").unwrap_err(), ImportError::Foreign(_)));
    assert!(matches!(
        read(b"\x7fELF\x02\x01\x01\0 and so on").unwrap_err(),
        ImportError::Foreign(_)
    ));
    assert!(matches!(
        read(b"PERFILE2").unwrap_err(),
        ImportError::Truncated { .. }
    ));
    let newer = with(0, u64::from_le_bytes(*b"PERFILE3"));
    assert!(matches!(&newer, ImportError::Version { magic, .. } if magic == "PERFILE3"));
    let oldest = with(0, u64::from_le_bytes(*b"PERFFILE"));
    assert!(matches!(oldest, ImportError::Version { .. }));
    let swapped = with(0, u64::from_le_bytes(*b"2ELIFREP"));
    assert!(matches!(swapped, ImportError::Machine { .. }));
    // The size of the data is written when perf ends.
    assert!(matches!(with(48, 0), ImportError::Unfinished(_)));
    assert!(matches!(with(48, 1 << 40), ImportError::Truncated { .. }));
    assert!(matches!(with(48, u64::MAX), ImportError::Damaged { .. }));
    // Attributes of size zero, and larger than any kernel's.
    assert!(matches!(with(16, 0), ImportError::Damaged { .. }));
    assert!(matches!(with(16, u64::MAX), ImportError::Damaged { .. }));

    let mut arm = memory_recording();
    arm.arch = Some("aarch64");
    for bytes in [arm.file(), arm.pipe()] {
        let error = read(&bytes).unwrap_err();
        assert!(matches!(&error, ImportError::Machine { machine, .. } if machine == "aarch64"));
    }
    let mut silent = memory_recording();
    silent.records = record(LOST, 0, &[words(&[1, 5]), trailer(14)].concat());
    assert!(matches!(
        read(&silent.file()).unwrap_err(),
        ImportError::NoSamples(_)
    ));

    let missing = read_file(Path::new("/nonexistent/perf.data")).unwrap_err();
    assert!(matches!(missing, ImportError::Read { .. }));
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(
        read_file(folder.path()).unwrap_err(),
        ImportError::Folder(_)
    ));
}

#[test]
fn every_truncation_is_an_error_and_never_half_a_result() {
    let recording = memory_recording();
    for bytes in [recording.file(), recording.pipe()] {
        for length in 0..bytes.len() {
            let outcome = read(&bytes[..length]);
            // A recording that was written to a pipe may be cut between two records; it is
            // then whole and shorter.
            match outcome {
                Err(_) => {}
                Ok((imported, _)) => {
                    assert!(
                        bytes == recording.pipe() && imported.accesses > 0,
                        "{length}"
                    );
                }
            }
        }
    }
}

#[test]
fn no_allocation_follows_from_a_size_in_the_file() {
    // The list of event descriptions (feature 12) claims four thousand million
    // events; the reader would reserve room for all of them.
    let mut bytes = memory_recording().file();
    let features = 1u64 << 6 | 1 << 12;
    bytes[72..80].copy_from_slice(&features.to_le_bytes());
    let arch_section = bytes.len() - 68 - 16;
    let mut tail = bytes.split_off(arch_section);
    let string = tail.split_off(16);
    let string_at = bytes.len() as u64 + 32;
    bytes.extend(words(&[string_at, 68, string_at + 68, 8]));
    bytes.extend(string);
    bytes.extend([0xff; 8]);
    let (imported, _) = read(&bytes).unwrap();
    assert_eq!(imported.accesses, 2);
}

mod damage {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn flipped_bytes_never_panic(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            pipe in any::<bool>(),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let recording = memory_recording();
            let mut bytes = if pipe { recording.pipe() } else { recording.file() };
            for (at, value) in &flips {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            // Any result is right; the reader must not panic.
            let _ = read(&bytes);
        }
    }
}

/// A recording made by `perf` itself, if it is installed and allowed.
fn record_live(folder: &Path, options: &[&str], to_pipe: bool) -> Option<PathBuf> {
    let (source, program) = (folder.join("spin.c"), folder.join("spin"));
    let code = "int main(void) { volatile long x[4]; \
                for (long i = 0; i < 50000000; i++) x[i & 3] += i; return 0; }";
    std::fs::write(&source, code).unwrap();
    let built = Command::new("gcc")
        .args(["-O1", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.expect("gcc is part of the set-up").success());
    let path = folder.join(if to_pipe { "piped.data" } else { "perf.data" });
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock:u", "-F", "1000"])
        .args(options)
        .arg("-o");
    if to_pipe {
        perf.arg("-").stdout(std::fs::File::create(&path).unwrap());
    } else {
        perf.arg(&path);
    }
    match perf.arg("--").arg(&program).output() {
        Ok(output) if output.status.success() => Some(path),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            println!("SKIP: perf record refused: {}", why.trim());
            None
        }
        Err(error) => {
            println!("SKIP: perf cannot be run: {error}");
            None
        }
    }
}

const ALL_REGISTERS: &str = "--user-regs=ax,bx,cx,dx,si,di,bp,sp,ip,r8,r9,r10,r11,r12,r13,r14,r15";

#[test]
fn a_recording_by_perf_is_read_in_every_layout() {
    let folder = tempfile::tempdir().unwrap();
    for (options, to_pipe) in [
        (&[ALL_REGISTERS][..], false),
        (&[ALL_REGISTERS], true),
        // Compressed, with two events, with stacks.
        (&[ALL_REGISTERS, "-z"], false),
        (&[ALL_REGISTERS, "-e", "page-faults:u"], false),
        (&[ALL_REGISTERS, "--call-graph", "dwarf,512"], false),
    ] {
        let Some(path) = record_live(folder.path(), options, to_pipe) else {
            return;
        };
        let (imported, events) =
            read_file(&path).unwrap_or_else(|error| panic!("{options:?} {to_pipe}: {error}"));
        assert!(
            imported.samples > 0 && imported.unusable == 0,
            "{imported:?}"
        );
        let program = folder.path().join("spin");
        let code = events.iter().find_map(|event| match event {
            // With addresses requested, mappings of data are recorded, too.
            Event::Map { mapping, .. } if mapping.execute => {
                (Path::new(&mapping.path) == program).then_some(mapping)
            }
            _ => None,
        });
        let code = code.expect("the program's code is mapped");
        assert!(code.is_file());
        // The program does nothing but its loop.
        let inside = events
            .iter()
            .filter(|event| match event {
                Event::Sample(s) => code.span.contains(Address(s.registers.ip.0)),
                _ => false,
            })
            .count();
        assert!(
            inside as u64 * 2 > imported.samples,
            "{inside} of {imported:?}"
        );
    }
}

#[test]
fn a_recording_by_perf_without_registers_names_the_command() {
    let folder = tempfile::tempdir().unwrap();
    if let Some(path) = record_live(folder.path(), &[], false) {
        let error = read_file(&path).unwrap_err();
        assert!(
            matches!(error, ImportError::MissingFields { .. }),
            "{error}"
        );
    }
}

#[test]
fn damage_to_a_recording_by_perf_never_panics() {
    let folder = tempfile::tempdir().unwrap();
    for options in [&[ALL_REGISTERS][..], &[ALL_REGISTERS, "-z"]] {
        let Some(path) = record_live(folder.path(), options, false) else {
            return;
        };
        let good = std::fs::read(path).unwrap();
        // Every byte of the header and of the attributes, and some hundred of
        // the rest, each with all bits turned.
        let step = (good.len() / 300).max(1);
        for at in (0..400.min(good.len())).chain((400..good.len()).step_by(step)) {
            let mut bytes = good.clone();
            bytes[at] ^= 0xff;
            let _ = read(&bytes);
        }
        for length in (0..good.len()).step_by(step) {
            assert!(read(&good[..length]).is_err(), "cut to {length} bytes");
        }
    }
}
